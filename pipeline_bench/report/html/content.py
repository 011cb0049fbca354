"""What a page says in words and tables: verdicts, figures, what went wrong or disturbed, the machine, what was run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline_bench.analysis import speedups
from pipeline_bench.analysis.conclusion import planned_trials, was_interrupted
from pipeline_bench.analysis.stats import percentiles
from pipeline_bench.analysis.verdicts import doubt_text, first_words
from pipeline_bench.model.result import Result, Verdict
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import (
    Column,
    Placed,
    Unit,
    columns,
    facts,
    in_order,
    machines,
    placements,
    selftest,
)
from pipeline_bench.report.html import elements
from pipeline_bench.report.html.elements import Cell, Table, name, table
from pipeline_bench.report.html.lanes import ChartSteps, Clock
from pipeline_bench.text import sentence, units

_MOST_TRIALS = 400
_MOST_DISTURBANCES, _MOST_LISTED = 8, 1000
"""Lines that a reader meets, and rows of the list that is folded away."""
_MOST_OPS = 1000
_QUARTERS = 4


def verdicts(session: Session) -> list[dict[str, Any]]:
    """Return each variant's verdict, as the page opens with it; a reference is a ceiling, beside what is compared."""
    return [
        {
            "variant": name(result.variant),
            "word": first_words(result.verdict),
            "colour": elements.VERDICTS[result.verdict.kind],
            "severe": result.verdict.severe,
            "text": _reason(result.verdict),
            "is_reference": result.variant in speedups.references(session.scenario),
        }
        for result in in_order(session)
    ]


def _reason(verdict: Verdict) -> str:
    """Return the reason of a verdict, and what keeps it from being certain."""
    reasons = [verdict.reason]
    if verdict.doubt is not None and verdict.certainty == "probable":
        reasons.append(doubt_text(verdict.doubt))
    return " ".join(f"{sentence(reason)}." for reason in reasons)


def missing(session: Session) -> list[str]:
    """Return what a whole session would have and this one lacks, each with its reason."""
    if session.diagnosis is not None:  # what it did not come to is said of each fix
        stopped = "It was interrupted; fixes that were not tried are listed as such."
        return [stopped] if was_interrupted(session) else []
    ended, planned = len(session.trials), planned_trials(session)
    lines = [f"{ended} of {units.count(planned, 'planned trial')} ended."] if ended < planned else []
    if session.precision is not None and session.precision.ended_by == "interrupted":
        lines.append(f"It was interrupted after {units.count(session.precision.repeats, 'round')}.")
    for result in in_order(session):
        if result.status != "ok":
            why = f": {result.reason}" if result.reason else ""
            lines.append(f"{name(result.variant)}, {result.status}{why}.")
    return lines


def figures(session: Session, *, learning: bool = False) -> Table:
    """Return the figures of every variant: time and utilization side by side, or what the model learned."""

    def column(each: Column, unit: Unit) -> Any:
        return each.head, lambda result: _figure(each, unit, result)

    caption = "Loss and accuracy" if learning else "Each variant's figures, with 95 % intervals over trials"
    made = (column(each, unit) for each, unit in columns(session, learning=learning))
    return table(caption, in_order(session), ("variant", name_cell if not learning else _name), *made)


def _name(result: Result) -> str:
    return name(result.variant)


def name_cell(result: Result) -> Cell:
    """Return a variant's name, and below it how its trials ended where not all did well."""
    return Cell(name(result.variant), "" if result.status == "ok" else result.status)


def _figure(column: Column, unit: Unit, result: Result) -> Cell:
    figure = column.read(result)
    return elements.figure_cell(unit, figure if figure.reason is not None else replace(figure, reason=result.reason))


def published(session: Session) -> tuple[Table, list[str]] | None:
    """Return the table of an author's figures beside ours, and remarks; None where there are none."""
    found = facts.published(session)
    if found is None:
        return None
    return _named_rows("Against the published", ("variant", *facts.PUBLISHED[1:]), found.rows), [
        *found.gains,
        *(f"{caption}." for caption in found.captions),
    ]


