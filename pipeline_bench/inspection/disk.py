"""Which files a pipeline reads, and how fast the disk under them gives their bytes.

The bandwidth is measured past the page cache (O_DIRECT), so that neither what is cached is measured nor anything is
evicted or brought in.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import mmap
import os
import re
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pipeline_bench import user_code
from pipeline_bench.system.processes import io_bytes, open_files
from pipeline_bench.user_code.kept_results import noting_writes

_PIECE_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
_MOST_S = 0.7
"""Reads end then; what was read by then is the bandwidth."""
_LEAST_BYTES = 4 << 20
"""Less is over before the disk is at its pace."""
_AT_ONCE = 4
"""Reads at the same time, as a parallel interleave makes them; one alone leaves many disks idle."""
_PRINTED_BYTES = 4096
"""In a call; a file of a sample is larger."""
_FILES_KEPT, _LOOK_EVERY_S = 32, 0.01
_NO_FILE_OF_USERS = re.compile(
    r"^/(dev/(?!shm/)|dev/shm/(psm_|sem\.|torch_|nccl|cuda|joblib|vader|ucx)|memfd:|SYSV)"
    r"|(lock\.mdb|-lock|-shm| \(deleted\))$"
)
"""Of what is mapped: devices, memory that processes share, and locks, which who reads LMDB or SQLite writes to."""
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "proc", "sysfs"})


@contextmanager
def opened_files(apart_from: Iterable[Path] = ()) -> Iterator[Mapping[str, None]]:
    """Collect, during the block, the regular files that this process has open, as far as sampling sees them.

    The first ones are the keys of the mapping, in their order. Files of the interpreter and the folders of `apart_from`
    are left out.
    """
    installed = map(Path, (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), "/usr/lib", "/proc"))
    left_out = tuple(f"{folder.resolve()}/" for folder in (*installed, *apart_from))
    before = set(_open_now())
    seen: dict[str, None] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY_S) and len(seen) < _FILES_KEPT:
            for path in _open_now():
                is_new = path not in before and not path.startswith(left_out)
                if is_new and len(seen) < _FILES_KEPT and Path(path).is_file():
                    seen[path] = None

    thread = threading.Thread(target=watch, name="pipeline-bench files", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _open_now() -> list[str]:
    return [path for path in open_files() if path.startswith("/") and not path.startswith("/dev/")]


def bytes_read() -> int | None:
    """Return the bytes that this process has read by calls so far, from the page cache or not; None if unknown."""
    return _bytes_of_calls("rchar")


def _bytes_of_calls(counter: str) -> int | None:
    with contextlib.suppress(OSError):
        return io_bytes(counter)
    return None


@contextmanager
def writing_watched() -> Iterator[Callable[[int], bool]]:
    """Give what tells whether files were written in the block, in so many calls of the user's code.

    By `open`, or in C, as OpenCV and HDF5 do: more bytes than prints have. Without these where they are not known.
    Files that are mapped to be written to count as written: what is stored in them goes through no call.
    """
    opened: list[object] = []

    def written_bytes() -> int:
        return _bytes_of_calls("wchar") or 0

    before = written_bytes()
    with (
        user_code.patched(builtins, "open", noting_writes(builtins.open, opened.append)),
        user_code.patched(io, "open", noting_writes(io.open, opened.append)),
    ):
        yield lambda calls: bool(opened) or written_bytes() - before > _PRINTED_BYTES * calls or any(_mapped_to_write())


def _mapped_to_write() -> Iterator[str]:
    """Yield the files that this process has mapped so that what it stores in memory is stored in them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            _, access, _, _, inode, *path = line.split(maxsplit=5)
            if access[1] == "w" and access[3] == "s" and inode != "0" and not _NO_FILE_OF_USERS.search(path[0]):
                yield path[0]


def bandwidth(files: Sequence[str]) -> tuple[float | None, str | None]:
    """Return the bytes a second that the disk under the files gives, or why they are not known.

    Some of the files are read, four pieces of a megabyte at once.
    """
    if not files:
        return None, "no file was seen to be read"
    kind = _file_system(files[0])
    if kind in _IN_MEMORY:
        return None, f"the files are in memory ({kind})"
    try:
        pieces = _pieces(files)
        if len(pieces) * _PIECE_BYTES < _LEAST_BYTES:
            return None, "the files are too small to tell"
        start_s = time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            read = sum(pool.map(lambda piece: _read(piece, start_s + _MOST_S), pieces))
    except OSError as error:
        return None, f"the files cannot be read past the page cache: {error.strerror}"
    took_s = time.monotonic() - start_s
    return (read / took_s, None) if read >= _LEAST_BYTES else (None, "too little could be read in time")


def _pieces(files: Sequence[str]) -> list[tuple[str, int]]:
    """Return whole pieces of the files, the same number of each as far as it has them."""
    sizes = {path: Path(path).stat().st_size for path in files if Path(path).is_file()}
    most = _MOST_BYTES // _PIECE_BYTES
    starts = range(0, _MOST_BYTES, _PIECE_BYTES)
    return [(path, at) for at in starts for path, size in sizes.items() if size >= at + _PIECE_BYTES][:most]


def _read(piece: tuple[str, int], end_s: float) -> int:
    path, start = piece
    if time.monotonic() > end_s:
        return 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _PIECE_BYTES) as aligned:
            return os.preadv(descriptor, [aligned], start)
    finally:
        os.close(descriptor)


def _file_system(path: str) -> str:
    """Return the kind of file system that a file is on, by the longest mount point above it."""
    best, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            _, point, name, *_ = line.split(" ")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, name
    return kind
