"""A packed column is lossless, and a damaged one is told."""

import base64
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.series import Series

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


def test_no_values_are_a_column_too() -> None:
    assert Series.pack([]).count == 0
    assert Series.pack([]).unpack().size == 0


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


@given(st.text())
def test_damage_is_a_value_error(data: str) -> None:
    with pytest.raises(ValueError, match="packed column"):
        Series(dtype="<i8", count=1, data=data).unpack()
