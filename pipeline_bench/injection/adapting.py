"""How long layers of Keras adapt to data, and how many elements they take for it: passes that only read."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from pipeline_bench.text.units import NS_PER_S

LAYERS = ("Discretization", "IntegerLookup", "Normalization", "StringLookup", "TextVectorization")
"""Those of Keras that have an `adapt`."""


class _Thread(threading.local):
    """Where a thread is.

    Attributes:
        adapts: whether it is in an `adapt`.
        will_iterate: whether Keras is going to iterate over the dataset there in Python.
        by_calls: whether a function of Keras' takes an element there with each of its calls.
        taken: the elements of it so far.
    """

    adapts = will_iterate = by_calls = False
    taken = 0


@dataclass
class _Adapted:
    """What the calls of one line came to."""

    calls: int = 0
    elements: int = 0
    spent_ns: int = 0


class Adapting:
    """That of one process."""

    def __init__(self) -> None:
        """Begin."""
        self._thread = _Thread()
        self._adapted: dict[tuple[str, str, bool, bool], _Adapted] = {}
        """By the layer's kind, the line, whether each element was a single value, and whether these may be batched."""

    @contextmanager
    def to(
        self, data: Any, layer: str, line: Callable[[], str | None], *, iterates: bool, may_batch: bool = True
    ) -> Iterator[None]:
        """Take in that a layer adapts to data; within another one's `adapt` it is a part of that.

        Args:
            data: what its `adapt` is given.
            layer: its kind.
            line: gives the program's line that calls it; None: there is none, and it is left alone.
            iterates: whether Keras iterates over a dataset in Python for it; else a function takes its elements.
            may_batch: whether it may as well be given several elements at once.
        """
        thread = self._thread
        where = None if thread.adapts else line()
        if where is None:
            yield
            return
        thread.adapts, thread.taken = True, 0
        is_dataset = hasattr(data, "element_spec")  # else Keras cuts arrays into batches by itself
        thread.will_iterate, thread.by_calls = iterates and is_dataset, not iterates and is_dataset
        begun_ns = monotonic_ns()
        try:
            yield
        finally:
            thread.adapts = thread.will_iterate = thread.by_calls = False
            adapted = self._adapted.setdefault((layer, where, _is_of_single_values(data), may_batch), _Adapted())
            adapted.calls += 1
            adapted.elements += thread.taken
            adapted.spent_ns += monotonic_ns() - begun_ns

    @property
    def will_iterate(self) -> bool:
        """Whether the next dataset that this thread iterates over is the one that a layer adapts to."""
        return self._thread.will_iterate

    def counted(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator of the same elements for the `adapt` that this thread is in."""
        self._thread.will_iterate = False
        return self._count(iterator)

    def _count(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for element in iterator:
            self._thread.taken += 1
            yield element

    def see_call(self) -> None:
        """Take in that a call of a `tf.function` has ended, which may be one that adapts."""
        if self._thread.by_calls and sys.modules["tensorflow"].executing_eagerly():
            self._thread.taken += 1

    def record(self) -> list[dict[str, Any]]:
        """Return, as data, what each line's calls came to."""
        return [
            {
                "layer": layer,
                "line": line,
                "single_values": single,
                "may_batch": may_batch,
                "calls": each.calls,
                "elements": each.elements,
                "seconds": each.spent_ns / NS_PER_S,
            }
            for (layer, line, single, may_batch), each in list(self._adapted.items())
        ]


def _is_of_single_values(data: Any) -> bool:
    """Return whether each element of a dataset is one value, and so no batch."""
    shape = getattr(getattr(data, "element_spec", None), "shape", None)
    return getattr(shape, "rank", None) == 0
