"""Records in files: numbered, read one by one or file by file, and decoded into samples.

A `RecordSource` says how its records are read and decoded in each of the ways that a backend may carry them: in Python,
as a tf.data pipeline, and with the readers of TensorFlow 1. The sample with a number is the same in all of them.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.records import skipping
from pipeline_bench.records.samples import ArraySpec, RecordError, Sample, SampleOptions, SampleSource
from pipeline_bench.sources import Identity

__all__ = ["ArraySpec", "FileOptions", "PageCache", "Raw", "RecordError", "RecordFile", "RecordSource", "Sample"]

PageCache = Literal["as-is", "cold", "warm"]

Raw = tuple[Any, ...]
"""A record before it is decoded: bytes and arrays in Python, tensors in a graph; see `RecordSource.raw_specs`."""

# The samples that are decoded beforehand, so that what comes with their numbers can be held against them.
_FINGERPRINTED = 256


@dataclass(frozen=True)
class RecordFile:
    """A file and its records: `first` is the place of the first one in an epoch."""

    path: str
    first: int
    records: int
    size_bytes: int


class FileOptions(SampleOptions):
    """What every source of files has."""

    path: Annotated[
        str | None,
        Field(description="a folder or a file of your own; unset: data that is made once and kept in the user's cache"),
    ] = None
    page_cache: Annotated[
        PageCache,
        Field(description="whether the files are in the system's page cache when they are read: made so, and checked"),
    ] = "as-is"


class RecordSource(SampleSource):
    """Numbered records in files: where they are, how one is read, and how it is decoded.

    A record's *place* counts from 0 through the files in their order; a sample's number is the epoch times the records
    of an epoch plus the place.
    """

    timing_options = frozenset({"page_cache"})

    @property
    def page_cache(self) -> PageCache:
        """Whether the files are to be in the page cache when they are read; see `FileOptions.page_cache`."""
        return self.options.page_cache  # type: ignore[no-any-return]

    @property
    @abstractmethod
    def files(self) -> Sequence[RecordFile]:
        """The files, in the order in which they are read; none is empty."""

    @property
    def records(self) -> int:
        """The records of an epoch."""
        return self.files[-1].first + self.files[-1].records

    @property
    @abstractmethod
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        """What a record consists of before it is decoded."""

    # In Python.

    @abstractmethod
    def load(self, place: int) -> Raw:
        """One record, read by itself; safe to call from several threads.

        Raises:
            RecordError: it cannot be read.
        """

    def read(self, file: RecordFile) -> Iterator[Raw]:
        """The records of a file in their order, as a program reads them that opens it once.

        Raises:
            RecordError: one cannot be read.
        """
        for place in range(file.first, file.first + file.records):
            yield self.load(place)

    @abstractmethod
    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Features and label of a record, decoded in Python.

        Raises:
            RecordError: it cannot be decoded.
        """

    def file_of(self, place: int) -> RecordFile:
        """The file that holds the record."""
        return self.files[int(np.searchsorted(self._firsts, place, side="right")) - 1]

    def name_of(self, place: int) -> str:
        """The record as a message names it: ``cats/3.jpg``, or ``part-00001.tfrecord, record 17``, counted from 1."""
        file = self.file_of(place)
        return file.path if file.records == 1 else f"{file.path}, record {place - file.first + 1}"

    # In a tf.data pipeline.

    @abstractmethod
    def file_dataset(self, path: Any, first: Any) -> Any:
        """A `tf.data.Dataset` of the records of one file in their order, each a tuple as `raw_specs` says.

        Args:
            path: the file, a string tensor [].
            first: the place of its first record, int64 [].
        """

    @abstractmethod
    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        """Features and label of a record, decoded by TensorFlow's ops.

        Args:
            place: int64 [].
            raw: tensors as `raw_specs` says.
        """

    def decode_or_flag(self, place: Any, raw: Raw) -> tuple[Any, Any, Any]:
        """Like `decode_op`, and whether the record could be decoded, bool [].

        Where records are skipped (`skips`), one that cannot be decoded gives zeros and False and is noted, see
        `skipping.noted`; a backend leaves it out after its number was given. Else it raises as `decode_op` does.
        """
        import tensorflow as tf

        if self.skips:
            return skipping.decode_or_flag(self, place, raw)
        return *skipping.shaped(self, self.decode_op(place, raw)), tf.constant(True)

    def decode_batch_op(self, places: Any, raw: Raw) -> tuple[Any, Any]:
        """Like `decode_op` for a batch, first axis [batch]; a source whose decoding is vectorised says how."""
        import tensorflow as tf

        signature = tuple(tf.TensorSpec(spec.shape, spec.dtype) for spec in self.sample_specs)
        decoded = tf.map_fn(lambda one: self.decode_op(one[0], one[1:]), (places, *raw), fn_output_signature=signature)
        return decoded[0], decoded[1]

    def fault_in(self, message: str) -> str | None:
        """The record that an error of TensorFlow's is about, as a sentence that names it, where its text tells."""
        return None

    # With a reader of TensorFlow 1.

    damaged_files: Mapping[str, str] = MappingProxyType({})
    """Files of which only the first records are used, and what is wrong with the next one; see `files`."""

    @property
    def has_reader(self) -> bool:
        """Whether there is such a reader: whether the source says which one."""
        return type(self).reader is not RecordSource.reader

    def reader(self) -> Any:
        """A new ``tf.compat.v1`` reader whose values are the records, where there is one; else None."""
        return None

    def key_of(self, place: int) -> str:
        """The key that the reader gives with the record."""
        raise NotImplementedError

    def after_read(self, place: Any, raw: Raw) -> Any:
        """An op that a thread runs after its reader has read a record; None: there is nothing to be done."""
        return None

    # What follows from these, for every source of files.

    @property
    def identity(self) -> Identity:
        known = self._fingerprints
        return Identity(self.records, lambda numbers: known[numbers % len(known)])

    @property
    def reorder_window(self) -> int:
        return max(file.records for file in self.files)

    def streams(self, threads: int) -> list[Iterator[Sample]]:
        order = _Order(self.files)
        # A thread without a file of its own would read one of the next epoch's, while this one's is still being read.
        return [self._stream(order) for _ in range(min(threads, len(self.files)))]

    def reserved(self, purpose: str) -> Sequence[Sample]:
        """The first samples of an epoch for the evaluation, the last ones for the ceiling."""
        places = range(self.batch_size) if purpose == "evaluation" else range(-self.batch_size, 0)
        return [self._sample_near(place % self.records) for place in places]

    def _stream(self, order: _Order) -> Iterator[Sample]:
        while True:
            epoch, file = order.next()
            for place, raw in enumerate(self.read(file), start=file.first):
                try:
                    decoded = self.decode(place, raw)
                except RecordError as error:
                    if not self.skips:
                        raise
                    self.skipped[place] = error.message
                    continue
                yield Sample(epoch * self.records + place, *decoded)

    def _sample_near(self, place: int) -> Sample:
        """The sample at that place; the nearest after it that can be decoded, where others are skipped."""
        for offset in range(self.records if self.skips else 1):
            here = (place + offset) % self.records
            try:
                return Sample(here, *self.decode(here, self.load(here)))
            except RecordError:
                if not self.skips:
                    raise
        raise RecordError(f"None of the {self.records} records of the source {self.name} can be decoded.")

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        return np.array([file.first for file in self.files], dtype=np.int64)

    @cached_property
    def _fingerprints(self) -> npt.NDArray[np.float32]:
        """The first feature of some samples, spread over an epoch, float32 [records]; NaN where it is not known."""
        known = np.full(self.records, np.nan, dtype=np.float32)
        for place in np.unique(np.linspace(0, self.records - 1, _FINGERPRINTED, dtype=np.int64)).tolist():
            try:
                features, _ = self.decode(place, self.load(place))
            except RecordError:
                continue
            known[place] = features.reshape(-1)[0]
        return known


class _Order:
    """Gives out the files, epoch after epoch, to whichever thread asks next."""

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self._files = files
        self._given = 0
        self._lock = threading.Lock()

    def next(self) -> tuple[int, RecordFile]:
        """The epoch, and the file whose turn it is."""
        with self._lock:
            epoch, index = divmod(self._given, len(self._files))
            self._given += 1
        return epoch, self._files[index]
