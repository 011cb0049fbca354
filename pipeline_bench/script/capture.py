"""A script of the user's, run unchanged up to where its training first asks a pipeline for elements.

There what it trains on, and the model of a `fit`, are taken, and the call that begins the training never returns:
nothing of the script's runs behind it, no `finally` and no `except` (see `system.main_thread`).
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import mmap
import os
import queue
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.script import batch_calls, training_calls, training_data
from pipeline_bench.script.training_data import CapturedTraining, Does
from pipeline_bench.script.training_loops import DatasetLoop, Loops
from pipeline_bench.system import main_thread
from pipeline_bench.system.processes import end_soon_after_parent
from pipeline_bench.tfdata import public_api
from pipeline_bench.tfdata.public_api import after_import
from pipeline_bench.user_code import legacy_keras, source_loops
from pipeline_bench.user_code.thread_state import ThreadState

_RUN_HINT = "`pipeline-bench run -- python {script}` says how long each of its trainings waits for its input"
_TRAINING_PROCESS_S = 2.0
"""CPU time that an import of TensorFlow alone takes: who starts processes that took less has none of them train."""
_METHODS: dict[Does, str] = {"train": "fit", "test": "evaluate", "predict": "predict"}


def run_to_training(target: Target, waiting: Callable[[], None] = lambda: None) -> CapturedTraining:
    """Run the script as `__main__`, with its arguments, until a training begins.

    It runs in the main thread, which has to be lent (`main_thread.lend`), and is not given back once it trains.

    Args:
        target: the script.
        waiting: called once a second until then.

    Raises:
        UserCodeError: it trains on something that cannot be looked at, or ends without a training.
        BaseException: whatever the script raises before.
    """
    spec = None if target.module is None else _spec(target.module)
    file = Path(str(target.file if spec is None else spec.origin))
    if not file.is_file():
        raise UserCodeError(f"there is no file {file}", "was it moved, or has the working folder changed?")
    tree = ast.parse(file.read_bytes(), filename=str(file))
    watch = _Watch(target, file.name, tree)
    name_a_function = f"name the function that makes the dataset: {target.module or file}:FUNCTION"
    with watch.watching():
        main_thread.run(lambda: watch.run(lambda: _execute(file, tree, target.arguments or (), spec)))
        found = watch.wait(waiting, name_a_function)
    if found is None and target.training is not None:
        has = f"it has {'; '.join(watch.passed)}" if watch.passed else name_a_function
        raise UserCodeError(f"{target.text} ran to its end, and has no training {target.training}", has)
    if found is None and os.times().children_user + os.times().children_system > _TRAINING_PROCESS_S:
        raise UserCodeError(
            f"{target.text} ran to its end and trained nothing itself; it started processes, which are not looked into",
            f"{_RUN_HINT.format(script=target.text)}; where these run a script, it names the command that diagnoses it",
        )
    if found is None:
        of_others = f"{_RUN_HINT.format(script=target.text)}, also over a DataLoader, grain or arrays"
        raise UserCodeError(
            f"{target.text} ran to its end, and no training was found: no fit, and no loop over a tf.data.Dataset",
            of_others if user_code.names(user_code.UNSEEN) else name_a_function,
        )
    if isinstance(found, BaseException):
        raise found
    here, line = found.line.rpartition(":")[::2]
    if found.epochs is not None and here == file.name:
        return replace(found, later_fits=training_calls.fit_lines(tree, after=int(line)))
    return found


def _spec(module: str) -> ModuleSpec:
    """Return the specification of what `python -m MODULE` runs; the packages around it are imported for that.

    Raises:
        UserCodeError: there is no such module, or it has no file.
        BaseException: whatever importing the packages raises.
    """
    sys.path.insert(0, str(Path.cwd()))
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or not spec.has_location:
        raise UserCodeError(f"there is no module {module} to run", "has the working folder changed?")
    return spec


def _execute(file: Path, tree: ast.Module, arguments: tuple[str, ...], spec: ModuleSpec | None) -> None:
    """Run a file as `python FILE ARGUMENTS` does; its module stays `__main__`, for its functions are called later.

    With the specification of a module it is run as `python -m MODULE ARGUMENTS` does.
    """
    module = ModuleType("__main__")
    whole = str(file.absolute())  # as Python has it since 3.9; `sys.argv` has it as it was given
    module.__dict__.update(__file__=whole, __builtins__=__builtins__, __cached__=None)
    if spec is None:
        sys.path.insert(0, str(file.resolve().parent))
    else:
        module.__dict__.update(__spec__=spec, __package__=spec.parent, __loader__=spec.loader)
    sys.modules["__main__"] = module
    sys.argv = [str(file), *arguments]
    size = os.terminal_size((80, 24))
    os.get_terminal_size = lambda *_: size  # a script may ask for that of its terminal, and a trial has none
    # Without this module's own `from __future__`, which would leave the script's annotations unevaluated.
    code = compile(tree, whole, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is what was asked for


class _Watch:
    """Waits for the first training, and has the code that begins it wait for ever."""

    def __init__(self, script: Target, file: str, tree: ast.Module) -> None:
        """Prepare to run a script, whose file has this name and this text."""
        self._file, self._tree = file, tree
        self._outcomes: queue.SimpleQueue[CapturedTraining | BaseException | None] = queue.SimpleQueue()
        """What was found, or what the script raised; None at its end. The first one counts."""
        self._state: ThreadState | None = None
        self._process, self._reached_in_fork = os.getpid(), mmap.mmap(-1, 1)
        self._noted: CapturedTraining | None = None
        """A loop that may be the training, or else another use of a model; it is where no other was reached."""
        self.loops = Loops(
            self._reach_loop,
            self._note_loop,
            self._reach_bare,
            lambda file: training_calls.trains_in(file) or self._trains_elsewhere(),
            script.of_loop,
        )
        self._script, self._meant = script.text, script.training
        self._trains, self._fits = training_calls.trains(tree), training_calls.may_fit(tree)
        self._calls = 0
        """Of `fit`."""
        self.passed: dict[str, None] = {}
        """The trainings that were not meant, as they are listed."""
        self._patches = ExitStack()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what is run in the block."""
        with self._patches:
            # Keras reads from the environment what it runs on, which the script may set before it imports it.
            self._patches.enter_context(after_import("keras", self._patch_keras))
            self._patches.enter_context(after_import(legacy_keras.NAME, self._patch_keras))
            self._patches.enter_context(after_import(legacy_keras.WITHOUT_EAGER, self._patch_fit))
            self._patches.enter_context(after_import("torch.autograd", self._patch_autograd))
            self._patches.enter_context(self.loops.watched())
            yield

    def run(self, script: Callable[[], None]) -> None:
        """Run the script in this thread, and note how it ended."""
        found: CapturedTraining | BaseException | None = None
        try:
            script()
            main_thread.end_others()
            found = self._noted
        except SystemExit as ended:  # of a main that has gone well, as sys.exit(main()), click and absl tell it
            found = self._noted if ended.code in (None, 0) else ended
        except BaseException as error:
            found = error
        if os.getpid() != self._process:
            os._exit(0)  # a child that the script forked must not go on with this trial
        self._tell(found)

    def wait(self, waiting: Callable[[], None], hint: str) -> CapturedTraining | BaseException | None:
        """Return what was found, or what the script raised; None where it ended without a training.

        Args:
            waiting: called once a second until then.
            hint: what to do where a process that the script forks trains.
        """

        def look() -> None:
            waiting()
            if self._reached_in_fork[0]:
                self._tell(
                    UserCodeError("the script trains in a process that it forks, which is not looked into", hint)
                )

        found = main_thread.receive(self._outcomes, look)
        if self._state is not None and isinstance(found, CapturedTraining):
            self._state.take_over(found.model)
        return found

    def _tell(self, found: CapturedTraining | BaseException | None) -> None:
        if isinstance(found, CapturedTraining):
            self._state = ThreadState()
        self._outcomes.put(found)

    def _patch_keras(self, keras: Any) -> None:
        made = {
            **{name: self._whole(does) for does, name in _METHODS.items() if does != "train"},
            "train_on_batch": self._one_batch,
        }
        self._patch_fit(keras)
        for name, wrapped in made.items():
            self._patches.enter_context(user_code.patched(keras.Model, name, wrapped(getattr(keras.Model, name))))
        for name in ("apply", "stateless_apply"):
            if hasattr(keras.optimizers.Optimizer, name):
                plain = getattr(keras.optimizers.Optimizer, name)
                wrapper = self.loops.training(plain)
                self._patches.enter_context(user_code.patched(keras.optimizers.Optimizer, name, wrapper))

    def _patch_autograd(self, autograd: Any) -> None:
        wrapper = self.loops.training_beside(autograd.backward)  # which a tensor's `backward` calls too
        self._patches.enter_context(user_code.patched(autograd, "backward", wrapper))

    def _patch_fit(self, keras: Any) -> None:
        keras.Model.fit = self._whole("train")(keras.Model.fit)  # for good: no other thread may come to train either

    def _reach(self, found: CapturedTraining | UserCodeError) -> NoReturn:
        if os.getpid() != self._process:
            end_soon_after_parent(os.getppid())
            self._reached_in_fork[0] = 1
        else:
            self.loops.let_go()
            self._tell(found)
        main_thread.park()

    def _is_meant(self, line: str, number: int | None = None) -> bool:
        """Return whether a training is the one to stop at: on that line, or with that number among the calls of fit."""
        if self._meant in (None, line.rpartition(":")[2], str(number)):
            return True
        self.passed[line if number is None else f"{number}: {line}"] = None
        return False

    def _reach_loop(self, loop: DatasetLoop) -> None:
        if self._is_meant(loop.line):
            self._reach(_of_loop(loop, loop.step))

    def _note_loop(self, loop: DatasetLoop) -> None:
        if (self._noted is None or self._noted.does != "train") and self._is_meant(loop.line):
            self._noted = _of_loop(loop, loop.step)

    def _note_use(self, given: dict[str, Any], does: Does) -> None:
        if self._noted is None and self._meant is None:
            found = self._of_keras(given, does)
            # That call uses a generator up.
            if isinstance(found, CapturedTraining) and training_data.kind(found.data) != "generator":
                self._noted = found

    def _trains_elsewhere(self) -> bool:
        """Return whether what trains nothing yet only prepares something: the script, or what it imports, trains."""
        self._trains = self._trains or training_calls.trains_in_imported()
        return self._trains

    def _reach_bare(self, line: str, by_session: bool = False) -> None:
        if not self._is_meant(line):
            return
        message = f"The training of {line} takes its batches from no tf.data pipeline, which is what could be changed"
        if by_session:
            message = f"{line} trains by Session.run, in which no pipeline can be looked at or changed"
        elif (made := self.loops.one_batch_an_iterator) is not None:
            hint = f"{source_loops.ONE_ITERATOR.capitalize()}, and diagnose again"
            self._reach(UserCodeError(f"{made} {source_loops.AN_ITERATOR_A_BATCH}", hint))
        lines = "and, if it waits for some seconds in all, in which line of yours most of the wait lies"
        here, number = line.rpartition(":")[::2]
        fits = training_calls.fit_lines(self._tree, after=int(number)) if here == self._file else ()
        run_hint = f"{_RUN_HINT.format(script=self._script)}, {lines}"
        if fits:
            run_hint += f"; --training {fits[0]} measures the fit of that line, if the script comes to it: each trial "
            run_hint += "then runs this loop to its end first"
        self._reach(UserCodeError(message, run_hint))

    def _whole(self, does: Does) -> Callable[[Any], Any]:
        """Return what stands in the place of a model's `fit`, `evaluate` or `predict`."""

        def wrapper(plain: Any) -> Any:
            signature = inspect.signature(plain)

            @functools.wraps(plain)
            def method(*arguments: Any, **named: Any) -> Any:
                self._calls += does == "train"
                # Keras' own within a call that is passed, or what a callback of one trains, which is numbered too.
                if self.loops.is_paused and (does != "train" or self._meant is None):
                    return plain(*arguments, **named)
                # An untrained model may be looked at before it is trained.
                if does != "train" and self._trains_elsewhere():
                    self._note_use(dict(signature.bind(*arguments, **named).arguments), does)
                    with self.loops.paused():
                        return plain(*arguments, **named)
                given = dict(signature.bind(*arguments, **named).arguments)
                if does == "train":
                    self._reach_loop_of(given)
                if not self._is_meant(user_code.line(), self._calls if does == "train" else None):
                    with self.loops.paused():
                        return plain(*arguments, **named)
                return self._reach(self._of_keras(given, does))

            return method

        return wrapper

    def _reach_loop_of(self, given: dict[str, Any]) -> None:
        """Reach the loop under way, if it has `fit` train on each of its batches; not one whose only batch is kept."""
        loop = self.loops.under_way()
        if loop is None or next(source_loops.around(body=False), None) not in loop.taken_in:
            return
        if (
            training_data.epochs_of(given, "train") == 1
            and _takes_batches_of(loop, given)
            and self._is_meant(loop.line)
        ):
            self._reach(_of_loop(loop, given["self"], "fit"))

    def _of_keras(self, given: dict[str, Any], does: Does) -> CapturedTraining | UserCodeError:
        model, line = given.pop("self"), user_code.line()
        if training_data.is_eager_off():
            return UserCodeError(
                f"the script has switched eager execution off (tf.compat.v1.disable_eager_execution or "
                f"disable_v2_behavior), so that what the {_METHODS[does]} of {line} takes cannot be inspected",
                "take that call out: Keras trains in a graph by itself",
            )
        taken = legacy_keras.as_py_dataset(given.get("x"), given)
        data = self.loops.behind(taken)
        if training_data.kind(data) is None:
            hints = (
                legacy_keras.sequence_hint(data),
                _RUN_HINT.format(script=self._script),
                public_api.loader_hint(data),
            )
            return UserCodeError(
                f"the {_METHODS[does]} of {line} takes its batches from what cannot be looked at here, "
                f"{type(data).__name__} of {type(data).__module__}: only a tf.data.Dataset, a PyDataset, a generator "
                "and arrays can",
                "; ".join(filter(None, hints)),
            )
        datasets = training_data.named(sys._getframe(1), data)
        epochs = training_data.epochs_of(given, does) if data is taken else 1  # an iterator passes once
        in_loop = any(source_loops.around(body=False)) and not source_loops.is_replaced()
        trains, is_arrays = does == "train", training_data.kind(data) == "arrays"
        return CapturedTraining(
            data,
            model,
            line,
            does,
            given,
            datasets,
            epochs,
            in_loop,
            within=next(source_loops.around(), None),
            one_batch=trains and is_arrays and training_data.fit_in_one_batch(data, given),
            steps_a_call=legacy_keras.steps_a_graph_call(model) if trains else None,
        )

    def _one_batch(self, plain: Any) -> Any:
        """Return what stands in the place of a model's `train_on_batch`."""
        signature = inspect.signature(plain)

        @functools.wraps(plain)
        def train_on_batch(*arguments: Any, **named: Any) -> Any:
            given = signature.bind(*arguments, **named).arguments
            line, loop = user_code.line(), self.loops.under_way()
            if loop is None and self._fits:  # a step that makes the weights, as before they are loaded
                self.loops.count_bare()
            elif loop is None:
                self._reach_bare(line)
            elif self._is_meant(loop.line):
                self._reach(_of_loop(loop, given["self"] if _takes_batches_of(loop, given) else None, "train_on_batch"))
            return plain(*arguments, **named)

        return train_on_batch


def _takes_batches_of(loop: DatasetLoop, given: Mapping[str, Any]) -> bool:
    """Return whether what a model's method was given may be a batch that a loop took."""
    return training_data.are_batches_of(loop.dataset, [given.get(name) for name in ("x", "y", "sample_weight")])


def _of_loop(loop: DatasetLoop, model: Any, by: str = "") -> CapturedTraining:
    return CapturedTraining(
        loop.dataset,
        model,
        loop.line,
        datasets=training_data.named(sys._getframe(1), loop.dataset, *loop.others),
        within=loop.within,
        never_reads_again=loop.never_reads_again,
        steps=loop.steps,
        part=batch_calls.part(by, loop.taken_in) if by else getattr(loop.step, "part", ""),
        of_loop=loop.place,
        eager=loop.eager,
        handed_on_by=loop.handed_on_by or source_loops.handing_on(loop.generator),
    )
