"""Several copies of a model that share the work of each batch: in one graph, or mirrored by `tf.distribute`."""

from __future__ import annotations

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.models import GradientModel, Model, TrainingGraph
from pipeline_bench.scenario import Runtime
from pipeline_bench.sources import Batch


def check(model: Model, runtime: Runtime, batch_size: int) -> None:
    """Refuse what cannot be replicated; the parent asks before the first trial, without TensorFlow.

    Raises:
        UsageError: it cannot.
    """
    if runtime.replicas > 1 and not isinstance(model, GradientModel):
        raise UsageError(
            f"The model {model.name} cannot be replicated: it has no gradient that its copies could share.",
            "Use two_layer or mnist_cnn, or set runtime.replicas = 1.",
        )


def build(model: Model, batch: Batch, evaluation: Batch, runtime: Runtime, device: str | None) -> TrainingGraph:
    """The model on a batch, with as many replicas as the runtime asks for, and its accuracy on the evaluation batch."""
    if runtime.replicas == 1:
        return model.build(batch, evaluation)
    raise PipelineBenchError("Replication is not built yet.")


def train_on(model: Model, batch: Batch, runtime: Runtime, device: str | None) -> TrainingGraph:
    """The same without an accuracy, with the variables that `build` has made.

    Raises:
        PipelineBenchError: the model cannot be built a second time.
    """
    if not isinstance(model, GradientModel):
        raise PipelineBenchError(f"The model {model.name} cannot be built into a loop of the graph.")
    loss = model.loss(batch)
    return TrainingGraph(model.optimizer().minimize(loss), loss)
