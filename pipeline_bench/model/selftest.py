"""What a selftest found: what was planted, what was measured, how far to believe the program; the last one is kept."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline_bench.model import Record, Series
from pipeline_bench.model.trial import Track
from pipeline_bench.system.files import read_text, write_atomically
from pipeline_bench.system.user_folders import user_folder
from pipeline_bench.text import Line

Unit = Literal["share", "ratio", "ms", "percent", "us", "cores", "mib_per_s", "word"]
PartStatus = Literal["passed", "failed", "shown", "disturbed", "not-run"]
"""``shown``: it was measured, and nothing says what is right. ``disturbed``: it did not pass, beside other work that
left too little of the CPU to decide."""


class Check(Record):
    """One figure that was planted, and what the program said of it; `word` for what is no number.

    Where the truth is not known, `planted_word` of a number is the direction that is expected: ``> 31.0 %``.
    """

    what: Line
    figure: Line
    unit: Unit
    planted: float | None = None
    measured: float | None = None
    planted_word: Line = ""
    measured_word: Line = ""
    error: float | None = None
    """Measured less planted, in the unit; of a ratio relative."""
    limit: float | None = None
    """The error that it passes with."""
    passed: bool | None = None
    """None where it was not measured, or is shown beside the others and judged by none."""
    reason: Line | None = None

    @property
    def excess(self) -> float:
        """How much of what passes the error is."""
        if self.error is None or not self.limit:
            return 0.0 if self.passed else float("inf")
        return abs(self.error) / self.limit


class Part(Record):
    """A part of the selftest: checks that fail for one reason, and what a failure means for reports."""

    name: Line
    status: PartStatus
    meaning: Line
    checks: tuple[Check, ...] = ()
    taken_share: float | None = None
    """What other work took of the machine's CPU meanwhile, 0 to 1."""
    seconds: float | None = None
    reason: Line | None = None
    """Why it was not run, or what it raised."""

    @property
    def worst(self) -> Check | None:
        """The check that is farthest beyond its limit, or closest to it, a figure first; None: nothing was judged."""
        judged = [check for check in self.checks if check.passed is not None]
        return max(judged, key=lambda check: (check.excess, check.unit != "word"), default=None)


class GpuRun(Record):
    """A load of known busy time on a GPU, as the device timed it, and what NVML said meanwhile."""

    name: Line
    kernel: Line
    """``wide`` on every SM, ``one-SM``, ``tensor``, ``copy in memory``, ``copy to the device``."""
    period_ms: float | None = None
    asked_share: float | None = None
    busy_share: float | None = None
    """Of the time from `start_ns` to `end_ns`, 0 to 1, by the device's own events."""
    start_ns: int
    end_ns: int
    busy_start_ns: Series | None = None
    busy_end_ns: Series | None = None
    bytes_moved: int | None = None
    tracks: tuple[Track, ...] = ()
    reason: Line | None = None


class Window(Record):
    """The averaging window of one source of NVML's utilization: its length, and how long before its stamp it ends."""

    source: Line
    window_ms: float | None = None
    latency_ms: float | None = None
    """From the end of the window to the stamp of the sample."""
    period_ms: float | None = None
    """Between two new figures, the median."""
    error_points: float | None = None
    """95 of 100 runs came this close to the device's own time in the very windows of their figures, in points."""
    figure_points: float | None = None
    """The same of single figures: a mean of few is no better than these allow."""
    runs: int = 0
    reason: Line | None = None


class Copy(Record):
    """A copy to the device of a known size: how long it took, and what of it a kernel that ran meanwhile hid."""

    size_bytes: int
    memory: Literal["pinned", "pageable"]
    device_ms: float | None = None
    """By the device's events around it."""
    wall_ms: float | None = None
    """Until the host knew that it was over."""
    call_ms: float | None = None
    """Until the call came back: the host does nothing else meanwhile, also where a kernel hides the copy."""
    hidden_share: float | None = None
    """Of its time, beside a kernel on another stream, 0 to 1."""
    reason: Line | None = None


