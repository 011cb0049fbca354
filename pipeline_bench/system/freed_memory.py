"""Whether glibc's malloc gives large blocks back to the kernel as soon as they are freed, and how it keeps them.

The kernel clears each page of a block that it maps, at the first touch: a page fault. malloc maps blocks from
M_MMAP_THRESHOLD on; that threshold grows with what is freed, up to 32 MiB, until a program sets it. TensorFlow 2.21
sets it to 128 KiB where a `from_generator` begins, with Python 3.11 and later (generator_dataset_op.cc), and Keras 3
makes one of each PyDataset and generator. Blocks of more than 64 MiB, which is a thread's whole heap, are mapped
whatever is set.

Source: mallopt(3), and glibc's manual, "Malloc Tunable Parameters".
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from pathlib import PurePath
from typing import Any, NamedTuple

_MMAP_MAX, _TOP_PAD = -4, -2
"""Parameters of mallopt: how many blocks may be mapped, and how much more than asked for a heap takes and keeps."""
_KEPT_BYTES = 64 << 20
_SETTING = "MALLOC_MMAP_MAX_"
SETTINGS = f"{_SETTING}=0 MALLOC_TOP_PAD_={_KEPT_BYTES}"
"""What has malloc keep what is freed, in the environment that a program starts in."""
MANY_FAULTS_A_SECOND = 20_000
"""Fewer page faults cost little. On a virtual machine of two cores, where 117,000 a second were measured, keeping the
memory made a step 1.4 times as fast; 56,000, 1.1 times."""


class Used(NamedTuple):
    """What this process has used so far."""

    page_faults: int
    """The pages that it waited for until the kernel had made them, those read from a disk left out."""
    kernel_s: float
    """CPU time in the kernel."""
    own_s: float
    """CPU time outside of it."""
    peak_bytes: int
    """The most memory at a time."""


def used() -> Used:
    """Return what this process has used so far."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return Used(now.ru_minflt, now.ru_stime, now.ru_utime, now.ru_maxrss * 1024)


def gives_back() -> bool:
    """Return whether malloc is glibc's, none that was loaded before that, and not told to keep what is freed."""
    libc = ctypes.CDLL(None)
    is_glibcs = hasattr(libc, "mallopt") and PurePath(_file_of(libc, libc.malloc)).name.startswith(("libc.", "libc-"))
    return is_glibcs and _SETTING not in os.environ


_kept = threading.Event()
"""Set once `keep` was called; nothing undoes that within a process."""


def keep() -> bool:
    """Have malloc keep what is freed from now on, as `SETTINGS` do; return whether it takes them."""
    _kept.set()
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_TOP_PAD, _KEPT_BYTES) and mallopt(_MMAP_MAX, 0))


def give_back() -> None:
    """Have malloc give what it holds and nobody uses back to the kernel, where it is glibc's."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def is_kept() -> bool:
    """Return whether this process was made to keep what is freed."""
    return _kept.is_set()


class _Symbol(ctypes.Structure):
    """What dladdr(3) fills."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _file_of(libc: ctypes.CDLL, function: Any) -> str:
    """Return the file of the library that a function of C is in; empty where that is not known."""
    found, dladdr = _Symbol(), getattr(libc, "dladdr", None)
    if dladdr is None or not dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found)):
        return ""
    return os.fsdecode(found.file or b"")
