"""What a variant's trials come to: its figures, its verdict, and what disturbed them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline_bench.model import Count, Record
from pipeline_bench.model.trial import AccuracyPair
from pipeline_bench.text import Line

CPU_TIME = "CPU time"
"""The source of a CPU's device utilization: the trial's CPU time over wall time and cores."""
BUSY_TIME = "emulated device's busy time"
"""The source of an emulated device's utilization: how long it was busy over wall time, nothing that was sampled."""
EMULATED_LABEL = "emul."
"""An emulated device at the head of a column."""
ResultStatus = Literal["pending", "ok", "partial", "failed", "stalled", "interrupted"]
EndedBy = Literal["precision", "decided", "budget", "interrupted"]
"""What ended the adding of rounds."""
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
InconclusiveCause = Literal[
    "too-few-steps", "page-cache", "no-wait", "no-ceiling", "impossible", "only-not-input", "gpu-idle", "at-threshold"
]


Milliseconds = Annotated[float, Field(ge=0, le=1e12)]
"""Of a step. None takes 30 years, and what is computed from a damaged file's must stay finite."""


class StepTime(Record):
    """Milliseconds a step.

    `median` is the median of the trials' medians, `ci95` its interval; `mean` is the mean of their means, which the
    shares are of; the percentiles are over all steps.
    """

    median: Milliseconds | None = None
    mean: Milliseconds | None = None
    p05: Milliseconds | None = None
    p95: Milliseconds | None = None
    ci95: Interval | None = None
    reason: Line | None = None


class Estimate(Record):
    """A figure with its 95 % interval over trials; where either is None, the reason."""

    value: float | None = None
    ci95: Interval | None = None
    impossible: bool = False
    """Whether there is no value because what was measured cannot be."""
    reason: Line | None = None


class Activity(Record):
    """What of a GPU was busy during the measured steps, beneath its utilization."""

    metric: Line
    source: Line | None = None
    mean: float | None = None
    """In the unit that the metric's name ends with."""
    samples: Count = 0
    window_ms: float | None = None
    """What one sample speaks of, the median."""
    coverage: float | None = None
    """How much of the measured time the samples speak of, 0 to 1."""
    reason: Line | None = None


class DeviceUtilization(Record):
    """What the device reports of itself, 0 to 100, over the measured steps; of an emulated one, its busy time."""

    source: Line | None = None
    mean_percent: float | None = None
    ci95: Interval | None = None
    samples: Count = 0
    window_ms: float | None = None
    """What one sample of a GPU's speaks of."""
    coverage: float | None = None
    """How much of the measured time the samples speak of, 0 to 1; of a GPU."""
    activity: tuple[Activity, ...] = ()
    """Of a GPU: what GPM says of its SMs, tensor cores, memory and bus, or why it says nothing."""
    reason: Line | None = None


class Speedup(Record):
    """How many times the throughput of the variant `over`.

    `difference` is what may be claimed, and how surely (`speedups`); `smallest` the least relative difference that this
    run could have found, 0.021 for 2.1 %.
    """

    over: Line | None = None
    value: float | None = None
    ci95: Interval | None = None
    difference: Literal["faster", "slower", "none"] | None = None
    certainty: Literal["certain", "probable"] = "certain"
    smallest: float | None = None
    reason: Line | None = None


class DeviceCopy(Record):
    """The copy of a batch from host memory to the model's device, by the step of a ceiling that makes it (`copies`)."""

    ms: Estimate = Estimate()
    """What it adds to a step that does not overlap it with anything."""
    share: Estimate = Estimate()
    """The same as a share of this variant's step, a part of its host slowdown; None where it copies ahead of the step.
    """
    overlapped_share: Estimate = Estimate()
    """The least share of the copy that is hidden behind the step, 0 to 1; None where the step makes the copy."""
    gain: Speedup = Speedup()
    """Of a variant that copies ahead: its throughput over that of the same variant whose step copies."""

    @classmethod
    def without(cls, reason: str) -> DeviceCopy:
        """Return what is known of a copy that was not measured."""
        none = Estimate(reason=reason)
        return cls(ms=none, share=none, overlapped_share=none, gain=Speedup(reason=reason))


class WorkCheck(Record):
    """Whether a variant trained on the samples that it should, in one plain sentence."""

    status: Literal["equal", "unequal", "not-checked"] = "not-checked"
    text: Line = ""


class Disturbance(Record):
    """Something that is not of the variant, and disturbed one of its trials.

    `cost_share` is about how much of the trial's measured time it took, 0 to 1; None where that is not known.
    """

    kind: DisturbanceKind
    variant: Line
    repeat: Count
    cost_share: float | None = None
    text: Line


