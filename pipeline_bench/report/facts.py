"""What a report says of a session beside its figures, for every format: facts with their names, and sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_bench.analysis import advice, validity, wall_time
from pipeline_bench.analysis.measured import taken_by_others
from pipeline_bench.analysis.thresholds import BUSY_SHARE, CERTAIN_CLAIM, PROBABLE_CLAIM
from pipeline_bench.model.result import (
    BUSY_TIME,
    CPU_TIME,
    Disturbance,
    PublishedComparison,
    Result,
)
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import machines, selftest, step_parts
from pipeline_bench.text import NAME, REASON, code_line, grouped, joined, one_line, sentence, units

Fact = tuple[str, str]
"""The name of what a line is about, and the line."""

_NO_WORDS = re.compile(
    r"[IWE]\d{4} \d\d:\d\d|WARNING: All log messages|To enable the following|\d{4}(-\d\d){2} .{8,20}: [IWE] |"
    r"\s*\d+/(\d+|Unknown) [━[]"
)
"""TensorFlow's own log, below its fatal errors, and a bar of Keras'."""
_STACK_FRAMES, _TRACEBACK_LINES, _STDERR_LINES, _ALL_STDERR_LINES = 6, 20, 12, 40
_OVERRUN = 1.05
"""A median busy time of so many times what was asked for is worth a word; waits come out right within 2 %."""


def span(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest: ``20``, ``20 to 30``; a dash where there is none."""
    if not numbers:
        return units.NOT_MEASURED
    few, many = min(numbers), max(numbers)
    return str(few) if few == many else f"{few} to {many}"


def machine(session: Session) -> str:
    """Return the accelerator and the machine around it; of an emulated accelerator also the host."""
    around = session.environment
    emulated = around.accelerator_kind == "emulated"
    facts = [around.cpu if emulated else around.accelerator_name, units.count(around.cores, "core")]
    facts += [f"driver {around.driver}"] if around.driver and not emulated else []
    facts += [f"TensorFlow {around.tensorflow}"] if around.tensorflow else []
    around_it = ", ".join([*facts, f"Python {around.python}"])
    if emulated:
        return f"{around.accelerator_name}; the host is this machine: {around_it}"
    return f"{around.accelerator_kind.upper()}: {around_it}"


def busy_time(session: Session) -> str | None:
    """Return how the utilization of emulated devices was measured, and of which variants; None where there is none."""
    emulated = [result for result in session.results if result.device_utilization.source == BUSY_TIME]
    if not emulated:
        return None
    who = "" if len(emulated) == len(session.results) else " of " + _names(emulated)
    text = f"emul. util.{who}: how long the emulated device was busy ÷ wall time; no device was measured"
    late = [f"{name}'s {took}" for name, took in overruns(session)]
    return f"{text}; busy for longer than set, because the host was too slow: {', '.join(late)}" if late else text


def overruns(session: Session) -> list[tuple[str, str]]:
    """Return the variants whose device was busy longer than set, the worst first, with its median and the setting."""
    found = []
    for variant in session.scenario.variants:
        step_ms = variant.model.options.get("step_ms")
        columns = [trial.steps.busy_ns for trial in session.trials if trial.variant == variant.name and trial.steps]
        busy_ms = [column.unpack() / 1e6 for column in columns if column is not None and column.count]
        if step_ms and busy_ms and (median := float(np.median(np.concatenate(busy_ms)))) > _OVERRUN * step_ms:
            took = f"{units.milliseconds(median)} a step, not {step_ms:g} ms"
            found.append((median / step_ms, one_line(variant.name, NAME), took))
    return [(name, took) for _, name, took in sorted(found, reverse=True)]


def warnings(session: Session) -> list[str]:
    """Return the first line of what the figures do not show, and the device that was busy for too long."""
    late = [f"{name}'s device was busy {took}: the host was too slow" for name, took in overruns(session)[:1]]
    return [*late, *(f"{name}: {text}" for name, text in validity.not_shown(session)[:1])]


def left_out(session: Session) -> list[tuple[str, str]]:
    """Return how many records were skipped and the first by name; a line for variants that skipped the same."""
    skipped: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for trial in session.trials:
        if trial.work is not None and trial.work.skipped_records:
            names = skipped.setdefault((trial.work.skipped, trial.work.skipped_records), [])
            names += [trial.variant] if trial.variant not in names else []
    everyone = len({trial.variant for trial in session.trials if trial.work is not None})
    lines = []
    for (count, records), names in skipped.items():
        who = "every variant" if len(names) == everyone else joined([one_line(name, NAME) for name in names])
        first = "; ".join(record.rstrip(".") for record in records)
        lines.append(
            (who, f"{units.count(count, 'record')}, the first of them: {first}" if count > len(records) else first)
        )
    return lines


