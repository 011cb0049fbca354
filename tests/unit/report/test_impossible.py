"""A figure that cannot be is a dash, and its reason is within reach of whoever sees the dash."""

from __future__ import annotations

import pytest

from pipeline_bench.analysis.results import summarise
from pipeline_bench.model.diagnosis import AS_WRITTEN
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import html, screen, terminal
from tests.unit import diagnoses, records
from tests.unit.console import printed
from tests.unit.records import rounds, scenario
from tests.unit.report.pages import Page
from tests.unit.sessions import with_result

REASON = "its wait and its ceiling together take 15 % more than its step, which cannot be"
TRIALS = rounds({"feed_dict": (10.0, 2.0), "ceiling": (9.5, None)})


def impossible() -> Result:
    found = summarise(scenario("feed_dict"), TRIALS, cores=2)[0]
    assert found.accelerator_utilization.value is None
    return found


def comparison() -> Session:
    return records.session(scenario("feed_dict"), TRIALS)


def diagnosis() -> Session:
    return with_result(diagnoses.with_model(), AS_WRITTEN, **{**dict(impossible()), "variant": AS_WRITTEN})


def test_the_screen_says_why_beside_a_verdict_that_stands_without_it() -> None:
    """It waits for 60 % of its step, so that it is input-bound whatever its ceiling is."""
    session = records.session(scenario("feed_dict"), rounds({"feed_dict": (10.0, 6.0), "ceiling": (6.0, None)}))
    assert session.result("feed_dict").verdict.kind == "input-bound"
    for width in (80, 160):
        shown = " ".join(printed(screen.render(session, width), width).split())
        assert "AU of feed_dict is not known, its wait and its ceiling exceed its step" in shown


@pytest.mark.parametrize("session", [comparison(), diagnosis()], ids=["comparison", "diagnosis"])
def test_the_details_and_the_page_say_why(session: Session) -> None:
    assert REASON in " ".join(printed(terminal.render(session, None, 50), 50).split())
    assert REASON in Page(html.render(session)).text
