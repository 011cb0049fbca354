"""The parts of a page: safe labels and JSON, series thinned out, colours that can be told from both backgrounds."""

from __future__ import annotations

import html as stdlib_html
import json
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model import Series
from pipeline_bench.model.result import Estimate, Precision
from pipeline_bench.report import facts, html
from pipeline_bench.report.html import content, elements, lanes, plots
from pipeline_bench.report.html.timeline import POINTS
from pipeline_bench.text import one_line
from tests.unit import records, sessions
from tests.unit.analysis.test_measured import trials
from tests.unit.report.pages import DARK_BACKGROUND, LIGHT_BACKGROUND, Page, measured, plot, recorded

TIMES = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=300).map(sorted)
LIMIT_BYTES = 5_000_000
LIMIT_PEAK_BYTES = 500_000_000


@given(st.text())
def test_a_label_is_read_back_as_the_text(given_text: str) -> None:
    label = elements.label(given_text)
    assert not re.search("[<>]", label)
    assert stdlib_html.unescape(label) == one_line(given_text, elements.LABEL_LIMIT)


@given(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.none(),
        lambda part: st.lists(part) | st.dictionaries(st.text(), part),
    )
)
def test_inlined_json_says_the_same_and_cannot_end_its_element(value: Any) -> None:
    inlined = elements.json_block(value)
    assert not re.search("[<>&]", inlined)
    assert json.loads(inlined) == value


def test_a_number_that_is_not_finite_is_a_gap() -> None:
    assert json.loads(elements.json_block([1.0, float("nan"), float("inf")])) == [1.0, None, None]


@given(TIMES, st.integers(1, 50))
def test_bins_are_at_most_so_many_and_hold_everything(times: list[float], count: int) -> None:
    at_s = np.asarray(times)
    starts = lanes.bins(at_s, count)
    assert 1 <= len(starts) <= count
    assert starts[0] == 0
    assert bool(np.all(np.diff(starts) > 0))
    sizes = np.diff(starts, append=len(at_s))
    assert float(np.sum(lanes.means(at_s, starts) * sizes)) == pytest.approx(float(at_s.sum()))


def test_a_clock_that_went_back_is_put_in_order() -> None:
    at_s, values = lanes.ascending(np.asarray([2.0, 1.0, 3.0]), np.asarray([20.0, 10.0, 30.0]))
    assert at_s.tolist() == [1, 2, 3]
    assert values.tolist() == [10, 20, 30]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio of two elements."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


EVERY_SHADE = {*elements.SHADES.values(), *elements.VARIANTS, *elements.PHASES.values(), elements.DEVICE}


@pytest.mark.parametrize("shade", sorted(EVERY_SHADE))
def test_a_shade_reads_on_white_and_on_near_black_and_carries_text(shade: str) -> None:
    assert contrast(shade, LIGHT_BACKGROUND) >= 3
    assert contrast(shade, DARK_BACKGROUND) >= 3
    assert contrast(shade, elements.ON_COLOUR) >= 4.3


def test_the_backgrounds_are_those_of_the_style_sheet() -> None:
    style = html._file("page.css")
    assert f"--paper: {LIGHT_BACKGROUND}" in style
    assert f"--paper: {DARK_BACKGROUND}" in style
    assert elements.ON_COLOUR in style


def test_the_bars_are_the_parts_of_the_step() -> None:
    session = sessions.normal()
    drawn = plot(session, "split")["data"]
    assert [bar["name"] for bar in drawn] == ["input wait", "compute", "host slowdown"]
    assert len({bar["marker"]["pattern"]["shape"] for bar in drawn}) == 3  # told apart without their colours
    feed_dict = session.results[0]
    parts = (feed_dict.input_wait_ms, feed_dict.ceiling_ms, feed_dict.host_slowdown_ms)
    assert [bar["x"][0] for bar in drawn] == [pytest.approx(part.value, rel=1e-5) for part in parts]


