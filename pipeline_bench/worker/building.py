"""Builds a trial's source, input and model into the default graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline_bench import plugins, replication, several_steps
from pipeline_bench.backends import Input
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.loops import Step, Training
from pipeline_bench.models import Model, TrainingGraph
from pipeline_bench.scenario import Variant
from pipeline_bench.sources import Source
from pipeline_bench.worker import evidence, runtime


class Built(NamedTuple):
    """What `build` made: the training step with its model and input, and the source behind it."""

    training: Training
    source: Source

    @property
    def graph(self) -> TrainingGraph:
        return self.training.graph

    @property
    def feeding(self) -> Input:
        return self.training.feeding


def build(variant: Variant, model: Model, device: str | None, config: Any) -> Built:
    """Build everything of a variant that trains in a graph.

    Args:
        variant: of the trial.
        model: its model.
        device: the accelerator, as `runtime.accelerator` has it.
        config: the ConfigProto of the trial's session.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    source: Any = plugins.find("sources", variant.source.kind)(variant.source.options)
    backend: Any = plugins.find("backends", variant.backend)(variant.options)
    source.prepare(config)
    model.devices = runtime.model_devices(variant.runtime, device)
    v1.set_random_seed(variant.run.seed)
    feeding = backend.connect(source, device)
    with tf.device("/cpu:0"):
        evaluation = source.sample_batch("evaluation")
    with tf.device(device):
        graph = replication.build(model, feeding.batch, evaluation, variant.runtime, device)
        feeding.evidence = evidence.build(source, feeding.batch) if feeding.wait != "none" else None

    def build_step(sampled: Any) -> Step:
        return _step(variant, model, source, feeding, device, sampled)

    return Built(Training(graph, feeding, v1.global_variables_initializer(), build_step), source)


def _step(variant: Variant, model: Model, source: Source, feeding: Input, device: str | None, sampled: Any) -> Step:
    """Another step, on the variables that are there."""
    import tensorflow as tf

    v1 = tf.compat.v1
    if feeding.take is None:
        raise PipelineBenchError(f"The backend {variant.backend} cannot be built into a loop of the graph.")
    batch, wait_s = feeding.take()
    with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE), tf.device(device):
        graph = replication.train_on(model, batch, variant.runtime, device)
        shown = None
        if feeding.evidence is not None:
            shown = several_steps.if_sampled(sampled, lambda: evidence.build(source, batch))
    return Step(graph.train, graph.loss, wait_s, shown, graph.busy_s)
