"""Where the records of a TFRecord file lie, from the lengths that stand before them; nothing else of it is read.

The format (tensorflow/core/lib/io/record_writer.h): of each record its length (uint64, little-endian), a masked CRC-32C
of the length (uint32), the bytes, and a masked CRC-32C of the bytes (uint32).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_bench.text import units

HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4
WRONG_CHECKSUM = "its bytes do not match their checksum"
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_GZIP_MAGIC, _ZLIB_MAGIC = b"\x1f\x8b", b"\x78"


@dataclass(frozen=True)
class TfrecordIndex:
    """The records of one file, in their order, up to its end or the first one that is damaged."""

    offsets: npt.NDArray[np.int64]
    """Where each record's header begins, in bytes."""
    lengths: npt.NDArray[np.int64]
    """How many bytes each record has, without header and footer."""
    problem: str = ""
    """What is wrong with the next record; nothing after it can be found. Empty: the file is whole."""


def read_index(path: str) -> TfrecordIndex:
    """Walk over the headers of a file.

    Raises:
        OSError: it cannot be read.
    """
    offsets, lengths, problem = [], [], ""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size_bytes, offset = os.fstat(descriptor).st_size, 0
        while offset < size_bytes:
            header = os.pread(descriptor, HEADER.size, offset)
            problem = header_problem(header, size_bytes - offset)
            if problem:
                break
            length, _ = HEADER.unpack(header)
            offsets.append(offset)
            lengths.append(length)
            offset += HEADER.size + length + FOOTER_BYTES
    finally:
        os.close(descriptor)
    return TfrecordIndex(np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64), problem)


def header_problem(header: bytes, left_bytes: int) -> str:
    """What is wrong with a record, going by its header and the bytes from there to the file's end; empty: nothing."""
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


def footer_problem(path: str, offset: int, length: int) -> str:
    """What is wrong with the bytes of a record, whose header begins at `offset`; empty: nothing.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - a path as a string
        file.seek(offset + HEADER.size)
        data, footer = file.read(length), file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES:
        return "the file ends in the middle of it"
    return "" if int.from_bytes(footer, "little") == masked_crc32c(data) else WRONG_CHECKSUM


def masked_crc32c(data: bytes) -> int:
    """The checksum of bytes: CRC-32C (Castagnoli), rotated and added to as TFRecord files have it.

    Meant for a few bytes: a megabyte takes some 0.1 s.
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _table() -> list[int]:
    entries = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        entries.append(crc)
    return entries


_TABLE = _table()
