"""What lies in .npz files: the arrays' types and shapes without their content, and the arrays."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.records import RecordError

_NUMBERS = "biuf"
_MOST_BITS = 64
_LARGEST_LABEL = 2.0**63
_ENDING = ".npy"


@dataclass(frozen=True)
class ArrayHead:
    """Type and shape of an array in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def read_heads(path: str) -> dict[str, ArrayHead]:
    """The arrays of a .npz file, by name.

    Raises:
        RecordError: it cannot be read, or is none.
    """
    heads = {}
    try:
        with zipfile.ZipFile(path) as packed:
            for entry in packed.namelist():
                with packed.open(entry) as file:
                    version = np.lib.format.read_magic(file)
                    reading = {
                        (1, 0): np.lib.format.read_array_header_1_0,
                        (2, 0): np.lib.format.read_array_header_2_0,
                    }[version]
                    shape, _, dtype = reading(file)
                heads[entry.removesuffix(_ENDING)] = ArrayHead(dtype, shape)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RecordError(f"{path} cannot be read as an .npz file: {reason}.") from error
    return heads


def choose(path: str, heads: dict[str, ArrayHead], wanted: str | None, usual: tuple[str, ...], option: str) -> str:
    """The name of the array to take: the one that is asked for, else the first of the usual ones.

    Raises:
        RecordError: it is not there, or holds no numbers.
    """
    name = wanted or next((name for name in usual if name in heads), "")
    hint = f"Set {option} to the name of an array of numbers."
    if name not in heads:
        asked = f"no array {name!r}" if name else f"none of the arrays {', '.join(usual)}"
        raise RecordError(f"{path} has {asked}; its arrays: {', '.join(sorted(heads)) or 'none'}.", hint)
    if heads[name].dtype.itemsize > _MOST_BITS // 8 and heads[name].dtype.kind in _NUMBERS:
        raise RecordError(
            f"{path}: the array {name!r} is {heads[name].dtype}: numbers have {_MOST_BITS} bits at most.",
            "Store it as float64 or float32.",
        )
    if heads[name].dtype.kind not in _NUMBERS or not heads[name].shape:
        raise RecordError(f"{path}: the array {name!r} is no list of numbers, but {heads[name].dtype}.", hint)
    return name


def read_arrays(path: str, names: tuple[str, ...]) -> tuple[npt.NDArray[Any], ...]:
    """These arrays of a file, whole, in the byte order of this machine: TensorFlow takes all bytes to be in that.

    Raises:
        RecordError: they cannot be read.
    """
    try:
        with np.load(path) as packed:
            arrays = (packed[name] for name in names)
            return tuple(array.astype(array.dtype.newbyteorder("="), copy=False) for array in arrays)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RecordError(f"{path} cannot be read: {reason}.") from error


def see_that_all_are_whole(path: str, name: str, labels: npt.NDArray[Any]) -> None:
    """See that labels are classes, where their type allows for others.

    Raises:
        RecordError: one is no whole number; the message says which.
    """
    if labels.dtype.kind != "f":
        return
    wrong = np.flatnonzero(~(np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < _LARGEST_LABEL)))
    if wrong.size:
        value = labels.reshape(-1)[wrong[0]]
        raise RecordError(
            f"{path}, record {wrong[0] + 1}: the label in {name!r} is {value}, no whole number of a class."
        )
