"""What watches the trainings of a program: each `fit` of Keras gets a monitor, and so does each loop over batches.

Nothing heavy is imported before the first training begins. What goes wrong in here is kept for the record of this
process, and the program goes on as without it.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline_bench.injection import OUT_VARIABLE, batch_lines, process_records
from pipeline_bench.injection.adapting import Adapting
from pipeline_bench.injection.between_fits import BetweenFits
from pipeline_bench.injection.functions import Call, Functions
from pipeline_bench.injection.loop_locations import Line
from pipeline_bench.injection.watched_loops import WatchedLoops
from pipeline_bench.system import interrupts
from pipeline_bench.system.processes import no_collection
from pipeline_bench.system.user_folders import RUN_VARIABLE

KEPT_TRAININGS = 10
"""Sessions that a process keeps; of more trainings, each of which is a call of `fit`, only their number."""


class Watched:
    """The trainings of this process, and its record, which is written when the process ends.

    The record goes to `folder`, the sessions to `out`. `started`: which process Python was started as, and where.
    """

    def __init__(self, folder: Path, out: Path, started: tuple[int, str | None]) -> None:
        self._folder, self._out = folder, out
        self._in_library = threading.local()
        self.functions = Functions(self._in_library)
        self._parents: list[Any] = []
        started_pid, self._started_in = started
        # A diagnosis of it would not look into what it forks: as below, where the fork is the first to import anything.
        self._command = process_records.command() if os.getpid() == started_pid else ()
        self._variables = process_records.variables()
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._trainings: list[tuple[int, Any]] = []
        """Calls of `fit`: which one of the process it is, and what watches it."""
        self._fits = self._more = 0
        self.between_fits = BetweenFits()
        self.adapting = Adapting()
        self._loops = WatchedLoops()
        for name in ("_session_runs", "_training_calls"):
            self.__dict__.pop(name, None)
        self.functions.forget_traces()
        self._problem: str | None = None
        self._tapes_unwatched = False
        """Whether eager code on a GPU entered a GradientTape: it may have trained, or only taken a gradient."""
        self._ended = False
        atexit.register(self.end)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # its workers end without atexit; those that it forks forget what was registered
            for_worker = functools.partial(util.Finalize, None, self.end, exitpriority=100)
            for_worker()
            util.register_after_fork(self, lambda _: for_worker())

    def _forked(self) -> None:
        """Start afresh in a fork of the program, which must not end what its parent measures."""
        self._parents.append((self._trainings, self._loops))
        self._command = ()
        self._begin()

    @contextmanager
    def inside_library(self) -> Iterator[None]:
        """Leave alone what Keras, or another library, itself iterates over meanwhile, in this thread."""
        depth = getattr(self._in_library, "depth", 0)
        self._in_library.depth = depth + 1
        try:
            yield
        finally:
            self._in_library.depth = depth

    def callbacks(self, given: list[Any], data: Any = None, unwatched: str | None = None) -> list[Any]:
        """Return the callbacks of a `fit` of data with those that measure; as given if `unwatched` or one too many."""
        self._fits += 1
        if unwatched is not None or len(self._trainings) >= KEPT_TRAININGS:
            self._more += unwatched is None
            self._problem = unwatched or self._problem
            return given
        try:
            with no_collection():
                from pipeline_bench.injection.callback_marks import around
                from pipeline_bench.keras import StarvationMonitor
                from pipeline_bench.tfdata.public_api import loader_hint

            diagnosable = not loader_hint(data)
            own = next((each for each in given if isinstance(each, StarvationMonitor)), None)
            if own is not None:  # the program measures this training itself, and would have its waits taken from it
                if all(own is not monitor for _, monitor in self._trainings):
                    self._trainings.append((self._fits, own))
                    own.on_kept, own.diagnosable = self._write, diagnosable
                return given
            monitor = StarvationMonitor(out=self._out, quiet=True, name=process_records.program())
            monitor.counts_start_up = not (self._trainings or self._loops.have_trained)
            callbacks = around(given, monitor)
            monitor.on_kept, monitor.on_problem, monitor.diagnosable = self._write, self.problem, diagnosable
            self._trainings.append((self._fits, monitor))
        except Exception as error:
            self.problem(error)
            return given
        return callbacks

    def ends_fit(self, callbacks: list[Any]) -> None:
        """Take in that a call of `fit` is over, with these callbacks: also where one of the program's own raised."""
        measured = None
        with interrupts.to_the_end():
            for each in callbacks:
                # Not in a fork that a callback has made: it has trainings of its own.
                if any(getattr(each, "monitor", None) is monitor for _, monitor in self._trainings):
                    self._guarded(each.ends_fit)
                    measured = each.monitor
            self._guarded(lambda: self._loops.pass_fit(measured))

    def problem(self, problem: Exception | str) -> None:
        """Record what went wrong in the watching, or why something is not watched.

        What a signal's handler of the program's own raised meanwhile passes through.
        """
        if isinstance(problem, Exception) and interrupts.raised_by_handler(problem):
            raise problem
        self._problem = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"

    def iterator(self, dataset: Any, plain: Callable[[], Any]) -> Any:
        """Return the iterator of a loop over a dataset, by `plain`, or a timed one where the loop is watched."""
        import tensorflow as tf

        in_function = bool(tf.inside_function())
        if self._is_in_library or (self._may_not_trace() if in_function else not tf.executing_eagerly()):
            return plain()
        line = functools.partial(batch_lines.of_traced, by_itself=True) if in_function else batch_lines.of_loop
        timed = self._probed(dataset, line, None if in_function else dataset)
        return plain() if timed is dataset else iter(timed)

    def scanned(self, dataset: Any) -> Any:
        """Return the dataset of a loop that is traced, a timed one where the loop is watched."""
        return dataset if self._is_in_library or self._may_not_trace() else self._probed(dataset, batch_lines.of_traced)

    def distributed_probe(self, data: Any) -> Any:
        """Return the probe of the running or traced loop over a distributed dataset, None where that is not known."""
        import tensorflow as tf

        eager = tf.executing_eagerly()
        if self._is_in_library or (eager and tf.inside_function()) or (not eager and self._may_not_trace()):
            return None
        loop = self._guarded(lambda: self._loop(batch_lines.of_user if eager else batch_lines.of_traced, data))
        return None if loop is None else loop.probe

    def _may_not_trace(self) -> bool:
        """Return whether a traced loop is left alone: what reads the clock for it could not be saved with it."""
        from pipeline_bench.graph_ops import is_deterministic

        if found := bool(self._guarded(is_deterministic)):
            self.problem(process_records.DETERMINISTIC)
        return found

    @property
    def _is_in_library(self) -> bool:
        return bool(getattr(self._in_library, "depth", 0))

    def _probed(self, dataset: Any, line: Callable[[], Line | None], data: Any = None) -> Any:
        """Return the dataset, timed where its loop over `data` is watched, and the program does not time it itself."""
        probe = sys.modules.get("pipeline_bench.monitoring.probe")
        if probe is not None and isinstance(dataset, probe.ProbedDataset):
            return dataset
        loop = self._guarded(lambda: self._loop(line, data))
        return dataset if loop is None else self._guarded(lambda: loop.probed(dataset), dataset)

    def session_run(self, session: Any, fetches: Any, feed: Any, plain: Callable[[Any], Any]) -> Any:
        """Run a graph of TensorFlow 1, and record its waits where its loop is watched; `plain` runs it."""
        if self._is_in_library or self._session_runs is None:
            return plain(fetches)
        return self._session_runs.run(session, fetches, feed, plain)

    @functools.cached_property
    def _session_runs(self) -> Any:
        """What watches the program's calls of `Session.run`; None where it could not be made."""

        def make() -> Any:
            with no_collection():
                from pipeline_bench.monitoring.session_runs import SessionRuns
            return SessionRuns(batch_lines.of_user, self._watched_loop, self.problem, self._out)

        return self._guarded(make)

    def trains_on_batch(self, framework: str, plain: Callable[[], Any]) -> Any:
        """Call Keras' `train_on_batch` by `plain`, and record how long the loop that calls it waited for the batch."""
        call = self.inside_library()(plain)
        if self._is_in_library or self._is_fed() or self._training_calls is None:
            return call()
        return self._training_calls.on_batch("train_on_batch", framework, call)

    def function_call(self, call: Call, plain: Callable[[], Any]) -> Any:
        """Call a `tf.function` by `plain`; if it trains, record how long the loop around it waited for the batch."""
        is_inner = self.functions.outermost is not None
        if self._is_in_library and not is_inner:
            return plain()
        trains = self.functions.train(call)
        try:
            with self.functions.inside(call):
                return plain() if is_inner else self._outer_call(call, bool(trains), plain)
        finally:
            if is_inner and self.functions.train(call):
                self._train_in_functions()
            elif not (is_inner or trains):
                self._loops.see_call(self.functions.train(call))

    def _outer_call(self, call: Call, trains: bool, plain: Callable[[], Any]) -> Any:
        if trains and self._is_fed():
            return plain()
        unknown = process_records.SIGNATURE if call.probes else process_records.ASYNCHRONOUS * self._is_asynchronous
        self._problem = self._problem or (unknown if trains and unknown else None)
        if not trains or unknown or self._training_calls is None:
            self.ends_step(id(call.function))
            return plain()
        return self._training_calls.on_batch("the tf.function that trains", "tensorflow", plain)

    def _train_in_functions(self) -> None:
        for function in self.functions.see_training():
            self._loops.train_in(function)

    def enters_tape(self) -> None:
        """Take in that a GradientTape is entered: the function that is being traced trains, or eager code does."""
        import tensorflow as tf

        if self.functions.outermost is not None:
            self._train_in_functions()
        elif not self._is_in_library and tf.executing_eagerly() and not self._is_fed(eager=True):
            if self._is_asynchronous:
                self._tapes_unwatched = True
            elif self._training_calls:
                self._guarded(self._training_calls.enter_tape)

    def eager_step(self, leaves_tape: bool = False) -> None:
        """Take in that a part of a step in eager code has ended: a tape is left, a gradient or a variable is there."""
        calls = self.__dict__.get("_training_calls")
        if calls is not None and not self._is_in_library and self.functions.outermost is None:  # else it is traced
            self._guarded(calls.leave_tape if leaves_tape else calls.goes_on)

    def model_call(self, model: Any, plain: Callable[[], Any]) -> Any:
        """Call a model of Keras by `plain`; within another one, or a step that is a function, it is a part of that."""
        thread = self._in_library
        if getattr(thread, "model", None) is not None or self.functions.outermost is not None:
            return plain()
        thread.model = model
        try:
            calls = self.ends_step(id(model))  # which learns nothing where it only augments a batch
            return plain() if calls is None else calls.computes(plain, model)
        finally:
            thread.model = None

    @functools.cached_property
    def _is_asynchronous(self) -> bool:
        """Whether a call of a function that trains may end before its step does, as on a GPU."""
        from pipeline_bench.monitoring.sampling import device_of

        return bool(self._guarded(lambda: device_of("tensorflow").kind != "cpu", True))

    def ends_step(self, name: str | int | None = None) -> Any:
        """Take in a call of Keras that is no step of a loop of the program's own; return what watches steps, or None.

        Args:
            name: of what may as well be a part of making a batch; None of what cannot be.
        """
        calls = None if self._is_in_library else self.__dict__.get("_training_calls")
        if calls is not None:
            self._guarded(calls.leave if name is None else functools.partial(calls.other, name))
        return calls

    def see(self, event: Callable[[WatchedLoops], None]) -> None:
        """Have the loops take in what the program itself does, and no library for it."""
        if not self._is_in_library:
            self._guarded(lambda: event(self._loops))

    def _is_fed(self, eager: bool = False) -> bool:
        """Take in a call that trains; return whether it belongs to a loop over batches, which is watched itself."""
        if fed := bool(self._guarded(lambda: self._loops.feed_a_call(eager), False)):
            self.ends_step()
        return fed

    @functools.cached_property
    def _training_calls(self) -> Any:
        """What watches the calls that train on a batch that they are given; None where it could not be made."""

        def make() -> Any:
            with no_collection():
                from pipeline_bench.monitoring.calls import TrainingCalls
            line = functools.partial(batch_lines.of_user, in_fit=lambda: self.problem(process_records.UNPATCHED))
            return TrainingCalls(line, self._watched_loop, self.problem, self._out)

        return self._guarded(make)

    def batches(self, iterator: Any, framework: str, data: Any, making_ns: int) -> Any:
        """Return an iterator of a DataLoader or of grain, whose waits are recorded where its loop is watched."""
        if self._is_in_library:
            return iterator

        def begin(where: str) -> Any:
            with no_collection():
                from pipeline_bench.monitoring.loaders import LoaderMonitor
            return LoaderMonitor(where, framework, self._out)

        loop = self._guarded(lambda: self._watched_loop(batch_lines.of_user(), begin, data))
        return iterator if loop is None else self._guarded(lambda: loop.timed(iterator, making_ns), iterator)

    def _loop(self, line: Callable[[], Line | None], data: Any = None) -> Any:
        def begin(where: str) -> Any:
            with no_collection():
                from pipeline_bench.monitoring.loop import DatasetMonitor
            return DatasetMonitor(where, self._out, lasting=True)

        return self._watched_loop(line(), begin, data)

    def _watched_loop(self, where: Line | None, begin: Callable[[str], Any], data: Any = None) -> Any:
        """Return what watches the loop of a line over these data; None where it is to be left alone."""
        if where is None:
            return None
        function, path = self.functions.outermost, 0 if data is None else batch_lines.path()
        return self._loops.of(where, functools.partial(self._begun, begin), function, data, path)

    def _begun(self, begin: Callable[[str], Any], where: str) -> Any:
        with self.inside_library():
            loop = begin(where)
        loop.record.on_kept, loop.passes.counts_start_up = self._write, not self._trainings
        return loop

    def end(self) -> None:
        """End what is measured still, and write the record of this process; once."""
        if self._ended:
            return
        self._ended = True
        with interrupts.to_the_end(ending=True):
            for _, monitor in self._trainings:
                self._guarded(monitor.close)
            self._guarded(self.between_fits.end)
            self._guarded(lambda: self._loops.end(self._fit_trains, self._guarded))
            self._guarded(self._write)

    @property
    def _fit_trains(self) -> bool:
        return any(monitor.kept is not None for _, monitor in self._trainings)

    def _write(self) -> None:
        """Write the record as it stands, before any signal: no handler of one would run while a call in C does."""
        shown = self._loops.shown(self._fit_trains)
        loops = (process_records.of_loop(where, loop, self._loops.only_reads(loop)) for where, loop in shown)
        fits = map(process_records.of_fit, list(self._trainings))
        trainings = [each for each in (*fits, *loops) if each is not None]
        unseen = process_records.unseen(trainings, self._loops, self._tapes_unwatched)
        record = {
            "program": process_records.program(),
            "executable": sys.executable,
            "trainings": trainings,
            "more": self._more,
            "between_fits": self.between_fits.record(),
            "adapted": self.adapting.record(),
            "unwatched_loops": self._loops.unwatched,
            "traced_anew": self.functions.traced_anew(),
            "problem": self._problem or unseen,
            "ended": self._ended,
            "command": self._command,
            "folder": self._started_in,
            "variables": self._variables,
        }
        process_records.write(self._folder, self._pid, record, is_fork=bool(self._parents))

    def _guarded(self, work: Callable[[], Any], otherwise: Any = None) -> Any:
        """Return what the work gives; where it raises, `otherwise`: the program hears nothing of it, nor at its end."""
        try:
            return work()
        except Exception as error:
            self.problem(error)
            return otherwise


def imported(module: Any, started: tuple[int, str | None]) -> None:
    """Patch a module that the program has just imported; `started` as of `Watched`."""
    from pipeline_bench.injection import patches

    patches.apply(module, _watched(started))


@functools.cache
def _watched(started: tuple[int, str | None]) -> Watched:
    return Watched(Path(os.environ[RUN_VARIABLE]), Path(os.environ[OUT_VARIABLE]), started)
