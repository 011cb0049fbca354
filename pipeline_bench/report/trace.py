"""Session → a trace that Perfetto and chrome://tracing open: every trial a process, steps and waits as slices.

The form is the Trace Event Format's JSON object (Google, "Trace Event Format", 2016): complete events (`X`) for
slices, counters (`C`) for what was sampled, instants (`i`) for what went wrong, metadata (`M`) for names. Stamps and
durations are microseconds with the nanoseconds as decimals; 0 is the session's first stamp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import stats
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord, TrialSteps
from pipeline_bench.text import NAME, TEXT, one_line
from pipeline_bench.text.units import NS_PER_MS

Json = dict[str, Any]
Stamps = npt.NDArray[np.int64]

STEP_LIMIT = 200_000
"""Above this many steps in a session, neighbours are merged into one slice: a viewer in a browser holds the file.

A row that is the mean of several steps is a slice in any case, and counts as one here.
"""

COUNTER_LIMIT = 20_000
"""Above this many values of one counter in a trial only every n-th is kept, none of them averaged."""

_CPU_SECONDS = "cpu_seconds"

# The unit that a metric's name ends in, as a viewer shows it.
_UNITS = {
    "percent": "percent",
    "bytes": "bytes",
    "mhz": "MHz",
    "watts": "watts",
    "celsius": "celsius",
    "seconds": "seconds",
}
# What would be misread when it went by its own name.
_NAMES = {
    "machine_cpu_percent": "CPU utilization, all processes",
    "other_cpu_percent": "CPU utilization, other processes",
    "steal_percent": "CPU taken by the hypervisor",
    "cpu_throttled_seconds": "CPU throttled, cumulative",
    "read_bytes": "read from storage, cumulative",
    "write_bytes": "written to storage, cumulative",
}


@dataclass(frozen=True)
class TrialTracks:
    """Where a trial's events go: its process, its two threads, and the session's first stamp.

    Numbers of threads are unique in the file, because some viewers know a thread by its number alone.
    """

    pid: int
    zero_ns: int

    @property
    def steps(self) -> Json:
        return {"pid": self.pid, "tid": self.pid * 10 + 1}

    @property
    def phases(self) -> Json:
        return {"pid": self.pid, "tid": self.pid * 10 + 2}

    def us(self, at_ns: int) -> float:
        """Return a stamp on the trace's time line. A float of microseconds holds nanoseconds for some 100 days."""
        return (at_ns - self.zero_ns) / 1000


def complete(name: str, category: str, ts: float, took_ns: int, thread: Json, args: Json | None = None) -> Json:
    """Return a complete event, which a viewer draws as a slice; `ts` in µs on the trace's time line."""
    event = {"ph": "X", "name": name, "cat": category, **thread, "ts": ts, "dur": took_ns / 1000}
    return {**event, "args": args} if args else event


def render(session: Session) -> str:
    """Return the whole trace as JSON."""
    merged = merged_steps(session)
    events = ",\n".join(_json(event) for event in trace_events(session))
    head = f'"displayTimeUnit": "ms",\n"metadata": {_json(_metadata(session, merged))}'
    return f'{{{head},\n"traceEvents": [\n{events}\n]}}\n'


def merged_steps(session: Session) -> int:
    """Return how many neighbours make one slice: 1 up to `STEP_LIMIT` steps, or rows of several, in the session."""
    count = sum(record.steps.count for record in session.trials if record.steps is not None)
    return max(1, math.ceil(count / STEP_LIMIT))


def trace_events(session: Session) -> Iterator[Json]:
    """Yield every event, trial by trial; times are in µs since the session's first stamp."""
    merged, cores = merged_steps(session), session.environment.cores
    zero_ns = min((first for record in session.trials for first in _first_stamps(record)), default=0)
    verdicts = {result.variant: result.verdict.kind for result in session.results}
    for position, record in enumerate(session.trials):
        tracks = TrialTracks(position + 1, zero_ns)
        yield from _names(record, tracks, verdicts.get(record.variant, ""))
        yield from _phases(record, tracks)
        yield from _steps(record, tracks, merged)
        yield from _counters(record, tracks, cores)
        yield from _end(record, tracks)


def _first_stamps(record: TrialRecord) -> Iterator[int]:
    yield record.started_ns
    yield from (phase.at_ns for phase in record.phases[:1])
    columns = [record.steps.start_ns] if record.steps is not None else []
    columns += [track.at_ns for track in record.samples if track.at_ns is not None]
    columns += [depth.at_ns for depth in record.queue_depths]
    for column in columns:
        yield from column.unpack()[:1].tolist()


