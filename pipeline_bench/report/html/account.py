"""What happened in a session, and with what: its trials, what went wrong or disturbed them, machine and options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_bench.analysis import advice
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import disturbed, words
from pipeline_bench.report.html import content, tables
from pipeline_bench.report.html.steps import Clock, Floats, Steps
from pipeline_bench.report.html.tables import Cell, Table
from pipeline_bench.report.html.text import line, name
from pipeline_bench.text import units

_MOST_TRIALS = 400
_MOST_DISTURBANCES, _MOST_LISTED = 8, 1000
"""Lines that a reader meets, and rows of the list that is folded away."""
_STDERR_LINES = 40
_QUARTERS = 4


@dataclass(frozen=True)
class Trouble:
    """A trial that did not end well, or an earlier one again."""

    head: str
    status: str
    reason: str
    evidence: tuple[str, ...]


def trials(session: Session, clock: Clock, steps: Mapping[int, Steps]) -> Table:
    """Each trial's place on the time axis and its course, in numbers."""
    heads = (
        "trial",
        "began, s",
        "took",
        "status",
        "steps",
        "first step",
        "median step, ms",
        "by quarter of its training, ms",
        "input wait",
        "queue, mean fill",
    )
    rows = [_trial_row(index, record, clock, steps) for index, record in enumerate(session.trials[:_MOST_TRIALS])]
    left = len(session.trials) - len(rows)
    more = f"; {left} more are in the session file" if left > 0 else ""
    return tables.table(f"The trials in the order they ran{more}", heads, rows)


def _trial_row(index: int, record: TrialRecord, clock: Clock, steps: Mapping[int, Steps]) -> list[Cell | str]:
    read = steps.get(index)
    measured = read.measured_ms if read is not None else np.empty(0)
    wait = read.wait_ms[read.warmup :] if read is not None and read.wait_ms is not None else None
    total = float(measured.sum())
    return [
        f"{name(record.variant)}, repeat {record.repeat + 1}",
        f"{clock.seconds(record.started_ns):.1f}",
        units.seconds((record.ended_ns - record.started_ns) / 1e9),
        Cell(record.status, "", record.reason if record.status != "ok" else None),
        str(len(read.step_ms)) if read is not None else units.NOT_MEASURED,
        units.seconds(record.first_step_s),
        units.plain_milliseconds(float(np.median(measured)) if measured.size else None),
        _quarters(measured),
        units.share(float(wait.sum()) / total if wait is not None and total > 0 else None),
        _fill(record),
    ]


def _quarters(measured: Floats) -> str:
    if measured.size < _QUARTERS:
        return units.NOT_MEASURED
    parts = np.array_split(measured, _QUARTERS)
    return " · ".join(units.plain_milliseconds(float(np.median(part))) for part in parts)


def _fill(record: TrialRecord) -> str:
    said = []
    for queue in record.queue_depths:
        try:
            sizes = queue.size.unpack()
        except ValueError:  # said where the time line names what it could not read
            continue
        if sizes.size:
            said.append(f"{float(sizes.mean()):.1f} of {queue.capacity}")
    return ", ".join(said) or units.NOT_MEASURED


def troubles(session: Session) -> list[Trouble]:
    """Each trial that did not end well; the evidence of a variant's first one of a kind only."""
    seen: dict[tuple[str, str | None], int] = {}
    found = []
    for record in session.trials:
        if record.status == "ok":
            continue
        earlier = seen.setdefault((record.variant, record.reason), record.repeat)
        is_first = earlier == record.repeat
        evidence = tuple(_evidence(record)) if is_first else (f"like repeat {earlier + 1}",)
        head = f"{name(record.variant)}, repeat {record.repeat + 1}"
        found.append(Trouble(head, record.status, line(record.reason or "no reason is known"), evidence))
    return found


def _evidence(record: TrialRecord) -> Iterator[str]:
    for queue in record.queues:
        size = "did not answer" if queue.size is None else f"held {queue.size} of {queue.capacity} elements"
        yield f"queue {line(queue.name)} {size}"
    for stack in record.stacks:
        yield f"thread {line(stack.thread)} stood at:"
        yield from (f"  {line(frame)}" for frame in stack.frames)
    lines = [shown for shown in map(line, record.stderr_tail.splitlines()) if shown]
    if lines:
        yield "stderr ended with:"
        yield from (f"  {shown}" for shown in lines[-_STDERR_LINES:])
    if record.stderr_file:
        yield f"its stderr: {line(record.stderr_file)}"


@dataclass(frozen=True)
class Disturbances:
    """What disturbed trials from outside: the costliest in few rows, and every one."""

    shown: Table
    every: Table


