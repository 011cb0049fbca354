"""Verdicts: each kind, its thresholds, and when none is given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench import findings
from pipeline_bench.results import summarise
from pipeline_bench.session import Disturbance, Estimate, Result, Verdict
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


# --- disturbances ----------------------------------------------------------------------------------------------------


def disturbed(
    cost: float | None, repeat: int = 1, variant: str = "v", text: str = "others took the CPU"
) -> Disturbance:
    return Disturbance(kind="cpu-contention", variant=variant, repeat=repeat, cost_share=cost, text=text)


def judged_with(wait: float, host: float, au: float, *found: Disturbance, half: float = 0.01) -> Verdict:
    figures = result(estimate(wait, half), estimate(host, half), estimate(au, half))
    return findings.judge(figures, False, None, 300, found)


def test_a_disturbance_that_could_have_decided_makes_a_verdict_inconclusive_and_is_its_reason() -> None:
    assert judged_with(0.12, 0.0, 0.88).kind == "input-bound"
    found = judged_with(0.12, 0.0, 0.88, disturbed(0.2))
    assert found.kind == "inconclusive"
    for part in ("input wait is 12 % (11 % to 13 %)", "the line at 10 %", "in repeat 2 others took the CPU"):
        assert part in found.text


def test_a_verdict_far_from_its_line_stands_with_all_its_words() -> None:
    assert judged_with(0.70, 0.0, 0.30, disturbed(0.05)) == judged_with(0.70, 0.0, 0.30)


@pytest.mark.parametrize(
    ("wait", "host", "au", "kind"), [(0.0, 0.12, 0.88, "host-bound"), (0.0, 0.0, 0.92, "compute-bound")]
)
@pytest.mark.parametrize("variant", ["v", "ceiling"])
def test_what_rests_on_the_ceiling_is_spoilt_by_the_ceilings_disturbances_too(
    wait: float, host: float, au: float, kind: str, variant: str
) -> None:
    assert judged_with(wait, host, au).kind == kind
    found = judged_with(wait, host, au, disturbed(0.2, variant=variant))
    assert found.kind == "inconclusive"
    assert ("of its ceiling" in found.text) == (variant == "ceiling")


def test_the_input_wait_does_not_rest_on_the_ceiling() -> None:
    assert judged_with(0.14, 0.0, 0.86, disturbed(0.3, variant="ceiling")).kind == "input-bound"


def test_a_mixed_verdict_is_spoilt_as_well() -> None:
    assert judged_with(0.07, 0.07, 0.86).kind == "mixed"
    assert judged_with(0.07, 0.07, 0.86, disturbed(0.2)).kind == "inconclusive"


def test_a_bound_that_a_disturbance_could_have_made_severe_is_not() -> None:
    assert judged_with(0.25, 0.0, 0.75).severe
    found = judged_with(0.25, 0.0, 0.75, disturbed(0.3))
    assert (found.kind, found.severe) == ("input-bound", False)
    assert "severely" not in found.text


def test_the_cost_is_the_mean_over_the_trials_and_of_one_trial_the_largest() -> None:
    """Three trials: 0.06 of one costs 0.02 in the mean, however many findings say the same."""
    same = [disturbed(0.06), disturbed(0.05), disturbed(0.06)]
    assert judged_with(0.14, 0.0, 0.86, *same).kind == "input-bound"
    assert judged_with(0.14, 0.0, 0.86, *same, disturbed(0.06, repeat=0)).kind == "inconclusive"


@pytest.mark.parametrize("cost", [None, 0.0])
def test_a_disturbance_of_no_known_cost_spoils_nothing(cost: float | None) -> None:
    assert judged_with(0.111, 0.0, 0.88, disturbed(cost), half=0.01) == judged_with(0.111, 0.0, 0.88, half=0.01)


def test_several_disturbed_trials_are_counted_and_the_worst_is_named() -> None:
    found = judged_with(0.12, 0.0, 0.88, disturbed(0.1), disturbed(0.3, repeat=2, text="it was worst"))
    assert "in repeat 3 it was worst (1 more trial of these figures disturbed as well)" in found.text


def test_an_inconclusive_verdict_names_the_disturbance_too() -> None:
    found = judged_with(0.11, 0.0, 0.89, disturbed(0.2), half=0.05)
    assert "more --repeats or --steps will tell, and in repeat 2 others took the CPU." in found.text


def test_trials_that_disagree_name_the_disturbance_in_place_of_a_guess() -> None:
    spread = findings.Spread(disjoint=True, share="input wait", lowest=0.1, highest=0.9)
    figures = result(estimate(0.5), estimate(0.0), estimate(0.5))
    assert "something else" in findings.judge(figures, False, spread, 300).text
    found = findings.judge(figures, False, spread, 300, [disturbed(0.2)])
    assert "in repeat 2 others took the CPU" in found.text
    assert "something else" not in found.text


def test_without_an_interval_a_disturbance_widens_the_figure_itself() -> None:
    bare = (Estimate(value=0.15, reason="one"), Estimate(value=0.0, reason="one"), Estimate(value=0.85, reason="one"))
    figures = result(*bare, trials=1)
    assert findings.judge(figures, False, None, 300, [disturbed(0.03, repeat=0)]).kind == "input-bound"
    assert findings.judge(figures, False, None, 300, [disturbed(0.06, repeat=0)]).kind == "inconclusive"


@given(
    wait=st.floats(0, 0.6),
    host=st.floats(0, 0.4),
    half=st.floats(0.0001, 0.3),
    costs=st.lists(st.floats(0, 1), max_size=6),
)
def test_a_disturbance_never_makes_a_verdict_out_of_none(
    wait: float, host: float, half: float, costs: list[float]
) -> None:
    found = [disturbed(cost, index % 3, "v" if index < 3 else "ceiling") for index, cost in enumerate(costs)]
    clean = judged_with(wait, host, 1 - wait - host, half=half)
    spoilt = judged_with(wait, host, 1 - wait - host, *found, half=half)
    assert spoilt.kind in {clean.kind, "inconclusive"}
    assert clean.severe or not spoilt.severe


def test_a_burst_in_a_trial_reaches_the_verdict_of_its_variant() -> None:
    """A wait of 12 % in three repeats, one of them with a burst that took a fifth of its time."""
    slow = np.full(600, 10.0)
    slow[300:420] *= 2.0
    trials = [record("feed_dict", repeat, 10.0, 1.2, noise=0.002, steps=600) for repeat in range(3)]
    trials += [record("ceiling", repeat, 8.0, None, noise=0.002, steps=600) for repeat in range(3)]
    assert summarise(scenario("feed_dict", steps=600), trials, cores=2)[0].verdict.kind == "input-bound"
    trials[0] = record("feed_dict", 0, list(slow), 1.2)
    found = summarise(scenario("feed_dict", steps=600), trials, cores=2)[0].verdict
    assert found.kind == "inconclusive"
    assert "in repeat 1 its steps were 9" in found.text