def _names(results: Sequence[Result]) -> str:
    return joined([one_line(result.variant, NAME) for result in results])


@dataclass(frozen=True)
class FactSection:
    """A section of facts: every format lays it out as lines, each with the name of what it is of."""

    title: str
    heading: str
    """Its heading on a page; those of one heading stand together, there and in a terminal."""
    lead: str
    """What a line of it begins with in a terminal; the braces are for the name."""
    page_lead: str
    """The same on a page, where some sections have a heading of their own."""
    facts: Callable[[Session], list[Fact]]


def _wall_time(session: Session) -> list[Fact]:
    """Return where a watched training's wall time went, and what in it is unusual."""
    time = session.wall_time
    if time is None:
        return []
    return [wall_time.summary(time), *(("remark", remark) for remark in wall_time.remarks_of(session))]


_HOLDS = "How far the comparison holds"

SECTIONS = (
    FactSection("Copy to the GPU", "Copy to the GPU", "copy to the GPU, {}: ", "{}: ", step_parts.copies),
    FactSection("Crossing", "The way from the workers", "from the worker, {}: ", "{}: ", step_parts.of_service),
    FactSection("Activity", "What of the GPU was busy", "{}: ", "{}: ", step_parts.of_gpu),
    FactSection("Selftest", "What was planted and measured", "selftest: {}: ", "{}: ", selftest.facts),
    FactSection("Checked", "How accurate the figures are", "{}: ", "{}: ", selftest.cited),
    FactSection("Hosts", "Hosts", "{}: ", "{}: ", machines.hosts),
    FactSection("Storage", _HOLDS, "storage: {}; ", "Storage: {}; ", machines.storage),
    FactSection("Scope", _HOLDS, "{}: ", "{}: ", validity.not_shown),
    FactSection("Skipped by", _HOLDS, "skipped by {}: ", "Skipped by {}: ", left_out),
    FactSection("Threads", "Threads and cores", "threads: {} ", "{} ", advice.thread_remarks),
    FactSection("Wall time", "Where the wall time went", "{}: ", "{}: ", _wall_time),
    FactSection("Loops", "Loops", "{}: ", "{}: ", advice.loop_remarks),
)
"""The sections of facts in their order: a new one is an entry here.

The page has places of its own for the wall time, beside its plot, and for how far the comparison holds.
"""


def disturbances(
    found: Iterable[Disturbance], most: int, rest: str = "in the session file", by_kind: bool = False
) -> list[tuple[str, str, str]]:
    """Return the costliest first, as (variant and repeats, kind, what happened); unknown costs come last.

    Args:
        found: of one session.
        most: the most to list; one more line, which has no kind, counts those left out.
        rest: where a reader finds those.
        by_kind: one line a kind for all variants together, as for a diagnosis, which has many variants of few trials.
    """
    groups = grouped((("" if by_kind else each.variant, each.kind), each) for each in found)
    ordered = sorted(groups.values(), key=lambda group: -_cost(_worst(group)))
    shown = [_disturbance(group) for group in ordered[:most]]
    if left_out := sum(map(len, ordered[most:])):
        shown.append(("besides", "", f"{units.count(left_out, 'smaller disturbance')} {rest}"))
    return shown


def _disturbance(group: Sequence[Disturbance]) -> tuple[str, str, str]:
    worst = _worst(group)
    variants = {each.variant for each in group}
    name = one_line(worst.variant, NAME)
    repeats = [str(number) for number in sorted({each.repeat + 1 for each in group})]
    if len(variants) > 1:
        trials = len({(each.variant, each.repeat) for each in group})
        head = f"{units.count(trials, 'trial')} of {units.count(len(variants), 'variant')}"
        text = f"most in {name}, repeat {worst.repeat + 1}: {worst.text}"
    elif len(repeats) > 1:
        where = f"repeats {joined(repeats, 'and')}"
        head = f"{name}, {one_line(where, NAME)}"
        text = f"in repeat {worst.repeat + 1} {worst.text}"
    else:
        head, text = f"{name}, repeat {repeats[0]}", worst.text
    return head, worst.kind, one_line(text, REASON - len(f"{worst.kind}: "))


def _worst(group: Sequence[Disturbance]) -> Disturbance:
    return max(group, key=_cost)


def _cost(disturbance: Disturbance) -> float:
    return -1.0 if disturbance.cost_share is None else disturbance.cost_share


def precision(session: Session) -> str:
    """Return the sentence on how well the speed-ups are known and what ended the rounds; empty without a goal."""
    text = session.precision.text if session.precision is not None else ""
    return f"{sentence(text.rstrip('.'))}." if text else ""


