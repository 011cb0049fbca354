"""What a report says of a session beside its figures, for every format: facts with their names, and sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_bench.analysis import advice, validity
from pipeline_bench.analysis.thresholds import COMPUTE_BOUND_AU, SMS_IDLE_PERCENT
from pipeline_bench.model.events import PlacedOp, Placement
from pipeline_bench.model.result import BUSY_TIME, Activity, Disturbance, PublishedComparison, Result, Verdict
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import ACTIVITY, TrialRecord
from pipeline_bench.report import selftest
from pipeline_bench.text import code_line, one_line, units

Fact = tuple[str, str]
"""What a line is of, and the line."""

_DISTURBANCE_LIMIT = 300
_STACK_FRAMES, _TRACEBACK_LINES, _STDERR_LINES, _ALL_STDERR_LINES = 6, 20, 12, 40
_OVERRUN = 1.05
"""A median busy time of so many times what was asked for is worth a word; waits come out right within 2 %."""


_BUSY = dict(zip(ACTIVITY, ("SMs busy", "warps", "tensor cores", "DRAM"), strict=False))
PARTS = ("input wait", "compute", "host slowdown")
"""The parts of a step in their order."""


def parts(result: Result) -> list[tuple[float, float]]:
    """Return each part of the step as measured and as its length, of 1; empty where one was not measured.

    A part below nothing, which noise can make, has no length.
    """
    shares = (result.input_wait_share, result.accelerator_utilization, result.host_slowdown_share)
    values = [max(0.0, share.value) for share in shares if share.value is not None]
    if len(values) < len(PARTS) or not sum(values):
        return []
    return [(value, value / sum(values)) for value in values]


def span(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest: ``20``, ``20 to 30``; a dash where there is none."""
    if not numbers:
        return units.NOT_MEASURED
    few, many = min(numbers), max(numbers)
    return str(few) if few == many else f"{few} to {many}"


def clause(verdict: Verdict) -> str:
    """Return a verdict's sentence without the verdict itself, for where that stands before it."""
    text = verdict.text
    return text.removeprefix("severely " if verdict.severe else "").removeprefix(f"{verdict.kind}: ")


def machine(session: Session) -> str:
    """The accelerator and the machine around it; an emulated accelerator is called that, and the host is named."""
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
    """How the utilization of emulated devices was had, and of which variants it is; None where there is none."""
    emulated = [result for result in session.results if result.device_utilization.source == BUSY_TIME]
    if not emulated:
        return None
    who = "" if len(emulated) == len(session.results) else " of " + _names(emulated)
    text = f"emul. util.{who}: how long the emulated device was busy ÷ wall time; no device was measured"
    late = [f"{name}'s {took}" for name, took in _overrun(session)]
    return f"{text}; busy longer than it was to be, on a host that did not keep up: {', '.join(late)}" if late else text


def _overrun(session: Session) -> Iterator[tuple[str, str]]:
    """The variants whose device was busy longer than asked for, each with how long it was, and was to be."""
    for variant in session.scenario.variants:
        step_ms = variant.model.options.get("step_ms")
        columns = [trial.steps.busy_ns for trial in session.trials if trial.variant == variant.name and trial.steps]
        busy_ms = [column.unpack() / 1e6 for column in columns if column is not None and column.count]
        if step_ms and busy_ms and (median := float(np.median(np.concatenate(busy_ms)))) > _OVERRUN * step_ms:
            yield one_line(variant.name, 48), f"{units.milliseconds(median)} a step, not {step_ms:g} ms"


def other_device(session: Session) -> str | None:
    """Whose our utilization is where it is of another kind than an author's, which is a GPU's; None where it is not."""
    kinds: dict[str, str | None] = {"cpu": "the CPU's", "emulated": "an emulated device's", "gpu": None}
    return kinds[session.environment.accelerator_kind]


