"""Verdicts: each kind, its thresholds, and when none is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis import verdicts
from pipeline_bench.analysis.results import summarise
from pipeline_bench.analysis.thresholds import BOUND_SHARE, CERTAIN, NEEDED_STEPS, PROBABLE
from pipeline_bench.analysis.verdicts import StepSplit
from pipeline_bench.model.result import Estimate, Result, Verdict
from tests.unit.records import record, rounds, scenario


def verdict(step_ms: float, wait_ms: float, ceiling_ms: float) -> Verdict:
    trials = rounds({"feed_dict": (step_ms, wait_ms), "ceiling": (ceiling_ms, None)}, noise=0.002)
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


def split(wait: Estimate, host: Estimate, au: Estimate) -> StepSplit:
    return StepSplit(
        mean_ms=10.0, rounds=3, input_wait_share=wait, host_slowdown_share=host, accelerator_utilization=au
    )


def judged(wait: Estimate, host: Estimate, au: Estimate, steps: int = 300, taken: float = 0.0) -> Verdict:
    return verdicts.judge(split(wait, host, au), steps, taken)


def test_figures_that_are_known_well_give_a_plain_verdict() -> None:
    found = judged(estimate(0.13, 0.02), estimate(0.0), estimate(0.87))
    assert (found.kind, found.certainty, found.doubt) == ("input-bound", "certain", None)


def test_an_interval_across_a_line_with_most_of_it_beyond_is_probable_and_says_what_the_doubt_is() -> None:
    found = judged(estimate(0.13, 0.04), estimate(0.0), estimate(0.87))
    assert (found.kind, found.certainty) == ("input-bound", "probable")
    assert found.doubt is not None
    assert (found.doubt.figure, found.doubt.line, found.doubt.rounds) == ("input wait", BOUND_SHARE, 3)
    assert found.doubt.instead[0] == "compute-bound"
    assert found.text.startswith("probably input-bound (input wait is 9 to 17 %, the threshold is 10 %): waits")


@pytest.mark.parametrize("half", [0.02, 0.09])
def test_an_interval_about_a_line_is_inconclusive_and_names_what_is_plausible(half: float) -> None:
    found = judged(estimate(0.10, half), estimate(0.0), estimate(0.90, half))
    assert found.kind == "inconclusive"
    assert found.doubt is not None
    assert found.doubt.figure == "input wait"
    assert {"input-bound", "compute-bound"} & set(found.doubt.instead)
    assert "input-bound" in found.text
    assert "compute-bound" in found.text


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_diagnosis_is_not_told_to_use_an_option_that_it_does_not_have(rounds: int) -> None:
    parts = split(estimate(0.1, 0.09), estimate(0.0), estimate(0.9, 0.09))
    close = parts._replace(rounds=rounds)
    for steps in (3, 300):
        assert "--repeats" in verdicts.judge(close, steps).text
        alone = verdicts.judge(close, steps, budget_only=True).text
        assert "--repeats" not in alone
        assert "--budget" in alone


def test_a_large_wait_that_is_not_known_well_is_not_passed_over_for_a_small_slowdown_that_is() -> None:
    found = judged(estimate(0.40, 0.35), estimate(0.16), estimate(0.44))
    assert (found.kind, found.certainty) == ("input-bound", "probable")
    assert found.doubt is not None
    assert found.doubt.instead == ("host-bound",)
    assert (found.doubt.figure, found.doubt.line) == ("input wait", None)


def test_which_of_two_parts_is_more_is_no_verdict_before_it_is_probable_however_sure_it_is_that_one_is() -> None:
    """As the example's tf_data: host slowdown 24 %, input wait 22 %, neither known better than ±5 points."""
    close = split(estimate(0.22, 0.05), estimate(0.24, 0.06), estimate(0.54, 0.05))
    chances = verdicts.probabilities(close)
    assert chances["input-bound"] + chances["host-bound"] > CERTAIN
    assert chances["host-bound"] < PROBABLE
    found = verdicts.judge(close, steps=300)
    assert (found.kind, found.severe) == ("inconclusive", False)
    assert found.text.startswith(
        "inconclusive: host-bound or input-bound; host slowdown is 18 to 30 %, either of the two parts may be the"
    )


@pytest.mark.parametrize(("half_au", "chance"), [(0.001, 0.88), (0.0707, 0.95), (0.1, 1.0)])
def test_a_slowdown_that_is_what_a_wait_leaves_of_a_steady_rest_errs_against_it(half_au: float, chance: float) -> None:
    """6 points apart, each known to ±5: the difference to ±10, or ±7 of errors that have nothing to do with another."""
    found = verdicts.probabilities(split(estimate(0.30, 0.05), estimate(0.24, 0.05), estimate(0.46, half_au)))
    assert found["input-bound"] == pytest.approx(chance, abs=0.01)