def _names(record: TrialRecord, tracks: TrialTracks, verdict: str) -> Iterator[Json]:
    name = f"{one_line(record.variant, NAME)}, repeat {record.repeat + 1}"
    labels = ", ".join(label for label in (verdict, "" if record.status == "ok" else record.status) if label)
    process = [("process_name", {"name": name}), ("process_sort_index", {"sort_index": tracks.pid})]
    process += [("process_labels", {"labels": labels})] if labels else []
    for kind, values in process:
        yield {"ph": "M", "name": kind, **tracks.phases, "args": values}
    for sort, (thread, label) in enumerate(((tracks.phases, "phases"), (tracks.steps, "steps"))):
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": label}}
        yield {"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": sort}}


def _phases(record: TrialRecord, tracks: TrialTracks) -> Iterator[Json]:
    spans = record.spans_ns
    first_ns = spans[0][1] if spans else record.ended_ns
    for name, start_ns, end_ns in (("start", record.started_ns, first_ns), *spans):
        if end_ns > start_ns:
            yield complete(one_line(name, NAME), "phase", tracks.us(start_ns), end_ns - start_ns, tracks.phases)


def _steps(record: TrialRecord, tracks: TrialTracks, merged: int) -> Iterator[Json]:
    """Yield a trial's steps in order, each with its wait inside it, the warm-up under a name of its own.

    `merged` neighbours make one slice; warm-up and measured steps are never in one.
    """
    if record.steps is None or record.steps.count == 0:
        return
    columns = _Columns.of(record.steps)
    warmup = min(record.warmup_steps, columns.count)
    for category, first, last in (("warm-up", 0, warmup), ("measured", warmup, columns.count)):
        if merged == 1 and columns.weights is None:
            yield from _single_steps(columns, tracks, category, first, last)
        else:
            yield from _merged_steps(columns, tracks, category, first, last, merged)


@dataclass(frozen=True)
class _Columns:
    """The steps of a trial, unpacked, each of shape [count]; a wait never ends after its step.

    A row that is the mean of several steps takes the time of all of them, and so does its wait.
    """

    start_ns: Stamps
    took_ns: Stamps
    wait_ns: Stamps | None
    loss: npt.NDArray[np.float64]
    weights: Stamps | None = None
    """How many steps each row is the mean of; None: each is one."""

    @property
    def count(self) -> int:
        return self.start_ns.size

    @property
    def numbers(self) -> Stamps:
        """The number of each row's first step, and behind the last row how many steps there are: shape [count + 1]."""
        if self.weights is None:
            return np.arange(self.count + 1)
        return np.concatenate([[0], np.cumsum(self.weights)])

    def waits(self) -> list[int] | list[None]:
        """Return a wait a step, None where there is none to have."""
        return [None] * self.count if self.wait_ns is None else self.wait_ns.tolist()

    @classmethod
    def of(cls, steps: TrialSteps) -> _Columns:
        start_ns, end_ns = steps.start_ns.unpack(), steps.end_ns.unpack()
        took_ns = np.maximum(end_ns - start_ns, 0)
        wait_ns = None if steps.wait_ns is None else np.clip(steps.wait_ns.unpack(), 0, took_ns)
        weights = None if steps.steps is None else np.maximum(steps.steps.unpack(), 1)
        several = 1 if weights is None else weights
        waits_ns = None if wait_ns is None else wait_ns * several
        return cls(start_ns, took_ns * several, waits_ns, steps.loss.unpack(), weights)


def _single_steps(columns: _Columns, tracks: TrialTracks, category: str, first: int, last: int) -> Iterator[Json]:
    name = "step" if category == "measured" else "warm-up step"
    rows = zip(columns.start_ns.tolist(), columns.took_ns.tolist(), columns.waits(), columns.loss.tolist(), strict=True)
    for index, (start_ns, took_ns, wait_ns, loss) in islice(enumerate(rows), first, last):
        ts = tracks.us(start_ns)
        yield complete(name, category, ts, took_ns, tracks.steps, {"step": index, "loss": _finite(loss)})
        # In every backend the wait begins the step: the batch is what it asks for first.
        if wait_ns is not None:
            yield complete("input wait", category, ts, wait_ns, tracks.steps)


