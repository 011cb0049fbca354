"""Several copies of a model that share each batch's work: in one graph, by `tf.distribute`, or between processes.

A step trains on one batch of the source, however many replicas there are: each takes an equal part of it, and the mean
of the parts' gradients is applied once. The mean over equal parts is the mean over the batch, so that the losses are
those of one replica, but for rounding; dropout draws other masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.models import GradientModel, Model, TrainingGraph
from pipeline_bench.scenario import Runtime, Variant
from pipeline_bench.sources import Batch

_HOME = "/cpu:0"
DRIVEN_BY = "session"
"""The loop with which a between_graph worker drives its session."""

# A prime: the seeds of another run's workers are other ones.
_SEED_STRIDE = 1_000_003


def in_processes(runtime: Runtime) -> bool:
    """Return whether the replicas are processes of their own, each with a graph of its own."""
    return runtime.replicas > 1 and runtime.replication == "between_graph"


def check(model: Model, runtime: Runtime, batch_size: int, loop: str = DRIVEN_BY) -> None:
    """Refuse what cannot be replicated; the parent asks before the first trial, without TensorFlow.

    Args:
        model: what is to be replicated.
        runtime: how.
        batch_size: samples in a batch of the source.
        loop: the name of the loop that drives the variant.

    Raises:
        UsageError: it cannot.
    """
    _check_used(runtime)
    replicas = runtime.replicas
    if not runtime.is_replicated:
        return
    if not isinstance(model, GradientModel):
        raise UsageError(
            f"The model {model.name} cannot be replicated: it has no gradient that its copies could share.",
            "Use two_layer or mnist_cnn, or set runtime.replicas = 1.",
        )
    if batch_size % replicas:
        raise UsageError(
            f"A batch of {batch_size} samples cannot be divided evenly among {replicas} replicas.",
            f"Set source.batch_size to a multiple of {replicas}, such as {-(-batch_size // replicas) * replicas}.",
        )
    if in_processes(runtime) and loop != DRIVEN_BY:
        raise UsageError(
            f"The loop {loop} cannot drive between_graph workers: each drives a session of its own.",
            f'Set loop.kind = "{DRIVEN_BY}", or runtime.replication = "in_graph".',
        )


def _check_used(runtime: Runtime) -> None:
    """Refuse settings of how replicas work together that would change nothing, and stand in the session.

    Raises:
        UsageError: there is one.
    """
    if runtime.replication == "between_graph" and runtime.replicas == 1:
        raise UsageError(
            'runtime.replication = "between_graph" needs several replicas, and runtime.replicas is 1.',
            'Set runtime.replicas to 2 or more, or runtime.replication = "in_graph".',
        )
    if not runtime.synchronous and not in_processes(runtime):
        raise UsageError(
            'runtime.synchronous = false needs the workers of runtime.replication = "between_graph", '
            f'and it is "{runtime.replication}".',
            "Leave out runtime.synchronous, or set "
            'runtime.replication = "between_graph" and runtime.replicas to 2 or more.',
        )


def part_of(variant: Variant) -> Variant:
    """Return the variant with a source whose batches are one replica's part of the whole one's."""
    options = dict(variant.source.options)
    tables = [options]
    for key, value in variant.source.options.items():  # a source that wraps another has that one's options in a table
        if isinstance(value, dict):
            options[key] = dict(value)
            tables.append(options[key])
    table = next(table for table in tables if "batch_size" in table)
    table["batch_size"] //= variant.runtime.replicas
    return variant.model_copy(update={"source": variant.source.model_copy(update={"options": options})})


def seed_of(seed: int, worker: int) -> int:
    """Return the seed of a between_graph worker: the run's own for worker 0, which also draws the weights."""
    return (seed + _SEED_STRIDE * worker) % 2**31


def build(model: Model, batch: Batch, evaluation: Batch, runtime: Runtime, device: str | None) -> TrainingGraph:
    """Build the model on a batch, with the replicas that the runtime asks for, and its accuracy on `evaluation`.

    Args:
        model: which.
        batch: what a step trains on, whole.
        evaluation: what the accuracy is taken on.
        runtime: how many replicas, and how they work together.
        device: the accelerator that the trial is on, as TensorFlow names it (``/gpu:0``); None on a CPU.
    """
    if not runtime.is_replicated:
        return model.build(batch, evaluation)
    train, loss = _replicated(model, batch, runtime, device)
    return TrainingGraph(train, loss, _gradient_model(model).accuracy_of_same(evaluation))


