"""Several copies of a model that share each batch's work: in one graph, by `tf.distribute`, or between processes.

A step trains on one batch of the source, however many replicas there are: each takes an equal part of it, and the mean
of the parts' gradients is applied once. The mean over equal parts is the mean over the batch, so that the losses are
those of one replica, but for rounding; dropout draws other masks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.models import GradientModel, Model, TrainingGraph
from pipeline_bench.replication import in_graph, mirrored
from pipeline_bench.scenario import Runtime, Variant
from pipeline_bench.sources import Batch

_IN_GRAPH = {"in_graph": in_graph.train_on, "mirrored": mirrored.train_on}
DRIVEN_BY = "session"
"""The loop with which a between_graph worker drives its session."""

# A prime: the seeds of another run's workers are other ones.
_SEED_STRIDE = 1_000_003


def in_processes(runtime: Runtime) -> bool:
    """Whether the replicas are processes of their own, each with a graph of its own."""
    return runtime.replicas > 1 and runtime.replication == "between_graph"


def check(model: Model, runtime: Runtime, batch_size: int, loop: str = DRIVEN_BY, platform: str = sys.platform) -> None:
    """Refuse what cannot be replicated; the parent asks before the first trial, without TensorFlow.

    Args:
        model: what is to be replicated.
        runtime: how.
        batch_size: samples in a batch of the source.
        loop: the name of the loop that drives the variant.
        platform: as `sys.platform` has it.

    Raises:
        UsageError: it cannot.
    """
    replicas = runtime.replicas
    if replicas == 1:
        return
    if not isinstance(model, GradientModel):
        raise UsageError(
            f"The model {model.name} cannot be replicated: it has no gradient that its copies could share.",
            "Use two_layer, mlp or mnist_cnn, or set runtime.replicas = 1.",
        )
    if batch_size % replicas:
        raise UsageError(
            f"A batch of {batch_size} samples cannot be divided evenly among {replicas} replicas.",
            f"Set source.batch_size to a multiple of {replicas}, such as {-(-batch_size // replicas) * replicas}.",
        )
    if not in_processes(runtime):
        return
    if loop != DRIVEN_BY:
        raise UsageError(
            f"The loop {loop} cannot drive between_graph workers: each drives a session of its own.",
            f'Set loop.kind = "{DRIVEN_BY}", or runtime.replication = "in_graph".',
        )
    if platform != "linux":
        raise UsageError(
            f"The kernel of {platform} does not end between_graph workers with their trial; they need Linux.",
            'Set runtime.replication = "in_graph" or "mirrored".',
        )


def part_of(variant: Variant) -> Variant:
    """The variant with a source whose batches are one replica's part of the whole one's."""
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
    """The seed of a between_graph worker: the run's own for worker 0, which also draws the weights."""
    return (seed + _SEED_STRIDE * worker) % 2**31


def build(model: Model, batch: Batch, evaluation: Batch, runtime: Runtime, device: str | None) -> TrainingGraph:
    """The model on a batch, with as many replicas as the runtime asks for, and its accuracy on the evaluation batch.

    Args:
        model: which.
        batch: what a step trains on, whole.
        evaluation: what the accuracy is taken on.
        runtime: how many replicas, and how they work together.
        device: the accelerator that the trial is on, as TensorFlow names it (``/gpu:0``); None on a CPU.
    """
    if runtime.replicas == 1:
        return model.build(batch, evaluation)
    train, loss = _replicated(model, batch, runtime, device)
    return TrainingGraph(train, loss, _gradient_model(model).accuracy_of_same(evaluation))


def train_on(model: Model, batch: Batch, runtime: Runtime, device: str | None) -> TrainingGraph:
    """The same without an accuracy, with the variables that `build` has made.

    Raises:
        PipelineBenchError: the model cannot be built a second time.
    """
    if runtime.replicas > 1:
        return TrainingGraph(*_replicated(model, batch, runtime, device))
    loss = _gradient_model(model).loss(batch)
    return TrainingGraph(_gradient_model(model).optimizer().minimize(loss), loss)


def _replicated(model: Model, batch: Batch, runtime: Runtime, device: str | None) -> tuple[Any, Any]:
    """The op that trains, and the loss, a scalar."""
    if runtime.replication not in _IN_GRAPH:
        raise PipelineBenchError(f"Replication {runtime.replication} is not built into one graph.")
    return _IN_GRAPH[runtime.replication](_gradient_model(model), batch, devices(runtime, device))


def _gradient_model(model: Model) -> GradientModel:
    if not isinstance(model, GradientModel):
        raise PipelineBenchError(f"The model {model.name} cannot be built into a loop of the graph, nor replicated.")
    return model


def devices(runtime: Runtime, device: str | None) -> Sequence[str]:
    """A device for each replica: GPUs where the trial is on one, else CPU devices, which share the machine's cores.

    Args:
        runtime: how many replicas.
        device: as `build` has it. `worker.runtime.accelerator` gives one only where there are GPUs enough.
    """
    if device is None:
        return [f"/cpu:{replica}" for replica in range(runtime.replicas)]
    return [f"/gpu:{replica}" for replica in range(runtime.replicas)]
