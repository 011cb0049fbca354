"""Two sessions held against each other: what changed, what stayed, and what cannot be compared."""

from __future__ import annotations

import pytest

from pipeline_bench.analysis.difference import between, outcome_words
from pipeline_bench.errors import UsageError
from pipeline_bench.model.difference import VariantChange
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.session import Session
from tests.unit import sessions
from tests.unit.analysis import pairs
from tests.unit.sessions import with_result

STEADY = (4.0, 4.02, 3.98)


def change(before: Session, after: Session, name: str = "feed_dict") -> VariantChange:
    (found,) = (change for change in between(before, after).variants if change.variant == name)
    return found


def test_a_slower_variant_is_found_with_its_size() -> None:
    found = change(pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": [ms * 1.25 for ms in STEADY]}))
    assert found.step_time.difference == "slower"
    assert found.step_time.value == pytest.approx(1.25, rel=1e-3)
    assert found.step_ms_before == pytest.approx(4.0, rel=0.01)
    assert found.step_ms_after is not None
    assert found.step_ms_before is not None
    assert found.step_ms_after / found.step_ms_before == pytest.approx(found.step_time.value)


def test_the_same_runs_show_no_difference_and_say_what_they_could_have_seen() -> None:
    session = pairs.session({"feed_dict": (4.0, 4.2, 3.8)})
    found = change(session, session)
    assert found.step_time.difference == "none"
    assert found.step_time.value == pytest.approx(1)
    assert found.step_time.smallest == pytest.approx(0.166, abs=0.01)
    assert outcome_words(found.step_time) == "not decided"
    assert "not decided: 0 % of step time (-11 to +12 %)" in found.text


@pytest.mark.parametrize(
    ("factor", "words"), [(1.0, "tie"), (1.045, "probably slower"), (1.5, "slower"), (0.955, "probably faster")]
)
def test_a_change_has_the_three_grades(factor: float, words: str) -> None:
    before = pairs.session({"feed_dict": STEADY})
    found = change(before, pairs.session({"feed_dict": [ms * factor for ms in STEADY]}))
    assert outcome_words(found.step_time) == words
    assert f"feed_dict: {words}: " in found.text


def test_a_verdict_that_is_only_probable_before_or_after_is_shown_as_that() -> None:
    session = pairs.session({"feed_dict": STEADY})
    verdict = session.result("feed_dict").verdict.model_copy(update={"certainty": "probable"})
    found = change(session, with_result(session, "feed_dict", verdict=verdict))
    assert found.verdict_words_after == f"{found.verdict_words_before}?"


def test_a_steady_change_as_small_as_between_two_runs_of_one_job_is_no_difference() -> None:
    steady = [4.0 + 0.0001 * number for number in range(10)]
    before = pairs.session({"feed_dict": steady}, [1.0] * 10)
    small, larger = (
        change(before, pairs.session({"feed_dict": [ms * factor for ms in steady]}, [1.0] * 10))
        for factor in (1.01, 1.05)
    )
    assert small.step_time.ci95 is not None
    assert small.step_time.ci95[0] > 1, "what was measured differs"
    assert small.step_time.difference == "none"
    assert small.beside_ceiling.difference == "none"
    assert small.step_time.smallest == pytest.approx(0.034, abs=0.002)
    assert larger.step_time.difference == "slower"


def test_a_slower_machine_moves_the_step_and_neither_the_au_nor_the_change_beside_the_ceiling() -> None:
    before = pairs.session({"feed_dict": STEADY}, wait_ms=0.5)
    after = pairs.session(
        {"feed_dict": [ms * 1.5 for ms in STEADY]}, [ms * 1.5 for ms in pairs.CEILING_MS], wait_ms=0.75
    )
    found, machine = change(before, after), change(before, after, "ceiling")
    assert found.step_time.difference == "slower"
    assert machine.step_time.value == pytest.approx(1.5, rel=1e-3)
    assert found.beside_ceiling.difference == "none"
    assert found.accelerator_utilization.change == pytest.approx(0, abs=1e-3)
    assert found.input_wait_share.change == pytest.approx(0, abs=1e-3)


def test_a_gain_that_a_slower_machine_hides_is_told() -> None:
    before = pairs.session({"feed_dict": STEADY})
    slow_ceiling = [ms * 1.5 for ms in pairs.CEILING_MS]
    hidden, same = (
        change(before, pairs.session({"feed_dict": STEADY}, top)) for top in (slow_ceiling, pairs.CEILING_MS)
    )
    assert hidden.step_time.difference == "none"
    assert hidden.beside_ceiling.difference == "faster"
    assert "; but beside the ceiling faster: -33 % (" in hidden.text
    assert "beside the ceiling" not in same.text


def test_ceilings_of_different_jobs_have_nothing_beside_them() -> None:
    before = pairs.session({"feed_dict": STEADY})
    after = pairs.of_other_jobs(pairs.session({"feed_dict": STEADY}, (1.0, 1.01, 0.99)), features=32)
    found = change(before, after)
    assert found.ceilings_differ_in == ("source.features",)
    assert change(before, after, "ceiling").ceilings_differ_in == ("source.features",)
    assert found.beside_ceiling.value is None
    assert "different jobs (source.features)" in (found.beside_ceiling.reason or "")
    assert "beside the ceiling" not in found.text


def test_steps_of_other_batch_sizes_are_not_divided_by_each_other() -> None:
    before = pairs.session({"feed_dict": STEADY})
    after = pairs.of_other_jobs(pairs.session({"feed_dict": [ms / 2 for ms in STEADY]}), batch_size=16)
    found = change(before, after)
    assert found.step_time.value is None
    assert "a step is of 128 samples before and of 16 after" in (found.step_time.reason or "")
    assert found.measured_in_both


def test_sessions_with_only_ceilings_in_common_cannot_be_compared() -> None:
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"tf_data": STEADY})
    with pytest.raises(
        UsageError, match=r"no variant in common besides ceilings: 'feed_dict', 'ceiling' and 'tf_data'"
    ):
        between(before, after)


