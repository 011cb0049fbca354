"""What a gate decides: it does not fail for noise, and does not pass for want of data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.analysis import interference
from pipeline_bench.analysis.difference import between
from pipeline_bench.analysis.gates import Limits
from pipeline_bench.analysis.goal import share
from pipeline_bench.errors import UsageError
from pipeline_bench.model.diagnosis import AS_WRITTEN
from pipeline_bench.model.difference import Gate, Outcome
from pipeline_bench.model.events import Work
from pipeline_bench.model.result import Disturbance, Estimate, Interval, Verdict, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialStatus
from pipeline_bench.report.difference import demand
from tests.unit import records
from tests.unit.analysis import pairs, planted
from tests.unit.diagnosis.simulated import Machine, diagnose, python_decode
from tests.unit.sessions import with_result

STEADY = (4.0, 4.02, 3.98)


def slower(before: Session, after: Session, limit: float = 0.05, strict: bool = False) -> Gate:
    (gate,) = between(before, after, Limits(slower=limit), strict=strict).gates
    return gate


def au(after: Session, limit: float) -> Gate:
    (gate,) = between(pairs.session({"feed_dict": STEADY}), after, Limits(au_below=limit)).gates
    return gate


@pytest.mark.parametrize(
    ("after_ms", "outcome"),
    [
        ((4.8, 4.82, 4.78), "failed"),  # 20 % slower, for certain
        ((4.0, 4.02, 3.98), "passed"),  # the same, and the interval ends within 5 %
        ((3.0, 3.02, 2.98), "passed"),  # faster
        ((4.08, 4.1, 4.06), "passed"),  # 2 % slower for certain, which is allowed
        ((4.0, 6.0, 5.0), "undecided"),  # 24 % slower as a point, and it may be noise
        ((3.0, 4.0, 5.0), "undecided"),  # no slower as a point, but it may be by a lot
    ],
)
def test_slower_fails_for_a_slowdown_and_not_for_noise(after_ms: tuple[float, ...], outcome: Outcome) -> None:
    gate = slower(pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": after_ms}))
    assert gate.outcome == outcome, gate.text


def test_a_slowdown_says_when_its_ceiling_had_one_too() -> None:
    before = pairs.session({"feed_dict": STEADY})
    slow = [ms * 1.5 for ms in STEADY]
    for ceiling_ms, told in ((pairs.CEILING_MS, False), ([ms * 1.5 for ms in pairs.CEILING_MS], True)):
        gate = slower(before, pairs.session({"feed_dict": slow}, ceiling_ms))
        assert gate.outcome == "failed"
        assert "beside its ceiling" in gate.text
        assert ("its ceiling also became slower, +50 %" in gate.text) == told


def test_without_an_interval_the_figure_alone_decides_and_says_so() -> None:
    before = pairs.session({"feed_dict": (4.0,)}, (2.0,))
    for after_ms, outcome in ((4.1, "passed"), (4.4, "failed")):
        gate = slower(before, pairs.session({"feed_dict": (after_ms,)}, (2.0,)))
        assert gate.outcome == outcome
        assert "without an interval" in gate.text
        assert "2 trials" in gate.text


@pytest.mark.parametrize("status", ["failed", "stalled"])
def test_a_variant_that_was_not_measured_fails_with_its_reason(status: TrialStatus) -> None:
    broken = pairs.session({"feed_dict": STEADY, "tf_data": STEADY}, status={"feed_dict": status})
    whole = pairs.session({"feed_dict": STEADY, "tf_data": STEADY})
    gates = between(whole, broken, Limits(slower=0.05, au_below=0.1)).gates
    of_broken = [gate for gate in gates if gate.variant == "feed_dict"]
    assert [gate.outcome for gate in of_broken] == ["failed", "failed"]
    assert all(f"{status}, planted" in gate.text for gate in of_broken)
    assert {gate.outcome for gate in gates if gate.variant == "tf_data"} == {"passed"}


@pytest.mark.parametrize("status", ["failed", "stalled"])
def test_trials_that_broke_beside_good_ones_fail_every_gate(status: TrialStatus) -> None:
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": STEADY * 2})
    trials = [
        trial.model_copy(update={"status": status, "reason": "a record is damaged"})
        if trial.variant == "feed_dict" and trial.repeat in (1, 4)
        else trial
        for trial in after.trials
    ]
    after = records.session(after.scenario, trials)
    found = between(before, after, Limits(slower=0.05, au_below=0.1))
    assert [gate.outcome for gate in found.gates] == ["failed", "failed"]
    assert "2 of its 6 trials failed or stalled: a record is damaged" in found.gates[0].text
    (condition,) = (each for each in found.conditions if "failed or stalled" in each.name)
    assert (condition.before, condition.after, condition.variants) == ("0 of 3", "2 of 6", ("feed_dict",))


def test_an_interrupted_trial_fails_no_gate() -> None:
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": (*STEADY, 4.0)})
    last = after.trials_of("feed_dict")[-1]
    trials = [trial.model_copy(update={"status": "interrupted"}) if trial is last else trial for trial in after.trials]
    assert slower(before, records.session(after.scenario, trials)).outcome == "passed"


def test_steps_of_other_batch_sizes_decide_no_gate() -> None:
    before = pairs.session({"feed_dict": STEADY})
    after = pairs.session({"feed_dict": [ms * 2.5 for ms in STEADY]})
    gate = slower(before, pairs.of_other_jobs(after, batch_size=512))
    assert gate.outcome == "undecided"
    assert "of 512 after" in gate.text


def test_records_that_only_one_session_skipped_decide_no_gate() -> None:
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": STEADY})
    trials = [trial.model_copy(update={"work": Work(batch_size=128, skipped=80)}) for trial in after.trials]
    after = after.model_copy(update={"trials": tuple(trials)})
    gate = slower(before, after)
    assert gate.outcome == "undecided"
    assert "skipped 0 records before and 80 after" in gate.text
    assert slower(after, after).outcome == "passed"
    assert "records skipped" in [condition.name for condition in between(before, after).conditions]


def test_a_variant_that_was_not_measured_before_cannot_be_decided() -> None:
    broken = pairs.session({"feed_dict": STEADY, "tf_data": STEADY}, status={"feed_dict": "failed"})
    whole = pairs.session({"feed_dict": STEADY, "tf_data": STEADY})
    gates = between(broken, whole, Limits(slower=0.05)).gates
    assert [gate.outcome for gate in gates] == ["undecided", "passed"]
    assert "planted" in gates[0].text


def test_unequal_work_fails_whatever_its_figures() -> None:
    same = pairs.session({"feed_dict": STEADY})
    check = WorkCheck(status="unequal", text="it repeated 128 of 1280 samples.")
    other = with_result(same, "feed_dict", work=check)
    for gate in between(same, other, Limits(slower=0.5, au_below=0.1)).gates:
        assert gate.outcome == "failed"
        assert "repeated 128" in gate.text
    assert slower(other, same).outcome == "undecided"


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [(0.4, "passed"), (0.6, "failed"), (0.5, "undecided")],  # AU is 0.50 ± 0.01
)
def test_au_below_holds_the_whole_interval_against_the_limit(limit: float, outcome: Outcome) -> None:
    assert au(pairs.session({"feed_dict": (4.0, 4.08, 3.92)}), limit).outcome == outcome


@pytest.mark.parametrize(
    ("limit", "value", "ci95", "text"),
    [
        (0.925, 0.93, (0.92, 0.94), "its AU is 0.93 (0.92 to 0.94), and 0.925 lies within the interval"),
        (0.99, 0.9874, (0.9851, 0.9893), "its AU is 0.987 (0.985 to 0.989), below 0.99"),
        (0.99, 0.95, (0.94, 0.9893), "its AU is 0.95 (0.94 to 0.989), below 0.99"),
        (0.926, 0.9257, None, "its AU is 0.9257, below 0.926"),
        (0.9, 0.9, None, "its AU is 0.90, not below 0.90"),
    ],
)
def test_a_limit_of_au_has_its_own_digits_and_au_as_many_as_tell_it_from_the_limit(
    limit: float, value: float, ci95: Interval | None, text: str
) -> None:
    after = pairs.session({"feed_dict": STEADY})
    reason = None if ci95 else "one trial"
    told = {"accelerator_utilization": Estimate(value=value, ci95=ci95, reason=reason)}
    gate = au(with_result(after, "feed_dict", **told), limit)
    assert gate.text.startswith(f"feed_dict: {text}")
    assert float(demand(gate).removeprefix("AU not below ")) == limit


def test_an_au_that_is_not_known_fails() -> None:
    session = pairs.session({"feed_dict": STEADY}, ())
    gate = au(session, 0.1)
    assert gate.outcome == "failed"
    assert "ceiling" in gate.text


def test_an_au_of_one_trial_is_decided_by_the_figure_alone() -> None:
    session = pairs.session({"feed_dict": (4.0,)}, (2.0,))
    assert [au(session, limit).outcome for limit in (0.4, 0.6)] == ["passed", "failed"]
    assert "without an interval" in au(session, 0.4).text


def test_a_ceiling_is_held_to_nothing() -> None:
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": STEADY}, (20.0, 20.2, 19.8))
    gates = between(before, after, Limits(slower=0.05, au_below=0.1)).gates
    assert {gate.variant for gate in gates} == {"feed_dict"}


def test_a_variant_that_is_new_is_held_to_its_au_alone() -> None:
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": STEADY, "tf_data": STEADY})
    gates = between(before, after, Limits(slower=0.05, au_below=0.1)).gates
    assert [(gate.name, gate.variant) for gate in gates] == [
        ("slower", "feed_dict"),
        ("au-below", "feed_dict"),
        ("au-below", "tf_data"),
    ]


def test_strict_fails_what_cannot_be_decided_and_nothing_else() -> None:
    before = pairs.session({"feed_dict": STEADY})
    noisy = pairs.session({"feed_dict": (3.0, 4.0, 5.0)})
    assert slower(before, noisy, strict=True).outcome == "failed"
    assert slower(before, noisy, strict=True).only_undecided
    assert not slower(before, pairs.session({"feed_dict": (6.0, 6.02, 5.98)}), strict=True).only_undecided
    assert slower(before, before, strict=True).outcome == "passed"


def test_a_slowdown_that_holds_at_95_and_not_at_98_percent_is_undecided() -> None:
    """A change is claimed at one level in the whole program."""
    before = pairs.session({"feed_dict": (4.0, 4.3, 3.7)})
    gates = [slower(before, pairs.session({"feed_dict": [a + 0.3, a, a - 0.3]}), 0.05) for a in (4.7, 4.9, 5.6)]
    assert [gate.outcome for gate in gates] == ["undecided", "undecided", "failed"]
    changes = between(before, pairs.session({"feed_dict": (5.2, 4.9, 4.6)})).variants
    ci95 = changes[0].step_time.ci95
    assert ci95 is not None
    assert ci95[0] > 1, "the case no longer lies between the two levels"


def test_a_variant_that_is_gone_is_told_and_decides_nothing() -> None:
    before, after = pairs.session({"feed_dict": STEADY, "tf_data": STEADY}), pairs.session({"feed_dict": STEADY})
    limits = Limits(slower=0.05, au_below=0.1)
    for strict, outcome in ((False, "undecided"), (True, "failed")):
        gone = [gate for gate in between(before, after, limits, strict=strict).gates if gate.variant == "tf_data"]
        assert [(gate.name, gate.outcome) for gate in gone] == [("slower", outcome), ("au-below", outcome)]
        assert "only the session before has it" in gone[0].text
    assert between(before, after).gates == ()


def disturbed(after: Session, *costs: tuple[int, float | None], variant: str = "feed_dict") -> Session:
    """The session with one disturbance a repeat, each with its cost."""
    found = tuple(
        Disturbance(kind="burst", variant=variant, repeat=repeat, cost_share=cost, text=f"a burst took {cost}.")
        for repeat, cost in costs
    )
    return after.model_copy(update={"disturbances": found})


def test_a_slowdown_that_disturbances_could_explain_is_undecided() -> None:
    """20 % slower, so a cost of 12.5 % of the time is what lies beyond a limit of 5 %; it is a mean over the trials."""
    before, after = pairs.session({"feed_dict": STEADY}), pairs.session({"feed_dict": [1.2 * ms for ms in STEADY]})
    enough, too_little = disturbed(after, (0, 0.42), (0, 0.1)), disturbed(after, (0, 0.3), (0, 0.02), (1, 0.03))
    gate = slower(before, enough)
    assert gate.outcome == "undecided"
    assert "a burst took 0.42" in gate.text
    assert "14 % of its time" in gate.text
    assert slower(before, too_little).outcome == "failed"
    assert slower(before, disturbed(after, (0, None), (1, None))).outcome == "failed"
    assert slower(before, disturbed(after, (0, 0.9), variant="ceiling")).outcome == "failed"
    assert slower(before, disturbed(before, (0, 0.9))).outcome == "passed"
    as_busy = disturbed(before, (0, 0.2), (1, 0.2), (2, 0.2))
    assert slower(as_busy, enough).outcome == "failed"
    assert slower(disturbed(before, (0, 1.0), (1, 1.0), (2, 1.0)), enough).outcome == "failed"


def test_a_slowdown_that_disturbances_before_could_hide_is_undecided() -> None:
    """30 % slower than an undisturbed session that others made 60 % slower: 19 % faster as it was measured."""
    before, after = (pairs.session({"feed_dict": [share * ms for ms in STEADY]}) for share in (1.6, 1.3))
    gate = slower(disturbed(before, *((repeat, 0.375) for repeat in range(3))), after)
    assert gate.outcome == "undecided"
    assert "38 % of its time before and may hide a slowdown: before, in repeat" in gate.text
    assert slower(disturbed(before, *((repeat, 0.1) for repeat in range(3))), after).outcome == "passed"


def test_what_others_took_of_steps_that_are_left_out_explains_no_slowdown() -> None:
    """A quarter slower also in the steps beside which nothing else ran; the figures are of these alone."""
    others = planted.track("other_cpu_percent", [0.0, 0.0, 0.0, 60.0, 60.0, 0.0, 0.0], every_ms=100)
    samples = (planted.track("machine_cpu_percent", [100.0] * 7, every_ms=100), others)
    steps_ms = [5.0] * 40 + [8.0] * 25 + [5.0] * 40
    trials = [
        records.record(name, repeat, [step_ms * share for step_ms in steps_ms], None, samples=samples)
        for repeat in range(3)
        for name, share in (("feed_dict", 1 + repeat / 1000), ("ceiling", 0.5))
    ]
    after = records.session(
        records.scenario("feed_dict"), trials, disturbances=interference.find([trials[each] for each in (0, 2, 4)], 2)
    )
    assert [found.kind for found in after.disturbances] == ["cpu-contention"] * 3
    gate = slower(pairs.session({"feed_dict": STEADY}), after)
    assert gate.outcome == "failed", gate.text
    assert "changed by +25 %" in gate.text


def test_an_au_of_trials_that_disagree_is_undecided_by_its_interval() -> None:
    gate = au(pairs.session({"feed_dict": (4.0, 4.02, 12.0)}), 0.6)
    assert gate.outcome == "undecided"
    assert "lies within the interval" in gate.text


def test_an_au_is_undecided_where_the_verdict_is_refused() -> None:
    session = pairs.session({"feed_dict": STEADY})
    text = "inconclusive: its files were not as cold as it asked."
    spoilt = with_result(session, "feed_dict", verdict=Verdict(kind="inconclusive", text=text))
    assert au(session, 0.6).outcome == "failed"
    gate = au(spoilt, 0.6)
    assert gate.outcome == "undecided"
    assert "its files were not as cold as it asked" in gate.text


@pytest.mark.parametrize(("limit", "outcome"), [(0.9, "failed"), (0.3, "passed")])
def test_an_au_needs_no_wait_of_its_backend(limit: float, outcome: Outcome) -> None:
    trials = [records.record("feed_dict", repeat, 10.0, None) for repeat in range(3)]
    trials += [records.record("ceiling", repeat, 5.0, None) for repeat in range(3)]
    session = records.session(records.scenario("feed_dict"), trials)
    assert "does not say how long a step waits" in session.result("feed_dict").verdict.text
    assert au(session, limit).outcome == outcome


def test_an_au_far_below_the_limit_fails_also_where_only_its_cause_is_open() -> None:
    """The interval of the input wait holds a verdict's line, while that of the AU ends far below the limit."""
    session = pairs.session({"feed_dict": (3.3, 3.33, 3.27)}, (2.7, 2.7, 2.7), wait_ms=0.33)
    assert "the threshold is" in session.result("feed_dict").verdict.text
    assert au(session, 0.95).outcome == "failed"


