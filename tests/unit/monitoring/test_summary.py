"""The figures of a watched job, of which other work leaves out some steps."""

from __future__ import annotations

from pipeline_bench.model.selftest import Checked
from pipeline_bench.monitoring import record as watched
from pipeline_bench.monitoring.summary import VARIANT, disturbed_note, of_result, result_of
from tests.unit.analysis.test_measured import tracks
from tests.unit.records import record


def test_steps_that_others_disturbed_are_in_no_figure_and_told() -> None:
    """Each of the first 50 takes three times as long, while others take the CPU."""
    steps_ms = [30.0] * 50 + [10.0] * 100
    trial = record(VARIANT, 0, steps_ms, 4.0, samples=tracks(2500.0, (0.0, 1500.0)), warmup_steps=0)
    result = result_of(watched._scenario("train.py"), trial, 150, 2, Checked(), None, True)
    assert result.step_ms.mean == 10.0
    assert result.steps == 100
    figures = of_result(result, 150, True)
    assert figures.line.startswith(
        "150 steps, 100 without other work beside them, of 10.0 ms; input wait 4.00 ms (40 %)"
    )
    assert disturbed_note(trial, 150, result) == (
        "50 of the job's 150 steps had other work beside them, and no figure is of those: with them a step takes "
        "16.7 ms"
    )


def test_where_nothing_disturbed_a_job_all_of_its_steps_count() -> None:
    trial = record(VARIANT, 0, [10.0] * 100, 4.0, samples=tracks(1000.0, None), warmup_steps=0)
    result = result_of(watched._scenario("train.py"), trial, 100, 2, Checked(), None, True)
    assert of_result(result, 100, True).line.startswith("100 steps of 10.0 ms; input wait")
    assert disturbed_note(trial, 100, result) is None
