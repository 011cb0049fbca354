"""What is patched in a watched program: Keras' fit gets a monitor, and so does an eager loop over a tf.data dataset.

Nothing heavy is imported before the first training begins. What goes wrong in here is kept for the record of this
process, and the program goes on as without it.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline_bench.injection import OUT_VARIABLE
from pipeline_bench.system.runtime_folder import RUN_VARIABLE

KEPT_TRAININGS = 10
"""Sessions that a process keeps; of more trainings, each of which is a call of `fit`, only their number."""
WATCHED_LOOPS = 4
"""Loops that are watched in a process, told apart by the line of the `for`."""
LEAST_STEPS = 3
"""A loop that took fewer batches than this looked at an example, and is no training."""

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class Watched:
    """The trainings of this process, and its record, which is written when the process ends.

    Args:
        folder: where the record goes.
        out: where the sessions go.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        self._folder = folder
        self._out = out
        self._in_library = threading.local()
        self._parents: list[Any] = []
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._trainings: list[tuple[str, Any]] = []
        self._loops: dict[str, Any] = {}
        self.distributed: Any = None
        """What watches the loop over a distributed dataset: the first such of a process."""
        self._more = 0
        self._problem: str | None = None
        self._ended = False
        atexit.register(self.end)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # its workers end without atexit
            util.Finalize(None, self.end, exitpriority=100)

    def _forked(self) -> None:
        """Begin anew in a fork of the program; what its parent measures is kept from being ended here."""
        self._parents.append((self._trainings, self._loops))
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

    def callbacks(self, given: list[Any]) -> list[Any]:
        """Return the callbacks of one call of `fit` with those that measure; as given where no more are kept."""
        if len(self._trainings) >= KEPT_TRAININGS:
            self._more += 1
            return given
        try:
            from pipeline_bench.injection.marks import around
            from pipeline_bench.keras import StarvationMonitor

            monitor = StarvationMonitor(out=self._out, quiet=True, name=_program())
            monitor.counts_start_up = not self._trainings
            callbacks = around(given, monitor, self.problem)
            self._trainings.append((f"fit of {_program()}", monitor))
            self._end_with_the_program()
        except Exception as error:
            self.problem(error)
            return given
        return callbacks

    def problem(self, error: Exception) -> None:
        """Keep what went wrong in the watching."""
        self._problem = f"{type(error).__name__}: {error}"

    def iterator(self, dataset: Any, plain: Callable[[Any], Any]) -> Any:
        """Return the iterator of a loop over a dataset, a timed one where the loop is watched."""
        import tensorflow as tf

        if getattr(self._in_library, "depth", 0) or not tf.executing_eagerly() or tf.inside_function():
            return plain(dataset)
        try:
            loop = self._loop(dataset)
            return plain(dataset) if loop is None else loop.iterator(dataset)
        except Exception as error:
            self.problem(error)
            return plain(dataset)

    def batches(self, iterator: Any, framework: str) -> Any:
        """Return an iterator of a DataLoader or of grain, which tells its waits where its loop is watched."""
        if getattr(self._in_library, "depth", 0):
            return iterator
        try:
            loop = self._iterator_loop(framework)
            return iterator if loop is None else loop.timed(iterator)
        except Exception as error:
            self.problem(error)
            return iterator

    def distributed_loop(self, iterator: Any) -> Any:
        """Return what watches the loop that takes from a distributed dataset's iterator; None where nothing does."""
        import tensorflow as tf

        if getattr(self._in_library, "depth", 0) or not tf.executing_eagerly() or tf.inside_function():
            return None
        try:
            return self._distributed_loop(iterator)
        except Exception as error:
            self.problem(error)
            return None

    def _distributed_loop(self, iterator: Any) -> Any:
        if getattr(iterator, "_pipeline_bench_seen", False):
            return self.distributed
        where = _line_of_users()
        if self.distributed is None and where is not None:
            from pipeline_bench.monitoring.distributed import DistributedMonitor

            self.distributed = self._loops[where] = DistributedMonitor(where, self._out)
            self._end_with_the_program()
        if self.distributed is not None:
            iterator._pipeline_bench_seen = True
            self.distributed.begin()
        return self.distributed

    def _iterator_loop(self, framework: str) -> Any:
        where = _line_of_users()
        if where is None or (where not in self._loops and len(self._loops) >= WATCHED_LOOPS):
            return None
        if where not in self._loops:
            from pipeline_bench.monitoring.iterator import IteratorMonitor

            self._loops[where] = IteratorMonitor(where, self._out, framework)
            self._end_with_the_program()
        return self._loops[where]

    def _loop(self, dataset: Any) -> Any:
        where = _line_of_loop()
        if where is None or (where not in self._loops and len(self._loops) >= WATCHED_LOOPS):
            return None
        if where not in self._loops:
            from pipeline_bench.monitoring.loop import Monitor

            monitor = Monitor(dataset, self._out, quiet=True, name=where)
            with self.inside_library():
                monitor.__enter__()
            self._loops[where] = monitor
            self._end_with_the_program()
        return self._loops[where]

    def _end_with_the_program(self) -> None:
        """Have TERM, which a scheduler ends jobs with, leave the record behind where the program leaves TERM alone."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, _frame: FrameType | None) -> None:
        try:
            self.end()
        finally:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def end(self) -> None:
        """End what is measured still, and write the record of this process; once."""
        if self._ended:
            return
        self._ended = True
        ended = [self._guarded(self._ended_fit, *training) for training in self._trainings]
        ended += [self._guarded(self._ended_loop, where, loop) for where, loop in self._loops.items()]
        record = {
            "pid": self._pid,
            "program": _program(),
            "executable": sys.executable,
            "trainings": [each for each in ended if each is not None],
            "more": self._more,
            "problem": self._problem,
        }
        path = self._folder / f"{self._pid}.json"
        try:
            path.with_suffix(".part").write_text(json.dumps(record), encoding="utf-8")
            path.with_suffix(".part").replace(path)
        except OSError:
            return

    def _guarded(self, ended: Callable[..., dict[str, Any] | None], *training: Any) -> dict[str, Any] | None:
        """Return what a training came to; None where that fails: at the program's end nobody is to see a traceback."""
        try:
            return ended(*training)
        except Exception as error:
            self.problem(error)
            return None

    def _ended_fit(self, name: str, monitor: Any) -> dict[str, Any] | None:
        monitor.close()
        if monitor.figures is None or monitor.session is None:
            return None
        time = monitor.session.wall_time
        return {**_training(name, monitor.figures, monitor.folder), "time": time and time.model_dump()}

    def _ended_loop(self, where: str, loop: Any) -> dict[str, Any] | None:
        figures = loop.summary
        if figures.steps < LEAST_STEPS:
            loop.drop()
            return None
        loop.close()
        return {**_training(f"loop of {where}", figures, loop.folder), "on_tf_data": loop.on_tf_data}


