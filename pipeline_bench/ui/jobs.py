"""The screen of ``pipeline-bench top``, the watched jobs with their last seconds side by side; and their listing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline_bench.report.layout import fitting
from pipeline_bench.run.watched_jobs import WatchedJob
from pipeline_bench.text import one_line, units
from pipeline_bench.ui import cut, figure_table, sparkline

NOTHING = "No watched job was found: start one with `pipeline-bench run -- python train.py`."
IDLE_S = 10.0
"""A job of which no step has ended for this long is marked: it evaluates, saves, or hangs."""
_FIXED_LINES = 3
"""Title, heads, and the line below the rows."""
_NARROW = 100
_LEAST_NAME, _MOST_NAME = 8, 40
_DROPPED = ("memory", "steps", "device", "wait", "")
"""The columns that go first where there is no room for all."""
_SPARK_GAP = 3
_MOST_STEPS = 1_000_000
"""So many have no room in their column, and are 1.23M."""


def screen(jobs: Sequence[WatchedJob], problems: Sequence[str], width: int, height: int, clock: str) -> RenderableType:
    """Return the current screen, of so many lines at most.

    Args:
        jobs: those that were found.
        problems: why others were not, each in one line.
        width: columns of the terminal.
        height: its lines.
        clock: the time of day.
    """
    below = cut(Text(problems[0] if problems else "q ends", style="yellow" if problems else "dim"), width)
    if not jobs:
        return Group(_title(jobs, clock, width), cut(Text(NOTHING), width), below)
    room = max(1, height - _FIXED_LINES)
    shown, with_history = _fitting(jobs, room)
    left_out = len(jobs) - len(shown)
    if left_out:
        below = cut(Text(f"q ends; … {left_out} more: `pipeline-bench top --once` lists all", style="dim"), width)
    return Group(_title(jobs, clock, width), *_rows(shown, with_history, width), below)


def _fitting(jobs: Sequence[WatchedJob], room: int) -> tuple[Sequence[WatchedJob], bool]:
    """Return the jobs that there is room for, and whether also for their histories."""
    running = sum(job.state == "running" for job in jobs)
    if len(jobs) + running <= room:
        return jobs, True
    if 2 * running <= room:  # rather the histories of those that run than another one that has ended
        return jobs[: room - running], True
    return jobs[:room], False


def _title(jobs: Sequence[WatchedJob], clock: str, width: int) -> Text:
    running = sum(job.state == "running" for job in jobs)
    counts = f"{units.count(running, 'watched job')} running, {len(jobs) - running} ended"
    return cut(Text.assemble(("pipeline-bench top", "bold"), f"  {counts}  ", (clock, "dim")), width)


def _rows(jobs: Sequence[WatchedJob], with_history: bool, width: int) -> Iterator[RenderableType]:
    """Yield a table a job, all of the same columns, each followed by the job's last seconds where there is room."""
    yield _table(width, None)
    for job in jobs:
        yield _table(width, job)
        if with_history and job.state == "running":
            yield cut(_history(job, width), width)


def _table(width: int, job: WatchedJob | None) -> Table:
    """Return a table of one row; of the heads alone where no job is given."""
    columns: list[tuple[str, int, bool]] = [
        ("steps", 9, True),
        ("ms/step", 7, True),
        ("wait", 5, True),
        ("device", 7, True),
        ("host", 5, True),
        ("memory", 8, True),
        ("buffer", 9, True),
        ("", 24, False),
    ]
    if width < _NARROW:  # the buffer's fill is known of the fewest, and the history shows the host
        columns = [("steps", 7, True), *columns[1:4], columns[5], ("", 20, False)]
    shown = fitting({head: cells + 1 for head, cells, _ in columns}, _DROPPED, width - 3 - _LEAST_NAME)
    columns = [column for column in columns if column[0] in shown]
    room = width - sum(cells + 1 for _, cells, _ in columns) - 3
    table = figure_table("job", max(_LEAST_NAME, min(_MOST_NAME, room)), columns, marked=True)
    table.show_header = job is None
    if job is not None:
        cells = _cells(job)
        table.add_row(*_mark(job), *(cells[head] for head, _, _ in columns))
    return table


