"""A source, a backend and a loop with planted delays: what a trial must come to follows from their options."""

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
    summary = "samples that take as long as the options say"
    Options = PlantedOptions
    timing_options = frozenset({"read_ms", "decode_ms", "copy_ms"})

    @property
    def batch_size(self) -> int:
        return int(self.options.batch_size)

    @property
    def identity(self) -> Identity:
        return Identity(EPOCH_SAMPLES, lambda numbers: (numbers % EPOCH_SAMPLES).astype(np.float32))

    @property
    def copy_us(self) -> float:
        """What `PlantedCopy` waits."""
        return float(1000 * self.options.copy_ms)

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
        return self._batch(_held([numbers], 1000 * self.options.decode_ms, "planted_decode")[0])

    def sample_batch(self, purpose: str) -> Batch:
        import tensorflow as tf

        return self._batch(tf.range(self.batch_size, dtype=tf.int64))._replace(numbers=None)

    def _batch(self, numbers: Any) -> Batch:
        import tensorflow as tf

        place = tf.cast(numbers % EPOCH_SAMPLES, tf.float32)
        features = tf.tile(place[:, tf.newaxis], [1, FEATURES])
        return Batch(features, tf.cast(features[:, :1] > EPOCH_SAMPLES / 2, tf.float32), numbers)


def _held(tensors: Sequence[Any], latency_us: float, name: str) -> list[Any]:
    """The tensors, that long after they are there."""
    import tensorflow as tf

    if not latency_us:
        return list(tensors)
    with tf.device("/cpu:0"), tf.control_dependencies(tensors):
        wait = graph_ops.steady_delay(latency_us, name)
    with tf.control_dependencies([wait]):
        return [tf.identity(tensor) for tensor in tensors]


class PlantedCopyOptions(Options):
    """What carries the batches before they are copied."""

    inner: Annotated[str, Field(description="a backend")] = "feed_dict"
    inner_options: Annotated[dict[str, Any], Field(default_factory=dict, description="its options")]


class PlantedCopy(Backend):
    """Another backend, and then the source's `copy_ms`: the batch has arrived, but the model does not have it yet."""

    name = "planted_copy"
    summary = "a backend whose batches take a while to get to the device"
    Options = PlantedCopyOptions

    def connect(self, source: Source, device: str | None) -> Input:
        backend: Any = plugins.find("backends", self.options.inner)(self.options.inner_options)
        inner: Input = backend.connect(source, device)
        assert isinstance(source, Planted)
        inner.batch = Batch(*_held(inner.batch.tensors, source.copy_us, "planted_copy"))
        return inner


class PlantedHostOptions(Options):
    """How long the host takes in each step beside the model."""

    host_ms: Annotated[Milliseconds, Field(description="slept in Python after the batch was asked for")] = 0.0


class PlantedHost(SessionLoop):
    """The session loop of a program whose Python takes its time before each step; with no input, it takes none."""

    name = "planted_host"
    summary = "session.run a step, after a sleep"
    Options = PlantedHostOptions

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; the fetch of a batch goes by without the sleep."""
        source = training.feeding
        if source.wait == "none" or not self.options.host_ms:
            super().run(session, training, record)
            return
        fetch = source.fetch
        source.fetch = lambda _: fetch(session)  # type: ignore[method-assign,assignment]
        super().run(_Slow(session, self.options.host_ms / 1e3), training, record)


class _Slow:
    """A session whose every run is preceded by a sleep."""

    def __init__(self, session: Any, host_s: float) -> None:
        self._run: Callable[..., Any] = session.run
        self._sleep = Sleeper(host_s)

    def run(self, *arguments: Any, **named: Any) -> Any:
        self._sleep()
        return self._run(*arguments, **named)


class Sleeper:
    """Sleeps the given seconds in the mean: what one sleep takes too long, the next one takes less."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._owed_s = 0.0

    def __call__(self, seconds: float | None = None) -> None:
        wanted = self._seconds if seconds is None else seconds
        start = time.monotonic()
        time.sleep(max(0.0, wanted - self._owed_s))
        self._owed_s = max(-wanted, min(wanted, self._owed_s + time.monotonic() - start - wanted))
