"""tfrecord: images in TFRecord files, each record a tf.train.Example as the ImageNet scripts write it.

The format (tensorflow/core/lib/io/record_writer.h): of each record its length (uint64, little-endian), a masked CRC-32C
of the length (uint32), the bytes, and a masked CRC-32C of the bytes (uint32). The lengths are walked over beforehand,
to know where each record lies; nothing else of a file is read for it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.sources import RecordError, images
from pipeline_bench.sources.records import Raw, RecordFile, decoding, read_range, reading
from pipeline_bench.sources.synthetic_dataset import IMAGE_KEY, LABEL_KEY, SyntheticDataset
from pipeline_bench.text import units

HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4
_WRONG_CHECKSUM = "its bytes do not match their checksum"
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_GZIP_MAGIC, _ZLIB_MAGIC = b"\x1f\x8b", b"\x78"
_READ_BYTES = 1 << 20
_OFFSET_IN_ERROR = re.compile(r"(?:corrupted|truncated) record at (\d+)")


@dataclass(frozen=True)
class TfrecordIndex:
    """The records of one file, in their order, up to its end or the first one that is damaged."""

    offsets: npt.NDArray[np.int64]
    """Where each record's header begins, in bytes."""
    lengths: npt.NDArray[np.int64]
    """How many bytes each record has, without header and footer."""
    problem: str = ""
    """What is wrong with the next record; nothing after it can be found. Empty: the file is whole."""


class TfrecordOptions(images.ImageOptions):
    """Where the records are, and under which keys image and label lie in them."""

    image_key: Annotated[str, Field(min_length=1, description="the encoded image's key in a tf.train.Example")] = (
        IMAGE_KEY
    )
    label_key: Annotated[str, Field(min_length=1, description="the class's key, an int64")] = LABEL_KEY
    files: Annotated[int, Field(ge=1, le=2**16, description="of synthetic data: files that the samples are in")] = 8