def test_au_and_wait_are_those_of_the_sessions_and_change_by_their_difference() -> None:
    before = pairs.session({"feed_dict": STEADY}, wait_ms=0.4)
    after = pairs.session({"feed_dict": [ms * 2 for ms in STEADY]}, wait_ms=4.4)
    found = change(before, after)
    for shift, name in (
        (found.accelerator_utilization, "accelerator_utilization"),
        (found.input_wait_share, "input_wait_share"),
    ):
        one, other = (getattr(session.result("feed_dict"), name).value for session in (before, after))
        assert (shift.before, shift.after) == (one, other)
        assert shift.change == pytest.approx(other - one)
        assert shift.ci95 is not None
        assert shift.ci95[0] < other - one < shift.ci95[1]
    assert found.verdict_before != found.verdict_after
    assert f"was severely {found.verdict_before}, is severely {found.verdict_after}" in found.text


def test_a_change_is_within_its_interval_where_the_variant_beats_its_ceiling() -> None:
    """By 1.5 %, which noise explains: the session says an AU of 1, and its trials 1.015."""
    before = pairs.session({"feed_dict": [ms / 1.015 for ms in pairs.CEILING_MS]}, wait_ms=0.0)
    after = pairs.session({"feed_dict": [ms / 0.9 for ms in pairs.CEILING_MS]}, wait_ms=0.0)
    shift = change(before, after).accelerator_utilization
    assert shift.before == 1
    assert shift.change is not None
    assert shift.ci95 is not None
    assert shift.ci95[0] <= shift.change <= shift.ci95[1]


def test_one_trial_has_a_figure_and_no_interval() -> None:
    session = pairs.session({"feed_dict": (4.0,)}, (2.0,))
    found = change(session, session)
    assert found.step_time.value == pytest.approx(1)
    assert found.step_time.ci95 is None
    assert found.step_time.difference is None
    assert "2 trials" in (found.step_time.reason or "")


def test_what_was_not_measured_has_a_reason_and_no_figure() -> None:
    whole = pairs.session({"feed_dict": STEADY, "tf_data": STEADY})
    broken = pairs.session({"feed_dict": STEADY, "tf_data": STEADY}, status={"feed_dict": "failed"})
    found = change(whole, broken)
    assert found.step_time.value is None
    assert found.step_ms_after is None
    assert found.step_ms_before is not None
    assert "after: planted" in (found.step_time.reason or "")
    assert found.accelerator_utilization.change is None
    assert found.accelerator_utilization.before is not None


def test_a_repeat_without_its_ceiling_is_not_held_against_another() -> None:
    before = pairs.session({"feed_dict": (4.0, 4.0, 40.0)}, (2.0, 2.0))
    found = change(before, before)
    assert found.beside_ceiling.ci95 is not None
    assert found.beside_ceiling.ci95[1] < 1.1


def test_variants_of_one_session_alone_are_named() -> None:
    before = pairs.session({"feed_dict": STEADY, "fifo_queue": STEADY})
    after = pairs.session({"feed_dict": STEADY, "tf_data": STEADY})
    difference = between(before, after)
    assert (difference.only_before, difference.only_after) == (("fifo_queue",), ("tf_data",))
    assert {found.variant for found in difference.variants} == {"feed_dict", "ceiling"}


def test_disturbances_of_both_sessions_are_kept() -> None:
    noise = Disturbance(kind="burst", variant="feed_dict", repeat=1, text="another process took 40 % of the CPU.")
    quiet = pairs.session({"feed_dict": STEADY})
    noisy = quiet.model_copy(update={"disturbances": (noise,)})
    assert [(found.side, found.disturbance) for found in between(noisy, noisy).disturbances] == [
        ("before", noise),
        ("after", noise),
    ]


def test_sessions_that_measured_nothing_in_common_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="no measured figure in common"):
        between(sessions.normal(), sessions.pending())
