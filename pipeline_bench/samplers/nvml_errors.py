"""NVML's return codes, and what each means to a user."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Code(IntEnum):
    """The nvmlReturn_t that are told apart here (nvml.h)."""

    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    NOT_READY = 27
    GPU_NOT_FOUND = 28


_MISMATCH = "the NVML library and the loaded driver differ in version; after an update of the driver, reboot"

_PLAIN: Mapping[int, str] = {
    Code.UNINITIALIZED: "the NVML library was shut down",
    Code.NOT_SUPPORTED: "NVML does not support it on this GPU",
    Code.NO_PERMISSION: "the NVIDIA driver refused: no permission",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver is installed, but not loaded",
    Code.LIBRARY_NOT_FOUND: "no NVIDIA driver here (libnvidia-ml.so.1 was not found)",
    Code.FUNCTION_NOT_FOUND: "this driver's NVML library is too old for it",
    Code.GPU_IS_LOST: "the GPU was lost: the driver can no longer reach it",
    Code.RESET_REQUIRED: "the GPU needs a reset",
    Code.LIB_RM_VERSION_MISMATCH: _MISMATCH,
    Code.GPU_NOT_FOUND: "the driver no longer lists the GPU",
}

NOTHING_NEW = frozenset({Code.NOT_FOUND, Code.NO_DATA, Code.NOT_READY, Code.TIMEOUT})
"""No failure: there is nothing to record at this poll."""

LOST = frozenset(
    {
        Code.UNINITIALIZED,
        Code.DRIVER_NOT_LOADED,
        Code.GPU_IS_LOST,
        Code.RESET_REQUIRED,
        Code.LIB_RM_VERSION_MISMATCH,
        Code.GPU_NOT_FOUND,
    }
)
"""No metric of the device can be read any more."""


def explain(error: Exception) -> str:
    """Say in one plain line what pynvml's exception means to a user."""
    if isinstance(error, ImportError):
        return f"the module pynvml (of nvidia-ml-py) cannot be imported: {_one_line(error)}"
    # Not an NVMLError: pynvml raises it by itself when the library lacks what an unversioned call needs.
    if type(error).__name__ == "NVMLLibraryMismatchError":
        return "nvidia-ml-py and the driver's NVML library do not match in version"
    return _PLAIN.get(code_of(error), f"NVML failed: {_one_line(error)}")


def code_of(error: Exception) -> int:
    """The nvmlReturn_t of an NVMLError, 0 of another exception."""
    value = getattr(error, "value", 0)
    return value if isinstance(value, int) else 0


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
