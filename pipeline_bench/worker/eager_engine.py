"""The engine of loops that run TensorFlow 2 as it is: eager, with functions. The model is the one of the graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.backends import EagerInput
from pipeline_bench.loops import EagerTraining
from pipeline_bench.model.events import Placement
from pipeline_bench.models import GradientModel
from pipeline_bench.sources import Batch, Source
from pipeline_bench.worker import placement, runtime, sample_audit
from pipeline_bench.worker.engine import TrainingEngine


class EagerEngine(TrainingEngine):
    """Wraps the graph model in functions, and runs a loop of eager TensorFlow."""

    feeding: EagerInput
    busy = False

    def build(self) -> None:
        """Set the runtime up, make the input, and wrap the model."""
        import tensorflow as tf

        variant = self.variant
        self.channel.send(runtime.set_up_eagerly(variant.runtime))
        self.recorder.phase("build")
        tf.random.set_seed(variant.run.seed)
        self.config = runtime.session_config(variant.runtime)
        # Only the one GPU is visible.
        device = None if runtime.accelerator(variant.runtime) is None else "/gpu:0"
        self._loop = plugins.make("loops", variant.loop.kind, variant.loop.options)
        model = plugins.make("models", variant.model.kind, variant.model.options)
        source = self.source
        source.prepare(self.config)
        model.devices = runtime.model_devices(variant.runtime, device)
        feeding = self.backend.connect_eagerly(source, device)
        specs = _specs(feeding)
        train_on, self._accuracy = _wrapped(model, source, specs, device)
        self.feeding, self.features = feeding, specs[0].shape
        self.has_input = feeding.dataset is not None
        has_numbers = len(specs) == len(Batch._fields)
        distinct = has_numbers if source.identity is not None else source.moments is not None
        self.shows_samples = self.has_input and distinct
        digest = (lambda batch: sample_audit.digest(source, batch)) if self.shows_samples else None
        self._training = EagerTraining(feeding.take, train_on, digest, feeding.dataset)

    def accuracy(self) -> float | None:
        """Call the function of the accuracy."""
        return None if self._accuracy is None else float(self._accuracy())

    def drive(self) -> None:
        """Run the loop."""
        self._loop.run_eagerly(self._training, self.recorder)

    def placement(self) -> Placement:
        """Ask TensorFlow for the graphs of one more step."""
        return placement.of_function(self._training)

    def stop_input(self) -> None:
        """End the input."""
        self.feeding.stop()


def _specs(feeding: EagerInput) -> Sequence[Any]:
    """Return a `tf.TensorSpec` for each tensor of a batch."""
    import tensorflow as tf

    if feeding.dataset is not None:  # without an iterator, of which Keras is to make the only one
        return list(feeding.dataset.element_spec)
    taken = tf.function(lambda: feeding.take()[0].tensors, autograph=False).get_concrete_function().structured_outputs
    return [tf.TensorSpec(each.shape, each.dtype) for each in taken]


def _wrapped(
    model: GradientModel, source: Source, specs: Sequence[Any], device: str | None
) -> tuple[Callable[[Batch], Any], Callable[[], Any] | None]:
    """Return what trains the model on a batch and gives its loss, and what gives its accuracy, if it has one.

    The model is built as it is into any graph, by TensorFlow's own way to take such code over into eager mode.
    """
    import tensorflow as tf

    has_accuracy = False

    def build(*tensors: Any) -> list[Any]:
        nonlocal has_accuracy
        with tf.device("/cpu:0"):
            evaluation = source.sample_batch("evaluation")
        with tf.device(device):
            graph = model.build(Batch(*tensors), evaluation)
            has_accuracy = graph.accuracy is not None
            with tf.control_dependencies([graph.train]):
                return [tf.identity(graph.loss), graph.accuracy] if has_accuracy else [tf.identity(graph.loss)]

    whole = tf.compat.v1.wrap_function(build, specs)
    train = whole.prune(whole.inputs[: len(specs)], whole.outputs[0])
    accuracy = whole.prune([], whole.outputs[1]) if has_accuracy else None
    return lambda taken: train(*taken.tensors), accuracy
