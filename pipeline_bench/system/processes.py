"""How a process of this program begins and ends: what starts it, with whom it ends, and at once."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module in a new interpreter, as a child of this process that ends with it.

    ``-P`` keeps the working folder out of the module path: a ``random.py`` that lies there is the user's, and must
    neither be taken for Python's nor be executed.
    """
    begin = Path(__file__).with_name("begin.py")
    parent = (os.getpid(), threading.get_native_id())
    return [sys.executable, "-P", *map(str, (begin, *parent, module, *arguments))]


def end_with_parent(parent: int, thread: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends; leave at once where that has ended already (Linux).

    Call it before anything slow. The kernel's "parent" is the thread that started this process, and is not asked to
    watch one that may end before its process: then only the second half is done.

    Args:
        parent: the process id of the parent, as the parent itself gave it.
        thread: the native id of the parent's thread that started this process; None: its only one.
    """
    if thread in (None, parent):  # Linux gives the first thread the number of its process
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `end_with_parent`, for a process that sees its parent's end by itself and has more to end than itself."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of descendants whose own parent has ended (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave(ok: bool) -> NoReturn:
    """End the process at once: TensorFlow's threads may be blocked for ever, and nothing is left to tear down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if ok else 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
