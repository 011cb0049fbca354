"""A session: everything of one run, and the JSON file that every view is rendered from.

The file is a contract (docs/session.md). What was not measured is None with a reason, never 0.

History of `schema_version`:
    1   the first
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline_bench.errors import SessionError
from pipeline_bench.events import Device, QueueState, Stack
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.series import Series

SCHEMA_VERSION = 1
SESSION_FILE = "session.json"
CPU_TIME = "CPU time"
"""The source of a CPU's device utilization: the trial's CPU time over wall time and cores."""

TrialStatus = Literal["ok", "failed", "stalled", "interrupted"]
ResultStatus = Literal["pending", "ok", "partial", "failed", "stalled", "interrupted"]
VerdictKind = Literal["input-bound", "host-bound", "compute-bound", "mixed", "ceiling", "inconclusive", "not-measured"]
Interval = tuple[float, float]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Track(_Record):
    """One metric over a trial, as a sampler saw it. `source` names the instrument; an absent metric has a `reason`."""

    metric: str
    source: str
    at_ns: Series | None = None
    values: Series | None = None
    reason: str | None = None


class PhaseMark(_Record):
    """When a part of a trial began (``time.monotonic_ns``)."""

    name: str
    at_ns: int


class TrialSteps(_Record):
    """Every step of a trial, warm-up included; see `events.Steps` for the columns."""

    start_ns: Series
    end_ns: Series
    wait_ns: Series | None
    loss: Series

    @property
    def count(self) -> int:
        """How many steps ended."""
        return self.start_ns.count


class AccuracyPair(_Record):
    """Share of right answers, 0 to 1, before the first step and after the last."""

    before: float | None = None
    after: float | None = None


class TrialRecord(_Record):
    """What one trial left: its end, its steps, its samples, and what it wrote to stderr."""

    index: int
    variant: str
    repeat: int
    status: TrialStatus
    reason: str | None = None
    launcher: Literal["forkserver", "fresh"] = "fresh"
    started_ns: int
    ended_ns: int
    first_step_s: float | None = None
    """Seconds from the start of the process to the end of its first step."""
    warmup_steps: int = 0
    steps: TrialSteps | None = None
    accuracy: AccuracyPair = AccuracyPair()
    device: Device | None = None
    phases: tuple[PhaseMark, ...] = ()
    samples: tuple[Track, ...] = ()
    queues: tuple[QueueState, ...] = ()
    stacks: tuple[Stack, ...] = ()
    stderr_tail: str = ""
    stderr_file: str | None = None


class StepTime(_Record):
    """Milliseconds a step.

    `median` is the median of the trials' medians, `ci95` its interval; `mean` is the mean of their means, which the
    shares are of; the percentiles are over all steps.
    """

    median: float | None = None
    mean: float | None = None
    p05: float | None = None
    p95: float | None = None
    ci95: Interval | None = None
    reason: str | None = None


class Estimate(_Record):
    """A figure with its 95 % interval over trials; where either is None, the reason."""

    value: float | None = None
    ci95: Interval | None = None
    reason: str | None = None


class DeviceUtilization(_Record):
    """What the device reports of itself, 0 to 100, over the measured steps."""

    source: str | None = None
    mean_percent: float | None = None
    samples: int = 0
    reason: str | None = None


class Speedup(_Record):
    """How many times the throughput of the variant `over`."""

    over: str | None = None
    value: float | None = None
    ci95: Interval | None = None
    reason: str | None = None


class Verdict(_Record):
    """What limits a variant, in one plain sentence. `severe` only for a bound that is."""

    kind: VerdictKind
    severe: bool = False
    text: str


class PublishedComparison(_Record):
    """An author's figures beside ours, for the same number of steps."""

    seconds: float | None = None
    our_seconds: float | None = None
    seconds_ratio: float | None = None
    """Ours over theirs."""
    device_utilization_percent: float | None = None
    our_device_utilization_percent: float | None = None
    device_utilization_ratio: float | None = None
    scaled_from_steps: int | None = None
    """Our steps a trial, where our time was scaled up or down to the author's number of steps."""


class Result(_Record):
    """One variant's figures over its trials."""

    variant: str
    backend: str
    status: ResultStatus
    reason: str | None = None
    trials: int = 0
    """How many trials the figures are over."""
    steps: int = 0
    """How many measured steps the figures are over, warm-up excluded."""
    warmup_steps: tuple[int, ...] = ()
    step_ms: StepTime = StepTime()
    samples_per_second: float | None = None
    input_wait_ms: Estimate = Estimate()
    input_wait_share: Estimate = Estimate()
    host_slowdown_ms: Estimate = Estimate()
    host_slowdown_share: Estimate = Estimate()
    ceiling_ms: Estimate = Estimate()
    accelerator_utilization: Estimate = Estimate()
    device_utilization: DeviceUtilization = DeviceUtilization()
    speedup: Speedup = Speedup()
    loss: float | None = None
    accuracy: AccuracyPair = AccuracyPair()
    missing: dict[str, str] = {}
    """Why a plain field of this result (`loss`, `samples_per_second`, `accuracy`) is null, by its name."""
    published: PublishedComparison | None = None
    verdict: Verdict


class Environment(_Record):
    """The machine and the versions that the figures were measured with."""

    accelerator_kind: Literal["gpu", "cpu"]
    accelerator_name: str
    accelerator_reason: str | None = None
    """Why there is no GPU, or none that can be read, in one line."""
    driver: str | None = None
    tensorflow: str | None = None
    python: str
    platform: str
    cpu: str
    cores: int
    memory_bytes: int
    package: str


class Session(_Record):
    """One run of a scenario."""

    schema_version: Literal[1] = 1
    started_at: str
    """ISO 8601 with the zone."""
    command: str = ""
    scenario: Scenario
    environment: Environment
    notes: tuple[str, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    results: tuple[Result, ...] = ()

    def result(self, variant: str | Variant) -> Result:
        """The result of a variant.

        Raises:
            KeyError: the session has none.
        """
        name = variant if isinstance(variant, str) else variant.name
        for result in self.results:
            if result.variant == name:
                return result
        raise KeyError(name)

    def to_json(self) -> str:
        """The file's content."""
        return self.model_dump_json(indent=1) + "\n"


def save(session: Session, folder: Path) -> Path:
    """Write ``session.json`` atomically: a reader sees the old file or the new one, whole.

    Raises:
        SessionError: the folder cannot be written.
    """
    path = folder / SESSION_FILE
    try:
        handle, temporary = tempfile.mkstemp(prefix=".session-", suffix=".json", dir=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(session.to_json())
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SessionError(f"{path} cannot be written: {error}.", "Free some space or choose another --out.") from error
    return path


def load(path: Path | str) -> Session:
    """Read a session from its file, or from the folder that holds it.

    Raises:
        SessionError: there is no such file, it is damaged, or a newer version of this program wrote it.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file /= SESSION_FILE
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SessionError(
            f"{file} cannot be read: {error}.", "Give a session.json or the folder that holds it."
        ) from error
    try:
        return Session.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        if place == "schema_version" and isinstance(problem.get("input"), int) and problem["input"] > SCHEMA_VERSION:
            raise SessionError(
                f"{file} has schema version {problem['input']}; this program reads up to {SCHEMA_VERSION}.",
                "Upgrade pipeline-bench.",
            ) from None
        raise SessionError(
            f"{file} is no session, or a damaged one: {place or 'the file'}: {problem['msg']}.",
            "Give an undamaged session.json.",
        ) from None