def _mark(job: WatchedJob) -> tuple[Text, Text]:
    signs = {"running": ("●", "cyan"), "ended": ("✓", "green"), "gone": ("✗", "red")}
    sign, style = signs[job.state]
    return Text(sign, style=style), Text(job.status.name, style="bold" if job.state == "running" else "")


def _cells(job: WatchedJob) -> dict[str, Text]:
    status = job.status
    running = job.state == "running"
    fill = status.buffered
    texts = {
        "steps": f"{status.steps:,}" if status.steps < _MOST_STEPS else units.rate(status.steps),
        "ms/step": units.plain_milliseconds(status.step_ms),
        "wait": units.share(status.input_wait_share),
        "device": units.percent(status.device_percent),
        "host": units.percent(status.host_percent),
        "memory": units.size(status.memory_bytes),
        "buffer": units.NOT_MEASURED if fill is None else f"{fill[0]:.0f}/{fill[1]:.0f}",
    }
    return {
        **{head: Text(text, style="" if running else "dim") for head, text in texts.items()},
        "": Text(state_text(job), style=_style(job)),
    }


def state_text(job: WatchedJob) -> str:
    """Return the job's state, in a few words."""
    if job.state == "gone":
        return "killed"
    if job.is_late:
        return f"silent for {units.clock(job.silent_s)}"
    if job.state == "running" and job.status.idle_s > IDLE_S:
        return f"no step for {units.clock(job.status.idle_s)}"
    return job.status.verdict


def _style(job: WatchedJob) -> str:
    if job.state == "gone" or job.is_late or job.status.severity == "severe":
        return "red"
    return "yellow" if job.status.severity == "bound" else ""


def _history(job: WatchedJob, width: int) -> Text:
    """Return the last seconds of the step, the wait, the device and the host, side by side, the newest at the right."""
    status = job.status
    longest = max((value for value in status.step_history if value is not None), default=0.0)
    steps = tuple(None if value is None or not longest else 100 * value / longest for value in status.step_history)
    series: list[tuple[str, tuple[float | None, ...]]] = [
        ("step", steps),
        ("wait", status.wait_history),
        (status.device if status.device != "CPU" else "its CPU", status.device_history),
        ("host", status.host_history),
    ]
    named = sum(len(name) + 1 for name, _ in series) + _SPARK_GAP * len(series)
    cells = max(4, (width - named - 2) // len(series))
    line = Text("  ")
    for name, values in series:
        line.append(f"{name} ", style="dim")
        line.append(sparkline(values, cells), style="cyan")
        line.append(" " * _SPARK_GAP)
    line.rstrip()
    return line


def listing(jobs: Sequence[WatchedJob], problems: Sequence[str]) -> Iterator[str]:
    """Yield a line a job, whole, for a file or a pipe."""
    for job in jobs:
        yield _line(job)
    if not jobs:
        yield NOTHING
    yield from problems


def _line(job: WatchedJob) -> str:
    status = job.status
    now: list[tuple[str, Any, Any]] = [
        ("now", status.step_ms, units.milliseconds),
        ("input wait", status.input_wait_share, units.share),
        (status.device, status.device_percent, units.percent),
        ("host", status.host_percent, units.percent),
        ("memory", status.memory_bytes, units.size),
    ]
    parts = [f"{name} {show(value)}" for name, value, show in now if value is not None]
    if status.buffered is not None:
        parts.append(f"buffer {status.buffered[0]:.0f} of {status.buffered[1]:.0f}")
    running = job.state == "running"
    state = {"running": "running", "ended": "ended", "gone": "killed"}[job.state]
    if running and state_text(job) != status.verdict:
        state = state_text(job)
    lately = f"; {', '.join(parts)}" if running and parts else ""
    where = f"; session in {status.folder}" if status.folder else ""
    return one_line(f"{status.name}, process {status.pid}, {state}: {status.line}{lately}{where}")
