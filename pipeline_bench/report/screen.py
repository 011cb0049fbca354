"""A session on one screen, of 80 columns and 24 lines or more: who is faster, the figures, what limits each variant."""

from __future__ import annotations

import io
import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.text import Text

from pipeline_bench.analysis import conclusion, measured, precision, verdicts
from pipeline_bench.analysis.thresholds import BUSY_SHARE, LONG_STARTS, NEEDED_STEPS
from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.result import InconclusiveCause, Result, Verdict
from pipeline_bench.model.session import Session
from pipeline_bench.report import VERDICT_STYLES, compared, diagnosis, facts, pipeline_tree, selftest, terminal
from pipeline_bench.report import terminal_diagnosis as of_pipeline
from pipeline_bench.report.layout import DETAILS, headline
from pipeline_bench.report.terminal_table import figures_table, variant_name
from pipeline_bench.text import one_line, units

_FEWEST_LINES = 24
"""A lower terminal is scrolled."""
_AROUND = 2
"""Lines that are left for the command, and for the prompt that comes next."""
_PAGE_LINES = 2
"""For the page's address at the end of a run."""
_NAME_CELLS = 28
_NOTES, _SCRIPT_NOTES = 2, 3
_LEAST_WORDS = 0.85
"""Of a line's width: where the last word that fits ends before, the next one is cut itself."""
_ATTEMPTS, _FAILURES = 4, 2
_FEWEST_DENSE = 2
"""Of a diagnosis with much to say, so few stages before the notes go."""
_FEWEST_ROWS = 4
"""A terminal on which not even so many variants or stages fit has to be scrolled."""
_NARROW = 72
"""On fewer columns a variant's row has no room for what limits it."""
_IN_FEW_WORDS: dict[InconclusiveCause, str] = {
    "too-few-steps": f"fewer than {NEEDED_STEPS} steps",
    "page-cache": "files not cached as asked",
    "no-wait": "its input wait is not known",
    "no-ceiling": "no ceiling beside it",
    "impossible": "its wait and its ceiling exceed its step",
    "only-not-input": "what takes the rest is not known",
    "gpu-idle": "it waits for the host",
    "at-threshold": "its input wait may be on either side of the threshold",
}
"""Why there is no verdict, where there is no room for a sentence."""


@dataclass(frozen=True)
class _Layout:
    """How much of a comparison is shown."""

    margins: bool = False
    """Whether each figure of a variant has its margin below it."""
    ceilings: bool = False
    space: bool = False
    """Whether there is an empty line below the table."""
    limits_apart: bool = True
    """Whether a variant's limit has a line of its own; else it stands in the variant's row."""


_LAYOUTS = (
    _Layout(margins=True, ceilings=True, space=True),
    _Layout(margins=True, ceilings=True),
    _Layout(margins=True),
    _Layout(ceilings=True),
    _Layout(),
    _Layout(limits_apart=False),
)
"""The first one that fits is taken."""
_LOADED_FONT = re.compile(r',\s*url\("https?://[^"]*"\) format\("\w+"\)')
"""What rich's pictures load from another host."""


def render(session: Session, width: int, below: int = _PAGE_LINES, lines: int = _FEWEST_LINES) -> RenderableType:
    """Return what a reader has to know at the end of a run, as much of it as a terminal has room for.

    Args:
        session: finished, interrupted or not yet begun.
        width: the columns there are.
        below: how many lines follow, which have to be on the same screen.
        lines: of the terminal.
    """
    room = max(lines, _FEWEST_LINES) - _AROUND - below
    shown, console = Group(), Console(file=io.StringIO(), width=width, _environ={})
    for parts in _screens(session, width):
        shown = Group(*parts)
        if len(console.render_lines(shown, pad=False)) <= room:
            break
    return shown


def _screens(session: Session, width: int) -> Iterator[list[RenderableType]]:
    """Yield the screen with less and less on it."""
    if session.selftest is not None:
        above = [*_heading(session, width), headline(conclusion.conclude(session))]
        for rows in range(max(_FEWEST_ROWS, len(session.selftest.parts)), _FEWEST_ROWS - 1, -1):
            yield [*above, selftest.summary(session.selftest, rows, width)]
    elif session.diagnosis is not None:
        yield from _diagnoses(session, session.diagnosis, width)
    else:
        yield from _comparisons(session, width)