def storage(session: Session) -> list[tuple[str, str]]:
    """What was in the page cache where files were read: a line for those variants that asked for the same."""
    asked: dict[str, list[TrialRecord]] = {}
    for trial in session.trials:
        if trial.storage is not None and trial.measured:
            asked.setdefault(trial.storage.asked, []).append(trial)
    heads = {"as-is": "files as they were found", "cold": "cold asked", "warm": "warm asked"}
    lines = []
    for state, trials in asked.items():
        names = dict.fromkeys(one_line(trial.variant, 48) for trial in trials)
        who = f" of {_listed(names)}" if len(asked) > 1 else ""
        lines.append((f"{heads[state]}{who}", validity.describe_cache(trials) or ""))
    return lines


def left_out(session: Session) -> list[tuple[str, str]]:
    """The records that were skipped, how many and the first by name; a line for variants that skipped the same."""
    skipped: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for trial in session.trials:
        if trial.work is not None and trial.work.skipped_records:
            names = skipped.setdefault((trial.work.skipped, trial.work.skipped_records), [])
            names += [trial.variant] if trial.variant not in names else []
    everyone = len({trial.variant for trial in session.trials if trial.work is not None})
    lines = []
    for (count, records), names in skipped.items():
        who = "every variant" if len(names) == everyone else _listed([one_line(name, 48) for name in names])
        first = "; ".join(record.rstrip(".") for record in records)
        lines.append(
            (who, f"{units.count(count, 'record')}, the first of them: {first}" if count > len(records) else first)
        )
    return lines


def _names(results: Sequence[Result]) -> str:
    return _listed([one_line(result.variant, 48) for result in results])


def _listed(names: Iterable[str]) -> str:
    """``a, b``; ``a, 1; a, 2`` where names have commas of their own."""
    listed = tuple(names)
    return ("; " if any("," in name for name in listed) else ", ").join(listed)


def activity(session: Session) -> list[Fact]:
    """What of a GPU was busy beneath its utilization: a line a variant, where GPM told anything."""
    lines = []
    for result in session.results:
        known = {each.metric: each for each in result.device_utilization.activity if each.mean is not None}
        if not known:
            continue
        parts = [f"{noun} {units.percent(known[metric].mean)}" for metric, noun in _BUSY.items() if metric in known]
        first = next(iter(known.values()))
        told = f"{', '.join(parts)} ({first.source}, windows of {first.window_ms or 0:.0f} ms, "
        told += f"{units.share(first.coverage)} of the measured time)"
        lines.append((one_line(result.variant, 48), told + _small_kernels(result, known.get(ACTIVITY[0]))))
    return lines


def _small_kernels(result: Result, busy: Activity | None) -> str:
    """Return what it means that a GPU was fed and its SMs were idle; empty where that is not so."""
    utilization = result.accelerator_utilization.value
    if busy is None or busy.mean is None or utilization is None or utilization < COMPUTE_BOUND_AU:
        return ""
    if busy.mean >= SMS_IDLE_PERCENT:
        return ""
    share = units.percent(busy.mean)
    return f": fed (AU {units.fraction(utilization)}), but {share} of the SMs busy: small kernels, not data"


@dataclass(frozen=True)
class Section:
    """A section of facts: every format lays it out as lines, each with the name of what it is of."""

    title: str
    lead: str
    """What a line of it begins with in a terminal; the braces are for the name."""
    page_lead: str
    """The same on a page, where some sections have a heading of their own."""
    facts: Callable[[Session], list[Fact]]


SECTIONS = (
    Section("Activity", "{}: ", "{}: ", activity),
    Section("Selftest", "selftest: {}: ", "{}: ", selftest.facts),
    Section("Checked", "{}: ", "{}: ", selftest.cited),
    Section("Storage", "storage: {}; ", "Storage: {}; ", storage),
    Section("Skipped by", "skipped by {}: ", "Skipped by {}: ", left_out),
    Section("Threads", "threads: {} ", "{} ", advice.thread_remarks),
    Section("Loops", "{}: ", "{}: ", advice.loop_remarks),
)
"""The sections of facts in their order: a new one is an entry here."""