def test_a_utilization_beyond_its_line_is_enough_however_the_rest_is_shared_out() -> None:
    """AU is 0.93 to 0.95; of the other 6 % anything may be wait."""
    found = judged(estimate(0.03, 0.05), estimate(0.03, 0.05), estimate(0.94, 0.01))
    assert (found.kind, found.certainty) == ("compute-bound", "certain")


def test_a_wait_far_from_every_line_is_certain_however_wide_its_interval() -> None:
    assert judged(estimate(0.60, 0.20), estimate(0.02, 0.02), estimate(0.38, 0.2)).certainty == "certain"


def test_other_work_is_named_beside_the_doubt_and_not_without_one() -> None:
    doubted = judged(estimate(0.13, 0.04), estimate(0.0), estimate(0.87), taken=0.48)
    assert "while other work took 48 % of the CPU" in doubted.text
    assert "CPU" not in judged(estimate(0.5), estimate(0.0), estimate(0.5), taken=0.48).text


def test_the_most_that_a_faster_input_would_gain_is_that_of_the_lowest_plausible_utilization() -> None:
    text = judged(estimate(0.0, 0.005), estimate(0.05, 0.005), estimate(0.95, 0.02)).text
    assert text == "compute-bound: runs at 95 % of the ceiling; a faster input would gain at most 8 %."


def test_a_backend_within_the_noise_of_its_ceiling_is_compute_bound() -> None:
    assert judged(estimate(0.0), estimate(-0.01), estimate(1.01)).kind == "compute-bound"


def test_too_few_steps_get_no_verdict() -> None:
    found = judged(estimate(0.9), estimate(0.0), estimate(0.1), steps=NEEDED_STEPS - 1)
    assert found.kind == "inconclusive"
    assert str(NEEDED_STEPS) in found.text


def test_the_ceiling_is_the_reference_and_not_judged() -> None:
    trials = [record("ceiling", repeat, 5.0, None) for repeat in range(3)]
    found = summarise(scenario("feed_dict"), trials, cores=2)[1].verdict
    assert found.kind == "ceiling"


@pytest.mark.parametrize(("wait", "ceiling", "kind"), [(0.0, 13.0, "inconclusive"), (6.0, 9.5, "input-bound")])
def test_a_ceiling_that_is_beaten_spoils_only_what_rests_on_it(wait: float, ceiling: float, kind: str) -> None:
    trials = rounds({"feed_dict": (10.0, wait), "ceiling": (ceiling, None)})
    found = summarise(scenario("feed_dict"), trials, cores=2)[0]
    assert found.verdict.kind == kind
    assert "one trial" not in found.verdict.text
    for impossible in (found.accelerator_utilization, found.host_slowdown_share, found.host_slowdown_ms):
        assert impossible.value is None
        assert "more than its step, which cannot be" in (impossible.reason or "")


WIDELY_BEATEN = (12.4, 9.6, 12.2, 9.8, 12.6, 10.2)
"""Ceilings in ms that steps of 10 ms beat by a tenth, which is less than these differ."""


def beside_ceilings(*ceiling_ms: float, wait: float = 0.1) -> Result:
    """Rounds of 10 ms steps, each beside a ceiling of so many ms."""
    trials = [
        each
        for repeat, top in enumerate(ceiling_ms)
        for each in (record("feed_dict", repeat, 10.0, wait), record("ceiling", repeat, top, None))
    ]
    return summarise(scenario("feed_dict"), trials, cores=2)[0]


@pytest.mark.parametrize(
    ("ceiling_ms", "wait", "kind"),
    [
        ((15.5, 2.9), 2.8, "inconclusive"),  # python_overhead's session: an AU of 1.55 and of 0.29
        (WIDELY_BEATEN, 0.1, "compute-bound"),
    ],
)
def test_a_figure_that_noise_has_made_impossible_is_none_and_its_verdict_what_the_noise_leaves(
    ceiling_ms: tuple[float, ...], wait: float, kind: str
) -> None:
    found = beside_ceilings(*ceiling_ms, wait=wait)
    for part in (found.accelerator_utilization, found.host_slowdown_share, found.host_slowdown_ms, found.ceiling_ms):
        assert (part.value, part.ci95) == (None, None)
    assert found.accelerator_utilization.impossible
    assert "its rounds differ too much" in (found.accelerator_utilization.reason or "")
    assert found.verdict.kind == kind
    assert found.verdict.doubt is None or 0 <= found.verdict.doubt.low <= found.verdict.doubt.high <= 1


def test_a_verdict_without_an_accelerator_utilization_says_what_the_rounds_leave_open() -> None:
    found = beside_ceilings(*WIDELY_BEATEN)
    assert found.verdict.text.startswith(
        "compute-bound: as fast as its ceiling, within noise; a faster input would gain"
    )
    assert "–" not in found.verdict.text


