"""The search for the record that a trial failed at: where it begins, when it ends, and what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.worker import bad_record


class Records:
    """Records of which one is bad, each of which takes a second to try."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad
        self.tried: list[int] = []

    def __call__(self, place: int) -> str | None:
        self.tried.append(place)
        return f"record {place} is bad" if place == self.bad else None

    def clock(self) -> float:
        return 100.0 + len(self.tried)


@given(st.integers(1, 40), st.data())
def test_wherever_it_begins_every_record_is_tried_until_the_bad_one(records: int, data: st.DataObject) -> None:
    bad, first = data.draw(st.integers(0, records - 1)), data.draw(st.integers(0, 3 * records))
    tries = Records(bad)
    result = bad_record.search(bad_record._indices(first, records), tries, limit_s=1e9, clock=tries.clock)
    assert result == (f"record {bad} is bad", len(tries.tried))
    assert tries.tried[0] == first % records
    assert tries.tried[-1] == bad
    assert len(set(tries.tried)) == len(tries.tried)


def test_none_is_tried_twice() -> None:
    tries = Records()
    assert bad_record.search(bad_record._indices(5, 8), tries, limit_s=1e9, clock=tries.clock) == (None, 8)
    assert sorted(tries.tried) == list(range(8))


@pytest.mark.parametrize(("limit_s", "tried"), [(0, 1), (3, 3), (2.5, 3)])
def test_it_ends_with_its_time_but_not_before_it_has_tried_one(limit_s: float, tried: int) -> None:
    tries = Records(bad=50)
    assert bad_record.search(bad_record._indices(0, 100), tries, limit_s, tries.clock) == (None, tried)


def test_it_stays_well_within_the_stall_timeout() -> None:
    assert bad_record.search_limit_s(600) == 20
    assert bad_record.search_limit_s(10) == 5


def test_the_indices_are_a_matter_of_the_source_and_not_of_the_epoch() -> None:
    assert list(bad_record._indices(23, 10)) == [3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


class TensorFlowError(Exception):
    """An error with a message of its own, as TensorFlow's have."""

    def __init__(self, message: str) -> None:
        super().__init__("more than anybody wants to read")
        self.message = message


def errors() -> Iterator[tuple[BaseException, str]]:
    yield ValueError("one\ntwo"), "ValueError: one"
    yield ValueError(), "ValueError"
    yield PipelineBenchError("A thing is so.", "Do this."), "A thing is so. Do this."
    yield PipelineBenchError("A thing is so."), "A thing is so."
    yield TensorFlowError("Graph execution error:\n\nDetected at node\n  bad JPEG\n"), "TensorFlowError: bad JPEG"


@pytest.mark.parametrize(("error", "text"), list(errors()), ids=lambda value: type(value).__name__)
def test_an_error_is_said_by_its_type_and_its_first_telling_line(error: BaseException, text: str) -> None:
    assert bad_record.explained(error) == text


def test_what_was_not_found_says_how_far_was_looked() -> None:
    assert "(all 2,048 records of the source" in bad_record._not_found("X", 2048, 2048)
    assert "(17 of 2,048 records of the source" in bad_record._not_found("X", 17, 2048)
