"""Plug-ins of every kind whose delays or faults are known, and the bare step of an emulated device.

The plug-ins have names like all others, but are in no list that a user is offered (`plugins.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, Input
from pipeline_bench.loops import StepRecorder, Training
from pipeline_bench.loops.session import SessionLoop
from pipeline_bench.models.mlp import Mlp, MlpOptions
from pipeline_bench.planted.generator import Sleeper
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Batch, Identity, Source

Milliseconds = Annotated[float, Field(ge=0, le=10_000)]

FEATURES = 8
EPOCH_SAMPLES = 4096


class PlantedOptions(Options):
    """How long a batch takes to read, to decode and to copy."""

    batch_size: Annotated[int, Field(ge=1, le=4096, description="samples in a batch")] = 16
    read_ms: Annotated[
        tuple[Milliseconds, ...], Field(min_length=1, description="of batch 0, 1, 2 … and then from the first again")
    ] = (0.0,)
    decode_ms: Annotated[Milliseconds, Field(description="where the backend finishes its batches")] = 0.0
    copy_ms: Annotated[Milliseconds, Field(description="between input and model, under planted_copy")] = 0.0


class Planted(Source):
    """Numbered samples of a few features that cost nothing but their delays."""

    name = "planted"
    listed = False
    summary = "samples that take as long as the options say"
    Options = PlantedOptions
    timing_options = frozenset({"read_ms", "decode_ms", "copy_ms"})

    @property
    def identity(self) -> Identity:
        return Identity(EPOCH_SAMPLES, lambda numbers: (numbers % EPOCH_SAMPLES).astype(np.float32))

    def produce(self, samples: int) -> tuple[Any, ...]:
        import tensorflow as tf

        with tf.device("/cpu:0"):
            calls = graph_ops.call_counter("planted_calls")
            numbers = calls * samples + tf.range(samples, dtype=tf.int64)
            read_us = [1000 * read_ms for read_ms in self.options.read_ms]
            if not any(read_us):
                return (numbers,)
            now_us = tf.gather(tf.constant(read_us, tf.float64), calls % len(read_us))
            with tf.control_dependencies([graph_ops.steady_delay(now_us, "planted_read")]):
                return (tf.identity(numbers),)

    def finish(self, carried: Sequence[Any]) -> Batch:
        (numbers,) = carried
        return self.batch_of(held([numbers], 1000 * self.options.decode_ms, "planted_decode")[0])

    def sample_batch(self, purpose: str) -> Batch:
        import tensorflow as tf

        return self.batch_of(tf.range(self.batch_size, dtype=tf.int64))._replace(numbers=None)

    def batch_of(self, numbers: Any) -> Batch:
        """Build the samples of those numbers, int64 [samples]."""
        import tensorflow as tf

        place = tf.cast(numbers % EPOCH_SAMPLES, tf.float32)
        features = tf.tile(place[:, tf.newaxis], [1, FEATURES])
        return Batch(features, tf.cast(features[:, :1] > EPOCH_SAMPLES / 2, tf.float32), numbers)


def held(tensors: Sequence[Any], latency_us: float, name: str) -> list[Any]:
    """Build the tensors as they are so many microseconds after they are there."""
    import tensorflow as tf

    if not latency_us:
        return list(tensors)
    with tf.device("/cpu:0"), tf.control_dependencies(tensors):
        wait = graph_ops.steady_delay(latency_us, name)
    with tf.control_dependencies([wait]):
        return [tf.identity(tensor) for tensor in tensors]


class InnerOptions(Options):
    """What carries the batches."""

    inner: Annotated[str, Field(description="a backend")] = "feed_dict"
    inner_options: Annotated[dict[str, Any], Field(default_factory=dict, description="its options")]


class _Around(Backend):
    """Another backend, and what is done to its batches."""

    Options = InnerOptions
    listed = False

    def connect(self, source: Source, device: str | None) -> Input:
        backend = plugins.make("backends", self.options.inner, self.options.inner_options)
        inner: Input = backend.connect(source, device)
        assert isinstance(source, Planted)
        inner.batch = self.changed(inner.batch, source)
        return inner

    def changed(self, batch: Batch, source: Planted) -> Batch:
        """Build the batch that the model gets."""
        raise NotImplementedError


class PlantedCopy(_Around):
    """Another backend, and then the source's `copy_ms`: the batch has arrived, but the model does not have it yet."""

    name = "planted_copy"
    summary = "a backend whose batches take a while to get to the device"

    def changed(self, batch: Batch, source: Planted) -> Batch:
        return Batch(*held(batch.tensors, float(1000 * source.options.copy_ms), "planted_copy"))


