"""What NVML can say of a GPU: its metrics with their possible values, the GPUs, and why it refuses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pipeline_bench.samplers import Reading

UTILIZATION = "device_utilization_percent"
SAMPLES_SOURCE, RATES_SOURCE = "NVML samples", "NVML utilization rates"
"""The two instruments of a GPU's utilization."""
ACTIVITY = (
    "device_sm_active_percent",
    "device_sm_occupancy_percent",
    "device_tensor_percent",
    "device_dram_percent",
    "device_pcie_tx_mib_per_s",
    "device_pcie_rx_mib_per_s",
)
"""The metrics of a GPU's parts, by GPM; a value speaks of the time from `Reading.from_ns` to its stamp."""
NO_GPU = "the NVIDIA driver lists no GPU"
_ALL_ONES = frozenset({2**32 - 1, 2**64 - 1})
"""What NVML gives for a value that is not available (nvml.h, NVML_VALUE_NOT_AVAILABLE)."""

# --- what NVML answers when it refuses: nvmlReturn_t (nvml.h) ---------------------------------------------------------

NOT_SUPPORTED = 3
NOTHING_NEW = frozenset({6, 10, 21, 27})
"""NOT_FOUND, TIMEOUT, NO_DATA, NOT_READY: no failure, there is nothing to record at this poll."""
LOST: Mapping[int, str] = {
    1: "the NVML library was shut down",  # UNINITIALIZED
    9: "the NVIDIA driver is installed, but not loaded",  # DRIVER_NOT_LOADED
    15: "the GPU was lost: the driver can no longer reach it",  # GPU_IS_LOST
    16: "the GPU needs a reset",  # RESET_REQUIRED
    18: "the NVML library and the loaded driver differ in version; after an update of the driver, reboot",  # LIB_RM_…
    28: "the driver no longer lists the GPU",  # GPU_NOT_FOUND
}
"""After these no metric of the device can be read any more."""
_REFUSED: Mapping[int, str] = {
    **LOST,
    NOT_SUPPORTED: "NVML does not support it on this GPU",
    4: "the NVIDIA driver refused: no permission",  # NO_PERMISSION
    12: "no NVIDIA driver here (libnvidia-ml.so.1 was not found)",  # LIBRARY_NOT_FOUND
    13: "this driver's NVML library is too old for it",  # FUNCTION_NOT_FOUND
}


def explain(error: Exception) -> str:
    """Return one line on an exception of pynvml, in words for a user."""
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ImportError):
        return f"the module pynvml (of nvidia-ml-py) cannot be imported: {message}"
    # Not an NVMLError: pynvml raises it by itself when the library lacks what an unversioned call needs.
    if type(error).__name__ == "NVMLLibraryMismatchError":
        return "nvidia-ml-py and the driver's NVML library do not match in version"
    return _REFUSED.get(code_of(error), f"NVML failed: {message}")


def code_of(error: Exception) -> int:
    """Return the nvmlReturn_t of an NVMLError, 0 of another exception."""
    value = getattr(error, "value", 0)
    return value if isinstance(value, int) else 0


# --- the metrics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gauge:
    """A metric that is one call of NVML.

    Attributes:
        metric: its name, which says the unit.
        source: the instrument, for a reader.
        noun: what a value of it is, for a reader: ``share of time``.
        lowest, highest: what a GPU can have; whatever else NVML gives was not measured.
        calls: names of the function, the first of which that pynvml and the driver know is called with the GPU.
        constant: the name of pynvml's constant that is the call's second argument.
        value: gives the value for what the call returns.
        of_whole_gpu: whether it counts what every instance of a GPU has, where MIG divides it.
    """

    metric: str
    source: str
    noun: str
    lowest: float
    highest: float
    calls: tuple[str, ...]
    constant: str = ""
    value: Callable[[Any], Any] = lambda result: result
    of_whole_gpu: bool = False

    def read(self, nvml: Any, gpu: Any) -> Any:
        """Return what NVML gives; raises what pynvml raises."""
        *older, last = self.calls
        arguments = (gpu, getattr(nvml, self.constant)) if self.constant else (gpu,)
        for call in older:
            try:
                return self.value(getattr(nvml, call)(*arguments))
            except (AttributeError, nvml.NVMLError_FunctionNotFound):
                continue
        return self.value(getattr(nvml, last)(*arguments))

    def implausible(self, value: float) -> str | None:
        """Return why the value cannot be right, in one plain line; None where it can be."""
        if self.lowest <= value <= self.highest and value not in _ALL_ONES:  # false of NaN
            return None
        return f"NVML gave {value}, which is no {self.noun}"


def _gauge(metric: str, source: str, noun: str, lowest: float, highest: float, *calls: str, **more: Any) -> Gauge:
    names = tuple(f"nvmlDeviceGet{call}" for call in calls)
    return Gauge(f"device_{metric}", f"NVML {source}", noun, lowest, highest, names, **more)


