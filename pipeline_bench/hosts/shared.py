"""What hosts share, and may limit them: a storage, and of several on one machine its CPU. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipeline_bench.analysis import measured, stats, thresholds
from pipeline_bench.analysis.measured import Rounds
from pipeline_bench.model.hosts import Host, sharing
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import joined, units

MOST_LISTED = 16
"""Ranks that a sentence lists one by one."""
_ROUNDING = 0.05
"""By how much ranks may seem to use more than all of the CPUs that they share."""


class UsedCpu(NamedTuple):
    """How much of a machine's CPU was busy while ranks of it ran, and how much by them, 0 to 1."""

    busy: float
    own: float
    allowed: bool = False
    """Whether it is of the CPUs that they may run on, fewer than the machine's, and not of all."""

    @property
    def lacks_cores(self) -> bool:
        """Whether its ranks may have taken cores from each other: it was busy, and they took no small part of it."""
        return self.busy >= thresholds.HOSTS_CPU_BUSY and self.own >= thresholds.BOUND_SHARE


class Common(NamedTuple):
    """What hosts share, and may limit them."""

    storage: str | None = "storage"
    """What their inputs read, as a sentence calls it; None: nothing."""
    machines: tuple[tuple[int, ...], ...] = ()
    """The ranks that ran on one machine, by machine."""
    cpus: tuple[UsedCpu, ...] = ()
    """Of each such machine; empty where one is not known."""
    cached: bool = False
    """Whether all of them are known to have read their files from their page caches, see `inputs.read_from_cache`."""

    @property
    def cpu(self) -> UsedCpu | None:
        """Return that of the machine on which ranks may have lacked cores, or else of the busiest one."""
        return max(self.cpus, key=lambda each: (each.lacks_cores, each.busy), default=None)

    @property
    def are_cores_busy(self) -> bool:
        """Whether a rank of one machine may have waited for its cores."""
        return self.cpu is not None and self.cpu.busy >= thresholds.HOSTS_CPU_BUSY

    @property
    def may_lack_cores(self) -> bool:
        """Whether ranks of one machine may have taken its cores from each other, as far as that is known."""
        return self.cpu.lacks_cores if self.cpu is not None else bool(self.machines)

    @property
    def on_one_machine(self) -> str:
        """Which ranks shared a machine, as a clause; empty where none did."""
        if not self.machines:
            return ""
        one = len(self.machines) == 1
        several = f"{len(self.machines)} machines ran several ranks each"
        who = f"{ranks_named(self.machines[0])} ran on one machine" if one else several
        if self.cpu is None:
            return who
        busy, own = units.share(self.cpu.busy), units.share(self.cpu.own)
        of = "the CPUs that they may use" if self.cpu.allowed else f"{'its' if one else 'their'} CPU"
        return f"{who}, {busy} of {of} busy, {own} by them"


def ranks_named(ranks: Sequence[int]) -> str:
    """Return what a sentence calls some ranks: ``ranks 0 and 1``."""
    return f"rank{'' if len(ranks) == 1 else 's'} {joined([str(rank) for rank in ranks], 'and')}"


def common_of(
    storage: str | None, hosts: Sequence[Host], together: Mapping[int, Rounds], *, cached: bool = False
) -> Common:
    """Return what hosts share, by the trials together of each rank; `storage` and `cached` as of `Common`."""
    machines = [tuple(host.rank for host in each) for each in sharing(hosts)]
    cpus = [_used_cpu([together[rank] for rank in ranks_of_one]) for ranks_of_one in machines]
    known = tuple(cpu for cpu in cpus if cpu is not None)
    return Common(storage, tuple(machines), known if len(known) == len(cpus) else (), cached)


def _used_cpu(of: Sequence[Rounds]) -> UsedCpu | None:
    """Return how much of a machine's CPU was busy, and how much by its ranks; None where one of them has no sample.

    A job may be confined to some of a machine's CPUs: where its ranks fill those that each of them may use, and no
    more, they may all have the same ones.
    """
    known = [[cpu for run in own.values() if (cpu := measured.cpu_shares(run.record)) is not None] for own in of]
    if not all(known):
        return None
    means = [np.mean(each, axis=0) for each in known]
    whole = UsedCpu(float(np.mean([busy for busy, _ in means])), float(sum(own for _, own in means)))
    allowed = [_mean([_allowed_share(run.record) for run in own.values()]) for own in of]
    if None in allowed:
        return whole
    filled = sum(share for share in allowed if share is not None)
    most = max(share for share in allowed if share is not None)
    share = filled if thresholds.HOSTS_CPU_BUSY <= filled <= 1 + _ROUNDING else most
    confined = UsedCpu(share, share, allowed=True)
    return confined if confined.lacks_cores and not whole.lacks_cores else whole


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _allowed_share(record: TrialRecord) -> float | None:
    """Return how much a trial used of the CPUs that it was allowed to run on, 0 to 1; None where that is not known."""
    used, ends_ns = measured.columns(record, "cpu_seconds"), record.after_warmup("end_ns") if record.measured else None
    if used is None or ends_ns is None or not record.allowed_cpus:
        return None
    grown = stats.growth(*used, int(ends_ns[0]), int(ends_ns[-1]))
    return None if grown is None else grown[0] / (grown[1] / 1e9) / record.allowed_cpus
