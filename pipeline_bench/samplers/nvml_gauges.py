"""What NVML says of a GPU in one call each: memory, clock and what holds it down, processes, power, temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_NOT_AVAILABLE = frozenset({2**32 - 1, 2**64 - 1})
"""All ones: what NVML gives for a value that is not available (nvml.h, NVML_VALUE_NOT_AVAILABLE)."""


@dataclass(frozen=True)
class Plausible:
    """The values that a metric can have; whatever else NVML gives for it was not measured."""

    noun: str
    """What the value is, for a reader: ``share of time``."""
    least: float
    most: float

    def why_not(self, value: float) -> str | None:
        """Return why the value cannot be right, in one plain line; None where it can be."""
        if self.least <= value <= self.most and value not in _NOT_AVAILABLE:  # false of NaN
            return None
        return f"NVML gave {value}, which is no {self.noun}"


SHARE_OF_TIME = Plausible("share of time", 0, 100)


@dataclass(frozen=True)
class Gauge:
    """A metric that is one call: what `read` gives for (pynvml, device handle), in the unit its name says."""

    metric: str
    source: str
    plausible: Plausible
    read: Callable[[Any, Any], float]


def _sm_clock_mhz(nvml: Any, handle: Any) -> Any:
    return nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)


def _throttle_reasons(nvml: Any, handle: Any) -> Any:
    """The bit mask nvmlClocksEventReasons (nvml.h); drivers before 535 have it under its older name."""
    try:
        return nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (AttributeError, nvml.NVMLError_FunctionNotFound):
        return nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)


def _processes(nvml: Any, handle: Any) -> int:
    """How many processes have the GPU open for computing, the trial's own among them.

    A number rather than their ids: inside a container those are the host's.
    """
    return len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))


def _temperature_celsius(nvml: Any, handle: Any) -> Any:
    """The core's temperature, by the call that NVML is to drop in CUDA 14, or by its successor where it is gone."""
    try:
        return nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    except (AttributeError, nvml.NVMLError_FunctionNotFound):
        return nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)


# The bounds are far beyond any GPU's, and far below what a value of all ones or a negative one in disguise reads as.
GAUGES = (
    Gauge(
        "device_memory_bytes",
        "NVML memory info",
        Plausible("amount of memory", 0, 1 << 50),
        lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    ),
    Gauge("device_sm_clock_mhz", "NVML clock info", Plausible("clock rate", 0, 100_000), _sm_clock_mhz),
    Gauge(
        "device_throttle_reasons",
        "NVML clocks event reasons",
        Plausible("set of reasons", 0, (1 << 53) - 1),  # every bit survives in a float
        _throttle_reasons,
    ),
    Gauge(
        "device_processes",
        "NVML compute processes",
        Plausible("number of processes", 0, 1 << 22),  # PID_MAX_LIMIT of Linux
        _processes,
    ),
    Gauge(
        "device_power_watts",
        "NVML power usage",
        Plausible("power", 0, 100_000),
        lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    ),
    Gauge("device_temperature_celsius", "NVML temperature", Plausible("temperature", -100, 300), _temperature_celsius),
)
