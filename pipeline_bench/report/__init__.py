"""Reports of a session: the columns and placements that every format lays out; a format is a module beside this one.

A new figure of a result is one entry of `COLUMNS`: the tables of the terminal, the page, the notebook and Markdown have
it then, and so has the CSV.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from pipeline_bench.analysis import speedups
from pipeline_bench.model.events import PlacedOp, Placement
from pipeline_bench.model.result import Estimate, Interval, Result, VerdictKind
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, grouped, one_line, units

INPUT_WAIT = "red"
COMPUTE = "green"
HOST_SLOWDOWN = "yellow"
COPY = "magenta"
"""The colours of the parts of a step, in every view."""

VERDICT_STYLES: dict[VerdictKind, str] = {
    "input-bound": INPUT_WAIT,
    "host-bound": HOST_SLOWDOWN,
    "compute-bound": COMPUTE,
    "mixed": "magenta",
    "ceiling": "bright_black",
    "inconclusive": "cyan",
    "unequal-work": "bold red",
    "not-measured": "bright_black",
}
"""The colours of the verdicts."""


@dataclass(frozen=True)
class Unit:
    """How a figure is written, and the margin below it."""

    show: Callable[[float | None], str]
    margin: Callable[[float | None, Interval | None], str] | None = None
    """None of a figure without an interval."""

    def text(self, figure: Figure) -> str:
        """Return a figure with its unit; a dash where there is none."""
        return "1×" if figure.is_baseline else self.show(figure.value)


MS = Unit(units.plain_milliseconds, units.margin)
RATE = Unit(units.rate, units.rate_margin)
SHARE = Unit(units.share, units.share_margin)
FRACTION = Unit(units.fraction, units.margin)
PERCENT = Unit(units.percent, units.percent_margin)
RATIO = Unit(units.ratio, units.ratio_margin)


@dataclass(frozen=True)
class Figure:
    """A figure of a result with its interval, the reason why it is missing, and a remark."""

    value: float | None = None
    ci95: Interval | None = None
    reason: str | None = None
    """None: that of the whole result; empty: it is given elsewhere."""
    remark: str = ""
    is_baseline: bool = False
    """Whether it is what the other variants' are held against, and therefore not measured."""


@dataclass(frozen=True)
class Column:
    """A column of the results' table; one without a `head` is in the CSV alone, one without a `key` not in the CSV."""

    key: str
    read: Callable[[Result], Any]
    """Returns a `Figure` where there is a unit, else a text or a number."""
    head: str = ""
    unit: Unit | None = None
    two_lines: str = ""
    """The head in a terminal; empty where a terminal has no such column."""
    cells: int = 0
    """The width in a terminal."""
    is_learning: bool = False
    """Whether it is of what the model learned, not of time."""


def estimate(name: str) -> Callable[[Result], Figure]:
    """Return the reader of an estimate, by the name of its field."""

    def read(result: Result) -> Figure:
        found: Estimate = getattr(result, name)
        return Figure(found.value, found.ci95, found.reason)

    return read


def mean_step(result: Result) -> Figure:
    """Return the mean step, which the shares and the throughput are of; the median of a session without means."""
    step, rate, ci95 = result.step_ms, result.samples_per_second, result.samples_per_second_ci95
    if step.mean is None:
        return median_step(result)
    # The throughput is over the mean step, and so are the ends of its interval.
    ends = (step.mean * rate / ci95[1], step.mean * rate / ci95[0]) if rate and ci95 and ci95[0] > 0 else None
    return Figure(step.mean, ends, step.reason)


def median_step(result: Result) -> Figure:
    """Return the median step."""
    return Figure(result.step_ms.median, result.step_ms.ci95, result.step_ms.reason)


def _rate(result: Result) -> Figure:
    reason = result.missing.get("samples_per_second")
    return Figure(result.samples_per_second, result.samples_per_second_ci95, reason)


def device_utilization(result: Result) -> Figure:
    """Return the utilization of the variant's device, in percent."""
    used = result.device_utilization
    return Figure(used.mean_percent, used.ci95, used.reason)


def _speedup(result: Result) -> Figure:
    speedup = result.speedup
    if speedup.over == result.variant and speedup.value is None:
        return Figure(is_baseline=True)
    return Figure(speedup.value, speedup.ci95, speedup.reason, speedups.no_claim(speedup))


def _loss(result: Result) -> Figure:
    return Figure(result.loss, reason=result.missing.get("loss"))


def _accuracy_before(result: Result) -> Figure:
    is_missing = result.accuracy.before is None and result.accuracy.after is None
    return Figure(result.accuracy.before, reason=result.missing.get("accuracy") if is_missing else "")


def _accuracy_after(result: Result) -> Figure:
    return Figure(result.accuracy.after, reason="")  # it stands beside the one before, which has the reason


