"""Which calls of a `tf.function` train: those that were traced with a gradient in them, or with a call that trains.

One function may be traced for a training and, with another argument of Python's, for a validation. What is traced again
and again, for each new shape of a batch for one, is counted, with the time that it takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from pipeline_bench import user_code


@dataclass(frozen=True)
class Call:
    """A call of a function.

    Attributes:
        function: that is called.
        flags: those of its arguments that have it traced for each of their values, by place or name.
        probes: the numbers of the probes of its arguments that are iterators.
    """

    function: Any
    flags: frozenset[tuple[int | str, bool | str | None]] = frozenset()
    probes: tuple[int, ...] = ()

    @classmethod
    def of(cls, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """Return the call with these arguments."""
        given: Iterator[tuple[int | str, Any]] = chain(enumerate(arguments), named.items())
        flags, probes = set[tuple[int | str, bool | str | None]](), []
        for place, value in given:
            if isinstance(value, _FLAGS):
                flags.add((place, value))
            elif type(value).__name__ == _PROBED:
                probes.append(value._number)
        return cls(function, frozenset(flags), tuple(probes))


_WRAPPERS = 8
"""TensorFlow puts some around a method, each around the one before; a program's decorators may be more."""
_FLAGS = (bool, str, type(None))
_PROBED = "ProbedIterator"
"""The class of `monitoring.probe`, which is imported with the first loop that is watched."""
_RESTORED = "RestoredFunction"
"""TensorFlow's class of a function that it loads; what it traces of that only calls what was saved."""


class Functions:
    """Those of one process, also their concrete ones."""

    def __init__(self, thread: threading.local) -> None:
        """Begin.

        Args:
            thread: what is known of each thread: `depth` counts the libraries it is in.
        """
        self._thread = thread
        self._train: WeakKeyDictionary[Any, dict[Any, bool | None]] = WeakKeyDictionary()
        """Whether a function trains with the flags of a call, as far as it was traced here with those; see `train`."""
        self._traced_anew: dict[tuple[str, str], list[int]] = {}
        """How long each call took that traced a function again though its flags were known, in ns, by its name and
        line, ``train.py:12``; no line where that is not known."""

    @property
    def outermost(self) -> Any:
        """The function that this thread is in, called from eager code; None: it is in none."""
        entered = self._entered
        return entered[0][0].function if entered else None

    @property
    def _entered(self) -> tuple[tuple[Call, int], ...]:
        """The calls that this thread is in, one within the other, each with its `depth` as it began."""
        return getattr(self._thread, "entered", ())

    def train(self, call: Call) -> bool | None:
        """Return whether such a call trains on what it is given.

        None: that is not known, as its function was not traced here, or calls one that was not.
        """
        return self._train.get(call.function, {}).get(call.flags)

    @contextmanager
    def inside(self, call: Call) -> Iterator[None]:
        """Take in that this thread is in a call, whose function may be traced meanwhile."""
        before = self._entered
        self._thread.entered = (*before, (call, getattr(self._thread, "depth", 0)))
        is_known = self.train(call) is not None
        traced, begun_ns = _traces(call.function), time.monotonic_ns()
        try:
            with nullcontext() if is_known or len(call.probes) != 1 else _signatures_timed(call.probes[0]):
                yield
        finally:
            self._thread.entered = before
            was_traced = _traces(call.function) > traced
            if not is_known:
                self._learn(call, was_traced, before)
            elif was_traced and not (before or call.probes):  # an iterator that is watched has a kind of its own
                self._see_traced_anew(call.function, time.monotonic_ns() - begun_ns)

    def _learn(self, call: Call, was_traced: bool, before: Sequence[tuple[Call, int]]) -> None:
        """Take in a call that ended, and that may have been traced, within those before it."""
        known = self._train.setdefault(call.function, {})
        if was_traced:
            known.setdefault(call.flags, False)
        elif known:  # the flags are new to it, but not to TensorFlow: they were written in another way
            known.setdefault(call.flags, any(known.values()) or (None if None in known.values() else False))
        if self.train(call) is None:
            for outer, _ in before:
                self._train.setdefault(outer.function, {}).setdefault(outer.flags, None)

    def _see_traced_anew(self, function: Any, took_ns: int) -> None:
        """Take in that a call traced a function again; Keras does that to its own, as for a model that it saves."""
        plain = _plain(function)
        code, line = getattr(plain, "__code__", None), ""
        if isinstance(code, CodeType):
            if user_code.origin(code.co_filename) == "tensorflow":
                return
            line = f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"
        place = str(getattr(plain, "__name__", type(plain).__name__)), line
        self._traced_anew.setdefault(place, []).append(took_ns)

    def forget_traces(self) -> None:
        """Begin to count anew, as in a fork, what is traced again."""
        self._traced_anew.clear()

    def traced_anew(self) -> list[dict[str, Any]]:
        """Return, as data, which functions were traced again by how many calls, and how long these took."""
        return [
            {"function": name, "line": line, "calls": len(took_ns), "seconds": sum(took_ns) / 1e9}
            for (name, line), took_ns in list(self._traced_anew.items())
        ]

    def see_training(self) -> Iterator[Any]:
        """Take in that what is being traced trains; yield the functions in which it is.

        Those train with each call, but for the ones that have a loop around it, whose body is traced.
        """
        depth = getattr(self._thread, "depth", 0)
        for call, outside in self._entered:
            if depth == outside:
                self._train.setdefault(call.function, {})[call.flags] = True
            yield call.function

    def concrete(self, call: Call, trace: Callable[[], Any]) -> Any:
        """Return what a function's `get_concrete_function` gives, by `trace`; it trains where such a call does."""
        if getattr(self._thread, "depth", 0) and not self._entered:  # a library's own
            return trace()
        with self.inside(call):
            traced = trace()
        if (trains := self.train(call)) is not None:
            self._train[traced] = {Call(traced).flags: trains}
        return traced

    def handed_on(self) -> Callable[[], None]:
        """Return what has another thread, which goes on for this one, be where this one is now."""
        here = dict(vars(self._thread))
        return lambda: vars(self._thread).update(here)


def _signatures_timed(number: int) -> AbstractContextManager[None]:
    from pipeline_bench.monitoring import probe

    return probe.signatures_timed(number)


def _traces(function: Any) -> int:
    """Return how often a function was traced; 0 of a concrete one, and of a SavedModel's, traced elsewhere."""
    count = getattr(function, "experimental_get_tracing_count", None)
    return 0 if count is None or type(function).__name__ == _RESTORED else int(count())


def _plain(function: Any) -> Any:
    """Return the function of Python's that a `tf.function` was made of."""
    plain = getattr(function, "python_function", function)
    for _ in range(_WRAPPERS):
        plain = getattr(plain, "__wrapped__", plain)
    return getattr(plain, "__func__", plain)
