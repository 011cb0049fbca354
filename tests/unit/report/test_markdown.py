"""Markdown for a pull request: the figures are there, and nothing of a scenario becomes markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.report import markdown
from pipeline_bench.session import Session
from tests.unit import sessions


def table_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")]


def test_the_figures_and_the_verdicts_are_there() -> None:
    session = sessions.normal()
    text = markdown.render(session)
    for result in session.results:
        assert markdown.escape(result.variant) in text
        assert markdown.escape(result.verdict.text, 600) in text
    assert "18.0 s" in text
    assert "38 %" in text


@pytest.mark.parametrize("session", [sessions.normal(), sessions.troubled(), sessions.pending(), sessions.hostile()])
def test_every_row_of_a_table_has_the_cells_of_its_head(session: Session) -> None:
    for block in markdown.render(session).split("\n\n"):
        rows = table_rows(block)
        widths = {row.replace("\\|", "").count("|") for row in rows}
        assert len(widths) <= 1, rows


def test_what_failed_is_told_with_its_reason() -> None:
    session = sessions.troubled()
    text = markdown.render(session)
    for record in session.trials:
        if record.status != "ok":
            assert markdown.escape(record.reason or "", 600) in text


@given(st.text())
def test_an_escaped_text_holds_no_bare_markup(text: str) -> None:
    escaped = markdown.escape(text)
    assert "\n" not in escaped
    bare = escaped.replace("\\\\", "")
    for special in "`*<>|[]#":
        assert special not in bare.replace(f"\\{special}", "")


def test_names_with_underscores_stay_readable() -> None:
    assert markdown.escape("feed_dict") == "feed_dict"
    assert markdown.escape("_emphasis_") == "\\_emphasis\\_"
