"""The plot over time: its lanes, their heights, and a strip that stays legible with many trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_bench.model import Series
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import QueueDepth, TrialRecord
from pipeline_bench.report import html
from tests.unit import sessions
from tests.unit.report.pages import measured, plot, recorded


def test_the_lanes_share_one_axis_with_phases_and_queue_depths() -> None:
    session = measured(4, 200)
    session = session.model_copy(
        update={"disturbances": (Disturbance(kind="burst", variant="tf_data", repeat=0, text="40 slow steps"),)}
    )
    drawn = plot(session, "timeline")
    titles = " ".join(note["text"] for note in drawn["layout"]["annotations"])
    for lane in ("CPU utilization", "step time", "input wait", "queue depth"):
        assert lane in titles
    texts = [trace["text"] for trace in drawn["data"] if isinstance(trace.get("text"), str)]
    assert {"import", "build", "evaluate", "feed_dict, training"} <= set(texts)
    assert any("40 slow steps" in str(trace["text"]) for trace in drawn["data"] if "text" in trace)
    assert len(drawn["layout"]["shapes"]) == 4
    wait = next(trace for trace in drawn["data"] if trace["yaxis"] == "y4")
    assert [value for value in wait["y"] if value is not None] == pytest.approx([25] * (len(wait["y"]) - 1), rel=1e-3)


def test_a_gpus_lane_is_what_the_gpu_said() -> None:
    session = measured(1, 300, gpu=True)
    drawn = plot(session, "timeline")
    assert "GPU utilization" in drawn["layout"]["annotations"][0]["text"]
    lane = next(trace for trace in drawn["data"] if trace["yaxis"] == "y2")
    assert lane["y"][0] == 0
    assert lane["y"][-2] == pytest.approx(0.1 * (len(lane["y"]) - 2))


def timeline_axis(session: Session, title: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The lane's axis and what is drawn in it."""
    drawn = plot(session, "timeline")
    titles = [note["text"] for note in drawn["layout"]["annotations"]]
    place = 2 + next(i for i, text in enumerate(titles) if title in text)
    return drawn["layout"][f"yaxis{place}"], [trace for trace in drawn["data"] if trace["yaxis"] == f"y{place}"]


def short(index: int, variant: str, step_ms: float) -> TrialRecord:
    """A trial of a first step of 100 ms and 40 short ones, whose queue was looked at once."""
    trial = recorded(index, variant, 41)
    took = np.asarray([100_000_000, *np.full(40, round(step_ms * 1e6))])
    end_ns = trial.started_ns + 10_000_000 + np.cumsum(took)
    queue = QueueDepth(name="input", capacity=5, at_ns=Series.pack([int(end_ns[3])]), size=Series.pack([4]))
    columns = {"start_ns": Series.pack(end_ns - took), "end_ns": Series.pack(end_ns), "wait_ns": None}
    assert trial.steps is not None
    return trial.model_copy(
        update={"steps": trial.steps.model_copy(update=columns), "warmup_steps": 1, "queue_depths": (queue,)}
    )


def many_short(trials: int) -> Session:
    """Trials of two variants by turns, whose steps take 1 and 2 ms."""
    session = sessions.normal()
    records = tuple(
        short(i, ("feed_dict", "tf_data")[i % 2], 1 + i % 2).model_copy(update={"repeat": i // 2})
        for i in range(trials)
    )
    return session.model_copy(update={"trials": records})


def test_first_steps_do_not_set_the_height_of_the_step_times() -> None:
    axis, drawn = timeline_axis(many_short(40), "step time")
    assert axis["range"][1] == pytest.approx(1.5 * 2)
    assert "maxallowed" not in axis  # they can be zoomed out to
    assert max(y for trace in drawn for y in trace["y"] if y is not None) > 50
    timeline = html._plots(many_short(40))["timeline"]
    assert timeline is not None
    assert "Step times are drawn to 3.00 ms, 1.5 × the 95th percentile of the slowest variant's" in timeline.method


def test_a_rare_slow_variant_is_within_the_height_of_the_step_times() -> None:
    session = many_short(40)
    records = (*session.trials, short(40, "ceiling", 9.0))
    axis, _ = timeline_axis(session.model_copy(update={"trials": records}), "step time")
    assert axis["range"][1] == pytest.approx(1.5 * 9)


def test_a_sample_without_a_neighbour_is_a_marker() -> None:
    _, drawn = timeline_axis(many_short(6), "queue depth")
    marked = [trace for trace in drawn if trace["mode"] == "markers"]
    assert [trace["y"] for trace in marked] == [[80, 80, 80]] * 2


def test_many_trials_are_a_box_each_with_numbered_repeats_and_marks_apart() -> None:
    session = many_short(68)
    noise = [
        Disturbance(kind="burst", variant=record.variant, repeat=record.repeat, text="slow steps")
        for record in session.trials
        for _ in range(3)
    ]
    drawn = plot(session.model_copy(update={"disturbances": tuple(noise)}), "timeline")
    said = {trace["text"] for trace in drawn["data"] if trace.get("hoveron") == "fills"}
    assert said == {"feed_dict, training", "tf_data, training"}
    numbered = [note["text"] for note in drawn["layout"]["annotations"] if note["xref"] == "x"]
    assert numbered == ["repeat 1", "11", "21", "31"]
    symbols = [(t["marker"], t) for t in drawn["data"] if "symbol" in t.get("marker", {})]
    triangles = next(trace for marker, trace in symbols if marker["symbol"] == "triangle-up")
    span_s = drawn["layout"]["xaxis"]["range"][1]
    assert len(triangles["x"]) <= 61
    assert np.diff(sorted(triangles["x"])).min() > span_s / 130
    assert all(y < 0 for y in triangles["y"])  # below the boxes
    names = next(trace for trace in drawn["data"] if trace["mode"] == "markers+text")
    assert set(names["text"]) == {""}
    few = next(trace for trace in plot(many_short(4), "timeline")["data"] if trace["mode"] == "markers+text")
    assert set(few["text"]) == {"feed_dict", "tf_data"}
