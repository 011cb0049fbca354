"""A session with a diagnosis in every form: what a reader must find, and that foreign text stays text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from pipeline_bench.cli import run
from pipeline_bench.model import session as saved
from pipeline_bench.model.diagnosis import Attempt
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.result import Speedup
from pipeline_bench.model.series import Series
from pipeline_bench.model.session import Session
from pipeline_bench.report import csv as csv_report
from pipeline_bench.report import html, markdown, terminal, trace
from tests.unit import diagnoses
from tests.unit.report.pages import Page

WIDTHS = (60, 80, 120, 160)
FOLDER = Path("reports/x")


def shown(session: Session, width: int = 100) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), _environ={})
    console.print(terminal.render(session, FOLDER, width))
    return console.export_text()


def on_paper(session: Session) -> str:
    return shown(session, 160)


def on_a_page(session: Session) -> str:
    text = Page(html.render(session)).text
    return text[text.index("pipeline-bench report") :]  # behind the style sheet


def in_a_notebook(session: Session) -> str:
    return Page(html.fragment(session)).text


FORMS: dict[str, Callable[[Session], str]] = {
    "terminal": on_paper,
    "markdown": lambda session: markdown.render(session).replace("\\", ""),
    "html": on_a_page,
}
"""What is laid out by code of its own; a notebook's fragment is the body of the page."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Callable[[Session], str]:
    return FORMS[request.param]


@pytest.fixture(params=diagnoses.EVERY)
def session(request: pytest.FixtureRequest) -> Session:
    return diagnoses.EVERY[request.param]()


def test_the_headline_comes_first(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.session())
    start = text.index("map(decode) starves the pipeline; running it on several cores")
    assert (
        start < text.index("A batch takes 12.9 ms") < text.index("TFRecordDataset") < text.index("3.12×", start + 120)
    )


def test_where_it_stands_without_a_model(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.session())
    assert "A batch takes 12.9 ms: 77.5 batches/s, 2.48k samples/s." in text
    assert "An accelerator whose step is shorter than 12.9 ms would starve." in text
    assert "Input wait" not in text


def test_where_it_stands_with_a_model(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.with_model())
    assert "A training step takes 12.9 ms" in text
    assert "Input wait 62 %, host slowdown 3 %, ceiling (the model alone) 4.50 ms" in text
    assert "accelerator utilization (AU) 0.35." in text
    assert "would starve" not in text


def test_every_stage_has_its_place_and_the_bottleneck_its_mark(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.session())
    for label, line in (("list_files", 12), ("TFRecordDataset", 13), ("shuffle", 15), ("prefetch", 17)):
        assert label in text
        assert f"train.py:{line}" in text
    assert re.search(r"map\(decode\)\W+(◀ )?bottleneck", text)
    assert text.count("bottleneck") == 1


def test_every_attempt_is_listed_with_its_gain_or_its_reason(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.session())
    for part in (
        "3.12×",
        "3.04× to 3.20×",
        "2.95×",
        "the same samples in another order".capitalize(),
        "several threads at once",
        "no gain",
        "mallest this run could have seen: 2.1 %",
        "slower",
        "It changes which samples arrive: 12 of 640 differ",
        "killed by signal 9",
        "The budget of 120 s was spent",
    ):
        assert part in text, part


def test_a_gain_that_chance_may_be_is_not_called_none() -> None:
    whole = diagnoses.session()
    once = Speedup(over="as written", value=4.4, reason="an interval needs at least 2 trials")
    results = tuple(r.model_copy(update={"speedup": once}) if r.variant == "prefetch" else r for r in whole.results)
    text = on_paper(whole.model_copy(update={"results": results}))
    assert "prefetch: not proven 4.40×" in text
    assert "prefetch: no gain" in on_paper(whole)


def not_tried(variant: str, reason: str) -> Attempt:
    return Attempt(fix=diagnoses.fix(variant, f"Do {variant}"), outcome="not-tried", reason=reason)


@pytest.mark.parametrize("form", [on_paper, FORMS["markdown"]])
def test_what_was_not_tried_is_listed_by_its_reason(form: Callable[[Session], str]) -> None:
    late = "the budget was spent before it was its turn"
    attempts = (not_tried("any order", late), not_tried("cache", "shuffle takes 0 % of it"), not_tried("pool", late))
    text = form(diagnoses.session(diagnoses.diagnosis(attempts=attempts)))
    assert "The budget was spent before it was its turn: any order, pool" in text
    assert "shuffle takes 0 % of it: cache" in text  # a stage's name is code, and keeps its small letter
    assert "proven to make it faster" not in text


