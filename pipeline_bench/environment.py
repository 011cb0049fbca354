"""Describes the machine and the versions that figures are measured with, without importing TensorFlow."""

from __future__ import annotations

import math
import platform
import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from pipeline_bench import __version__
from pipeline_bench.model.events import Device
from pipeline_bench.model.session import Environment
from pipeline_bench.system.processes import allowed_cpus, check_proc_mount
from pipeline_bench.text import units

# The names under which TensorFlow is distributed; all of them install the module `tensorflow`.
TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu")

_ROOT = Path("/")


@dataclass(frozen=True)
class Accelerator:
    """What the driver says of the GPU, as plain values: this module reads no driver itself."""

    name: str | None = None
    """The GPU's name; None where there is none."""
    driver: str | None = None
    reason: str | None = None
    """Why there is no GPU, or none that can be read, in one line."""


def describe(accelerator: Accelerator) -> Environment:
    """Return the machine as a session records it. Where there is no GPU, the CPU is the accelerator.

    Raises:
        UsageError: the kernel's view of its processes is not there.
    """
    check_proc_mount()
    cpu = cpu_model()
    return Environment(
        accelerator_kind="gpu" if accelerator.name else "cpu",
        accelerator_name=accelerator.name or cpu,
        accelerator_reason=accelerator.reason,
        driver=accelerator.driver,
        tensorflow=tensorflow_version(),
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=cpu,
        cores=usable_cores(),
        memory_bytes=usable_memory_bytes(),
        package=__version__,
    )


def command_line() -> str:
    """Return this process's command line, for the record, as its user would write it again."""
    program = Path(sys.argv[0])
    own = program.name == "__main__.py" and program.parent.name == "pipeline_bench"
    started = ["python", "-m", "pipeline_bench"] if own else [program.name]
    return shlex.join([*started, *sys.argv[1:]])


def seen_by_tensorflow(
    environment: Environment, devices: Collection[Device], asked_for_cpu: bool = False
) -> Environment:
    """Return the environment with the accelerator that the trials really trained on.

    A GPU that the driver shows is none to a TensorFlow without CUDA; one that TensorFlow uses may be closed to NVML.

    Args:
        environment: as `describe` gave it, from what the driver says.
        devices: where the trials trained, as far as they have said so.
        asked_for_cpu: whether the scenario puts every variant on the CPU.
    """
    emulated = list(dict.fromkeys(device.name for device in devices if device.kind == "emulated"))
    if emulated and all(device.kind == "emulated" for device in devices):
        names = "; ".join([emulated[0], *units.without_shared_start(emulated)[1:]])
        update = {"accelerator_kind": "emulated", "accelerator_name": names, "accelerator_reason": None}
        return environment.model_copy(update=update)
    devices = [device for device in devices if device.kind != "emulated"]
    gpu = next((device for device in devices if device.kind == "gpu"), None)
    if gpu is not None:  # the driver may list several, and another one first
        return environment.model_copy(update={"accelerator_kind": "gpu", "accelerator_name": gpu.name})
    if devices and gpu is None and environment.accelerator_kind == "gpu":
        gpu_name = environment.accelerator_name
        reason = f"{gpu_name} is here, but the trials trained on the CPU"
        reason += ", as runtime.device asks" if asked_for_cpu else "; `pipeline-bench doctor` says why"
        update = {"accelerator_kind": "cpu", "accelerator_name": environment.cpu, "accelerator_reason": reason}
        return environment.model_copy(update=update)
    return environment


def tensorflow_version() -> str | None:
    """Return the version of the installed TensorFlow, None where there is none."""
    return next((found for name in TENSORFLOW_DISTRIBUTIONS if (found := distribution_version(name))), None)


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution, None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu_model(root: Path = _ROOT) -> str:
    """Return the CPU's name as its maker gives it; the architecture where the kernel does not say (most ARM)."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown"


def usable_cores(root: Path = _ROOT) -> int:
    """Return the cores that this process may use: its affinity, and the CPU quota of its control group, rounded up."""
    quotas = [math.ceil(quota) for quota in _cpu_quotas(root) if quota > 0]
    return max(1, min([allowed_cpus(), *quotas]))


def usable_memory_bytes(root: Path = _ROOT) -> int:
    """Return the machine's memory, or the limit of this process's control group where that is less."""
    limits = [int(text) for folder in control_groups("memory", root) for text in _limit(folder) if text.isdigit()]
    return min([psutil.virtual_memory().total, *(limit for limit in limits if limit > 0)])


def _limit(folder: Path) -> Iterator[str]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        yield _read(folder / name).strip()


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield every CPU quota that holds for this process, in cores."""
    for folder in control_groups("cpu", root):
        fields = _read(folder / "cpu.max").split()  # version 2: "<quota> <period>", or "max <period>"
        fields = fields or [_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        match fields:
            case [quota, period] if quota.isdigit() and period.isdigit() and int(period):
                yield int(quota) / int(period)


def control_groups(controller: str, root: Path = _ROOT) -> Iterator[Path]:
    """Yield the folders of this process's control groups, with those above them: a limit holds for everything below."""
    every = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        match line.split(":", 2):
            case [_, "", path]:
                top = every
            case [_, controllers, path] if controller in controllers.split(","):
                # By its link where there is one: the kernel may name several in another order than their folder.
                top = every / (controller if (every / controller).exists() else controllers)
            case _:
                continue
        # Inside a container the path may be the host's, and is then not there; the top folder is ours all the same.
        folder = top / path.strip("/")
        yield folder
        yield from (parent for parent in folder.parents if parent == top or top in parent.parents)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
