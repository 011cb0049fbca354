"""The measured steps of a trial, as figures are taken of them: warm-up left out, and where it helps what was disturbed.

Steps are left out at a level: those that lie in windows in which others took more than so much of the CPU. It is the
same level for every trial of a session, the one that by its number of rounds and by what others took in them leaves the
figures known best; what the figures come to has no part in the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import belief, effects
from pipeline_bench.analysis.interference import Taken
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Scenario, Variant

Floats = npt.NDArray[np.float64]

LEVELS = (0.05, 0.15, 0.4, 1.0)
"""How much of the CPU others may have taken while a step that counts was under way; the last one lets all count."""
NEEDED_STEPS = 30
"""Of a variant, over all trials, for a verdict: below this a percentile and a mean over steps say little."""
FEWEST_STEPS = 10
"""A trial with fewer steps that count, and fewer than it has, counts in no figure at that level."""

_NS_PER_MS = 1e6
_FEWEST_ROUNDS = 2
"""An interval needs as many, of a variant and its ceiling, and of it and the baseline."""
_REACH = 1.96
"""How many standard deviations a 95 % interval reaches to each side."""


@dataclass(frozen=True)
class AllSteps:
    """The steps of one trial after its warm-up, whatever others took from them.

    Attributes:
        record: the trial.
        cores: the cores that this process may use.
    """

    record: TrialRecord
    cores: int = 1

    @cached_property
    def start_ns(self) -> npt.NDArray[np.int64]:
        assert self.record.steps is not None
        return self.record.steps.start_ns.unpack()[self.record.warmup_steps :]

    @cached_property
    def end_ns(self) -> npt.NDArray[np.int64]:
        assert self.record.steps is not None
        return self.record.steps.end_ns.unpack()[self.record.warmup_steps :]

    @cached_property
    def taken(self) -> Floats:
        """What others took while each step was under way, 0 to 1; 0 where it is not known."""
        taken = Taken.of(self.record, self.cores)
        if taken is None:
            return np.zeros(self.end_ns.size)
        return taken.at((self.start_ns + self.end_ns) // 2)


@dataclass(frozen=True)
class Measured:
    """The measured steps of one trial, warm-up left out, and those that others took too much from.

    Attributes:
        every: all of its steps, read once for all levels.
        level: how much of the CPU others may have taken while a step that counts was under way.
    """

    every: AllSteps
    level: float = LEVELS[-1]

    @property
    def record(self) -> TrialRecord:
        """The trial."""
        return self.every.record

    @cached_property
    def _counts(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.every.taken <= self.level)

    @property
    def enough(self) -> bool:
        """Whether enough of its steps count for a figure."""
        return int(self._counts.sum()) >= min(FEWEST_STEPS, self._counts.size)

    @cached_property
    def start_ns(self) -> npt.NDArray[np.int64]:
        return self.every.start_ns[self._counts]

    @cached_property
    def end_ns(self) -> npt.NDArray[np.int64]:
        return self.every.end_ns[self._counts]

    @cached_property
    def step_ms(self) -> Floats:
        return (self.end_ns - self.start_ns) / _NS_PER_MS

    @cached_property
    def mean_ms(self) -> float:
        return float(self.step_ms.mean())

    @cached_property
    def taken(self) -> float:
        """What others took while the steps that count were under way, 0 to 1, on average over their time."""
        return float(np.average(self.every.taken[self._counts], weights=np.maximum(self.step_ms, 1e-9)))

    @cached_property
    def mean_wait_ms(self) -> float | None:
        assert self.record.steps is not None
        if self.record.steps.wait_ns is None:
            return None
        wait_ns = self.record.steps.wait_ns.unpack()[self.record.warmup_steps :]
        return float(wait_ns[self._counts].mean()) / _NS_PER_MS

    @property
    def emulated(self) -> str | None:
        """The name of the device that its model emulated; None where it computed."""
        device = self.record.device
        return device.name if device is not None and device.kind == "emulated" else None

    @property
    def device_kind(self) -> effects.DeviceKind:
        """What its model computed on: an emulated device that trains lets the host compute what it learns."""
        device, trains = self.record.device, self.record.accuracy.before is not None
        return device.kind if device is not None and not (device.kind == "emulated" and trains) else "cpu"

    @cached_property
    def busy_share(self) -> float | None:
        """How much of the measured time an emulated device was busy, 0 to 1; None of a model that computed."""
        assert self.record.steps is not None
        if self.record.steps.busy_ns is None:
            return None
        busy_ns = self.record.steps.busy_ns.unpack()[self.record.warmup_steps :]
        # The steps follow each other without a gap, so that those that count have the time that they took.
        return min(1.0, float(busy_ns[self._counts].sum()) / max(1.0, float((self.end_ns - self.start_ns).sum())))

    @cached_property
    def total_s(self) -> float:
        """From the first step's start to the last one's end, warm-up included."""
        assert self.record.steps is not None
        steps = self.record.steps
        return float(steps.end_ns.unpack()[-1] - steps.start_ns.unpack()[0]) / 1e9


ByVariant = dict[str, dict[int, Measured]]
"""The good trials of a session, by variant and by round."""
Pair = tuple[Measured, Measured]
"""A trial, and that of its ceiling in the same round."""


def of(scenario: Scenario, trials: Sequence[TrialRecord], cores: int) -> ByVariant:
    """Return the measured steps of the good trials at the level that leaves the figures known best.

    Args:
        scenario: as resolved.
        trials: those that have ended, in any order.
        cores: the cores that this process may use.
    """
    everything: ByVariant = {variant.name: {} for variant in scenario.variants}
    for trial in trials:
        if trial.variant in everything and trial.measured:
            everything[trial.variant][trial.repeat] = Measured(AllSteps(trial, cores))
    if not any(trial.taken > LEVELS[0] for own in everything.values() for trial in own.values()):
        return everything
    at_levels = [_at(everything, level) for level in LEVELS[:-1]]
    return min([everything, *at_levels], key=lambda found: _reach(scenario, found, everything))


def pairs(found: ByVariant, variant: Variant) -> list[Pair]:
    """Return the trials of a variant that have one of its ceiling in their round, with that, by round."""
    own = found[variant.name]
    ceilings = found.get(variant.ceiling, {}) if variant.ceiling else {}
    return [(own[repeat], ceilings[repeat]) for repeat in sorted(own) if repeat in ceilings]


def taken_of(some: Sequence[Pair]) -> float:
    """Return what others took of the CPU during the steps that count, 0 to 1, on average."""
    return float(np.mean([(run.taken + top.taken) / 2 for run, top in some])) if some else 0.0


def _at(everything: ByVariant, level: float) -> ByVariant:
    found: ByVariant = {}
    for name, own in everything.items():
        at_level = {repeat: Measured(trial.every, level) for repeat, trial in own.items()}
        found[name] = {repeat: trial for repeat, trial in at_level.items() if trial.enough}
    return found


def _reach(scenario: Scenario, found: ByVariant, everything: ByVariant) -> float:
    """Return how badly the accelerator utilization of the variants will be known: its interval, squared and summed.

    By the scatter that is usual between rounds, how many there are, and what others may have done to them.
    """
    total, base = 0.0, scenario.baseline.name
    for variant in scenario.variants:
        # A ceiling, and what has none beside it, is judged by its own trials.
        has_ceiling = bool(variant.ceiling and everything.get(variant.ceiling))
        some, all_of_it = (
            pairs(each, variant) if has_ceiling else [(run, run) for run in each[variant.name].values()]
            for each in (found, everything)
        )
        if _steps(some) < NEEDED_STEPS <= _steps(all_of_it) or len(some) < _FEWEST_ROUNDS <= len(all_of_it):
            return float("inf")
        beside, all_beside = (len(each[variant.name].keys() & each[base].keys()) for each in (found, everything))
        if beside < _FEWEST_ROUNDS <= all_beside:
            return float("inf")
        if some:
            systematic = effects.of("utilization", some[0][0].device_kind) * taken_of(some)
            total += belief.usual_reach(belief.SHARE_SCATTER, len(some)) ** 2 + (_REACH * systematic) ** 2
        elif everything[variant.name]:
            return float("inf")
    return total


def _steps(some: Sequence[Pair]) -> int:
    """Return how many steps a verdict would rest on: those of the trials, or of the ceiling's where these are fewer."""
    return min(sum(run.step_ms.size for run, _ in some), sum(top.step_ms.size for _, top in some))
