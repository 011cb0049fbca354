"""What the machine's other work took from a trial, from moment to moment, and which steps are left without it.

The samplers tell, for every short window, what other processes and the hypervisor took of the machine's CPU, and how
long the control group's quota held the trial up. A step belongs to the window in which its middle lies, so that a long
step is no more likely to be left out than a short one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.trial import Track, TrialRecord

Floats = npt.NDArray[np.float64]

SATURATED_PERCENT = 90.0
"""Other processes cost a trial time only while the CPU has hardly any left: two busy cores are never measured as wholly
busy, and a pipeline alone on them keeps them at 80 to 90 %."""


@dataclass(frozen=True)
class Taken:
    """What was taken from a trial in each window, 0 to 1; the windows end at `until_ns`, and follow each other."""

    until_ns: npt.NDArray[np.int64]
    share: Floats

    @classmethod
    def of(cls, record: TrialRecord, cores: int) -> Taken | None:
        """Return it for a trial; None where the samplers did not tell.

        Args:
            record: of a trial that ended.
            cores: the cores that this process may use.
        """
        machine = _known(record, "machine_cpu_percent")
        if machine is None:
            return None
        until_ns, busy = machine
        others = _at(_known(record, "other_cpu_percent"), until_ns)
        stolen = _at(_known(record, "steal_percent"), until_ns)
        held_up = _grown(_known(record, "cpu_throttled_seconds"), until_ns) / max(1, cores)
        # Only what runs is stolen from: 10 % of the time of a core that is busy half of it is a fifth of its work.
        of_work = stolen / np.maximum(np.maximum(busy, stolen), 1.0)
        share = np.where(busy >= SATURATED_PERCENT, others, 0.0) / 100 + of_work + held_up
        return cls(until_ns, np.clip(share, 0.0, 1.0))

    def at(self, times_ns: npt.NDArray[np.int64]) -> Floats:
        """Return the share in the windows that hold these times; of the nearest one where none does."""
        return self.share[np.minimum(np.searchsorted(self.until_ns, times_ns), self.until_ns.size - 1)]


def others(record: TrialRecord) -> float:
    """Return what other processes and the hypervisor took of the CPU while a trial ran, 0 to 1, on average."""
    taken = [_known(record, metric) for metric in ("other_cpu_percent", "steal_percent")]
    return min(1.0, sum(float(track[1].mean()) for track in taken if track is not None) / 100)


def columns(record: TrialRecord, metric: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]] | None:
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


def _known(record: TrialRecord, metric: str) -> tuple[npt.NDArray[np.int64], Floats] | None:
    """Return the columns of a metric, with 0 where a sample is no number."""
    sampled = columns(record, metric)
    return sampled and (sampled[0], np.nan_to_num(sampled[1].astype(np.float64)))


def _at(track: tuple[npt.NDArray[np.int64], Floats] | None, until_ns: npt.NDArray[np.int64]) -> Floats:
    """Return the metric's value for the windows that end at these times: of its sample at or right after each."""
    if track is None:
        return np.zeros(until_ns.size)
    at_ns, values = track
    return values[np.minimum(np.searchsorted(at_ns, until_ns), at_ns.size - 1)]


def _grown(track: tuple[npt.NDArray[np.int64], Floats] | None, until_ns: npt.NDArray[np.int64]) -> Floats:
    """Return how much a cumulative metric in seconds grew in each window, as a share of the window."""
    if track is None or until_ns.size < 2:  # noqa: PLR2004 - the first window has no beginning
        return np.zeros(until_ns.size)
    at_ns, values = track
    then = np.interp(until_ns - until_ns[0], at_ns - until_ns[0], values)
    lasted_s = np.maximum(np.diff(until_ns) / 1e9, 1e-9)
    return np.concatenate([[0.0], np.clip(np.diff(then) / lasted_s, 0.0, None)])
