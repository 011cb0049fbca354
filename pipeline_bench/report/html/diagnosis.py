"""What a page says of a diagnosis: the tree as boxes on rails, what was tried, the code to write, the limits."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.session import Session
from pipeline_bench.report import diagnosis as words
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Cell, Table, line, table
from pipeline_bench.report.pipeline_tree import Row
from pipeline_bench.text import units

_MARKS = {"+": "ins", "-": "del", "@": "at"}


@dataclass(frozen=True)
class Box:
    """A stage as it is drawn: its row, its rails and its bar."""

    row: Row
    rails: tuple[tuple[int, str], ...]
    """The place of each rail from the left, and its part that is drawn: ``full``, ``up``, ``down``, ``none``."""
    percent: float
    """The length of its bar, of the longest one."""
    colour: str
    figures: tuple[tuple[str, str], ...]
    """Terms and facts beside the bar."""

    @property
    def reach(self) -> int:
        """How many rails further inputs come in from."""
        return self.row.joins


@dataclass(frozen=True)
class View:
    """A diagnosis for the template; what there is not is empty or None."""

    headline: str
    standing: tuple[str, ...]
    bottleneck: str
    boxes: tuple[Box, ...]
    rails: int
    """How many rails the widest row has."""
    reasons: tuple[str, ...]
    noun: str
    fixes: Table | None
    others: Table | None
    code_for: str
    diff: Markup | None
    code_text: str
    limits: Table | None
    notes: tuple[str, ...]
    traceback: Markup | None


def view(session: Session) -> View | None:
    """None for a session that is no diagnosis."""
    diagnosis = session.diagnosis
    if diagnosis is None:
        return None
    tries = words.tried(session, diagnosis)
    shown = words.code(tries, diagnosis)
    name, code = shown if shown is not None else ("", None)
    boxes = _boxes(diagnosis)
    trace = words.traceback_lines(diagnosis.traceback)
    return View(
        headline=words.headline(session, diagnosis),
        standing=tuple(map(line, words.standing(session, diagnosis))),
        bottleneck=line(words.bottleneck(session, diagnosis)),
        boxes=boxes,
        rails=max((box.row.depth + box.reach + 1 for box in boxes), default=0),
        reasons=tuple(f"{box.row.label}: {box.row.reason}" for box in boxes if box.row.reason),
        noun=words.element_noun(diagnosis),
        fixes=_tries("Fixes that help, best first", [each for each in tries if each.helps]),
        others=_tries("Tried without gain, refused, or not tried", [each for each in tries if not each.helps]),
        code_for=name,
        diff=_diff(code.diff) if code is not None and code.diff else None,
        code_text=line(code.text) if code is not None else "",
        limits=_limits(session, diagnosis),
        notes=tuple(line(note) for note in (diagnosis.inspection.notes if diagnosis.inspection is not None else ())),
        traceback=Markup("\n").join(map(escape, trace)) if trace else None,
    )


def _boxes(diagnosis: Diagnosis) -> tuple[Box, ...]:
    rows = pipeline_tree.rows(diagnosis)
    longest = max((row.share or 0.0 for row in rows), default=0.0)
    last = max((index for index, row in enumerate(rows) if not row.is_inner), default=0)
    return tuple(
        Box(
            row,
            _rails(row, index < last),
            round(100 * (row.share or 0.0) / longest, 1) if longest else 0.0,
            elements.INPUT_WAIT if row.is_bottleneck else elements.DEVICE,
            _figures(row),
        )
        for index, row in enumerate(rows)
    )


def _rails(row: Row, goes_on: bool) -> tuple[tuple[int, str], ...]:
    through = [(rail, "full") for rail in range(row.depth)]
    begins = row.guide.rstrip("─┴").endswith("┬") or row.guide == "─"
    if row.is_inner:
        own = "full" if goes_on else "none"
    elif begins:
        own = "down" if goes_on else "none"
    else:
        own = "full" if goes_on else "up"
    joined = [(rail, "up") for rail in range(row.depth + 1, row.depth + row.joins + 1)]
    return (*through, (row.depth, own), *joined)


def _figures(row: Row) -> tuple[tuple[str, str], ...]:
    cpu = f"{units.plain_milliseconds(row.cpu_ms)} ms" if row.cpu_ms is not None else ""
    facts = (("CPU", cpu), ("parallel", row.parallelism), ("buffer", row.buffer), ("element", row.element))
    return tuple((term, fact) for term, fact in facts if fact)


def _tries(caption: str, tries: list[words.Tried]) -> Table | None:
    if not tries:
        return None
    return table(
        caption,
        tries,
        ("fix", lambda each: Cell(each.title, "" if each.title == each.variant else each.variant)),
        ("outcome", lambda each: Cell(each.outcome, whole=True)),
        ("gain", lambda each: Cell(each.gain, each.interval, whole=True)),
        ("remark", lambda each: f"{each.remark}." if each.remark else ""),
    )


def _diff(diff: str) -> Markup:
    """The diff's lines, added and removed ones marked as such."""
    made = []
    for text in words.diff_lines(diff):
        mark = None if text.startswith(("---", "+++")) else _MARKS.get(text[:1])
        tag = "span" if mark in (None, "at") else mark
        kind = Markup(' class="{}"').format(mark or "file") if tag == "span" and text[:1] != " " else ""
        made.append(Markup("<{0}{1}>{2}</{0}>").format(tag, kind, text))
    return Markup("\n").join(made)


def _limits(session: Session, diagnosis: Diagnosis) -> Table | None:
    limits = words.limits(session, diagnosis)
    if not limits:
        return None
    noun = words.element_noun(diagnosis)
    return table(
        f"The time of a {noun} as it was reached, and if only one thing limited it",
        limits,
        ("", lambda each: each.name),
        (f"a {noun}", lambda each: Cell(units.milliseconds(each.ms), whole=True)),
        ("because", lambda each: each.text),
    )