def test_a_part_below_nothing_is_not_drawn_and_still_in_the_table() -> None:
    below = Estimate(value=-0.4, ci95=(-0.5, -0.3))
    result = sessions.normal().results[0].model_copy(update={"host_slowdown_ms": below})
    figure = plots.split([result])
    assert figure is not None
    assert figure.data[2]["x"] == [0.0]
    assert any(cell.text == "-0.40" for cell in figure.table.rows[0])


def test_every_interval_is_drawn_from_its_low_to_its_high_end() -> None:
    result = sessions.normal().results[0]
    drawn = plot(sessions.normal(), "step-time")["data"][0]
    assert result.step_ms.ci95 is not None
    low, high = result.step_ms.ci95
    assert drawn["x"][0] - drawn["error_x"]["arrayminus"][0] == pytest.approx(low, rel=1e-4)
    assert drawn["x"][0] + drawn["error_x"]["array"][0] == pytest.approx(high, rel=1e-4)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((1.3, 17.0), [2, 5, 10]), ((0.04, 0.9), [0.05, 0.1, 0.2, 0.5]), ((0.02, 300.0), [0.1, 1, 10, 100])],
)
def test_a_logarithmic_axis_is_labelled_at_1_2_and_5(ends: tuple[float, float], expected: list[float]) -> None:
    session = sessions.normal()
    spread = np.concatenate([np.full(500, ends[0] * 1e6), np.full(500, ends[1] * 1e6)]).astype(np.int64)
    end_ns = 10**12 + np.cumsum(spread)
    one = recorded(0, "feed_dict", 1000)
    assert one.steps is not None
    columns = one.steps.model_copy(update={"start_ns": Series.pack(end_ns - spread), "end_ns": Series.pack(end_ns)})
    trial = one.model_copy(update={"steps": columns, "warmup_steps": 0})
    median = session.results[0].step_ms.model_copy(update={"median": ends[0] * 2})
    session = sessions.with_result(session, "feed_dict", step_ms=median).model_copy(update={"trials": (trial,)})
    axis = plot(session, "distribution")["layout"]["xaxis"]
    assert axis["type"] == "log"
    assert axis["tickvals"] == expected
    assert axis["ticktext"] == [f"{tick:g}" for tick in expected]


def test_steps_beside_other_work_are_not_in_the_histograms_and_counted_below_them() -> None:
    session, undisturbed = (records.session(records.scenario("feed_dict"), trials(at)) for at in ((200.0, 400.0), None))
    drawn = html._plots(session)["distribution"]
    assert drawn is not None
    shown = sum(int(row[1].text) for row in drawn.table.rows)
    left_out = sum(trial.step_ns.size for trial in session.trials if trial.measured) - shown
    assert left_out > 0
    assert drawn.method.startswith(f"Every step that counts, warm-up and {left_out} steps beside other work left out;")
    quiet = html._plots(undisturbed)["distribution"]
    assert quiet is not None
    assert quiet.method.startswith("Every step that counts, warm-up left out;")


@pytest.mark.parametrize(("high", "is_cut"), [(0.98, False), (1.4, False), (2.5, True)])
def test_an_interval_beyond_the_axis_of_utilization_ends_in_an_arrow_that_is_explained(
    high: float, is_cut: bool
) -> None:
    session = sessions.normal()
    wide = Estimate(value=0.9, ci95=(0.2, high))
    result = session.results[0].model_copy(update={"accelerator_utilization": wide})
    figure = plots.utilization(session, [result])
    assert figure is not None
    end = figure.layout["xaxis"]["range"][1]
    assert (100 * high > end) == is_cut
    assert end <= 160
    arrows = [trace for trace in figure.data if trace.get("name") == "beyond the axis"]
    assert [trace["x"] for trace in arrows] == ([[end]] if is_cut else [])
    assert ("ends in an arrow" in figure.method) == is_cut
    assert ("above 100 %" in figure.method) == (high > 1)


