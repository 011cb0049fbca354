"""What a trial has said and what the samplers have seen of it, gathered while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline_bench.analysis import stats
from pipeline_bench.model import Series, events
from pipeline_bench.model.result import BUSY_TIME, CPU_TIME
from pipeline_bench.model.trial import (
    AccuracyPair,
    PhaseMark,
    QueueDepth,
    Track,
    Trial,
    TrialRecord,
    TrialStatus,
    TrialSteps,
)
from pipeline_bench.run.launcher import LauncherName, stderr_tail
from pipeline_bench.run.observer import Progress
from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.nvml_metrics import POWER, POWER_WINDOW_NS, UTILIZATION
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.text import units

_RECENT_STEPS = 200
_TOGETHER = 0.9
"""Of the time in which no thread of a trial ran: else something held Python's lock while this process was stopped."""
_Kind = TypeVar("_Kind", bound=events.Event)


@dataclass
class TrialLog:
    """What a trial has said and what the samplers have seen, so far."""

    trial: Trial
    started_ns: int
    phases: list[PhaseMark] = field(default_factory=list)
    steps: list[events.Steps] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    accuracy: AccuracyPair = field(default_factory=AccuracyPair)
    depths: list[events.QueueDepths] = field(default_factory=list)
    count: int = 0
    """Steps that have ended."""
    silences: list[events.Stopped] = field(default_factory=list)
    _stops: list[tuple[int, int]] = field(default_factory=list)
    """From when to when this process did not look, in ns: it was stopped."""
    _looked_ns: int | None = None
    _latest: dict[type[Any], Any] = field(default_factory=dict)
    _utilization: Reading | None = None
    _cpu_seconds: tuple[Reading, ...] = ()
    """The newest two: a long trial has a hundred thousand readings, and what they show is asked for beside it."""

    def apply(self, event: events.Event) -> None:
        """Take in one event."""
        self._latest[type(event)] = event
        match event:
            case events.Phase():
                self.phases.append(PhaseMark(name=event.name, at_ns=event.at_ns))
            case events.Steps():
                self.steps.append(event)
                self.count += event.end_ns.count
            case events.Evaluated():
                self.accuracy = self.accuracy.model_copy(update={event.when: event.accuracy})
            case events.QueueDepths():
                self.depths.append(event)
            case events.Stopped():
                self.silences.append(event)

    def take(self, readings: Sequence[Reading]) -> None:
        """Take in what a sampler has read."""
        self.readings += readings
        for reading in readings:
            if reading.metric == UTILIZATION:
                self._utilization = reading
            elif reading.metric == "cpu_seconds" and reading.value is not None:
                self._cpu_seconds = (*self._cpu_seconds[-1:], reading)

    def latest(self, kind: type[_Kind]) -> _Kind | None:
        """Return the latest event of a kind; None where none came."""
        return self._latest.get(kind)

    @property
    def emulated(self) -> bool:
        """Whether the trial emulates its device."""
        device = self.latest(events.Device)
        return device is not None and device.kind == "emulated"

    @property
    def over(self) -> bool:
        """Whether the trial has said its last word."""
        return not self._latest.keys().isdisjoint((events.Done, events.Failed, events.Stalled))

    def look(self, now_ns: int) -> None:
        """Note that this process looks after the trial, as it does several times a second."""
        if self._looked_ns is not None and now_ns - self._looked_ns > events.STOPPED_NS:
            self._stops.append((self._looked_ns, now_ns))
        self._looked_ns = now_ns

    @property
    def frozen_s(self) -> float:
        """For how long the trial's process was stopped together with this one."""
        both_ns = (
            (min(end_ns, silence.to_ns) - max(start_ns, silence.from_ns), silence.to_ns - silence.from_ns)
            for start_ns, end_ns in self._stops
            for silence in self.silences
        )
        return sum(together_ns for together_ns, whole_ns in both_ns if together_ns > _TOGETHER * whole_ns) / 1e9

    def progress(self, now_ns: int, cores: int) -> Progress:
        """Return how far the trial is; means are over about its last 200 steps."""
        phase = self.phases[-1].name if self.phases else "start"
        recent: list[events.Steps] = []
        while len(recent) < len(self.steps) and sum(s.end_ns.count for s in recent) < _RECENT_STEPS:
            recent.insert(0, self.steps[-1 - len(recent)])
        took_ns = [s.end_ns.unpack() - s.start_ns.unpack() for s in recent]
        step_ns = float(sum(took.sum() for took in took_ns))
        recent_count = sum(s.end_ns.count for s in recent)
        waits = [
            np.clip(s.wait_ns.unpack(), 0, took).sum()  # as in the results: a clock may have been set
            for s, took in zip(recent, took_ns, strict=True)
            if s.wait_ns is not None
        ]
        utilization, source = (_busy_percent(recent), BUSY_TIME) if self.emulated else self._utilization_now(cores)
        return Progress(
            phase=phase,
            steps=self.count,
            elapsed_s=(now_ns - self.started_ns) / 1e9,
            training_s=(now_ns - int(self.steps[0].end_ns.unpack()[0])) / 1e9 if self.steps else 0.0,
            step_ms=step_ns / recent_count / 1e6 if recent_count else None,
            input_wait_share=float(np.sum(waits)) / step_ns if waits and step_ns else None,
            device_utilization_percent=utilization,
            device_utilization_source=source,
        )

    def _utilization_now(self, cores: int) -> tuple[float | None, str | None]:
        """Return the newest device utilization in percent, and its source: the GPU's own, or the CPU time."""
        device, newest = self.latest(events.Device), self._utilization
        if device is not None and device.kind == "gpu":
            return (newest.value, newest.source) if newest else (None, None)
        used = used_percent(self._cpu_seconds, cores)
        return used, None if used is None else CPU_TIME

    def record(
        self, status: TrialStatus, reason: str | None, launcher: LauncherName, stderr: Path, ended_ns: int
    ) -> TrialRecord:
        """Return what the trial left, for the session.

        Args:
            status: how it ended.
            reason: why so, where it did not end well.
            launcher: what started its process.
            stderr: the file that its stderr went to.
            ended_ns: when it had ended.
        """
        steps = self.joined_steps()
        durations = steps.end_ns.unpack() - steps.start_ns.unpack() if steps else np.zeros(0)
        failed, stalled = self.latest(events.Failed), self.latest(events.Stalled)
        inspected, fingerprinted = self.latest(events.Inspected), self.latest(events.Fingerprinted)
        return TrialRecord(
            index=self.trial.index,
            variant=self.trial.variant.name,
            repeat=self.trial.repeat,
            status=status,
            reason=reason,
            launcher=launcher,
            started_ns=self.started_ns,
            ended_ns=ended_ns,
            first_step_s=(int(steps.end_ns.unpack()[0]) - self.started_ns) / 1e9 if steps else None,
            warmup_steps=stats.warmup_steps(durations),
            steps=steps,
            accuracy=self.accuracy,
            device=self.latest(events.Device),
            allowed_cpus=allowed_cpus(),  # a trial inherits them
            phases=tuple(self.phases),
            samples=self.tracks(),
            queue_depths=self.queue_depths(),
            work=self.latest(events.Work),
            storage=self.latest(events.Storage),
            placement=self.latest(events.Placement),
            inspection=inspected.inspection if inspected else None,
            fingerprint=fingerprinted.fingerprint if fingerprinted else None,
            copied=self.latest(events.Copied),
            known_shapes=self.latest(events.KnownShapes),
            in_graph=self.latest(events.InGraph),
            kept_memory=self.latest(events.KeptMemory),
            traceback=failed.traceback if failed else "",
            queues=stalled.queues if stalled else (),
            stacks=stalled.stacks if stalled else (),
            stderr_tail=stderr_tail(stderr) if status in {"failed", "stalled"} else "",
            stderr_file=f"{stderr.parent.name}/{stderr.name}",
        )

    def joined_steps(self) -> TrialSteps | None:
        """Return every step in one table."""
        if not self.steps:
            return None

        def join(columns: Sequence[Series]) -> Series:
            return Series.pack(np.concatenate([column.unpack() for column in columns]))

        waits = [steps.wait_ns for steps in self.steps if steps.wait_ns is not None]
        busy = [steps.busy_ns for steps in self.steps if steps.busy_ns is not None]
        return TrialSteps(
            start_ns=join([steps.start_ns for steps in self.steps]),
            end_ns=join([steps.end_ns for steps in self.steps]),
            wait_ns=join(waits) if len(waits) == len(self.steps) else None,
            busy_ns=join(busy) if len(busy) == len(self.steps) else None,
            loss=join([steps.loss for steps in self.steps]),
        )

    def queue_depths(self) -> tuple[QueueDepth, ...]:
        """Return how full each queue was, at the times it answered."""
        found: dict[str, list[tuple[int, events.QueueState]]] = {}
        for depths in self.depths:
            for queue in depths.queues:
                if queue.size is not None:
                    found.setdefault(queue.name, []).append((depths.at_ns, queue))
        return tuple(
            QueueDepth(
                name=name,
                capacity=states[-1][1].capacity,
                at_ns=Series.pack([at_ns for at_ns, _ in states]),
                size=Series.pack([int(state.size or 0) for _, state in states]),
            )
            for name, states in found.items()
        )

    def tracks(self) -> tuple[Track, ...]:
        """Return the readings, one track a metric and source.

        Of a trial that emulates its device without those of the GPU that may be here: it left that alone. Of one whose
        steps took less than what a power is a mean over, that is the reason in place of its values.
        """
        found = tracks([r for r in self.readings if not (self.emulated and r.metric.startswith("device_"))])
        if not self.steps or self._stepped_ns() >= POWER_WINDOW_NS:
            return found
        return tuple(_short(track) if track.metric == POWER and track.values is not None else track for track in found)

    def _stepped_ns(self) -> int:
        """Return the time from the first step's begin to the last one's end."""
        return int(self.steps[-1].end_ns.unpack()[-1] - self.steps[0].start_ns.unpack()[0])


