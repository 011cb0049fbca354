"""The end of a run on one screen: what it says, and that it fits."""

from __future__ import annotations

import pytest

from pipeline_bench.model.diagnosis import Attempt, Equality
from pipeline_bench.model.result import Doubt, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.report import screen
from tests.unit import diagnoses, sessions
from tests.unit.console import printed


def shown(session: Session, width: int = 80) -> list[str]:
    return printed(screen.render(session, width), width).splitlines()


@pytest.mark.parametrize("session", [sessions.normal(), diagnoses.session(), sessions.pending()])
def test_it_fits_a_screen_with_room_for_the_page_and_the_prompt(session: Session) -> None:
    lines = shown(session)
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80


def test_a_probable_limit_says_what_else_it_may_be() -> None:
    session = sessions.normal()
    doubt = Doubt(figure="input wait", low=0.08, high=0.2, line=0.1, instead=("mixed",), rounds=5)
    verdict = session.results[0].verdict.model_copy(update={"certainty": "probable", "severe": False, "doubt": doubt})
    first = session.results[0].model_copy(update={"verdict": verdict})
    lines = shown(session.model_copy(update={"results": (first, *session.results[1:])}))
    assert any("probably input-bound" in line and "or mixed" in line for line in lines)


def test_equal_work_is_two_words_and_unequal_work_is_not_called_equal() -> None:
    session = sessions.normal()
    equal = [r.model_copy(update={"work": WorkCheck(status="equal", text="the same")}) for r in session.results]
    assert any("equal work ✓" in line for line in shown(session.model_copy(update={"results": tuple(equal)})))
    other = equal[0].model_copy(update={"work": WorkCheck(status="unequal", text="it lost 3")})
    unequal = session.model_copy(update={"results": (other, *equal[1:])})
    assert not any("equal work ✓" in line for line in shown(unequal))


@pytest.mark.parametrize(("session", "command"), [(sessions.normal(), "compare"), (diagnoses.session(), "diagnose")])
def test_the_picture_names_the_command_and_is_the_same_file_each_time(session: Session, command: str) -> None:
    svg = screen.export_svg(session)
    assert svg.startswith("<svg")
    assert f"pipeline-bench {command}" in svg.replace("&#160;", " ")
    assert svg == screen.export_svg(session)


def test_a_fix_that_failed_has_one_line_and_its_evidence_is_left_to_the_details() -> None:
    session, found = diagnoses.session(), diagnoses.diagnosis()
    broken = next(each for each in found.attempts if each.outcome == "failed")
    trial = sessions.trial(99, broken.fix.variant, 0, status="failed", steps=None, reason="it raised ValueError")
    first = found.model_copy(update={"attempts": (broken,)})
    lines = "\n".join(shown(session.model_copy(update={"trials": (*session.trials, trial), "diagnosis": first})))
    assert f"{broken.fix.variant}: failed (--details shows why)" in lines
    assert "ValueError" not in lines


def test_a_fix_that_is_refused_has_the_reason_behind_its_gain() -> None:
    found = diagnoses.diagnosis()
    refused = found.attempts[0].model_copy(
        update={"outcome": "refused", "equality": Equality(status="unequal"), "reason": "It changes which arrive."}
    )
    lines = "\n".join(shown(diagnoses.session(found.model_copy(update={"attempts": (refused,)}))))
    assert "(other samples)" in lines


def test_a_fix_of_the_bottleneck_that_an_option_allows_is_named_with_the_option() -> None:
    found = diagnoses.diagnosis()
    fix = diagnoses.fix("parallel map(decode)", "Run decode on several cores", threads=True)
    left = Attempt(fix=fix, outcome="not-tried", reason="it calls a function on several threads")
    session = diagnoses.session(found.model_copy(update={"attempts": (left,)}))
    assert "· not tried: parallel map(decode) (--allow-threads)" in shown(session)
    allowed = found.model_copy(update={"attempts": (left,), "allow_threads": True})
    assert not any("not tried" in line for line in shown(diagnoses.session(allowed)))
