"""How the costs of a pipeline's stages add up to its period, what each stage spends its time on, and why.

A stage that hands its elements over through a buffer works in threads of its own: a prefetch, a map or an interleave
with `num_parallel_calls`, and a stateless map that tf.data parallelises by default. Such a stage, what pulls from it,
and what it pulls from run beside each other. Between two of them, stages run one after another, in one thread: a
segment. The period is that of the longest segment, but never less than the CPU time of all stages over the cores.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.model.calls import WORKERS, WORKERS_QUEUE
from pipeline_bench.model.diagnosis import Cause
from pipeline_bench.model.pipeline import Inspection, Stage, StageCost
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS

TINY_NS = 20_000.0
"""So little an element is about what handing it from stage to stage costs: 1 to 10 µs (docs/method.md)."""
_WAITS = 0.5
"""A stage that computes for less than this part of its time mostly waits."""
ALL_BUSY = 0.9
"""From this part of the longest segment on, the CPU time over the cores is what limits: nothing else can use them."""
MANY_ELEMENTS = 16
"""For one of the sink: fewer are handed over in less than a batch costs to make."""
_COMPUTES_LITTLE = 0.2
"""The part of its time up to which a stage that waits computes little."""


@dataclass(frozen=True)
class Segments:
    """The stages of a pipeline in groups that run beside each other, and what each costs for an element of the sink."""

    groups: tuple[tuple[int, ...], ...]
    """Stage ids; of each group from sink to source. Every stage is in exactly one."""
    elapsed_ns: dict[int, float]
    """Only of the stages that were measured."""
    cpu_ns: dict[int, float]
    cores: int

    @cached_property
    def longest(self) -> tuple[int, ...]:
        """The group whose stages take the most time together; empty without any stage."""
        return max(self.groups, key=self._sum_ns, default=())

    @property
    def longest_ns(self) -> float:
        """How long the longest group takes for one element of the sink."""
        return self._sum_ns(self.longest)

    @property
    def cores_ns(self) -> float:
        """The CPU time of all stages for one element of the sink, over the cores."""
        return sum(self.cpu_ns.values()) / self.cores

    @property
    def period_ns(self) -> float:
        """How long the pipeline takes for one element of the sink; 0 where nothing was measured."""
        return max(self.longest_ns, self.cores_ns)

    @property
    def cores_limit(self) -> bool:
        """Whether all cores are busy: nothing gains but less work."""
        return self.cores_ns > 0 and self.cores_ns >= ALL_BUSY * self.longest_ns

    def cost_ns(self, stages: Collection[int]) -> float:
        """Return the most that the stages can cost the pipeline: their time in a row, or their share of the cores."""
        elapsed_ns = sum(self.elapsed_ns.get(stage, 0.0) for stage in stages)
        return max(elapsed_ns, sum(self.cpu_ns.get(stage, 0.0) for stage in stages) / self.cores)

    def explained(self, as_written_ms: float, ceiling_ms: float | None = None) -> float:
        """Return how much of the time for an element the stages account for, with the model's own step; 1 at most.

        Args:
            as_written_ms: of the pipeline as written, or of a step with a model.
            ceiling_ms: of a step of the model without any input: on a CPU it competes with the stages.
        """
        return min(1.0, (self.period_ns / NS_PER_MS + (ceiling_ms or 0.0)) / as_written_ms)

    def _sum_ns(self, group: tuple[int, ...]) -> float:
        return sum(self.elapsed_ns.get(stage, 0.0) for stage in group)


def of(inspection: Inspection, cores: int) -> Segments:
    """Group the pipeline's stages.

    Args:
        inspection: with the stages' costs as far as they were measured.
        cores: that the pipeline may use.
    """
    known = {stage.id: stage for stage in inspection.stages}
    groups: list[list[int]] = []
    seen: set[int] = set()
    waiting: list[tuple[int, int | None]] = [(inspection.sink, None)]
    while waiting:
        number, group = waiting.pop()
        stage = known.get(number)
        if stage is None or number in seen:
            continue
        seen.add(number)
        apart = stage_graph.hands_over(stage, inspection.default_parallelised)
        if apart or group is None:
            group = len(groups)
            groups.append([])
        groups[group].append(number)
        waiting += [(before, None if apart else group) for before in reversed(stage.inputs)]
    costs = [cost for cost in inspection.costs if cost.stage in known]
    return Segments(
        groups=tuple(map(tuple, groups)),
        elapsed_ns={cost.stage: cost.elapsed_ns for cost in costs if cost.elapsed_ns is not None},
        cpu_ns={cost.stage: cost.cpu_ns for cost in costs if cost.cpu_ns is not None},
        cores=max(1, cores),
    )


def without(parts: Segments, stages: Collection[int]) -> Segments:
    """Return the segments as if some stages cost nothing."""
    return replace(
        parts,
        elapsed_ns={number: ns for number, ns in parts.elapsed_ns.items() if number not in stages},
        cpu_ns={number: ns for number, ns in parts.cpu_ns.items() if number not in stages},
    )


def computing(cost: StageCost, cores: int) -> float | None:
    """Return the part of a stage's time in which it computes, or would with a core, 0 to 1; None if not known.

    Of several calls at the same time it is the part of their time, or of that of the cores that they could use, of
    which a CPU quota gives no more, whichever is larger. Where an element takes as little as handing it on, calls lie
    idle for want of elements: there it is the part of the time of one.
    """
    if cost.cpu_ns is None or not cost.elapsed_ns:
        return None
    calls = 1.0 if is_tiny(cost) else max(1.0, cost.calls)
    of_calls = (cost.cpu_ns + (cost.queued_ns or 0.0)) / (calls * cost.elapsed_ns)
    return min(1.0, max(of_calls, cost.cpu_ns / (min(calls, cores) * cost.elapsed_ns)))


def waits(cost: StageCost, cores: int) -> bool:
    """Return whether a stage mostly waits: for little of its time it computes, or would if it had a core."""
    part = computing(cost, cores)
    return part is not None and part < _WAITS


def is_tiny(cost: StageCost) -> bool:
    """Return whether each of a stage's own elements takes about as little as handing one on."""
    return cost.elapsed_ns is not None and cost.elapsed_ns < TINY_NS * (cost.elements or 0.0)