class Precision(Record):
    """Until when rounds of trials were added, and what ended that."""

    goal: float | None
    """The half-width of every speed-up's interval, relative: 0.02 for 2 %; None: until everything is decided."""
    budget_s: float
    repeats: Count = 0
    ended_by: EndedBy | None = None
    text: Line = ""


class Doubt(Record):
    """What keeps a verdict from being certain: a figure whose interval does not lie on one side of its line."""

    figure: ShareName
    likeliest: VerdictKind | None = None
    """The most probable kind; None in a file that was written before this was kept."""
    low: float
    high: float
    line: float | None = None
    """Where the figure decides; None where it decides by being more or less than the other part of the step."""
    instead: tuple[VerdictKind, ...] = ()
    """The other kinds that are plausible, the most probable first."""
    rounds: Count
    """How many the interval is over; 0 of a watched job, whose interval is over its steps."""
    taken_share: float = 0.0
    """What other work took of the CPU meanwhile, 0 to 1."""


class Verdict(Record):
    """What limits a variant. `severe` only for a bound that is."""

    kind: VerdictKind
    certainty: Literal["certain", "probable"] = "certain"
    """Of an inconclusive verdict, how sure it is that the input is no limit, where its cause says so."""
    severe: bool = False
    doubt: Doubt | None = None
    """Of a probable verdict, and of none that was given because more than one is plausible."""
    cause: InconclusiveCause | None = None
    """Of an inconclusive verdict, where it is not the doubt alone. ``page-cache``: the files were not cached as asked.
    ``impossible``: its wait and its ceiling together exceed its step. ``only-not-input``: a job without a ceiling,
    whose input is not the limit. ``gpu-idle``: the same, and the GPU runs no kernel for most of the time.
    ``at-threshold``: a job without a ceiling, whose input wait may lie on either side of its threshold."""
    text: Line
    """The verdict, its doubt and its reason in one plain sentence."""
    reason: Line = ""
    """The figures or the cause behind it: a clause, for where the verdict itself and its doubt are shown."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_file(cls, data: Any) -> Any:
        """Cut the reason from the sentence of a file that was written before version 10."""
        if not isinstance(data, dict) or "reason" in data or "text" not in data:
            return data
        text, severely = str(data["text"]), "severely " if data.get("severe") else ""
        _, found, after_doubt = text.partition("): ")
        is_probable = data.get("certainty") == "probable" and found
        reason = after_doubt if is_probable else text.removeprefix(f"{severely}{data.get('kind')}: ")
        return {**data, "reason": reason.removeprefix("was not measured: ").removesuffix(".")}


class PublishedComparison(Record):
    """An author's figures beside ours, for the same number of steps."""

    seconds: float | None = None
    our_seconds: float | None = None
    seconds_ratio: float | None = None
    """Ours over theirs."""
    device_utilization_percent: float | None = None
    our_device_utilization_percent: float | None = None
    device_utilization_ratio: float | None = None
    scaled_from_steps: int | None = None
    """Our steps a trial, on average, where our time was scaled up or down to the author's number of steps."""


class Result(Record):
    """One variant's figures over its trials, by `analysis.results`; of a watched job by `monitoring.record`."""

    variant: Line
    backend: Line
    emulated: Line | None = None
    """The device that its model emulates, by name; None where it computed."""
    status: ResultStatus
    reason: Line | None = None
    trials: Count = 0
    """How many trials the figures are over."""
    steps: Count = 0
    """How many measured steps the figures are over, warm-up excluded."""
    warmup_steps: tuple[Count, ...] = ()
    step_ms: StepTime = StepTime()
    samples_per_second: float | None = None
    samples_per_second_ci95: Interval | None = None
    input_wait_ms: Estimate = Estimate()
    input_wait_share: Estimate = Estimate()
    host_slowdown_ms: Estimate = Estimate()
    host_slowdown_share: Estimate = Estimate()
    ceiling_ms: Estimate = Estimate()
    device_copy: DeviceCopy = DeviceCopy()
    accelerator_utilization: Estimate = Estimate()
    device_utilization: DeviceUtilization = DeviceUtilization()
    speedup: Speedup = Speedup()
    against_fastest: Speedup = Speedup()
    """How many times the throughput of the variant that was measured to be the fastest."""
    work: WorkCheck = WorkCheck()
    loss: float | None = None
    accuracy: AccuracyPair = AccuracyPair()
    missing: dict[Line, Line] = Field(default_factory=dict)
    """Why a plain field of this result (`loss`, `samples_per_second`, `accuracy`) is null, by its name."""
    published: PublishedComparison | None = None
    verdict: Verdict
