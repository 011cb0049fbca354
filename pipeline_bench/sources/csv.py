"""csv: lines of numbers, one column of which is the class."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.records import ArraySpec, Raw, RecordError, RecordFile, csv_lines
from pipeline_bench.records.folder import FolderSource, MadeOptions
from pipeline_bench.records.made import SyntheticDataset


class CsvOptions(MadeOptions):
    """Where the lines are, and which column is the label."""

    label: Annotated[
        str | int, Field(description="the class's column: its name, or its place from 0; -1 is the last one")
    ] = -1
    header: Annotated[
        Literal["auto", "yes", "no"],
        Field(description="whether every file begins with a line of names; auto: if the first line is not all numbers"),
    ] = "auto"
    made_columns: Annotated[int, Field(ge=1, le=2**16, description="of made data: features of a line")] = 64
    files: Annotated[int, Field(ge=1, le=2**16, description="of made data: files that the samples are in")] = 4


class _Indexed(NamedTuple):
    files: list[RecordFile]
    columns: csv_lines.Columns
    starts: dict[str, npt.NDArray[np.int64]]


class Csv(FolderSource):
    """Every line but that of the names is a record; features are float32, in the order of the columns."""

    name = "csv"
    summary = "lines of numbers and a class in .csv files"
    Options = CsvOptions
    file_names = re.compile(r"\.csv$", re.IGNORECASE)
    wanted = "*.csv"

    def _to_make(self) -> SyntheticDataset:
        options = self.options
        return SyntheticDataset("csv", options.samples, options.files, options.made_columns)

    @property
    def files(self) -> Sequence[RecordFile]:
        return self._indexed.files

    @cached_property
    def _indexed(self) -> _Indexed:
        files, all_starts, first = [], {}, 0
        columns: csv_lines.Columns | None = None
        for path in map(str, self.paths):
            columns = columns or self._columns(path)
            try:
                starts = csv_lines.line_starts(path)[int(columns.header) :]
            except OSError as error:
                raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
            records = len(starts) - 1
            if records > 0:
                files.append(RecordFile(path, first, records, Path(path).stat().st_size))
                all_starts[path] = starts
                first += records
        if not files or columns is None:
            raise self.trouble("its files hold no line of numbers", "Give files with lines.")
        return _Indexed(files, columns, all_starts)

    def _columns(self, path: str) -> csv_lines.Columns:
        try:
            return csv_lines.columns(csv_lines.first_line(path), self.options.label, self.options.header)
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise RecordError(f"{path}: {error}.", "Set label and header to what the file has.") from error

    def name_of(self, place: int) -> str:
        file = self.file_of(place)
        return f"{file.path}, line {place - file.first + 1 + self._indexed.columns.header}"

    @property
    def raw_specs(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec("string"),)

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return ArraySpec("float32", (self._indexed.columns.count - 1,)), ArraySpec("int64")

    def load(self, place: int) -> Raw:
        file = self.file_of(place)
        start, end = self._indexed.starts[file.path][place - file.first :][:2].tolist()
        try:
            descriptor = os.open(file.path, os.O_RDONLY)
            try:
                return (_content(os.pread(descriptor, end - start, start)),)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RecordError(f"{self.name_of(place)} cannot be read: {error.strerror}.") from error

    def read(self, file: RecordFile) -> Iterator[Raw]:
        try:
            with Path(file.path).open("rb") as opened:
                opened.seek(int(self._indexed.starts[file.path][0]))
                for _, line in zip(range(file.records), opened, strict=False):
                    yield (_content(line),)
        except OSError as error:
            raise RecordError(f"{file.path} cannot be read: {error.strerror}.") from error

    def decode(self, place: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        try:
            features, label = csv_lines.parse(raw[0], self._indexed.columns)
        except ValueError as error:
            raise RecordError(f"{self.name_of(place)} cannot be decoded: {error}.") from error
        return features, np.asarray(label)

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        lines = tf.data.TextLineDataset(path)
        return lines.skip(int(self._indexed.columns.header)).map(lambda line: (line,))

    def decode_op(self, place: Any, raw: Raw) -> tuple[Any, Any]:
        return self.decode_batch_op(place, raw)

    def decode_batch_op(self, places: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        columns = self._indexed.columns
        # A default without a value makes a field obligatory. Numbers go through float64, as in Python: rounding the
        # text to float32 at once would give another last bit now and then.
        defaults = [tf.zeros([0], tf.int64 if i == columns.label else tf.float64) for i in range(columns.count)]
        decoded = tf.io.decode_csv(raw[0], defaults)
        label = decoded.pop(columns.label)
        return tf.cast(tf.stack(decoded, axis=-1), tf.float32), label

    def reader(self) -> Any:
        import tensorflow as tf

        return tf.compat.v1.TextLineReader(skip_header_lines=int(self._indexed.columns.header))

    def key_of(self, place: int) -> str:
        file = self.file_of(place)
        return f"{file.path}:{place - file.first + 1 + self._indexed.columns.header}"


def _content(line: bytes) -> bytes:
    """A line as TensorFlow's readers give it: without its end, and without any carriage return."""
    return line.replace(b"\r", b"").removesuffix(b"\n")