class Selftest(Record):
    """A selftest of the program, on one machine at one time."""

    quick: bool = False
    parts: tuple[Part, ...] = ()
    bare_ms: dict[Line, float] = Field(default_factory=dict)
    """What a bare step takes on the machine, by the emulated device's ms a step, without the program."""
    gpu_runs: tuple[GpuRun, ...] = ()
    windows: tuple[Window, ...] = ()
    copies: tuple[Copy, ...] = ()

    @property
    def failed(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.status == "failed")


class Checked(Record):
    """The last selftest of this machine as a session cites it, or that there was none."""

    at: Line | None = None
    """When, ISO 8601; None: this machine was never checked."""
    quick: bool = False
    package: Line | None = None
    cpu: Line | None = None
    gpu: Line | None = None
    """The first GPU that NVML lists, by name; None without one."""
    driver: Line | None = None
    other_driver: bool = False
    """Whether the driver was another one than that of the session that cites it."""
    wait_error: float | None = None
    """The largest error of an input wait, as a share of the step, 0.02 for 2 points."""
    utilization_error: float | None = None
    """The largest error of AU, likewise."""
    cost_share: float | None = None
    """What measuring made a step longer by, 0.006 for 0.6 %."""
    failed: tuple[Line, ...] = ()
    """The parts that failed, by name."""
    disturbed: tuple[Line, ...] = ()
    """Those that other work left undecided."""
    windows: tuple[Window, ...] = ()
    windows_at: Line | None = None
    """When these were found, where that was not `at`: by a selftest that was interrupted, or by an earlier one."""

    @property
    def usable_windows(self) -> tuple[Window, ...]:
        """Those that hold for the driver of the session that cites this: none where it is another."""
        return () if self.other_driver else self.windows

    def after(self, last: Checked, ended: bool) -> Checked:
        """Return what is remembered of this one and the last of the same machine, whose worth a lesser one leaves.

        Without its end it has nothing to say but windows. A quick one replaces no full one of the same driver and
        version, unless it failed; nor its windows. What found no window leaves the last one's.
        """
        if last.at is None or last.other_driver:
            return self
        lesser = self.quick and not last.quick
        found = {window.source: window for window in self.windows if window.error_points is not None}
        known = {window.source: window for window in last.windows if window.error_points is not None}
        kept = known if known and (lesser or not found) else {**known, **found}
        at = (last.windows_at or last.at) if kept == known else self.at
        stays = not ended or (lesser and not self.failed and self.package == last.package)
        base = last if stays else self
        windows = tuple(kept.values()) or base.windows
        return base.model_copy(update={"windows": windows, "windows_at": None if at == base.at else at})


_LARGEST_FILE_BYTES = 1 << 20


def last_file(cpu: str, gpu: str | None) -> Path:
    """Return where it is kept: in the user's state, not among the sessions, which come and go with a project.

    Machines that share a home folder each have their own, by what they measure with; a container's host name is new
    with every start, and is no part of it.

    Raises:
        RuntimeError: this user has no home folder, as in a container with a number of its own and without `HOME`.
    """
    machine = hashlib.sha256(f"{cpu}\n{gpu or ''}".encode()).hexdigest()[:12]
    return user_folder("state") / f"selftest-{machine}.json"


def keep_last(checked: Checked, *, ended: bool = True) -> None:
    """Remember a selftest beside what the last one of the machine was better for (`Checked.after`).

    Where the user's state cannot be written, it is not remembered.
    """
    with suppress(OSError, RuntimeError):
        path = last_file(checked.cpu or "", checked.gpu)
        path.parent.mkdir(parents=True, exist_ok=True)
        last = last_selftest(checked.driver, checked.cpu or "", checked.gpu)
        write_atomically(path, checked.after(last, ended).to_json())


def last_selftest(driver: str | None, cpu: str, gpu: str | None) -> Checked:
    """Return the last one of this machine, or that there was none.

    Args:
        driver: NVIDIA's, as it is now; None where there is none.
        cpu: this machine's.
        gpu: its first GPU, by name; None where there is none.
    """
    try:
        found = Checked.model_validate_json(read_text(last_file(cpu, gpu), _LARGEST_FILE_BYTES, regular=True))
    except (OSError, ValueError, RuntimeError):
        return Checked()
    return found.model_copy(update={"other_driver": found.driver != driver})
