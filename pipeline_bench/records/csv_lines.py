"""Lines of numbers separated by commas: what a file's columns are, where its lines begin, and what a line holds."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

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


def first_line(path: str) -> bytes:
    """The first line of a file, without its end.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - a path as a string, opened for each of many files
        return file.readline(_FIRST_LINE_LIMIT).replace(b"\r", b"").rstrip(b"\n")


def columns(line: bytes, label: str | int, header: Literal["auto", "yes", "no"]) -> Columns:
    """What the first line says of the columns.

    Args:
        line: the first line of the first file.
        label: the label's column: its name, or its place from 0, negative from the end.
        header: whether the line holds names; ``auto``: it does unless every field of it is a number.

    Raises:
        ValueError: there are fewer than two columns, or no such label; the message says which there are.
    """
    names = fields(line.decode("utf-8-sig", errors="replace"))
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


def fields(line: str) -> list[str]:
    """A line's fields, quotes taken off.

    Raises:
        ValueError: the quotes do not match.
    """
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise ValueError(str(error)) from error


def parse(line: bytes, expected: Columns) -> tuple[npt.NDArray[np.float32], np.int64]:
    """Features [columns - 1] and label of a line; through float64, as TensorFlow's decode_csv does it here.

    Raises:
        ValueError: it has another number of columns, or a field is no number; the message says which.
    """
    found = fields(line.decode("utf-8", errors="replace"))
    if len(found) != expected.count:
        raise ValueError(f"it has {len(found)} columns, not {expected.count}")
    label = found.pop(expected.label)
    values = np.empty(len(found), dtype=np.float64)
    for column, field in enumerate(found):
        values[column] = _number(field, column + (column >= expected.label))
    with np.errstate(over="ignore"):
        features = values.astype(np.float32)
    features[np.abs(features) < _SMALLEST] = 0.0
    return features, _class(label, expected.label)


def line_starts(path: str) -> npt.NDArray[np.int64]:
    """Where each line of a file begins, and last where the file ends, in bytes [lines + 1].

    Raises:
        OSError: it cannot be read.
    """
    starts, offset = [np.zeros(1, dtype=np.int64)], 0
    with open(path, "rb") as file:  # noqa: PTH123
        while block := file.read(_READ_BYTES):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            starts.append(ends.astype(np.int64) + offset + 1)
            offset += len(block)
    found = np.concatenate(starts)
    return found if found[-1] == offset else np.append(found, offset)


def _number(field: str, column: int) -> float:
    # What Python takes for a number and TensorFlow does not: 1_000, and digits of other scripts.
    if "_" in field or not field.isascii():
        raise ValueError(f"column {column + 1} is {field!r}, no number")
    try:
        return float.fromhex(field) if _HEXADECIMAL.fullmatch(field) else float(field)
    except (ValueError, OverflowError):
        raise ValueError(f"column {column + 1} is {field!r}, no number") from None


def _class(field: str, column: int) -> np.int64:
    problem = f"column {column + 1}, the label, is {field!r}, no whole number"
    if "_" in field or not field.isascii():
        raise ValueError(problem)
    try:
        return np.int64(int(field))
    except (ValueError, OverflowError):
        raise ValueError(problem) from None


def _is_number(field: str) -> bool:
    try:
        _number(field, 0)
    except ValueError:
        return False
    return True
