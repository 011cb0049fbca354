"""feed_dict: get the batch as NumPy arrays, then feed it to the step, as TensorFlow 1 tutorials began."""

from __future__ import annotations

from typing import Any

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
    works_ahead = False

    def python_part(self, source: Source) -> str:
        return "feeds every batch"

    def connect(self, source: Source, device: str | None) -> Input:
        return _ReadingInput(source) if isinstance(source, SampleSource) else _FetchingInput(source)


class _FetchingInput(Input):
    wait = "fetch"
    reorder_window = 0

    def __init__(self, source: Source) -> None:
        import tensorflow as tf

        with tf.device("/cpu:0"):
            self._made = source.finish(source.produce(source.batch_size)).tensors
        self._placeholders = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in self._made]
        super().__init__(Batch(*self._placeholders))

    def fetch(self, session: Any) -> dict[Any, Any]:
        values = session.run(self._made)
        return dict(zip(self._placeholders, values, strict=True))


class _ReadingInput(Input):
    wait = "fetch"
    reorder_window = 0

    def __init__(self, source: SampleSource) -> None:
        self._source = source
        (self._samples,) = source.streams(1)
        self._placeholders = source.placeholders()
        super().__init__(source.finish(self._placeholders))

    def fetch(self, session: Any) -> dict[Any, Any]:
        return dict(zip(self._placeholders, self._source.next_batch(self._samples), strict=True))
