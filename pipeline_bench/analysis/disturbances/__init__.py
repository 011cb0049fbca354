"""What disturbed a trial, from the trials' own records: other processes, a throttled CPU or GPU, a machine that drifts.

In its step times, a disturbance is what some repeats of a variant show and others do not; what all of them show is the
variant's own way, a queue that empties and fills, for one. What others took of the machine is a disturbance wherever it
is. Pure: the same trials give the same disturbances.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_bench.analysis.disturbances import gpu, host, steps
from pipeline_bench.analysis.disturbances.measured import MeasuredTrial
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.trial import TrialRecord


def find(trials: Sequence[TrialRecord], cores: int) -> tuple[Disturbance, ...]:
    """Everything that disturbed the trials that ended well, by variant as they first ran, and by repeat.

    Args:
        trials: those that have ended, in any order; what failed, or measured no step, is left out.
        cores: the cores that this process may use.
    """
    measured = [trial for trial in map(MeasuredTrial.of, sorted(trials, key=lambda trial: trial.index)) if trial]
    variants = list(dict.fromkeys(trial.variant for trial in measured))
    found: list[Disturbance] = []
    for variant in variants:
        repeats = sorted((trial for trial in measured if trial.variant == variant), key=lambda trial: trial.repeat)
        found += [*steps.find(repeats), *host.find(repeats, cores)]
    found += gpu.find(measured)
    return tuple(sorted(found, key=lambda each: (variants.index(each.variant), each.repeat)))