class Tfrecord(images.ImageSource):
    """Records in the order of the files' names.

    Of a damaged file the records before the damage are used where `on_error` is ``skip``: no reader gets beyond it.
    """

    name = "tfrecord"
    summary = "JPEG or PNG images in TFRecord files"
    Options = TfrecordOptions
    file_names = re.compile(r"\.tfrec(ord)?s?$|-\d{5}-of-\d{5}$")
    synthetic_options = images.ImageSource.synthetic_options | {"files"}
    wanted = "*.tfrecord, *.tfrec or *-00000-of-00008"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.damaged_files: dict[str, str] = {}
        self._indices: dict[str, TfrecordIndex] = {}
        self._config: Any = None

    def prepare(self, config: Any) -> None:
        self._config = config
        super().prepare(config)

    def dataset(self) -> SyntheticDataset:
        return self.image_dataset("tfrecord", self.options.files)

    def open_index(self, path: str) -> int:
        index = read_index(path)
        if index.problem and not self.skips:
            raise RecordError(
                f"{path}, record {len(index.offsets) + 1}: {index.problem}.",
                "Write the file again, or set on_error = skip to use the records before it.",
            )
        if self.skips:
            readable = _readable(path, self._config)
            if readable < len(index.offsets):
                index = TfrecordIndex(index.offsets[:readable], index.lengths[:readable], _WRONG_CHECKSUM)
        if index.problem:
            self.damaged_files[path] = f"record {len(index.offsets) + 1}: {index.problem}"
        self._indices[path] = index
        return len(index.offsets)

    def _location(self, index: int) -> tuple[str, int, int]:
        """Return a record's file, and its offset and length there."""
        file = self.file_of(index)
        of_file = self._indices[file.path]
        return file.path, int(of_file.offsets[index - file.first]), int(of_file.lengths[index - file.first])

    def load(self, index: int) -> Raw:
        path, offset, length = self._location(index)
        with reading(self.name_of(index)):
            data = read_range(path, offset + HEADER.size, length)
        if len(data) < length:
            raise RecordError(f"{self.name_of(index)} has {units.size(len(data))} left of its {units.size(length)}.")
        return (data,)

    def read(self, file: RecordFile) -> Iterator[Raw]:
        with reading(file.path), Path(file.path).open("rb", buffering=_READ_BYTES) as opened:
            for index in range(file.first, file.first + file.records):
                header = opened.read(HEADER.size)
                if _header_problem(header, file.size_bytes):
                    raise RecordError(f"{self.name_of(index)} was changed while it was read.")
                length, _ = HEADER.unpack(header)
                yield (opened.read(length + FOOTER_BYTES)[:length],)

    def decode(self, index: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        encoded, label = self._parsed(index, raw[0])
        with decoding(self.name_of(index)):
            return images.decode(encoded, self.options), np.asarray(label, dtype=np.int64)

    def _parsed(self, index: int, record: bytes) -> tuple[bytes, int]:
        """Return the encoded image and the class of a serialized tf.train.Example."""
        import tensorflow as tf

        options = self.options
        try:
            feature = tf.train.Example.FromString(record).features.feature
            keys = sorted(feature)
            image, label = feature.get(options.image_key), feature.get(options.label_key)
            images_there = list(image.bytes_list.value) if image else []
            labels_there = list(label.int64_list.value) if label else []
        except Exception as error:  # protobuf's own, in a package that differs between its implementations; or of a key
            raise RecordError(f"{self.name_of(index)} is no tf.train.Example: {error}.") from error
        if len(images_there) != 1 or len(labels_there) != 1:
            raise RecordError(
                f"{self.name_of(index)} has not one image under {options.image_key!r} and one class, an integer, "
                f"under {options.label_key!r}; its keys: {', '.join(keys) or 'none'}.",
                "Set image_key and label_key to those of the encoded image and the class.",
            )
        return images_there[0], labels_there[0]

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        records = tf.data.TFRecordDataset(path)
        return (records.ignore_errors() if self.skips else records).map(lambda record: (record,))

    def decode_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
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
            for record in np.flatnonzero(np.isin(self._indices[file.path].offsets, begins)).tolist():
                problem = _footer_problem(*self._location(file.first + record))
                if problem:
                    return f"{file.path}, record {record + 1}: {problem}."
        return None

    def reader(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.TFRecordReader()

    def key_of(self, index: int) -> str:
        path, offset, _ = self._location(index)
        return f"{path}:{offset}"


def read_index(path: str) -> TfrecordIndex:
    """Walk over the headers of a file.

    Raises:
        OSError: it cannot be read.
    """
    offsets, lengths, problem = [], [], ""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path as a string, opened for each of many files
        size_bytes, offset = os.fstat(file.fileno()).st_size, 0
        while offset < size_bytes:
            header = os.pread(file.fileno(), HEADER.size, offset)
            problem = _header_problem(header, size_bytes - offset)
            if problem:
                break
            length, _ = HEADER.unpack(header)
            offsets.append(offset)
            lengths.append(length)
            offset += HEADER.size + length + FOOTER_BYTES
    return TfrecordIndex(np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64), problem)


def _header_problem(header: bytes, left_bytes: int) -> str:
    """Return what is wrong with a record, by its header and the bytes up to the file's end; empty for nothing."""
    if len(header) < HEADER.size:
        return f"the file ends after {len(header)} of the {HEADER.size} bytes of its header"
    length, checksum = HEADER.unpack(header)
    if checksum != masked_crc32c(header[:8]):
        packed = header.startswith((_GZIP_MAGIC, _ZLIB_MAGIC))
        return "its length does not match its checksum" + (": is the file compressed?" if packed else "")
    whole = HEADER.size + length + FOOTER_BYTES
    if whole > left_bytes:
        return f"it has {units.size(whole)} and the file ends after {units.size(left_bytes)} of them"
    return ""


def _footer_problem(path: str, offset: int, length: int) -> str:
    """Return what is wrong with the bytes of a record, whose header begins at `offset`; empty: nothing."""
    data = read_range(path, offset + HEADER.size, length + FOOTER_BYTES)
    if len(data) < length + FOOTER_BYTES:
        return "the file ends in the middle of it"
    return "" if int.from_bytes(data[length:], "little") == masked_crc32c(data[:length]) else _WRONG_CHECKSUM


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of bytes: CRC-32C (Castagnoli), rotated and added to as TFRecord files have it.

    Meant for a few bytes: a megabyte takes some 0.1 s.
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _crc_of((crc ^ byte) & 0xFF) ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@cache
def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


def _readable(path: str, config: Any) -> int:
    """Return how many records TensorFlow reads from a file before it comes upon a damaged one; reads all of it.

    Args:
        path: the file.
        config: the trial's ConfigProto: a process's first session sizes its thread pools.
    """
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        records = tf.data.TFRecordDataset(path).ignore_errors()
        return int(session.run(records.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)))
