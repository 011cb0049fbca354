"""Interrupts at safe points: SIGINT, SIGTERM and SIGHUP are kept back until the code asks for them.

By default Python raises KeyboardInterrupt between any two instructions: between the end of a trial and the line that
adds its record to the session, say, which loses the trial. Inside `deferred` a signal is only noted, and `check`, which
every loop that waits calls a few times a second, hands it to the handler that it had before.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHECK_EVERY_S = 0.2
"""How long a wait may last until it calls `check` again."""
LONGEST_LOOK_S = 1.0
"""What passes between two looks of a wait counts for so much at most; see `Waited`."""
INSIST_AFTER_S = 10.0
"""A further signal so long after one that is still kept back takes effect at once: nothing may be uninterruptible."""

Handler = Callable[[int, FrameType | None], object]
"""A signal's, as `signal.signal` takes it."""


class _Deferral:
    """The signals that are kept back, and the handlers that they had before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: dict[int, Handler] = {}
        self.pending: int | None = None
        self.delivered = False
        self._pending_s = 0.0

    def install(self) -> None:
        """Replace the handlers of Python functions; a signal that is ignored, or ends the process, stays so."""
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._before[number] = handler
                signal.signal(number, self._note)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Call the handler of the signal that is kept back, if there is one; by default it raises."""
        number, self.pending = self.pending, None
        if number is not None:
            self.delivered = True
            self._before[number](number, None)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        now_s = self._clock()
        if self.pending is None:
            self.pending, self._pending_s = number, now_s
        elif now_s - self._pending_s > INSIST_AFTER_S:
            self.deliver()


_active: _Deferral | None = None


class Waited:
    """How long something was waited for, as the sum of what passed between the looks, `LONGEST_LOOK_S` each at most.

    While this process is stopped, by Ctrl-Z or with its container, it does not wait: what came is still unread.

    Args:
        clock: seconds.
        queued: for how many seconds so far what is waited for had no core, which do not count; None where not known.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, queued: Callable[[], float | None] = lambda: None
    ) -> None:
        self._clock, self._queued = clock, queued
        self.restart()

    def restart(self) -> None:
        """Begin to wait, from now on."""
        self._looked_s, self._waited_s, self._queued_s = self._clock(), 0.0, self._queued() or 0.0

    def seconds(self) -> float:
        """Look, and return the seconds so far."""
        now_s = self._clock()
        self._waited_s += min(now_s - self._looked_s, LONGEST_LOOK_S)
        self._looked_s = now_s
        return max(0.0, self._waited_s - max(0.0, (self._queued() or 0.0) - self._queued_s))


@contextmanager
def deferred(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Keep signals back until `check`, or until the end of the outermost such block.

    In a thread other than the main one it changes nothing: Python runs signal handlers in the main thread only.

    Args:
        clock: seconds, for `INSIST_AFTER_S`.

    Raises:
        KeyboardInterrupt: at the end of the block, where the first signal came and nothing has asked for it.
    """
    global _active  # noqa: PLW0603 - signal handlers belong to the process, too
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    deferral = _active = _Deferral(clock)
    deferral.install()
    try:
        yield
    finally:
        _active = None
        deferral.restore()
    if not deferral.delivered:  # a second signal asks for what the first one has had
        deferral.deliver()


def check() -> None:
    """Let a signal that was kept back take effect here.

    Raises:
        KeyboardInterrupt: there was one, and its handler is Python's own or the command line's.
    """
    if _active is not None and threading.current_thread() is threading.main_thread():
        _active.deliver()


@contextmanager
def to_the_end(ending: bool = False) -> Iterator[None]:
    """Keep signals back in the block, and drop a further Ctrl-C where the KeyboardInterrupt of one is on its way.

    For what puts away in a program of the user's what was measured: the second one could only end that half-way, and
    show the user a traceback that is not of their code.

    Args:
        ending: the program is at its end, where a first Ctrl-C has nothing else to end either.
    """
    on_its_way = ending or isinstance(sys.exc_info()[1], KeyboardInterrupt)
    try:
        with deferred():
            yield
    except KeyboardInterrupt:
        if not on_its_way:
            raise


def is_kept_back() -> bool:
    """Return whether a signal has come that `check` would let take effect."""
    return _active is not None and _active.pending is not None


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal's handler of the program's own raised an exception: whoever it met is to pass it on."""
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> object:
    """Return the code that a handler runs; None where it is none of Python's."""
    if isinstance(handler, functools.partial):
        return _code_of(handler.func)
    own: Any = getattr(handler, "__func__", handler)
    return getattr(own, "__code__", None) or getattr(type(own).__call__, "__code__", None) if callable(own) else None
