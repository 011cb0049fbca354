"""A session as a terminal shows it at the end of a run: figures, what limits each variant, and what went wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline_bench.analysis import advice
from pipeline_bench.analysis.speedups import conclude
from pipeline_bench.errors import sentence
from pipeline_bench.model.events import Stack
from pipeline_bench.model.result import PublishedComparison
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import diagnosis_terminal, diagnosis_words, disturbed, palette, placement_terminal, words
from pipeline_bench.report.step_table import is_ceiling, variant_name, variants_table
from pipeline_bench.report.words import machine, no_difference, other_device
from pipeline_bench.scenario import Published
from pipeline_bench.text import code_line, one_line, safe, units

_DISTURBANCES = 8
_STDERR_LINES = 12
_STACK_FRAMES = 6
_TRACEBACK_LINES = 20
_REASON_LIMIT = 300
_INDENT = (0, 0, 0, 2)


def render(session: Session, folder: Path | None, width: int) -> RenderableType:
    """Everything that a session says, for a terminal of that many columns.

    Args:
        session: finished, interrupted or not yet begun.
        folder: where it was saved; None where it was not.
        width: the columns there are; below 60 the tables have fewer columns.
    """
    found = session.diagnosis
    if found is not None:
        sections = [_heading(session), *diagnosis_terminal.sections(session, found, width)]
    else:
        sections = [_heading(session), conclusion(session), variants_table(session, width), _verdicts(session)]
    extra = (
        _work(session) if found is None else None,
        _storage(session),
        _threads(session),
        _loops(session),
        placement_terminal.section(session),
        _precision(session),
        _published(session, width),
        _disturbances(session),
        failures(session),
        _notes(session),
    )
    sections += [section for section in extra if section]
    if folder is not None:
        sections.append(Group(Text("Session saved in"), Text(_shorter(folder), style="bold", overflow="fold")))
    spaced = [part for section in sections for part in (section, Text())]
    return Group(*spaced[:-1])


def _heading(session: Session) -> RenderableType:
    title = Text(one_line(session.scenario.name), style="bold")
    if session.scenario.question:
        title.append(f"  {one_line(session.scenario.question)}", style="not bold italic")
    lines = [title, Text(one_line(machine(session)), style="dim")]
    if session.environment.accelerator_reason:
        lines.append(Text(one_line(session.environment.accelerator_reason), style="yellow"))
    return Group(*lines)


def conclusion(session: Session) -> RenderableType:
    """Return the sentence that every report begins with."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("→", Text(one_line(conclude(session)), style="bold"))
    return grid


def _verdicts(session: Session) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for result in sorted(session.results, key=lambda result: is_ceiling(session, result)):
        colour = palette.VERDICTS[result.verdict.kind]
        name = variant_name(result.variant)
        text = Text.assemble((f"{name}: ", "bold"), one_line(result.verdict.text))
        if not is_ceiling(session, result) and result.speedup.difference == "none":
            text.append(f" {no_difference(result)}")
        text.stylize("dim" if is_ceiling(session, result) else "")
        if not is_ceiling(session, result):
            text.highlight_words([result.verdict.kind], style=f"bold {colour}")
        grid.add_row(Text("■" if result.verdict.severe else "●", style=colour), text)
    return grid


def _work(session: Session) -> RenderableType | None:
    """What was proven of the samples that each variant trained on; those that did other work have a verdict for it."""
    checked = [result for result in session.results if result.trials and not is_ceiling(session, result)]
    lines = []
    equal = [result for result in checked if result.work.status == "equal"]
    if equal:
        every = f"all {len(equal)} variants" if len(equal) == len(checked) > 1 else ""
        names = every or "; ".join(variant_name(result.variant) for result in equal)
        shown = f"{variant_name(equal[0].variant)}: {one_line(equal[0].work.text)}"
        lines.append(Text.assemble(("equal work: ", "bold"), names, (f"; {shown}" if len(equal) > 1 else "", "dim")))
    for result in checked:
        if result.work.status == "not-checked" and result.work.text:
            text = f"{variant_name(result.variant)}; {one_line(result.work.text)}"
            lines.append(Text.assemble(("work not checked: ", "bold yellow"), (text, "dim")))
    return Group(*lines) if lines else None


