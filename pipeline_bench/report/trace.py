"""Session → a trace that Perfetto and chrome://tracing open: every trial a process, steps and waits as slices.

The form is the Trace Event Format's JSON object (Google, "Trace Event Format", 2016): complete events (`X`) for
slices, counters (`C`) for what was sampled, instants (`i`) for what went wrong, metadata (`M`) for names. Stamps and
durations are microseconds with the nanoseconds as decimals; 0 is the session's first stamp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.errors import SessionError
from pipeline_bench.model.series import Series
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Track, TrialRecord
from pipeline_bench.report.trace_events import Event, Place, Stamps, complete
from pipeline_bench.report.trace_steps import steps
from pipeline_bench.text import one_line

STEP_LIMIT = 200_000
"""Above this many steps in a session, neighbours are merged into one slice: a viewer in a browser holds the file."""

COUNTER_LIMIT = 20_000
"""Above this many values of one counter in a trial only every n-th is kept, none of them averaged."""

_NAME_LIMIT = 80
_TEXT_LIMIT = 600
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
    "machine_cpu_percent": "CPU utilization, whole machine",
    "other_cpu_percent": "CPU utilization, other processes",
    "steal_percent": "CPU taken by the hypervisor",
    "cpu_throttled_seconds": "CPU throttled, cumulative",
    "read_bytes": "read from storage, cumulative",
    "write_bytes": "written to storage, cumulative",
}


def render(session: Session) -> str:
    """The whole trace as JSON.

    Raises:
        SessionError: a packed column of the session is damaged.
    """
    merged = merged_steps(session)
    events = ",\n".join(_json(event) for event in trace_events(session))
    head = f'"displayTimeUnit": "ms",\n"metadata": {_json(_metadata(session, merged))}'
    return f'{{{head},\n"traceEvents": [\n{events}\n]}}\n'


def merged_steps(session: Session) -> int:
    """How many neighbouring steps make one slice: 1 up to `STEP_LIMIT` steps in the session."""
    count = sum(record.steps.count for record in session.trials if record.steps is not None)
    return max(1, math.ceil(count / STEP_LIMIT))


def trace_events(session: Session) -> Iterator[Event]:
    """Every event, trial by trial; times are in µs since the session's first stamp.

    Raises:
        SessionError: a packed column of the session is damaged.
    """
    merged, cores = merged_steps(session), session.environment.cores
    zero_ns = min((first for record in session.trials for first in _first_stamps(record)), default=0)
    verdicts = {result.variant: result.verdict.kind for result in session.results}
    for position, record in enumerate(session.trials):
        place = Place(position + 1, zero_ns)
        yield from _names(record, place, verdicts.get(record.variant, ""))
        try:
            yield from _phases(record, place)
            yield from steps(record, place, merged)
            yield from _counters(record, place, cores)
        except ValueError as error:
            trial = f"{one_line(record.variant, _NAME_LIMIT)}, repeat {record.repeat + 1}"
            raise SessionError(f"The trial {trial} is damaged: {error}.", "Give an undamaged session.json.") from None
        yield from _end(record, place)


def _first_stamps(record: TrialRecord) -> Iterator[int]:
    yield record.started_ns
    yield from (phase.at_ns for phase in record.phases[:1])
    columns = [record.steps.start_ns] if record.steps is not None else []
    columns += [track.at_ns for track in record.samples if track.at_ns is not None]
    columns += [depth.at_ns for depth in record.queue_depths]
    for column in columns:
        # A damaged column is named by whoever draws it.
        try:
            yield from column.unpack()[:1].tolist()
        except ValueError:
            continue


def _names(record: TrialRecord, place: Place, verdict: str) -> Iterator[Event]:
    name = f"{one_line(record.variant, _NAME_LIMIT)}, repeat {record.repeat + 1}"
    labels = ", ".join(label for label in (verdict, "" if record.status == "ok" else record.status) if label)
    process = [("process_name", {"name": name}), ("process_sort_index", {"sort_index": place.pid})]
    process += [("process_labels", {"labels": labels})] if labels else []
    for kind, values in process:
        yield {"ph": "M", "name": kind, **place.phases, "args": values}
    for sort, (thread, label) in enumerate(((place.phases, "phases"), (place.steps, "steps"))):
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": label}}
        yield {"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": sort}}


def _phases(record: TrialRecord, place: Place) -> Iterator[Event]:
    """A phase lasts until the next one begins, the last one until the trial's end."""
    marks = [("start", record.started_ns), *((phase.name, phase.at_ns) for phase in record.phases)]
    ends = [at_ns for _, at_ns in marks[1:]] + [record.ended_ns]
    for (name, start_ns), end_ns in zip(marks, ends, strict=True):
        if end_ns > start_ns:
            yield complete(one_line(name, _NAME_LIMIT), "phase", place.us(start_ns), end_ns - start_ns, place.phases)


