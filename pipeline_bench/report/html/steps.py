"""The columns of a session's trials, read once each and thinned out to what a plot can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.series import Series
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord

Floats = npt.NDArray[np.float64]

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Steps:
    """The steps of one trial, warm-up included: shape [steps] each, times in seconds since the session began."""

    at_s: Floats
    """When each step began."""
    step_ms: Floats
    wait_ms: Floats | None
    warmup: int
    busy_ms: Floats | None = None
    """How long an emulated device was busy with each step."""

    @property
    def measured_ms(self) -> Floats:
        """The step times after warm-up."""
        return self.step_ms[self.warmup :]


@dataclass(frozen=True)
class Clock:
    """The one time axis of a session, from its first trial's start to its last one's end."""

    zero_ns: int
    end_ns: int

    @classmethod
    def of(cls, session: Session) -> Clock:
        """The axis that holds every trial; an empty one where there is none."""
        starts = [record.started_ns for record in session.trials]
        ends = [record.ended_ns for record in session.trials]
        return cls(min(starts, default=0), max([*starts, *ends], default=0))

    @property
    def span_s(self) -> float:
        """Its length in seconds, never 0."""
        return max(self.end_ns - self.zero_ns, 1) / _NS_PER_S

    def seconds(self, at_ns: Any) -> Any:
        """A time or an array of times on the axis; the difference is taken in whole nanoseconds."""
        return (at_ns - self.zero_ns) / _NS_PER_S


def read_steps(record: TrialRecord, clock: Clock) -> Steps | None:
    """The trial's steps; None where it has none.

    Raises:
        ValueError: a column is damaged, or they differ in length.
    """
    if record.steps is None or not record.steps.count:
        return None
    start_ns, end_ns = record.steps.start_ns.unpack(), record.steps.end_ns.unpack()
    wait = record.steps.wait_ns.unpack() / _NS_PER_MS if record.steps.wait_ns is not None else None
    busy = record.steps.busy_ns.unpack() / _NS_PER_MS if record.steps.busy_ns is not None else None
    if any(column is not None and len(column) != len(start_ns) for column in (end_ns, wait, busy)):
        raise ValueError("its columns of steps differ in length")
    return Steps(clock.seconds(start_ns), (end_ns - start_ns) / _NS_PER_MS, wait, record.warmup_steps, busy)


def read_track(at_ns: Series | None, values: Series | None, clock: Clock) -> tuple[Floats, Floats] | None:
    """Times in seconds and finite values of a track; None where it has none.

    Raises:
        ValueError: a column is damaged, or they differ in length.
    """
    if at_ns is None or values is None:
        return None
    at, read = at_ns.unpack(), np.asarray(values.unpack(), dtype=np.float64)
    if len(at) != len(read):
        raise ValueError("its columns of samples differ in length")
    finite = np.isfinite(read)
    return (clock.seconds(at[finite]), read[finite]) if finite.any() else None


def bins(at_s: Floats, count: int) -> npt.NDArray[np.intp]:
    """Where each of at most `count` bins of one width begins among ascending times; empty bins are left out."""
    width_s = max(float(at_s[-1] - at_s[0]), 1e-9) / count
    index = np.minimum((at_s - at_s[0]) / width_s, count - 1).astype(np.int64)
    return np.flatnonzero(np.diff(index, prepend=-1))


def means(values: Floats, starts: npt.NDArray[np.intp]) -> Floats:
    """The mean of each bin."""
    counts = np.diff(starts, append=len(values))
    return np.asarray(np.add.reduceat(values, starts) / counts, dtype=np.float64)


def quantiles(values: Floats, starts: npt.NDArray[np.intp], share: float) -> Floats:
    """That quantile of each bin."""
    return np.asarray([np.quantile(part, share) for part in np.split(values, starts[1:])], dtype=np.float64)


def ascending(at_s: Floats, *columns: Floats) -> tuple[Floats, ...]:
    """Times and their columns in the order of time, which a clock that was read by turns may not have kept."""
    if len(at_s) < 2 or bool(np.all(np.diff(at_s) >= 0)):  # noqa: PLR2004 - one time is in order
        return at_s, *columns
    order = np.argsort(at_s, kind="stable")
    return at_s[order], *(column[order] for column in columns)


def of_variant(session: Session, name: str) -> Iterator[TrialRecord]:
    """The variant's trials, in the order they ran."""
    return (record for record in session.trials if record.variant == name)
