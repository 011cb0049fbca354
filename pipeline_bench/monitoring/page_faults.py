"""Whether the kernel takes much of a job's CPU time for memory that malloc gives back, and how malloc keeps it."""

from __future__ import annotations

from time import monotonic_ns

from pipeline_bench.system import freed_memory
from pipeline_bench.text import units

_LEAST_S = 5.0
"""In less time a job may still be at what comes once."""
_KERNEL_SHARE = 0.1
"""Of the CPU time. Where it was 23 %, on two virtual cores, steps became 1.4 times as fast with the memory kept; with
12 %, 1.1 times. A file that is read takes the kernel's time too, without page faults."""
_TEXT = (
    "{share} of its CPU time is the kernel's, which makes {pages:,.0f} pages of memory a second: malloc may give large "
    "blocks back to it when they are freed. With {settings} in its environment it keeps those of up to 64 MiB, which "
    "takes more memory: run it so too, and `pipeline-bench diff` tells what it gains"
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
        is_much = a_second >= freed_memory.MANY_FAULTS_A_SECOND and share >= _KERNEL_SHARE
        if not (is_much and freed_memory.gives_back()):
            return ()
        return (_TEXT.format(share=units.share(share), pages=a_second, settings=freed_memory.SETTINGS),)
