"""csv: lines of numbers, one column of which is the class."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.sources import ArraySpec, RecordError
from pipeline_bench.sources.folder import FolderOptions, FolderSource
from pipeline_bench.sources.records import Raw, RecordFile, decoding, read_range, reading
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset

_READ_BYTES = 1 << 24
_FIRST_LINE_LIMIT = 1 << 20
# TensorFlow's threads take what is smaller for 0, as it is slow to compute with.
_SMALLEST = np.finfo(np.float32).tiny
# What TensorFlow takes for a number and Python's `float` does not.
_HEXADECIMAL = re.compile(r"\s*[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?\s*")


@dataclass(frozen=True)
class Columns:
    """How many columns a line has, which of them is the label, and whether a file's first line holds their names."""

    count: int
    label: int
    header: bool


class CsvOptions(FolderOptions):
    """Where the lines are, and which column is the label."""

    label: Annotated[
        str | int, Field(description="the class's column: its name, or its place from 0; -1 is the last one")
    ] = -1
    header: Annotated[
        Literal["auto", "yes", "no"],
        Field(description="whether every file begins with a line of names; auto: if the first line is not all numbers"),
    ] = "auto"
    made_columns: Annotated[int, Field(ge=1, le=2**16, description="of synthetic data: features of a line")] = 64
    files: Annotated[int, Field(ge=1, le=2**16, description="of synthetic data: files that the samples are in")] = 4