def test_an_interval_that_tells_nothing_is_called_so(form: Callable[[Session], str]) -> None:
    whole = diagnoses.session()
    wide = Speedup(over="as written", value=0.6, ci95=(0.001, 520.57), difference="none", smallest=519.0)
    results = tuple(r.model_copy(update={"speedup": wide}) if r.variant == "prefetch" else r for r in whole.results)
    text = form(whole.model_copy(update={"results": results}))
    assert "interval too wide to tell" in text
    start = text.index("What to do") if "What to do" in text else text.index("interval too wide to tell")
    assert "520" not in text[start : text.index("How far it can go") if "How far it can go" in text else None]


def test_a_combination_goes_by_its_name_alone(form: Callable[[Session], str]) -> None:
    whole = diagnoses.diagnosis()
    combined = next(each for each in whole.attempts if each.fix.combines)
    long = combined.model_copy(update={"fix": combined.fix.model_copy(update={"title": "Do this; " * 40})})
    attempts = tuple(long if each is combined else each for each in whole.attempts)
    text = form(diagnoses.session(whole.model_copy(update={"attempts": attempts})))
    assert combined.fix.variant in text
    assert "Do this" not in text


def test_what_autotune_never_changed_is_no_plot() -> None:
    whole = diagnoses.diagnosis()
    assert whole.inspection is not None
    flat = tuple(
        each.model_copy(update={"values": Series.pack(np.full(each.values.unpack().size, 2.0))})
        for each in whole.inspection.tuned
    )
    still = whole.model_copy(update={"inspection": whole.inspection.model_copy(update={"tuned": flat})})
    assert not [plot for plot in Page(html.render(diagnoses.session(still))).plots if plot["id"] == "autotune"]


def test_what_the_headline_says_of_a_failure_is_not_said_again() -> None:
    reason = "make_dataset wants an argument: size. Give it a number by --batch-arg N"
    whole = diagnoses.failed()
    assert whole.diagnosis is not None
    told = whole.diagnosis.model_copy(update={"text": reason, "failure": reason, "traceback": ""})
    record = whole.trials[0].model_copy(update={"traceback": "", "reason": reason})
    text = on_paper(whole.model_copy(update={"diagnosis": told, "trials": (record,)}))
    assert text.count("wants an argument") == 1
    assert f"{reason}." in text
    log = "E0000 00:00:1795335705.538455 14706 cuda_platform.cc:52] failed call to cuInit\n"
    logged = whole.model_copy(update={"diagnosis": told, "trials": (record.model_copy(update={"stderr_tail": log}),)})
    assert shown(logged).count("wants an argument") == 1
    noisy = record.model_copy(update={"stderr_tail": "disk is full"})
    assert "disk is full" in on_paper(whole.model_copy(update={"diagnosis": told, "trials": (noisy,)}))


def test_how_a_fix_was_measured_is_said_beside_it(form: Callable[[Session], str]) -> None:
    whole, note = (
        diagnoses.session(),
        "A pass over the cache did not end within 3 s: measured on its first 171 elements.",
    )
    trials = tuple(
        each.model_copy(update={"inspection": Inspection(notes=(note,))}) if each.variant == "prefetch" else each
        for each in whole.trials
    )
    assert "easured on its first 171 elements" not in form(whole)
    assert form(whole.model_copy(update={"trials": trials})).count("easured on its first 171 elements") == 1


def test_columns_of_words_stand_to_the_left() -> None:
    rules = [line for line in markdown.render(diagnoses.session()).splitlines() if line.startswith("| ---")]
    assert rules == [
        "| --- | --- | ---: | ---: | ---: | --- | --- | --- |",
        "| --- | --- | ---: | ---: | --- |",
        "| --- | ---: | --- |",
    ]


def test_the_best_comes_first_whatever_the_order_in_the_file(form: Callable[[Session], str]) -> None:
    turned = diagnoses.session(diagnoses.diagnosis(attempts=diagnoses.attempts()[::-1]))
    text = form(turned)
    assert text.index("3.04× to 3.20×") < text.index("2.85× to 3.05×") < text.index("2.30× to 2.50×")
    assert text.index("2.30× to 2.50×") < text.index("12 of 640 differ") < text.index("was spent")


def test_the_code_to_write_is_there_with_its_blanks() -> None:
    line = "+    ds = ds.map(decode, num_parallel_calls=tf.data.AUTOTUNE)"
    assert line in shown(diagnoses.session())
    assert f"\n{line}\n" in markdown.render(diagnoses.session())
    assert f"<ins>{line}</ins>" in html.render(diagnoses.session())
    assert line in html.fragment(diagnoses.session()).replace("<ins>", "")


def test_the_limits_stand_beside_what_was_reached(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.session())
    end = text[text.index("as it is written", text.index("was spent")) :] if form is on_paper else text
    for part in ("as it is written", "with parallel map(decode) + prefetch", "4.13 ms", "3.40 ms", "2.90 ms"):
        assert part in end, part
    assert "no model was given" in end


