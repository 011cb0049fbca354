"""Puts a trial's runtime settings into eager TensorFlow: device, threads, memory. Before anything else is run."""

from __future__ import annotations

from typing import Any

from pipeline_bench.events import Device
from pipeline_bench.scenario import Runtime
from pipeline_bench.worker import runtime


def set_up(settings: Runtime) -> Device:
    """Apply the settings; the device that a model will run on.

    Raises:
        PipelineBenchError: the runtime asks for a GPU that TensorFlow does not have.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(settings.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(settings.inter_op_threads)
    if (cpus := runtime.cpu_devices(settings)) > 1:
        parts = [tf.config.LogicalDeviceConfiguration()] * cpus
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    device = runtime.accelerator(settings)
    gpus = tf.config.list_physical_devices("GPU")
    if device is None:
        tf.config.set_visible_devices([], "GPU")
        return Device(kind="cpu", name="CPU:0")
    chosen = gpus[int(device.rpartition(":")[2])]
    tf.config.set_visible_devices([chosen], "GPU")
    if settings.memory_growth:
        tf.config.experimental.set_memory_growth(chosen, True)
    return _described(chosen)


def _described(gpu: Any) -> Device:
    """The only visible GPU: its name, and its PCI address where TensorFlow tells one."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    name = tf.config.experimental.get_device_details(gpu).get("device_name", "GPU:0")
    tf.config.list_logical_devices("GPU")
    address = None
    for described in context.context().list_physical_devices("GPU"):
        address = getattr(described, "pci_bus_id", None) or address
    return Device(kind="gpu", name=str(name), pci_bus_id=address)
