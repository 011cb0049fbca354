"""The index of a TFRecord file: whole files, and files that were cut or changed anywhere."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.sources.tfrecord import FOOTER_BYTES, HEADER, TfrecordIndex, masked_crc32c, read_index

RECORDS = st.lists(st.binary(max_size=40), max_size=6)


def written(records: list[bytes]) -> bytes:
    parts = []
    for record in records:
        length = len(record).to_bytes(8, "little")
        parts += [HEADER.pack(len(record), masked_crc32c(length)), record, masked_crc32c(record).to_bytes(4, "little")]
    return b"".join(parts)


def indexed(content: bytes) -> TfrecordIndex:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tfrecord")
        path.write_bytes(content)
        return read_index(str(path))


def test_the_checksum_is_that_of_the_format() -> None:
    """CRC-32C of 123456789 is 0xE3069283 (RFC 3720, B.4, by the same polynomial); masked as record files have it."""
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@given(RECORDS)
def test_every_record_of_a_whole_file_is_found(records: list[bytes]) -> None:
    content = written(records)
    index = indexed(content)
    assert not index.problem
    found = [content[at + HEADER.size :][:size] for at, size in zip(index.offsets, index.lengths, strict=True)]
    assert found == records


@given(RECORDS.filter(bool), st.data())
def test_of_a_cut_file_the_whole_records_are_found(records: list[bytes], data: st.DataObject) -> None:
    content = written(records)
    cut = data.draw(st.integers(0, len(content) - 1))
    index = indexed(content[:cut])
    ends = [sum(HEADER.size + len(record) + FOOTER_BYTES for record in records[: i + 1]) for i in range(len(records))]
    assert len(index.offsets) == sum(end <= cut for end in ends)
    assert bool(index.problem) == (cut not in (0, *ends))


@given(RECORDS.filter(bool), st.data())
def test_a_changed_length_is_noticed(records: list[bytes], data: st.DataObject) -> None:
    content = bytearray(written(records))
    content[data.draw(st.integers(0, 11))] ^= 1 << data.draw(st.integers(0, 7))
    index = indexed(bytes(content))
    assert len(index.offsets) == 0
    assert "does not match its checksum" in index.problem


def test_a_compressed_file_is_suspected() -> None:
    assert indexed(gzip.compress(written([b"abc"]))).problem.endswith("is the file compressed?")


def test_a_length_beyond_the_file_says_how_much_is_missing() -> None:
    assert indexed(written([b"x" * 2000])[:1000]).problem == "it has 1.97 KiB and the file ends after 1000 B of them"


def test_a_file_that_is_not_there_is_the_systems_error() -> None:
    with pytest.raises(FileNotFoundError):
        read_index("/nonexistent/a.tfrecord")
