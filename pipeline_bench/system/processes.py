"""How a process of this program begins and ends: what starts it, with whom it ends, and whether it may be forked.

As a script it begins a child: ``python -P processes.py PARENT THREAD MODULE …`` ends with its parent from then on,
before the module's own imports, which can take many seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
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
    parent = (os.getpid(), threading.get_native_id())
    return [sys.executable, "-P", *map(str, (__file__, *parent, module, *arguments))]


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


def why_not_forkable(threads_before: int) -> str | None:
    """Say what importing TensorFlow left behind that a fork would break; None when it left nothing.

    Args:
        threads_before: as `thread_count` gave it before the import.
    """
    more = thread_count() - threads_before
    if more > 0:
        return f"importing TensorFlow started {more} threads"
    opened = [target for target in _open_files() if target.startswith(("/dev/nvidia", "/dev/dri", "/dev/kfd"))]
    if opened:
        return f"importing TensorFlow opened {opened[0]}"
    return None


def thread_count() -> int:
    """Return how many threads this process has, also those that Python does not know of."""
    return len(list(Path("/proc/self/task").iterdir()))


def _open_files() -> list[str]:
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            targets.append(str(entry.readlink()))
    return targets


def _begin() -> None:
    """Run the module that is named in the arguments, with those behind its name as its own."""
    end_with_parent(int(sys.argv[1]), thread=int(sys.argv[2]))
    try:
        import pipeline_bench  # noqa: F401, PLC0415 - is it to be found?
    except ImportError:  # the parent runs from a checkout in its working folder, which -P keeps out of the path
        sys.path.append(str(Path(__file__).parents[2]))
    sys.argv = sys.argv[3:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _begin()
