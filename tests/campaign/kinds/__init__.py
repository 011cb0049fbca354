"""The kinds of tries, in the order in which they run: the cheap ones first."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol, cast

from tests.campaign.bench import Bench
from tests.campaign.outcome import Outcome

Case = dict[str, Any]
"""What a try does, as JSON."""


class Kind(Protocol):
    """A module of this package."""

    COUNT: int
    """How many tries a whole campaign has of it."""
    WAITS: bool
    """Whether its tries mostly wait, so that more of them run at a time."""

    def plan(self, random: Random, number: int) -> Case:
        """Draw a case."""

    def attempt(self, case: Case, bench: Bench) -> list[Outcome]:
        """Carry a case out."""


def kinds() -> dict[str, Kind]:
    """Return every kind by its name."""
    from tests.campaign.kinds import (
        command_lines,
        commands,
        disks,
        kills,
        nvml,
        pipelines,
        scenarios,
        sessions,
    )

    modules = (scenarios, sessions, command_lines, kills, commands, disks, nvml, pipelines)
    return {module.__name__.rpartition(".")[2]: cast(Kind, module) for module in modules}
