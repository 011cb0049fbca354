"""What NVML says of a GPU in one call each: memory, clock and what holds it down, processes, power, temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gauge:
    """A metric that is one call: what `read` gives for (pynvml, device handle), in the unit its name says."""

    metric: str
    source: str
    read: Callable[[Any, Any], float]


def _sm_clock_mhz(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))


def _throttle_reasons(nvml: Any, handle: Any) -> float:
    """The bit mask nvmlClocksEventReasons (nvml.h), below 2**53; drivers before 535 have it under its older name."""
    try:
        return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (AttributeError, nvml.NVMLError_FunctionNotFound):
        return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _processes(nvml: Any, handle: Any) -> float:
    """How many processes have the GPU open for computing, the trial's own among them.

    A number rather than their ids: inside a container those are the host's.
    """
    return float(len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)))


def _temperature_celsius(nvml: Any, handle: Any) -> float:
    """The core's temperature, by the call that NVML is to drop in CUDA 14, or by its successor where it is gone."""
    try:
        return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    except (AttributeError, nvml.NVMLError_FunctionNotFound):
        return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))


GAUGES = (
    Gauge("device_memory_bytes", "NVML memory info", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    Gauge("device_sm_clock_mhz", "NVML clock info", _sm_clock_mhz),
    Gauge("device_throttle_reasons", "NVML clocks event reasons", _throttle_reasons),
    Gauge("device_processes", "NVML compute processes", _processes),
    Gauge("device_power_watts", "NVML power usage", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
    Gauge("device_temperature_celsius", "NVML temperature", _temperature_celsius),
)
