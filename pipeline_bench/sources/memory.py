"""A dataset in memory: samples that are made once, numbered, and read in their order, epoch after epoch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from pipeline_bench import graph_ops
from pipeline_bench.sources import SEEDS, ArraySpec, Batch, FeatureOptions, Identity, Source, labelled_by_sum
from pipeline_bench.system.files import ScratchFolder

_MOST_VALUES = 2**26


class MemoryOptions(FeatureOptions):
    """How large the dataset is, and how much of it a step takes."""

    samples: Annotated[int, Field(ge=1, le=2**26, description="samples in the dataset, which are an epoch")] = 4096

    @model_validator(mode="after")
    def _fits(self) -> MemoryOptions:
        if self.samples * self.features > _MOST_VALUES:
            raise ValueError(f"samples × features is {self.samples * self.features}; at most {_MOST_VALUES} are held")
        return self


class Memory(Source):
    """Rows of one array, copied out by number: the cheapest input there is, whose every sample is distinct."""

    name = "memory"
    summary = "a numbered dataset in memory, read in order, epoch after epoch; every sample can be told apart"
    Options = MemoryOptions
    reads_storage = False

    @property
    def identity(self) -> Identity:
        first = self._table[:, 0]
        return Identity(len(first), lambda numbers: first[numbers % len(first)])

    @property
    def numbered_specs(self) -> tuple[ArraySpec, ...]:
        return ArraySpec("float32", (self.options.features,)), ArraySpec("int64")

    def numbered(self, number: int) -> tuple[npt.NDArray[Any], ...]:
        return self._table[number % len(self._table)], np.asarray(number, dtype=np.int64)

    @cached_property
    def _table(self) -> npt.NDArray[np.float32]:
        """The dataset, float32 [samples, features]."""
        return self._normal(self.options.samples, "training")

    def produce(self, samples: int) -> tuple[Any, ...]:
        """Features [samples, features] and numbers [samples] of the next ones; each is given once, whoever asks.

        All callers of one graph must ask for the same number of samples.
        """
        import tensorflow as tf

        calls = graph_ops.call_counter("memory_calls")
        with tf.device("/cpu:0"):
            numbers = calls * samples + tf.range(samples, dtype=tf.int64)
            rows = tf.math.floormod(numbers, self.options.samples)
            table = graph_ops.shared_variable("memory_table", self._table.shape, tf.float32, self._training_table)
            return tf.gather(table, rows), numbers

    def finish(self, carried: Sequence[Any]) -> Batch:
        features, numbers = carried
        return labelled_by_sum(features)._replace(numbers=numbers)

    def sample_batch(self, purpose: str) -> Batch:
        return labelled_by_sum(self._read(purpose, self._normal(self.batch_size, purpose)))

    def _training_table(self) -> Any:
        return self._read("training", self._table)

    def _read(self, purpose: str, values: npt.NDArray[np.float32]) -> Any:
        """Return values as a tensor that is read from a file, which goes with this process.

        As a constant of the graph they are copied by each optimization of the graph, and of a tf.data function: with
        64 MiB the first batch then took 13 s in place of 0.3.
        """
        import tensorflow as tf

        path = self._scratch.path / purpose
        values.tofile(path)
        return tf.reshape(tf.io.decode_raw(tf.io.read_file(str(path)), tf.float32), values.shape)

    @cached_property
    def _scratch(self) -> ScratchFolder:
        return ScratchFolder(self._table.nbytes, "The samples in memory")

    def _normal(self, samples: int, purpose: str) -> npt.NDArray[np.float32]:
        generator = np.random.default_rng(SEEDS[purpose])
        return generator.standard_normal((samples, self.options.features), dtype=np.float32)
