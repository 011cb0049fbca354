"""More threads than cores: who is warned, and what is said of what was then seen, on any machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline_bench.analysis import advice
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Runtime, Scenario, Variant
from tests.unit import records, sessions

CORES = sessions.CPU.cores
STEPS = 40


def variant(name: str, intra: int = 1, inter: int = 1, ceiling: str | None = "ceiling") -> Variant:
    runtime = Runtime(intra_op_threads=intra, inter_op_threads=inter)
    return sessions.variant(name, "tf_data", ceiling=ceiling).model_copy(update={"runtime": runtime})


def scenario(*variants: Variant) -> Scenario:
    return sessions.scenario(*variants, variant("ceiling", intra=4, ceiling=None))


def trial(name: str, repeat: int, step_ms: float) -> TrialRecord:
    return records.record(name, repeat, [step_ms] * STEPS, None)


def session(asked: Scenario, step_ms: dict[str, Sequence[float]]) -> Session:
    trials = tuple(
        trial(name, repeat, took) for name, repeats in step_ms.items() for repeat, took in enumerate(repeats)
    )
    return sessions.normal().model_copy(update={"scenario": asked, "trials": trials, "results": ()})


INTRA = scenario(variant("one"), variant("two", intra=2), variant("four", intra=4))
STEADY = (20.0, 20.1, 19.9)


def said(step_ms: dict[str, Sequence[float]], asked: Scenario = INTRA) -> str:
    ((name, text),) = advice.thread_remarks(session(asked, step_ms))
    assert name == "four"
    return text


def test_a_scenario_is_warned_of_with_every_variant_that_asks_for_more_than_the_cores() -> None:
    asked = scenario(variant("four", intra=4), variant("both", intra=2, inter=16), variant("left to it", intra=0))
    warning = advice.thread_warning(asked, CORES) or ""
    assert "more threads than cores (2)" in warning
    assert "four for 4 intra-op threads; both for 16 inter-op threads." in warning
    assert "left to it" not in warning


def test_with_cores_enough_nothing_is_said() -> None:
    assert advice.thread_warning(INTRA, cores=4) is None
    many = sessions.CPU.model_copy(update={"cores": 4})
    assert advice.thread_remarks(session(INTRA, {"four": STEADY}).model_copy(update={"environment": many})) == []


def test_they_are_compared_with_the_variant_that_has_as_many_threads_as_cores() -> None:
    text = said({"one": (40.0, 40.1, 39.9), "two": STEADY, "four": (20.1, 19.9, 20.0)})
    assert text.startswith("asks for 4 intra-op threads on 2 cores: 1.00× the speed of two (0.9")
    assert "No gain was found. Intra-op threads share the work of one op" in text


def test_a_gain_is_said_to_be_one() -> None:
    text = said({"two": STEADY, "four": (15.0, 15.1, 14.9)})
    assert "1.33× the speed of two" in text
    assert "They gain here." in text


def test_a_loss_is_said_to_be_one() -> None:
    assert "They lose." in said({"two": STEADY, "four": (25.0, 25.1, 24.9)})


def test_a_claim_is_the_one_of_the_speed_up_in_the_table() -> None:
    """1.5 % in each of ten rounds is less than two copies of one job may differ by; 14 % in three is probable."""
    steady = [20.0 + 0.01 * (repeat % 3) for repeat in range(10)]
    assert "No gain was found." in said({"two": steady, "four": [ms / 1.015 for ms in steady]})
    assert "They probably gain here." in said({"two": STEADY, "four": (17.5, 17.6, 17.4)})


@pytest.mark.parametrize(
    ("four", "why"),
    [
        ((15.0, 25.0, 18.0), "is not known: the intervals are too wide"),
        ((15.0,), "one trial each, which may be chance"),
        ((), "no repeat has a measured trial of both it and two"),
    ],
)
def test_what_cannot_be_told_is_not(four: Sequence[float], why: str) -> None:
    text = said({"two": STEADY, "four": four})
    assert why in text
    assert not any(claim in text for claim in ("They do gain", "They lose", "No gain"))


def test_without_a_variant_to_compare_with_it_says_which_to_add() -> None:
    asked = scenario(variant("other", intra=2, inter=2), variant("four", intra=4))
    assert "add one with runtime.intra_op_threads = 2" in said({"other": STEADY, "four": STEADY}, asked)


@pytest.mark.parametrize(
    ("four", "found"),
    [((15.0, 15.1, 14.9), "They gain"), ((25.0, 25.1, 24.9), "They lose"), ((20.1, 19.9, 20.0), "No difference was")],
)
def test_what_is_over_fewer_threads_than_cores_is_not_said_of_those_beyond_the_cores(
    four: Sequence[float], found: str
) -> None:
    text = said({"one": STEADY, "four": four}, scenario(variant("one"), variant("four", intra=4)))
    assert found in text
    assert "compared with 1 thread: the effect of more threads than cores is not known" in text
    assert "add a variant with runtime.intra_op_threads = 2." in text
    assert "more of them than cores" not in text


def test_inter_op_threads_are_told_apart_from_intra_op_ones() -> None:
    asked = scenario(variant("one"), variant("many intra", intra=2), variant("four", inter=4))
    text = said({"one": STEADY, "many intra": (10.0, 10.1, 9.9), "four": (20.1, 19.9, 20.0)}, asked)
    assert text.startswith("asks for 4 inter-op threads on 2 cores: 1.00× the speed of one")
    assert "Inter-op threads run ops side by side" in text


def test_tensorflows_own_choice_counts_as_one_thread_a_core() -> None:
    asked = scenario(variant("one"), variant("chosen", intra=0), variant("four", intra=4))
    assert "the speed of chosen" in said({"one": STEADY, "chosen": STEADY, "four": STEADY}, asked)


def test_tensorflow_chooses_a_thread_for_each_cpu_of_which_a_quota_leaves_it_a_part() -> None:
    """Two cores by a quota, of 64 CPUs that the trial may run on: the choice is far more threads than cores."""
    asked = scenario(variant("one"), variant("chosen", intra=0), variant("four", intra=4))
    found = session(asked, {"one": STEADY, "chosen": STEADY, "four": (15.0, 15.1, 14.9)})
    trials = tuple(trial.model_copy(update={"allowed_cpus": 64}) for trial in found.trials)
    ((_, text),) = advice.thread_remarks(found.model_copy(update={"trials": trials}))
    assert "the speed of one" in text
    assert "compared with 1 thread" in text
