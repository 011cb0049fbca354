"""One trial whose loop runs TensorFlow 2 as it is: eager, with functions. The model is the one that a graph trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from pipeline_bench import plugins
from pipeline_bench.backends import Backend, EagerInput
from pipeline_bench.loops import EagerTraining, Loop
from pipeline_bench.model.events import Done, Evaluated
from pipeline_bench.model.trial import Trial
from pipeline_bench.models import GradientModel
from pipeline_bench.scenario import Variant
from pipeline_bench.sources import Batch, Source
from pipeline_bench.worker import accounting, culprit, eager, evidence, placement, runtime
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.recorder import Recorder


class _Built(NamedTuple):
    """The parts of the trial that are built before it trains."""

    source: Source
    feeding: EagerInput
    batch: Sequence[Any]
    """What a batch looks like, a `tf.TensorSpec` a tensor."""
    training: EagerTraining
    accuracy: Callable[[], Any] | None


def run(trial: Trial, channel: Channel, recorder: Recorder) -> None:
    """Train as the trial says, and tell the parent."""
    recorder.phase("import")
    import tensorflow as tf

    variant = trial.variant
    channel.send(eager.set_up(variant.runtime))
    recorder.phase("build")
    tf.random.set_seed(variant.run.seed)
    device, config = runtime.accelerator(variant.runtime), runtime.session_config(variant.runtime)
    loop: Any = plugins.find("loops", variant.loop.kind)(variant.loop.options)
    built = _build(variant, None if device is None else "/gpu:0", config)  # only the one GPU is visible
    has_input = built.feeding.dataset is not None
    recorder.has_wait = has_input
    _evaluate("before", built, channel, recorder)
    if has_input:
        accounting.open_account(_accountable(built), channel, recorder)
    keeper = accounting.prepare_storage(built.source, recorder) if has_input else None
    recorder.phase("train")
    if keeper is not None:
        keeper.start()

    def stand() -> culprit.Stand:
        return accounting.stand(trial, built.source, built.feeding.reorder_window, recorder)

    def before_end() -> None:
        if placement.is_wanted(trial):  # its step trains once more
            _evaluate("after", built, channel, recorder)
            placement.tell_eager(trial, built.training, channel)

    with culprit.named(built.source, config, stand):
        _drive(loop, built, recorder, before_end)
    if keeper is not None:
        channel.send(keeper.close())
    if not placement.is_wanted(trial):
        _evaluate("after", built, channel, recorder)
    recorder.finish()
    channel.send(Done(at_ns=time.monotonic_ns()))


def _build(variant: Variant, device: str | None, config: Any) -> _Built:
    source: Any = plugins.find("sources", variant.source.kind)(variant.source.options)
    backend: Backend = plugins.find("backends", variant.backend)(variant.options)  # type: ignore[assignment]
    model: Any = plugins.find("models", variant.model.kind)(variant.model.options)
    source.prepare(config)
    model.devices = runtime.model_devices(variant.runtime, device)
    feeding = backend.connect_eagerly(source, device)
    batch = _signature(feeding)
    train_on, accuracy = _wrapped(model, source, batch, device)
    shown = None if feeding.dataset is None or not _shows(source, batch) else _showing(source)
    return _Built(source, feeding, batch, EagerTraining(feeding.take, train_on, shown, feeding.dataset), accuracy)


def _signature(feeding: EagerInput) -> Sequence[Any]:
    import tensorflow as tf

    if feeding.dataset is not None:  # without an iterator, of which Keras is to make the only one
        return list(feeding.dataset.element_spec)

    def taken() -> tuple[Any, ...]:
        return feeding.take()[0].tensors

    found = tf.function(taken).get_concrete_function().structured_outputs
    return [tf.TensorSpec(each.shape, each.dtype) for each in found]


def _wrapped(
    model: GradientModel, source: Source, batch: Sequence[Any], device: str | None
) -> tuple[Callable[[Batch], Any], Callable[[], Any] | None]:
    """What trains the model on a batch and gives its loss, and what gives its accuracy, if it has one.

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

    whole = tf.compat.v1.wrap_function(build, batch)
    train = whole.prune(whole.inputs[: len(batch)], whole.outputs[0])
    accuracy = whole.prune([], whole.outputs[1]) if has_accuracy else None
    return lambda taken: train(*taken.tensors), accuracy


def _shows(source: Source, batch: Sequence[Any]) -> bool:
    """Whether a batch shows anything of its samples: their numbers, or what random numbers look like."""
    return len(batch) == len(Batch._fields) if source.identity is not None else source.moments is not None


def _showing(source: Source) -> Callable[[Batch], Any]:
    return lambda batch: evidence.build(source, batch)


def _accountable(built: _Built) -> accounting.Accountable:
    shape = built.batch[0].shape
    return accounting.Accountable(
        built.source, built.training.evidence is not None, shape, built.feeding.reorder_window
    )


def _drive(loop: Loop, built: _Built, recorder: Recorder, before_end: Callable[[], None]) -> None:
    """Run the loop; a producer's own exception comes before what TensorFlow makes of it."""
    try:
        loop.run_eagerly(built.training, recorder)
        before_end()
    except Exception:
        built.feeding.stop()
        raise
    built.feeding.stop()


def _evaluate(when: Literal["before", "after"], built: _Built, channel: Channel, recorder: Recorder) -> None:
    recorder.phase("evaluate")
    if built.accuracy is not None:
        channel.send(Evaluated(when=when, accuracy=float(built.accuracy())))
