"""What a gate decides: it does not fail for noise, and does not pass for want of data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.difference import Gate, Outcome
from pipeline_bench.difference.between import between
from pipeline_bench.difference.gates import Limits, share
from pipeline_bench.errors import UsageError
from pipeline_bench.session import Session, TrialStatus, WorkCheck
from tests.unit.difference import pairs

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
        assert ("its ceiling became slower too, +50 %" in gate.text) == told


def test_without_an_interval_the_figure_alone_decides_and_says_so() -> None:
    before = pairs.session({"feed_dict": (4.0,)}, (2.0,))
    for after_ms, outcome in ((4.1, "passed"), (4.4, "failed")):
        gate = slower(before, pairs.session({"feed_dict": (after_ms,)}, (2.0,)))
        assert gate.outcome == outcome
        assert "by the figure alone" in gate.text
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


def test_a_variant_that_was_not_measured_before_cannot_be_decided() -> None:
    broken = pairs.session({"feed_dict": STEADY, "tf_data": STEADY}, status={"feed_dict": "failed"})
    whole = pairs.session({"feed_dict": STEADY, "tf_data": STEADY})
    gates = between(broken, whole, Limits(slower=0.05)).gates
    assert [gate.outcome for gate in gates] == ["undecided", "passed"]
    assert "planted" in gates[0].text


def test_unequal_work_fails_whatever_its_figures() -> None:
    same = pairs.session({"feed_dict": STEADY})
    check = WorkCheck(status="unequal", text="it repeated 128 of 1280 samples.")
    other = pairs.with_result(same, "feed_dict", work=check)
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


def test_an_au_that_is_not_known_fails() -> None:
    session = pairs.session({"feed_dict": STEADY}, ())
    gate = au(session, 0.1)
    assert gate.outcome == "failed"
    assert "ceiling" in gate.text


def test_an_au_of_one_trial_is_decided_by_the_figure_alone() -> None:
    session = pairs.session({"feed_dict": (4.0,)}, (2.0,))
    assert [au(session, limit).outcome for limit in (0.4, 0.6)] == ["passed", "failed"]
    assert "by the figure alone" in au(session, 0.4).text


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
    assert "Undecided" in slower(before, noisy, strict=True).text
    assert slower(before, before, strict=True).outcome == "passed"


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


@pytest.mark.parametrize("text", ["x" * 10_000, "\x1b[2J", "two\nlines"])
def test_what_was_given_is_told_on_one_short_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        share(text, "--x")
    assert len(caught.value.message) < 200
    assert caught.value.message.isprintable()


@given(st.floats(0, 1))
def test_a_share_comes_back_from_its_text(value: float) -> None:
    assert share(f"{value:.12f}", "--x") == pytest.approx(value, abs=1e-9)
    assert share(f"{value * 100:.10f} %", "--x") == pytest.approx(value, abs=1e-9)