def unexplained(session: Session) -> list[TrialRecord]:
    """Return the trials without those of fixes that do not apply, whose failure is reported as such."""
    attempts = () if session.diagnosis is None else session.diagnosis.attempts
    answered = {each.fix.variant for each in attempts if each.outcome == "not-applicable"}
    return [trial for trial in session.trials if trial.variant not in answered]


def own_words(stderr: str) -> list[str]:
    """Return the lines of a trial's stderr without TensorFlow's log and Keras' progress bars."""
    return [line for line in stderr.splitlines() if line.strip() and not _NO_WORDS.match(line)]


def troubles(trials: Iterable[TrialRecord], *, brief: bool) -> Iterator[tuple[TrialRecord, list[str]]]:
    """Yield each trial that did not end well with its evidence; repeats with the same reason refer to the first."""
    seen: dict[tuple[str, str | None], int] = {}
    for record in trials:
        if record.status != "ok":
            earlier = seen.setdefault((record.variant, record.reason), record.repeat)
            is_first = earlier == record.repeat
            yield record, [*evidence(record, brief=brief)] if is_first else [f"like repeat {earlier + 1}"]


def evidence(record: TrialRecord, *, brief: bool) -> Iterator[str]:
    """Yield the evidence of a trial that did not end well: queues, the threads' stacks, and the end of its stderr.

    Args:
        record: the trial.
        brief: for a terminal: the ends only, and no stderr where the stacks or the traceback say it better.
    """
    limit, mark = (None, "│ ") if brief else (1200, "  ")
    if record.work is not None and (missing := validity.missing(record.work)):
        yield f"equal work: {one_line(missing, limit)}"
    for queue in record.queues:
        size = "did not answer" if queue.filling is None else f"held {queue.filling}"
        yield f"queue {one_line(queue.name, limit)} {size}"
    for stack in record.stacks:
        frames = stack.frames[-_STACK_FRAMES:] if brief else stack.frames
        outer = len(stack.frames) - len(frames)
        more = f" ({units.count(outer, 'outer frame')} left out)" if outer else ""
        yield f"thread {one_line(stack.thread, limit)} was at{more}:"
        yield from (f"{mark}{one_line(frame, limit)}" for frame in frames)
    if brief:
        yield from (f"{mark}{code_line(line)}" for line in record.traceback.splitlines()[-_TRACEBACK_LINES:])
    written = (brief and own_words(record.stderr_tail)) or record.stderr_tail.splitlines()
    lines = [shown for line in written if (shown := one_line(line, limit))]
    most = _STDERR_LINES if brief else _ALL_STDERR_LINES
    if lines and not (brief and (record.stacks or record.traceback)):
        yield f"stderr, its last {most} lines:" if brief and len(lines) > most else "stderr ended with:"
        yield from (f"{mark}{line}" for line in lines[-most:])
    if record.stderr_file:
        where = ", in the session's folder" if brief else ""
        yield f"its stderr{where}: {one_line(record.stderr_file, limit)}"


PUBLISHED = ("against the published", "time", "ours", "ratio", "device util.", "ours", "ratio")
"""The heads of the table of an author's figures: the variant's name, then those of `PublishedTable.rows`."""


@dataclass(frozen=True)
class PublishedTable:
    """An author's figures beside ours, as every format shows them."""

    rows: list[tuple[str, list[str]]]
    """By variant: the author's time, ours, ours over theirs, then the same of the device's utilization."""
    gains: list[str]
    """What the author gained over the first figure beside what we do, where there are two to compare."""
    captions: list[str]


def published(session: Session) -> PublishedTable | None:
    """Return the author's figures beside ours; None where there are none."""
    author = session.scenario.published
    found = [(result.variant, result.published) for result in session.results if result.published is not None]
    if author is None or not found:
        return None
    rows = [(variant, _published(figures)) for variant, figures in found]
    steps = units.count(author.steps, "step")
    captions = [f"published: {author.source}; {steps}; ratio: ours ÷ theirs"]
    if scaled := {variant for variant, figures in found if figures.scaled_from_steps is not None}:
        trials = [trial for trial in session.trials if trial.variant in scaled and trial.measured]
        ours = span([trial.steps.count for trial in trials if trial.steps is not None])
        captions.append(f"* our time is scaled to {steps} from {ours} a trial")
    both = any(f.device_utilization_percent and f.our_device_utilization_percent is not None for _, f in found)
    other = {"cpu": "the CPU's", "emulated": "an emulated device's"}.get(session.environment.accelerator_kind)
    if both and other:
        changes = "so compare their changes rather than their ratio"
        captions.append(f"device util.: theirs is a GPU's, ours {other}, {changes}")
    captions += author.why
    return PublishedTable(rows, list(_gains(found)), captions)


