"""The steps of a trial as slices of a trace: each its own, or neighbours merged into one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.trial import TrialRecord, TrialSteps
from pipeline_bench.report.trace_events import Event, Place, Stamps, complete

_NS_PER_MS = 1e6


def steps(record: TrialRecord, place: Place, merged: int) -> Iterator[Event]:
    """A trial's steps in order, each with its wait inside it, the warm-up under a name of its own.

    Args:
        record: the trial.
        place: where its events go.
        merged: how many neighbours make one slice; warm-up and measured steps are never in one.

    Raises:
        ValueError: a packed column is damaged.
    """
    if record.steps is None or record.steps.count == 0:
        return
    columns = _Columns.of(record.steps)
    warmup = min(record.warmup_steps, columns.count)
    for category, first, last in (("warm-up", 0, warmup), ("measured", warmup, columns.count)):
        if merged == 1:
            yield from _single_steps(columns, place, category, first, last)
        else:
            yield from _merged_steps(columns, place, category, first, last, merged)


@dataclass(frozen=True)
class _Columns:
    """The steps of a trial, unpacked, each of shape [count]; a wait never ends after its step."""

    start_ns: Stamps
    took_ns: Stamps
    wait_ns: Stamps | None
    loss: npt.NDArray[np.float64]

    @property
    def count(self) -> int:
        return self.start_ns.size

    def waits(self) -> list[int] | list[None]:
        """A wait a step, None where there is none to have."""
        return [None] * self.count if self.wait_ns is None else self.wait_ns.tolist()

    @classmethod
    def of(cls, steps: TrialSteps) -> _Columns:
        start_ns, end_ns = steps.start_ns.unpack(), steps.end_ns.unpack()
        loss = steps.loss.unpack()
        wait_ns = steps.wait_ns.unpack() if steps.wait_ns is not None else None
        sizes = {column.size for column in (start_ns, end_ns, loss, wait_ns) if column is not None}
        if len(sizes) > 1:
            raise ValueError(f"its columns of steps hold {' and '.join(map(str, sorted(sizes)))} values")
        took_ns = np.maximum(end_ns - start_ns, 0)
        return cls(start_ns, took_ns, None if wait_ns is None else np.clip(wait_ns, 0, took_ns), loss)


def _single_steps(columns: _Columns, place: Place, category: str, first: int, last: int) -> Iterator[Event]:
    name = "step" if category == "measured" else "warm-up step"
    rows = zip(columns.start_ns.tolist(), columns.took_ns.tolist(), columns.waits(), columns.loss.tolist(), strict=True)
    for index, (start_ns, took_ns, wait_ns, loss) in islice(enumerate(rows), first, last):
        ts = place.us(start_ns)
        yield complete(name, category, ts, took_ns, place.steps, {"step": index, "loss": _finite(loss)})
        # In every backend the wait begins the step: the batch is what it asks for first.
        if wait_ns is not None:
            yield complete("input wait", category, ts, wait_ns, place.steps)


def _merged_steps(
    columns: _Columns, place: Place, category: str, first: int, last: int, merged: int
) -> Iterator[Event]:
    """Slices of `merged` neighbours, from the first one's start to the last one's end; their waits are summed."""
    begins = np.arange(first, last, merged)
    if begins.size == 0:
        return
    ends = np.append(begins[1:], last) - 1
    took_ns, start_ns = columns.took_ns[:last], columns.start_ns[begins]
    spans_ns = np.maximum(columns.start_ns[ends] - start_ns, 0) + took_ns[ends]
    counts = ends - begins + 1
    means_ms = np.add.reduceat(took_ns, begins) / counts / _NS_PER_MS
    most_ms = np.maximum.reduceat(took_ns, begins) / _NS_PER_MS
    waits = (
        [None] * begins.size if columns.wait_ns is None else np.add.reduceat(columns.wait_ns[:last], begins).tolist()
    )
    word = "steps" if category == "measured" else "warm-up steps"
    columns_of_slices = (begins, ends, start_ns, spans_ns, means_ms, most_ms, columns.loss[ends])
    rows = zip(*(column.tolist() for column in columns_of_slices), waits, strict=True)
    for begin, end, start, span_ns, mean_ms, max_ms, loss, wait_ns in rows:
        count = end - begin + 1
        args = {"steps": count, "step_ms_mean": mean_ms, "step_ms_max": max_ms, "loss": _finite(loss)}
        ts = place.us(start)
        if wait_ns is None:
            yield complete(f"{word} {begin}–{end}", category, ts, span_ns, place.steps, args)
            continue
        args["input_wait_ms_mean"] = wait_ns / count / _NS_PER_MS
        yield complete(f"{word} {begin}–{end}", category, ts, span_ns, place.steps, args)
        yield complete("input wait, summed", category, ts, min(wait_ns, span_ns), place.steps)


def _finite(value: float) -> float | str:
    """A loss as JSON can hold it, which has no infinity and no NaN."""
    return value if math.isfinite(value) else str(value)