@pytest.mark.slow
def test_a_million_steps_are_a_page_of_the_usual_size() -> None:
    session = measured(4, 250_000)
    html._plotly()
    tracemalloc.start()
    page = html.render(session)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(page.encode()) < LIMIT_BYTES
    assert peak < LIMIT_PEAK_BYTES
    longest = max(len(trace["x"]) for figure in Page(page).plots for trace in figure["data"])
    assert longest < 2 * POINTS


@pytest.mark.slow
def test_an_hour_of_short_trials_is_a_page_within_the_limit() -> None:
    session = measured(4, 60)
    one = session.trials[0]
    trials = tuple(
        one.model_copy(update={"started_ns": one.started_ns + i * 10**9, "ended_ns": one.ended_ns + i * 10**9})
        for i in range(3600)
    )
    page = html.render(session.model_copy(update={"trials": trials}))
    assert len(page.encode()) < LIMIT_BYTES
    assert "3200 more are in the session file" in page


@pytest.mark.parametrize(("text", "said"), [("the budget was spent", "The budget was spent."), ("", "")])
def test_how_the_adding_of_repeats_ended_is_a_sentence(text: str, said: str) -> None:
    goal = Precision(goal=0.02, budget_s=600, repeats=9, ended_by="budget", text=text)
    assert facts.precision(sessions.normal().model_copy(update={"precision": goal})) == said


@pytest.mark.parametrize(
    ("step_ms", "rate_ends", "said"),
    [
        (0.0761, (0.9, 1.1), "76.1 µs (69.2 to 84.6 µs)"),
        (12.3, (0.9, 1.1), "12.3 ms (11.2 to 13.7 ms)"),
        (1.02, (0.9, 1.1), "1.02 ms (927 µs to 1.13 ms)"),
        (1230.0, (0.9, 1.1), "1.23 s (1.12 to 1.37 s)"),
    ],
)
def test_a_step_has_its_interval_with_its_own_unit(step_ms: float, rate_ends: tuple[float, float], said: str) -> None:
    (first, *_) = sessions.normal().results
    step = first.step_ms.model_copy(update={"mean": step_ms})
    ends = tuple(end * 1000 for end in rate_ends)
    result = first.model_copy(update={"step_ms": step, "samples_per_second": 1000.0, "samples_per_second_ci95": ends})
    figure = plots.step_time([result])
    assert figure is not None
    assert f"feed_dict: {said}." in figure.alt


def test_rows_that_are_the_means_of_several_steps_count_as_so_many() -> None:
    """Epochs of a call of 50 steps and one of a single one, which alone waits, as with `steps_per_execution`."""
    trial = records.record("tf_data", 0, [1.0, 9.0] * 40, 0.0, warmup_steps=2)
    assert trial.steps is not None
    columns = {"steps": Series.pack([50, 1] * 40), "wait_ns": Series.pack([0, 7_000_000] * 40)}
    kept = trial.model_copy(update={"steps": trial.steps.model_copy(update=columns)})
    session = records.session(records.scenario("tf_data", repeats=1), [kept])
    plots = html._plots(session)
    tables = [drawn.table for drawn in (plots["timeline"], plots["distribution"]) if drawn is not None]
    cells = [{head: cell.text for head, cell in zip(each.heads, each.rows[0], strict=True)} for each in tables]
    assert [each["steps"] for each in cells] == ["2040", str(39 * 51)]
    assert cells[0]["median step, ms"] == "1.00"
    assert cells[0]["input wait"] == "12 %"


def test_rounds_that_a_budget_ended_are_no_trials_that_are_missing() -> None:
    session = sessions.normal()
    two_rounds = session.model_copy(update={"trials": session.trials[:8]})
    assert content.missing(two_rounds) == ["8 of 12 planned trials ended."]
    ended = Precision(goal=None, budget_s=20, repeats=2, ended_by="budget")
    assert content.missing(two_rounds.model_copy(update={"precision": ended})) == []
    stopped = ended.model_copy(update={"ended_by": "interrupted"})
    told = ["It was interrupted after 2 rounds."]
    assert content.missing(two_rounds.model_copy(update={"precision": stopped})) == told
