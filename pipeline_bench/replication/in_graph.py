"""in_graph: a tower on each device, all in one graph; shared variables, and the gradients' mean, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench.models import GradientModel
from pipeline_bench.sources import Batch

_HOME = "/cpu:0"


def train_on(model: GradientModel, batch: Batch, devices: Sequence[str]) -> tuple[Any, Any]:
    """Split the batch, build a tower for each part, average the gradients, apply them once.

    Args:
        model: which; its variables are made by the first tower and shared by the others.
        batch: first axis [batch], which is divisible by the number of devices.
        devices: of the towers.

    Returns:
        The op that trains, and the mean of the towers' losses, a scalar.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    optimizer = model.optimizer()
    losses, towers = [], []
    for replica, (device, part) in enumerate(zip(devices, _parts(batch, len(devices)), strict=True)):
        scope = v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE)
        with scope, v1.name_scope(f"replica_{replica}"), v1.device(_placed(device)):
            loss = model.loss(part)
            towers.append(optimizer.compute_gradients(loss))
            losses.append(loss)
    with v1.device(_HOME), v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
        return optimizer.apply_gradients(averaged(towers)), tf.add_n(losses) / len(losses)


def averaged(towers: Sequence[Sequence[tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
    """The mean of each variable's gradients over the towers; what has no gradient is left out.

    Args:
        towers: pairs of gradient and variable for each, in the same order.
    """
    import tensorflow as tf

    means = []
    for pairs in zip(*towers, strict=True):
        gradients = [tf.convert_to_tensor(gradient) for gradient, _ in pairs if gradient is not None]
        if gradients:
            means.append((tf.add_n(gradients) / len(pairs), pairs[0][1]))
    return means


def _parts(batch: Batch, count: int) -> list[Batch]:
    """The batch in equal parts along its first axis, in order."""
    import tensorflow as tf

    with tf.device(_HOME):
        split = [tf.split(tensor, count) for tensor in batch.tensors]
    return [Batch(*tensors) for tensors in zip(*split, strict=True)]


def _placed(device: str) -> Any:
    """A device function that puts the variables on the CPU and everything else on `device`."""
    import tensorflow as tf

    return tf.compat.v1.train.replica_device_setter(ps_tasks=1, ps_device=_HOME, worker_device=device)
