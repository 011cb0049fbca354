"""How a process of this program begins and ends: what starts it, with whom it ends, and whether it may be forked.

As a script it begins a child: ``python -P processes.py PARENT THREAD MODULE …`` ends with its parent from then on,
before the module's own imports, which can take many seconds. With the parent 0 it is to be nobody's child.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.machinery
import os
import runpy
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STARTER_ENDED = signal.SIGURG
"""Is ignored by whoever has no handler for it."""
_SAFE_THREADS = frozenset({"jemalloc_bg_thd"})
"""Names of threads whose library waits for them when the process forks, and starts them anew in the child: jemalloc,
which pandas brings along, has handlers of its own for that (``background_thread_prefork0``)."""
_LOOK_FOR_PARENT_S = 0.5
CLEANED_WITHIN_S = 2.0
"""How long whoever ends a family waits for the process that removes its shared memory (`removes_shared_memory`)."""


def module_command(module: str, *arguments: object, detached: bool = False) -> list[str]:
    """Return the command that runs a module in a new interpreter, as a child of this process that ends with it.

    If `detached`, it may be anyone's child, and sees to its end by itself.

    ``-P`` keeps the working folder out of the module path: a ``random.py`` that lies there is the user's, and must
    neither be taken for Python's nor be executed.
    """
    parent = (0, 0) if detached else (os.getpid(), threading.get_native_id())
    return [sys.executable, "-P", *map(str, (__file__, *parent, module, *arguments))]


def end_with_parent(parent: int, thread: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent ends; leave at once if that has ended already (Linux).

    Call it before anything slow. The kernel's "parent" is the thread that started this process. One that may end before
    its process does is watched with a signal that asks whether the process still runs.

    Args:
        parent: the process id of the parent, as the parent itself gave it.
        thread: the native id of the parent's thread that started this process; None: its only one.
    """
    if thread in (None, parent):  # Linux gives the first thread the number of its process
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        own = os.getpid()  # a process that this one forks has the handler as well, and another parent
        signal.signal(_STARTER_ENDED, lambda *_: _leave_without(parent) if os.getpid() == own else None)
        _prctl(_PR_SET_PDEATHSIG, _STARTER_ENDED)  # sent anew at the end of each thread that is then the parent
    _leave_without(parent)


def _leave_without(parent: int) -> None:
    """End this process at once where its parent has ended."""
    if os.getppid() != parent:
        os._exit(1)


def end_soon_after_parent(parent: int) -> None:
    """End this process within a second after its parent, by a thread, if no lasting thread of that started it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_FOR_PARENT_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="ends with its parent").start()


def readable(descriptor: int, within_s: float) -> bool:
    """Return whether a pipe or a socket has something to read, or has ended; waits so long for it.

    `select.select` refuses descriptors from 1024 on, which a process that has opened many files gets.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(1e3 * max(0.0, within_s)))


def outlive_parent() -> None:
    """Undo `end_with_parent`, for a process that sees its parent's end by itself and has more to end than itself."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of descendants whose own parent has ended (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def removes_shared_memory(pid: int) -> bool:
    """Return whether that is Python's process that removes what others have shared, and ends, once they are all gone.

    Whoever ends a family of processes ends this one last: killed with them, it leaves files in ``/dev/shm``.
    """
    with contextlib.suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def check_proc_mount(proc: Path = Path("/proc")) -> None:
    """Check that ``/proc`` shows this process's own namespace: processes are measured and ended by it.

    Raises:
        UsageError: it is not mounted, or is that of another namespace, in which other processes have the numbers.
    """
    shown = None
    with contextlib.suppress(OSError):
        shown = str((proc / "self").readlink())
    if shown != str(os.getpid()):
        from pipeline_bench.errors import UsageError  # noqa: PLC0415 - as a script this begins before what is slow

        what = "is not mounted" if shown is None else "is that of another namespace of processes"
        raise UsageError(
            f"/proc {what}: processes, memory and CPU time cannot be read.",
            "Mount it (mount -t proc proc /proc); with unshare --pid, add --mount-proc.",
        )


def leave(ok: bool) -> NoReturn:
    """End the process at once: TensorFlow's threads may be blocked for ever, and nothing is left to tear down."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a user's code may have put something else in its place
            stream.flush()
    os._exit(0 if ok else 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def why_not_forkable(before: Collection[int], started_by: Mapping[int, str] | None = None) -> str | None:
    """Say what importing TensorFlow left behind that a fork would break; None when it left nothing.

    A thread that its library ends itself when the process forks, and starts again when it is needed, breaks nothing: a
    BLAS's idle pool, such as OpenCV and NumPy bring along. One fork shows which do. Any other is missing in a forked
    child: a lock that it held stays locked there, and work that is given to its pool is never done.

    Args:
        before: as `threads` gave it before the import.
        started_by: which module's import started which thread, as `thread_starts` found.
    """
    if threads() - set(before):
        _fork_once()
    left = {thread for thread in threads() - set(before) if _name(thread) not in _SAFE_THREADS}
    if left:
        named = ", ".join(sorted({_named(thread, started_by or {}) for thread in left}))
        count = f"{len(left)} thread{'s' if len(left) > 1 else ''}"
        return f"importing TensorFlow started {count} that a fork breaks: {named}"
    opened = [target for target in open_files() if target.startswith(("/dev/nvidia", "/dev/dri", "/dev/kfd"))]
    if opened:
        return f"importing TensorFlow opened {opened[0]}"
    return None


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on, by its affinity; a CPU quota may leave it a part of their time."""
    return len(os.sched_getaffinity(0))


def queued_s(pid: int, thread: int | None = None) -> float | None:
    """Return how many seconds a thread, by default a process's first, could have run and had no core; None: not known.

    Others had it, which the kernel counts (Linux, ``schedstat``, the second number).
    """
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/task/{thread or pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return None


def threads() -> set[int]:
    """Return the native ids of this process's threads, also of those that Python does not know of."""
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}