def tracks(readings: Sequence[Reading]) -> tuple[Track, ...]:
    """Return one track a metric and source."""
    grouped: dict[tuple[str, str], list[Reading]] = {}
    for reading in readings:
        grouped.setdefault((reading.metric, reading.source), []).append(reading)
    return tuple(_track(metric, source, own) for (metric, source), own in grouped.items())


def _track(metric: str, source: str, readings: Sequence[Reading]) -> Track:
    seen = [(reading.at_ns, reading.value) for reading in readings if reading.value is not None]
    from_ns = [each.from_ns for each in readings if each.value is not None and each.from_ns is not None]
    reason = next((reading.reason for reading in reversed(readings) if reading.reason), None)
    if not seen:
        return Track(metric=metric, source=source, reason=reason or "no sample was taken")
    return Track(
        metric=metric,
        source=source,
        at_ns=Series.pack(np.array([at_ns for at_ns, _ in seen], dtype=np.int64)),
        values=Series.pack(np.array([value for _, value in seen], dtype=np.float64)),
        from_ns=Series.pack(from_ns) if len(from_ns) == len(seen) else None,
        reason=reason,
    )


def _short(power: Track) -> Track:
    reason = (
        f"NVML's power is a mean over {units.seconds(POWER_WINDOW_NS / 1e9)}, and the steps took less; run more steps"
    )
    return Track(metric=power.metric, source=power.source, reason=power.reason or reason)


def _busy_percent(recent: Sequence[events.Steps]) -> float | None:
    """Return how much of these steps' time the emulated device was busy; None before there are any."""
    busy_ns = sum(int(steps.busy_ns.unpack().sum()) for steps in recent if steps.busy_ns is not None)
    if not busy_ns:
        return None
    span_ns = int(recent[-1].end_ns.unpack()[-1]) - int(recent[0].start_ns.unpack()[0])
    return min(100.0, 100 * busy_ns / max(span_ns, 1))


def used_percent(cpu_seconds: Sequence[Reading], cores: int) -> float | None:
    """Return CPU time over wall time and cores from the first reading to the last, in percent; None of fewer than two.

    It is no more than all cores, whatever the two clocks say.
    """
    known = [(each.at_ns, each.value) for each in cpu_seconds if each.value is not None]
    if not known or known[-1][0] == known[0][0]:
        return None
    (first_ns, first_s), (last_ns, last_s) = known[0], known[-1]
    return min(100.0, 100 * (last_s - first_s) * 1e9 / ((last_ns - first_ns) * cores))