def _storage(session: Session) -> RenderableType | None:
    """What was in the page cache where files were read, and which records were left out."""
    lines = [(f"storage: {head}; ", text) for head, text in words.storage(session)]
    lines += [(f"skipped by {head}: ", text) for head, text in words.left_out(session)]
    return Group(*(Text.assemble((head, "bold"), one_line(text)) for head, text in lines)) if lines else None


def _threads(session: Session) -> RenderableType | None:
    """What became of more threads than there are cores."""
    lines = advice.thread_remarks(session)
    return (
        Group(*(Text.assemble((f"threads: {head} ", "bold"), one_line(text)) for head, text in lines))
        if lines
        else None
    )


def _loops(session: Session) -> RenderableType | None:
    """What leaving Python bought."""
    lines = advice.loop_remarks(session)
    return Group(*(Text.assemble((f"{head}: ", "bold"), text) for head, text in lines)) if lines else None


def _precision(session: Session) -> RenderableType | None:
    """How well the speed-ups are known, where a goal was set, and what ended the adding of repeats."""
    if session.precision is None or not session.precision.text:
        return None
    reached = session.precision.ended_by in ("precision", "decided")
    return Text(f"{sentence(one_line(session.precision.text))}.", style="" if reached else "yellow")


def _published(session: Session, width: int) -> RenderableType | None:
    published = session.scenario.published
    rows = [(result.variant, result.published) for result in session.results if result.published is not None]
    if published is None or not rows:
        return None
    small = width < 78  # noqa: PLR2004 - below the table's own middle layout
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("published" if small else "against the published", overflow="fold", ratio=None)
    utilization = "util." if small else "device util."
    for head in ("time", "ours", "ratio", utilization, "ours", "ratio"):
        table.add_column(head, justify="right", no_wrap=True)
    for variant, figures in rows:
        table.add_row(Text(variant_name(variant), style="bold"), *_published_cells(figures))
    captions = [*_published_captions(published, rows), *_other_device(session, rows)]
    lines = [Text(line, style="dim") for line in captions]
    shown: list[RenderableType] = [table, Text()] if width >= 60 else []  # noqa: PLR2004 - below, its figures would be cut
    return Group(*map(Text, _gains(rows)), Text(), *shown, *lines)


def _published_cells(figures: PublishedComparison) -> list[Text]:
    ours = units.seconds(figures.our_seconds) + ("*" if figures.scaled_from_steps is not None else "")
    return [
        Text(units.seconds(figures.seconds)),
        Text(ours),
        Text(units.ratio(figures.seconds_ratio), style="bold"),
        Text(units.percent(figures.device_utilization_percent)),
        Text(units.percent(figures.our_device_utilization_percent)),
        Text(units.ratio(figures.device_utilization_ratio), style="bold"),
    ]


def _published_captions(published: Published, rows: list[tuple[str, PublishedComparison]]) -> Iterator[str]:
    yield f"published: {one_line(published.source)}; {units.count(published.steps, 'step')}; ratio: ours ÷ theirs"
    scaled = sorted({f.scaled_from_steps for _, f in rows if f.scaled_from_steps is not None})
    if scaled:
        steps = " or ".join(str(number) for number in scaled)
        yield f"* our time is scaled to {units.count(published.steps, 'step')} from {steps} measured a trial"


def _other_device(session: Session, rows: list[tuple[str, PublishedComparison]]) -> Iterator[str]:
    """Two utilizations that are not of one kind must not look as if they were."""
    both = [f for _, f in rows if f.device_utilization_percent and f.our_device_utilization_percent is not None]
    if both and (other := other_device(session)):
        yield f"device util.: theirs is a GPU's, ours {other}, so compare their changes rather than their ratio"


def _gains(rows: list[tuple[str, PublishedComparison]]) -> Iterator[str]:
    """What the author gained over the first figure beside what we do, where there are two to compare."""
    if not rows:
        return
    first_name, first = rows[0]
    for variant, figures in rows[1:]:
        head = f"{variant_name(first_name)} → {variant_name(variant)}"
        if first.seconds and figures.seconds:
            theirs = _gain(units.seconds, first.seconds, figures.seconds, faster=True)
            ours = _gain(units.seconds, first.our_seconds, figures.our_seconds, faster=True)
            yield f"{head}: published {theirs}, ours {ours}"
        if first.device_utilization_percent and figures.device_utilization_percent:
            theirs = _gain(units.percent, first.device_utilization_percent, figures.device_utilization_percent)
            ours = _gain(units.percent, first.our_device_utilization_percent, figures.our_device_utilization_percent)
            yield f"device utilization: published {theirs}, ours {ours}"


