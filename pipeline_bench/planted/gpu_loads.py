"""Loads of known busy time on a GPU, one after the other, each timed by the device's own events; run in a child."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pipeline_bench.planted.cuda import Gpu, pci_bus_id

_IN_FLIGHT = 2
"""Kernels of a load without pauses that are queued at a time, so that one follows the other at once."""
_LONGEST_KERNEL_NS = 200_000_000
"""A longer busy time is several kernels in a row: a driver that watches over a display ends one after 2 s."""
_COPY_BYTES = 256 << 20
_GAP_S = 0.4
"""Between two loads, so that what is sampled of the one is not of the other."""
_REPEATS = 5
MEMORIES: tuple[Literal["pinned", "pageable"], ...] = ("pinned", "pageable")
"""Of the host: what the device reads by itself, and what its driver copies there first."""
Report = Callable[..., object]


def run(loads: Sequence[Mapping[str, Any]], report: Report) -> dict[str, Any]:
    """Run the loads, and report each as it ends.

    Args:
        loads: each has `name`, `kernel` and `seconds`; of kernels `period_ms`, `share`, and `sm_share` of the SMs, 0
            for a single one.
        report: takes ``gpu`` {`pci_bus_id`, `sm_count`, `memory_bytes_per_s`} once, and then ``load`` for each: the
            keys of `model.selftest.GpuRun`, with columns as lists.
    """
    gpu = Gpu()
    facts = {"pci_bus_id": pci_bus_id(0), "sm_count": gpu.sm_count, "memory_bytes_per_s": gpu.memory_bytes_per_s}
    report(gpu=facts)
    _warm_up(gpu)
    for load in loads:
        time.sleep(_GAP_S)
        report(load={"name": load["name"], "kernel": load["kernel"], **_one(gpu, load)})
    time.sleep(_GAP_S)
    return {}


def copies(sizes_bytes: Sequence[int], report: Report) -> dict[str, Any]:
    """Copy each size from pinned and from pageable memory, alone and beside a kernel on another stream.

    Args:
        sizes_bytes: of the copies.
        report: takes ``copy`` for each: the keys of `model.selftest.Copy`.
    """
    gpu = Gpu()
    _warm_up(gpu)
    there = gpu.memory(max(sizes_bytes))
    for size in sizes_bytes:
        for memory in MEMORIES:
            host = gpu.pinned(size) if memory == "pinned" else (ctypes.c_char * size)()
            ctypes.memset(host, 1, size)  # pages that nobody wrote are all one page of zeros, which the cache holds
            took = _copied(gpu, there, host, size)
            hidden = _hidden_share(gpu, there, host, size, took["device_ms"], took["wall_ms"])
            report(copy={"size_bytes": size, "memory": memory, **took, "hidden_share": hidden})
    return {}


def _warm_up(gpu: Gpu) -> None:
    """Run a first kernel, which the driver takes long to load."""
    stream = gpu.stream()
    gpu.launch(stream, 1_000_000, 1)
    gpu.wait(gpu.event(stream))


def _one(gpu: Gpu, load: Mapping[str, Any]) -> dict[str, Any]:
    match load["kernel"]:
        case "tensor" if not gpu.has_tensor_kernel:
            now_ns = time.monotonic_ns()
            return {"start_ns": now_ns, "end_ns": now_ns, "reason": "its tensor cores are older than Ampere's"}
        case "copy in memory" | "copy to the device":
            return _moving(gpu, load)
        case _:
            return _duty(gpu, load)


def _based(gpu: Gpu, stream: Any) -> tuple[Any, int]:
    """Return an event and when it was, by ``time.monotonic_ns``."""
    base = gpu.event(stream)
    gpu.wait(base)
    return base, time.monotonic_ns()


def _duty(gpu: Gpu, load: Mapping[str, Any]) -> dict[str, Any]:
    """Run a kernel for its share of each period."""
    period_ns = round(load["period_ms"] * 1e6)
    busy_ns = round(load["share"] * period_ns)
    kernels = -(-busy_ns // _LONGEST_KERNEL_NS)
    blocks = max(1, round(load["sm_share"] * gpu.sm_count))
    kernel = "tensor" if load["kernel"] == "tensor" else "spin"
    stream = gpu.stream()
    base, base_ns = _based(gpu, stream)
    start_ns, events = time.monotonic_ns(), list[tuple[Any, Any]]()
    periods = max(2, round(load["seconds"] * 1e9 / period_ns))
    for number in range(1, periods + 1):
        if busy_ns:
            begun = gpu.event(stream)
            for _ in range(kernels):
                gpu.launch(stream, busy_ns // kernels, blocks, kernel)  # type: ignore[arg-type]
            events.append((begun, gpu.event(stream)))
        if load["share"] < 1:
            time.sleep(max(0.0, (start_ns + number * period_ns - time.monotonic_ns()) / 1e9))
        elif number >= _IN_FLIGHT:
            gpu.wait(events[-_IN_FLIGHT][1])
    if events:
        gpu.wait(events[-1][1])
    return _timed(gpu, (base, base_ns), events, start_ns, time.monotonic_ns()) | {
        "period_ms": load["period_ms"],
        "asked_share": load["share"],
    }


def _moving(gpu: Gpu, load: Mapping[str, Any]) -> dict[str, Any]:
    """Copy without a pause."""
    inwards = load["kernel"] == "copy to the device"
    there, source = gpu.memory(_COPY_BYTES), None if inwards else gpu.memory(_COPY_BYTES)
    host = gpu.pinned(_COPY_BYTES) if inwards else None
    stream = gpu.stream()
    base, base_ns = _based(gpu, stream)
    start_ns, events = time.monotonic_ns(), list[tuple[Any, Any]]()
    while time.monotonic_ns() - start_ns < load["seconds"] * 1e9:
        begun = gpu.event(stream)
        if source is None:
            gpu.copy_in(there, host, _COPY_BYTES, stream)
        else:
            gpu.copy_within(there, source, _COPY_BYTES, stream)
        events.append((begun, gpu.event(stream)))
        if len(events) >= _IN_FLIGHT:
            gpu.wait(events[-_IN_FLIGHT][1])
    gpu.wait(events[-1][1])
    found = _timed(gpu, (base, base_ns), events, start_ns, time.monotonic_ns())
    for at in (there, source):
        if at is not None:
            gpu.release(at)
    return found | {"bytes_moved": _COPY_BYTES * len(events)}


def _timed(
    gpu: Gpu, base: tuple[Any, int], events: Sequence[tuple[Any, Any]], start_ns: int, end_ns: int
) -> dict[str, Any]:
    starts = [base[1] + round(gpu.ms_between(base[0], start) * 1e6) for start, _ in events]
    ends = [base[1] + round(gpu.ms_between(base[0], end) * 1e6) for _, end in events]
    busy_ns = sum(end - start for start, end in zip(starts, ends, strict=True))
    return {
        "start_ns": start_ns,
        "end_ns": end_ns,
        "busy_share": min(1.0, busy_ns / max(1, end_ns - start_ns)),
        "busy_start_ns": starts,
        "busy_end_ns": ends,
    }


# --- copies ----------------------------------------------------------------------------------------------------------


def _copied(gpu: Gpu, there: int, host: Any, size: int) -> dict[str, float]:
    """Return the ms of a copy by the device, by the host, and until its call came back: each the best of some."""
    stream = gpu.stream()
    took = []
    for _ in range(_REPEATS):
        began_ns = time.monotonic_ns()
        begun = gpu.event(stream)
        called_ns = time.monotonic_ns()
        gpu.copy_in(there, host, size, stream)
        returned_ns = time.monotonic_ns()
        ended = gpu.event(stream)
        gpu.wait(ended)
        by_host = (time.monotonic_ns() - began_ns, returned_ns - called_ns)
        took.append((gpu.ms_between(begun, ended), *(ns / 1e6 for ns in by_host)))
    device_ms, wall_ms, call_ms = (min(column) for column in zip(*took, strict=True))
    return {"device_ms": device_ms, "wall_ms": wall_ms, "call_ms": call_ms}


def _hidden_share(gpu: Gpu, there: int, host: Any, size: int, device_ms: float, wall_ms: float) -> float:
    """Return how much of a copy's time a kernel hides that runs meanwhile, four times as long.

    What the copy adds is counted from the same kernel alone: launching it and waiting for it take their time as well.
    """
    kernel_ns = round(4e6 * wall_ms)
    computing, copying = gpu.stream(), gpu.stream()
    best_ms = [float("inf")] * 2
    for _ in range(_REPEATS):
        for copies in (False, True):  # by turns, so that a drift of the machine falls on both
            began_ns = time.monotonic_ns()
            gpu.launch(computing, kernel_ns, 1)
            if copies:
                gpu.copy_in(there, host, size, copying)
            gpu.wait(gpu.event(copying))
            gpu.wait(gpu.event(computing))
            best_ms[copies] = min(best_ms[copies], (time.monotonic_ns() - began_ns) / 1e6)
    alone_ms, beside_ms = best_ms
    return min(1.0, max(0.0, 1 - (beside_ms - alone_ms) / device_ms))
