"""feed_dict: fetch the batch into Python, then feed it back, as TensorFlow 1 tutorials began."""

from __future__ import annotations

from typing import Any

from pipeline_bench.backends import Backend, Input
from pipeline_bench.sources import Batch, Source


class FeedDict(Backend):
    """Everything in one thread: the batch is made, copied out, copied in, and only then trained on."""

    name = "feed_dict"
    summary = "fetch NumPy arrays with one session.run, feed them to the next; synchronous, two copies"

    def connect(self, source: Source, device: str | None) -> Input:
        return _FeedDictInput(source)


class _FeedDictInput(Input):
    wait = "fetch"
    out_of_order_samples = 0

    def __init__(self, source: Source) -> None:
        import tensorflow as tf

        with tf.device("/cpu:0"):
            self._made = source.finish(source.produce(source.batch_size)).tensors
        self._placeholders = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in self._made]
        super().__init__(Batch(*self._placeholders))

    def fetch(self, session: Any) -> dict[Any, Any]:
        return dict(zip(self._placeholders, session.run(self._made), strict=True))
