"""The trace: that a viewer can read it, that its times are those measured, and that a long session stays small."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model import Series
from pipeline_bench.model.events import QueueState
from pipeline_bench.model.session import Session, load, save
from pipeline_bench.model.trial import PhaseMark, QueueDepth, Track, TrialRecord, TrialSteps
from pipeline_bench.report import trace
from pipeline_bench.text import TEXT
from tests.unit import hostile, sessions

EXAMPLE = Path(__file__).parents[3] / "reports" / "example"

Event = dict[str, Any]


def validated(text: str) -> list[Event]:
    """The events of a trace, after holding it to the Trace Event Format.

    This is our own reading of that document, not a viewer: its JSON object form, the fields that each phase of event
    must have and their types, counters of finite numbers, names given by metadata, and complete events that lie
    properly within one another on each thread. Perfetto drops a slice that overlaps its neighbour, hence the last.
    It cannot show that a viewer agrees; Perfetto's own trace processor (v52) was tried by hand on the example and on
    a session of 1,000,000 steps, and took every slice and counter without an error.
    """
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(document["metadata"], dict)
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in document["traceEvents"]:
        _valid_event(event)
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    named = {(e["pid"], e["tid"]) for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert set(threads) <= named, "a thread with slices has no name"
    for slices in threads.values():
        _properly_nested(slices)
    return list(document["traceEvents"])


def _valid_event(event: Event) -> None:
    assert event["ph"] in ("X", "C", "i", "M")
    assert isinstance(event["name"], str)
    assert event["name"]
    for key in ("pid", "tid"):
        assert type(event[key]) is int
    assert isinstance(event.get("args", {}), dict)
    if event["ph"] == "M":
        assert event["args"]
        return
    assert isinstance(event["ts"], float | int)
    assert event["ts"] >= 0
    match event["ph"]:
        case "X":
            assert isinstance(event["dur"], float | int)
            assert event["dur"] >= 0
        case "C":
            assert event["args"]
            assert all(type(value) in (int, float) for value in event["args"].values())
        case "i":
            assert event["s"] in ("g", "p", "t")


def _properly_nested(slices: list[Event]) -> None:
    """In whole nanoseconds, as a viewer keeps them; of two that begin together the longer one is outside."""
    spans = [(round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in slices]
    open_ends: list[int] = []
    for start, took in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or start + took <= open_ends[-1], f"a slice at {start} ns overlaps its neighbour"
        open_ends.append(start + took)


def of(events: list[Event], ph: str, name: str = "") -> list[Event]:
    return [event for event in events if event["ph"] == ph and name in event["name"]]


def session_of(*trials: TrialRecord) -> Session:
    return sessions.normal().model_copy(update={"trials": trials})


def trial(start_ns: list[int], end_ns: list[int], wait_ns: list[int] | None = None, **changes: Any) -> TrialRecord:
    steps = TrialSteps(
        start_ns=Series.pack(np.array(start_ns, dtype=np.int64)),
        end_ns=Series.pack(np.array(end_ns, dtype=np.int64)),
        wait_ns=None if wait_ns is None else Series.pack(np.array(wait_ns, dtype=np.int64)),
        loss=Series.pack(np.full(len(start_ns), 0.5)),
    )
    update = {"started_ns": 1000, "ended_ns": 10**9, "steps": steps, "warmup_steps": 0, **changes}
    return sessions.trial(0, "feed_dict", 0).model_copy(update=update)


@pytest.mark.parametrize("session", [sessions.normal(), sessions.troubled(), sessions.pending(), sessions.hostile()])
def test_a_viewer_can_read_it(session: Session) -> None:
    validated(trace.render(session))


def test_the_example_is_drawn_whole() -> None:
    session = load(EXAMPLE)
    events = validated(trace.render(session))
    steps = [event for event in of(events, "X") if event["name"].endswith("step")]
    assert len(steps) == sum(record.steps.count for record in session.trials if record.steps)
    assert len(of(events, "X", "warm-up step")) == sum(record.warmup_steps for record in session.trials)
    assert {event["cat"] for event in steps} == {"warm-up", "measured"}
    assert {event["name"] for event in of(events, "X") if event["cat"] == "phase"} >= {
        "import",
        "build",
        "evaluate",
        "train",
    }
    assert of(events, "C", "CPU utilization")


def test_times_are_on_one_line_from_0_to_the_nanosecond() -> None:
    late = 9 * 10**15  # a machine that has been up for 100 days
    record = trial([late + 1_001, late + 5_000], [late + 4_004, late + 6_000], [500, 3], started_ns=late)
    first, wait, second, _ = of(validated(trace.render(session_of(record))), "X", "")[-4:]
    assert (first["ts"], first["dur"]) == (1.001, 3.003)
    assert (wait["name"], wait["ts"], wait["dur"]) == ("input wait", 1.001, 0.5)
    assert second["ts"] == 5.0


def test_a_wait_that_is_longer_than_its_step_ends_with_it() -> None:
    events = validated(trace.render(session_of(trial([1000, 3000], [2000, 4000], [5000, -7]))))
    assert [event["dur"] for event in of(events, "X", "input wait")] == [1.0, 0.0]


def test_phases_follow_one_another_to_the_trials_end() -> None:
    phases = (PhaseMark(name="import", at_ns=3000), PhaseMark(name="train", at_ns=5000))
    events = validated(trace.render(session_of(trial([], [], phases=phases, ended_ns=9000))))
    found = {event["name"]: (event["ts"], event["dur"]) for event in of(events, "X")}
    assert found == {"start": (0.0, 2.0), "import": (2.0, 2.0), "train": (4.0, 4.0)}


def test_what_went_wrong_is_marked_with_its_reason() -> None:
    queues = (QueueState(name="input", size=0, capacity=5),)
    record = trial([], [], status="stalled", reason="no step ended for 60 s", queues=queues)
    (mark,) = of(validated(trace.render(session_of(record))), "i")
    assert mark["args"] == {"status": "stalled", "reason": "no step ended for 60 s", "queue input": "0 of 5 elements"}
    assert mark["ts"] == (record.ended_ns - record.started_ns) / 1000


def test_counters_carry_what_was_sampled_and_nothing_that_was_not() -> None:
    stamps = Series.pack([1000, 501_000, 1_001_000])
    samples = (
        Track(metric="device_utilization_percent", source="NVML", reason="no driver"),
        Track(metric="memory_bytes", source="psutil", at_ns=stamps, values=Series.pack([1.0, float("nan"), 3.0])),
        Track(metric="cpu_seconds", source="psutil", at_ns=stamps, values=Series.pack([0.0, 0.0005, 0.0005])),
        Track(metric="of_a_plug_in", source="its own", at_ns=stamps, values=Series.pack([1, 2, 3])),
    )
    depths = (QueueDepth(name="input", capacity=5, at_ns=stamps, size=Series.pack([0, 5, 4])),)
    events = validated(trace.render(session_of(trial([], [], samples=samples, queue_depths=depths))))
    assert not of(events, "C", "device utilization")
    assert [event["args"] for event in of(events, "C", "memory")] == [{"bytes": 1.0}, {"bytes": 3.0}]
    # 0.5 ms of CPU in 0.5 ms on two cores, then none
    assert [event["args"] for event in of(events, "C", "CPU")] == [{"percent": 50.0}, {"percent": 0.0}]
    assert [event["args"]["value"] for event in of(events, "C", "of a plug in")] == [1, 2, 3]
    assert [event["args"]["elements"] for event in of(events, "C", "queue input")] == [0, 5, 4]


@pytest.mark.parametrize("name", [*hostile.NAMES, "\ud800"])
def test_a_name_is_a_short_text_on_one_line(name: str) -> None:
    record = trial(
        [1000], [2000], variant=name, status="failed", reason=name, phases=(PhaseMark(name=name, at_ns=2000),)
    )
    text = trace.render(session_of(record))
    for event in validated(text):
        for shown in (event["name"], *(value for value in event.get("args", {}).values() if isinstance(value, str))):
            assert len(shown) <= TEXT
            assert shown.isprintable()
    text.encode("utf-8")
    assert "\\u" not in text, "Perfetto shows an escape as it is written"


def test_a_loss_that_is_no_number_is_told_as_a_word() -> None:
    steps = trial([1000], [2000]).steps
    assert steps is not None
    diverged = steps.model_copy(update={"loss": Series.pack([float("nan")])})
    (step,) = of(validated(trace.render(session_of(trial([1000], [2000], steps=diverged)))), "X", "step")
    assert step["args"]["loss"] == "nan"


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=40),
    st.integers(0, 45),
    st.integers(1, 12),
)
def test_steps_are_drawn_or_merged_without_losing_time(
    parts: list[tuple[int, int, int]], warmup: int, limit: int
) -> None:
    """However few slices there may be, they cover the same steps and the same wait."""
    gaps, took, wait = ([part[i] for part in parts] for i in range(3))
    end = np.cumsum(np.array(gaps) + np.array(took)) + 1000 if parts else np.array([], dtype=np.int64)
    start = end - np.array(took, dtype=np.int64)
    record = trial(start.tolist(), end.tolist(), wait, warmup_steps=warmup)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "STEP_LIMIT", limit)
        session = session_of(record)
        events, merged = validated(trace.render(session)), trace.merged_steps(session)
    drawn = of(events, "X", "step")
    assert len(drawn) <= limit + 2
    assert sum(event["args"].get("steps", 1) for event in drawn) == len(parts)
    if merged == 1:
        assert sum(event["dur"] for event in drawn) == pytest.approx(sum(took) / 1000)
    waited = sum(min(one, other) for one, other in zip(wait, took, strict=True))
    assert sum(event["dur"] for event in of(events, "X", "input wait")) == pytest.approx(waited / 1000)


def test_merged_steps_say_what_they_were() -> None:
    starts = list(range(1000, 13_000, 1000))
    record = trial(starts, [start + 500 for start in starts[:-1]] + [12_900], [100] * 12, warmup_steps=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "STEP_LIMIT", 3)
        text = trace.render(session_of(record))
    assert json.loads(text)["metadata"]["steps_per_slice"] == 4
    names = [event["name"] for event in of(validated(text), "X", "steps")]
    assert names == ["warm-up steps 0–2", "steps 3–6", "steps 7–10", "steps 11–11"]
    last = of(validated(text), "X", "steps")[-1]
    assert last["args"] == {
        "steps": 1,
        "step_ms_mean": 0.0009,
        "step_ms_max": 0.0009,
        "loss": 0.5,
        "input_wait_ms_mean": 0.0001,
    }


@pytest.mark.parametrize(
    ("limit", "names", "took_us", "wait_us", "means_ms"),
    [
        (3, ["warm-up steps 0–9", "steps 10–19", "steps 20–22"], [5.0, 5.0, 2.7], [1.0, 1.0, 0.3], [5e-4, 5e-4, 9e-4]),
        (1, ["warm-up steps 0–9", "steps 10–22"], [5.0, 7.7], [1.0, 1.3], [5e-4, 7.7e-3 / 13]),
    ],
)
def test_a_row_that_is_the_mean_of_several_steps_lasts_as_long_as_they_did(
    limit: int, names: list[str], took_us: list[float], wait_us: list[float], means_ms: list[float]
) -> None:
    """As of a watched job with `steps_per_execution=10`: a row's end is that of one mean step."""
    rows = trial([1000, 6000, 11_000], [1500, 6500, 11_900], [100] * 3).steps
    assert rows is not None
    steps = rows.model_copy(update={"steps": Series.pack([10, 10, 3])})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "STEP_LIMIT", limit)
        text = trace.render(session_of(trial([], [], steps=steps, warmup_steps=1)))
    drawn = of(validated(text), "X", "steps ")
    assert [event["name"] for event in drawn] == names
    assert [event["dur"] for event in drawn] == took_us
    assert [event["args"]["step_ms_mean"] for event in drawn] == pytest.approx(means_ms)
    assert [event["args"]["input_wait_ms_mean"] for event in drawn] == pytest.approx([1e-4] * len(names))
    assert [event["dur"] for event in of(validated(text), "X", "input wait")] == wait_us
    assert "means of several steps" in json.loads(text)["metadata"]["steps"]


