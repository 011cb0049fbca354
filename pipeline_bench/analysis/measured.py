"""The steps of a trial that figures are computed from, what was sampled during them, and what other work took of them.

A step is left out if other programs took more of the CPU during it than a level allows. All trials of a session have
the same level: the one at which the figures should have the narrowest intervals, by the number of rounds that are left
and by what was taken in them. The figures' values have no part in this choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.analysis.stats import Floats
from pipeline_bench.model.trial import Track, TrialRecord
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text.units import NS_PER_MS

Times = npt.NDArray[np.int64]
DeviceKind = Literal["cpu", "gpu", "emulated"]
Figure = Literal["wait", "utilization", "host", "ratio"]

_FEWEST_ROUNDS = 2
"""The rounds that an interval needs: of a variant with its ceiling, and of a variant with the baseline."""

# By how much other work may have moved a figure: about one standard deviation of the error, as a share of the step, of
# a trial from which others took all of the CPU that they could get all the time; half of it where they took half.
# `python -m benchmarks.accuracy` measures it (docs/method.md, "Beside other work"). An accelerator computes at its own
# pace whatever the host does. Where the CPU is the accelerator, what others take makes its computing longer as well,
# and the ceiling's more than a step that also waits: the wait's share hardly moves, the others do.
_ERROR_ON_ACCELERATOR: dict[Figure, float] = {"wait": 0.02, "utilization": 0.03, "host": 0.03, "ratio": 0.03}
_ERROR_ON_CPU: dict[Figure, float] = {"wait": 0.05, "utilization": 0.20, "host": 0.20, "ratio": 0.05}


def systematic_error(figure: Figure, device: DeviceKind, taken: float) -> float:
    """Return one standard deviation of the error of a figure beside work that took that much of the CPU, 0 to 1."""
    return (_ERROR_ON_CPU if device == "cpu" else _ERROR_ON_ACCELERATOR)[figure] * taken


# --- what was sampled ------------------------------------------------------------------------------------------------


def columns(record: TrialRecord, metric: str) -> tuple[Times, npt.NDArray[Any]] | None:
    """Return when and what was sampled of a metric, by the instrument with the most samples; None where nothing was."""
    track = max((track for track in record.samples if track.metric == metric), key=_count, default=None)
    if track is None or track.at_ns is None or track.values is None or not _count(track):
        return None
    at_ns = track.at_ns.unpack()
    order = np.argsort(at_ns, kind="stable")
    return at_ns[order], track.values.unpack()[order]


def _count(track: Track) -> int:
    if track.at_ns is None or track.values is None or track.at_ns.count != track.values.count:
        return 0
    return track.values.count


def taken_by_others(record: TrialRecord) -> float:
    """Return what other processes and the hypervisor took of the CPU while a trial ran, 0 to 1, on average."""
    taken = [_known(record, metric) for metric in ("other_cpu_percent", "steal_percent")]
    return min(1.0, sum(float(track[1].mean()) for track in taken if track is not None) / 100)


def cpu_shares(record: TrialRecord) -> tuple[float, float] | None:
    """Return how much of the machine's CPU was busy during the measured steps, and how much by the trial, 0 to 1.

    What the hypervisor took counts as busy, and is nobody's here. None where that was not sampled.
    """
    machine, others = _known(record, "machine_cpu_percent"), _known(record, "other_cpu_percent")
    ends_ns = record.after_warmup("end_ns") if record.measured else None
    if machine is None or others is None or ends_ns is None:
        return None
    at_ns, percent = machine
    during = (at_ns >= ends_ns[0]) & (at_ns <= ends_ns[-1])
    if not during.any():
        return None
    not_own = _sampled_at(others, at_ns[during]) + _sampled_at(_known(record, "steal_percent"), at_ns[during])
    own = percent[during] - not_own
    return float(percent[during].mean()) / 100, max(0.0, float(own.mean())) / 100


_Windows = tuple[Times, Floats]
"""The end of each window of the samplers, and a share of the CPU in it, 0 to 1."""


def _between(windows: _Windows | None, begins_ns: Times, ends_ns: Times) -> Floats:
    """Return the mean share between each begin and its end; 0 if it was not sampled."""
    if windows is None:
        return np.zeros(begins_ns.size)
    until_ns, share = windows
    first_ns, last_ns = min(until_ns[0], np.min(begins_ns)), max(until_ns[-1], np.max(ends_ns))
    edges_ns = np.concatenate([[first_ns], until_ns, [last_ns]])
    sums = np.concatenate([[0.0], np.cumsum(np.diff(edges_ns) * np.append(share, share[-1]))])
    taken = np.diff(np.interp([begins_ns, ends_ns], edges_ns, sums), axis=0)[0]
    return np.asarray(taken / np.maximum(ends_ns - begins_ns, 1))


def _taken_windows(record: TrialRecord, cores: int, *, whole_stretches: bool = False) -> _Windows | None:
    """Return what was taken from a trial in each window of the samplers; None if not sampled.

    That is by other processes, by the hypervisor, and by the quota of the control group, which held the trial up.

    Args:
        record: of the trial.
        cores: the cores that this process may use.
        whole_stretches: whether other processes count throughout a stretch in which they ran, if the machine was full
            in a part of it; else in that part alone. Whether it is full goes by what the trial itself does there.
    """
    machine = _known(record, "machine_cpu_percent")
    if machine is None:
        return None
    until_ns, busy = machine
    others = _sampled_at(_known(record, "other_cpu_percent"), until_ns)
    stolen = _sampled_at(_known(record, "steal_percent"), until_ns)
    held_up = _growth(_known(record, "cpu_throttled_seconds"), until_ns) / throttled_cpus(record, cores)
    # Only what runs is stolen from: 10 % of the time of a core that is busy half of it is a fifth of its work.
    of_work = stolen / np.maximum(np.maximum(busy, stolen), 1.0)
    full = busy >= thresholds.SATURATED_PERCENT
    if whole_stretches:
        ran = others > 100 * thresholds.TAKEN_LEVELS[0]
        stretch = np.cumsum(np.diff(ran, prepend=False))
        full = ran & np.isin(stretch, stretch[full])
    return until_ns, np.clip(np.where(full, others, 0.0) / 100 + of_work + held_up, 0.0, 1.0)


def taken_from(record: TrialRecord, cores: int) -> float:
    """Return what others took of the CPU that a trial could not do without, 0 to 1, on average over its windows."""
    windows = _taken_windows(record, cores)
    return 0.0 if windows is None else float(windows[1].mean())


def throttled_cpus(record: TrialRecord, cores: int) -> int:
    """Return by how many CPUs a trial's throttled seconds a second are divided for the share of its time, at least 1.

    The threads of a control group have a queue on each CPU, and its quota throttles each queue by itself. The kernel
    adds up the time of all queues (`throttled_usec` and `throttled_time`: `unthrottle_cfs_rq`, kernel/sched/fair.c). So
    these are the CPUs that the trial may run on, however few of them its quota comes to; a record of an older session
    lacks them, and the usable cores stand for them. Since Linux 6.6 a queue counts only while it has a thread that
    could run. So the share of a trial with fewer threads than CPUs is a lower limit.
    """
    return max(1, record.allowed_cpus or cores)


def _known(record: TrialRecord, metric: str) -> tuple[Times, Floats] | None:
    """Return the columns of a metric, with 0 where a sample is no number."""
    sampled = columns(record, metric)
    return sampled and (sampled[0], np.nan_to_num(sampled[1].astype(np.float64)))


def _sampled_at(track: tuple[Times, Floats] | None, times_ns: Times) -> Floats:
    """Return the metric's value at these times: of its sample at or right after each, or of its last one."""
    if track is None:
        return np.zeros(times_ns.size)
    at_ns, values = track
    return values[np.minimum(np.searchsorted(at_ns, times_ns), at_ns.size - 1)]


