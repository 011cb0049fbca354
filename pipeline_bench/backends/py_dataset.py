"""py_dataset: batches by number from a keras.utils.PyDataset, carried as model.fit does on TensorFlow."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.backends import Backend, Input, IteratorInput, require_numbers, timed_take
from pipeline_bench.sources import Source


class PyDatasetOptions(plugins.Options):
    """Keras' own, under their own names."""

    workers: Annotated[
        int, Field(ge=1, le=4096, description="threads that load batches; 1: no pool, batches are loaded one by one")
    ] = 1
    max_queue_size: Annotated[
        int, Field(ge=1, le=2**20, description="batches that are loaded or queued at a time, with 2 workers or more")
    ] = 10


class PyDataset(Backend):
    """Python loads and decodes a whole batch, found by its number; Keras' threads load several at a time, in order."""

    name = "py_dataset"
    summary = "keras.utils.PyDataset, as model.fit reads one: batches by number, worker threads, tf.data behind them"
    Options = PyDatasetOptions
    carries_samples = True
    in_loops = True

    def ahead_batches(self, batch_size: int) -> int:
        return int(self.options.max_queue_size) if self.options.workers > 1 else 0

    def check(self, source: Source) -> None:
        require_numbers(self, source)

    def python_part(self, source: Source) -> str:
        return "loads and decodes the samples"

    def connect(self, source: Source, device: str | None) -> Input:
        import tensorflow as tf

        self.check(source)
        raised: list[Exception] = []
        adapter = _adapter(source, self.options, raised)
        with tf.device("/cpu:0"):
            iterator = tf.compat.v1.data.make_initializable_iterator(adapter.get_tf_dataset())

        def carry() -> list[Any]:
            parts = iterator.get_next()
            return [parts[str(place)] for place in range(len(parts))]

        def stop() -> None:
            if adapter.enqueuer:
                # Without waiting for the batches in hand: their threads end with the process.
                adapter.enqueuer.stop(drain_queue_and_join=False)
            if raised:
                raise raised[0]

        return IteratorInput(iterator, timed_take(carry, source.finish), 0, stop)


def _adapter(source: Any, options: PyDatasetOptions, raised: list[Exception]) -> Any:
    """Return what model.fit makes of a PyDataset: it holds the enqueuer, and gives the dataset that is iterated.

    Keras does not export it, but nothing else has the threads and the order of model.fit.

    Args:
        source: of numbered samples.
        options: of the backend.
        raised: takes what Python raises, of which TensorFlow hands on no more than its text.
    """
    from pipeline_bench.tfdata import keras_adapters

    def batch(index: int) -> dict[str, Any]:
        first = index * source.batch_size
        try:
            samples = [source.numbered(number) for number in range(first, first + source.batch_size)]
            return {str(place): np.stack(part) for place, part in enumerate(zip(*samples, strict=True))}
        except Exception as error:
            raised.append(error)
            raise

    # Without an end: an epoch need not be a whole number of batches.
    endless = keras_adapters.py_dataset(None, batch, workers=options.workers, max_queue_size=options.max_queue_size)
    return keras_adapters.adapter(endless, {})