def checks(session: Session) -> Table | None:
    """Return every check of a selftest; None of another session."""
    if session.selftest is None:
        return None
    return _named_rows("Every check", selftest.HEADS, selftest.rows(session.selftest))


def together(session: Session) -> Table | None:
    """Return what several hosts reached at once; None where nothing ran so."""
    rows = machines.together(session)
    return (
        _named_rows("Several hosts at once, with 95 % intervals over rounds", machines.TOGETHER, rows) if rows else None
    )


def _named_rows(caption: str, heads: Sequence[str], rows: Iterable[tuple[str, list[str]]]) -> Table:
    """Return the table of rows that are texts already, each with its variant."""
    columns = ((head, lambda row, index=index: row[1][index]) for index, head in enumerate(heads[1:]))
    return table(caption, rows, (heads[0], lambda row: name(row[0])), *columns)


def trials(session: Session, clock: Clock, steps: Mapping[int, ChartSteps]) -> Table:
    """Return each trial's place on the time axis and its course, in numbers."""
    rows = [(record, steps.get(index)) for index, record in enumerate(session.trials[:_MOST_TRIALS])]
    left = len(session.trials) - len(rows)
    return table(
        f"The trials in the order they ran{f'; {left} more are in the session file' if left > 0 else ''}",
        rows,
        ("trial", lambda row: trial_name(row[0])),
        ("began, s", lambda row: f"{clock.seconds(row[0].started_ns):.1f}"),
        ("took", lambda row: units.seconds(row[0].took_s)),
        ("status", lambda row: Cell(row[0].status, "", row[0].reason if row[0].status != "ok" else None)),
        ("steps", lambda row: str(row[1].count) if row[1] is not None else units.NOT_MEASURED),
        ("first step", lambda row: units.seconds(row[0].first_step_s)),
        ("median step, ms", lambda row: _medians(row[1], 1)),
        ("by quarter of its training, ms", lambda row: _medians(row[1], _QUARTERS)),
        ("input wait", lambda row: _waited(row[1])),
        ("queue, mean fill", lambda row: _fill(row[0])),
    )


def trial_name(trial: Any) -> str:
    """Return what a trial, or a disturbance of one, is called."""
    return f"{name(trial.variant)}, repeat {trial.repeat + 1}"


def _medians(read: ChartSteps | None, count: int) -> str:
    """Return the median step of so many equal parts of the training."""
    if read is None or read.measured_ms.size < count:
        return units.NOT_MEASURED
    parts_ms = np.array_split(read.measured_ms, count)
    weights = [None] * count if read.measured_weights is None else np.array_split(read.measured_weights, count)
    medians_ms = (percentiles(part, own, [50])[0] for part, own in zip(parts_ms, weights, strict=True))
    return " · ".join(units.plain_milliseconds(median_ms) for median_ms in medians_ms)


def _waited(read: ChartSteps | None) -> str:
    if read is None or read.wait_ms is None:
        return units.NOT_MEASURED
    weights = 1 if read.measured_weights is None else read.measured_weights
    total_ms = float((read.measured_ms * weights).sum())
    return units.share(float((read.wait_ms[read.warmup :] * weights).sum()) / total_ms if total_ms > 0 else None)


def _fill(record: TrialRecord) -> str:
    fills = []
    for queue in record.queue_depths:
        sizes = queue.size.unpack()
        if sizes.size:
            fills.append(f"{float(sizes.mean()):.1f} of {queue.capacity}")
    return ", ".join(fills) or units.NOT_MEASURED


