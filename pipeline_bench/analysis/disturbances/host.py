"""Disturbances of the host: other processes on a full CPU, a hypervisor that gives it away, a quota that is used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipeline_bench.analysis.disturbances.measured import MeasuredTrial
from pipeline_bench.analysis.interference import SATURATED_PERCENT
from pipeline_bench.model.result import Disturbance
from pipeline_bench.text import units

# Half of the share from which a verdict names a cause (verdicts.BOUND_SHARE); an idle system's own processes were seen
# to take 0 to 2 %, now and then 3.
CONTENTION_SHARE = 0.05
# Stolen and throttled time is the trial's loss in full, whatever else the machine does, so that less of it counts. The
# kernel counts stolen time in ticks, a stray one in a second being some 0.5 % of two cores.
STEAL_SHARE = 0.02
THROTTLED_SHARE = 0.02


def find(repeats: Sequence[MeasuredTrial], cores: int) -> Iterator[Disturbance]:
    """The disturbances of one variant's repeats.

    Other processes and a hypervisor are no variant's own, so that they count where every repeat has them, too. What
    they take while an emulated device is busy is lost to nobody.
    """
    for trial in repeats:
        for found in (*_contention(trial), *_steal(trial)):
            yield found.model_copy(update={"cost_share": min(found.cost_share or 0.0, trial.host_share)})
    yield from _throttling(repeats, cores)


def _contention(trial: MeasuredTrial) -> Iterator[Disturbance]:
    other, machine = trial.sampled("other_cpu_percent"), trial.sampled("machine_cpu_percent")
    if other is None or machine is None:
        return
    busy_percent = np.interp(other.at_ns, machine.at_ns, machine.values)
    full = busy_percent >= SATURATED_PERCENT
    taken = np.where(full, other.values, 0.0) / 100
    cost_share = float(np.average(taken, weights=other.covers_ns))
    if cost_share < CONTENTION_SHARE:
        return
    while_full = float(np.average(other.values[full], weights=other.covers_ns[full]))
    text = f"other processes took {units.percent(while_full)} of the machine's CPU"
    lasted = other.share(full)
    if lasted < 0.9:  # noqa: PLR2004 - said of the whole trial unless a visible part of it is meant
        text += f" for {units.share(lasted)} of its time"
    yield trial.disturbance("cpu-contention", cost_share, f"{text}, and left hardly any idle")


def _steal(trial: MeasuredTrial) -> Iterator[Disturbance]:
    stolen = trial.sampled("steal_percent")
    if stolen is None or stolen.mean() / 100 < STEAL_SHARE:
        return
    machine = trial.sampled("machine_cpu_percent")
    # Only what runs is stolen from: 10 % of the time of a core that is busy half of it is a fifth of its work.
    busy_percent = max(machine.mean() if machine is not None else 100.0, stolen.mean())
    text = f"the hypervisor gave {units.percent(stolen.mean())} of the machine's CPU to others"
    yield trial.disturbance("steal", stolen.mean() / busy_percent, text)


def _throttling(repeats: Sequence[MeasuredTrial], cores: int) -> Iterator[Disturbance]:
    """Time that a quota withheld; what it withholds from every repeat is the machine that the variant was given."""
    shares = [_throttled_share(trial, cores) for trial in repeats]
    known = [share for share in shares if share is not None]
    for trial, share in zip(repeats, shares, strict=True):
        if share is None or share < THROTTLED_SHARE:
            continue
        text = f"the CPU quota of its control group kept its threads waiting for {units.share(share)} of the time"
        yield trial.disturbance("cpu-throttling", share - min(known) if len(known) > 1 else None, text)


def _throttled_share(trial: MeasuredTrial, cores: int) -> float | None:
    """Of the time of the cores that there are; the kernel sums over all cores on which the group had to wait."""
    grown = trial.grown("cpu_throttled_seconds")
    return None if grown is None else min(1.0, grown * 1e9 / max(1, cores))