@pytest.mark.slow
def test_a_long_session_stays_small_and_keeps_all_its_steps(tmp_path: Path) -> None:
    count = 250_000
    end_ns = np.cumsum(np.random.default_rng(0).integers(900_000, 1_100_000, count)) + 2000
    packed = TrialSteps(
        start_ns=Series.pack(np.concatenate([[1000], end_ns[:-1] + 200])),
        end_ns=Series.pack(end_ns),
        wait_ns=Series.pack(np.full(count, 100_000)),
        loss=Series.pack(np.linspace(1, 0, count)),
    )
    stamps = Series.pack(np.arange(1000, 1000 + count * 1000, 1000))
    samples = (Track(metric="memory_bytes", source="psutil", at_ns=stamps, values=Series.pack(np.arange(count))),)
    save(session_of(*(trial([], [], steps=packed, samples=samples, variant=f"v{i}") for i in range(4))), tmp_path)
    # In a process of its own, whose peak of memory is that of opening and rendering and nothing else: `ru_maxrss`
    # would be at least that of the process which starts it, as Linux carries it across `exec`.
    code = (
        "import pathlib, sys\n"
        "from pipeline_bench.report import trace\n"
        "from pipeline_bench.model.session import load\n"
        "pathlib.Path(sys.argv[1], 'trace.json').write_text(trace.render(load(sys.argv[1])))\n"
        "print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=True, text=True)
    assert int(ended.stdout) < 2**20, "KiB: more than 1 GiB"
    text = (tmp_path / "trace.json").read_text()
    assert len(text) < 100 * 2**20
    events = json.loads(text)["traceEvents"]
    steps = [event for event in events if event["name"].startswith("steps ")]
    assert len(steps) <= trace.STEP_LIMIT
    assert sum(event["args"]["steps"] for event in steps) == 4 * count
    assert len(of(events, "C")) <= 4 * trace.COUNTER_LIMIT
