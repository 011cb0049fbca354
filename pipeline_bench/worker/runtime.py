"""Puts a trial's runtime settings into TensorFlow: device, threads, memory."""

from __future__ import annotations

from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Device
from pipeline_bench.models import Model
from pipeline_bench.scenario import Runtime


def session_config(runtime: Runtime) -> Any:
    """The ConfigProto of the trial's session."""
    import tensorflow as tf

    v1 = tf.compat.v1
    return v1.ConfigProto(
        intra_op_parallelism_threads=runtime.intra_op_threads,
        inter_op_parallelism_threads=runtime.inter_op_threads,
        allow_soft_placement=True,
        device_count={"CPU": cpu_devices(runtime)} | ({"GPU": 0} if runtime.device == "cpu" else {}),
        gpu_options=v1.GPUOptions(allow_growth=runtime.memory_growth),
    )


def set_up(runtime: Runtime, device: str | None) -> None:
    """Apply the threads and the GPUs to the whole process; before anything is built.

    A session's configuration is not enough. TensorFlow has one pool of intra-op threads a process, which the first that
    makes a device sizes. Tracing a function, of tf.data for one, starts the runtime of eager execution also in a graph,
    and that would make the device before the session does, with as many threads as there are cores, and take all of a
    GPU's memory.

    Args:
        runtime: of the trial.
        device: the accelerator, as `accelerator` has it.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(runtime.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(runtime.inter_op_threads)
    if device is None:
        tf.config.set_visible_devices([], "GPU")
    elif runtime.memory_growth:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def cpu_devices(runtime: Runtime) -> int:
    """How many CPU devices the trial needs: those that were asked for, and one for each replica."""
    return max(runtime.cpu_devices, runtime.replicas)


def model_devices(runtime: Runtime, device: str | None) -> tuple[str, ...]:
    """What a model may spread its work over: every GPU where it may choose among them, or every CPU device.

    Args:
        runtime: of the trial.
        device: the accelerator, as `accelerator` has it.
    """
    import tensorflow as tf

    if device is None:
        return tuple(f"/cpu:{number}" for number in range(cpu_devices(runtime)))
    if runtime.device == "auto":
        return tuple(f"/gpu:{number}" for number in range(len(tf.config.list_physical_devices("GPU"))))
    return (device,)


def of_model(model: Model, runtime: Runtime) -> Runtime:
    """The settings of a trial, as its model needs them.

    Raises:
        PipelineBenchError: the runtime asks for a GPU, and the model emulates its device.
    """
    import tensorflow as tf

    if model.emulated_device:
        return host_only(runtime)
    if runtime.device == "auto" and len(tf.config.list_physical_devices("GPU")) < model.least_gpus:
        return runtime.model_copy(update={"device": "cpu"})
    return runtime


def host_only(runtime: Runtime) -> Runtime:
    """The settings of a trial whose model emulates its device, and leaves a real one alone.

    Raises:
        PipelineBenchError: the runtime asks for a GPU.
    """
    if runtime.device.startswith("gpu"):
        raise PipelineBenchError(
            f"runtime.device is {runtime.device!r}, but an emulated device runs on no GPU.",
            'Use runtime.device="auto" or "cpu" with the model emulated.',
        )
    return runtime.model_copy(update={"device": "cpu"})


def accelerator(runtime: Runtime) -> str | None:
    """The device that the model goes on, as `tf.device` takes it (``/gpu:0``); None for the CPU.

    Replicas have a GPU each, from the first one on, or run on the CPU all of them.

    Raises:
        PipelineBenchError: the runtime asks for a GPU that TensorFlow does not have, or for fewer than it has replicas.
    """
    import tensorflow as tf

    if runtime.device == "cpu":
        return None
    gpus = len(tf.config.list_physical_devices("GPU"))
    wanted = int(runtime.device.partition(":")[2] or 0)
    if runtime.replicas > 1 and runtime.device != "auto" and (wanted or gpus < runtime.replicas):
        raise PipelineBenchError(
            f"runtime.device is {runtime.device!r}, and {runtime.replicas} replicas need a GPU each; "
            f"TensorFlow sees {gpus} here.",
            'Use runtime.device = "auto" or "cpu" with replicas.',
        )
    if wanted < gpus and runtime.replicas <= max(1, gpus):
        return f"/gpu:{wanted}"
    if runtime.device == "auto":
        return None
    raise PipelineBenchError(
        f"runtime.device is {runtime.device!r}, but TensorFlow sees {gpus} GPUs here.",
        'Use runtime.device="auto" or "cpu"; `pipeline-bench doctor` says why the GPU is not seen.',
    )


def describe(device: str | None, config: Any) -> Device:
    """The device's name and, for a GPU, its PCI address, by which NVML finds the same one."""
    if device is None:
        return Device(kind="cpu", name="CPU:0")
    from tensorflow.python.client import device_lib

    name = device.strip("/").upper()
    for local in device_lib.list_local_devices(session_config=config):
        if local.name.endswith(f"device:{name}"):
            details = dict(part.split(": ", 1) for part in local.physical_device_desc.split(", ") if ": " in part)
            return Device(kind="gpu", name=details.get("name", name), pci_bus_id=details.get("pci bus id"))
    return Device(kind="gpu", name=name)


def set_up_eagerly(runtime: Runtime) -> Device:
    """Apply the settings to eager TensorFlow, before anything else is run; the device that a model will run on.

    Raises:
        PipelineBenchError: the runtime asks for a GPU that TensorFlow does not have.
    """
    import tensorflow as tf

    device = accelerator(runtime)
    set_up(runtime, device)
    if (cpus := cpu_devices(runtime)) > 1:
        parts = [tf.config.LogicalDeviceConfiguration()] * cpus
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    if device is None:
        return Device(kind="cpu", name="CPU:0")
    chosen = tf.config.list_physical_devices("GPU")[int(device.rpartition(":")[2])]
    tf.config.set_visible_devices([chosen], "GPU")
    return _describe_visible(chosen)


def _describe_visible(gpu: Any) -> Device:
    """The only visible GPU: its name, and its PCI address where TensorFlow reports one."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    name = tf.config.experimental.get_device_details(gpu).get("device_name", "GPU:0")
    tf.config.list_logical_devices("GPU")
    address = None
    for described in context.context().list_physical_devices("GPU"):
        address = getattr(described, "pci_bus_id", None) or address
    return Device(kind="gpu", name=str(name), pci_bus_id=address)
