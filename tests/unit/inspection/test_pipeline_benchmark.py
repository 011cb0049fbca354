"""What a pipeline reads for an element, by the bytes that the process had read when."""

from __future__ import annotations

import pytest

from pipeline_bench.inspection.pipeline_benchmark import _read_for_one

MIB = 1 << 20


@pytest.mark.parametrize(
    ("before", "first", "after", "ended", "expected"),
    [
        (0, 4 * MIB, 8 * MIB, False, MIB),  # what came ahead of the first element fills a buffer
        (0, 4 * MIB, 8 * MIB, True, 8 * MIB / 5),
        (7, 7, 7, False, 0.0),
        (0, 60 * MIB, 60 * MIB + 121, False, None),  # a reader's buffer held all of the file
        (0, 4 * MIB, 4 * MIB, False, None),
        (None, 0, 0, False, None),
    ],
)
def test_what_is_read_for_an_element_is_known_where_files_were_read_behind_the_first(
    before: int | None, first: int, after: int, ended: bool, expected: float | None
) -> None:
    assert _read_for_one(before, first, after, 5, ended) == expected
