"""Puts a trial's runtime settings into eager TensorFlow: device, threads, memory. Before anything else is run."""

from __future__ import annotations

from typing import Any

from pipeline_bench.model.events import Device
from pipeline_bench.scenario import Runtime
from pipeline_bench.worker import runtime


def set_up(settings: Runtime) -> Device:
    """Apply the settings; the device that a model will run on.

    Raises:
        PipelineBenchError: the runtime asks for a GPU that TensorFlow does not have.
    """
    import tensorflow as tf

    device = runtime.accelerator(settings)
    runtime.set_up(settings, device)
    if (cpus := runtime.cpu_devices(settings)) > 1:
        parts = [tf.config.LogicalDeviceConfiguration()] * cpus
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    if device is None:
        return Device(kind="cpu", name="CPU:0")
    chosen = tf.config.list_physical_devices("GPU")[int(device.rpartition(":")[2])]
    tf.config.set_visible_devices([chosen], "GPU")
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
