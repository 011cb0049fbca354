"""Lines of numbers: columns, labels, where lines begin, and what a malformed one is told."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.sources.csv import Columns, columns, line_starts, parse

NUMBERS = st.floats(width=32, allow_nan=False, allow_subnormal=False)


@given(st.lists(NUMBERS, min_size=1, max_size=9), st.integers(-(2**63), 2**63 - 1), st.data())
def test_what_was_written_is_read(features: list[float], label: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(features)))
    texts = [repr(np.float32(value).item()) for value in features]
    line = ",".join([*texts[:place], str(label), *texts[place:]]).encode()
    found, found_label = parse(line, Columns(len(features) + 1, place, header=False))
    np.testing.assert_array_equal(found, np.array(features, dtype=np.float32))
    assert found.dtype == np.float32
    assert found_label == label


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"1,2", "it has 2 columns, not 3"),
        (b"", "it has 0 columns, not 3"),
        (b"1,,3", "column 2 is '', no number"),
        (b"1,2,x", "column 3, the label, is 'x', no whole number"),
        (b"1,2,0.5", "column 3, the label, is '0.5', no whole number"),
        (b"1,2,99999999999999999999", "no whole number"),
        (b"1_0,2,3", "column 1 is '1_0', no number"),
        ("1,٣,3".encode(), "column 2 is '٣', no number"),
        (b'1,"2,3', "unexpected end of data"),
        (b"\xff,2,3", "column 1 is"),
    ],
)
def test_a_malformed_line_says_what_is_wrong(line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(line, Columns(3, 2, header=False))


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n"), max_size=9)), st.booleans())
def test_lines_begin_where_the_last_one_ends(lines: list[str], ended: bool) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.csv")
        path.write_bytes(text.encode())
        starts = line_starts(str(path))
    content = text.encode()
    found = [content[start:end] for start, end in pairwise(starts)]
    assert found == [part + b"\n" for part in content.split(b"\n")[:-1]] + [
        part for part in content.split(b"\n")[-1:] if part
    ]


def test_columns_are_what_the_first_line_says() -> None:
    assert columns(b"a,b,class", -1, "auto") == Columns(3, 2, header=True)
    assert columns(b"a,b,class", "a", "auto") == Columns(3, 0, header=True)
    assert columns("\ufeffa, b".encode(), "b", "auto") == Columns(2, 1, header=True)
    assert columns(b"1,2,3,4", 1, "auto") == Columns(4, 1, header=False)
    assert columns(b"1,2,3,4", "3", "yes") == Columns(4, 2, header=True)
    assert columns(b"1,x", -1, "no") == Columns(2, 1, header=False)


@pytest.mark.parametrize(
    ("line", "label", "problem"),
    [
        (b"", -1, "0 column"),
        (b"alone", -1, "1 column"),
        (b"a,b", "c", "no column 'c'; its columns: a, b"),
        (b"1,2", "c", "its first line holds no names"),
        (b"1,2", 2, "no column 2 among its 2"),
    ],
)
def test_a_label_that_is_not_there_is_refused(line: bytes, label: str | int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        columns(line, label, "auto")
