"""A script of the user's, run unchanged up to where its training first asks a pipeline for elements.

There the pipeline, and the model of a `fit`, are taken, and the script is left by an exception that no `except
Exception` of its own stops.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.tfdata import public_api, user_code

_LOOP_ELEMENTS = 3
"""A loop that takes so many elements trains; who looks at an example takes one or two."""
_RUN_HINT = "`pipeline-bench run -- python {file}` says how long each of its trainings waits for its input"


@dataclass(frozen=True)
class Training:
    """What a training was about to use.

    Attributes:
        dataset: the `tf.data.Dataset`, or the distributed one, that it takes its elements from.
        model: the Keras model whose `fit` was called; None for a loop of the script's own.
        line: where in the user's code it began, `train.py:12`.
    """

    dataset: Any
    model: Any
    line: str


class _Reached(BaseException):
    """Leaves the script where its training begins."""


def calls_fit(tree: ast.AST) -> bool:
    """Return whether a script calls a method named `fit`, as far as its own text says."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Attribute) and called.attr == "fit" for called in calls)


def run_to_training(target: Target) -> Training:
    """Run the script as `__main__`, with its arguments, until a training begins.

    Raises:
        UserCodeError: it trains on something else than tf.data, or ends without a training.
        BaseException: whatever the script raises before.
    """
    file = Path(str(target.file))
    if not file.is_file():
        raise UserCodeError(f"there is no file {file}", "was it moved, or the working folder changed?")
    tree = ast.parse(file.read_bytes(), filename=str(file))
    found: list[Training | UserCodeError] = []
    try:
        with _taken(found, loops=not calls_fit(tree)):
            _execute(file, tree, target.arguments or ())
    except BaseException:
        # What is raised on the way out of the training, by a `finally` for one, is no more the script's failure.
        if not found:
            raise
    if not found:
        raise UserCodeError(
            f"{target.text} ran to its end, and no training was seen: no fit, and no loop over a tf.data.Dataset",
            f"name the function that makes the dataset: {file}:FUNCTION",
        )
    if isinstance(found[0], UserCodeError):
        raise found[0]
    return found[0]


def _execute(file: Path, tree: ast.Module, arguments: tuple[str, ...]) -> None:
    """Run a file as `python FILE ARGUMENTS` does; its module stays `__main__`, for its functions are called later."""
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(file), __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    # Without this module's own `from __future__`, which would leave the script's annotations unevaluated.
    code = compile(tree, str(file), "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is what was asked for


@contextmanager
def _taken(found: list[Training | UserCodeError], loops: bool) -> Iterator[None]:
    """Append the first training that begins in the block; the code that begins it is left.

    Args:
        found: takes the training, or why it cannot be measured.
        loops: whether a loop over a dataset counts; where the script calls `fit`, a loop before it prepares something.
    """
    import keras
    from tensorflow.python.data.ops import dataset_ops, iterator_ops

    def reach(training: Training | UserCodeError) -> None:
        if not found:
            found.append(training)
        raise _Reached

    with ExitStack() as patches:
        patches.enter_context(public_api.patched(keras.Model, "fit", _fit(keras.Model.fit, reach)))
        if loops:
            watch = _Loops(reach)
            iterate = watch.iterate(dataset_ops.DatasetV2.__iter__)
            patches.enter_context(public_api.patched(dataset_ops.DatasetV2, "__iter__", iterate))
            take = watch.take(iterator_ops.OwnedIterator._next_internal)
            patches.enter_context(public_api.patched(iterator_ops.OwnedIterator, "_next_internal", take))
        yield


def _fit(plain: Any, reach: Callable[[Training | UserCodeError], None]) -> Any:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def fit(*arguments: Any, **named: Any) -> None:
        given = signature.bind(*arguments, **named).arguments
        data, line = given.get("x"), _line()
        import tensorflow as tf

        if isinstance(data, tf.data.Dataset | tf.distribute.DistributedDataset):
            reach(Training(data, given["self"], line))
        file = line.partition(":")[0]
        reach(
            UserCodeError(
                f"the fit of {line} trains on {_described(data)}, not on a tf.data pipeline, which has stages",
                _RUN_HINT.format(file=file),
            )
        )

    return fit


def _described(data: Any) -> str:
    if isinstance(data, dict | list | tuple) or hasattr(data, "shape"):
        return "arrays in memory, for which it seldom waits"
    return f"a {type(data).__name__}"


class _Loops:
    """Counts what loops of the user's own code take."""

    def __init__(self, reach: Callable[[Training | UserCodeError], None]) -> None:
        self._reach = reach
        self._taken: weakref.WeakKeyDictionary[Any, tuple[Any, str, int]] = weakref.WeakKeyDictionary()
        self._last: tuple[Any, str] | None = None

    def iterate(self, plain: Any) -> Any:
        """Return what stands in the place of a dataset's `__iter__`."""

        @functools.wraps(plain)
        def __iter__(dataset: Any) -> Any:  # noqa: N807 - it stands in the place of that method
            import tensorflow as tf

            iterator = plain(dataset)
            if tf.executing_eagerly() and user_code.origin(sys._getframe(1).f_code.co_filename) == "user":
                self._last = (dataset, _line())
                self._taken[iterator] = (*self._last, 0)
            return iterator

        return __iter__

    def take(self, plain: Any) -> Any:
        """Return what stands in the place of an iterator's `_next_internal`."""

        @functools.wraps(plain)
        def _next_internal(iterator: Any) -> Any:
            import tensorflow as tf

            if not tf.executing_eagerly():  # a step is traced that takes its elements itself
                if self._last is not None and self._last[0].element_spec == iterator.element_spec:
                    self._reach(Training(self._last[0], None, self._last[1]))
                return plain(iterator)
            known = self._taken.get(iterator)
            if known is not None:
                dataset, line, count = known
                if count + 1 >= _LOOP_ELEMENTS:
                    self._reach(Training(dataset, None, line))
                self._taken[iterator] = (dataset, line, count + 1)
            return plain(iterator)

        return _next_internal


def _line() -> str:
    """Return the line of the user's code that is being run, `train.py:12`."""
    place = user_code.location(2)
    return "the script" if place is None else f"{Path(place.file).name}:{place.line}"
