"""A session: everything of one run, and the JSON file that every view is rendered from.

The file is a contract (docs/session.md). What was not measured is None with a reason, never 0.

History of `schema_version`; every version up to this one can be read:
    1   the first
    2   adds, each with a default: a trial's `work` and `queue_depths`; a result's `work` and `samples_per_second_ci95`;
        a device utilization's `ci95`; a speed-up's `difference` and `smallest`; a session's `disturbances` and
        `precision`; the verdict `unequal-work`
    3   adds, each with a default: what reads real files and what emulates a device leaves
    4   adds, each with a default: the `diagnosis` of a user's own pipeline; a trial's `inspection`, `fingerprint` and
        `traceback`; `watched` for a session that was kept by a job itself
    5   adds, each with a default: a trial's `placement`; of a scenario's runtime `cpu_devices`, `replicas`,
        `replication`, `synchronous` and `log_placement`
    6   adds, each with a default: a verdict's `certainty` and `doubt`; a speed-up's `certainty`; a result's
        `against_fastest`; an estimate's `impossible`; a
        `precision` may have no goal: until everything is decided
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline_bench import kept, plugins, reading
from pipeline_bench.diagnosed import Diagnosis
from pipeline_bench.errors import SessionError
from pipeline_bench.events import Device, Placement, QueueState, Stack, Storage, Work
from pipeline_bench.files import write_atomically
from pipeline_bench.kept import SESSION_FILE
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.series import Series
from pipeline_bench.text import Text, to_json, units
from pipeline_bench.user_pipeline import Fingerprint, Inspection

SCHEMA_VERSION = 6
_LARGEST_BYTES = 1 << 30
"""Of a session's file. An hour of steps of 1 ms takes less than a tenth of it."""
_UNPACKED_BYTES = 1 << 30
_UNPACKED_TIMES = 16
"""What a session's columns may unpack to: so much, or as many times its file's size. Times of steps are noise, which
zlib halves at best; a column of one value repeated shrinks a thousandfold."""
CPU_TIME = "CPU time"
"""The source of a CPU's device utilization: the trial's CPU time over wall time and cores."""
BUSY_TIME = "emulated device's busy time"
"""The source of an emulated device's utilization: how long it was busy over wall time, nothing that was sampled."""
EMULATED_LABEL = "emul."
"""An emulated device at the head of a column."""