def as_text(session: Session) -> str:
    """Return the screen for a terminal of this one's size without colours, as ``print(session)`` shows it."""
    width, lines = shutil.get_terminal_size((100, _FEWEST_LINES))
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, _environ={})
    with console.capture() as capture:
        console.print(render(session, width, lines=lines))
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def export_svg(session: Session, width: int = 100) -> str:
    """Return the screen as a picture of a terminal window."""
    console = Console(
        record=True,
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        _environ={},
    )
    console.print(render(session, width))
    command = "compare" if session.diagnosis is None else "diagnose"
    picture = console.export_svg(title=f"pipeline-bench {command}", unique_id="pipeline-bench")
    return _LOADED_FONT.sub("", picture)  # a page loads nothing; without the font the viewer takes another


def _cut(text: Text, width: int, ends: str = ".?!") -> Text:
    """Return the text on one line: all of it, what fits up to one of the `ends`, or about the words that fit."""
    if text.cell_len <= width:
        return text
    start = text.copy()
    start.truncate(width, overflow="crop")
    # Less than a third of a line is no sentence, but a number or a name.
    if found := [each.start() for each in re.finditer(f"[{ends}](?= )", start.plain) if each.start() > width / 3]:
        return text[: found[-1] + (start.plain[found[-1]] in ".?!")]
    start.truncate(width - 1, overflow="crop")
    words = start.plain.rfind(" ")  # but a long word, as a line of code is one, is cut itself
    return text[: words if words > _LEAST_WORDS * width else len(start)].append("…")


def _heading(session: Session, width: int) -> list[Text]:
    """Return what was measured, and on what: of an emulated accelerator, whose host decides, without the versions."""
    around = session.environment
    machine = facts.machine(session)
    if around.accelerator_kind == "emulated":
        machine = f"{around.accelerator_name}; host: {around.cpu}, {units.count(around.cores, 'core')}"
    return [_cut(terminal.title(session), width), _cut(Text(machine, style="dim"), width)]


def _ending(
    session: Session, width: int, *, evidence: bool, dense: bool = False, script_notes: int = _SCRIPT_NOTES
) -> Iterator[RenderableType]:
    """Yield what is said below the figures: how the run went, notes, and the trials that failed."""
    found = session.diagnosis
    warned = found.inspection.warnings if found is not None and found.inspection is not None else ()
    yield from (Text(f"warning: {each}", style="yellow") for each in warned)
    notes = (Text(f"note: {note}", style="yellow") for note in _of_script(found)[:script_notes])
    yield from (_cut(note, width) if dense else note for note in notes)
    yield from (_cut(text, width, ends=".:;") for text in _remarks(session))
    tried = {attempt.fix.variant for attempt in found.attempts} if found is not None else set()
    if failures := terminal.failures(session, besides=tried, most=None if evidence else _FAILURES):
        yield from (failures,) if dense else (Text(), failures)


# --- a comparison ----------------------------------------------------------------------------------------------------


def _comparisons(session: Session, width: int) -> Iterator[list[RenderableType]]:
    """Yield the screen with less and less on it."""
    narrow = width < _NARROW
    for evidence, layout in itertools.product((True, False), _LAYOUTS[:-1] if narrow else _LAYOUTS):
        yield _compared(session, width, layout, evidence=evidence)
    if narrow:
        return
    for rows in range(len(compared(session)) - 1, _FEWEST_ROWS - 1, -1):
        yield _compared(session, width, _LAYOUTS[-1], evidence=False, rows=rows)


def _compared(
    session: Session, width: int, layout: _Layout, *, evidence: bool, rows: int | None = None
) -> list[RenderableType]:
    figures = figures_table(
        session,
        width,
        margins=layout.margins,
        references=layout.ceilings,
        limit=None if layout.limits_apart else _limit,
        most=rows,
    )
    left = len(compared(session)) - rows if rows is not None else 0
    together = terminal.hosts_table(session)
    return [
        *_heading(session, width),
        headline(conclusion.conclude(session, with_limit=False)),
        figures,
        *([together] if together is not None else []),
        *([Text(f"  and {units.count(left, 'more variant')} ({DETAILS})", style="dim")] if left else []),
        *([Text()] if layout.space else []),
        *(_limits(session, width) if layout.limits_apart else []),
        *_ending(session, width, evidence=evidence),
    ]


def _limits(session: Session, width: int) -> Iterator[Text]:
    """Yield a line a variant: what limits it, by how much, and the doubt if there is one."""
    results = [result for result in compared(session) if result.verdict.kind != "ceiling"]  # which has no input
    longest = min(_NAME_CELLS, max((Text(variant_name(result.variant)).cell_len for result in results), default=0))
    for result in results:
        name = Text(variant_name(result.variant), style="bold")
        name.truncate(longest, overflow="ellipsis", pad=True)
        limit = _limit(result, width - longest - 2)
        yield Text.assemble(limit[:2], name, "  ", limit[2:])


