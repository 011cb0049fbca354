"""mirrored: `tf.distribute.MirroredStrategy` in a graph; each device has variables of its own, kept alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench.models import GradientModel
from pipeline_bench.sources import Batch


def train_on(model: GradientModel, batch: Batch, devices: Sequence[str]) -> tuple[Any, Any]:
    """Run the model under the strategy; each replica takes its part of the batch by its number.

    The strategy reduces with what it takes by default: NCCL between GPUs, on one device else.

    Args:
        model: which.
        batch: first axis [batch], which is divisible by the number of devices.
        devices: of the replicas.

    Returns:
        The op that trains, and the mean of the replicas' losses, a scalar.
    """
    import tensorflow as tf

    strategy = tf.compat.v1.distribute.MirroredStrategy(list(devices))
    with strategy.scope():
        optimizer = model.optimizer()

        def replica() -> tuple[Any, Any]:
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            loss = model.loss(_part(batch, number, len(devices)))
            # Optimisers of TensorFlow 1 apply the sum over the replicas: divided by their number it is the mean.
            return optimizer.minimize(loss / len(devices)), loss

        trained, losses = strategy.run(replica)
        train = tf.group(*strategy.experimental_local_results(trained))
        return train, strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)


def _part(batch: Batch, number: Any, count: int) -> Batch:
    """The part of that number, an int32 scalar tensor, of `count` equal ones."""
    import tensorflow as tf

    parts = []
    for tensor in batch.tensors:
        samples = tensor.shape[0] // count if tensor.shape[0] else tf.shape(tensor)[0] // count
        part = tf.slice(
            tensor, [number * samples, *[0] * (len(tensor.shape) - 1)], [samples, *[-1] * (len(tensor.shape) - 1)]
        )
        part.set_shape([samples if isinstance(samples, int) else None, *tensor.shape[1:]])
        parts.append(part)
    return Batch(*parts)
