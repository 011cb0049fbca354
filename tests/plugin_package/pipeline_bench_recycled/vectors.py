"""A source from outside: binary files of vectors, each of float32 values, the first of which is the class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.errors import UsageError
from pipeline_bench.sources import ArraySpec, RecordError
from pipeline_bench.sources.records import FileOptions, Raw, RecordFile, RecordSource


class VectorOptions(FileOptions):
    """How long a vector is."""

    features: Annotated[int, Field(ge=1, le=2**16, description="values of a vector, without its class")] = 8


class Vectors(RecordSource):
    """The files of a folder that end in .vec, in the order of their names."""

    name = "vectors"
    summary = "vectors of float32 and a class in .vec files"
    Options = VectorOptions

    def check(self) -> None:
        if not list(Path(self.options.path or "").glob("*.vec")):
            raise UsageError(f"There are no .vec files in {self.options.path}.", "Set source.path to their folder.")

    @cached_property
    def files(self) -> Sequence[RecordFile]:
        found: list[RecordFile] = []
        first = 0
        for path in sorted(Path(self.options.path).glob("*.vec")):
            size_bytes = path.stat().st_size
            records, rest = divmod(size_bytes, self._record_bytes)
            if rest or not records:
                raise RecordError(f"{path} has {size_bytes} bytes, not {self._record_bytes} for each of its vectors.")
            found.append(RecordFile(str(path), first, records, size_bytes))
            first += records
        return found

    @property
    def sample_specs(self) -> tuple[ArraySpec, ArraySpec]:
        return ArraySpec("float32", (self.options.features,)), ArraySpec("int64")

    def load(self, index: int) -> Raw:
        file = self.file_of(index)
        try:
            with Path(file.path).open("rb") as opened:
                opened.seek((index - file.first) * self._record_bytes)
                return (opened.read(self._record_bytes),)
        except OSError as error:
            raise RecordError(f"{self.name_of(index)} cannot be read: {error.strerror}.") from error

    def decode(self, index: int, raw: Raw) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        values = np.frombuffer(raw[0], dtype="<f4")
        if len(values) != self.options.features + 1:
            raise RecordError(f"{self.name_of(index)} has {len(values)} values.")
        return values[1:], np.asarray(values[0], dtype=np.int64)

    def file_dataset(self, path: Any, first: Any) -> Any:
        import tensorflow as tf

        return tf.data.FixedLengthRecordDataset(path, self._record_bytes).map(lambda record: (record,))

    def decode_op(self, index: Any, raw: Raw) -> tuple[Any, Any]:
        import tensorflow as tf

        values = tf.io.decode_raw(raw[0], tf.float32)
        return values[1:], tf.cast(values[0], tf.int64)

    @property
    def _record_bytes(self) -> int:
        return 4 * (int(self.options.features) + 1)
