"""How fast a dataset gives its elements: taken one by one, or by windows where the taking itself would count.

Elements are counted in windows (`Dataset.window`): one call from Python for many elements costs 0.6 us an element in
TensorFlow 2.21, a call for each 12 us; `skip` would have sources and shuffles skip their work, and `reduce` runs a
function an element.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench.user_pipeline import taking

WINDOW_FROM_NS = 1e6
"""Slower elements are taken one by one: the call's 12 us are about 1 % of them."""
_HELD_BYTES = 64 << 20
"""The most that is kept of one stage, and the most that a window holds: little beside a machine's memory."""
_HELD_MOST = 512
_HELD_OPAQUE_MOST = 64
"""Of elements whose size nobody tells: ragged ones, windows."""
_SLICES = 3
_WINDOW_S = 0.004
"""About how long a window takes, so that a slice ends near the time that it was given."""
_WINDOW_MOST = 4096
_STEAL = 8
"""The column of the first line of /proc/stat, after its name: user, nice, system, idle, iowait, irq, softirq, steal."""


class Rate(NamedTuple):
    """Nanoseconds for one element: wall time, CPU time over all threads, and how long these queued for a core."""

    elapsed_ns: float
    cpu_ns: float
    queued_ns: float = 0.0


def collect(
    taker: taking.Taker, deadline: taking.Deadline, first: list[Any], seconds: float
) -> tuple[list[list[Any]], float | None, float]:
    """Keep some elements: they, the time for one in ns as far as it can be told, and their mean size in bytes."""
    kept, size = [first], taking.flat_nbytes(first)
    opaque = any(not tensor.dtype.is_numpy_compatible for tensor in first)
    most = _HELD_OPAQUE_MOST if opaque else _HELD_MOST
    taking_ns = 0
    end_ns = time.perf_counter_ns() + seconds * 1e9
    while len(kept) < most and size * (1 + 1 / len(kept)) < _HELD_BYTES:
        if (start_ns := time.perf_counter_ns()) > end_ns:
            break
        try:
            kept.append(taker.take(deadline))
        except (taking.OutOfTimeError, StopIteration):
            break
        taking_ns += time.perf_counter_ns() - start_ns
        size += taking.flat_nbytes(kept[-1])
    per_ns = taking_ns / (len(kept) - 1) if len(kept) > 1 else None
    return kept, per_ns, size / len(kept)


def drain_one_by_one(taker: taking.Taker, deadline: taking.Deadline, seconds: float) -> Rate:
    """Take for so long, and at least one element; the mean, because parallel calls come in bursts."""
    return _slice(taker, deadline, seconds, 1)


def drain(dataset: Any, deadline: taking.Deadline, per_ns: float, element_bytes: float, seconds: float) -> Rate:
    """Take by windows, in slices; the median slice.

    Args:
        dataset: without end.
        deadline: when to give up.
        per_ns: about how long one element takes.
        element_bytes: of one; a window holds all of its elements at once.
        seconds: how long to take.
    """
    size = round(_WINDOW_S * 1e9 / max(per_ns, 100.0))
    size = max(1, min(size, _WINDOW_MOST, round(_HELD_BYTES / max(1.0, element_bytes))))
    taker = taking.Taker(dataset if size == 1 else dataset.window(size))
    taker.take(deadline)
    rates = [_slice(taker, deadline, seconds / _SLICES, size) for _ in range(_SLICES)]
    return Rate(*(statistics.median(values) for values in zip(*rates, strict=True)))


def _slice(taker: taking.Taker, deadline: taking.Deadline, seconds: float, size: int) -> Rate:
    calls = 0
    start_queued_s = _queued_s()  # reads a file a thread, and is no part of what is timed
    start_ns, start_cpu_s = time.perf_counter_ns(), _cpu_s()
    end_ns = start_ns + seconds * 1e9
    while not calls or time.perf_counter_ns() < end_ns:
        taker.take(deadline)
        calls += 1
    count = calls * size
    elapsed_ns, cpu_s = time.perf_counter_ns() - start_ns, _cpu_s() - start_cpu_s
    queued_s = max(0.0, _queued_s() - start_queued_s)  # a thread that has ended takes its figure along
    return Rate(elapsed_ns / count, cpu_s * 1e9 / count, queued_s * 1e9 / count)


def _cpu_s() -> float:
    """CPU seconds of this process so far, over all of its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _queued_s() -> float:
    """Return for how many seconds threads of this process could have run and had no core; 0 where Linux does not say.

    Other processes had it, which the kernel tells for each thread (``schedstat``, the second number), or the
    hypervisor, which it tells for the whole machine (``steal`` of /proc/stat).
    """
    queued_ns = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            queued_ns += int(file.read_text(encoding="ascii").split()[1])
    return queued_ns / 1e9 + _stolen_s()


def _stolen_s() -> float:
    with contextlib.suppress(OSError, IndexError, ValueError), Path("/proc/stat").open(encoding="ascii") as file:
        return int(file.readline().split()[_STEAL]) / os.sysconf("SC_CLK_TCK")
    return 0.0
