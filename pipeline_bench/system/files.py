"""Files that anybody may have given, or that are written whole or not at all; folders that go with their process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import select
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.text import units

_PREFIX = "pipeline-bench-scratch-"
_READER_WITHIN_S = 10.0
"""How long a pipe is waited for: for one who reads it at all, and for the next bytes to be taken."""
_WRITER_WITHIN_S = 60.0
"""How long a pipe is waited for, as that of ``<(...)``, whose command computes perhaps."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_LOOK_EVERY_S = 0.05
_FIRST_BYTES = 1024
"""Of a file, which hold its first lines."""
_PIECE_BYTES = 4096
"""A pipe that can be written to takes that much at once, whole (POSIX: PIPE_BUF on Linux)."""


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in a folder; nothing where there is none.

    Raises:
        PermissionError: it may not be listed, of which `Path.glob` says nothing from Python 3.13 on.
    """
    try:
        os.scandir(folder).close()
    except PermissionError:
        raise
    except OSError:  # there is none
        return []
    return sorted(folder.glob(pattern))


def read_text(path: Path, limit_bytes: int, regular: bool = False) -> str:
    """Return the text of a file that anybody may have given, and no more of it than a file of its kind has.

    Args:
        path: of the file; a pipe, as that of ``<(...)`` is, unless `regular`.
        limit_bytes: the most that it may hold.
        regular: refuse what is no regular file without opening it, since reading a device or a pipe may never end.

    Raises:
        OSError: it is not there, or may not be read.
        ValueError: it is none, holds more, is not UTF-8, or is a pipe that nobody writes to; the message is a clause:
            ``it is a pipe …``.
    """
    status = path.stat()
    if regular and not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
        raise ValueError(f"it is {kind}, and not a file")
    content = b""
    # What the kernel makes up, as /proc/kmsg, has no size, and reading it may never end either.
    if status.st_size <= limit_bytes and (status.st_size or not regular):
        content = _content(path, limit_bytes + 1)
    if max(status.st_size, len(content)) > limit_bytes:
        raise ValueError(f"it holds more than {units.size(limit_bytes)}")
    try:
        return content.decode("utf-8-sig")  # some editors open a file with a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 text, from byte {error.start:,} on") from None


def _content(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file, or of a pipe up to its end, and no more than so many.

    Raises:
        OSError: it cannot be read.
        ValueError: nothing came for `_WRITER_WITHIN_S`.
    """

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    content = b""
    with open(path, "rb", buffering=0, opener=without_waiting) as file:
        ready = select.poll()
        ready.register(file, select.POLLIN)
        while len(content) < most_bytes:
            if not ready.poll(_WRITER_WITHIN_S * 1000):
                raise ValueError(f"nothing was written to it for {_WRITER_WITHIN_S:g} s")
            piece = file.read(most_bytes - len(content))
            if piece == b"":
                break
            content += piece or b""  # None: another process has read it
    return content


def unreadable(error: OSError | ValueError) -> str:
    """Return why a file could not be read, as a clause."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file in one step: a reader sees what was there before or all of the new content, never a part.

    What is not a regular file, a pipe or a device, is written to as it is. A link keeps pointing where it did.

    Args:
        path: in a folder that exists.
        content: text is written as UTF-8.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    data = content.encode("utf-8", errors="replace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        _write_as_it_is(path, data)
        return
    try:
        target = path.resolve()
        leads_to_itself = target.is_symlink()
    except RuntimeError:  # as Python before 3.13 has it
        leads_to_itself = True
    if leads_to_itself:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    temporary = target.with_name(f".{target.name[:32]}-{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def clock_offset_s(path: Path, clock_ns: Callable[[], int] = time.time_ns) -> float:
    """Return how far this host's clock is ahead of the one that stamps a file, anew: a shared folder's, for all alike.

    The stamp of its writing is older by what the disk has taken since.

    Raises:
        OSError: it is not there, or cannot be stamped.
    """
    os.utime(path)
    return (clock_ns() - path.stat().st_mtime_ns) / 1e9


def _write_as_it_is(path: Path, data: bytes) -> None:
    """Write to a pipe or a device.

    Raises:
        OSError: it cannot be written, or nobody reads the pipe for `_READER_WITHIN_S`.
    """
    ends_s = time.monotonic() + _READER_WITHIN_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not path.is_fifo():
                raise
            if time.monotonic() > ends_s:
                raise OSError(errno.ENXIO, "nobody reads that pipe") from None
        time.sleep(_LOOK_EVERY_S)
    try:
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
        left = memoryview(data)
        while left:
            if not ready.poll(_READER_WITHIN_S * 1000):
                raise OSError(errno.ETIMEDOUT, "whoever reads that pipe takes nothing")
            left = left[os.write(descriptor, left[:_PIECE_BYTES]) :]
    finally:
        os.close(descriptor)


class ScratchFolder:
    """A folder that is locked while the process that made it lives: one without a lock is what a killed one left.

    A lock and no process id, which another container does not know.

    Attributes:
        path: the folder.
    """

    def __init__(self, needed_bytes: int = 0, purpose: str = "") -> None:
        """Make the folder, and remove those that are left.

        Args:
            needed_bytes: how much will be written there.
            purpose: what that is, for a message: ``the decoded samples of an epoch``.

        Raises:
            PipelineBenchError: the disk has too little room, or the folder cannot be made.
        """
        root = "the folders for temporary files"
        try:
            root = tempfile.gettempdir()
            sweep()
            free_bytes = shutil.disk_usage(root).free
            if needed_bytes <= free_bytes:
                self.path, self._lock = _locked_folder()
                _own.add(self)
                return
        except OSError as error:
            raise PipelineBenchError(
                f"No folder for temporary files can be made in {root}: {error.strerror}.",
                "Set TMPDIR to a folder that can be written to.",
            ) from error
        raise PipelineBenchError(
            f"{purpose} take {units.size(needed_bytes)}, and the folder for temporary files, {root}, has "
            f"{units.size(free_bytes)} left.",
            "Set TMPDIR to a folder with more room, or write less there.",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def take_temporary_files(self) -> None:
        """Put temporary files and folders of this process into this folder from now on.

        A process that ends by `os._exit` leaves them: AutoGraph's, the folder of a `with` that never ends. `gettempdir`
        stays as it is: what others put there under a name of their own, such as downloads, is to be found again.
        """
        _take_temporary_files(lambda: self.path)

    def remove(self) -> None:
        """Remove it with all that it holds; also while something still writes there, which then fails."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