class PlantedCheat(_Around):
    """Another backend, of whose batches every second one is left out, and the one before it trained on again."""

    name = "planted_cheat"
    summary = "a backend that trains on each batch twice"

    def changed(self, batch: Batch, source: Planted) -> Batch:
        size = source.batch_size
        return source.batch_of(batch.numbers // (2 * size) * size + batch.numbers % size)


class PlantedDeviceOptions(MlpOptions):
    """How long a step takes."""

    step_ms: Annotated[float, Field(ge=0.2, le=10_000, description="waited before each step's training")] = 10.0


class PlantedDevice(Mlp):
    """Waits once the batch is there, then trains a network that costs next to nothing."""

    name = "planted_device"
    summary = "mlp, behind a wait"
    Options = PlantedDeviceOptions
    listed = False

    def loss(self, batch: Batch) -> Any:
        waited = held(batch.tensors, 1000 * self.options.step_ms, "planted_device")
        return super().loss(Batch(*waited))


class PlantedHostOptions(Options):
    """How long the host takes in each step beside the model."""

    host_ms: Annotated[Milliseconds, Field(description="slept in Python after the batch was asked for")] = 0.0


class PlantedHost(SessionLoop):
    """The session loop of a program whose Python takes its time before each step; with no input, it takes none."""

    name = "planted_host"
    listed = False
    summary = "session.run a step, after a sleep"
    Options = PlantedHostOptions

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; the fetch of a batch goes by without the sleep."""
        feeding = training.feeding
        if feeding.wait == "none" or not self.options.host_ms:
            super().run(session, training, record)
            return
        fetch = feeding.fetch
        feeding.fetch = lambda _: fetch(session)  # type: ignore[method-assign,assignment]
        super().run(_Slow(session, self.options.host_ms / 1e3), training, record)


class _Slow:
    """A session whose every run is preceded by a sleep."""

    def __init__(self, session: Any, host_s: float) -> None:
        self._run: Callable[..., Any] = session.run
        self._sleep, self._host_s = Sleeper(), host_s

    def run(self, *arguments: Any, **named: Any) -> Any:
        self._sleep(self._host_s)
        return self._run(*arguments, **named)


_WARM_UP_STEPS, _LONGEST_WARM_UP_MS = 20, 1000.0
_BLOCK_STEPS = 20
_LONGEST_MS = 5000.0
"""The longest that a device's steps may take together; a block of them is timed in any case."""


def ceilings(device_ms: Sequence[float], steps: int = 80) -> dict[str, Any]:
    """Return ``{"ceiling_ms": [...]}``: the ms of a `session.run` on a resident batch, for each device.

    It is the median of the best block of steps: the truth is that of a machine left alone, and other work, or what a
    hypervisor takes, only makes a block longer.

    Args:
        device_ms: how long each device is busy with a step.
        steps: how many are timed after the first ones; of a long step fewer, but a block.
    """
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    return {"ceiling_ms": [_ceiling_ms(each, steps) for each in device_ms]}


def _ceiling_ms(device_ms: float, steps: int) -> float:
    import tensorflow as tf

    v1 = tf.compat.v1
    host_only = v1.ConfigProto(device_count={"GPU": 0})  # a session takes nearly all of each GPU that it sees
    with tf.Graph().as_default(), v1.Session(config=host_only) as session:
        resident = v1.get_variable("resident", initializer=tf.zeros([16, 8]), trainable=False)
        with tf.control_dependencies([resident.read_value()]):
            took_s = graph_ops.steady_delay(device_ms * 1000, "bare_overshoot")
        session.run(v1.global_variables_initializer())
        ended_s = []
        first_steps = min(_WARM_UP_STEPS, round(_LONGEST_WARM_UP_MS / device_ms))
        for _ in range(first_steps + max(_BLOCK_STEPS, min(steps, round(_LONGEST_MS / device_ms)))):
            session.run([took_s.op, took_s])
            ended_s.append(time.perf_counter())
    steps_s = np.diff(ended_s[first_steps:])
    return (
        min(float(np.median(block)) for block in np.array_split(steps_s, max(1, len(steps_s) // _BLOCK_STEPS))) * 1000
    )
