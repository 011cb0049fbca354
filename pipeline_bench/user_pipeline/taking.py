"""Takes elements from a dataset: with a deadline, without copies to NumPy, and again from memory.

An element is taken by one eager call of the iterator's own op, about 12 us in TensorFlow 2.21; `next(iterator)` takes
20 us, and a loop in a `tf.function` 28 us an element. The call can be cancelled, so that a filter that lets nothing
through ends in time; Python code of the user's cannot be.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class OutOfTimeError(Exception):
    """No element came within the time that was given."""


class Deadline:
    """A time after which taking an element raises `OutOfTimeError`, the call that waits for one included."""

    def __init__(self, seconds: float) -> None:
        from tensorflow.python.eager import cancellation

        self.manager = cancellation.CancellationManager()
        self.passed = False
        self._timer = threading.Timer(max(seconds, 0), self._pass)
        self._timer.daemon = True
        self._timer.start()

    def _pass(self) -> None:
        self.passed = True
        self.manager.start_cancel()

    def close(self) -> None:
        """Forget it; nothing is cancelled any more."""
        self._timer.cancel()
        self._timer.join()


@contextmanager
def within(seconds: float) -> Iterator[Deadline]:
    """A deadline that is forgotten at the end of the block."""
    deadline = Deadline(seconds)
    try:
        yield deadline
    finally:
        deadline.close()


def flat_specs(structure: Any) -> list[Any]:
    """The tensors that tf.data moves for an element of that spec: a ragged one travels as one variant, for example."""
    import tensorflow as tf

    return [spec for part in tf.nest.flatten(structure) for spec in part._flat_tensor_specs]


def restart(iterator: Any) -> None:
    """Have an iterator over a dataset begin anew.

    New iterators would pile up until Python's garbage collector ends them all at once, which takes seconds.
    """
    import tensorflow as tf

    tf.raw_ops.MakeIterator(dataset=iterator._dataset._variant_tensor, iterator=iterator._iterator_resource)


class Taker:
    """An iterator over a dataset whose elements stay lists of tensors."""

    def __init__(self, dataset: Any) -> None:
        from tensorflow.python.eager import context, execute

        self.spec = dataset.element_spec
        self.iterator = iter(dataset)
        specs = flat_specs(self.spec)
        self._count = len(specs)
        self._attributes = (
            "output_types",
            tuple(spec.dtype.as_datatype_enum for spec in specs),
            "output_shapes",
            tuple(spec.shape for spec in specs),
        )
        self._inputs = [self.iterator._iterator_resource]
        self._run = execute.execute
        self._run_until = execute.execute_with_cancellation
        self._context = context.context()

    def again(self) -> None:
        """Begin anew, as a new iterator would."""
        restart(self.iterator)

    def take(self, deadline: Deadline | None = None) -> list[Any]:
        """The next element as tf.data moves it.

        Raises:
            StopIteration: there is none.
            OutOfTimeError: the deadline came first.
            tensorflow.errors.OpError: what the pipeline raises.
        """
        import tensorflow as tf

        try:
            if deadline is None:
                return self._run("IteratorGetNext", self._count, self._inputs, self._attributes, self._context)  # type: ignore[no-any-return]
            if deadline.passed:
                raise OutOfTimeError
            return self._run_until(  # type: ignore[no-any-return]
                "IteratorGetNext", self._count, self._inputs, self._attributes, self._context, deadline.manager
            )
        except Exception as error:
            raised = as_tensorflow_error(error)
            if isinstance(raised, tf.errors.OutOfRangeError):
                raise StopIteration from None
            # Not a CancelledError alone: a Python function that was cancelled shows as another one.
            if deadline is not None and deadline.passed:
                raise OutOfTimeError from None
            raise raised from None


def as_tensorflow_error(error: Exception) -> Exception:
    """The error of an op as `tf.errors` has it, where it came as the status of the C interface."""
    from tensorflow.python.eager import core

    if isinstance(error, core._NotOkStatusException):
        return core._status_to_exception(error)  # type: ignore[no-any-return]
    return error


def flat_nbytes(tensors: Sequence[Any]) -> int:
    """Bytes of an element as tf.data moves it: strings by their content, a variant by what it holds where it tells."""
    import tensorflow as tf

    total = 0
    for tensor in tensors:
        if tensor.dtype == tf.string:
            total += int(tf.reduce_sum(tf.strings.length(tensor)))
        elif tensor.dtype in (tf.variant, tf.resource):
            total += 0
        else:
            total += tensor.shape.num_elements() * tensor.dtype.size
    return total


class Held:
    """Elements that are kept in memory, in the form in which tf.data moves them."""

    def __init__(self, spec: Any, elements: Sequence[list[Any]]) -> None:
        self.spec = spec
        self.count = len(elements)
        self._tensors = [tensor for element in elements for tensor in element]

    def dataset(self) -> Any:
        """A dataset of them, once through; its spec is that of the dataset which they came from.

        Giving an element from it takes about 1 us and copies nothing.
        """
        import tensorflow as tf

        specs = flat_specs(self.spec)
        variant = tf.raw_ops.ListDataset(
            tensors=self._tensors,
            output_types=[spec.dtype for spec in specs],
            output_shapes=[spec.shape for spec in specs],
        )
        return tf.data.experimental.from_variant(variant, self.spec)
