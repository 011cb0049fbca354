"""A trial: one variant, once, in a process of its own; the order in which they run, and what each of them left."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pipeline_bench.model import Count, Record, Series
from pipeline_bench.model.events import (
    TRACE,
    Copied,
    Device,
    InGraph,
    KeptMemory,
    KnownShapes,
    PhaseName,
    Placement,
    QueueState,
    Stack,
    Storage,
    Work,
)
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import Line, Text

TrialStatus = Literal["ok", "failed", "stalled", "interrupted"]


class Trial(Record):
    """What a child is asked to do. `repeat` counts from 0 and is also the round of the interleaving."""

    index: int
    repeat: int
    variant: Variant

    @property
    def label(self) -> str:
        """The trial as a reader names it: ``feed_dict, repeat 2``."""
        return f"{self.variant.name}, repeat {self.repeat + 1}"


class FurtherTrial(Record):
    """A trial that a process is asked for which has run one before, and has kept what it built."""

    trial: Trial
    stderr: str
    """The file, by its whole path, that takes what the process writes from now on."""


def plan(scenario: Scenario) -> tuple[Trial, ...]:
    """Return every trial in interleaved order, each second round backwards (A B C C B A A B C), see `round_of`."""
    trials: list[Trial] = []
    for repeat in range(planned_rounds(scenario)):
        trials += round_of(scenario, repeat, len(trials))
    return tuple(trials)


def planned_rounds(scenario: Scenario) -> int:
    """Return how many rounds the scenario asks for: as many as the variant with the most repeats has."""
    return max(variant.run.repeats for variant in scenario.variants)


def round_of(scenario: Scenario, repeat: int, first_index: int) -> tuple[Trial, ...]:
    """Return the trials of one round: in the scenario's order, and backwards in the second, the fourth … round.

    A machine that becomes slower or faster then falls on all variants alike: over two rounds, each has the same mean
    place.

    Args:
        scenario: as resolved.
        repeat: the round, from 0. Beyond those that the scenario asks for, every variant takes part.
        first_index: how many trials came before.
    """
    added = repeat >= planned_rounds(scenario)
    due = [variant for variant in scenario.variants if added or repeat < variant.run.repeats]
    if repeat % 2:
        due.reverse()
    return tuple(Trial(index=first_index + i, repeat=repeat, variant=variant) for i, variant in enumerate(due))


_MOST_TRACE_S = 30.0
GPM_LAG_NS = 200_000_000
"""How late a figure of GPM's may be: on an H100 it spoke of a time 83 to 177 ms before its stamps (14 loads that began
at a known time, reports/h100-selftest)."""


class Track(Record):
    """One metric over a trial, as a sampler saw it. `source` names the instrument; an absent metric has a `reason`."""

    metric: Line
    source: Line
    at_ns: Series | None = None
    values: Series | None = None
    from_ns: Series | None = None
    """When the time began that each value speaks of, up to `at_ns`; None where the instrument does not say."""
    reason: Line | None = None

    def late_within(self, start_ns: int, end_ns: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the values of GPM's that speak of a span alone, as late as they may be, and their windows in ns."""
        if self.from_ns is None or self.at_ns is None or self.values is None:
            return np.zeros(0), np.zeros(0)
        from_ns, to_ns = self.from_ns.unpack(), self.at_ns.unpack()
        inside = (from_ns - GPM_LAG_NS >= start_ns) & (to_ns <= end_ns)
        return self.values.unpack()[inside], (to_ns - from_ns)[inside].astype(np.float64)


class PhaseMark(Record):
    """When a part of a trial began (``time.monotonic_ns``)."""

    name: Line
    at_ns: int


class TrialSteps(Record):
    """Every step of a trial, warm-up included; see `events.Steps` for the columns."""

    start_ns: Series
    end_ns: Series
    wait_ns: Series | None
    busy_ns: Series | None = None
    loss: Series
    steps: Series | None = None
    """Of a watched job how many steps each row is the mean of; None: one."""

    @property
    def count(self) -> int:
        """How many steps ended, or rows of several."""
        return self.start_ns.count


class AccuracyPair(Record):
    """Share of right answers, 0 to 1, before the first step and after the last."""

    before: float | None = None
    after: float | None = None


class QueueDepth(Record):
    """How many elements a queue of the input held over a trial, of `capacity`."""

    name: Line
    capacity: Count
    at_ns: Series
    size: Series