def open_files() -> list[str]:
    """Return what this process has open, as far as it is known: paths of files, names of pipes and sockets."""
    targets = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - ten times as fast as Path.iterdir, and often called
            with contextlib.suppress(OSError):
                targets.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    return targets


def io_bytes(counter: str) -> int:
    """Return one of the kernel's counters of what this process has read and written (``man 5 proc_pid_io``).

    Raises:
        OSError: the kernel does not report it.
    """
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == counter:
            return int(value)
    raise OSError(f"/proc/self/io has no {counter}")


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage in the block: an import in a process that holds TensorFlow takes as long again with it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Import in the block what stays as long as the process: no collection of garbage looks at it, then or later.

    The many collections of TensorFlow's import, which find next to nothing, take an eighth of its CPU time. Each later
    one would take 0.2 s, in a fork more: what it only looks at is written to there, and so copied.
    """
    with no_collection():
        try:
            yield
        finally:
            gc.freeze()


@contextlib.contextmanager
def thread_starts() -> Iterator[dict[int, str]]:
    """Note, for the block, which extension module's import started which thread, by native id."""
    found: dict[int, str] = {}
    loader = importlib.machinery.ExtensionFileLoader
    create, execute = loader.create_module, loader.exec_module

    def created(self: Any, spec: Any) -> Any:
        before = threads()
        module = create(self, spec)
        found.update(dict.fromkeys(threads() - before - set(found), spec.name))
        return module

    def executed(self: Any, module: Any) -> None:
        before = threads()
        execute(self, module)
        found.update(dict.fromkeys(threads() - before - set(found), module.__name__))

    loader.create_module, loader.exec_module = created, executed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        loader.create_module, loader.exec_module = create, execute  # type: ignore[method-assign]


def _fork_once() -> None:
    """Fork once, so that every library's handlers for it run; the child ends at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _named(thread: int, started_by: Mapping[int, str]) -> str:
    """Return a thread as a reader can find what started it."""
    if thread in started_by:
        return f"one of the module {started_by[thread]}"
    for one in threading.enumerate():
        if one.native_id == thread:
            target = getattr(one, "_target", None) or type(one)
            return f"{one.name} of the module {getattr(target, '__module__', None) or 'unknown'}"
    return _name(thread) or "one that has ended"


def _name(thread: int) -> str:
    """Return a thread's name as the kernel has it; "" of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{thread}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _begin() -> None:
    """Run the module that is named in the arguments, with those behind its name as its own."""
    if (parent := int(sys.argv[1])) != 0:
        end_with_parent(parent, thread=int(sys.argv[2]))
    try:
        import pipeline_bench  # noqa: F401, PLC0415 - is it to be found?
    except ImportError:  # the parent runs from a checkout in its working folder, which -P keeps out of the path
        sys.path.append(str(Path(__file__).parents[2]))
    sys.argv = sys.argv[3:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _begin()
