"""py_dataset: batches by number from a keras.utils.PyDataset, carried as model.fit does on TensorFlow."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pipeline_bench import graph_ops, plugins
from pipeline_bench.backends import Backend, Input
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.records import RecordSource, Sample
from pipeline_bench.sources import Batch, Source

_PARTS = ("numbers", "features", "labels")


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
    in_loops = True

    def check(self, source: Source) -> None:
        if not isinstance(source, RecordSource):
            raise UsageError(
                f"py_dataset asks for batches by their number, and the source {source.name} gives its samples in turn "
                "only.",
                "Use a source of files, or one of feed_dict, fifo_queue, tf_data.",
            )
        if source.skips:
            raise UsageError(
                "py_dataset cannot leave a record out: a batch that is found by its number would come out short.",
                'Use source.on_error = "raise", or one of feed_dict, fifo_queue, tf_data.',
            )

    def python_part(self, source: Source) -> str:
        return "loads and decodes the samples"

    def connect(self, source: Source, device: str | None) -> Input:
        self.check(source)
        assert isinstance(source, RecordSource)
        return _AdaptedInput(source, self.options)


class _AdaptedInput(Input):
    reorder_window = 0

    def __init__(self, source: RecordSource, options: PyDatasetOptions) -> None:
        import tensorflow as tf

        self._raised: list[Exception] = []
        self._adapter = _adapter(source, options, self._raised)
        with tf.device("/cpu:0"):
            self._iterator = tf.compat.v1.data.make_initializable_iterator(self._adapter.get_tf_dataset())

        def take() -> tuple[Batch, Any]:
            carried, wait_s = graph_ops.timed(self._next)
            return source.finish(carried), wait_s

        super().__init__(*take(), take)

    def _next(self) -> list[Any]:
        parts = self._iterator.get_next()
        return [parts[part] for part in _PARTS]

    def start(self, session: Any) -> None:
        session.run(self._iterator.initializer)

    def stop(self, session: Any) -> None:
        if self._adapter.enqueuer:
            # Without waiting for the batches in hand: their threads end with the process.
            self._adapter.enqueuer.stop(drain_queue_and_join=False)
        if self._raised:
            raise self._raised[0]


def _adapter(source: RecordSource, options: PyDatasetOptions, raised: list[Exception]) -> Any:
    """What model.fit makes of a PyDataset: it holds the enqueuer, and gives the dataset that is iterated.

    Keras does not export it, but nothing else has the threads and the order of model.fit.
    """
    import keras

    try:
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
    except ImportError as error:
        raise PipelineBenchError(
            f"Keras {keras.__version__} does not have its PyDatasetAdapter where Keras 3.15 has it.",
            "Install Keras 3.15, or use another backend.",
        ) from error

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        """Batch after batch, epoch after epoch, without end: an epoch need not be a whole number of batches."""

        @property
        def num_batches(self) -> None:
            return None

        def __getitem__(self, index: int) -> dict[str, Any]:
            try:
                return dict(zip(_PARTS, _batch(source, index), strict=True))
            except Exception as error:
                raised.append(error)  # TensorFlow hands on no more than its text
                raise

    return PyDatasetAdapter(Batches(workers=options.workers, max_queue_size=options.max_queue_size))


def _batch(source: RecordSource, index: int) -> tuple[Any, ...]:
    """Numbers, features and labels of a batch; features that differ in size are padded up to what the model takes."""
    samples = []
    for number in range(index * source.batch_size, (index + 1) * source.batch_size):
        place = number % source.records
        samples.append(Sample(number, *source.decode(place, source.load(place))))
    numbers, features, labels = source.stacked(samples)
    if source.uneven:
        cut = features[(slice(None), *(slice(size) for size in source.padded_shape))]
        missing = [size - had for size, had in zip(source.padded_shape, cut.shape[1:], strict=True)]
        features = np.pad(cut, [(0, 0), *((0, size) for size in missing)])
    return numbers, features, labels