TrialStatus = Literal["ok", "failed", "stalled", "interrupted"]
ResultStatus = Literal["pending", "ok", "partial", "failed", "stalled", "interrupted"]
VerdictKind = Literal[
    "input-bound", "host-bound", "compute-bound", "mixed", "ceiling", "inconclusive", "unequal-work", "not-measured"
]
DisturbanceKind = Literal[
    "burst",
    "drift",
    "slow-start",
    "cpu-contention",
    "steal",
    "cpu-throttling",
    "gpu-contention",
    "gpu-throttling",
    "gpu-clock",
]
Interval = tuple[float, float]
ShareName = Literal["input wait", "host slowdown", "accelerator utilization"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Track(_Record):
    """One metric over a trial, as a sampler saw it. `source` names the instrument; an absent metric has a `reason`."""

    metric: Text
    source: Text
    at_ns: Series | None = None
    values: Series | None = None
    reason: Text | None = None


class PhaseMark(_Record):
    """When a part of a trial began (``time.monotonic_ns``)."""

    name: Text
    at_ns: int


class TrialSteps(_Record):
    """Every step of a trial, warm-up included; see `events.Steps` for the columns."""

    start_ns: Series
    end_ns: Series
    wait_ns: Series | None
    busy_ns: Series | None = None
    loss: Series

    @property
    def count(self) -> int:
        """How many steps ended."""
        return self.start_ns.count


class AccuracyPair(_Record):
    """Share of right answers, 0 to 1, before the first step and after the last."""

    before: float | None = None
    after: float | None = None


class QueueDepth(_Record):
    """How many elements a queue of the input held over a trial, of `capacity`."""

    name: Text
    capacity: int
    at_ns: Series
    size: Series


class TrialRecord(_Record):
    """What one trial left: its end, its steps, its samples, and what it wrote to stderr."""

    index: int
    variant: Text
    repeat: int
    status: TrialStatus
    reason: Text | None = None
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
    queue_depths: tuple[QueueDepth, ...] = ()
    work: Work | None = None
    storage: Storage | None = None
    """What was in the page cache, of a source that reads files."""
    placement: Placement | None = None
    """Which op ran on which device, in a trial that was asked for it."""
    inspection: Inspection | None = None
    """Of a user's own pipeline, in the trial that looked at it."""
    fingerprint: Fingerprint | None = None
    """Which samples a user's own pipeline gave, in the trial that was asked for it."""
    queues: tuple[QueueState, ...] = ()
    stacks: tuple[Stack, ...] = ()
    traceback: Text = ""
    """Of an exception in the user's own code, from their first frame down."""
    stderr_tail: Text = ""
    stderr_file: Text | None = None

    @property
    def measured(self) -> bool:
        """Whether it ended well and has steps after its warm-up, so that figures are taken of it."""
        return self.status == "ok" and self.steps is not None and self.steps.count > self.warmup_steps


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
    reason: Text | None = None


class Estimate(_Record):
    """A figure with its 95 % interval over trials; where either is None, the reason."""

    value: float | None = None
    ci95: Interval | None = None
    impossible: bool = False
    """Whether there is no value because what was measured cannot be."""
    reason: Text | None = None


class DeviceUtilization(_Record):
    """What the device reports of itself, 0 to 100, over the measured steps; of an emulated one, its busy time."""

    source: Text | None = None
    mean_percent: float | None = None
    ci95: Interval | None = None
    samples: int = 0
    reason: Text | None = None


class Speedup(_Record):
    """How many times the throughput of the variant `over`.

    `difference` is what may be claimed, and how surely (`speedups`); `smallest` the least relative difference that this
    run could have told from none, 0.021 for 2.1 %.
    """

    over: Text | None = None
    value: float | None = None
    ci95: Interval | None = None
    difference: Literal["faster", "slower", "none"] | None = None
    certainty: Literal["certain", "probable"] = "certain"
    smallest: float | None = None
    reason: Text | None = None


class WorkCheck(_Record):
    """Whether a variant trained on the samples that it should, in one plain sentence."""

    status: Literal["equal", "unequal", "not-checked"] = "not-checked"
    text: Text = ""


class Disturbance(_Record):
    """Something that is not of the variant, and disturbed one of its trials.

    `cost_share` is about how much of the trial's measured time it took, 0 to 1; None where that cannot be told.
    """

    kind: DisturbanceKind
    variant: Text
    repeat: int
    cost_share: float | None = None
    text: Text


class Precision(_Record):
    """Until when rounds of trials were added, and what ended that."""

    goal: float | None
    """The half-width of every speed-up's interval, relative: 0.02 for 2 %; None: until everything is decided."""
    budget_s: float
    repeats: int = 0
    ended_by: Literal["precision", "decided", "budget", "interrupted"] | None = None
    text: Text = ""


class Doubt(_Record):
    """What keeps a verdict from being certain: a figure whose interval does not lie on one side of its line."""

    figure: ShareName
    low: float
    high: float
    line: float | None = None
    """Where the figure decides; None where it decides by being more or less than the other part of the step."""
    instead: tuple[VerdictKind, ...] = ()
    """The other kinds that are plausible, the most probable first."""
    rounds: int
    taken_share: float = 0.0
    """What other work took of the CPU meanwhile, 0 to 1."""


class Verdict(_Record):
    """What limits a variant, in one plain sentence. `severe` only for a bound that is."""

    kind: VerdictKind
    certainty: Literal["certain", "probable"] = "certain"
    severe: bool = False
    doubt: Doubt | None = None
    """Of a probable verdict, and of none that was given because more than one is plausible."""
    text: Text


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

    variant: Text
    backend: Text
    emulated: Text | None = None
    """The device that its model emulates, by name; None where it computed."""
    status: ResultStatus
    reason: Text | None = None
    trials: int = 0
    """How many trials the figures are over."""
    steps: int = 0
    """How many measured steps the figures are over, warm-up excluded."""
    warmup_steps: tuple[int, ...] = ()
    step_ms: StepTime = StepTime()
    samples_per_second: float | None = None
    samples_per_second_ci95: Interval | None = None
    input_wait_ms: Estimate = Estimate()
    input_wait_share: Estimate = Estimate()
    host_slowdown_ms: Estimate = Estimate()
    host_slowdown_share: Estimate = Estimate()
    ceiling_ms: Estimate = Estimate()
    accelerator_utilization: Estimate = Estimate()
    device_utilization: DeviceUtilization = DeviceUtilization()
    speedup: Speedup = Speedup()
    against_fastest: Speedup = Speedup()
    """How many times the throughput of the variant that was measured to be the fastest."""
    work: WorkCheck = WorkCheck()
    loss: float | None = None
    accuracy: AccuracyPair = AccuracyPair()
    missing: dict[Text, Text] = {}
    """Why a plain field of this result (`loss`, `samples_per_second`, `accuracy`) is null, by its name."""
    published: PublishedComparison | None = None
    verdict: Verdict


class Environment(_Record):
    """The machine and the versions that the figures were measured with."""

    accelerator_kind: Literal["gpu", "cpu", "emulated"]
    """``emulated`` where every variant's model emulates its device."""
    accelerator_name: Text
    accelerator_reason: Text | None = None
    """Why there is no GPU, or none that can be read, in one line."""
    driver: Text | None = None
    tensorflow: Text | None = None
    python: Text
    platform: Text
    cpu: Text
    cores: Annotated[int, Field(ge=1, le=2**20)]
    memory_bytes: int
    package: Text


class Session(_Record):
    """One run of a scenario."""

    schema_version: Literal[1, 2, 3, 4, 5, 6] = 6
    started_at: Text
    """ISO 8601 with the zone."""
    command: Text = ""
    scenario: Scenario
    environment: Environment
    notes: tuple[Text, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    results: tuple[Result, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()
    precision: Precision | None = None
    diagnosis: Diagnosis | None = None
    """Of a session that diagnosed a user's own pipeline."""
    watched: bool = False
    """Whether a training job kept this session of itself: one trial, no ceiling beside it."""

    def __repr__(self) -> str:
        """Short, for a Python prompt; `to_json` has all of it."""
        trials, variants = units.count(len(self.trials), "trial"), units.count(len(self.results), "variant")
        return f"<Session {self.scenario.name!r}: {trials} of {variants}>"

    def __str__(self) -> str:
        """The table and all else that the terminal shows, without colours."""
        return plugins.renderer("text")(self)  # see `_repr_html_`

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

    @property
    def device_label(self) -> str:
        """The device at the head of a column: ``CPU``, ``GPU``, ``emul.``; ``mixed`` where some emulate it only."""
        kind = self.environment.accelerator_kind
        if kind == "emulated":
            return EMULATED_LABEL
        return "mixed" if any(result.emulated for result in self.results) else kind.upper()

    def to_json(self) -> str:
        """The file's content."""
        return to_json(self, indent=1) + "\n"

    def _repr_html_(self) -> str:
        """The session as a notebook shows it: the conclusion, the verdicts, and the figures as a table."""
        # A notebook knows nothing but this method, and reports stand above the session: it is found when it is needed.
        return plugins.renderer("notebook")(self)


def save(session: Session, folder: Path) -> Path:
    """Write ``session.json`` atomically: a reader sees the old file or the new one, whole.

    Raises:
        SessionError: the folder cannot be written.
    """
    path = folder / SESSION_FILE
    try:
        write_atomically(path, session.to_json())
    except OSError as error:
        reason = error.strerror or str(error)
        raise SessionError(
            f"{path} cannot be written: {reason}.", "Free some space or choose another --out."
        ) from error
    return path


def load(path: Path | str) -> Session:
    """Read a session from its file, from the folder that holds it, or by a word: ``last``, ``last~1`` (see `kept`).

    Raises:
        SessionError: there is no such file, it or a column in it is damaged, or a newer version of this program wrote
            it.
    """
    file = kept.find(path)
    try:
        if file.is_dir():
            file /= SESSION_FILE
        text = reading.whole_file(file, _LARGEST_BYTES)
    except (OSError, ValueError) as error:
        raise SessionError(
            f"{file} cannot be read: {reading.why(error)}.", "Give a session.json or the folder that holds it."
        ) from error
    try:
        session = Session.model_validate_json(text)
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
    _verify(session, file, max(_UNPACKED_BYTES, _UNPACKED_TIMES * len(text)))
    return session.model_copy(update={"schema_version": SCHEMA_VERSION})


def _verify(session: Session, file: Path, most_bytes: int) -> None:
    """See that every packed column can be unpacked, and that all of them together are no more than that.

    Raises:
        SessionError: one cannot, or they are.
    """
    unpacked_bytes = sum(column.unpacked_bytes for _, column in _columns(session))
    if unpacked_bytes > most_bytes:
        raise SessionError(
            f"{file} is damaged: its columns would unpack to {units.size(unpacked_bytes)}, "
            f"and those of a session of its size to {units.size(most_bytes)} at most.",
            "Give an undamaged session.json.",
        )
    for name, column in _columns(session):
        try:
            column.unpack()
            if name.endswith("_ns") and not column.dtype.endswith("i8"):
                raise ValueError(f"times are whole nanoseconds, and not {column.dtype}")
        except ValueError as error:
            raise SessionError(f"{file} is damaged: {name}: {error}.", "Give an undamaged session.json.") from None


def _columns(session: Session) -> Iterator[tuple[str, Series]]:
    """Every packed column of a session, and where it stands."""
    for trial in session.trials:
        where = f"{trial.variant}, repeat {trial.repeat + 1}"
        for track in trial.samples:
            yield from _columns_of(f"{where}: samples of {track.metric}", track)
        for queue in trial.queue_depths:
            yield from _columns_of(f"{where}: depths of the queue {queue.name}", queue)
        if trial.steps is not None:
            yield from _columns_of(f"{where}: steps", trial.steps)
        yield from _tuned_columns(f"{where}: AUTOTUNE's", trial.inspection)
    if session.diagnosis is not None:
        yield from _tuned_columns("the diagnosis: AUTOTUNE's", session.diagnosis.inspection)


def _tuned_columns(where: str, inspection: Inspection | None) -> Iterator[tuple[str, Series]]:
    for tuned in inspection.tuned if inspection is not None else ():
        yield from _columns_of(f"{where} {tuned.parameter} of {tuned.node}", tuned)


def _columns_of(where: str, record: BaseModel) -> Iterator[tuple[str, Series]]:
    for field in type(record).model_fields:
        if isinstance(column := getattr(record, field), Series):
            yield f"{where}, {field}", column
