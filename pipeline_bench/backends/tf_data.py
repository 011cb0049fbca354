"""tf_data: a tf.data pipeline with prefetch, today's way; its batches never enter Python either."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, Input
from pipeline_bench.sources import Batch, Source

Auto = Literal["auto"]


class TfDataOptions(plugins.Options):
    """How far ahead of the model the pipeline works, and with how many calls at a time."""

    prefetch: Annotated[
        Annotated[int, Field(ge=0)] | Auto,
        Field(description="batches ready ahead of the step; 0: none; auto: AUTOTUNE"),
    ] = "auto"
    parallel_calls: Annotated[
        Annotated[int, Field(ge=1)] | Auto, Field(description="batches made at a time; auto: AUTOTUNE")
    ] = 1
    device_prefetch: Annotated[
        bool | Auto, Field(description="copy batches to the GPU ahead of the step; auto: where the model is on one")
    ] = "auto"


class TfData(Backend):
    """One map over an endless dataset makes the batches; prefetch lets them be made while the model trains."""

    name = "tf_data"
    summary = "tf.data: a map that makes the batches, prefetch behind it, to the device where there is a GPU"
    Options = TfDataOptions

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        v1 = tf.compat.v1
        with tf.device("/cpu:0"):
            dataset = _dataset(source, self.options)
        to_device = device if self.options.device_prefetch else None
        if to_device:
            # Must stay the last transformation, and the iterator must live where the batches go.
            ahead = self.options.prefetch or 1
            buffer_size = tf.data.AUTOTUNE if ahead == "auto" else ahead
            dataset = dataset.apply(tf.data.experimental.prefetch_to_device(to_device, buffer_size))
        with tf.device(to_device or "/cpu:0"):
            iterator = v1.data.make_initializable_iterator(dataset)
        tensors, wait_s = graph_ops.timed(iterator.get_next)
        others = (_most_calls(self.options.parallel_calls) - 1) * source.batch_size
        return _IteratorInput(Batch(*tensors), wait_s, iterator.initializer, others)


class _IteratorInput(Input):
    def __init__(self, batch: Batch, wait_s: Any, initializer: Any, out_of_order_samples: int) -> None:
        super().__init__(batch, wait_s)
        self.out_of_order_samples = out_of_order_samples
        self._initializer = initializer

    def start(self, session: Any) -> None:
        session.run(self._initializer)


def _most_calls(parallel_calls: int | Auto) -> int:
    """How many batches may be made at a time; AUTOTUNE goes up to the CPUs that the process may use."""
    return len(os.sched_getaffinity(0)) if parallel_calls == "auto" else parallel_calls


def _dataset(source: Source, options: TfDataOptions) -> Any:
    import tensorflow as tf

    def make(_: Any) -> tuple[Any, ...]:
        return source.finish(source.produce(source.batch_size)).tensors

    calls = {"auto": tf.data.AUTOTUNE, 1: None}.get(options.parallel_calls, options.parallel_calls)
    dataset = tf.data.Dataset.from_tensors(0).repeat().map(make, num_parallel_calls=calls)
    if options.prefetch == 0:
        # TensorFlow 2.21 adds a prefetch of its own unless told not to, and "none" must mean none.
        settings = tf.data.Options()
        settings.experimental_optimization.inject_prefetch = False
        return dataset.with_options(settings)
    return dataset.prefetch(tf.data.AUTOTUNE if options.prefetch == "auto" else options.prefetch)