def cause_of(inspection: Inspection, parts: Segments, stage: Stage, cost: StageCost) -> Cause:
    """Return why a stage takes its time."""
    if stage.method == WORKERS_QUEUE:
        return "handing-over"
    parallel = stage_graph.hands_over(stage, inspection.default_parallelised)
    if waits(cost, parts.cores) and not (parallel and stage.method == "prefetch"):
        return "reading" if any(map(stage_graph.reads_by_itself, stage.with_inner())) else "waiting"
    if stage.runs_python:
        return "python"
    if is_tiny(cost) and (cost.elements or 0) >= MANY_ELEMENTS:
        return "handing-over"
    return "filling" if stage.method == "shuffle" else "cpu"


def words_of_cause(inspection: Inspection, parts: Segments, stage: Stage, cause: Cause) -> str:
    """Return why a stage takes its time, as the end of a sentence on it."""
    if stage.method == WORKERS_QUEUE:
        workers = stage_graph.before(inspection, stage)
        in_bytes = workers is not None and workers.arguments.get("use_multiprocessing") is True
        return f"it hands the workers' batches over, one at a time{', from their processes as bytes' * in_bytes}"
    behind = stage_graph.after(inspection, stage)
    runs = behind if behind is not None and behind.method == WORKERS else stage  # the workers run it
    alone = any(runs.arguments.get(name) == 1 for name in ("num_parallel_calls", "num_parallel_reads", "workers"))
    alone = alone or stage_graph.has_one_input(inspection, stage)
    parallel = stage_graph.hands_over(runs, inspection.default_parallelised) and not alone
    many = "in several processes" if runs.arguments.get("use_multiprocessing") is True else "on several threads"
    if stage_graph.parallel_by_default(runs, inspection.default_parallelised):
        many += " by TensorFlow's default"
    one_by_one = many if parallel else "one call at a time"
    cost = inspection.cost(stage.id)
    elements = f"{cost.elements:,.0f}" if cost is not None and cost.elements else "many"
    busy = ", and all cores are busy" * parts.cores_limit
    computes = f"computes{busy or f', {one_by_one}'}"
    return {
        "python": f"it runs Python, {one_by_one}",
        "waiting": f"it {_waits(stage, cost, parts.cores)}, {one_by_one}",
        "reading": f"it reads files, {'several at a time' if parallel else 'one after another'}",
        "filling": "it moves the elements through its buffer",
        "handing-over": f"it passes {elements} small elements on, one by one{busy}",
        "cpu": f"it reads files and {computes}" if stage_graph.reads_files(stage) else f"it {computes}",
    }[cause]


def _waits(stage: Stage, cost: StageCost | None, cores: int) -> str:
    part = None if cost is None else computing(cost, cores)
    if part is not None and part >= _COMPUTES_LITTLE:
        return f"mostly waits: it computes for {units.share(part)} of its time"
    # Of Python it is not known for what.
    files = "computes little and waits, as for files or a network"
    return files if stage.runs_python else "neither computes nor reads files but waits"