def _merged_steps(
    columns: _Columns, tracks: TrialTracks, category: str, first: int, last: int, merged: int
) -> Iterator[Json]:
    """Yield slices of `merged` neighbours, from the first one's start to the last one's end; their waits are summed.

    Of rows of several steps, whose longest is not known, the mean is given alone.
    """
    begins = np.arange(first, last, merged)
    if begins.size == 0:
        return
    ends = np.append(begins[1:], last) - 1
    took_ns, start_ns = columns.took_ns[:last], columns.start_ns[begins]
    spans_ns = np.maximum(columns.start_ns[ends] - start_ns, 0) + took_ns[ends]
    firsts, counts = columns.numbers[begins], columns.numbers[ends + 1] - columns.numbers[begins]
    means_ms = np.add.reduceat(took_ns, begins) / counts / NS_PER_MS
    most_ms = np.maximum.reduceat(took_ns, begins) / NS_PER_MS
    waits = (
        [None] * begins.size if columns.wait_ns is None else np.add.reduceat(columns.wait_ns[:last], begins).tolist()
    )
    word = "steps" if category == "measured" else "warm-up steps"
    columns_of_slices = (firsts, counts, start_ns, spans_ns, means_ms, most_ms, columns.loss[ends])
    rows = zip(*(column.tolist() for column in columns_of_slices), waits, strict=True)
    for first_step, count, start, span_ns, mean_ms, max_ms, loss, wait_ns in rows:
        name, ts = f"{word} {first_step}–{first_step + count - 1}", tracks.us(start)
        longest = {"step_ms_max": max_ms} if columns.weights is None else {}
        args = {"steps": count, "step_ms_mean": mean_ms, **longest, "loss": _finite(loss)}
        if wait_ns is not None:
            args["input_wait_ms_mean"] = wait_ns / count / NS_PER_MS
        yield complete(name, category, ts, span_ns, tracks.steps, args)
        if wait_ns is not None:
            yield complete("input wait, summed", category, ts, min(wait_ns, span_ns), tracks.steps)


def _finite(value: float) -> float | str:
    """Return a loss as JSON can hold it, which has no infinity and no NaN."""
    return value if math.isfinite(value) else str(value)


def _counters(record: TrialRecord, tracks: TrialTracks, cores: int) -> Iterator[Json]:
    for sampled in record.samples:
        if sampled.at_ns is None or sampled.values is None:
            continue
        at_ns, values = sampled.at_ns.unpack(), sampled.values.unpack()
        name, unit = _name_and_unit(sampled.metric)
        if sampled.metric == _CPU_SECONDS:
            name, unit = "CPU utilization, this trial", "percent"
            at_ns, _, values = stats.cpu_percents(at_ns, values, cores)
        yield from _counter(f"{name} ({one_line(sampled.source, NAME)})", unit, at_ns, values, tracks)
    for depth in record.queue_depths:
        name = f"queue {one_line(depth.name, NAME)}, elements of {depth.capacity}"
        yield from _counter(name, "elements", depth.at_ns.unpack(), depth.size.unpack(), tracks)


def _name_and_unit(metric: str) -> tuple[str, str]:
    stem, _, ending = metric.rpartition("_")
    unit = _UNITS.get(ending)
    name = _NAMES.get(metric) or (stem if unit else metric).replace("_", " ")
    return one_line(name, NAME), unit or "value"


def _counter(name: str, unit: str, at_ns: Stamps, values: npt.NDArray[Any], tracks: TrialTracks) -> Iterator[Json]:
    every = max(1, math.ceil(at_ns.size / COUNTER_LIMIT))
    for at, value in zip(at_ns[::every].tolist(), values[::every].tolist(), strict=True):
        if math.isfinite(value):
            yield {"ph": "C", "name": name, **tracks.phases, "ts": tracks.us(at), "args": {unit: value}}


def _end(record: TrialRecord, tracks: TrialTracks) -> Iterator[Json]:
    """Yield what went wrong, marked where the trial ended."""
    if record.status == "ok":
        return
    reason = one_line(record.reason or "no reason is known", TEXT)
    args = {"status": record.status, "reason": reason}
    args |= {f"queue {one_line(q.name, NAME)}": q.filling or "did not answer" for q in record.queues}
    name = one_line(f"{record.status}: {reason}", NAME)
    # Of the process's scope, so that a viewer draws it over all of the trial's tracks.
    yield {
        "ph": "i",
        "s": "p",
        "name": name,
        "cat": "trouble",
        **tracks.phases,
        "ts": tracks.us(record.ended_ns),
        "args": args,
    }


def _metadata(session: Session, merged: int) -> Json:
    environment = {
        name: one_line(value, TEXT) if isinstance(value, str) else value
        for name, value in session.environment.model_dump().items()
    }
    shown = "every step is a slice of its own"
    has_means = any(each.steps is not None and each.steps.steps is not None for each in session.trials)
    if has_means:
        shown = "a slice is of as many steps as its name says, because the session has means of several steps"
    elif merged > 1:
        shown = f"{merged} neighbouring steps are one slice, because the session has more than {STEP_LIMIT} steps"
    return {
        "scenario": one_line(session.scenario.name, TEXT),
        "question": one_line(session.scenario.question, TEXT),
        "started_at": one_line(session.started_at, TEXT),
        "command": one_line(session.command, TEXT),
        "environment": environment,
        "steps": shown,
        "steps_per_slice": None if has_means else merged,
        "counters": f"of more than {COUNTER_LIMIT} values in a trial every n-th is shown",
        "clock": "time.monotonic_ns; ts 0 is the session's first stamp",
    }


def _json(value: Json) -> str:
    # Not escaped to ASCII: Perfetto shows an escape like \u2013 as it is written.
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