class TrialRecord(Record):
    """What one trial left: its end, its steps, its samples, and what it wrote to stderr."""

    index: Count
    variant: Line
    repeat: Count
    rank: Count | None = None
    """Of a merged session, on which host it ran."""
    status: TrialStatus
    reason: Line | None = None
    launcher: Literal["forkserver", "fresh", "reused"] = "fresh"
    started_ns: int
    ended_ns: int
    first_step_s: float | None = None
    """Seconds from the start of the process to the end of its first step."""
    warmup_steps: Count = 0
    steps: TrialSteps | None = None
    accuracy: AccuracyPair = AccuracyPair()
    device: Device | None = None
    allowed_cpus: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """The CPUs that it may run on, of which a CPU quota may leave it a part of the time; None: in an older session."""
    phases: tuple[PhaseMark, ...] = ()
    samples: tuple[Track, ...] = ()
    queue_depths: tuple[QueueDepth, ...] = ()
    work: Work | None = None
    storage: Storage | None = None
    """What was in the page cache, of a source that reads files."""
    placement: Placement | None = None
    """Which op ran on which device, in a trial that was asked for it."""
    inspection: Inspection | None = None
    """Of a user's own pipeline, in the trial that inspected it."""
    fingerprint: Fingerprint | None = None
    """Which samples a user's own pipeline gave, in the trial that was asked for it."""
    copied: Copied | None = None
    """What the copy of a batch to the GPU costs, in the trial of a user's model on one batch."""
    known_shapes: KnownShapes | None = None
    """In the same trial, where the dataset does not promise all shapes of its batches and that makes steps longer."""
    in_graph: InGraph | None = None
    """In the same trial, where the model runs as eager code and that makes steps longer."""
    kept_memory: KeptMemory | None = None
    """Of a user's pipeline as written, where its steps have many page faults."""
    queues: tuple[QueueState, ...] = ()
    stacks: tuple[Stack, ...] = ()
    traceback: Text = ""
    """Of an exception in the user's own code, from their first frame down."""
    stderr_tail: Text = ""
    stderr_file: Text | None = None

    @property
    def label(self) -> str:
        """The trial as a reader names it: ``feed_dict, repeat 2``."""
        return f"{self.variant}, repeat {self.repeat + 1}"

    @property
    def measured(self) -> bool:
        """Whether it ended well and has steps after its warm-up, so that figures are taken of it."""
        return self.status == "ok" and self.steps is not None and self.steps.count > self.warmup_steps

    @property
    def broke(self) -> bool:
        """Whether it ended badly by itself, and not because the user interrupted it."""
        return self.status in ("failed", "stalled")

    @property
    def took_s(self) -> float:
        """The seconds from its start to its end."""
        return (self.ended_ns - self.started_ns) / 1e9

    @property
    def spans_ns(self) -> list[tuple[str, int, int]]:
        """Each phase with its start and its end, where the next one begins; none of a trial that reported none."""
        marks = sorted(self.phases, key=lambda mark: mark.at_ns)
        ends_ns = [*(mark.at_ns for mark in marks), self.ended_ns][1:]
        return [(mark.name, mark.at_ns, max(mark.at_ns, end)) for mark, end in zip(marks, ends_ns, strict=True)]

    def phase_s(self, name: PhaseName) -> float:
        """Return how many seconds it was in a phase."""
        return sum(end_ns - start_ns for phase, start_ns, end_ns in self.spans_ns if phase == name) / 1e9

    @property
    def on_gpu(self) -> bool:
        """Whether its model was on a GPU, as far as the trial came to say so."""
        return self.device is not None and self.device.kind == "gpu"

    def start_s(self, with_build: bool) -> float:
        """Return the seconds of its start: process, imports, the model's trace and, if asked for, the phase build."""
        build_ns = next((mark.at_ns for mark in self.phases if mark.name == "build"), self.started_ns)
        return (build_ns - self.started_ns) / 1e9 + self._trace_s + (self.phase_s("build") if with_build else 0.0)

    @property
    def _trace_s(self) -> float:
        """The seconds by which its first step exceeds two others, which it may have run, and `_MOST_TRACE_S` at most.

        0 where no other step ended.
        """
        trace_s = self.phase_s(TRACE)
        if not trace_s:  # its steps need not be unpacked for that
            return 0.0
        steps_ns = self.step_ns
        own_s = 2 * float(steps_ns.mean()) / 1e9 if steps_ns.size else trace_s
        return min(_MOST_TRACE_S, max(0.0, trace_s - own_s))

    @property
    def step_ns(self) -> npt.NDArray[Any]:
        """The durations of its steps, warm-up left out; empty where it has none."""
        start_ns, end_ns = self.after_warmup("start_ns"), self.after_warmup("end_ns")
        return np.empty(0) if start_ns is None or end_ns is None else end_ns - start_ns

    def after_warmup(
        self, column: Literal["start_ns", "end_ns", "wait_ns", "busy_ns", "steps"]
    ) -> npt.NDArray[Any] | None:
        """Return a column of its steps, warm-up left out; None where the trial has no step or not that column."""
        series: Series | None = getattr(self.steps, column, None)
        return None if series is None else series.unpack()[self.warmup_steps :]