def test_what_the_headline_says_of_the_bottleneck_is_not_said_again() -> None:
    whole = diagnoses.diagnosis()
    assert whole.bottleneck is not None
    text = on_paper(diagnoses.session(whole.model_copy(update={"text": f"{whole.bottleneck.text} It can be 3.12×."})))
    assert text.count(whole.bottleneck.text) == 1
    assert "on one core. (87 % of the time)" in on_paper(diagnoses.session())


def test_nothing_to_gain_is_said(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.nothing_to_gain())
    assert "Nothing was found that makes this pipeline faster." in text
    assert "No stage stands out" in text
    assert "bottleneck" not in text
    assert "+++" not in text


def test_the_users_own_traceback_is_shown_once(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.failed())
    assert "ds = tf.data.TFRecordDataset(undefined_name)" in text
    assert text.count("ds = tf.data.TFRecordDataset") == 1
    assert "Which stage" not in text


def test_an_interrupted_one_says_what_it_did_not_come_to(form: Callable[[Session], str]) -> None:
    whole = diagnoses.session(diagnoses.diagnosis(text=""))
    stopped = whole.trials[-1].model_copy(update={"status": "interrupted", "reason": "interrupted by the user"})
    text = form(whole.model_copy(update={"trials": (*whole.trials[:-1], stopped)}))
    assert "Interrupted before anything was found out." in text


def test_two_inputs_and_wide_characters(form: Callable[[Session], str]) -> None:
    text = form(diagnoses.branched())
    assert "map(größe_名前)" in text
    assert "TextLineDataset" in text
    assert "TFRecordDataset" in text, "the stage that the interleave builds"


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int, session: Session) -> None:
    assert max(cell_len(line) for line in shown(session, width).splitlines()) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut(width: int) -> None:
    text = shown(diagnoses.session(), width)
    assert "…" not in text
    for figure in ("11.2", "87 %", "1 (1→4)", "32 × 147 KiB", "0.25 of 4", "train.py:17", "map(decode) ◀"):
        assert figure in text, figure


def test_everything_stays_text(session: Session) -> None:
    for form in (*FORMS.values(), in_a_notebook):
        text = form(session).replace("\N{NO-BREAK SPACE}", " ")
        assert all(line.isprintable() for line in text.splitlines())


def test_hostile_texts_are_no_markup() -> None:
    page = Page(html.render(diagnoses.hostile()))
    assert set(page.scripts) == set(Page(html.render(diagnoses.session())).scripts)
    assert page.open == []
    assert diagnoses.HOSTILE[:30] in page.text
    fragment = Page(html.fragment(diagnoses.hostile()))
    assert not fragment.tags.keys() & {"script", "style", "img", "a", "link"}


def test_markdown_keeps_a_fence_that_code_cannot_close() -> None:
    first = diagnoses.attempts()[0]
    assert first.code is not None
    code = first.code.model_copy(update={"diff": "--- a\n+++ a\n@@ -1 +1 @@\n-x\n+````\n"})
    found = diagnoses.diagnosis(attempts=(first.model_copy(update={"code": code}),))
    text = markdown.render(diagnoses.session(found))
    assert "\n`````diff\n" in text
    assert "\n+````\n`````\n" in text


def test_the_page_is_whole(session: Session) -> None:
    page = Page(html.render(session))
    assert page.open == []
    assert html.render(session) == html.render(session.model_copy(deep=True))


def test_the_plot_of_autotune_is_drawn_with_its_table() -> None:
    page = Page(html.render(diagnoses.session()))
    plot = next(plot for plot in page.plots if plot["id"] == "autotune")
    assert [trace["y"] for trace in plot["data"]] == [[1, 2, 2, 4]]
    assert [trace["x"] for trace in plot["data"]] == [[0, 1, 2, 3]]
    assert "What AUTOTUNE set over time: the figures as a table" in page.text
    assert not [plot for plot in Page(html.render(diagnoses.thirty())).plots if plot["id"] == "autotune"]


def test_rows_and_traces_are_made_of_every_one(session: Session) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_report.render(session))))
    assert [row["variant"] for row in rows] == [result.variant for result in session.results]
    assert "traceEvents" in json.loads(trace.render(session))


@pytest.mark.parametrize("kind", ["terminal", "markdown", "html", "csv", "json", "trace"])
def test_a_saved_one_is_rendered_by_the_command(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved.save(diagnoses.session(), tmp_path)
    assert run(["report", str(tmp_path), "--format", kind]) == 0
    assert capsys.readouterr().out.strip()


def test_what_was_tried_and_not_proven_is_not_told_as_not_to_be_used() -> None:
    text = shown(diagnoses.session(), 160)
    _, rest = text.split("Tried, and not proven to make it faster:")
    unproven, unusable = rest.split("Tried, and not to be used:")
    assert "prefetch: no gain" in unproven
    assert "no gain" not in unusable.split("Not tried:")[0]
    for name in ("larger reads", "no shuffle", "cache"):
        assert name in unusable.split("Not tried:")[0]
