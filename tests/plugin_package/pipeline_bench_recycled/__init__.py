"""A backend from outside: it makes a few batches once and trains on them over and over, from the host's memory."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pipeline_bench import graph_ops
from pipeline_bench.backends import Backend, Input
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Source


class RecycledOptions(Options):
    """How many batches are kept."""

    batches: Annotated[int, Field(ge=1, description="batches that are made once and then repeated")] = 4


class Recycled(Backend):
    """tf.data with the first batches in a cache: a pipeline whose source costs nothing after the first round."""

    name = "recycled"
    summary = "a few batches, made once and repeated from the host's memory"
    Options = RecycledOptions

    def connect(self, source: Source, device: str | None) -> Input:
        return _RecycledInput(source, self.options.batches)


class _RecycledInput(Input):
    def __init__(self, source: Source, batches: int) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        made = tf.data.Dataset.range(batches).map(lambda _: source.produce(source.batch_size))
        self._iterator = v1.data.make_initializable_iterator(made.cache().repeat())
        carried, wait_s = graph_ops.timed(self._iterator.get_next)
        super().__init__(source.finish(carried), wait_s)

    def start(self, session: Any) -> None:
        session.run(self._iterator.initializer)
