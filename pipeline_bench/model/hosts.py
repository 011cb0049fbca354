"""A session of one host among several, and what the sessions of all of them come to."""

from __future__ import annotations

from typing import Literal

from pipeline_bench.model import Record
from pipeline_bench.model.result import Estimate
from pipeline_bench.text import Line

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


class Host(Record):
    """Which of several hosts a session is of."""

    rank: int
    """From 0."""
    size: int
    """How many ranks there are."""
    name: Line
    launcher: Line
    """What started the ranks: ``slurm``, ``open-mpi``, ``pmi``, ``ray`` or ``tf-config``."""
    wall_minus_monotonic_ns: int
    """What makes the session's times those of the wall clock."""
    clock_offset_s: float | None = None
    """How far the wall clock is ahead of the shared folder's; None where that was not asked."""

    collective_ms: float | None = None
    """How long a step of a watched training was at collectives, from having its own part ready; None: not measured."""

    @property
    def label(self) -> str:
        """The host in a name: ``rank 1``."""
        return f"rank {self.rank}"


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
    """The rank that the verdict names, if any."""
    text: Line = ""


class Hosts(Record):
    """The hosts of a merged session."""

    hosts: tuple[Host, ...]
    missing: tuple[int, ...] = ()
    """The ranks that left no session."""
    results: tuple[HostsResult, ...] = ()