def _gain(show: Callable[[float], str], before: float | None, after: float | None, faster: bool = False) -> str:
    """``18.0 s → 11.5 s = 1.57×``; less time is more speed."""
    if not before or not after:
        return units.NOT_MEASURED
    return f"{show(before)} → {show(after)} = {units.ratio(before / after if faster else after / before)}"


def _disturbances(session: Session) -> RenderableType | None:
    """What disturbed the trials, the costliest first."""
    lines = disturbed.lines(session.disturbances, _DISTURBANCES, by_kind=session.diagnosis is not None)
    return Group(*(_disturbance(head, what) for head, what in lines)) if lines else None


def _disturbance(head: str, what: str) -> Text:
    kind, colon, words = what.partition(": ")
    return Text.assemble((f"{head}: ", "bold"), (kind, "bold yellow" if colon else "dim"), colon, words)


def failures(session: Session) -> RenderableType | None:
    """Return why trials failed, each with its evidence; None where all went through."""
    parts: list[RenderableType] = []
    shown: dict[str, TrialRecord] = {}
    for record in session.trials:
        if record.status == "ok":
            continue
        if _is_told(session, record):
            continue
        head = f"{variant_name(record.variant)}, repeat {record.repeat + 1}: "
        reason = one_line(record.reason or "no reason is known", _REASON_LIMIT)
        parts.append(Text.assemble((head, "bold"), (record.status, "bold red"), f": {reason}"))
        if record.status == "interrupted":  # nothing went wrong
            continue
        earlier = shown.setdefault(record.variant, record)
        if earlier is not record and earlier.reason == record.reason:
            parts.append(Padding(Text(f"like repeat {earlier.repeat + 1}", style="dim"), _INDENT))
        else:
            parts += [Padding(Text(line, style="dim", overflow="fold"), _INDENT) for line in _evidence(record)]
    return Group(*parts) if parts else None


def _is_told(session: Session, record: TrialRecord) -> bool:
    """Whether the conclusion of a diagnosis says it already: the user's own function raised, or cannot be called."""
    diagnosis = session.diagnosis
    if diagnosis is None or record.status == "interrupted":
        return False
    if record.traceback:
        return record.traceback == diagnosis.traceback
    return (
        bool(diagnosis.failure)
        and record.reason == diagnosis.failure
        and not diagnosis_words.own_words(record.stderr_tail)
    )


def _evidence(record: TrialRecord) -> Iterator[str]:
    """What a trial left that did not end well: its queues, where its threads stood, and the end of its stderr."""
    for queue in record.queues:
        size = "did not answer" if queue.size is None else f"held {queue.size} of {queue.capacity} elements"
        yield f"queue {one_line(queue.name)} {size}"
    for stack in record.stacks:
        yield from _frames(stack)
    yield from (f"│ {code_line(line)}" for line in record.traceback.splitlines()[-_TRACEBACK_LINES:])
    lines = [line for line in map(one_line, record.stderr_tail.splitlines()) if line]
    if lines and not record.stacks and not record.traceback:  # the stacks say it better than TensorFlow's usual chatter
        yield "stderr ended with:" if len(lines) <= _STDERR_LINES else f"stderr, its last {_STDERR_LINES} lines:"
        yield from (f"│ {line}" for line in lines[-_STDERR_LINES:])
    if record.stderr_file:
        yield f"its stderr, in the session's folder: {one_line(record.stderr_file)}"


def _frames(stack: Stack) -> Iterator[str]:
    left_out = len(stack.frames) - _STACK_FRAMES
    outer = f" ({units.count(left_out, 'outer frame')} left out)" if left_out > 0 else ""
    yield f"thread {one_line(stack.thread)} stood at{outer}:"
    yield from (f"│ {one_line(frame)}" for frame in stack.frames[-_STACK_FRAMES:])


def _notes(session: Session) -> RenderableType | None:
    if not session.notes:
        return None
    return Group(*(Text(f"note: {one_line(note)}", style="yellow") for note in session.notes))


def _shorter(folder: Path) -> str:
    """The folder from where the user stands, or in full: whichever is shorter to read and to copy."""
    try:
        relative = os.path.relpath(folder)
    except (OSError, ValueError):  # the working folder is gone, or on another drive
        return safe(str(folder))
    return safe(min(relative, str(folder), key=len))
