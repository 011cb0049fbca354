"""A job's figures in one line, and its verdict."""

import pytest

from pipeline_bench.analysis.thresholds import NEEDED_STEPS
from pipeline_bench.monitoring.steps import Totals, summarise


def totals(steps: int, step_us: int, wait_us: int) -> Totals:
    return Totals(steps, steps * step_us * 1000, steps, steps * wait_us * 1000, steps * step_us * 1000)


def test_the_line_says_wait_bound_device_and_verdict() -> None:
    line = summarise(totals(100, 4000, 1500), (43.0, "NVML samples"), None).line
    assert line == (
        "100 steps of 4.00 ms; input wait 1.50 ms (38 %); AU at most 0.62; device 43 % (NVML samples); "
        "severely input-bound"
    )


@pytest.mark.parametrize(
    ("wait_us", "kind", "severe"),
    [(99, "inconclusive", False), (100, "input-bound", False), (199, "input-bound", False), (200, "input-bound", True)],
)
def test_the_thresholds_are_those_of_the_findings(wait_us: int, kind: str, severe: bool) -> None:
    verdict = summarise(totals(100, 1000, wait_us), (None, None), None).verdict
    assert (verdict.kind, verdict.severe) == (kind, severe)


def test_what_is_not_input_bound_is_not_called_anything_else() -> None:
    figures = summarise(totals(100, 1000, 10), (None, None), None)
    assert figures.line.endswith("not input-bound")
    assert "cannot be told without a ceiling" in figures.verdict.text
    assert "pipeline-bench diagnose" in figures.verdict.text


def test_a_wait_that_was_not_measured_gives_its_reason_and_no_bound() -> None:
    figures = summarise(Totals(steps=50, time_ns=50 * 10**6), (None, None), "the input is distributed")
    assert figures.line == "50 steps of 1.00 ms; input wait not measured: the input is distributed"
    assert figures.utilization_at_most is None
    assert figures.verdict.kind == "not-measured"
    assert "the input is distributed" in figures.verdict.text


def test_a_few_steps_make_no_verdict() -> None:
    figures = summarise(totals(NEEDED_STEPS - 1, 1000, 900), (None, None), None)
    assert figures.verdict.kind == "inconclusive"
    assert figures.line.endswith("too few steps for a verdict")


def test_nothing_yet_is_not_zero() -> None:
    figures = summarise(Totals(), (None, None), None)
    assert figures.line == "0 steps of –; input wait not measured: no step has ended"


def test_a_wait_beside_a_busy_gpu_bounds_nothing_and_is_never_severe() -> None:
    figures = summarise(totals(100, 1000, 900), (99.0, "NVML samples"), None, device_waits=False)
    assert figures.utilization_at_most is None
    assert (figures.verdict.kind, figures.verdict.severe) == ("input-bound", False)
    assert "severely" not in figures.line + figures.verdict.text
    assert "AU –" in figures.line
