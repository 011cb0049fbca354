"""A diagnosis as blocks of Markdown: where it stands, the tree as a table, what to do, how far it can go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.session import Session
from pipeline_bench.report import diagnosis_words as words
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.diagnosis_words import Tried
from pipeline_bench.report.pipeline_tree import Row
from pipeline_bench.text import units

_TEXT_LIMIT = 600
_WORDS = ("stage", "where", "parallelism", "buffer", "element")
_HEADS = ("own ms", "share", "CPU ms", "parallelism", "buffer", "element")
Escape = Callable[[str, int], str]
Table = Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], str]


def blocks(session: Session, diagnosis: Diagnosis, escape: Escape, table: Table) -> Iterator[str]:
    """The report's blocks in their order.

    Args:
        session: that the diagnosis is of.
        diagnosis: as far as it has come.
        escape: makes foreign text harmless, to a number of characters.
        table: makes a table of heads and of cells that are Markdown already; the heads named last have text below them.
    """
    tries = words.tried(session, diagnosis)
    if lines := words.traceback_lines(diagnosis.traceback):
        yield f"Your function's own traceback:\n\n{_fenced(lines, 'text')}"
    if standing := words.standing(session, diagnosis):
        yield "#### Where it stands\n\n" + "\n".join(f"- {escape(line, _TEXT_LIMIT)}" for line in standing)
    yield from _tree(session, diagnosis, escape, table)
    yield from _attempts(tries, diagnosis, escape, table)
    yield from _code(tries, diagnosis, escape)
    if diagnosis.limits and (limits := words.limits(session, diagnosis)):
        rows = [
            [_bold(escape(each.name, 80), each.reached), units.milliseconds(each.ms), escape(each.text, _TEXT_LIMIT)]
            for each in limits
        ]
        yield "#### How far it can go\n\n" + table(
            ("limit", f"a {words.element_noun(diagnosis)}", "because"), rows, ("limit", "because")
        )
    for note in diagnosis.inspection.notes if diagnosis.inspection is not None else ():
        yield f"Note: {escape(note, _TEXT_LIMIT)}"


def _tree(session: Session, diagnosis: Diagnosis, escape: Escape, table: Table) -> Iterator[str]:
    rows = pipeline_tree.rows(diagnosis)
    if not rows:
        return
    said = words.bottleneck(session, diagnosis)
    cells = [_row(row, escape) for row in rows]
    noun = words.element_noun(diagnosis)
    captions = [
        f"from source to sink, each stage alone, a {noun}",
        pipeline_tree.SHARE,
        "parallelism: as written (first → last as AUTOTUNE set it)",
        "buffer: elements in it on average (– is not known), of how many it holds",
        *(f"{escape(row.label, 80)}: {escape(row.reason, _TEXT_LIMIT)}" for row in rows if row.reason),
    ]
    yield "#### Which stage" + (f"\n\n{escape(said, _TEXT_LIMIT)}" if said else "")
    yield table(("stage", "where", *_HEADS), cells, _WORDS) + f"\n\n<sub>{'; '.join(captions)}</sub>"


def _row(row: Row, escape: Escape) -> list[str]:
    guide = row.guide.replace(" ", "\N{NO-BREAK SPACE}")
    name = f"{guide} {_bold(escape(row.label, 80), row.is_bottleneck)}"
    place = escape(row.place, 80)
    if row.is_inner:
        return [name, place, *[""] * len(_HEADS)]
    figures = [units.plain_milliseconds(row.own_ms), units.share(row.share), units.plain_milliseconds(row.cpu_ms)]
    mark = f" **{words.MARK}**" if row.is_bottleneck else ""
    return [name + mark, place, *figures, row.parallelism, row.buffer, row.element]


def _attempts(tries: Sequence[Tried], diagnosis: Diagnosis, escape: Escape, table: Table) -> Iterator[str]:
    if not tries:
        return
    rows = [
        [
            _fix(each, escape),
            each.outcome,
            each.gain,
            each.interval,
            escape(each.remark, _TEXT_LIMIT),
        ]
        for each in tries
        if each.attempt.outcome != "not-tried"
    ]
    heads = ("fix", "outcome", "gain", "95 % interval", "remark")
    parts = [table(heads, rows, ("fix", "outcome", "remark"))] if rows else []
    if left_out := words.left_out(tries, diagnosis):
        parts.append("\n".join(["Not tried:", "", *(f"- {escape(each.text, _TEXT_LIMIT)}" for each in left_out)]))
    yield "\n\n".join(["#### What to do", *parts])


def _fix(each: Tried, escape: Escape) -> str:
    name = _bold(escape(each.variant, 80), each.attempt.outcome == "proposed")
    return name if each.title == each.variant else f"{name}: {escape(each.title, 160)}"


def _code(tries: Sequence[Tried], diagnosis: Diagnosis, escape: Escape) -> Iterator[str]:
    shown = words.code(tries, diagnosis)
    if shown is None or shown.attempt.code is None:
        return
    parts = [f"The code to write for {escape(shown.variant, 80)}:"]
    if shown.attempt.code.diff:
        parts.append(_fenced(words.diff_lines(shown.attempt.code.diff), "diff"))
    if shown.attempt.code.text:
        parts.append(escape(shown.attempt.code.text, 4 * _TEXT_LIMIT))
    yield "\n\n".join(parts)


def _fenced(lines: Sequence[str], language: str) -> str:
    """A block of code, with a fence that nothing in it can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def _bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted and text else text