COLUMNS = (
    *(Column(name, attrgetter(name)) for name in ("variant", "backend", "status", "reason", "trials", "steps")),
    Column("step_ms_mean", mean_step, "ms/step", MS, "\nms/step", 7),
    Column("step_ms_median", median_step, unit=MS),
    *(Column(f"step_ms_{name}", attrgetter(f"step_ms.{name}")) for name in ("p05", "p95")),
    Column("samples_per_second", _rate, "samples/s", RATE, "samples\n/s", 7),
    Column("input_wait_share", estimate("input_wait_share"), "input wait", SHARE, "input\nwait", 5),
    Column("", estimate("accelerator_utilization"), "compute", SHARE),
    Column("host_slowdown_share", estimate("host_slowdown_share"), "host slowdown", SHARE, "host\nslowdown", 8),
    Column("accelerator_utilization", estimate("accelerator_utilization"), "AU", FRACTION, "\nAU", 5),
    Column("device_utilization_percent", device_utilization, "{device} util.", PERCENT, "{device}\nutil.", 5),
    Column("device_utilization_source", attrgetter("device_utilization.source")),
    Column("speedup", _speedup, "speed-up", RATIO, "speed-\nup", 9),
    *(
        Column(f"speedup_{name}", attrgetter(f"speedup.{name}"))
        for name in ("difference", "certainty", "smallest", "over")
    ),
    Column("loss", _loss, "final loss", Unit(units.loss), "final\nloss", 8, is_learning=True),
    Column("accuracy_before", _accuracy_before, "accuracy before", Unit(units.share), is_learning=True),
    Column("accuracy_after", _accuracy_after, "accuracy after", Unit(units.share), is_learning=True),
    *(Column(f"work_{name}", attrgetter(f"work.{name}")) for name in ("status", "text")),
    Column("verdict", attrgetter("verdict.kind")),
    Column("verdict_text", attrgetter("verdict.text")),
    Column("emulated_device", attrgetter("emulated")),
)


def columns(session: Session, *, learning: bool = False) -> list[tuple[Column, Unit]]:
    """Return the columns of figures, named for the session's device, with their units: of time, or of learning."""
    shown = (each for each in COLUMNS if each.head and each.is_learning is learning)
    return [(_named(each, session.device_label), each.unit) for each in shown if each.unit is not None]


def _named(column: Column, device: str) -> Column:
    return replace(column, head=column.head.format(device=device), two_lines=column.two_lines.format(device=device))


def in_order(session: Session) -> list[Result]:
    """Return the results as every view lists them: in the scenario's order, the ceilings last."""
    return sorted(session.results, key=lambda result: result.variant in session.scenario.ceilings)


def compared(session: Session) -> list[Result]:
    """Return the results of the variants that are compared: of no ceilings, unless there is nothing else."""
    references = speedups.references(session.scenario)
    return [result for result in session.results if result.variant not in references]


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
    "what passes values on. In a loop that runs several steps per call it is one separate step."
)

_NOT_RECORDED = Placement(reason="its first trial ended before it was recorded")
_MOST_TYPES = 8
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
        by_device = grouped((op.device, op) for op in self.ops)
        return [(name, len(ops), _op_types(ops)) for name, ops in sorted(by_device.items())]


def placements(session: Session) -> list[Placed]:
    """Return the placements in the scenario's order: one for all variants that have the same.

    A ceiling's is left out, since its model is placed like its variants'; but where there are only ceilings.
    """
    first = {trial.variant: trial.placement or _NOT_RECORDED for trial in session.trials if trial.repeat == 0}
    asked = [variant for variant in session.scenario.variants if variant.runtime.log_placement]
    variants = [variant for variant in asked if variant.name in first]
    shown = [variant for variant in variants if variant.ceiling is not None] or variants
    groups = grouped((first[variant.name], one_line(variant.name, NAME)) for variant in shown)
    made = []
    for at, names in groups.items():
        left_out = at.op_count - len(at.ops)
        not_kept = f"{units.count(left_out, 'more op')} not kept" if left_out > 0 else ""
        made.append(Placed("; ".join(names), at.ops, not_kept, at.reason))
    return made


def _op_types(ops: Sequence[PlacedOp]) -> str:
    """Return the types of ops by how often they are there: ``MatMul 18, AddV2 1, 4 of plumbing``."""
    counted = Counter(_OF_ONEDNN.sub("", op.type) for op in ops if op.type not in PLUMBING)
    types = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{one_line(kind, NAME)} {count}" for kind, count in types[:_MOST_TYPES]]
    if rest := sum(count for _, count in types[_MOST_TYPES:]):
        named.append(f"{rest} of other types")
    if plumbing := len(ops) - counted.total():
        named.append(f"{plumbing} of plumbing")
    return ", ".join(named)
