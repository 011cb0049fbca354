"""Every type that a session file stores or a trial's process sends: its base, and a packed column of numbers."""

from __future__ import annotations

import base64
import zlib
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline_bench.text import to_json


class Data(BaseModel):
    """Immutable data with no field that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Record(Data):
    """Data that a file may hold: no number that JSON lacks."""

    model_config = ConfigDict(allow_inf_nan=False)

    def to_json(self) -> str:
        """Return the content of a file that holds it."""
        return to_json(self, indent=1) + "\n"


Count = Annotated[int, Field(ge=0)]
"""A number of things, or a position counted from 0."""

_LARGEST = np.iinfo(np.int64).max
_VALUE_BYTES = 8


class Series(Record):
    """Numbers packed as base64 of zlib of the little-endian array of `dtype`.

    To read one elsewhere: ``numpy.frombuffer(zlib.decompress(base64.b64decode(data)), dtype)``.
    """

    encoding: Literal["zlib+base64"] = "zlib+base64"
    dtype: Literal["<i8", "<f8"]
    count: Count
    data: str

    @classmethod
    def pack(cls, values: npt.ArrayLike) -> Series:
        """Pack a one-dimensional array; integers as int64, everything else as float64, both without loss.

        Raises:
            ValueError: the values are no numbers, or do not fit.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "u" and array.size and array.max() > _LARGEST):
            raise ValueError("a column holds floats, or integers of up to 64 bits with a sign")
        dtype: Literal["<i8", "<f8"] = "<i8" if array.dtype.kind in "iu" else "<f8"
        raw = np.ascontiguousarray(array, dtype=dtype).tobytes()
        return cls(dtype=dtype, count=int(array.size), data=base64.b64encode(zlib.compress(raw, 6)).decode("ascii"))

    @property
    def unpacked_bytes(self) -> int:
        """What the column says that it unpacks to."""
        return _VALUE_BYTES * self.count

    def unpack(self) -> npt.NDArray[Any]:
        """Return the array, shape [count]; no more than that is ever unpacked.

        Raises:
            ValueError: the data is damaged, or holds another number of values than `count`.
        """
        unpacking = zlib.decompressobj()
        try:
            packed = base64.b64decode(self.data, validate=True)
            raw = unpacking.decompress(packed, self.unpacked_bytes + 1)
            if len(raw) <= self.unpacked_bytes and not unpacking.eof:
                raise ValueError("its end is missing")
            if len(raw) % _VALUE_BYTES and unpacking.eof:
                raise ValueError("its last value is not whole")
        except (ValueError, OverflowError, zlib.error) as error:
            raise ValueError(f"a packed column of {self.count} values is damaged: {error}") from error
        size = len(raw) // _VALUE_BYTES
        if not unpacking.eof or size != self.count:
            more = "" if unpacking.eof else "more than "
            raise ValueError(f"a packed column holds {more}{size} values, but says {self.count}")
        return np.frombuffer(raw, dtype=self.dtype)