def disturbances(session: Session) -> tuple[Table, Table] | None:
    """Return what disturbed trials, the costliest in few rows and every one; None where nothing was found."""
    found = session.disturbances
    if not found:
        return None
    by_kind = session.diagnosis is not None
    listed = found[:_MOST_LISTED]
    caption = units.count(len(found), "disturbance")
    caption += f", the first {len(listed)} of them" if len(listed) < len(found) else ""
    shown = table(
        "What disturbed trials, and is not of a variant: each kind's costliest",
        facts.disturbances(found, _MOST_DISTURBANCES, rest="in the list below", by_kind=by_kind),
        ("variant and repeats", lambda row: row[0]),
        ("kind", lambda row: Cell(row[1] or "several", whole=True)),
        ("what was seen", lambda row: row[2] or row[1]),
    )
    every = table(
        caption,
        listed,
        ("trial", trial_name),
        ("kind", lambda each: Cell(each.kind, whole=True)),
        ("of its measured time", lambda each: units.share(each.cost_share)),
        ("what was seen", lambda each: each.text),
    )
    return shown, every


def placement(session: Session) -> tuple[Table, list[tuple[str, Table]]] | None:
    """Return which device ran which types of ops, and every op with a summary; None where it was not asked for."""
    found = placements(session)
    if not found:
        return None
    rows: list[tuple[str, Cell, str, str]] = []
    for placed in found:
        if placed.reason is not None:
            unknown = Cell(units.NOT_MEASURED, "", placed.reason)
            rows.append((placed.name, unknown, units.NOT_MEASURED, units.NOT_MEASURED))
        rows += [(placed.name, Cell(of), f"{ops:,}", types or "none") for of, ops, types in placed.devices]
    devices = table(
        "Which device ran the ops of a step",
        rows,
        ("variant", lambda row: row[0]),
        ("device", lambda row: row[1]),
        ("ops", lambda row: row[2]),
        ("types", lambda row: row[3]),
    )
    return devices, [_ops(placed) for placed in found if placed.ops]


def _ops(placed: Placed) -> tuple[str, Table]:
    kept = units.count(len(placed.ops), "op")
    kept = f"the first {_MOST_OPS:,} of {kept}, all in session.json" if len(placed.ops) > _MOST_OPS else kept
    rest = f"; {placed.not_kept}" if placed.not_kept else ""
    ops = table(
        placed.name,
        placed.ops[:_MOST_OPS],
        ("op", lambda op: op.name),
        ("type", lambda op: op.type),
        ("device", lambda op: op.device),
    )
    return f"The ops of {placed.name}: {kept}{rest}", ops


def work(session: Session) -> Table | None:
    """Return whether each variant trained on the samples it should; None where no one looked."""
    if not any(result.work.text for result in session.results):
        return None
    return table(
        "Whether the variants did the same work",
        in_order(session),
        ("variant", _name),
        ("work", lambda result: result.work.status.replace("-", " ")),
        ("what was found", lambda result: result.work.text or units.NOT_MEASURED),
    )


def sections(session: Session) -> dict[str, list[str]]:
    """Return the lines of the sections of facts, by their heading."""
    found: dict[str, list[str]] = {}
    for section in facts.SECTIONS:
        lines = found.setdefault(section.heading, [])
        lines += [section.page_lead.format(of) + text for of, text in section.facts(session)]
    return found


def environment(session: Session) -> list[tuple[str, str]]:
    """Return the machine and the versions, as terms and facts."""
    machine = session.environment
    kind = "" if machine.accelerator_kind == "emulated" else f"{machine.accelerator_kind.upper()}: "
    found = [
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
    return [(term, fact) for term, fact in found if fact]


def configuration(session: Session) -> Table:
    """Return each variant as it was run: plug-ins with their options, runtime, length."""
    return table(
        "What was run",
        session.scenario.variants,
        ("variant", lambda variant: variant.name),
        ("backend", lambda variant: _plugin(variant.backend, variant.options)),
        ("source", lambda variant: _plugin(variant.source.kind, variant.source.options)),
        ("model", lambda variant: _plugin(variant.model.kind, variant.model.options)),
        ("loop", lambda variant: _plugin(variant.loop.kind, variant.loop.options)),
        ("runtime", lambda variant: _options(variant.runtime.model_dump())),
        ("run", lambda variant: _options(variant.run.model_dump(exclude_none=True))),
    )


def _plugin(kind: str, options: Mapping[str, Any]) -> str:
    return f"{kind}({_options(options)})" if options else kind


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value, default=str, ensure_ascii=False)}" for key, value in options.items())