def _limit(result: Result, room: int) -> Text:
    """Return what limits a variant behind its mark, in as many words as there is room for."""
    verdict = result.verdict
    colour, label = VERDICT_STYLES[verdict.kind], verdicts.first_words(verdict)
    said = next((each for each in _verdict_texts(result, label) if Text(each).cell_len <= room - 2), "")
    mark = "■ " if verdict.severe else "● "
    text = Text.assemble((mark, colour), said or label.replace("severely ", ""), justify="left")
    text.stylize(f"bold {colour}", 2, 2 + (len(label) if said else len(text)))
    text.truncate(room, overflow="ellipsis")
    return text


def _verdict_texts(result: Result, label: str) -> Iterator[str]:
    """Yield a verdict with its figure and its doubt, in fewer and fewer words; a doubt goes last, and whole."""
    verdict = result.verdict
    if figures := _figures(result):
        other = _other(verdict)
        yield from (f"{label}: {figure}{other and f'; {other}'}" for figure in figures)
        yield f"{label}{other and f', {other}'}"
    elif verdict.kind in ("inconclusive", "unequal-work", "not-measured"):
        yield from (f"{label}: {reason}" for reason in (verdict.reason, *_in_few_words(result)) if reason)
        yield f"{label} ({DETAILS})"
    yield label


def _in_few_words(result: Result) -> Iterator[str]:
    """Yield why there is no verdict on a limit, in fewer and fewer words."""
    verdict, doubt = result.verdict, result.verdict.doubt
    if doubt is not None and doubt.likeliest is not None:
        yield f"{verdicts.plausible_kinds(doubt)}; {verdicts.doubt_text(doubt)}"
        yield verdicts.plausible_kinds(doubt)
    elif verdict.cause is not None:
        yield _IN_FEW_WORDS[verdict.cause]
    elif verdict.kind == "unequal-work":
        yield result.work.text
    elif verdict.kind == "not-measured":
        yield result.status if result.status != "ok" else _IN_FEW_WORDS["no-wait"]


def _figures(result: Result) -> list[str]:
    """Return the figure that decides a verdict, in many words and in few; empty where none does."""
    ms, step = units.milliseconds, result.step_ms.mean
    of = f" of {ms(step)}" if step is not None else ""
    match result.verdict.kind:
        case "input-bound":
            said = f"waits {ms(result.input_wait_ms.value)}"
        case "host-bound":
            said = f"the host takes {ms(result.host_slowdown_ms.value)}"
        case "compute-bound" | "mixed" if result.accelerator_utilization.value is not None:
            return [f"{units.share(result.accelerator_utilization.value)} of the ceiling's speed"]
        case _:
            return []
    return [f"{said}{of}", said]


def _other(verdict: Verdict) -> str:
    """Return what a variant may be limited by instead, or what else is in doubt; empty where nothing is."""
    doubt = verdict.doubt
    if doubt is None:
        return ""
    if doubt.instead:
        return f"or {' or '.join(doubt.instead)}"
    return "or chance, in one trial" if doubt.rounds == 1 else verdicts.doubt_interval(doubt)


# --- what is said of both --------------------------------------------------------------------------------------------


def _remarks(session: Session) -> Iterator[Text]:
    """Yield the equal work, the noise, how long the device took, what is open, and the first notes: a line each."""
    checked = [result for result in compared(session) if result.trials]
    equal = bool(checked) and all(result.work.status == "equal" for result in checked)
    if parts := [*(["equal work ✓"] if equal else []), *facts.other_work(session)]:
        yield Text(" · ".join(parts), style="dim")
    unknown = [variant_name(each.variant) for each in checked if each.accelerator_utilization.impossible]
    if session.diagnosis is None and unknown:  # the dash in its column needs a reason
        yield Text(f"–: AU of {unknown[0]} is not known, {_IN_FEW_WORDS['impossible']}", style="yellow")
    failed = session.diagnosis is None or session.diagnosis.failure is not None
    if not failed and session.uncharged_s > LONG_STARTS * session.charged_s > 0:
        starts, charged = units.seconds(session.uncharged_s), units.seconds(session.charged_s)
        yield Text(f"the trials' starts and first steps took {starts}, beside {charged} of the budget", style="dim")
    for warning in facts.warnings(session):
        yield Text(warning, style="yellow")
    if will_tell := _what_decides(session):
        yield Text(f"not everything is decided: {will_tell} ({DETAILS})", style="yellow")
    for note in session.notes[:_NOTES]:
        yield Text(f"note: {note}", style="yellow")
    if left := session.notes[_NOTES:]:
        yield Text(f"and {units.count(len(left), 'more note')} ({DETAILS})", style="yellow")


