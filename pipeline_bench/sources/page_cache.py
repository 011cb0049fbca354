"""The system's page cache, as a process without privileges sees and steers it on Linux: files in it, and out of it.

Parts of files, because a data set may be one large file. Nothing here is cached by the process itself: what a program
reads with plain calls (and so TensorFlow) goes through the page cache, unless the file system has none.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline_bench.sources.records import RecordFile
from pipeline_bench.system.processes import io_bytes

PAGE_BYTES = mmap.PAGESIZE
_READ_BYTES = 1 << 20


class FileRange(NamedTuple):
    """The bytes of a file from `start` up to `end`."""

    path: str
    start: int
    end: int


class Layout:
    """The files of an epoch, laid end to end in the order in which they are read."""

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self._files = files
        self.size_bytes = sum(file.size_bytes for file in files)
        self._paged_bytes = sum(-(-file.size_bytes // PAGE_BYTES) * PAGE_BYTES for file in files)
        self.records = files[-1].first + files[-1].records

    def parts(self, first: float, end: float) -> Iterator[FileRange]:
        """Yield what the records from `first` up to `end` lie in; indices from 0 up to the records of an epoch.

        A file's bytes count as spread evenly over its records.
        """
        for index in range(self._index(first), len(self._files)):
            file = self._files[index]
            if file.first >= end:
                return
            inside = (max(first, file.first) - file.first, min(end, file.first + file.records) - file.first)
            start, stop = (round(file.size_bytes * share / file.records) for share in inside)
            if stop > start:
                yield FileRange(file.path, start, stop)

    def at(self, record: float, most_bytes: int) -> FileRange:
        """Return the bytes from a record on to the end of its file, or so many."""
        file = self._files[self._index(record)]
        start = int(file.size_bytes * (record - file.first) / file.records)
        return FileRange(file.path, start, min(file.size_bytes, start + most_bytes))

    def bytes_of(self, records: float) -> float:
        """Return what is fetched from storage for so many records, on average: whole pages."""
        return self._paged_bytes * records / self.records

    def _index(self, record: float) -> int:
        return max(0, bisect_right(self._files, record, key=lambda file: file.first) - 1)


def evict(part: FileRange, sync: bool = False) -> None:
    """Ask the kernel to drop a part of a file; it keeps what is not written yet, what is mapped, and shared edges.

    Args:
        part: which.
        sync: write first what the file has that is not on storage.

    Raises:
        OSError: the file cannot be opened, or there is no such call here.
    """
    with Path(part.path).open("rb", buffering=0) as file:
        if sync:
            os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), part.start, part.end - part.start, os.POSIX_FADV_DONTNEED)


def read(part: FileRange) -> Iterator[int]:
    """Read a part of a file, so that it is in the page cache; gives the bytes of each piece that was read.

    Raises:
        OSError: it cannot be read.
    """
    with Path(part.path).open("rb", buffering=0) as file:
        at = part.start
        while at < part.end and (got := len(os.pread(file.fileno(), min(_READ_BYTES, part.end - at), at))):
            at += got
            yield got


def why_unknown(path: str) -> str | None:
    """Return why the kernel does not say which pages of a file are resident; None where it does.

    Since Linux 5.2 mincore calls every page of a file resident that the process may not write and does not own.
    """
    try:
        owner = Path(path).stat().st_uid
    except OSError as error:
        return f"{path} cannot be checked: {error.strerror}"
    if owner != os.geteuid() and not os.access(path, os.W_OK):
        return f"the kernel shows it only to users who may write the files, and {path} is another user's"
    return None


def resident_pages(part: FileRange) -> tuple[int, int]:
    """Return how many pages of a part of a file are in the page cache, and how many it has.

    Raises:
        OSError: the file cannot be opened or mapped.
    """
    start = part.start // PAGE_BYTES * PAGE_BYTES
    length = part.end - start
    if length <= 0:
        return 0, 0
    try:
        with (
            Path(part.path).open("rb", buffering=0) as file,
            mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ, offset=start) as mapped,
        ):
            view = np.frombuffer(mapped, dtype=np.uint8)  # which knows the address
            states = np.zeros(-(-length // PAGE_BYTES), dtype=np.uint8)
            mincore = ctypes.CDLL(None, use_errno=True).mincore
            mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
            failed = mincore(view.ctypes.data, length, states.ctypes.data)
            del view  # else the map could not be closed
    except ValueError as error:  # the file is shorter by now
        raise OSError(errno.EINVAL, str(error), part.path) from error
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), part.path)
    return int((states & 1).sum()), len(states)


def storage_bytes_read() -> int:
    """Return the bytes that this process has caused to be fetched from storage so far, by the kernel's account.

    Raises:
        OSError: the kernel does not report it.
    """
    return io_bytes("read_bytes")
