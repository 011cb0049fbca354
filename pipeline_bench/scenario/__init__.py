"""The types of a scenario: what to compare, resolved, immutable, every default filled in.

`pipeline_bench.scenario.load` makes one from a TOML file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline_bench import plugins
from pipeline_bench.text import Line, MadeSafe, Text

Replication = Literal["in_graph", "between_graph", "mirrored"]
Name = Annotated[str, Field(min_length=1), MadeSafe(line=True)]
PositiveInt = Annotated[int, Field(ge=1, le=10**9)]
PositiveSeconds = Annotated[float, Field(gt=0, le=10**7, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Component(_Part):
    """A plug-in by kind, with every option of it spelled out."""

    kind: Line
    options: dict[Text, Any] = {}


class Runtime(_Part):
    """Where the model runs and with how many threads. 0 threads means TensorFlow's choice: one per core."""

    device: Annotated[str, Field(pattern=r"^(auto|cpu|gpu(:[0-9]+)?)$", description="auto, cpu, gpu or gpu:N")] = "auto"
    intra_op_threads: Annotated[int, Field(ge=0, le=4096)] = 0
    inter_op_threads: Annotated[int, Field(ge=0, le=4096)] = 0
    memory_growth: bool = True
    cpu_devices: Annotated[
        int, Field(ge=1, le=64, description="CPU devices that TensorFlow sees; they share the machine's cores")
    ] = 1
    replicas: Annotated[int, Field(ge=1, le=64, description="copies of the model that share each batch's work")] = 1
    replication: Annotated[
        Replication, Field(description="in_graph, between_graph or mirrored: how the copies work together")
    ] = "in_graph"
    synchronous: Annotated[
        bool, Field(description="whether between_graph workers wait for each other's gradients at every step")
    ] = True
    log_placement: Annotated[bool, Field(description="whether a trial says which op ran on which device")] = False

    @property
    def is_replicated(self) -> bool:
        """Whether the model is built in copies, or by MirroredStrategy, which may have a single device."""
        return self.replicas > 1 or self.replication == "mirrored"


class Run(_Part):
    """How long a trial trains, how often each variant is repeated, and when a trial counts as stalled."""

    steps: PositiveInt | None = None
    time_s: PositiveSeconds | None = None
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 3
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    stall_timeout_s: PositiveSeconds = 60.0

    @model_validator(mode="after")
    def _one_length(self) -> Run:
        if self.steps is not None and self.time_s is not None:
            raise ValueError("give either steps or time_s, not both")
        return self


class PublishedFigure(_Part):
    """What an author measured for one variant, for `Published.steps` steps."""

    variant: Line
    seconds: PositiveSeconds | None = None
    device_utilization_percent: Annotated[float, Field(ge=0, le=100)] | None = None


class Published(_Part):
    """An author's figures, shown beside ours."""

    source: Line
    steps: PositiveInt
    figures: tuple[PublishedFigure, ...] = ()
    why: tuple[Line, ...] = ()
    """Why the figures are as they are, a line each."""


class OnHosts(_Part):
    """What a variant is of, in a session of one of several hosts and in a merged one; see `hosts.ranks.of_rank`."""

    variant: Line
    """The scenario's own."""
    hosts: Annotated[int, Field(ge=1)]
    """How many of them run it at once."""


class Variant(_Part):
    """One way to train, whole: nothing in it depends on the rest of the scenario."""

    name: Name
    backend: Line
    options: dict[Text, Any] = {}
    source: Component
    model: Component
    loop: Component
    runtime: Runtime = Runtime()
    run: Run = Run()
    ceiling: Line | None = None
    """The name of the variant that is this one's ceiling; None for a ceiling itself."""
    on_hosts: OnHosts | None = None
    """None of a ceiling, and where no hosts run anything at once."""

    @property
    def is_ceiling(self) -> bool:
        """Whether it is a ceiling: a training without an input, which the others are measured against."""
        return self.ceiling is None

    @property
    def emulated_device(self) -> str | None:
        """What its model only emulates; None where that computes, or is none of the plug-ins, as a user's own."""
        model = plugins.make_if_known("models", self.model.kind, self.model.options)
        return None if model is None else model.emulated_device

    @property
    def caches(self) -> bool:
        """Whether its input is kept in a cache from the first epoch on."""
        return self.options.get("cache", "none") not in ("none", None, False)

    @property
    def steps_in_a_call(self) -> int:
        """How many steps its loop trains before Python hears of them."""
        options = self.loop.options
        return int(options.get("steps_per_call") or options.get("steps_per_execution") or 1)


class Scenario(_Part):
    """A question and the variants that answer it, resolved: every default filled in."""

    name: Name
    question: Line = ""
    usual_duration_s: PositiveSeconds | None = None
    """About how long a comparison of it takes as it stands in its file, on two idle cores; None with other values."""
    variants: Annotated[tuple[Variant, ...], Field(min_length=1)]
    published: Published | None = None
    notes: tuple[Line, ...] = ()
    """What a reader of the results should know of how the scenario came about."""
    left_out: dict[Line, Line] = {}
    """The variants that the machine cannot run: of each the note that says why."""

    def variant(self, name: str) -> Variant:
        """Return the variant of that name.

        Raises:
            KeyError: there is none.
        """
        return {variant.name: variant for variant in self.variants}[name]

    @property
    def ceilings(self) -> frozenset[str]:
        """The names of the variants that are ceilings."""
        return frozenset(variant.name for variant in self.variants if variant.is_ceiling)

    @property
    def baseline(self) -> Variant:
        """The variant that the speed-ups are over: the first that is no ceiling, else the first."""
        return next((variant for variant in self.variants if not variant.is_ceiling), self.variants[0])
