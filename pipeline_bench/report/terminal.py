"""A session as a terminal shows it at the end of a run: figures, what limits each variant, and what went wrong."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis import speedups, verdicts
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import (
    VERDICT_STYLES,
    diagnosis,
    facts,
    in_order,
    machines,
    placements,
    terminal_diagnosis,
)
from pipeline_bench.report import selftest as selftest_report
from pipeline_bench.report.layout import DETAILS, beside, group, headed, headline, spaced
from pipeline_bench.report.terminal_table import variant_name, variants_table
from pipeline_bench.text import NAME, REASON, one_line, safe, units

_DISTURBANCES = 8
_PLACEMENT_LINES = 24
_INDENT = (0, 0, 0, 2)


def render(session: Session, folder: Path | None, width: int) -> RenderableType:
    """Return everything that a session says, for a terminal of that many columns.

    Args:
        session: finished, interrupted or not yet begun.
        folder: where it was saved; None where it was not.
        width: the columns there are; below 60 the tables have fewer columns.
    """
    found = session.diagnosis
    sections: list[RenderableType | None] = [_heading(session)]
    if session.selftest is not None:
        table = selftest_report.table(session.selftest, width)
        sections = [spaced([_heading(session), headline(diagnosis.headline(session)), table])]
    elif found is not None:
        sections += terminal_diagnosis.sections(session, found, width)
    else:
        sections += [
            headline(diagnosis.headline(session)),
            variants_table(session, width),
            hosts_table(session),
            _verdicts(session),
            _work(session),
        ]
    sections += [
        *_facts(session),
        _placement(session),
        _precision(session),
        _published(session, width),
        _disturbances(session),
        failures(session),
        group(Text(f"note: {note}", style="yellow") for note in session.notes),
    ]
    if folder is not None:
        sections.append(Group(Text("Session saved in"), Text(_shorter(folder), style="bold", overflow="fold")))
    return spaced(sections)


def title(session: Session) -> Text:
    """Return the scenario's name, and behind it the question that it asks."""
    text = Text(session.scenario.name, style="bold")
    if session.scenario.question:
        text.append(f"  {session.scenario.question}", style="not bold italic")
    return text


def _heading(session: Session) -> RenderableType:
    lines = [title(session), Text(facts.machine(session), style="dim")]
    if session.environment.accelerator_reason:
        lines.append(Text(session.environment.accelerator_reason, style="yellow"))
    return Group(*lines)


def _verdicts(session: Session) -> RenderableType:
    rows = []
    for result in in_order(session):
        verdict = result.verdict
        colour = VERDICT_STYLES[verdict.kind]
        text = Text.assemble((f"{variant_name(result.variant)}: ", "bold"), verdict.text)
        if result.variant in speedups.references(session.scenario):
            text.stylize("dim")
        else:
            if found := speedups.no_claim(result.speedup):
                over = variant_name(result.speedup.over or "the baseline")
                text.append(f" Against {over}: {found}.")
            text.highlight_words([verdict.kind, verdicts.first_words(verdict)], style=f"bold {colour}")
        rows.append((Text("■" if verdict.severe else "●", style=colour), text))
    return beside(*rows)


def _work(session: Session) -> RenderableType | None:
    """Return what was proven of the samples that each variant trained on; other work has a verdict for it."""
    checked = [
        result for result in session.results if result.trials and result.variant not in session.scenario.ceilings
    ]
    lines = []
    if equal := [result for result in checked if result.work.status == "equal"]:
        every = f"all {len(equal)} variants" if equal[2:] else "both variants"
        names = every if len(equal) == len(checked) > 1 else "; ".join(variant_name(result.variant) for result in equal)
        shown = f"; {variant_name(equal[0].variant)}: {equal[0].work.text}" if len(equal) > 1 else ""
        lines.append(Text.assemble(("equal work: ", "bold"), names, (shown, "dim")))
    for result in checked:
        if result.work.status == "not-checked" and result.work.text:
            text = f"{variant_name(result.variant)}; {result.work.text}"
            lines.append(Text.assemble(("work not checked: ", "bold yellow"), (text, "dim")))
    return group(lines)


def hosts_table(session: Session) -> RenderableType | None:
    """Return what several hosts reached at once, a row a number of hosts; None where nothing ran so."""
    found = machines.together(session)
    table = headed(*machines.TOGETHER, fold=True)
    for name, figures in found:
        table.add_row(Text(name, style="bold"), *map(Text, figures))
    return table if found else None


def _facts(session: Session) -> Iterator[RenderableType | None]:
    """Yield the sections of facts; those of one heading stand together."""
    found: dict[str, list[Text]] = {}
    for section in facts.SECTIONS:
        lines = found.setdefault(section.heading, [])
        lines += [Text.assemble((section.lead.format(name), "bold"), text) for name, text in section.facts(session)]
    yield from map(group, found.values())


