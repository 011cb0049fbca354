"""Records in files: numbered, read one by one or file by file, and decoded into samples.

A `RecordSource` says how its records are read and decoded in each of the ways that a backend may carry them: in Python,
as a tf.data pipeline, and with the readers of TensorFlow 1. The sample with a number is the same in all of them.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench import graph_ops
from pipeline_bench.sources import ArraySpec, Identity, RecordError, Sample, SampleOptions, SampleSource

if TYPE_CHECKING:
    from pipeline_bench.sources.slow_storage import StorageThrottle

PageCache = Literal["as-is", "cold", "warm"]

Raw = tuple[Any, ...]
"""A record before it is decoded: bytes and arrays in Python, tensors in a graph; see `RecordSource.raw_specs`."""

# The samples that are decoded beforehand, so that what comes with their numbers can be held against them.
_FINGERPRINTED = 256
_UNDECODABLE = "undecodable_records"


@dataclass(frozen=True)
class RecordFile:
    """A file and its records: `first` is the index of the first one in an epoch."""

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

    A record's *index* counts from 0 through the files in their order; a sample's number is the epoch times the records
    of an epoch plus the index. A subclass needs `files`, `raw_specs`, `sample_specs`, `load`, `decode`, `file_dataset`
    and `decode_op`; everything else follows from these.
    """

    timing_options = frozenset({"page_cache"})

    has_numbers = True

    throttle: StorageThrottle | None = None
    """What delays the reading in training; None: nothing does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"throttle": self.throttle})

    def check(self) -> None:
        if self.throttle is not None:
            self.throttle.check()

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
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        """What a record consists of before it is decoded; by default of bytes."""
        return (ArraySpec("string"),)

    @property
    def python_part(self) -> str | None:
        """What Python does in TensorFlow's ops that read a record, ``loads the files``; None: nothing."""
        return self.throttle.python_part if self.throttle is not None else None

    # In Python.

    @abstractmethod
    def load(self, index: int) -> Raw:
        """Read one record by itself; safe to call from several threads.

        Raises:
            RecordError: it cannot be read.
        """

    def forget(self) -> None:
        """Drop what `load` has kept of files; called before the training, which is to read them itself."""

    def read(self, file: RecordFile) -> Iterator[Raw]:
        """Read the records of a file in their order, as a program does that opens it once.

        Raises:
            RecordError: one cannot be read.
        """
        for index in range(file.first, file.first + file.records):
            yield self.load(index)

    @abstractmethod
    def decode(self, index: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Decode features and label of a record in Python.

        Raises:
            RecordError: it cannot be decoded.
        """

    def file_of(self, index: int) -> RecordFile:
        """Return the file that holds the record."""
        return self.files[int(np.searchsorted(self._firsts, index, side="right")) - 1]

    def name_of(self, index: int) -> str:
        """Return the record's name for messages: ``cats/3.jpg``, or ``part-00001.tfrecord, record 17`` from 1 on."""
        file = self.file_of(index)
        return file.path if file.records == 1 else f"{file.path}, record {index - file.first + 1}"

    # In a tf.data pipeline.

    @abstractmethod
    def file_dataset(self, path: Any, first: Any) -> Any:
        """Return a `tf.data.Dataset` of the records of one file in their order, each a tuple as `raw_specs` says.

        Args:
            path: the file, a string tensor [].
            first: the index of its first record, int64 [].
        """

    @abstractmethod
    def decode_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
        """Features and label of a record, decoded by TensorFlow's ops.

        Args:
            index: int64 [].
            raw: tensors as `raw_specs` says.
        """

    def decode_batch_op(self, indices: Any, raw: Raw) -> tuple[Any, Any]:
        """Decode a batch, first axis [batch], as `decode_op` does a record; vectorised decoding overrides it."""
        import tensorflow as tf

        signature = tuple(tf.TensorSpec(spec.shape, spec.dtype) for spec in self.sample_specs)
        decoded = tf.map_fn(lambda one: self.decode_op(one[0], one[1:]), (indices, *raw), fn_output_signature=signature)
        return decoded[0], decoded[1]

    def fault_in(self, message: str) -> str | None:
        """Return a sentence with the record that an error of TensorFlow's is about; None if its text names none."""
        return None

    # With a reader of TensorFlow 1.

    @property
    def has_reader(self) -> bool:
        """Whether there is such a reader: whether the source says which one."""
        return type(self).reader is not RecordSource.reader

    def reader(self) -> Any:
        """Return a new ``tf.compat.v1`` reader whose values are the records, where there is one; else None."""
        return None

    def key_of(self, index: int) -> str:
        """Return the key that the reader gives with the record."""
        raise NotImplementedError

    # What follows from these, for every source of files.

    @property
    def identity(self) -> Identity:
        known = self._fingerprints
        return Identity(self.records, lambda numbers: known[numbers % len(known)])

    @property
    def reorder_window(self) -> int:
        return max(file.records for file in self.files)

    def streams(self, threads: int) -> list[Iterator[Sample]]:
        turns = ((epoch, file) for epoch in count() for file in self.files)
        lock = threading.Lock()
        # A thread without a file of its own would read one of the next epoch's, while this one's is still being read.
        return [self._stream(turns, lock) for _ in range(min(threads, len(self.files)))]

    def sample(self, number: int) -> Sample:
        """Read and decode the sample of that number by itself.

        Raises:
            RecordError: it cannot be read or decoded.
        """
        index = number % self.records
        if self.throttle:
            self.throttle.before_single(index)
        return Sample(number, *self.decode(index, self.load(index)))

    @property
    def numbered_specs(self) -> tuple[ArraySpec, ...]:
        features, label = self.sample_specs
        return ArraySpec("int64"), ArraySpec(features.dtype, self.padded_shape), label

    def numbered(self, number: int) -> tuple[npt.NDArray[Any], ...]:
        arrays = self.stacked([self.sample(number)], whole=True)
        return tuple(array[0, ...] for array in arrays)

    def reserved(self, purpose: str) -> Sequence[Sample]:
        """Return the first samples of an epoch for the evaluation, the last ones for the ceiling."""
        indices = range(self.batch_size) if purpose == "evaluation" else range(-self.batch_size, 0)
        return [self._sample_near(index % self.records) for index in indices]

    def decode_shaped_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
        """Decode as `decode_op` does; features and label must have the shapes of `sample_specs`."""
        import tensorflow as tf

        decoded = zip(self.decode_op(index, raw), self.sample_specs, strict=True)
        features, label = (tf.ensure_shape(tensor, spec.shape) for tensor, spec in decoded)
        return features, label

    def decode_or_flag(self, index: Any, raw: Raw) -> tuple[Any, Any, Any]:
        """Decode as `decode_shaped_op` does; return also whether the record could be decoded, bool [].

        Where records are skipped (`skips`), one that cannot be decoded gives zeros and False and is noted, see
        `undecodable`; a backend leaves it out after its number was given. Else it raises as `decode_op` does.

        A tf.data pipeline of one element decodes it, whose errors end nothing else: of the decoded record, where there
        is one, and a sample of zeros behind it the first is taken. That takes some 70 µs a record more, as measured in
        a parallel map; reading and decoding a JPEG of 96 × 96 pixels takes 180 there.
        """
        import tensorflow as tf

        if not self.skips:
            return *self.decode_shaped_op(index, raw), tf.constant(True)

        def decode(*record: Any) -> tuple[Any, ...]:
            return *self.decode_shaped_op(record[0], record[1:]), True

        with tf.device("/cpu:0"):
            plain = tf.autograph.experimental.do_not_convert(decode)  # the ops are there: nothing is to be converted
            decoded = tf.data.Dataset.from_tensors((index, *raw)).map(plain)
            flagged = tf.data.Dataset.from_tensors((*zeros_of(self.sample_specs), False))
            either = decoded.ignore_errors(log_warning=False).concatenate(flagged).take(1)
            features, label, ok = either.get_single_element()
            with tf.control_dependencies([_note_undecodable(self.records, index, ok)]):
                return features, label, tf.identity(ok)

    def _stream(self, turns: Iterator[tuple[int, RecordFile]], lock: threading.Lock) -> Iterator[Sample]:
        """Yield the samples of the files whose turn it is whenever this thread asks for one."""
        while True:
            with lock:
                epoch, file = next(turns)
            for index, raw in enumerate(self.read(file), start=file.first):
                if self.throttle:
                    self.throttle.before_next(index)
                try:
                    decoded = self.decode(index, raw)
                except RecordError as error:
                    if not self.skips:
                        raise
                    self.skipped[index] = error.message
                    continue
                yield Sample(epoch * self.records + index, *decoded)

    def _sample_near(self, index: int) -> Sample:
        """Return the sample of that index; the nearest after it that can be decoded, where others are skipped."""
        for offset in range(self.records if self.skips else 1):
            here = (index + offset) % self.records
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
        for index in np.unique(np.linspace(0, self.records - 1, _FINGERPRINTED, dtype=np.int64)).tolist():
            try:
                features, _ = self.decode(index, self.load(index))
            except RecordError:
                continue
            known[index] = features.reshape(-1)[0]
        return known


def zeros_of(specs: Sequence[ArraySpec]) -> tuple[Any, ...]:
    """Tensors of zeros; of a size that differs they have none."""
    import tensorflow as tf

    return tuple(tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in specs)


def undecodable(session: Any) -> list[int]:
    """Return the indices of the records that the session's graph has flagged, in order."""
    import tensorflow as tf

    notes = [variable for variable in tf.compat.v1.global_variables() if variable.op.name == _UNDECODABLE]
    return [int(index) for variable in notes for index in session.run(variable).nonzero()[0]]


def _note_undecodable(records: int, index: Any, ok: Any) -> Any:
    """Return an op that notes the index of a record that is not ok, in a variable of the graph's, bool [records]."""
    import tensorflow as tf

    notes = graph_ops.shared_variable(_UNDECODABLE, [records], tf.bool)
    count = tf.cast(tf.logical_not(ok), tf.int32)
    updates = tf.fill([count], True)
    return tf.raw_ops.ResourceScatterUpdate(resource=notes.handle, indices=tf.fill([count], index), updates=updates)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Raise a RecordError that names the file or record where the block raises an OSError."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{name} cannot be read: {error.strerror}.") from error


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Raise a RecordError that names the record where the block raises a ValueError."""
    try:
        yield
    except ValueError as error:
        raise RecordError(f"{name} cannot be decoded: {error}.") from error


def read_range(path: str, start: int, size_bytes: int) -> bytes:
    """Read so many bytes of a file without reading ahead; fewer where it ends.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path as a string, opened for each record
        file.seek(start)
        return file.read(size_bytes) or b""
