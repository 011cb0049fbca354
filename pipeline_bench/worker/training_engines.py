"""The engines that train a model of ours: in a graph, or eagerly, as TensorFlow 2 runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from pipeline_bench import plugins, replication
from pipeline_bench.backends import EagerInput, Input
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.loops import EagerTraining, Loop, Step, Training, if_sampled
from pipeline_bench.model.events import Device, Placement, QueueState
from pipeline_bench.models import GradientModel, Model
from pipeline_bench.scenario import Variant
from pipeline_bench.sources import Batch, Source
from pipeline_bench.worker import bad_record, runtime, sample_audit
from pipeline_bench.worker.engine import TrainingEngine

_ANSWER_MS = 1000


class GraphEngine(TrainingEngine):
    """Builds source, input, model and loop into one graph, and trains in one session."""

    feeding: Input

    def build(self) -> None:
        """Build the graph, open the session, and set the variables."""
        import tensorflow as tf

        v1 = tf.compat.v1
        v1.disable_eager_execution()
        self.recorder.phase("build")
        variant = self.variant
        model = plugins.make("models", variant.model.kind, variant.model.options)
        settings = runtime.of_model(model, variant.runtime)
        self.config = runtime.session_config(settings)
        device = runtime.accelerator(settings)
        runtime.set_up(settings, device)
        self._training = self._build_training(model, device)
        self.feeding = self._training.feeding
        self.waits = self.feeding.wait != "none"
        self.busy = self._training.graph.busy_s is not None
        self.features = self.feeding.batch.features.shape
        self.shows_samples = self.feeding.digest is not None
        loop = plugins.make("loops", variant.loop.kind, variant.loop.options)
        loop.build(self._training)
        self._loop: Loop = loop
        init = v1.global_variables_initializer()  # a loop that builds the step again makes variables of its own
        self._open = ExitStack()
        self._session: Any = self._open.enter_context(v1.Session(config=self.config))
        emulated = Device(kind="emulated", name=model.emulated_device) if model.emulated_device else None
        self.channel.send(emulated or runtime.describe(device, self.config))
        self._session.run(init)
        self.recorder.watch(self._queue_states)

    def _build_training(self, model: Model, device: str | None) -> Training:
        import tensorflow as tf

        v1 = tf.compat.v1
        variant, source = self.variant, self.source
        source.prepare(self.config)
        model.devices = runtime.model_devices(variant.runtime, device)
        v1.set_random_seed(variant.run.seed)
        feeding = self.backend.connect(source, device)
        with tf.device("/cpu:0"):
            evaluation = source.sample_batch("evaluation")
        with tf.device(device):
            graph = replication.build(model, feeding.batch, evaluation, variant.runtime, device)
            feeding.digest = digest_of(variant, source, feeding)

        def build_step(sampled: Any) -> Step:
            """Build another step, on the variables that are there."""
            if feeding.take is None:
                raise PipelineBenchError(f"The backend {variant.backend} cannot be built into a loop of the graph.")
            batch, wait_s = feeding.take()
            with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE), tf.device(device):
                again = replication.train_on(model, batch, variant.runtime, device)
                digest = None
                if feeding.digest is not None:
                    digest = if_sampled(sampled, lambda: sample_audit.digest(source, batch))
            return Step(again.train, again.loss, wait_s, digest, again.busy_s)

        return Training(graph, feeding, v1.global_variables_initializer(), build_step)

    def accuracy(self) -> float | None:
        """Run the accuracy in the session."""
        accuracy = self._training.graph.accuracy
        return None if accuracy is None else float(self._session.run(accuracy))

    def drive(self) -> None:
        """Run the loop in the session."""
        if not self._loop.starts_input:
            self.feeding.start(self._session)
        self._loop.run(self._session, self._training, self.recorder)

    def placement(self) -> Placement:
        """Ask the session for the graphs that it ran."""
        if self._loop.starts_input:
            reason = f"the loop {self._loop.name} runs the steps in a process of its own, which does not tell"
            return Placement(reason=reason)
        return runtime.placement(runtime.graphs_of_session, self._session, self._training)

    def stop_input(self) -> None:
        """End the input."""
        self.feeding.stop(self._session)

    def finish(self) -> None:
        """Add the records that the graph left out to the audit, and end the trial."""
        bad_record.enter_skipped(self.source, self._session, self.config)
        super().finish()

    def stop(self) -> None:
        """Close the session."""
        if hasattr(self, "_open"):
            self._open.close()
        super().stop()

    def _queue_states(self) -> Sequence[QueueState]:
        states = self._loop.queue_states()
        return queue_states(self._session, self.feeding) if states is None else states


def digest_of(variant: Variant, source: Source, feeding: Input) -> Any:
    """Build the digest of an input's batch; None where there is nothing to audit."""
    return None if variant.is_ceiling else sample_audit.digest(source, feeding.batch)


def queue_states(session: Any, feeding: Input) -> Sequence[QueueState]:
    """Ask the input's queues how full they are; one that does not answer in time has no size."""
    import tensorflow as tf

    options = tf.compat.v1.RunOptions(timeout_in_ms=_ANSWER_MS)
    states = []
    for queue in feeding.queues():
        try:
            size = int(session.run(queue.size, options=options))
        except (tf.errors.OpError, RuntimeError):  # the session may just have been closed
            size = None
        states.append(QueueState(name=queue.name, size=size, capacity=queue.capacity))
    return states


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
        specs, self.waits = _specs(feeding)
        train_on, self._accuracy = _wrapped(model, source, specs, device)
        self.feeding, self.features = feeding, specs[0].shape
        has_numbers = len(specs) == len(Batch._fields)
        distinct = has_numbers if source.identity is not None else source.moments is not None
        self.shows_samples = not variant.is_ceiling and distinct
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
        return runtime.placement(runtime.graphs_of_function, self._training)

    def stop_input(self) -> None:
        """End the input."""
        self.feeding.stop()


def _specs(feeding: EagerInput) -> tuple[Sequence[Any], bool]:
    """Return a `tf.TensorSpec` for each tensor of a batch, and whether its taking says how long it waited."""
    import tensorflow as tf

    if feeding.dataset is not None:  # without an iterator, of which Keras is to make the only one
        return list(feeding.dataset.element_spec), True
    taken, wait_s = tf.function(feeding.take, autograph=False).get_concrete_function().structured_outputs
    return [tf.TensorSpec(each.shape, each.dtype) for each in taken if each is not None], wait_s is not None


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