def disturbances(
    found: Iterable[Disturbance], most: int, rest: str = "in the session file", by_kind: bool = False
) -> list[tuple[str, str, str]]:
    """Return the costliest first, as (variant and repeats, kind, what happened); unknown costs come last.

    Args:
        found: of one session.
        most: how many there may be; what is left out is counted in one more, which has no kind.
        rest: where what is left out is found.
        by_kind: those of all variants together, where there are many variants of few trials: those of a diagnosis.
    """
    groups: dict[tuple[str, str], list[Disturbance]] = {}
    for each in found:
        groups.setdefault(("" if by_kind else each.variant, each.kind), []).append(each)
    ordered = sorted(groups.values(), key=lambda group: -_cost(_worst(group)))
    shown = [_disturbance(group) for group in ordered[:most]]
    left_out = len(ordered) - len(shown)
    if left_out > 0:
        shown.append(("besides", "", f"{units.count(left_out, 'smaller disturbance')} {rest}"))
    return shown


def _disturbance(group: Sequence[Disturbance]) -> tuple[str, str, str]:
    worst = _worst(group)
    variants = {each.variant for each in group}
    name = one_line(worst.variant, 80)
    repeats = [str(number) for number in sorted({each.repeat + 1 for each in group})]
    if len(variants) > 1:
        trials = len({(each.variant, each.repeat) for each in group})
        head = f"{units.count(trials, 'trial')} of {units.count(len(variants), 'variant')}"
        text = f"most in {name}, repeat {worst.repeat + 1}: {worst.text}"
    elif len(repeats) > 1:
        where = f"repeats {', '.join(repeats[:-1])} and {repeats[-1]}"
        head = f"{name}, {one_line(where, 80)}"
        text = f"in repeat {worst.repeat + 1} {worst.text}"
    else:
        head, text = f"{name}, repeat {repeats[0]}", worst.text
    return head, worst.kind, one_line(text, _DISTURBANCE_LIMIT - len(f"{worst.kind}: "))


def _worst(group: Sequence[Disturbance]) -> Disturbance:
    return max(group, key=_cost)


def _cost(disturbance: Disturbance) -> float:
    return -1.0 if disturbance.cost_share is None else disturbance.cost_share


def evidence(record: TrialRecord, *, brief: bool) -> Iterator[str]:
    """Yield what a trial left that did not end well: its queues, where its threads stood, and the end of its stderr.

    Args:
        record: the trial.
        brief: for a terminal: the ends only, and no stderr where the stacks or the traceback say it better.
    """
    limit, mark = (None, "│ ") if brief else (1200, "  ")
    for queue in record.queues:
        size = "did not answer" if queue.size is None else f"held {queue.size} of {queue.capacity} elements"
        yield f"queue {one_line(queue.name, limit)} {size}"
    for stack in record.stacks:
        frames = stack.frames[-_STACK_FRAMES:] if brief else stack.frames
        outer = len(stack.frames) - len(frames)
        more = f" ({units.count(outer, 'outer frame')} left out)" if outer else ""
        yield f"thread {one_line(stack.thread, limit)} stood at{more}:"
        yield from (f"{mark}{one_line(frame, limit)}" for frame in frames)
    if brief:
        yield from (f"{mark}{code_line(line)}" for line in record.traceback.splitlines()[-_TRACEBACK_LINES:])
    lines = [shown for line in record.stderr_tail.splitlines() if (shown := one_line(line, limit))]
    most = _STDERR_LINES if brief else _ALL_STDERR_LINES
    if lines and not (brief and (record.stacks or record.traceback)):
        yield f"stderr, its last {most} lines:" if brief and len(lines) > most else "stderr ended with:"
        yield from (f"{mark}{line}" for line in lines[-most:])
    if record.stderr_file:
        where = ", in the session's folder" if brief else ""
        yield f"its stderr{where}: {one_line(record.stderr_file, limit)}"


