"""Markdown for a pull request: the figures are there, and nothing of a scenario becomes markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.result import Disturbance, Estimate, Precision, Speedup, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.report import columns, markdown
from pipeline_bench.text import one_line
from tests.unit import diagnoses, hostile, sessions
from tests.unit.diagnoses import stage
from tests.unit.report import commonmark


def named(name: str) -> Session:
    """A session in which everything that is text is that name."""
    template, said = sessions.normal().results[0], {"kind": "mixed", "text": name}
    result = template.model_copy(
        update={
            "variant": name,
            "verdict": template.verdict.model_copy(update=said),
            "work": WorkCheck(status="equal", text=name),
            "speedup": Speedup(over="another"),
        }
    )
    environment = sessions.GPU.model_copy(update={"accelerator_name": name, "driver": name, "package": name})
    return Session(
        started_at=name,
        scenario=sessions.scenario(sessions.variant(name), name=name).model_copy(update={"question": name}),
        environment=environment,
        notes=(name,),
        trials=(sessions.trial(0, name, 0, status="failed", reason=name),),
        results=(result,),
        disturbances=(Disturbance(kind="burst", variant=name, repeat=0, text=name),),
        precision=Precision(goal=0.02, budget_s=1, text=name),
    )


def table_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("session", [sessions.normal(), sessions.troubled(), sessions.pending(), sessions.hostile()])
def test_every_row_of_a_table_has_the_cells_of_its_head(session: Session) -> None:
    for block in markdown.render(session).split("\n\n"):
        rows = table_rows(block)
        widths = {row.replace("\\|", "").count("|") for row in rows}
        assert len(widths) <= 1, rows


def test_the_tables_of_figures_have_the_heads_of_the_columns_with_the_devices_name() -> None:
    session = sessions.normal()
    heads = [row for row in table_rows(markdown.render(session)) if row.startswith("| variant |")]
    for head, learning in zip(heads, (False, True), strict=True):
        shown = " | ".join(column.head for column, _ in columns(session, learning=learning))
        assert head == f"| variant | {shown} |"
    assert f"{session.device_label} util." in heads[0]


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


@pytest.mark.parametrize(
    "name", [*hostile.NAMES, "*a*", "[a](b)", "![a](b)", "~~a~~", "    a", "> a", "---", "\\`", "1. a"]
)
def test_a_reader_sees_the_name_and_no_markup_of_it(name: str) -> None:
    text = markdown.render(named(name))
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 3000
    rows = [row.replace("\\|", "") for row in table_rows(text)]
    assert {row.count("|") for row in rows} == {10, 5}  # the figures, and the losses
    assert commonmark.unwanted(text) == []
    visible = " ".join(one_line(name).split())[:60]
    assert commonmark.shown(text).count(visible) >= 8


@given(st.text(min_size=1))
def test_any_text_is_seen_as_it_is(text: str) -> None:
    escaped = markdown.escape(text, 10_000)
    assert commonmark.shown(f"x {escaped}").removeprefix("x").strip() == one_line(text)
    assert commonmark.shown(escaped).strip() == one_line(text)
    assert commonmark.unwanted(escaped) == []


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("2) item", "2\\) item"),
        ("===", "\\==="),
        ("1 GPU", "1 GPU"),
        ("2026-11-21", "2026-11-21"),
    ],
)
def test_a_text_makes_no_list_and_no_heading_of_its_line(text: str, escaped: str) -> None:
    assert markdown.escape(text) == escaped


def test_an_interval_has_the_digits_of_its_figure() -> None:
    shares = {
        "input_wait_share": Estimate(value=0.009, ci95=(0.008, 0.0098)),
        "host_slowdown_share": Estimate(value=0.0, ci95=(-0.004, 0.003)),
    }
    text = markdown.render(sessions.with_result(sessions.normal(), "feed_dict", **shares))
    assert "| 0.9 % (0.8 to 1.0 %) |" in text
    assert "| 0 % (-0.4 to 0.3 %) |" in text


def test_the_ceilings_come_last_as_in_every_report() -> None:
    session = sessions.normal()
    text = markdown.render(session.model_copy(update={"results": session.results[::-1]}))
    names = [row.split(" | ")[0].removeprefix("| ") for row in table_rows(text.split("\n\n")[4])]
    assert names == ["variant", "---", "tf_data", "fifo_queue", "feed_dict", "ceiling"]


def test_trials_that_failed_alike_are_one_line() -> None:
    lines = [line for line in markdown.render(sessions.troubled()).splitlines() if "SIGKILL" in line]
    assert lines == ["**fifo_queue**, repeats 1 and 2, failed: killed by signal 9 (SIGKILL), out of memory perhaps"]


def test_the_arguments_of_a_stage_stay_in_their_cell_as_text() -> None:
    foreign = "1 | <img src=//x>\n*b*"
    stages = (
        stage(0, "map", arguments={"num_parallel_calls": foreign}),
        stage(1, "prefetch", 0, arguments={"buffer_size": foreign}),
    )
    text = markdown.render(diagnoses.session(diagnoses.diagnosis(inspection=Inspection(stages=stages, sink=1))))
    assert text.count("\\<img src=//x\\> \\*b\\*") == 2
    assert "<img" not in text.replace("\\<img", "")
