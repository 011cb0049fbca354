"""The elements of a dataset, pass after pass: one that ends begins anew, in the step that had to wait for it."""

from __future__ import annotations

from time import monotonic_ns  # by itself: a user's code may replace that of the module
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.tfdata.iterators import EagerIterator
from pipeline_bench.tfdata.keras_adapters import BackendBatches
from pipeline_bench.tfdata.throughput import FlatIterator

NO_ELEMENT = ("The dataset gives no element.", "Check its files and filters.")
_USED_UP = (
    "The input gave elements in its first pass and none in the next one, so it cannot be measured for long.",
    "Does a generator go on where it ended? Have it give more batches, or have the function that from_generator calls "
    "begin anew.",
)


class UsedUpError(UserCodeError):
    """The input gave elements in one pass and none in the next: it is short, and cannot be begun anew."""


class _Batches(EagerIterator):
    """An iterator over a dataset whose elements are as Python has them."""

    def take(self) -> Any:
        """Return the next element.

        Raises:
            StopIteration: there is none.
            tensorflow.errors.OpError: what the pipeline raises.
        """
        return next(self.iterator)


class _BackendBatches(_Batches):
    """An iterator over what no `tf.data.Dataset` gives."""

    def __init__(self, batches: BackendBatches) -> None:
        super().__init__(batches)
        self._batches = batches

    def restart(self, lasted_s: float) -> None:
        self.iterator = iter(self._batches)


class Repeated:
    """Gives the elements of an iterator, which begins anew when it is at its end."""

    def __init__(self, held: FlatIterator | _Batches) -> None:
        self._held = held
        self.in_pass = 0
        """Elements so far of the pass that the last one is of."""
        self.begun_ns = monotonic_ns()
        """When this pass was asked for."""
        self.whole = 0
        """Elements of the last pass that ended; 0 where none did."""
        self._ended = 0
        """Elements of the pass that ended for the last element; 0 where none did."""
        self._measured = 0

    def __call__(self) -> Any:
        """Return the next element.

        Raises:
            UserCodeError: a pass has no element; `UsedUpError` where one before had some.
        """
        self._ended = 0
        for _ in range(2):
            try:
                element = self._held.take()
            except StopIteration:
                self._ended = self.whole = self._ended or self.in_pass
                self.in_pass = 0
            else:
                self.in_pass += 1
                return element
            # Here and not above: the exception's frames hold the iterator that is let go of.
            user_code.restore_imports()
            now_ns = monotonic_ns()
            self._held.restart((now_ns - self.begun_ns) / 1e9)
            self.begun_ns = now_ns
        raise UsedUpError(*_USED_UP) if self._ended else UserCodeError(*NO_ELEMENT)

    def counts(self) -> bool:
        """Return whether the last element's step counts, of one that is measured.

        False for the step that restarts the data before a whole pass was measured: it would charge a restart, which
        comes once a pass, to part of one.
        """
        self._measured += 1
        return self._ended < self._measured


def flat_elements(dataset: Any) -> Repeated:
    """Return the elements of a dataset as lists of tensors, as tf.data moves them."""
    return Repeated(FlatIterator(dataset))


def batches(dataset: Any) -> Repeated:
    """Return the elements of a `tf.data.Dataset`, or of `BackendBatches`, as Python has them."""
    return Repeated(_BackendBatches(dataset) if isinstance(dataset, BackendBatches) else _Batches(dataset))
