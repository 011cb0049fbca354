"""The GPUs that NVML lists, and which of them a trial uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NO_GPU = "the NVIDIA driver lists no GPU"


@dataclass(frozen=True)
class NvmlDevice:
    """A GPU in NVML's listing. `index` is NVML's (PCI order); `pci_bus_id` is normalised."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    memory_bytes: int
    mig_enabled: bool


def normalise_pci_bus_id(pci_bus_id: str) -> str:
    """Bring a PCI id to NVML's form, ``00000000:01:00.0`` in lower case.

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
    """Find the device that CUDA numbers 0, or the reason why there is none.

    ``CUDA_VISIBLE_DEVICES`` is honoured when its first entry is an index or a ``GPU-`` UUID (or the start of one). An
    index is taken in PCI order, which is CUDA's own only under ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` or with equal GPUs:
    select by PCI id where TensorFlow names it.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if not devices:
        return None, NO_GPU
    if visible is None:
        return devices[0], None
    entry = visible.split(",")[0].strip()
    for device in devices:
        if entry == str(device.index) or (entry.startswith("GPU-") and device.uuid.startswith(entry)):
            return device, None
    return None, f"CUDA_VISIBLE_DEVICES={visible!r} begins with no GPU that NVML lists"


def describe(nvml: Any, index: int) -> NvmlDevice:
    """Ask the module `nvml` (pynvml) about the device of that index; raises what it raises."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
    return NvmlDevice(
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        pci_bus_id=normalise_pci_bus_id(bus_id.decode() if isinstance(bus_id, bytes) else bus_id),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        mig_enabled=_mig_enabled(nvml, handle),
    )


def _mig_enabled(nvml: Any, handle: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except (AttributeError, nvml.NVMLError):  # a GPU before Ampere, or a driver that does not know MIG
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)
