"""The terminal given back while the program is stopped by Ctrl-Z, and left alone while it runs in the background."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

SHOW_CURSOR = b"\x1b[?25h"
"""DECTCEM, "set" (ECMA-48 private mode 25): a live screen hides the cursor."""
LEAVE_SCREEN = b"\x1b[?1049l"
"""Show what was there before a program's own screen (xterm's private mode 1049)."""
KEYS = (signal.SIGINT, signal.SIGQUIT)
"""The signals of a terminal's keys."""
_TERMINAL = Path("/dev/tty")

_given_back = False


@contextmanager
def keys_held() -> Iterator[set[int]]:
    """Hold the signals of a terminal's keys back in the block, and SIGCHLD, for `signal.sigtimedwait` to take them.

    Those that are ignored too: a command that is waited for ignores them as well, unless it has a handler of its own.
    A thread that is started in the block never takes one. Yields the signals that were held back before, as a process
    that is started in the block is to have it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*KEYS, signal.SIGCHLD})
    try:
        yield set(before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def modes() -> list[Any] | None:
    """Return what `termios.tcgetattr` says of this process's terminal; None where it has none."""
    with suppress(OSError, termios.error), _opened("rb") as terminal:
        return termios.tcgetattr(terminal.fileno())
    return None


def give_back(leave: bytes, before: list[Any] | None) -> None:
    """Show the cursor again, and give the terminal back the modes that it had, unless another program has it.

    Args:
        leave: what is written besides: `LEAVE_SCREEN` of a program with a screen of its own.
        before: those modes; None: there is no terminal.
    """
    global _given_back  # noqa: PLW0603 - there is one terminal
    _given_back = True
    with suppress(OSError, termios.error), _opened("wb") as terminal:
        if os.tcgetpgrp(terminal.fileno()) != os.getpgrp():  # to change its modes would stop this process
            return
        terminal.write(leave + SHOW_CURSOR)
        if before is not None:
            termios.tcsetattr(terminal.fileno(), termios.TCSADRAIN, before)


def stop() -> None:
    """Stop this process as Ctrl-Z does by default; return when it goes on."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


def in_foreground() -> bool | None:
    """Return whether the keys of this process's terminal signal it; None where it has no terminal."""
    with suppress(OSError), _opened("rb") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return None


def in_background() -> bool:
    """Return whether this process's terminal is in use by another program: a shell, which has this one in a job."""
    return in_foreground() is False


def may_draw(again: Callable[[], object]) -> bool:
    """Return whether a live screen may draw; not in the background.

    Args:
        again: called first where the terminal was given back since the last drawing: takes it once more.
    """
    global _given_back  # noqa: PLW0603 - there is one terminal
    if in_background():
        return False
    if _given_back:
        _given_back = False
        again()
    return True


def _opened(mode: str) -> BinaryIO:
    return _TERMINAL.open(mode, buffering=0)  # type: ignore[return-value]
