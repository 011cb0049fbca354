"""The page cache of this machine, on real files, and how the files of an epoch are laid out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.sources import page_cache
from pipeline_bench.sources.page_cache import PAGE_BYTES, FileRange, Layout
from pipeline_bench.sources.records import RecordFile

PAGES = 64


@pytest.fixture
def file(tmp_path: Path) -> FileRange:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(PAGES * PAGE_BYTES))
    return FileRange(str(path), 0, PAGES * PAGE_BYTES)


def laid_out(*records: int) -> Layout:
    """Files of so many records, of 1000 bytes each."""
    files, first = [], 0
    for index, count in enumerate(records):
        files.append(RecordFile(f"f{index}", first, count, 1000 * count))
        first += count
    return Layout(files)


def test_a_file_is_evicted_and_read_again(file: FileRange) -> None:
    assert page_cache.why_unknown(file.path) is None
    assert page_cache.resident_pages(file) == (PAGES, PAGES)
    page_cache.evict(file, sync=True)
    if page_cache.resident_pages(file)[0] == PAGES:
        pytest.skip("this file system does not evict: tmpfs has no other place for its pages")
    assert page_cache.resident_pages(file) == (0, PAGES)
    assert sum(page_cache.read(file)) == file.end
    assert page_cache.resident_pages(file) == (PAGES, PAGES)


def test_a_part_of_a_file_is_evicted_alone(tmp_path: Path) -> None:
    """Of a large file: the kernel keeps pages in groups of up to 2 MiB, and a group that is cut through stays."""
    path, size_bytes = tmp_path / "data", 16 << 20
    path.write_bytes(bytes(size_bytes))
    whole = FileRange(str(path), 0, size_bytes)
    page_cache.evict(whole._replace(end=size_bytes // 2), sync=True)
    first, rest = whole._replace(end=size_bytes // 4), whole._replace(start=size_bytes // 2)
    if page_cache.resident_pages(first)[0]:
        pytest.skip("this file system does not evict: tmpfs has no other place for its pages")
    resident, pages = page_cache.resident_pages(rest)
    assert pages == size_bytes // 2 // PAGE_BYTES
    assert resident > 0.9 * pages  # of a machine that is short of memory, the kernel may take some


def test_what_is_written_and_not_synced_stays(tmp_path: Path) -> None:
    """Some of it: the kernel begins to write when it is asked, and drops what has reached the storage by then."""
    path, size_bytes = tmp_path / "data", 16 << 20
    path.write_bytes(bytes(size_bytes))
    file = FileRange(str(path), 0, size_bytes)
    page_cache.evict(file, sync=True)
    if page_cache.resident_pages(file)[0]:
        pytest.skip("this file system does not evict: tmpfs has no other place for its pages")

    def stays(drop: Callable[[], None]) -> bool:
        # In place: of a file that was cut to nothing, file systems begin to write the new content when it is closed.
        with path.open("r+b", buffering=0) as written:
            written.write(bytes(size_bytes))
            drop()
            return page_cache.resident_pages(file)[0] > 0

    def dropped_by_the_kernel() -> None:
        with path.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, size_bytes, os.POSIX_FADV_DONTNEED)

    stayed = 0
    for _ in range(30):
        if stays(lambda: page_cache.evict(file)):
            return
        stayed += stays(dropped_by_the_kernel)
    assert stayed < 3, "to evict it has waited for the storage"
    pytest.skip("the storage takes what is written before the kernel has looked at it")


def test_what_is_read_from_storage_is_counted(file: FileRange) -> None:
    try:
        before = page_cache.storage_bytes_read()
    except OSError as error:
        pytest.skip(f"this kernel does not tell: {error}")
    page_cache.evict(file, sync=True)
    if page_cache.resident_pages(file)[0]:
        pytest.skip("this file system does not evict: tmpfs has no other place for its pages")
    list(page_cache.read(file))
    assert page_cache.storage_bytes_read() - before >= file.end


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    missing = FileRange(str(tmp_path / "missing"), 0, 1)
    for call in (page_cache.evict, page_cache.resident_pages, lambda part: list(page_cache.read(part))):
        with pytest.raises(OSError, match="missing"):
            call(missing)
    assert "cannot be checked" in str(page_cache.why_unknown(missing.path))


def test_another_users_file_is_one_that_the_kernel_does_not_tell_of(
    file: FileRange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "another user's" in str(page_cache.why_unknown(file.path))


def test_nothing_has_no_pages(file: FileRange) -> None:
    assert page_cache.resident_pages(file._replace(end=0)) == (0, 0)


RECORDS = st.lists(st.integers(1, 20), min_size=1, max_size=10)


@given(RECORDS, st.data())
def test_the_parts_of_some_records_hold_all_of_them_and_nothing_else(records: list[int], data: st.DataObject) -> None:
    layout = laid_out(*records)
    first = data.draw(st.floats(0, sum(records)))
    end = data.draw(st.floats(first, sum(records)))
    parts = list(layout.parts(first, end))
    assert sum(part.end - part.start for part in parts) == pytest.approx((end - first) * 1000, abs=len(records))
    names = [part.path for part in parts]
    assert names == sorted(set(names), key=lambda name: int(name[1:]))


@given(RECORDS, st.data())
def test_the_part_at_a_record_begins_there_and_ends_with_its_file(records: list[int], data: st.DataObject) -> None:
    layout = laid_out(*records)
    place = data.draw(st.floats(0, sum(records), exclude_max=True))
    part = layout.at(place, 1500)
    file = int(part.path[1:])
    assert abs(part.start - 1000 * (place - sum(records[:file]))) <= 1  # a byte
    assert part.end == min(part.start + 1500, 1000 * records[file])


def test_what_records_take_is_whole_pages() -> None:
    layout = laid_out(1, 1, 1, 1)
    assert layout.size_bytes == 4000
    assert layout.bytes_of(2) == 2 * PAGE_BYTES