def _counters(record: TrialRecord, place: Place, cores: int) -> Iterator[Event]:
    for track in record.samples:
        if track.at_ns is None or track.values is None:
            continue
        at_ns, values = _pair(track.at_ns, track.values)
        name, unit = _name_and_unit(track.metric)
        if track.metric == _CPU_SECONDS:
            name, unit = "CPU utilization, this trial", "percent"
            at_ns, values = _cpu_percent(at_ns, values, cores)
        yield from _counter(f"{name} ({_instrument(track)})", unit, at_ns, values, place)
    for depth in record.queue_depths:
        name = f"queue {one_line(depth.name, _NAME_LIMIT)}, elements of {depth.capacity}"
        yield from _counter(name, "elements", *_pair(depth.at_ns, depth.size), place)


def _name_and_unit(metric: str) -> tuple[str, str]:
    stem, _, ending = metric.rpartition("_")
    unit = _UNITS.get(ending)
    name = _NAMES.get(metric) or (stem if unit else metric).replace("_", " ")
    return one_line(name, _NAME_LIMIT), unit or "value"


def _pair(at_ns: Series, values: Series) -> tuple[Stamps, npt.NDArray[Any]]:
    stamps, numbers = at_ns.unpack(), values.unpack()
    if stamps.size != numbers.size:
        raise ValueError(f"a counter holds {stamps.size} stamps and {numbers.size} values")
    return stamps, numbers


def _instrument(track: Track) -> str:
    return one_line(track.source, _NAME_LIMIT)


def _cpu_percent(at_ns: Stamps, cpu_seconds: npt.NDArray[Any], cores: int) -> tuple[Stamps, npt.NDArray[Any]]:
    """The CPU time between two samples over wall time × cores, stamped with the first of them."""
    wall_ns = np.diff(at_ns)
    used = wall_ns > 0
    percent = 100e9 * np.diff(cpu_seconds)[used] / (wall_ns[used] * max(cores, 1))
    return at_ns[:-1][used], np.clip(percent, 0.0, 100.0)


def _counter(name: str, unit: str, at_ns: Stamps, values: npt.NDArray[Any], place: Place) -> Iterator[Event]:
    every = max(1, math.ceil(at_ns.size / COUNTER_LIMIT))
    for at, value in zip(at_ns[::every].tolist(), values[::every].tolist(), strict=True):
        if math.isfinite(value):
            yield {"ph": "C", "name": name, **place.phases, "ts": place.us(at), "args": {unit: value}}


def _end(record: TrialRecord, place: Place) -> Iterator[Event]:
    """What went wrong, marked where the trial ended."""
    if record.status == "ok":
        return
    reason = one_line(record.reason or "no reason is known", _TEXT_LIMIT)
    args = {"status": record.status, "reason": reason}
    args |= {f"queue {one_line(q.name, _NAME_LIMIT)}": _queue(q.size, q.capacity) for q in record.queues}
    name = one_line(f"{record.status}: {reason}", _NAME_LIMIT)
    # Of the process's scope, so that a viewer draws it over all of the trial's tracks.
    yield {
        "ph": "i",
        "s": "p",
        "name": name,
        "cat": "trouble",
        **place.phases,
        "ts": place.us(record.ended_ns),
        "args": args,
    }


def _queue(size: int | None, capacity: int) -> str:
    return f"{size} of {capacity} elements" if size is not None else "did not answer"


def _metadata(session: Session, merged: int) -> Event:
    environment = {
        name: one_line(value, _TEXT_LIMIT) if isinstance(value, str) else value
        for name, value in session.environment.model_dump().items()
    }
    shown = "every step is a slice of its own"
    if merged > 1:
        shown = f"{merged} neighbouring steps are one slice, because the session has more than {STEP_LIMIT} steps"
    return {
        "scenario": one_line(session.scenario.name, _TEXT_LIMIT),
        "question": one_line(session.scenario.question, _TEXT_LIMIT),
        "started_at": one_line(session.started_at, _TEXT_LIMIT),
        "command": one_line(session.command, _TEXT_LIMIT),
        "environment": environment,
        "steps": shown,
        "steps_per_slice": merged,
        "counters": f"of more than {COUNTER_LIMIT} values in a trial every n-th is shown",
        "clock": "time.monotonic_ns; ts 0 is the session's first stamp",
    }


def _json(value: Event) -> str:
    # Not escaped to ASCII: Perfetto shows an escape like \u2013 as it is written.
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
