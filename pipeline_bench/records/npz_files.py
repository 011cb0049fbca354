"""What lies in .npz files: the arrays' types and shapes without their content, and the arrays."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.records import RecordError

_NUMBERS = "biuf"
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
    if heads[name].dtype.kind not in _NUMBERS or not heads[name].shape:
        raise RecordError(f"{path}: the array {name!r} is no list of numbers, but {heads[name].dtype}.", hint)
    return name


def read_arrays(path: str, names: tuple[str, ...]) -> tuple[npt.NDArray[Any], ...]:
    """These arrays of a file, whole.

    Raises:
        RecordError: they cannot be read.
    """
    try:
        with np.load(path) as packed:
            return tuple(packed[name] for name in names)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RecordError(f"{path} cannot be read: {reason}.") from error
