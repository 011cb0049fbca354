"""Session → Markdown for a pull request: what it says, one table, a sentence a variant, what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.model.diagnosis import Diagnosis, Limit
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import (
    PLACEMENT_METHOD,
    Column,
    Placed,
    Unit,
    columns,
    diagnosis,
    facts,
    in_order,
    machines,
    pipeline_tree,
    placements,
)
from pipeline_bench.report.attempts import Tried
from pipeline_bench.text import NAME, REASON, TEXT, joined, one_line, units

_DISTURBANCES_SHOWN = 8
_MOST_OPS = 100

# What Markdown or the HTML inside it would take for its own.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&$!@]|(?<![^\W_])_|_(?![^\W_]))")

# What makes a list, a rule or a heading of the line that it begins.
_LEADING = re.compile(r"^(?=[-+=])|^\d+(?=[.)](?:\s|$))")


def render(session: Session) -> str:
    """Return everything a reader of a pull request needs; names and texts of the scenario are escaped."""
    found = session.diagnosis
    blocks = [
        *_heading(session),
        *(_comparison(session) if found is None else _diagnosis(session, found)),
        *_troubles(session),
        *(f"Note: {escape(note, TEXT)}" for note in session.notes),
        _origin(session) if found is not None else "",
    ]
    return document(blocks)


def document(blocks: Iterable[str]) -> str:
    """Return a document of blocks; an empty one is left out."""
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str, limit: int = NAME) -> str:
    """Return the text on one line, at most `limit` characters of it, shown by Markdown as it is."""
    escaped = _LEADING.sub(r"\g<0>\\", _SPECIAL.sub(r"\\\1", one_line(text, limit)))
    return escaped.replace("://", ":\\//").replace("www.", "www\\.")  # GitHub makes links of these by itself


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str] = ()) -> str:
    """Return a table of cells that are Markdown already; the first column and those of words stand to the left."""
    rule = ["---", *("---" if head in words else "---:" for head in heads[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def _list(head: str, items: Iterable[tuple[str, str]]) -> str:
    """Return a list under its head, each item with its name; empty where there is none."""
    lines = [f"- **{escape(name, TEXT)}**: {escape(text, TEXT)}" for name, text in items]
    return "\n".join([head, "", *lines]) if lines else ""


def _heading(session: Session) -> Iterator[str]:
    yield f"### pipeline-bench: {escape(session.scenario.name)}"
    yield f"**{escape(diagnosis.headline(session), TEXT)}**"
    yield escape(session.scenario.question, TEXT)
    yield escape(facts.machine(session), TEXT)


def _origin(session: Session) -> str:
    return f"<sub>pipeline-bench {escape(session.environment.package)}, {escape(session.started_at)}</sub>"


def _comparison(session: Session) -> Iterator[str]:
    yield _figures(session, in_order(session))
    yield _caption(session)
    if together := machines.together(session):
        yield table(machines.TOGETHER, [[escape(name), *map(escape, figures)] for name, figures in together])
    yield "\n".join(f"- **{escape(r.variant)}**: {escape(r.verdict.text, TEXT)}" for r in in_order(session))
    yield _learning(session)
    yield escape(facts.precision(session), TEXT)
    with_input = [result for result in session.results if result.variant not in session.scenario.ceilings]
    yield _list("Work:", ((r.variant, r.work.text) for r in with_input if r.work.text))
    yield from _facts(session)
    yield from _placement(session)
    yield _disturbances(session)
    yield _published(session)


def _facts(session: Session) -> Iterator[str]:
    for section in facts.SECTIONS:
        yield _list(f"{section.title}:", section.facts(session))


def _figures(session: Session, results: Iterable[Result], *, learning: bool = False) -> str:
    """Return the table of the columns of time or of learning; empty where there is no result."""
    shown = columns(session, learning=learning)
    rows = [[escape(result.variant), *(_cell(column, unit, result) for column, unit in shown)] for result in results]
    return table(("variant", *(column.head for column, _ in shown)), rows) if rows else ""


def _cell(column: Column, unit: Unit, result: Result) -> str:
    figure = column.read(result)
    shown = unit.text(figure) + units.ends(unit.show, figure.ci95 if figure.value is not None else None)
    return f"{figure.remark}: {shown}" if figure.remark else shown


def _caption(session: Session) -> str:
    steps = [result.steps for result in session.results if result.steps]
    parts = [
        *facts.captions(session, ["in brackets: 95 % intervals over trials"]),
        f"{facts.span(steps)} measured steps a variant" if steps else "nothing was measured",
        f"pipeline-bench {session.environment.package}, {session.started_at}",
    ]
    return f"<sub>{'; '.join(escape(part, TEXT) for part in parts)}</sub>"


def _learning(session: Session) -> str:
    """Return what the model learned; ceilings left out, which train on one batch over and over."""
    trained = (
        result
        for result in session.results
        if result.verdict.kind != "ceiling" and (result.loss is not None or result.accuracy.after is not None)
    )
    return _figures(session, trained, learning=True)


def _disturbances(session: Session) -> str:
    by_kind = session.diagnosis is not None
    found = facts.disturbances(session.disturbances, _DISTURBANCES_SHOWN, by_kind=by_kind)
    return _list("Disturbances:", ((where, f"{kind}: {text}" if kind else text) for where, kind, text in found))


def _published(session: Session) -> str:
    found = facts.published(session)
    if found is None:
        return ""
    rows = [[escape(variant), *map(escape, figures)] for variant, figures in found.rows]
    said = "\n".join(f"- {escape(gain, TEXT)}" for gain in found.gains)
    return document(
        [said, table(facts.PUBLISHED, rows), f"<sub>{escape('; '.join(found.captions), TEXT)}</sub>"]
    ).rstrip()


def _troubles(session: Session) -> Iterator[str]:
    """Yield why trials went wrong; those of a variant with the same reason together, for a comment has a limit."""
    repeats: dict[tuple[str, str, str], list[str]] = {}
    for record in facts.unexplained(session):
        if record.status != "ok":
            alike = (record.variant, record.status, record.reason or "no reason is known")
            repeats.setdefault(alike, []).append(str(record.repeat + 1))
    for (variant, status, reason), numbers in repeats.items():
        which = f"repeat{'s' if len(numbers) > 1 else ''} {joined(numbers, 'and')}"
        yield f"**{escape(variant)}**, {which}, {status}: {escape(reason, TEXT)}"


def _placement(session: Session) -> Iterator[str]:
    found = placements(session)
    if not found:
        return
    yield f"Placement: which device ran the ops of a step. {PLACEMENT_METHOD}"
    rows = [
        [escape(placed.name, TEXT), str(ops), escape(f"{device}: {types}", TEXT)]
        for placed in found
        for device, ops, types in placed.devices
    ]
    if rows:
        yield table(("variant", "ops", "device and types"), rows, words=("device and types",))
    unknown = ((placed.name, f"not known, {placed.reason}") for placed in found if placed.reason is not None)
    yield _list("", unknown).lstrip()
    if rows:
        yield "<details><summary>The ops by name</summary>"  # HTML, where nothing can be escaped: no foreign text
        for placed in found:
            if placed.ops:
                yield from _ops(placed)
        yield "</details>"


def _ops(placed: Placed) -> Iterator[str]:
    yield f"**{escape(placed.name, TEXT)}**"
    rows = [[escape(part, REASON) for part in (op.name, op.type, op.device)] for op in placed.ops[:_MOST_OPS]]
    yield table(("op", "type", "device"), rows, words=("type", "device"))
    if left_out := len(placed.ops) - len(rows):
        yield f"and {left_out:,} more, in session.json"
    yield placed.not_kept


def _diagnosis(session: Session, found: Diagnosis) -> Iterator[str]:
    for section in diagnosis.sections(session, found):
        yield f"#### {section.title}" + (f": {escape(section.more, TEXT)}" if section.more else "")
        if section.code:
            yield _fenced(section.code, "diff" if section.is_diff else "text")
        yield "\n".join(f"- {escape(line, 2 * TEXT)}" for line in section.lines)
        if section.rows:
            left = ("where", "parallel", "buffer", "element")
            yield table(("stage", "where", *pipeline_tree.HEADS), [_stage(row) for row in section.rows], left)
            yield f"<sub>{escape('; '.join(pipeline_tree.captions(section.rows)), TEXT)}</sub>"
        if tries := [_attempt(each) for _, group in section.tries for each in group]:
            yield table(("fix", "outcome", "gain", "95 % interval", "remark"), tries, ("outcome", "remark"))
        if section.left_out:
            yield "\n".join(["Not tried:", "", *(f"- {escape(text, TEXT)}" for text in section.left_out)])
        if section.limits:
            yield table(("limit", "at best", "because"), [_limit(*each) for each in section.limits], ("because",))
    yield from _facts(session)
    yield _disturbances(session)


def _stage(row: pipeline_tree.StageRow) -> list[str]:
    guide = row.guide.replace(" ", "\N{NO-BREAK SPACE}")
    name = f"{guide} {_bold(escape(row.label), row.is_bottleneck)}"
    mark = f" **{diagnosis.MARK}**" if row.is_bottleneck else ""
    return [name + mark, escape(row.place), *(escape(row.figures.get(head, "")) for head in pipeline_tree.HEADS)]


def _attempt(each: Tried) -> list[str]:
    name = _bold(escape(each.variant), each.attempt.outcome == "proposed")
    fix = name if each.title == each.variant else f"{name}: {escape(each.title, REASON)}"
    return [fix, each.outcome, each.gain, each.interval, escape(each.remark, TEXT)]


def _limit(each: Limit, is_reached: bool) -> list[str]:
    return [_bold(escape(each.name), is_reached), units.milliseconds(each.ms), escape(each.text, TEXT)]


def _fenced(lines: Sequence[str], language: str) -> str:
    """Return a block of code, with a fence that nothing in it can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def _bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted and text else text
