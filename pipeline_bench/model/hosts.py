"""A session of one host among several, what the sessions of all come to, and what more hosts or workers would reach.

`Plan` is also the form of ``pipeline-bench plan --json`` and as such a contract: fields are added, but not renamed or
given another meaning without a new `schema_version`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_bench.model import Count, Record
from pipeline_bench.model.result import Estimate
from pipeline_bench.text import Line, Text

HostsKind = Literal[
    "shared-storage",
    "slow-host",
    "slow-input",
    "straggler",
    "slow-model",
    "scales",
    "inconclusive",
    "not-measured",
    "watched",
]


_ONE_BOOT_NS = 2e9
"""Two ranks of one machine, which ask at different times, differ by what its clock was set meanwhile."""


class Host(Record):
    """Which of several hosts a session is of."""

    rank: Count
    """From 0, below `size`."""
    size: Annotated[int, Field(ge=1, le=1_000_000)]
    """How many ranks there are."""
    name: Line
    launcher: Line
    """What started the ranks: ``slurm``, ``open-mpi``, ``pmi``, ``ray`` or ``tf-config``."""
    boot: Line | None = None
    """The same for all on one machine since its start (`system.clocks.boot`); None: not known."""
    wall_minus_monotonic_ns: int
    """What makes the session's times those of the wall clock."""
    clock_offset_s: float | None = None
    """How far the wall clock is ahead of the shared folder's, on Ray of the machine's that began the run; None where
    that was not asked."""

    collective_ms: float | None = None
    """How long a step of a watched training was at collectives, from having its own part ready; None: not measured."""
    pid: int | None = None
    """The process of a watched training, of which a rank may have several; None of others, and in an older session."""
    accelerator: Line | None = None
    """Of a merged session, as are the next two: what its own session says of the machine."""
    cpu: Line | None = None
    cores: int | None = None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Host:
        if self.rank >= self.size:
            raise ValueError(f"the rank {self.rank} is none of {self.size}")
        return self

    @property
    def label(self) -> str:
        """The host in a name: ``rank 1``."""
        return f"rank {self.rank}"

    def is_on_machine_of(self, other: Host) -> bool:
        """Return whether both ran since one start of a machine; the containers of several may be called alike.

        Where that is not known, as of an older session: whether both have one name and were booted at one time.
        """
        if self.boot is not None and other.boot is not None:
            return self.boot == other.boot
        booted_apart_ns = abs(self.wall_minus_monotonic_ns - other.wall_minus_monotonic_ns)
        return self.name == other.name and booted_apart_ns <= _ONE_BOOT_NS


def sharing(hosts: Iterable[Host]) -> list[tuple[Host, ...]]:
    """Return the hosts that ran on one machine, by machine; those that had one for themselves are left out."""
    left, found = list(hosts), []
    while left:
        found.append(tuple(host for host in left if host.is_on_machine_of(left[0])))
        left = [host for host in left if host not in found[-1]]
    return [together for together in found if len(together) > 1]


class HostsResult(Record):
    """What a variant comes to on several hosts at once."""

    variant: Line
    hosts: int
    samples_per_second: float | None = None
    """Of all hosts together."""
    efficiency: Estimate = Estimate()
    """Their rate together over the sum of what each of them reached alone, in the same rounds."""
    wait_alone: tuple[float | None, ...] = ()
    """The share of input wait of each host alone, by rank."""
    wait_together: tuple[float | None, ...] = ()
    rounds: int = 0
    kind: HostsKind = "not-measured"
    host: int | None = None
    """The rank that the verdict names, or the first of several."""
    named: tuple[int, ...] = ()
    """Every rank that it names."""
    text: Line = ""
    shared: bool = False
    """Whether it says that what hosts share limits them: all, or those that it does not name."""


class Hosts(Record):
    """The hosts of a merged session."""

    hosts: tuple[Host, ...]
    missing: tuple[int, ...] = ()
    """The ranks that left no session, or none with a trial that began."""
    results: tuple[HostsResult, ...] = ()


Unit = Literal["host", "input worker"]
Limit = Literal["accelerator", "host", "input", "storage", "not-known"]
Basis = Literal["measured", "computed", "extrapolated"]


class Range(Record):
    """A figure between two ends: a 95 % interval where it was measured, else all that it can be."""

    value: float | None = None
    """None where the figure is known by its ends only."""
    low: Annotated[float, Field(ge=0)]
    high: float | None = None
    """None where nothing bounds it."""

    @property
    def is_known(self) -> bool:
        """Whether it was measured, and is not only known to be at least so much."""
        return self.high is not None


class PlanRow(Record):
    """What so many hosts, or input workers, come to."""

    count: int
    samples_per_second: Range
    """Of all together."""
    utilization: Range
    """Expected accelerator utilization of each accelerator, 0 to 1."""
    limit: Limit
    """What keeps the accelerator from more; ``accelerator`` from a utilization of 0.90 on."""
    basis: Basis
    """``measured``: a session of so many, at no more load; ``computed``: between such; ``extrapolated``: beyond."""


class PlanCheck(Record):
    """The plan that fewer hosts alone would have given, held against what more of them reached."""

    planned_from: int
    """The most hosts, or workers, whose figures it had."""
    count: int
    planned: Range
    """Samples a second in all, with the session's own accelerator."""
    measured: float


class VariantPlan(Record):
    """What one input pipeline feeds."""

    variant: Line
    unit: Unit
    works_ahead: bool | None
    """Whether the next batch is made during the step; None: not known, and both were reckoned with."""
    works_ahead_measured: bool = False
    """Whether that was seen in the session, beside another model, and is not what the backend says of itself."""
    measured_counts: tuple[int, ...]
    """Of how many hosts, or workers, there are figures."""
    own: Range
    """Samples a second that one host's, or worker's, input can give at most."""
    total: Range
    """Samples a second that all of them get at most: from the storage, or through what workers send by."""
    trend: Literal["flat", "rising", "falling"] | None = None
    """How the total went over the numbers at which it was reached; None where that was one or none."""
    shared: bool = True
    """Whether hosts may share what the input reads."""
    shares: Line = "storage"
    """What that is, as a sentence calls it."""
    doubt: Line | None = None
    """What else may have held up hosts that reached less together, so that `total` has no end; None: nothing did."""
    feeds: Range
    """How many accelerators one host's, or worker's, input feeds: as many as reach a utilization of 0.90 by it."""
    total_feeds: Range
    """The same of `total`."""
    total_from: Range | None = None
    """From how many on the total limits; None where it was never reached."""
    needed: int | None = None
    """The fewest whose input feeds the accelerators of one host so; None where no number does, or none is known."""
    alone: PlanRow
    """Of one host, or worker."""
    rows: tuple[PlanRow, ...]
    checks: tuple[PlanCheck, ...] = ()
    answer: Line
    """How many feed how many, in one or two plain sentences."""
    assumption: Line
    """What the answer assumes beyond what was measured."""


class Plan(Record):
    """What the pipelines of a session feed an accelerator that steps in a given time."""

    schema_version: Literal[1] = 1
    path: Text
    scenario: Line
    command: Text
    step_ms: Annotated[float, Field(gt=0)]
    own_step: bool
    """Whether that is the session's own accelerator."""
    accelerators: int
    """Of each host."""
    batch_size: int
    variants: tuple[VariantPlan, ...]
    """The one that is answered for first."""
    notes: tuple[Line, ...] = ()