def disturbances(session: Session) -> Disturbances | None:
    """None where nothing was found."""
    found = session.disturbances
    if not found:
        return None
    lines = disturbed.lines(found, _MOST_DISTURBANCES, rest="in the list below", by_kind=session.diagnosis is not None)
    # Only the line that counts the rest begins with no kind.
    parts = [(where, kind, text) for where, said in lines for kind, _, text in [said.partition(": ")]]
    shown = tables.table(
        "What disturbed trials, and is not of a variant: each kind's costliest",
        ("variant and repeats", "kind", "what was seen"),
        [(where, Cell(kind if text else "several", whole=True), text or kind) for where, kind, text in parts],
    )
    rows = [
        (
            f"{name(d.variant)}, repeat {d.repeat + 1}",
            Cell(d.kind, whole=True),
            units.share(d.cost_share),
            line(d.text),
        )
        for d in found[:_MOST_LISTED]
    ]
    left = len(found) - len(rows)
    caption = units.count(len(found), "disturbance") + (f", the first {len(rows)} of them" if left else "")
    return Disturbances(shown, tables.table(caption, ("trial", "kind", "of its measured time", "what was seen"), rows))


def work(session: Session) -> Table | None:
    """Whether each variant trained on the samples it should; None where no one looked."""
    if not any(result.work.text for result in session.results):
        return None
    rows = [
        (name(result.variant), result.work.status.replace("-", " "), line(result.work.text) or "–")
        for result in content.in_order(session)
    ]
    return tables.table("Whether the variants did the same work", ("variant", "work", "what was found"), rows)


def input_lines(session: Session) -> list[str]:
    """What was in the page cache where files were read, and which records were left out."""
    lines = [f"Storage: {head}; {text}" for head, text in words.storage(session)]
    return [line(text) for text in (*lines, *(f"Skipped by {head}: {text}" for head, text in words.left_out(session)))]


def precision(session: Session) -> str:
    """How narrow the intervals were to become, and what ended it; empty where no goal was set."""
    goal = session.precision
    if goal is None:
        return ""
    if goal.text or goal.goal is None:
        return line(goal.text)
    ended = {"precision": "it was reached", "budget": "the time was used up", "interrupted": "it was interrupted"}
    end = f", then {ended[goal.ended_by]}" if goal.ended_by else ""
    return (
        f"Goal: every speed-up within ±{units.precision(goal.goal)}, in at most {units.seconds(goal.budget_s)}; "
        f"{units.count(goal.repeats, 'repeat')}{end}."
    )


def threads(session: Session) -> list[str]:
    """What became of more threads than there are cores: a line a variant."""
    return [line(f"{head} {text}") for head, text in advice.thread_remarks(session)]


def loops(session: Session) -> list[str]:
    """What leaving Python bought."""
    return [line(f"{head}: {text}") for head, text in advice.loop_remarks(session)]


def environment(session: Session) -> list[tuple[str, str]]:
    """The machine and the versions, as terms and facts."""
    machine = session.environment
    emulated = machine.accelerator_kind == "emulated"
    kind = "" if emulated else f"{machine.accelerator_kind.upper()}: "
    facts = [
        ("accelerator", f"{kind}{machine.accelerator_name}"),
        ("no GPU because", machine.accelerator_reason or ""),
        ("driver", machine.driver or ""),
        ("CPU", f"{machine.cpu}, {units.count(machine.cores, 'core')}"),
        ("memory", units.size(machine.memory_bytes)),
        ("platform", machine.platform),
        ("TensorFlow", machine.tensorflow or "not known"),
        ("Python", machine.python),
        ("pipeline-bench", machine.package),
        ("started", session.started_at),
        ("command", session.command),
    ]
    return [(term, line(fact)) for term, fact in facts if fact]


def configuration(session: Session) -> Table:
    """Each variant as it was run: plug-ins with their options, runtime, length."""
    rows = [
        (
            line(variant.name) or name(variant.name),
            _plugin(variant.backend, variant.options),
            _plugin(variant.source.kind, variant.source.options),
            _plugin(variant.model.kind, variant.model.options),
            _plugin(variant.loop.kind, variant.loop.options),
            _options(variant.runtime.model_dump()),
            _options(variant.run.model_dump(exclude_none=True)),
        )
        for variant in session.scenario.variants
    ]
    heads = ("variant", "backend", "source", "model", "loop", "runtime", "run")
    return tables.table("What was run", heads, rows)


def _plugin(kind: str, options: Mapping[str, Any]) -> str:
    return line(f"{kind}({_options(options)})" if options else kind)


def _options(options: Mapping[str, Any]) -> str:
    return line(
        ", ".join(f"{key}={json.dumps(value, default=str, ensure_ascii=False)}" for key, value in options.items())
    )