def test_a_ceiling_that_is_beaten_by_less_than_is_worth_a_word_counts_as_reached() -> None:
    found = beside_ceilings(10.05, 9.95, 10.05, wait=0.1)
    assert found.accelerator_utilization.value == pytest.approx(0.99, abs=0.002)
    assert found.host_slowdown_share.value == 0.0


def test_what_beats_its_ceiling_by_noise_that_is_known_to_a_tenth_of_the_step_reaches_it() -> None:
    found = beside_ceilings(10.4, 10.7, 9.9, 10.5, 9.8, 10.6)
    assert found.accelerator_utilization.value == pytest.approx(0.99, abs=0.001)
    assert found.accelerator_utilization.ci95 is not None
    assert found.accelerator_utilization.ci95[1] <= 1
    assert found.verdict.kind == "compute-bound"


def test_one_trial_gives_a_probable_verdict_at_most_and_none_that_is_severe() -> None:
    bare = (Estimate(value=0.5, reason="one"), Estimate(value=0.1, reason="one"), Estimate(value=0.4, reason="one"))
    found = judged(*bare)
    assert (found.kind, found.certainty, found.severe) == ("input-bound", "probable", False)
    assert "one trial" in found.text


def test_the_noise_of_one_round_is_that_which_is_usual() -> None:
    found = beside_ceilings(10.3)
    assert not found.accelerator_utilization.impossible
    assert (found.verdict.kind, found.verdict.certainty) == ("compute-bound", "probable")
    assert beside_ceilings(13.0).accelerator_utilization.impossible


def test_a_verdict_rests_on_the_steps_that_have_a_ceiling_beside_them() -> None:
    """Of others no share is known."""
    trials = [record("feed_dict", repeat, 10.0, 4.0, steps=7) for repeat in range(6)]
    trials += [record("ceiling", repeat, 5.0, None, steps=60) for repeat in range(2)]
    assert "only 12 steps" in summarise(scenario("feed_dict"), trials, cores=2)[0].verdict.text


def test_a_step_that_does_nothing_but_wait_has_no_figure_of_what_it_would_gain() -> None:
    found = judged(estimate(0.9999, 0.0001), estimate(0.0), estimate(0.0001, 0.0001))
    assert "without the wait it would be more than 20× as fast" in found.text


def test_a_copy_is_no_more_than_the_host_slowdown_that_it_is_a_part_of() -> None:
    of = split(estimate(0.0), estimate(0.15), estimate(0.85))._replace(copy_share=Estimate(value=0.18))
    assert "the copy of the batch to the device (15 %)" in verdicts.judge(of, 300, 0.0).text


def test_one_trial_near_a_line_gives_none() -> None:
    bare = (Estimate(value=0.11, reason="one"), Estimate(value=0.0, reason="one"), Estimate(value=0.89, reason="one"))
    assert judged(*bare).kind == "inconclusive"


@given(
    wait=st.floats(0, 1),
    host=st.floats(-0.05, 1),
    half_wait=st.floats(0.001, 0.5),
    half_host=st.floats(0.001, 0.5),
)
def test_probabilities_are_of_everything_that_can_be(
    wait: float, host: float, half_wait: float, half_host: float
) -> None:
    found = verdicts.probabilities(split(estimate(wait, half_wait), estimate(host, half_host), estimate(0.5)))
    assert sum(found.values()) == pytest.approx(1.0)


def test_a_line_in_the_middle_of_an_interval_is_as_probable_on_either_side() -> None:
    found = verdicts.probabilities(split(estimate(0.10, 0.05), estimate(0.0), estimate(0.9)))
    assert found["input-bound"] == pytest.approx(0.5, abs=0.02)
    ends = verdicts.probabilities(split(estimate(0.15, 0.05), estimate(0.0), estimate(0.9)))
    assert ends["input-bound"] == pytest.approx(0.975, abs=0.01)


def test_rounds_that_disagree_are_in_doubt_by_how_far_they_do() -> None:
    trials = [
        each
        for repeat, wait in enumerate((0.1, 4.0, 0.1, 3.0))
        for each in (record("feed_dict", repeat, 5.0 + wait, wait), record("ceiling", repeat, 5.0, None))
    ]
    found = summarise(scenario("feed_dict"), trials, cores=2)[0]
    assert found.verdict.certainty == "probable" or found.verdict.kind == "inconclusive"
    assert found.verdict.doubt is not None


@pytest.mark.parametrize("half", [0.001, 0.04])
def test_the_reason_is_kept_without_the_verdict_and_the_doubt_also_of_a_file_that_has_only_the_sentence(
    half: float,
) -> None:
    found = judged(estimate(0.13, half), estimate(0.0), estimate(0.87))
    assert found.reason.startswith("waits ")
    assert found.text.endswith(f": {found.reason}.")
    assert Verdict.model_validate(found.model_dump(exclude={"reason"})) == found