# The bounds are far beyond any GPU's, and far below what a value of all ones or a negative one in disguise reads as.
_get_used = attrgetter("used")
RATES = Gauge(
    UTILIZATION, RATES_SOURCE, "share of time", 0, 100, ("nvmlDeviceGetUtilizationRates",), value=attrgetter("gpu")
)
GAUGES = (
    _gauge(
        "memory_bytes", "memory info", "amount of memory", 0, 1 << 50, "MemoryInfo", value=_get_used, of_whole_gpu=True
    ),
    _gauge("sm_clock_mhz", "clock info", "clock rate", 0, 100_000, "ClockInfo", constant="NVML_CLOCK_SM"),
    _gauge(  # the bit mask nvmlClocksEventReasons (nvml.h); drivers before 535 have it under its older name
        "throttle_reasons",
        "clocks event reasons",
        "set of reasons",
        0,
        (1 << 53) - 1,  # every bit survives in a float
        "CurrentClocksEventReasons",
        "CurrentClocksThrottleReasons",
    ),
    # The trial's own among them; a number, because inside a container their ids are the host's. pynvml's call without a
    # version knows the newest one alone, which drivers before 510 lack.
    _gauge(
        "processes",
        "compute processes",
        "number of processes",
        0,
        1 << 22,  # PID_MAX_LIMIT of Linux
        "ComputeRunningProcesses_v3",
        "ComputeRunningProcesses_v2",
        value=len,
        of_whole_gpu=True,
    ),
    _gauge("power_watts", "power usage", "power", 0, 100_000, "PowerUsage", value=lambda milliwatts: milliwatts / 1000),
    _gauge(  # by the call that NVML is to drop in CUDA 14, or by its successor where it is gone
        "temperature_celsius",
        "temperature",
        "temperature",
        -100,
        300,
        "Temperature",
        "TemperatureV",
        constant="NVML_TEMPERATURE_GPU",
    ),
)
POWER = "device_power_watts"
POWER_WINDOW_NS = 1_000_000_000
"""What a power speaks of, up to its stamp, on most GPUs from Ampere on (nvml.h, nvmlDeviceGetPowerUsage)."""
METRICS = (UTILIZATION, *(gauge.metric for gauge in GAUGES))


def explain_all(reason: str, utilization_source: str, explained: set[str], now_ns: int) -> list[Reading]:
    """Return the reason for each metric that is not yet in `explained`, and enter it there."""
    every = [(UTILIZATION, utilization_source), *((gauge.metric, gauge.source) for gauge in GAUGES)]
    left = [pair for pair in every if pair[0] not in explained]
    explained.update(metric for metric, _ in left)
    return [Reading(metric, source, now_ns, reason=reason) for metric, source in left]


# --- the GPUs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NvmlDevice:
    """A GPU in NVML's listing. `index` is NVML's (PCI order); `pci_bus_id` is normalised."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    mig_enabled: bool
    mig_uuids: tuple[str, ...] = ()
    """Of the MIG devices that this process may see on it."""

    @classmethod
    def at(cls, nvml: Any, index: int) -> NvmlDevice:
        """Ask the module `nvml` (pynvml) about the device of that index; raises what it raises."""
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
        try:
            mig_enabled = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        except (AttributeError, nvml.NVMLError):  # a GPU before Ampere, or a driver that does not know MIG
            mig_enabled = False
        mig_uuids: tuple[str, ...] = ()
        if mig_enabled:
            with contextlib.suppress(AttributeError, nvml.NVMLError):  # the GPU is there without them
                mig_uuids = tuple(uuid for uuid, _ in mig_instances(nvml, handle))
        return cls(
            index=index,
            name=str(nvml.nvmlDeviceGetName(handle)),
            uuid=str(nvml.nvmlDeviceGetUUID(handle)),
            pci_bus_id=normalise_pci_bus_id(bus_id.decode() if isinstance(bus_id, bytes) else bus_id),
            mig_enabled=mig_enabled,
            mig_uuids=mig_uuids,
        )


def mig_instances(nvml: Any, handle: Any) -> list[tuple[str, int]]:
    """Return UUID and GPU instance of each MIG device of a GPU, in NVML's order; raises what pynvml raises."""
    found: list[tuple[str, int]] = []
    for index in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        found.append((str(nvml.nvmlDeviceGetUUID(mig)), int(nvml.nvmlDeviceGetGpuInstanceId(mig))))
    return found


def normalise_pci_bus_id(pci_bus_id: str) -> str:
    """Return a PCI id in NVML's form, ``00000000:01:00.0`` in lower case.

    TensorFlow and CUDA write the domain with four digits, some tools leave it out. What is no PCI id comes back in
    lower case, and matches no device.
    """
    text = pci_bus_id.strip().lower()
    match = re.fullmatch(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", text)
    if match is None:
        return text
    domain, bus, device, function = (int(part, 16) if part else 0 for part in match.groups())
    return f"{domain:08x}:{bus:02x}:{device:02x}.{function:x}"


def first_visible(devices: tuple[NvmlDevice, ...], environ: Mapping[str, str]) -> tuple[NvmlDevice | None, str | None]:
    """Return the device that CUDA numbers 0, or the reason why there is none.

    ``CUDA_VISIBLE_DEVICES`` is honoured when its first entry is an index or a UUID (or the start of one), of a GPU or
    of a MIG device, which older drivers wrote ``MIG-GPU-…/1/0`` with its GPU's. An index is taken in PCI order, which
    is CUDA's own only under ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` or with equal GPUs: select by PCI id where TensorFlow
    names it.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if not devices:
        return None, NO_GPU
    if visible is None:
        return devices[0], None
    entry = visible.split(",")[0].strip()
    sought = entry.removeprefix("MIG-").split("/")[0] if entry.startswith("MIG-GPU-") else entry
    for device in devices:
        named = sought.startswith(("GPU-", "MIG-"))
        own = any(uuid.startswith(sought) for uuid in (device.uuid, *device.mig_uuids))
        if entry == str(device.index) or (named and own):
            return device, None
    return None, f"CUDA_VISIBLE_DEVICES={visible!r} begins with no GPU that NVML lists"