def _growth(track: tuple[Times, Floats] | None, until_ns: Times) -> Floats:
    """Return how much a cumulative metric in seconds grew in each window, as a share of the window."""
    if track is None or until_ns.size < 2:  # noqa: PLR2004 - the first window has no beginning
        return np.zeros(until_ns.size)
    at_ns, values = track
    then = np.interp(until_ns - until_ns[0], at_ns - until_ns[0], values)
    lasted_s = np.maximum(np.diff(until_ns) / 1e9, 1e-9)
    return np.concatenate([[0.0], np.clip(np.diff(then) / lasted_s, 0.0, None)])


# --- the steps that count --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllSteps:
    """All steps of one good trial after its warm-up.

    Attributes:
        record: the trial, of which `TrialRecord.measured` is true.
        cores: the cores that this process may use.
    """

    record: TrialRecord
    cores: int = 1

    @cached_property
    def start_ns(self) -> Times:
        return np.asarray(self.record.after_warmup("start_ns"))

    @cached_property
    def end_ns(self) -> Times:
        return np.asarray(self.record.after_warmup("end_ns"))

    @cached_property
    def steps(self) -> Times | None:
        """How many steps each row is the mean of; None: each is one."""
        return self.record.after_warmup("steps")

    @cached_property
    def taken(self) -> Floats:
        """What others took while each step was under way, 0 to 1."""
        return self._during_steps(_taken_windows(self.record, self.cores))

    @cached_property
    def beside(self) -> Floats:
        """As `taken`, but in all of a stretch in which others ran: by it steps count, whatever they themselves do."""
        return self._during_steps(_taken_windows(self.record, self.cores, whole_stretches=True))

    def _during_steps(self, windows: _Windows | None) -> Floats:
        """Return a share in the window that holds each step's middle; a time after the last window belongs to that one.

        So a long step is no more likely to be left out than a short one. Of a row of several steps it is the mean from
        its begin to its end.
        """
        if self.steps is None:
            return _sampled_at(windows, (self.start_ns + self.end_ns) // 2)
        ends_ns = self.start_ns + (self.end_ns - self.start_ns) * self.steps
        return _between(windows, self.start_ns, ends_ns)


@dataclass(frozen=True)
class Measured:
    """The steps of one trial that count: after warm-up, without those that others took too much of the CPU from.

    Attributes:
        every: all of its steps, read once for all levels.
        level: how much of the CPU others may have taken while a step that counts was under way.
        during: from when to when a step that counts was under way, in ns of its clock; None: at any time.
    """

    every: AllSteps
    level: float = thresholds.TAKEN_LEVELS[-1]
    during: tuple[int, int] | None = None

    @property
    def record(self) -> TrialRecord:
        """The trial."""
        return self.every.record

    @cached_property
    def counts(self) -> npt.NDArray[np.bool_]:
        """Whether each of its steps, or each row of several, counts."""
        counts = self.every.beside <= self.level
        if self.during is not None:
            counts &= (self.every.start_ns >= self.during[0]) & (self.every.end_ns <= self.during[1])
        return np.asarray(counts)

    @property
    def enough(self) -> bool:
        """Whether enough of its steps count for a figure."""
        return int(self.counts.sum()) >= min(thresholds.FEWEST_STEPS, self.counts.size)

    @cached_property
    def start_ns(self) -> Times:
        return self.every.start_ns[self.counts]

    @cached_property
    def end_ns(self) -> Times:
        return self.every.end_ns[self.counts]

    @cached_property
    def step_ms(self) -> Floats:
        # By a clock that was set during a call of several steps, some of these take no time (`loops.step_ends`).
        return np.asarray(np.maximum(self.end_ns - self.start_ns, 1) / NS_PER_MS)

    @cached_property
    def weights(self) -> Times | None:
        """How many steps each of `step_ms` is the mean of; None: each is one."""
        return None if self.every.steps is None else self.every.steps[self.counts]

    @cached_property
    def steps(self) -> int:
        """How many steps count."""
        return self.step_ms.size if self.weights is None else int(self.weights.sum())

    @cached_property
    def mean_ms(self) -> float:
        return float(np.average(self.step_ms, weights=self.weights))

    def percentiles_ms(self, *percents: float) -> list[float]:
        """Return the percentiles of the steps' times; of rows of several steps, of their means."""
        return stats.percentiles(self.step_ms, self.weights, percents)

    @cached_property
    def taken(self) -> float:
        """What others took while the steps that count were under way, 0 to 1, on average over their time."""
        took_ms = np.maximum(self.step_ms, 1e-9) * (1 if self.weights is None else self.weights)
        return float(np.average(self.every.taken[self.counts], weights=took_ms))

    @cached_property
    def mean_wait_ms(self) -> float | None:
        wait_ns = self._within_steps("wait_ns")
        return None if wait_ns is None else float(np.average(wait_ns, weights=self.weights)) / NS_PER_MS

    def _within_steps(self, column: Literal["wait_ns", "busy_ns"]) -> Times | None:
        """Return parts of the steps that count, none below 0 or longer than its step, as where the clock was set."""
        part_ns = self.record.after_warmup(column)
        return None if part_ns is None else np.clip(part_ns[self.counts], 0, self.end_ns - self.start_ns)

    @property
    def emulated(self) -> str | None:
        """The name of the device that its model emulated; None where it computed."""
        device = self.record.device
        return device.name if device is not None and device.kind == "emulated" else None

    @property
    def device_kind(self) -> DeviceKind:
        """What its model computed on: an emulated device that trains lets the host compute what it learns."""
        device, trains = self.record.device, self.record.accuracy.before is not None
        return device.kind if device is not None and not (device.kind == "emulated" and trains) else "cpu"

    @cached_property
    def busy_share(self) -> float | None:
        """How much of the measured time an emulated device was busy, 0 to 1; None of a model that computed."""
        busy_ns = self._within_steps("busy_ns")
        if busy_ns is None:
            return None
        # The steps follow each other without a gap, so that those that count have the time that they took.
        return float(busy_ns.sum()) / max(1.0, float((self.end_ns - self.start_ns).sum()))

    @cached_property
    def total_s(self) -> float:
        """From the first step's start to the last one's end, warm-up included."""
        assert self.record.steps is not None
        steps = self.record.steps
        return float(steps.end_ns.unpack()[-1] - steps.start_ns.unpack()[0]) / 1e9


Rounds = dict[int, Measured]
"""The trials of one variant that have figures, by round."""
ByVariant = dict[str, Rounds]
"""The good trials of a session, by variant and by round."""
Pair = tuple[Measured, Measured]
"""A trial, and that of its ceiling in the same round."""


def of(scenario: Scenario, trials: Sequence[TrialRecord], cores: int) -> ByVariant:
    """Return the measured steps of the good trials, in any order, at the level with the smallest uncertainty."""
    everything: ByVariant = {variant.name: {} for variant in scenario.variants}
    for trial in trials:
        if trial.variant in everything and trial.measured:
            everything[trial.variant][trial.repeat] = Measured(AllSteps(trial, cores))
    if not any(trial.taken > thresholds.TAKEN_LEVELS[0] for own in everything.values() for trial in own.values()):
        return everything
    at_levels = [_at(everything, level) for level in thresholds.TAKEN_LEVELS[:-1]]
    return min([everything, *at_levels], key=lambda found: _uncertainty(scenario, found, everything))


def pairs(found: ByVariant, variant: Variant) -> list[Pair]:
    """Return each trial of a variant with the trial of its ceiling in the same round, where there is one, by round."""
    own = found[variant.name]
    ceilings = found.get(variant.ceiling, {}) if variant.ceiling else {}
    return [(own[repeat], ceilings[repeat]) for repeat in sorted(own) if repeat in ceilings]


def taken_of(some: Sequence[Pair], alone: Sequence[Measured] = ()) -> float:
    """Return what others took of the CPU during the steps that count, 0 to 1, on average.

    Args:
        some: trials with the ceilings beside them.
        alone: the trials that count where none has one.
    """
    taken = [(run.taken + top.taken) / 2 for run, top in some] or [run.taken for run in alone]
    return float(np.mean(taken)) if taken else 0.0


def _at(everything: ByVariant, level: float) -> ByVariant:
    found: ByVariant = {}
    for name, own in everything.items():
        at_level = {repeat: Measured(trial.every, level) for repeat, trial in own.items()}
        found[name] = {repeat: trial for repeat, trial in at_level.items() if trial.enough}
    return found


def _uncertainty(scenario: Scenario, found: ByVariant, everything: ByVariant) -> float:
    """Return the expected squared half-width of the accelerator utilization's interval, summed over the variants.

    It follows from the usual scatter between rounds, their number, and the error that other work may cause. It is
    infinite if a variant would lose its verdict, its interval or its pairs with the baseline at this level.
    """
    total, base = 0.0, scenario.baseline.name
    for variant in scenario.variants:
        # A ceiling, and what has none beside it, is judged by its own trials.
        has_ceiling = bool(pairs(everything, variant))
        some, all_of_it = (
            pairs(each, variant) if has_ceiling else [(run, run) for run in each[variant.name].values()]
            for each in (found, everything)
        )
        if _steps(some) < thresholds.NEEDED_STEPS <= _steps(all_of_it) or len(some) < _FEWEST_ROUNDS <= len(all_of_it):
            return float("inf")
        beside, all_beside = (len(each[variant.name].keys() & each[base].keys()) for each in (found, everything))
        if beside < _FEWEST_ROUNDS <= all_beside:
            return float("inf")
        if some:
            error = systematic_error("utilization", some[0][0].device_kind, taken_of(some))
            total += stats.usual_reach(thresholds.SHARE_SCATTER, len(some)) ** 2 + (stats.NORMAL_REACH * error) ** 2
        elif everything[variant.name]:
            return float("inf")
    return total


def _steps(some: Sequence[Pair]) -> int:
    """Return how many steps a verdict would rest on: those of the trials, or of the ceiling's where these are fewer."""
    return min(sum(run.steps for run, _ in some), sum(top.steps for _, top in some))
