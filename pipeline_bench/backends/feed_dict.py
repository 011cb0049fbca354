"""feed_dict: get the batch as NumPy arrays, then feed it to the step, as TensorFlow 1 tutorials began."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from pipeline_bench.backends import Backend, Input
from pipeline_bench.sources import Batch, SampleSource, Source


class FeedDict(Backend):
    """Everything in one thread: the batch is made, copied out, copied in, and only then trained on.

    A source that makes batches in the graph is fetched from with a session.run of its own; files and generators are
    read and decoded in Python.
    """

    name = "feed_dict"
    summary = "NumPy arrays, read in Python or fetched with a session.run, fed to the step; synchronous, with copies"
    carries_samples = True

    def python_part(self, source: Source) -> str:
        return "feeds every batch"

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        if isinstance(source, SampleSource):
            (samples,) = source.streams(1)
            placeholders = source.placeholders()
            return _FedInput(source.finish(placeholders), placeholders, lambda _: source.next_batch(samples))
        with tf.device("/cpu:0"):
            made = source.finish(source.produce(source.batch_size)).tensors
        placeholders = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in made]
        return _FedInput(Batch(*placeholders), placeholders, lambda session: session.run(made))


class _FedInput(Input):
    wait = "fetch"
    reorder_window = 0

    def __init__(
        self, batch: Batch, placeholders: Sequence[Any], arrays: Callable[[Any], Sequence[npt.NDArray[Any]]]
    ) -> None:
        super().__init__(batch)
        self._placeholders, self._arrays = placeholders, arrays

    def fetch(self, session: Any) -> dict[Any, Any]:
        return dict(zip(self._placeholders, self._arrays(session), strict=True))
