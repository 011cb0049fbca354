"""A session on one screen of 80 columns and 24 lines: who is faster, the figures, what limits each variant.

All else is in `pipeline_bench.report.terminal`, and in the page.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from pipeline_bench.analysis import precision, verdicts
from pipeline_bench.analysis.measured import taken_by_others
from pipeline_bench.analysis.thresholds import BUSY_SHARE
from pipeline_bench.model.diagnosis import Diagnosis
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import VERDICT_STYLES, ceilings, diagnosis, facts, terminal, terminal_diagnosis
from pipeline_bench.report.terminal_table import figures_table, variant_name
from pipeline_bench.text import units

_NAME_CELLS = 28
_NOTES = 1
_SCRIPT_NOTES = 3
_ATTEMPTS = 4


def render(session: Session, width: int) -> RenderableType:
    """Return what a reader has to know at the end of a run, for a terminal of that many columns."""
    if session.selftest is not None:
        return terminal.selftest(session, session.selftest)
    found = session.diagnosis
    machine = Text(facts.machine(session), style="dim")
    shown: list[RenderableType] = [_line(terminal.title(session), width), _line(machine, width)]
    if found is None:
        shown += [
            terminal.conclusion(diagnosis.headline(session)),
            figures_table(session, width),
            Text(),
            *([table, Text()] if (table := terminal.hosts_table(session)) is not None else []),
            *_limits(session, width),
        ]
    else:
        shown += _diagnosed(session, found, width)
    shown += [Text(f"note: {note}", style="yellow") for note in _of_script(found)]
    shown += [_line(text, width) for text in _remarks(session)]
    tried = {attempt.fix.variant for attempt in found.attempts} if found is not None else set()
    if failures := terminal.failures(session, besides=tried):
        shown += [Text(), failures]
    return Group(*shown)


def as_text(session: Session) -> str:
    """Return the screen for a terminal as wide as this one without colours, as ``print(session)`` shows it."""
    width = shutil.get_terminal_size((100, 24)).columns
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, _environ={})
    with console.capture() as capture:
        console.print(render(session, width))
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
    return console.export_svg(title=f"pipeline-bench {command}", unique_id="pipeline-bench")


def _line(text: Text, width: int) -> Text:
    """Return the text on one line, cut at the edge of the screen."""
    text.truncate(width, overflow="ellipsis")
    return text


def _limits(session: Session, width: int) -> Iterator[Text]:
    """Yield a line a variant: what limits it, by how much, and the doubt if there is one."""
    results = [result for result in session.results if result.variant not in ceilings(session)]
    longest = min(_NAME_CELLS, max((len(variant_name(result.variant)) for result in results), default=0))
    for result in results:
        verdict = result.verdict
        colour = VERDICT_STYLES[verdict.kind]
        name = Text(variant_name(result.variant), style="bold")
        name.truncate(longest, overflow="ellipsis", pad=True)
        mark = Text("■ " if verdict.severe else "● ", style=colour)
        label = Text(f"  {verdicts.label(verdict)}", style=f"bold {colour}")
        yield _line(Text.assemble(mark, name, label, f": {_said(result)}"), width)


def _said(result: Result) -> str:
    """Return what a verdict says in a few words."""
    verdict, step = result.verdict, units.milliseconds(result.step_ms.mean)
    match verdict.kind:
        case "input-bound":
            said = f"waits {units.milliseconds(result.input_wait_ms.value)} of {step}"
        case "host-bound":
            said = f"the host takes {units.milliseconds(result.host_slowdown_ms.value)} of {step}"
        case "compute-bound" | "mixed":
            said = f"{units.share(result.accelerator_utilization.value)} of the ceiling's speed"
        case _:
            said = verdict.reason
    if verdict.doubt is None or verdict.kind == "inconclusive":
        return said
    return f"{said}; or {' or '.join(verdict.doubt.instead) or 'chance, in one trial'}"


def _remarks(session: Session) -> Iterator[Text]:
    """Yield the equal work, the machine's noise, what is open, and the first notes: a line each."""
    checked = [result for result in session.results if result.trials and result.variant not in ceilings(session)]
    equal = bool(checked) and all(result.work.status == "equal" for result in checked)
    parts = [*(["equal work ✓"] if equal else []), _noise(session)]
    if said := " · ".join(part for part in parts if part):
        yield Text(said, style="dim")
    if session.precision is not None and (open_words := precision.open_words(session)):
        yield Text(f"not decided, use a larger --budget: {open_words}", style="yellow")
    for note in session.notes[:_NOTES]:
        yield Text(f"note: {note}", style="yellow")


def _of_script(found: Diagnosis | None) -> tuple[str, ...]:
    """Return how a script was run, and which of its datasets there are."""
    inspection = found.inspection if found is not None else None
    return inspection.notes[:_SCRIPT_NOTES] if inspection is not None and inspection.training is not None else ()


def _noise(session: Session) -> str:
    """Return how many trials ran beside other work, and how much of the CPU it took at most; empty where none did."""
    measured = [trial for trial in session.trials if trial.measured]
    beside = [taken for taken in map(taken_by_others, measured) if taken >= BUSY_SHARE]
    if not beside:
        return ""
    trials = units.count(len(measured), "trial")
    return f"{len(beside)} of {trials} beside other work, up to {units.share(max(beside))} of the CPU"


def _diagnosed(session: Session, found: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield terminal_diagnosis.headline(session, found)
    for part in (terminal_diagnosis.failure(found, width), terminal_diagnosis.stages(found, width)):
        if part is not None:
            yield Text()
            yield part
    if attempts := list(terminal_diagnosis.attempt_lines(session, found)):
        yield Text()
        yield from (_line(text, width) for text in attempts[:_ATTEMPTS])
        if len(attempts) > _ATTEMPTS:
            yield Text(f"  and {units.count(len(attempts) - _ATTEMPTS, 'more attempt')}", style="dim")
    if held := _held_back(found):
        yield _line(held, width)


def _held_back(found: Diagnosis) -> Text | None:
    """Return the fixes of the bottleneck that an option would allow, with the options; None where there are none."""
    stage = found.bottleneck.stage if found.bottleneck is not None else None
    left = [each.fix for each in found.attempts if each.outcome == "not-tried" and stage in each.fix.stages]
    named = [f"{fix.variant} ({' '.join(options)})" for fix in left if (options := found.options_for(fix))]
    return Text(f"· not tried: {', '.join(named)}", style="dim") if named else None
