"""The device that a job's own framework works on, asked of that framework alone."""

from __future__ import annotations

import sys

from pipeline_bench.model.events import Device

_CPU = Device(kind="cpu", name="CPU")


def device_of(framework: str) -> Device:
    """Return the device on which a framework puts its work by default: a GPU only where it has one in use.

    Args:
        framework: ``tensorflow``, ``jax`` or ``torch``, of which the job has loaded the module.
    """
    return {"jax": _of_jax, "torch": _of_torch}.get(framework, _of_tensorflow)()


def jax_is_at_work() -> bool:
    """Return whether the job has opened a device with JAX, which hands work over and does not wait for it."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def _of_tensorflow() -> Device:
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        return _CPU
    physical = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(physical[0]) if physical else {}
    return Device(kind="gpu", name=str(details.get("device_name", "GPU")))


def _of_torch() -> Device:
    torch = sys.modules.get("torch")
    # Not whether there is a GPU: to ask opens the driver, after which a fork of the job could not use it.
    if torch is None or not torch.cuda.is_initialized():
        return _CPU
    return Device(kind="gpu", name=str(torch.cuda.get_device_name()))


def _of_jax() -> Device:
    jax = sys.modules.get("jax")
    # To ask for the devices would open them, before the job has set what it wants of them.
    if jax is None or not jax_is_at_work():
        return _CPU
    (first, *_) = jax.devices()
    return Device(kind="gpu", name=str(first.device_kind)) if first.platform == "gpu" else _CPU