def _placement(session: Session) -> RenderableType | None:
    """Return a line a variant and device, those alike together; None where nothing was asked for."""
    lines = []
    for placed in placements(session):
        if placed.reason is not None:
            lines.append((placed.name, "", Text(f"not known: {placed.reason}", style="yellow")))
        for i, (device, ops, types) in enumerate(placed.devices):
            text = Text(f"{units.count(ops, 'op')}: {types}")
            lines.append(("" if i else placed.name, one_line(device, NAME), text))
        if placed.not_kept:
            lines.append(("", "", Text(placed.not_kept, style="dim")))
    if not lines:
        return None
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(no_wrap=True)
    grid.add_column()
    for variant, name, text in lines[:_PLACEMENT_LINES]:
        grid.add_row(Text(variant, style="bold"), Text(name), text)
    more = len(lines) - _PLACEMENT_LINES
    rest = [Text(f"and {units.count(more, 'line')} more")] if more > 0 else []
    end = Text("every op by name is in report.html and session.json", style="dim")
    return Group(Text("placement: which device ran the ops of a step", style="bold"), grid, *rest, end)


def _precision(session: Session) -> RenderableType | None:
    text = facts.precision(session)
    reached = session.precision is not None and session.precision.ended_by in ("precision", "decided")
    return Text(text, style="" if reached else "yellow") if text else None


def _published(session: Session, width: int) -> RenderableType | None:
    found = facts.published(session)
    if found is None:
        return None
    small = width < 78  # noqa: PLR2004 - below the table's own middle layout
    shorter = {"against the published": "published", "device util.": "util."} if small else {}
    table = headed(*(shorter.get(head, head) for head in facts.PUBLISHED))
    for variant, figures in found.rows:
        cells = [Text(cell) for cell in figures]
        cells[2].style = cells[5].style = "bold"
        table.add_row(Text(variant_name(variant), style="bold"), *cells)
    shown: list[RenderableType] = [table, Text()] if width >= 60 else []  # noqa: PLR2004 - below, its figures would be cut
    return Group(*map(Text, found.gains), Text(), *shown, *(Text(line, style="dim") for line in found.captions))


def _disturbances(session: Session) -> RenderableType | None:
    """Return what disturbed the trials, the costliest first."""
    by_kind = session.diagnosis is not None
    return group(
        Text.assemble((f"{where}: ", "bold"), *([(kind, "bold yellow"), f": {text}"] if kind else [(text, "dim")]))
        for where, kind, text in facts.disturbances(session.disturbances, _DISTURBANCES, by_kind=by_kind)
    )


def failures(session: Session, besides: Collection[str] = (), most: int | None = None) -> RenderableType | None:
    """Return why trials failed, each with its evidence; None where none is left.

    Args:
        session: whose trials they are.
        besides: the variants whose failed ones are left out.
        most: how many there may be, if these are to have a line each and no evidence.
    """
    unreported = [
        record
        for record in facts.unexplained(session)
        if (record.variant not in besides or record.status == "interrupted") and not _is_in_conclusion(session, record)
    ]
    parts: list[RenderableType] = []
    troubles = list(facts.troubles(unreported, brief=True))
    for record, lines in troubles[:most]:
        head = f"{variant_name(record.variant)}, repeat {record.repeat + 1}: "
        reason = (
            "as said above"
            if _has_the_same_reason(session, record)
            else one_line(record.reason or "no reason is known", REASON)
        )
        parts.append(Text.assemble((head, "bold"), (record.status, "bold red"), f": {reason}"))
        if record.status != "interrupted" and most is None:  # where it was interrupted nothing went wrong
            parts += [Padding(Text(line, style="dim", overflow="fold"), _INDENT) for line in lines]
    if most is not None and troubles:
        more = f"{units.count(len(troubles) - most, 'more trial')}, and " if len(troubles) > most else ""
        parts.append(Text(f"{more}what they left: {DETAILS}", style="dim"))
    return group(parts)


def _is_in_conclusion(session: Session, record: TrialRecord) -> bool:
    """Return whether a diagnosis' conclusion says it already: the user's function raised, or cannot be called."""
    found = session.diagnosis
    if found is None or record.status == "interrupted":
        return False
    if record.traceback:
        return record.traceback == found.traceback
    return _has_the_same_reason(session, record) and not facts.own_words(record.stderr_tail)


def _has_the_same_reason(session: Session, record: TrialRecord) -> bool:
    """Return whether a trial failed for the reason that its diagnosis failed for."""
    failure = session.diagnosis.failure if session.diagnosis is not None else None
    return bool(failure) and record.reason == failure


def _shorter(folder: Path) -> str:
    """Return the folder from where the user stands, or in full: whichever is shorter to read and to copy."""
    try:
        relative = os.path.relpath(folder)
    except (OSError, ValueError):  # the working folder is gone, or on another drive
        return safe(str(folder))
    return safe(min(relative, str(folder), key=len))
