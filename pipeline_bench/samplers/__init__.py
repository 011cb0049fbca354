"""Samplers: what the parent reads of the device and the host while a trial runs.

A sampler is polled by the parent a few times a second. A metric that cannot be read is a value, `Reading.reason`,
never an exception and never 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Reading:
    """One value of one metric at a time (``time.monotonic_ns``), or the reason why there is none."""

    metric: str
    source: str
    at_ns: int
    value: float | None = None
    reason: str | None = None
    from_ns: int | None = None
    """When the time began that the value speaks of, up to `at_ns`; None where the instrument does not say."""


class HelperProcess(Protocol):
    """A process of the profiler's own: what it uses is neither the trial's nor another program's."""

    @property
    def pid(self) -> int | None:
        """Its number, None when it does not run."""

    @property
    def cpu_s(self) -> float:
        """Its CPU time so far, in seconds."""


class Sampler(ABC):
    """Reads some metrics of one thing."""

    @abstractmethod
    def poll(self) -> list[Reading]:
        """Return every value that is new since the last call; never raises for what the device or the system does."""

    def end(self) -> list[Reading]:
        """Return what is left to say of a trial that ends; most samplers have said it all."""
        return []

    def close(self) -> None:  # noqa: B027 - a sampler that holds nothing has nothing to override
        """Release what the sampler holds; safe to call twice."""