def _published(figures: PublishedComparison) -> list[str]:
    return [
        units.seconds(figures.seconds),
        units.seconds(figures.our_seconds) + ("*" if figures.scaled_from_steps is not None else ""),
        units.ratio(figures.seconds_ratio),
        units.percent(figures.device_utilization_percent),
        units.percent(figures.our_device_utilization_percent),
        units.ratio(figures.device_utilization_ratio),
    ]


def _gains(rows: list[tuple[str, PublishedComparison]]) -> Iterator[str]:
    first_name, first = rows[0]
    for variant, figures in rows[1:]:
        head = f"{one_line(first_name, NAME)} → {one_line(variant, NAME)}"
        if first.seconds and figures.seconds:
            theirs = _gain(units.seconds, first.seconds, figures.seconds, faster=True)
            ours = _gain(units.seconds, first.our_seconds, figures.our_seconds, faster=True)
            yield f"{head}: published {theirs}, ours {ours}"
        if first.device_utilization_percent and figures.device_utilization_percent:
            theirs = _gain(units.percent, first.device_utilization_percent, figures.device_utilization_percent)
            ours = _gain(units.percent, first.our_device_utilization_percent, figures.our_device_utilization_percent)
            yield f"device utilization: published {theirs}, ours {ours}"


def _gain(show: Callable[[float], str], before: float | None, after: float | None, faster: bool = False) -> str:
    """Return the gain from one figure to another, ``18.0 s → 11.5 s = 1.57×``; of times (`faster`) less is more."""
    if not before or not after:
        return units.NOT_MEASURED
    return f"{show(before)} → {show(after)} = {units.ratio(before / after if faster else after / before)}"


def instrument(session: Session, source: str) -> str:
    """Return how a device utilization was measured; of a CPU the formula: it is not what a GPU's means."""
    if source != CPU_TIME:
        return source
    return f"the trial's CPU time ÷ (wall time × {units.count(session.environment.cores, 'core')})"


def middle_step(results: Iterable[Result]) -> str:
    """Return which step is shown: the ``mean``, or the ``median`` of a session that was kept without means."""
    steps = [result.step_ms for result in results if result.step_ms.median is not None]
    return "mean" if not steps or any(step.mean is not None for step in steps) else "median"


def other_work(session: Session) -> list[str]:
    """Return how many trials other work disturbed, and by how much at most, in half a sentence; empty if it did not."""
    measured = [trial for trial in session.trials if trial.measured]
    taken = [share for share in map(taken_by_others, measured) if share >= BUSY_SHARE]
    if not taken:
        return []
    trials = units.count(len(measured), "trial")
    return [f"{len(taken)} of {trials} beside other work, up to {units.share(max(taken))} of the CPU"]


def captions(session: Session, intervals: Iterable[str] = ()) -> list[str]:
    """Return what the heads of the table have no room to say: instruments and references.

    Args:
        session: whose results are in the table.
        intervals: what the format has to say of its intervals.
    """
    results = session.results
    measured = [result.device_utilization for result in results if result.device_utilization.mean_percent is not None]
    sources = dict.fromkeys(used.source for used in measured if used.source and used.source != BUSY_TIME)
    kind = session.environment.accelerator_kind.upper()
    busy = busy_time(session)
    of_steps = "mean, as every figure is of means"
    if middle_step(results) == "median":
        of_steps = "median; all other figures use means"
    of_one = any(each.trials == 1 and each.device_utilization.ci95 for each in results)
    overs = dict.fromkeys(one_line(r.speedup.over, NAME) for r in results if r.speedup.over is not None)
    inputs, said = (
        "the input's work included",
        f"faster or slower: if the {units.confidence(CERTAIN_CLAIM)} interval excludes 1; probably: the "
        f"{units.confidence(PROBABLE_CLAIM)} one",
    )
    batch = "the same model on one batch that stays on the device, again and again"
    return [
        f"ms/step: the {of_steps}",
        *([busy] if busy else []),
        *(f"{kind} util.: {instrument(session, each)}{', ' + inputs if each == CPU_TIME else ''}" for each in sources),
        *(
            f"speed-up: samples/s ÷ those of {over} in the same round, averaged over the rounds; {said}"
            for over in overs
        ),
        *intervals,
        *([f"the interval of one trial's {kind} util. is its instrument's own error"] if of_one else []),
        "AU, accelerator utilization: the ceiling's step time ÷ the variant's",
        *([f"ceiling: {batch}, so its loss has no meaning"] if session.scenario.ceilings else []),
        *other_work(session),
    ]