class Csv(FolderSource):
    """Every line but that of the names is a record; features are float32, in the order of the columns."""

    name = "csv"
    summary = "lines of numbers and a class in .csv files"
    Options = CsvOptions
    file_names = re.compile(r"\.csv$", re.IGNORECASE)
    synthetic_options = FolderSource.synthetic_options | {"files", "made_columns"}
    wanted = "*.csv"
    uneven = False

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._starts: dict[str, npt.NDArray[np.int64]] = {}

    def dataset(self) -> SyntheticDataset:
        return SyntheticDataset("csv", self.options.samples, self.options.files, self.options.made_columns)

    @cached_property
    def _columns(self) -> Columns:
        # An engine that writes in parts leaves some of them empty, as Spark's first one is.
        path = next((str(path) for path in self.paths if _size_bytes(path)), str(self.paths[0]))
        with reading(path):
            line = read_range(path, 0, _FIRST_LINE_LIMIT).partition(b"\n")[0].replace(b"\r", b"")
        try:
            return columns(line, self.options.label, self.options.header)
        except ValueError as error:
            raise RecordError(f"{path}: {error}.", "Set label and header to what the file has.") from error

    def open_index(self, path: str) -> int:
        self._starts[path] = line_starts(path)[int(self._columns.header) :]
        return max(0, len(self._starts[path]) - 1)

    def name_of(self, index: int) -> str:
        path, line = self._line(index)
        return f"{path}, line {line}"

    def key_of(self, index: int) -> str:
        path, line = self._line(index)
        return f"{path}:{line}"

    def _line(self, index: int) -> tuple[str, int]:
        """Return the file of a record, and the number of its line, from 1."""
        file = self.file_of(index)
        return file.path, index - file.first + 1 + self._columns.header

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return ArraySpec("float32", (self._columns.count - 1,)), ArraySpec("int64")

    def load(self, index: int) -> Raw:
        file = self.file_of(index)
        start, end = self._starts[file.path][index - file.first :][:2].tolist()
        with reading(self.name_of(index)):
            return (_without_line_end(read_range(file.path, start, end - start)),)

    def read(self, file: RecordFile) -> Iterator[Raw]:
        with reading(file.path), Path(file.path).open("rb") as opened:
            opened.seek(int(self._starts[file.path][0]))
            for _, line in zip(range(file.records), opened, strict=False):
                yield (_without_line_end(line),)

    def decode(self, index: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        with decoding(self.name_of(index)):
            features, label = parse(raw[0], self._columns)
        return features, np.asarray(label)

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        lines = tf.data.TextLineDataset(path)
        return lines.skip(int(self._columns.header)).map(lambda line: (line,))

    def decode_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
        return self.decode_batch_op(index, raw)

    def decode_batch_op(self, indices: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        columns = self._columns
        # A default without a value makes a field obligatory. Numbers go through float64, as in Python: rounding the
        # text to float32 at once would give another last bit now and then.
        defaults = [tf.zeros([0], tf.int64 if i == columns.label else tf.float64) for i in range(columns.count)]
        decoded = tf.io.decode_csv(raw[0], defaults)
        label = decoded.pop(columns.label)
        return tf.cast(tf.stack(decoded, axis=-1), tf.float32), label

    def reader(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.TextLineReader(skip_header_lines=int(self._columns.header))


def columns(line: bytes, label: str | int, header: Literal["auto", "yes", "no"]) -> Columns:
    """Return what the first line says of the columns.

    Args:
        line: the first line of the first file that is not empty.
        label: the label's column: its name, or its number from 0, negative from the end.
        header: whether the line holds names; ``auto``: it does unless every field of it is a number.

    Raises:
        ValueError: there are fewer than two columns, or no such label; the message says which there are.
    """
    names = _fields(line.decode("utf-8-sig", errors="replace"))
    named = header == "yes" or (header == "auto" and not all(map(_is_number, names)))
    if len(names) < 2:  # noqa: PLR2004 - a feature and a label
        raise ValueError(f"its first line has {len(names)} column: a feature and a label are the least")
    if isinstance(label, int):
        if not -len(names) <= label < len(names):
            raise ValueError(f"there is no column {label} among its {len(names)}")
        return Columns(len(names), label % len(names), named)
    stripped = [name.strip() for name in names]
    if not named or label not in stripped:
        shown = f"its columns: {', '.join(stripped)}" if named else "its first line holds no names"
        raise ValueError(f"there is no column {label!r}; {shown}")
    return Columns(len(names), stripped.index(label), named)


def parse(line: bytes, expected: Columns) -> tuple[npt.NDArray[np.float32], np.int64]:
    """Features [columns - 1] and label of a line; through float64, as TensorFlow's decode_csv does it here.

    Raises:
        ValueError: it has another number of columns, or a field is no number; the message says which.
    """
    found = _fields(line.decode("utf-8", errors="replace"))
    if len(found) != expected.count:
        raise ValueError(f"it has {len(found)} columns, not {expected.count}")
    label = found.pop(expected.label)
    values = np.empty(len(found), dtype=np.float64)
    for column, field in enumerate(found):
        values[column] = _number(field, column + (column >= expected.label))
    with np.errstate(over="ignore"):
        features = values.astype(np.float32)
    features[np.abs(features) < _SMALLEST] = 0.0
    return features, _convert(label, expected.label, np.int64, ", the label, is", "whole number")


def line_starts(path: str) -> npt.NDArray[np.int64]:
    """Return where each line of a file begins, and last where the file ends, in bytes [lines + 1].

    Raises:
        OSError: it cannot be read.
    """
    starts, offset = [np.zeros(1, dtype=np.int64)], 0
    with open(path, "rb") as file:  # noqa: PTH123 - a path as a string, opened for each of many files
        while block := file.read(_READ_BYTES):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            starts.append(ends.astype(np.int64) + offset + 1)
            offset += len(block)
    found = np.concatenate(starts)
    return found if found[-1] == offset else np.append(found, offset)


def _size_bytes(path: Path) -> int:
    with reading(str(path)):
        return path.stat().st_size


def _fields(line: str) -> list[str]:
    """Return a line's fields, quotes taken off."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _number(field: str, column: int) -> float:
    convert = float.fromhex if _HEXADECIMAL.fullmatch(field) else float
    return float(_convert(field, column, convert, " is", "number"))


def _convert(field: str, column: int, convert: Callable[[str], Any], verb: str, kind: str) -> Any:
    # What Python takes for a number and TensorFlow does not: 1_000, and digits of other scripts.
    if "_" not in field and field.isascii():
        try:
            return convert(field)
        except (ValueError, OverflowError):
            pass
    raise ValueError(f"column {column + 1}{verb} {field!r}, no {kind}")


def _is_number(field: str) -> bool:
    try:
        _number(field, 0)
    except ValueError:
        return False
    return True


def _without_line_end(line: bytes) -> bytes:
    """Return a line as TensorFlow's readers give it: without its end, and without any carriage return."""
    return line.replace(b"\r", b"").removesuffix(b"\n")