_own: weakref.WeakSet[ScratchFolder] = weakref.WeakSet()


def remove_own() -> None:
    """Remove the folders of this process, which is about to end by a signal."""
    for folder in list(_own):
        shutil.rmtree(folder.path, ignore_errors=True)


@contextlib.contextmanager
def own_temporary_files() -> Iterator[None]:
    """Put temporary files into a `ScratchFolder` until the block ends; it is made when the first one is."""
    made: list[ScratchFolder] = []

    def folder() -> Path:
        if not made:
            made.append(ScratchFolder())
        return made[0].path

    give_back = _take_temporary_files(folder)
    try:
        yield
    finally:
        give_back()
        for each in made:
            each.remove()


def _take_temporary_files(folder: Callable[[], Path]) -> Callable[[], None]:
    """Have `tempfile` make in that folder what is made in no other; return what undoes this."""
    plain = tempfile._sanitize_params  # type: ignore[attr-defined]  # all that `tempfile` makes asks it where

    def sanitized(prefix: Any, suffix: Any, given: Any) -> tuple[Any, Any, Any, type]:
        prefix, suffix, where, kind = plain(prefix, suffix, given)
        if given is None:
            path = folder()
            path.mkdir(exist_ok=True)
            where = os.fsencode(path) if kind is bytes else str(path)
        return prefix, suffix, where, kind

    def give_back() -> None:
        tempfile._sanitize_params = plain  # type: ignore[attr-defined]

    tempfile._sanitize_params = sanitized  # type: ignore[attr-defined]
    return give_back


def sweep() -> bool:
    """Remove the folders whose process is gone; return whether no other is left."""
    in_use = False
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except OSError:  # another user's, or gone by now
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its process lives, or the disk has no locks
            in_use = True
        finally:
            os.close(lock)
    return not in_use


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Mark a folder as in use until the block or this process ends, unless the disk has no locks; see `is_in_use`."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a `ScratchFolder` is locked already
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def is_in_use(folder: Path) -> bool:
    """Return whether a process is in a block of `in_use` for the folder."""
    with contextlib.suppress(OSError):  # it is gone, or the disk has no locks
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
    return False


def _locked_folder() -> tuple[Path, int]:
    """Return a new folder and the descriptor of its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=tempfile.gettempdir()))
        # Until it is locked, somebody's sweep takes it for one that is left.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:  # a disk without locks
                os.close(lock)
                path.rmdir()
                raise
            if path.exists():
                return path, lock
            os.close(lock)


def is_python(path: str) -> bool:
    """Return whether a file of Python is named: ``train.py``, or a command such as an installed package has."""
    if path.endswith(".py"):
        return True
    with contextlib.suppress(OSError, ValueError):
        if Path(path).is_file():  # a pipe would be waited for
            with Path(path).open("rb") as file:
                first = file.read(_FIRST_BYTES)
            lines = [*first.splitlines(), b"", b""]
            # Where Python's path is too long for a first line, the second one has a shell start it.
            return lines[0].startswith(b"#!") and (b"python" in lines[0] or lines[1].startswith(b"'''exec'"))
    return False


def identity(descriptor: int) -> tuple[int, int] | None:
    """Return the device and the inode of an open file; None of a closed one: a program may close what it did not open.

    A descriptor's number may then stand for another file, which is not ours to write to or to close.
    """
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def takes_output(stream: TextIO, timeout_s: float = _READER_WITHIN_S) -> bool:
    """Return whether a stream takes some output, waiting so long for the reader of a full pipe."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # it writes to memory, or is closed
        return True
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(timeout_s * 1e3))
