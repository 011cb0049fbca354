"""Verdicts: each kind, its thresholds, and when none is given."""

from __future__ import annotations

import pytest

from pipeline_bench import findings
from pipeline_bench.results import summarise
from pipeline_bench.session import Estimate, Result, Verdict
from tests.unit.records import record, scenario


def verdict(step_ms: float, wait_ms: float, ceiling_ms: float, **kwargs: float) -> Verdict:
    trials = [
        each
        for repeat in range(3)
        for each in (
            record("feed_dict", repeat, step_ms, wait_ms, noise=0.002),
            record("ceiling", repeat, ceiling_ms, None, noise=0.002),
        )
    ]
    return summarise(scenario("feed_dict"), trials, cores=2)[0].verdict


@pytest.mark.parametrize(
    ("step_ms", "wait_ms", "ceiling_ms", "kind", "severe"),
    [
        (10.0, 8.5, 1.0, "input-bound", True),
        (10.0, 1.5, 8.2, "input-bound", False),
        (10.0, 0.0, 5.0, "host-bound", True),
        (10.0, 0.1, 8.5, "host-bound", False),
        (10.0, 0.2, 9.6, "compute-bound", False),
        (10.0, 0.7, 8.5, "mixed", False),
        (10.0, 3.0, 5.0, "input-bound", True),
        (10.0, 2.0, 5.0, "host-bound", True),
    ],
)
def test_the_verdict_follows_from_the_largest_part(
    step_ms: float, wait_ms: float, ceiling_ms: float, kind: str, severe: bool
) -> None:
    found = verdict(step_ms, wait_ms, ceiling_ms)
    assert (found.kind, found.severe) == (kind, severe)
    assert kind in found.text


def test_a_queue_whose_producer_sleeps_is_input_bound() -> None:
    """One of the two cases that XProf 2.24 calls 'NOT input-bound': 8.6 ms of wait in a step of 12.0."""
    assert verdict(12.0, 8.6, 1.95).kind == "input-bound"


def test_both_causes_are_named_when_both_are_there() -> None:
    assert "also waits" in verdict(10.0, 2.0, 5.0).text


def estimate(value: float, half: float = 0.001) -> Estimate:
    return Estimate(value=value, ci95=(value - half, value + half))


def result(wait: Estimate, host: Estimate, au: Estimate, trials: int = 3) -> Result:
    return Result(
        variant="v",
        backend="feed_dict",
        status="ok",
        trials=trials,
        steps=300,
        input_wait_share=wait,
        host_slowdown_share=host,
        accelerator_utilization=au,
        verdict=Verdict(kind="not-measured", text=""),
    )


def judged(wait: Estimate, host: Estimate, au: Estimate, **kwargs: object) -> Verdict:
    spread = kwargs.get("spread")
    steps = kwargs.get("steps", 300)
    assert spread is None or isinstance(spread, findings.Spread)
    assert isinstance(steps, int)
    return findings.judge(result(wait, host, au), False, spread, steps)


@pytest.mark.parametrize("half", [0.02, 0.09])
def test_an_interval_across_a_threshold_is_inconclusive_and_says_which(half: float) -> None:
    found = judged(estimate(0.11, half), estimate(0.0), estimate(0.89))
    assert found.kind == "inconclusive"
    assert "input wait" in found.text


def test_an_interval_that_only_touches_the_threshold_from_above_is_a_verdict() -> None:
    assert judged(estimate(0.13, 0.02), estimate(0.0), estimate(0.87)).kind == "input-bound"


def test_a_backend_that_beats_its_ceiling_gets_no_verdict() -> None:
    found = judged(estimate(0.0), estimate(-0.2), estimate(1.2))
    assert found.kind == "inconclusive"
    assert "beats its ceiling" in found.text


def test_a_backend_within_the_noise_of_its_ceiling_is_compute_bound() -> None:
    assert judged(estimate(0.0), estimate(-0.01), estimate(1.01)).kind == "compute-bound"


def test_too_few_steps_get_no_verdict() -> None:
    found = judged(estimate(0.9), estimate(0.0), estimate(0.1), steps=findings.NEEDED_STEPS - 1)
    assert found.kind == "inconclusive"
    assert str(findings.NEEDED_STEPS) in found.text


def test_trials_that_disagree_get_no_verdict() -> None:
    spread = findings.Spread(disjoint=True, share="input wait", lowest=0.1, highest=0.9)
    found = judged(estimate(0.5), estimate(0.0), estimate(0.5), spread=spread)
    assert found.kind == "inconclusive"
    assert "disagree" in found.text


def test_trials_apart_by_less_than_their_own_spread_are_no_disagreement() -> None:
    spread = findings.Spread(disjoint=False, share="input wait", lowest=0.1, highest=0.9)
    assert judged(estimate(0.5), estimate(0.0), estimate(0.5), spread=spread).kind == "input-bound"


def test_the_ceiling_is_the_reference_and_not_judged() -> None:
    trials = [record("ceiling", repeat, 5.0, None) for repeat in range(3)]
    found = summarise(scenario("feed_dict"), trials, cores=2)[1].verdict
    assert found.kind == "ceiling"


def test_a_large_but_uncertain_wait_is_not_passed_over_for_a_small_certain_slowdown() -> None:
    found = judged(estimate(0.30, 0.25), estimate(0.12), estimate(0.58))
    assert found.kind == "inconclusive"
    assert "input wait" in found.text


@pytest.mark.parametrize(("wait", "host", "au"), [(0.6, -0.55, 0.95), (0.0, -0.3, 1.3)])
def test_parts_that_exceed_the_step_get_no_verdict(wait: float, host: float, au: float) -> None:
    found = judged(estimate(wait), estimate(host), estimate(au))
    assert found.kind == "inconclusive"
    assert "beats its ceiling" in found.text


def test_the_larger_uncertain_share_is_the_one_that_is_named() -> None:
    found = judged(estimate(0.05, 0.06), estimate(0.30, 0.25), estimate(0.65, 0.3))
    assert "host slowdown" in found.text


def test_without_an_interval_nothing_is_severe_and_the_sentence_says_why() -> None:
    bare = (Estimate(value=0.5, reason="one"), Estimate(value=0.1, reason="one"), Estimate(value=0.4, reason="one"))
    found = findings.judge(result(*bare), False, None, 300)
    assert (found.kind, found.severe) == ("input-bound", False)
    assert "no interval" in found.text
