"""Events survive the pipe; what is no event is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.errors import ProtocolError
from pipeline_bench.model import Series, events

NS = st.integers(0, 2**62)
TEXT = st.text(max_size=20)
SERIES = st.lists(NS, max_size=5).map(Series.pack)
STACKS = st.builds(events.Stack, thread=TEXT, frames=st.lists(TEXT, max_size=3).map(tuple))
QUEUES = st.builds(events.QueueState, name=TEXT, size=st.none() | NS, capacity=NS)
EVENTS: st.SearchStrategy[events.Event] = st.one_of(
    st.builds(events.Hello, version=st.just(events.EVENTS_VERSION), pid=NS, at_ns=NS),
    st.builds(events.Phase, name=TEXT, at_ns=NS),
    st.builds(events.Device, kind=st.sampled_from(["cpu", "gpu"]), name=TEXT, pci_bus_id=st.none() | TEXT),
    st.builds(events.Steps, first=NS, start_ns=SERIES, end_ns=SERIES, wait_ns=st.none() | SERIES, loss=SERIES),
    st.builds(
        events.Stalled,
        phase=TEXT,
        steps=NS,
        queues=st.lists(QUEUES, max_size=2).map(tuple),
        stacks=st.lists(STACKS, max_size=2).map(tuple),
    ),
    st.builds(events.Evaluated, when=st.sampled_from(["before", "after"]), accuracy=st.floats(0, 1)),
    st.builds(events.Work, steps=NS, skipped=NS, skipped_records=st.lists(TEXT, max_size=3).map(tuple)),
    st.builds(events.Failed, error=TEXT),
    st.builds(events.Done, at_ns=NS),
)


@given(EVENTS)
def test_an_event_is_one_line_that_says_the_same(event: events.Event) -> None:
    line = events.encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert events.decode(line) == event


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_garbage_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        events.decode(line)


@given(EVENTS, st.data())
def test_half_an_event_is_a_protocol_error(event: events.Event, data: st.DataObject) -> None:
    line = events.encode(event)
    with pytest.raises(ProtocolError):
        events.decode(line[: data.draw(st.integers(0, len(line) - 3))])


@pytest.mark.parametrize(
    "line", [b'{"event":"done"}', b'{"event":"done","at_ns":1,"more":2}', b'{"event":"party"}', b'{"at_ns":1}']
)
def test_missing_and_surplus_fields_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        events.decode(line)


def test_another_version_is_told_with_both_numbers() -> None:
    other = events.encode(events.Hello(version=events.EVENTS_VERSION + 1, pid=1, at_ns=1))
    with pytest.raises(ProtocolError, match=f"version {events.EVENTS_VERSION + 1} .* speaks {events.EVENTS_VERSION}"):
        events.decode(other)


def test_a_complaint_shows_no_more_than_the_beginning() -> None:
    with pytest.raises(ProtocolError) as caught:
        events.decode(b"x" * 100_000)
    assert len(caught.value.message) < 300