def _what_decides(session: Session) -> str:
    """Return what may decide what is open; empty where nothing is, or where the user ended the rounds."""
    ended_by = session.precision.ended_by if session.precision is not None else None
    if ended_by not in ("budget", "precision") or not precision.open_questions(session):
        return ""
    taken = [measured.taken_from(trial, session.environment.cores) for trial in session.trials if trial.measured]
    if 2 * sum(share >= BUSY_SHARE for share in taken) > len(taken):
        return "it takes a quieter machine"
    return "a larger --budget may do it" if ended_by == "budget" else "a smaller --precision may do it"


def _of_script(found: Diagnosis | None) -> tuple[str, ...]:
    """Return how a script was run, and which of its datasets there are."""
    inspection = found.inspection if found is not None else None
    return inspection.notes[:_SCRIPT_NOTES] if inspection is not None and inspection.training is not None else ()


# --- a diagnosis -----------------------------------------------------------------------------------------------------


def _diagnoses(session: Session, found: Diagnosis, width: int) -> Iterator[list[RenderableType]]:
    """Yield the screen with less and less on it: of attempts, of what the trials left, of stages, and again."""
    lines = max(len(pipeline_tree.rows(found)), len(diagnosis.traceback_lines(found.traceback)))
    for most in (len(found.attempts), _ATTEMPTS):
        yield _diagnosed(session, found, width, lines, most, evidence=True)
    for left in range(lines, min(lines, _FEWEST_ROWS) - 1, -1):
        yield _diagnosed(session, found, width, left, _ATTEMPTS, evidence=False)
    for attempts in range(_ATTEMPTS - 1, 0, -1):
        yield _diagnosed(session, found, width, min(lines, _FEWEST_ROWS), attempts, evidence=False)
    for left in range(min(lines, _FEWEST_ROWS), min(lines, _FEWEST_DENSE) - 1, -1):
        yield _diagnosed(session, found, width, left, 1, evidence=False, dense=True)
    yield _diagnosed(session, found, width, min(lines, _FEWEST_DENSE), 1, evidence=False, dense=True, script_notes=0)


def _diagnosed(
    session: Session,
    found: Diagnosis,
    width: int,
    lines: int,
    most: int,
    *,
    evidence: bool,
    dense: bool = False,
    script_notes: int = _SCRIPT_NOTES,
) -> list[RenderableType]:
    """Return the screen with so many lines of the stages or of the user's traceback, and so many attempts.

    Where it is dense, nothing is apart, and each note has one line.
    """
    apart = [] if dense else [Text()]
    shown: list[RenderableType] = [*_heading(session, width), headline(diagnosis.headline(session))]
    if pace := diagnosis.pace(session, found):
        shown.append(_cut(Text(f"  {pace}", style="dim"), width))
    for part in (of_pipeline.failure(found, width, lines), of_pipeline.stages(found, width, lines)):
        shown += [*apart, part] if part is not None else []
    if attempts := list(of_pipeline.attempt_lines(session, found, width)):
        shown += [*apart, *attempts[:most]]
        if left := attempts[most:]:
            shown.append(Text(f"  and {units.count(len(left), 'more attempt')}", style="dim"))
    shown += [_cut(held, width) for held in _held_back(found)]
    if by_hand := _by_hand(session):
        shown += [*apart, by_hand]
    return [*shown, *_ending(session, width, evidence=evidence, dense=dense, script_notes=script_notes)]


def _by_hand(session: Session) -> Text | None:
    """Return what to write for the best fix that has no diff; None where it has one, or there is no fix."""
    shown = diagnosis.code(session)
    if shown is None or shown.diff or not shown.text:
        return None
    return Text.assemble(("To write: ", "bold"), one_line(shown.text))


def _held_back(found: Diagnosis) -> Iterator[Text]:
    """Yield the fixes of the bottleneck that an option would allow, and a cache that more passes would read."""
    stage = found.bottleneck.stage if found.bottleneck is not None else None
    left = [each.fix for each in found.attempts if each.outcome == "not-tried" and stage in each.fix.stages]
    named = [f"{fix.variant} ({' '.join(options)})" for fix in left if (options := found.options_for(fix))]
    if named:
        yield Text(f"· not tried: {', '.join(named)}", style="dim")
    if found.inspection is not None and found.inspection.once:
        for fix in [fix for fix in left if fix.keeps][:1]:
            yield Text(f"· not tried, as {stage_graph.one_pass(found.inspection)}: {fix.variant}", style="dim")