def train_on(model: Model, batch: Batch, runtime: Runtime, device: str | None) -> TrainingGraph:
    """Build the training as `build` does, without an accuracy, with the variables that `build` has made.

    Raises:
        PipelineBenchError: the model cannot be built a second time.
    """
    if runtime.is_replicated:
        return TrainingGraph(*_replicated(model, batch, runtime, device))
    loss = _gradient_model(model).loss(batch)
    return TrainingGraph(_gradient_model(model).optimizer().minimize(loss), loss)


def _replicated(model: Model, batch: Batch, runtime: Runtime, device: str | None) -> tuple[Any, Any]:
    """Return the op that trains, and the loss, a scalar."""
    in_graph = {"in_graph": towers, "mirrored": mirrored}
    if runtime.replication not in in_graph:
        raise PipelineBenchError(f"Replication {runtime.replication} is not built into one graph.")
    return in_graph[runtime.replication](_gradient_model(model), batch, devices(runtime, device))


def _gradient_model(model: Model) -> GradientModel:
    if not isinstance(model, GradientModel):
        raise PipelineBenchError(f"The model {model.name} cannot be built into a loop of the graph, nor replicated.")
    return model


def devices(runtime: Runtime, device: str | None) -> Sequence[str]:
    """Return a device for each replica: GPUs if the trial is on one, else CPU devices, which share the machine's cores.

    Args:
        runtime: how many replicas.
        device: as `build` has it. `worker.runtime.accelerator` gives one only where there are GPUs enough.
    """
    if device is None:
        return [f"/cpu:{replica}" for replica in range(runtime.replicas)]
    return [f"/gpu:{replica}" for replica in range(runtime.replicas)]


def towers(
    model: GradientModel,
    batch: Batch,
    devices: Sequence[str],
) -> tuple[Any, Any]:
    """Build a tower on each device: split the batch, average the towers' gradients on the CPU, apply them once.

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
    losses, gradients = [], []
    outer = v1.get_variable_scope()
    parts = _parts(batch, len(devices))
    placed = zip(devices, parts, strict=True)
    for replica, (device, part) in enumerate(placed):
        scope = v1.variable_scope(outer, reuse=v1.AUTO_REUSE)
        tower = v1.name_scope(f"replica_{replica}")
        with scope, tower, v1.device(_placed(device)):
            loss = model.loss(part)
            gradients.append(optimizer.compute_gradients(loss))
            losses.append(loss)
    with v1.device(_HOME), v1.variable_scope(outer, reuse=v1.AUTO_REUSE):
        trained = optimizer.apply_gradients(averaged(gradients))
        return trained, tf.add_n(losses) / len(losses)


def averaged(gradients: Sequence[Sequence[tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
    """Return the mean of each variable's gradients over the towers; what has no gradient is left out.

    Args:
        gradients: pairs of gradient and variable for each tower, in the same order.
    """
    import tensorflow as tf

    means = []
    for pairs in zip(*gradients, strict=True):
        known = [tf.convert_to_tensor(gradient) for gradient, _ in pairs if gradient is not None]
        if known:
            means.append((tf.add_n(known) / len(pairs), pairs[0][1]))
    return means


def _parts(batch: Batch, count: int) -> list[Batch]:
    """Return the batch in equal parts along its first axis, in order."""
    import tensorflow as tf

    with tf.device(_HOME):
        split = [tf.split(tensor, count) for tensor in batch.tensors]
    return [Batch(*tensors) for tensors in zip(*split, strict=True)]


def _placed(device: str) -> Any:
    """Return a device function that puts the variables on the CPU and everything else on `device`."""
    import tensorflow as tf

    return tf.compat.v1.train.replica_device_setter(ps_tasks=1, ps_device=_HOME, worker_device=device)


def mirrored(model: GradientModel, batch: Batch, devices: Sequence[str]) -> tuple[Any, Any]:
    """Run the model under `tf.distribute.MirroredStrategy`: each device has variables of its own, kept alike.

    Each replica takes its part of the batch by its number. The strategy reduces with what it takes by default: NCCL
    between GPUs, on one device else.

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
    """Return the part of that number, an int32 scalar tensor, of `count` equal ones."""
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
