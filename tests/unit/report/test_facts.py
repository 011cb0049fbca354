"""Disturbances in few lines: none is lost, the costliest is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.session import Session
from pipeline_bench.report import facts, html, markdown, terminal
from tests.unit import diagnoses, sessions
from tests.unit.console import words
from tests.unit.report.pages import Page


def noise(variant: str, repeat: int, cost: float | None = None, text: str = "it was busy.") -> Disturbance:
    return Disturbance(kind="burst", variant=variant, repeat=repeat, cost_share=cost, text=text)


def test_one_alone_is_told_as_it_is() -> None:
    assert facts.disturbances([noise("a", 2)], 8) == [("a, repeat 3", "burst", "it was busy.")]


def test_those_of_a_variant_and_kind_share_a_line_with_the_words_of_the_worst() -> None:
    found = facts.disturbances([noise("a", 2, 0.1, "little."), noise("a", 0, 0.3, "much."), noise("a", 4, None)], 8)
    assert found == [("a, repeats 1, 3 and 5", "burst", "in repeat 1 much.")]


def test_the_costliest_come_first_and_those_of_unknown_cost_last() -> None:
    found = facts.disturbances([noise("none", 0), noise("zero", 0, 0.0), noise("much", 0, 0.5)], 8)
    assert [head for head, _, _ in found] == ["much, repeat 1", "zero, repeat 1", "none, repeat 1"]


def test_what_is_left_out_is_counted() -> None:
    found = facts.disturbances([noise(f"v{i}", 0) for i in range(5)], 3)
    assert len(found) == 4
    assert found[-1] == ("besides", "", "2 smaller disturbances in the session file")
    several = facts.disturbances([noise("v", 0, 0.9), *(noise("w", i) for i in range(3))], 1)
    assert several[-1] == ("besides", "", "3 smaller disturbances in the session file")
    elsewhere = facts.disturbances([noise(f"v{i}", 0) for i in range(4)], 3, rest="in the list below")
    assert elsewhere[-1] == ("besides", "", "1 smaller disturbance in the list below")


def test_those_of_a_diagnosis_are_told_by_kind_with_the_trial_that_had_most() -> None:
    noises = [noise("a", 0, 0.1, "little."), noise("a", 1, 0.1, "little."), noise("b", 0, 0.3, "much.")]
    assert facts.disturbances(noises, 8, by_kind=True) == [
        ("3 trials of 2 variants", "burst", "most in b, repeat 1: much.")
    ]
    assert facts.disturbances(noises[:1], 8, by_kind=True) == [("a, repeat 1", "burst", "little.")]


def test_many_repeats_and_long_names_stay_on_a_short_line() -> None:
    ((head, _, text),) = facts.disturbances(
        [noise("n" * 10_000, i, text="two\nlines " + "x" * 10_000) for i in range(99)], 3
    )
    assert len(head) < 200
    assert len(text) <= 300
    assert "\n" not in text


FORMATS: dict[str, Callable[[Session], str]] = {
    "html": lambda session: Page(html.render(session)).text,
    "markdown": markdown.render,
    "terminal": lambda session: words(terminal.render(session, None, 200), 200),
}


@pytest.mark.parametrize("session", [sessions.normal(), diagnoses.session()], ids=["comparison", "diagnosis"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_section_of_facts_is_in_every_format(
    name: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = replace(facts.SECTIONS[0], title="New", heading="A new one")
    said = {section.title: f"what {section.title.lower()} says" for section in (*facts.SECTIONS, new)}

    def only(line: str) -> Callable[[Session], list[facts.Fact]]:
        return lambda _: [("of it", line)]

    filled = [replace(each, facts=only(said[each.title])) for each in (*facts.SECTIONS, new)]
    monkeypatch.setattr(facts, "SECTIONS", tuple(filled))
    text = FORMATS[name](session)
    assert [title for title, line in said.items() if line not in text] == []


def test_a_session_in_which_nothing_was_measured_has_no_medians() -> None:
    assert "ms/step: the mean, as every figure is of means" in facts.captions(sessions.pending())
    assert "ms/step: the median; all other figures use means" in facts.captions(sessions.normal())
