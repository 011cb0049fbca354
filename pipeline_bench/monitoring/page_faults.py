"""Whether the kernel takes much of a job's CPU time for memory that malloc gives back, and how malloc keeps it."""

from __future__ import annotations

from time import monotonic_ns

from pipeline_bench.system import freed_memory
from pipeline_bench.text import units

_LEAST_S = 5.0
"""In less time a job may still be at what comes once."""
_A_SECOND, _KERNEL_SHARE = 20_000, 0.1
"""From so many page faults a second, and that part of the CPU time spent in the kernel, on keeping the memory may gain
much. Where a job had 117,000 and 23 %, on two virtual cores, its steps became 1.4 times as fast; with 56,000 and 12 %,
1.1 times."""
_TEXT = (
    "{share} of its CPU time is the kernel's, which makes {pages:,.0f} pages of memory a second: malloc may give large "
    "blocks back to it when they are freed. With {settings} in its environment it keeps those of up to 64 MiB, which "
    "takes more memory; `pipeline-bench diagnose` measures what it gains"
)


class PageFaults:
    """What the kernel did for a process, from the first look on."""

    def __init__(self) -> None:
        """Begin with a look."""
        self._begun_ns, self._before = monotonic_ns(), freed_memory.used()

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence where it may have taken much of the time, and malloc can keep what is freed; else none."""
        now, before, seconds = freed_memory.used(), self._before, (monotonic_ns() - self._begun_ns) / 1e9
        kernel_s, own_s = now.kernel_s - before.kernel_s, now.own_s - before.own_s
        a_second = (now.page_faults - before.page_faults) / max(seconds, _LEAST_S)
        share = kernel_s / ((kernel_s + own_s) or 1.0)
        if a_second < _A_SECOND or share < _KERNEL_SHARE or not freed_memory.gives_back():
            return ()
        return (_TEXT.format(share=units.share(share), pages=a_second, settings=freed_memory.SETTINGS),)
