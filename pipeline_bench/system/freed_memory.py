"""Whether glibc's malloc gives large blocks back to the kernel as soon as they are freed, and how it keeps them.

The kernel clears each page of a block that it maps, at the first touch: a page fault. malloc maps blocks from
M_MMAP_THRESHOLD on; that threshold grows with what is freed, up to 32 MiB, until a program sets it. TensorFlow 2.21
sets it to 128 KiB where a `from_generator` begins, with Python 3.11 and later (generator_dataset_op.cc), and Keras 3
makes one of each PyDataset and generator.

Source: mallopt(3), and glibc's manual, "Malloc Tunable Parameters".
"""

from __future__ import annotations

import ctypes
import resource

_MMAP_MAX, _TOP_PAD = -4, -2
"""Parameters of mallopt: how many blocks may be mapped, and how much more than asked for a heap takes and keeps."""
_KEPT_BYTES = 64 << 20
SETTINGS = f"MALLOC_MMAP_MAX_=0 MALLOC_TOP_PAD_={_KEPT_BYTES}"
"""What has malloc keep what is freed, in the environment that a program starts in."""


def page_faults() -> int:
    """Return for how many pages this process has waited until the kernel made them, those read from a disk left out."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def peak_bytes() -> int:
    """Return the most memory that this process had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def keep() -> bool:
    """Have malloc keep what is freed from now on, as `SETTINGS` do.

    Returns:
        Whether it does: another C library than glibc has no such parameter.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_TOP_PAD, _KEPT_BYTES) and mallopt(_MMAP_MAX, 0))
