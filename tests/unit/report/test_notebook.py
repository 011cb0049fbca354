"""A session in a notebook: a fragment that needs no script, no style sheet and no network."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipeline_bench
from pipeline_bench.analysis.conclusion import conclude
from pipeline_bench.model import session as saved
from pipeline_bench.model.session import Session
from pipeline_bench.report import html
from pipeline_bench.text import units
from tests.unit import sessions
from tests.unit.report.pages import EVERY, HOSTILE, Page, hostile


@pytest.fixture(params=EVERY)
def session(request: pytest.FixtureRequest) -> Session:
    return EVERY[request.param]()


def test_it_is_a_closed_fragment_of_plain_markup(session: Session) -> None:
    page = Page(html.fragment(session))
    assert page.open == []
    assert not page.tags.keys() & {"script", "style", "link", "img", "iframe", "html", "body", "a"}
    assert not {name for _, name, _ in page.attributes} & {"src", "href", "onclick", "onerror", "id"}


def test_it_says_the_conclusion_the_verdicts_and_the_figures() -> None:
    session = sessions.normal()
    text = Page(html.fragment(session)).text
    assert conclude(session) in text
    for result in session.results:
        assert units.plain_milliseconds(result.step_ms.median) in text
        assert result.verdict.kind in text


def test_the_parts_of_a_step_fill_its_width() -> None:
    widths = [
        float(style.split("width: ")[1].split("%")[0])
        for style in Page(html.fragment(sessions.normal())).values("style")
        if style.startswith("width: ")
    ]
    assert len(widths) == 9
    assert sum(widths) == pytest.approx(300, abs=0.1)


def test_hostile_texts_stay_text() -> None:
    page = Page(html.fragment(hostile()))
    for text in HOSTILE[:4]:
        assert text in page.text


def test_a_session_shows_itself_so(tmp_path: Path) -> None:
    saved.save(sessions.normal(), tmp_path)
    loaded = pipeline_bench.load(tmp_path)
    assert loaded._repr_html_() == html.fragment(sessions.normal())
