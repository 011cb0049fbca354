"""A packed column is lossless, and a damaged one is told."""

import base64
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model import Series

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1))
def test_integers_come_back_as_they_were(values: list[int]) -> None:
    packed = Series.model_validate_json(Series.pack(values).model_dump_json())
    assert packed.unpack().tolist() == values
    assert packed.unpack().dtype == np.int64


@given(st.lists(st.floats()))
def test_floats_come_back_bit_by_bit(values: list[float]) -> None:
    packed = Series.model_validate_json(Series.pack(values).model_dump_json())
    assert packed.unpack().tobytes() == np.asarray(values, dtype="<f8").tobytes()


def test_it_is_readable_without_this_package() -> None:
    packed = Series.pack([1, 2, 3])
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed.data)), packed.dtype)
    assert raw.tolist() == [1, 2, 3]


@pytest.mark.parametrize("values", [[2**63], [2**64], ["a"], [None], np.array([2**64 - 1], dtype=np.uint64)])
def test_what_does_not_fit_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="a column holds"):
        Series.pack(values)


def test_another_count_is_told() -> None:
    with pytest.raises(ValueError, match="holds 2 values, but says 3"):
        Series.pack([1, 2]).model_copy(update={"count": 3}).unpack()


@pytest.fixture(scope="module")
def bomb() -> str:
    return base64.b64encode(zlib.compress(bytes(1 << 26), 1)).decode()


@pytest.mark.parametrize("count", [0, 5, 400])
def test_no_more_is_unpacked_than_a_column_says_that_it_holds(bomb: str, count: int) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"holds more than {count} values, but says {count}"):
        Series(dtype="<i8", count=count, data=bomb).unpack()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1 << 24


@pytest.mark.parametrize("count", [-1, 2**60, 10**30])
def test_a_count_that_no_column_has_is_told(count: int) -> None:
    with pytest.raises(ValueError, match="a packed column"):
        Series.pack([1, 2]).model_copy(update={"count": count}).unpack()


@pytest.mark.parametrize("raw", [zlib.compress(bytes(16))[:-5], zlib.compress(bytes(15)), b""])
def test_half_a_column_is_told(raw: bytes) -> None:
    with pytest.raises(ValueError, match="of 2 values is damaged"):
        Series(dtype="<i8", count=2, data=base64.b64encode(raw).decode()).unpack()


@given(st.text())
def test_damage_is_a_value_error(data: str) -> None:
    with pytest.raises(ValueError, match="packed column"):
        Series(dtype="<i8", count=1, data=data).unpack()