def imported(module: Any) -> None:
    """Patch a module that the program has just imported."""
    watched = _watched()
    _PATCHES[module.__name__](module, watched)


@functools.cache
def _watched() -> Watched:
    return Watched(Path(os.environ[RUN_VARIABLE]), Path(os.environ[OUT_VARIABLE]))


def _patch_keras(keras: Any, watched: Watched) -> None:
    plain_fit = keras.Model.fit
    signature = inspect.signature(plain_fit)

    @functools.wraps(plain_fit)
    def fit(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:  # as it is told without this
            return plain_fit(*arguments, **named)
        given = bound.arguments.get("callbacks")
        # A CallbackList is taken as it is: what is added to it here would never be given the model.
        if given is None or isinstance(given, list | tuple) or not hasattr(given, "append"):
            listed = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
            bound.arguments["callbacks"] = watched.callbacks(listed) or None
        with watched.inside_library():
            return plain_fit(*bound.args, **bound.kwargs)

    keras.Model.fit = fit
    for name in ("evaluate", "predict"):
        setattr(keras.Model, name, _inside(getattr(keras.Model, name), watched))


def _inside(method: Any, watched: Watched) -> Any:
    @functools.wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        with watched.inside_library():
            return method(*arguments, **named)

    return called


def _patch_datasets(dataset_ops: Any, watched: Watched) -> None:
    plain = dataset_ops.DatasetV2.__iter__

    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        return watched.iterator(self, plain)

    dataset_ops.DatasetV2.__iter__ = __iter__


def _patch_distributed(input_lib: Any, watched: Watched) -> None:
    iterator, own = input_lib.DistributedIteratorBase, input_lib._SingleWorkerDatasetIteratorBase
    plain = iterator.get_next

    @functools.wraps(plain)
    def get_next(self: Any, name: Any = None) -> Any:
        loop = watched.distributed_loop(self)
        return plain(self, name) if loop is None else loop.next(lambda: plain(self, name))

    iterator.get_next = get_next
    for name in ("get_next_as_list", "get_next_as_optional_list"):
        setattr(own, name, _own_part(getattr(own, name), watched))


def _own_part(plain: Any, watched: Watched) -> Any:
    @functools.wraps(plain)
    def get(self: Any, *given: Any, **named: Any) -> Any:
        loop = watched.distributed
        return plain(self, *given, **named) if loop is None else loop.own(lambda: plain(self, *given, **named))

    return get


def _patch_collectives(module: Any, watched: Watched) -> None:
    launcher = module.CollectiveReplicaLauncher
    plain = launcher.all_reduce

    @functools.wraps(plain)
    def all_reduce(self: Any, input_tensor: Any, *given: Any, **named: Any) -> Any:
        loop = watched.distributed
        if loop is None:
            return plain(self, input_tensor, *given, **named)
        return loop.collective(lambda tensor: plain(self, tensor, *given, **named), input_tensor)

    launcher.all_reduce = all_reduce


def _patch_data_loader(module: Any, watched: Watched) -> None:
    _time_iterators(module.DataLoader, watched, lambda: "torch")


def _patch_grain(module: Any, watched: Watched) -> None:
    """Patch every kind of grain's datasets, those too that are defined later: the last of a pipeline is told of."""

    def framework() -> str:
        return "torch" if "torch" in sys.modules else "jax"

    base = module.IterDataset
    plain = base.__init_subclass__.__func__

    def __init_subclass__(cls: Any, /, **named: Any) -> None:  # noqa: N807 - it stands in the place of that method
        plain(cls, **named)
        _time_iterators(cls, watched, framework)

    base.__init_subclass__ = classmethod(__init_subclass__)
    kinds = [base]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds[1:]:
        _time_iterators(kind, watched, framework)


def _time_iterators(iterable: Any, watched: Watched, framework: Callable[[], str]) -> None:
    plain = iterable.__iter__

    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        with watched.inside_library():
            iterator = plain(self)
        return watched.batches(iterator, framework())

    iterable.__iter__ = __iter__


_PATCHES: dict[str, Callable[[Any, Watched], None]] = {
    "keras": _patch_keras,
    "tensorflow.python.data.ops.dataset_ops": _patch_datasets,
    "tensorflow.python.distribute.input_lib": _patch_distributed,
    "tensorflow.python.distribute.cross_device_utils": _patch_collectives,
    "torch.utils.data.dataloader": _patch_data_loader,
    "grain._src.python.dataset.dataset": _patch_grain,
}
"""How a module is patched, by its name; the same names as in `site/sitecustomize.py`."""


def _training(name: str, figures: Any, folder: Path | None) -> dict[str, Any]:
    return {
        "name": name,
        "steps": figures.steps,
        "input_wait_share": figures.input_wait_share,
        "verdict": figures.verdict.kind,
        "line": figures.line,
        "folder": None if folder is None else str(folder),
    }


def _program() -> str:
    """Return the name of the program's file, as the session is called."""
    return Path(sys.argv[0]).name if getattr(sys, "argv", None) and sys.argv[0] not in ("", "-c") else "python"


def _line_of_loop() -> str | None:
    """Return the file and line of the user's own code that iterates; None where a library does."""
    from pipeline_bench.tfdata import user_code

    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, "<")):
            break
        frame = frame.f_back
    if frame is None or user_code.origin(file) != "user":
        return None
    return f"{Path(file).name}:{frame.f_lineno}"


def _line_of_users() -> str | None:
    """Return the file and line of the user's own code that iterates, itself or by a library that trains for it.

    None where there is no code of the user's: in a worker of the loader's own.
    """
    from pipeline_bench.tfdata import user_code

    frame: Any = sys._getframe(1)
    library = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if user_code.origin(file) == "user" and not file.startswith((_PACKAGE, "<")):
            return f"{Path(file).name}:{frame.f_lineno}{library}"
        if not library and user_code.origin(file) == "library" and not _is_loader(file):
            library = f", by {Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _is_loader(file: str) -> bool:
    return "/torch/utils/data/" in file or "/grain/" in file
