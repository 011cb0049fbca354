"""Whether the kernel takes much of a job's CPU time for memory that malloc gives back, and how malloc keeps it."""

from __future__ import annotations

import resource
from time import monotonic_ns

from pipeline_bench.system.freed_memory import SETTINGS
from pipeline_bench.text import units

_LEAST_S = 5.0
"""In less time a job may still be at what comes once."""
_A_SECOND, _KERNEL_SHARE = 20_000, 0.1
"""From so many page faults a second, and that part of the CPU time spent in the kernel, on keeping the memory may gain
much. Where a job had 117,000 and 23 %, on two virtual cores, its steps became 1.4 times as fast; with 56,000 and 12 %,
1.1 times."""
_TEXT = (
    "{share} of its CPU time is the kernel's, which makes {pages:,.0f} pages of memory a second: malloc gives large "
    "blocks back to it when they are freed. With {settings} in its environment it keeps them, which takes more memory; "
    "`pipeline-bench diagnose` measures what it gains"
)


class PageFaults:
    """What the kernel did for a process, from the first look on."""

    def __init__(self) -> None:
        """Begin with a look."""
        self._begun_ns, self._before = monotonic_ns(), resource.getrusage(resource.RUSAGE_SELF)

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence where it may have taken much of the time; else nothing."""
        now, before = resource.getrusage(resource.RUSAGE_SELF), self._before
        seconds = (monotonic_ns() - self._begun_ns) / 1e9
        kernel_s, own_s = now.ru_stime - before.ru_stime, now.ru_utime - before.ru_utime
        a_second = (now.ru_minflt - before.ru_minflt) / max(seconds, _LEAST_S)
        share = kernel_s / ((kernel_s + own_s) or 1.0)
        if a_second < _A_SECOND or share < _KERNEL_SHARE:
            return ()
        return (_TEXT.format(share=units.share(share), pages=a_second, settings=SETTINGS),)
