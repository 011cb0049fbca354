"""What TensorFlow finds on this machine; called in a child, since TensorFlow may crash the process that imports it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Literal

from pipeline_bench.model import Data
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.text import Text, line_of

# What TensorFlow logs when it does not use a GPU; each line names the cause.
REASON_MARKS = (
    "Could not find cuda drivers",
    "failed call to cuInit",
    "Cannot dlopen",
    "Could not load dynamic library",
)


class TensorFlowDevice(Data):
    """A physical device that TensorFlow lists."""

    kind: Literal["cpu", "gpu"]
    name: Text
    compute_capability: Text | None = None
    pci_bus_id: Text | None = None


class Matmul(Data):
    """Whether a small product came out right on the device; `error` says why not."""

    device: Text
    ok: bool
    error: Text | None = None


class TensorFlowReport(Data):
    """TensorFlow as it is on this machine."""

    tensorflow: Text
    import_s: float
    built_with_cuda: bool
    cuda: Text | None = None
    """The CUDA version that the wheel was built for."""
    devices: tuple[TensorFlowDevice, ...]
    cpu_threads: int
    """Logical CPUs that this process may run on: what TensorFlow takes for its thread pools by default."""
    matmul: Matmul
    reasons: tuple[Text, ...] = ()
    """What TensorFlow logged about the GPU that it does not use."""


def report_of_tensorflow() -> TensorFlowReport:
    """Import TensorFlow, list its devices and multiply two small matrices on the best one."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"  # the reason for a missing GPU is logged as information
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # a question must not take the whole GPU
    with _stderr_kept() as log:
        began_ns = time.monotonic_ns()
        import tensorflow as tf

        import_s = (time.monotonic_ns() - began_ns) / 1e9
        devices = _devices(tf)
        matmul = _matmul(tf, "/gpu:0" if any(device.kind == "gpu" for device in devices) else "/cpu:0")
    build = tf.sysconfig.get_build_info()
    return TensorFlowReport(
        tensorflow=tf.__version__,
        import_s=import_s,
        built_with_cuda=bool(tf.test.is_built_with_cuda()),
        cuda=build.get("cuda_version"),
        devices=devices,
        cpu_threads=allowed_cpus(),
        matmul=matmul,
        reasons=reasons(log[0]),
    )


def reasons(log: str) -> tuple[str, ...]:
    """Return the lines of TensorFlow's log that say why no GPU is used, without their prefix, each once."""
    found = [line for line in log.splitlines() if any(mark in line for mark in REASON_MARKS)]
    return tuple(dict.fromkeys(line.partition("] ")[2] or line for line in found))


def _devices(tf: Any) -> tuple[TensorFlowDevice, ...]:
    listed = []
    for device in tf.config.list_physical_devices():
        if device.device_type not in ("CPU", "GPU"):
            continue
        details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
        capability = details.get("compute_capability")
        listed.append(
            TensorFlowDevice(
                kind="gpu" if device.device_type == "GPU" else "cpu",
                name=details.get("device_name", device.name.removeprefix("/physical_device:")),
                compute_capability=".".join(str(part) for part in capability) if capability else None,
            )
        )
    return _with_pci(listed) if any(device.kind == "gpu" for device in listed) else tuple(listed)


def _with_pci(devices: list[TensorFlowDevice]) -> tuple[TensorFlowDevice, ...]:
    """Add the PCI addresses, which only the device library reports; without them the list stands as it is."""
    try:
        from tensorflow.python.client import device_lib

        described = [
            local.physical_device_desc for local in device_lib.list_local_devices() if local.device_type == "GPU"
        ]
    except Exception:  # a private module: its absence costs an address, not the answer
        return tuple(devices)
    fields = [dict(part.split(": ", 1) for part in text.split(", ") if ": " in part) for text in described]
    addresses = iter([found.get("pci bus id") for found in fields])
    return tuple(
        device.model_copy(update={"pci_bus_id": next(addresses, None)}) if device.kind == "gpu" else device
        for device in devices
    )


def _matmul(tf: Any, device: str) -> Matmul:
    side = 64
    try:
        with tf.device(device):
            total = float(tf.reduce_sum(tf.matmul(tf.ones((side, side)), tf.ones((side, side)))))
    except Exception as error:  # whatever it is, the doctor shows it
        return Matmul(device=device, ok=False, error=line_of(error))
    if total != side**3:
        return Matmul(device=device, ok=False, error=f"the product's sum is {total}, not {side**3}")
    return Matmul(device=device, ok=True)


@contextlib.contextmanager
def _stderr_kept() -> Iterator[list[str]]:
    """Keep what this process writes to stderr, C++ included; the list holds it after the block, and stderr too."""
    kept: list[str] = []
    original = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield kept
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            file.seek(0)
            text = file.read().decode(errors="replace")
            kept.append(text)
            sys.stderr.write(text)
