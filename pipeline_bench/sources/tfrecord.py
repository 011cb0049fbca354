"""tfrecord: images in TFRecord files, each record a tf.train.Example as the ImageNet scripts write it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.records import Raw, RecordError, RecordFile, images
from pipeline_bench.records.made import SyntheticDataset
from pipeline_bench.records.making import IMAGE_KEY, LABEL_KEY
from pipeline_bench.records.tfrecord_index import (
    FOOTER_BYTES,
    HEADER,
    WRONG_CHECKSUM,
    TfrecordIndex,
    footer_problem,
    header_problem,
    read_index,
)
from pipeline_bench.text import units

_READ_BYTES = 1 << 20
_OFFSET_IN_ERROR = re.compile(r"(?:corrupted|truncated) record at (\d+)")


class TfrecordOptions(images.ImageOptions):
    """Where the records are, and under which keys image and label lie in them."""

    image_key: Annotated[str, Field(min_length=1, description="the encoded image's key in a tf.train.Example")] = (
        IMAGE_KEY
    )
    label_key: Annotated[str, Field(min_length=1, description="the class's key, an int64")] = LABEL_KEY
    files: Annotated[int, Field(ge=1, le=2**16, description="of made data: files that the samples are in")] = 8


class _Indexed(NamedTuple):
    files: list[RecordFile]
    indices: dict[str, TfrecordIndex]


class Tfrecord(images.ImageSource):
    """Records in the order of the files' names. Their places are known from an index of the lengths, made beforehand.

    Of a damaged file the records before the damage are used where `on_error` is ``skip``: no reader gets beyond it.
    """

    name = "tfrecord"
    summary = "JPEG or PNG images in TFRecord files"
    Options = TfrecordOptions
    file_names = re.compile(r"\.tfrec(ord)?s?$|-\d{5}-of-\d{5}$")
    wanted = "*.tfrecord, *.tfrec or *-00000-of-00008"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.damaged_files: dict[str, str] = {}
        self._config: Any = None

    def prepare(self, config: Any) -> None:
        self._config = config
        super().prepare(config)

    def _to_make(self) -> SyntheticDataset:
        options = self.options
        side, uneven = images.made_side(options), options.fit == "pad"
        return SyntheticDataset("tfrecord", options.samples, options.files, side, uneven=uneven)

    @property
    def files(self) -> Sequence[RecordFile]:
        return self._indexed.files

    @cached_property
    def _indexed(self) -> _Indexed:
        files, indices, first = [], {}, 0
        for path in map(str, self.paths):
            index = self._index(path)
            if len(index.offsets):
                files.append(RecordFile(path, first, len(index.offsets), Path(path).stat().st_size))
                indices[path] = index
                first += len(index.offsets)
        if not files:
            raise self.trouble("there is no whole record in its files", "Give a folder with records.")
        return _Indexed(files, indices)

    def _index(self, path: str) -> TfrecordIndex:
        try:
            index = read_index(path)
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
        if index.problem and not self.skips:
            raise RecordError(
                f"{path}, record {len(index.offsets) + 1}: {index.problem}.",
                "Write the file again, or set on_error = skip to use the records before it.",
            )
        if self.skips:
            readable = _readable(path, self._config)
            if readable < len(index.offsets):
                index = TfrecordIndex(index.offsets[:readable], index.lengths[:readable], WRONG_CHECKSUM)
        if index.problem:
            self.damaged_files[path] = f"record {len(index.offsets) + 1}: {index.problem}"
        return index

    def load(self, place: int) -> Raw:
        file = self.file_of(place)
        offset, length = self._where(place)
        try:
            descriptor = os.open(file.path, os.O_RDONLY)
            try:
                data = os.pread(descriptor, length, offset + HEADER.size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RecordError(f"{self.name_of(place)} cannot be read: {error.strerror}.") from error
        if len(data) < length:
            raise RecordError(f"{self.name_of(place)} has {units.size(len(data))} left of its {units.size(length)}.")
        return (data,)

    def read(self, file: RecordFile) -> Iterator[Raw]:
        try:
            with Path(file.path).open("rb", buffering=_READ_BYTES) as opened:
                for place in range(file.first, file.first + file.records):
                    header = opened.read(HEADER.size)
                    if header_problem(header, file.size_bytes):
                        raise RecordError(f"{self.name_of(place)} was changed while it was read.")
                    length, _ = HEADER.unpack(header)
                    data = opened.read(length + FOOTER_BYTES)
                    yield (data[:length],)
        except OSError as error:
            raise RecordError(f"{file.path} cannot be read: {error.strerror}.") from error

    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        encoded, label = self._parsed(place, raw[0])
        try:
            return images.decode(encoded, self.options), np.asarray(label, dtype=np.int64)
        except ValueError as error:
            raise RecordError(f"{self.name_of(place)} cannot be decoded: {error}.") from error

    def _parsed(self, place: int, record: bytes) -> tuple[bytes, int]:
        """The encoded image and the class of a serialized tf.train.Example."""
        import tensorflow as tf

        try:
            feature = tf.train.Example.FromString(record).features.feature
            keys = sorted(feature)
            image, label = feature.get(self.options.image_key), feature.get(self.options.label_key)
            images_there = list(image.bytes_list.value) if image else []
            labels_there = list(label.int64_list.value) if label else []
        except Exception as error:  # protobuf's own, in a package that differs between its implementations; or of a key
            raise RecordError(f"{self.name_of(place)} is no tf.train.Example: {error}.") from error
        if len(images_there) != 1 or len(labels_there) != 1:
            raise RecordError(
                f"{self.name_of(place)} has not one image under {self.options.image_key!r} and one class, an integer, "
                f"under {self.options.label_key!r}; its keys: {', '.join(keys) or 'none'}.",
                "Set image_key and label_key to those of the encoded image and the class.",
            )
        return images_there[0], labels_there[0]

    def _where(self, place: int) -> tuple[int, int]:
        """Offset and length of a record in its file."""
        file = self.file_of(place)
        index = self._indexed.indices[file.path]
        return int(index.offsets[place - file.first]), int(index.lengths[place - file.first])

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        records = tf.data.TFRecordDataset(path)
        return (records.ignore_errors() if self.skips else records).map(lambda record: (record,))

    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        options = self.options
        keys = {
            options.image_key: tf.io.FixedLenFeature([], tf.string),
            options.label_key: tf.io.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_single_example(raw[0], keys)
        return images.decode_op(example[options.image_key], options), example[options.label_key]

    def fault_in(self, message: str) -> str | None:
        """TensorFlow says at which byte of a file a damaged record or its content begins, but not of which file."""
        if (found := _OFFSET_IN_ERROR.search(message)) is None:
            return None
        begins = [int(found[1]), int(found[1]) - HEADER.size]
        for file in self.files:
            index = self._indexed.indices[file.path]
            for record in np.flatnonzero(np.isin(index.offsets, begins)).tolist():
                problem = footer_problem(file.path, int(index.offsets[record]), int(index.lengths[record]))
                if problem:
                    return f"{file.path}, record {record + 1}: {problem}."
        return None

    def reader(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.TFRecordReader()

    def key_of(self, place: int) -> str:
        return f"{self.file_of(place).path}:{self._where(place)[0]}"


def _readable(path: str, config: Any) -> int:
    """How many records TensorFlow reads from a file before it comes upon a damaged one; reads all of it.

    Args:
        path: the file.
        config: the trial's ConfigProto: a process's first session sizes its thread pools.
    """
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        records = tf.data.TFRecordDataset(path).ignore_errors()
        return int(session.run(records.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)))
