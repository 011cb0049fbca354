"""Which calls of a `tf.function` train: those that were traced with a gradient in them, or with a call that trains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary


class Functions:
    """Those of one process, also their concrete ones."""

    def __init__(self, thread: threading.local) -> None:
        """Begin.

        Args:
            thread: what is known of each thread: `depth` counts the libraries it is in.
        """
        self._thread = thread
        self._train: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """Whether a function trains, as far as it was traced here."""

    @property
    def outermost(self) -> Any:
        """The function that this thread is in, called from eager code; None: it is in none."""
        entered = self._entered
        return entered[0][0] if entered else None

    @property
    def _entered(self) -> tuple[tuple[Any, int], ...]:
        """The functions that this thread is in, one within the other, each with its `depth` as it was called."""
        return getattr(self._thread, "entered", ())

    def train(self, function: Any) -> bool | None:
        """Return whether the calls of a function train on what they are given; None: it was not traced here."""
        return self._train.get(function)

    @contextmanager
    def inside(self, function: Any) -> Iterator[None]:
        """Take in that this thread is in a function, which may be traced meanwhile."""
        before = self._entered
        self._thread.entered = (*before, (function, getattr(self._thread, "depth", 0)))
        traced = _traces(function)
        try:
            yield
        finally:
            self._thread.entered = before
            if _traces(function) > traced:
                self._train.setdefault(function, False)

    def see_training(self) -> Iterator[Any]:
        """Take in that what is being traced trains; yield the functions in which it is.

        Those train with each call, but for the ones that have a loop around it, whose body is traced.
        """
        depth = getattr(self._thread, "depth", 0)
        for function, outside in self._entered:
            if depth == outside:
                self._train[function] = True
            yield function

    def concrete(self, function: Any, trace: Callable[[], Any]) -> Any:
        """Return what a function's `get_concrete_function` gives, by `trace`; it trains where the function does."""
        if getattr(self._thread, "depth", 0) and not self._entered:  # a library's own
            return trace()
        with self.inside(function):
            traced = trace()
        if (trains := self.train(function)) is not None:
            self._train[traced] = trains
        return traced

    def handed_on(self) -> Callable[[], None]:
        """Return what has another thread, which goes on for this one, be where this one is now."""
        here = dict(vars(self._thread))
        return lambda: vars(self._thread).update(here)


def _traces(function: Any) -> int:
    """Return how often a function was traced; 0 of a concrete one."""
    count = getattr(function, "experimental_get_tracing_count", None)
    return 0 if count is None else int(count())