def published(figures: PublishedComparison) -> list[str]:
    """Return an author's figures beside ours: time, ours, their ratio, then the same of the device's utilization."""
    return [
        units.seconds(figures.seconds),
        units.seconds(figures.our_seconds),
        units.ratio(figures.seconds_ratio),
        units.percent(figures.device_utilization_percent),
        units.percent(figures.our_device_utilization_percent),
        units.ratio(figures.device_utilization_ratio),
    ]


def other_utilization(session: Session) -> str | None:
    """Return whose device ours is, where a published utilization stands beside one of another kind; else None."""
    compared = [result.published for result in session.results if result.published is not None]
    both = any(f.device_utilization_percent and f.our_device_utilization_percent is not None for f in compared)
    return other_device(session) if both else None


PLUMBING = frozenset(
    {
        *("Const", "Placeholder", "IteratorV2", "VarHandleOp", "VariableV2", "ReadVariableOp"),
        *("_Arg", "_Retval", "NoOp", "Identity", "IdentityN", "_Send", "_Recv", "_HostSend", "_HostRecv"),
        *("Reshape", "Squeeze", "ExpandDims", "Shape"),
    }
)
"""Ops that hold, pass on or relabel values and compute nothing: they are counted together."""

PLACEMENT_METHOD = (
    "The ops of one step after TensorFlow has pruned, fused and optimised its graph, with those that take the batch "
    "and time that (Timestamp); the ops inside of a dataset are not among them. Plumbing: constants, variables, and "
    "what passes values on. Of a loop that runs several steps a call it is one step by itself."
)

_NOT_TOLD = Placement(reason="its first trial did not come to telling it")
_MOST_TYPES = 8
_NAME_LIMIT = 40
_OF_ONEDNN = re.compile(r"^_(?:MklNative|Mkl)?(?=[A-Z])")


@dataclass(frozen=True)
class Placed:
    """The placement that some variants have in common; `reason` where it is not known."""

    name: str
    """The variants, on one line."""
    ops: tuple[PlacedOp, ...]
    not_kept: str
    """How many ops are not in the session, in words; empty where all are."""
    reason: str | None

    @property
    def devices(self) -> list[tuple[str, int, str]]:
        """The devices that have ops, by name, with how many ops and of which types."""
        names = sorted({op.device for op in self.ops})
        own = ([op for op in self.ops if op.device == name] for name in names)
        return [(name, len(ops), _types(ops)) for name, ops in zip(names, own, strict=True)]


def placements(session: Session) -> list[Placed]:
    """Return the placements in the scenario's order: one for all variants that have the same.

    A ceiling's is left out, since its model is placed like its variants'; but where there are only ceilings.
    """
    first = {trial.variant: trial.placement or _NOT_TOLD for trial in session.trials if trial.repeat == 0}
    asked = [variant for variant in session.scenario.variants if variant.runtime.log_placement]
    variants = [variant for variant in asked if variant.name in first]
    shown = [variant for variant in variants if variant.ceiling is not None] or variants
    groups: dict[Placement, list[str]] = {}
    for variant in shown:
        groups.setdefault(first[variant.name], []).append(one_line(variant.name, _NAME_LIMIT))
    made = []
    for at, names in groups.items():
        left_out = at.op_count - len(at.ops)
        not_kept = f"{units.count(left_out, 'more op')} not kept" if left_out > 0 else ""
        made.append(Placed("; ".join(names), at.ops, not_kept, at.reason))
    return made


def _types(ops: Sequence[PlacedOp]) -> str:
    """Return the types of ops by how often they are there: ``MatMul 18, AddV2 1, 4 of plumbing``."""
    counted = Counter(_OF_ONEDNN.sub("", op.type) for op in ops if op.type not in PLUMBING)
    types = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{one_line(kind, _NAME_LIMIT)} {count}" for kind, count in types[:_MOST_TYPES]]
    if rest := sum(count for _, count in types[_MOST_TYPES:]):
        named.append(f"{rest} of other types")
    if plumbing := len(ops) - counted.total():
        named.append(f"{plumbing} of plumbing")
    return ", ".join(named)