def test_an_au_beyond_what_can_be_does_not_pass() -> None:
    session = pairs.session({"feed_dict": (2.0, 2.02, 1.98)}, (2.5, 2.52, 2.48), wait_ms=0.1)
    gate = au(session, 0.9)
    assert gate.outcome == "undecided"
    assert "more than its step, which cannot be" in gate.text


def test_a_ceiling_of_another_job_is_no_reason_for_a_slowdown() -> None:
    before = pairs.session({"feed_dict": STEADY})
    after = pairs.session({"feed_dict": [ms * 1.5 for ms in STEADY]}, [ms * 1.5 for ms in pairs.CEILING_MS])
    gate = slower(before, pairs.of_other_jobs(after, features=256))
    assert gate.outcome == "failed"
    assert "its ceiling" not in gate.text


def test_a_limit_of_au_is_explained_by_one_of_au() -> None:
    with pytest.raises(UsageError) as caught:
        share("150%", "--fail-if-au-below", examples=("90%", "0.9"))
    assert caught.value.hint.endswith("from 0 to 100%: 90%, or 0.9 for the same.")


@pytest.mark.parametrize(
    ("text", "value"),
    [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), (" 5.5% ", 0.055), (".5", 0.5), ("90%", 0.9), ("1", 1.0), ("0", 0.0)],
)
def test_a_share_is_a_percentage_or_a_fraction(text: str, value: float) -> None:
    assert share(text, "--x") == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "%", "-5%", "five", "5%%", "nan", "inf", "1e999", "5,5%", "0x5", "101%", "5", "٥%", "9" * 400]
)
def test_what_is_no_share_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        share(text, "--fail-if-slower")
    assert "--fail-if-slower" in caught.value.message
    assert "%" in caught.value.hint


@given(st.text())
def test_any_text_is_a_share_or_a_usage_error(text: str) -> None:
    try:
        value = share(text, "--x")
    except UsageError:
        return
    assert 0 <= value <= 1


def test_of_diagnoses_only_the_pipeline_as_written_is_held_to_a_limit() -> None:
    before = diagnose(Machine(python_decode(20.0), lambda edits: 10.0 if edits else 20.0, ceiling_ms=5.0), budget_s=40)
    after = diagnose(Machine(python_decode(40.0), lambda edits: 60.0 if edits else 40.0, ceiling_ms=5.0), budget_s=40)
    for limits in (Limits(slower=0.05), Limits(au_below=0.9)):
        found = between(before, after, limits).gates
        assert [gate.variant for gate in found] == [AS_WRITTEN]
        assert [gate.outcome for gate in found] == ["failed"]
