"""A trial: one variant, once, in a process of its own; and the order in which the trials of a scenario run."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from pipeline_bench.scenario import Scenario, Variant


class Trial(BaseModel):
    """What a child is asked to do. `repeat` counts from 0 and is also the round of the interleaving."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    repeat: int
    variant: Variant

    @property
    def label(self) -> str:
        """The trial as a reader names it: ``feed_dict, repeat 2``."""
        return f"{self.variant.name}, repeat {self.repeat + 1}"


def plan(scenario: Scenario) -> tuple[Trial, ...]:
    """Every trial in interleaved order (A B C A B C), so that a drift of the machine falls on all variants alike."""
    rounds = max(variant.run.repeats for variant in scenario.variants)
    order = [
        (repeat, variant) for repeat in range(rounds) for variant in scenario.variants if repeat < variant.run.repeats
    ]
    return tuple(Trial(index=i, repeat=repeat, variant=variant) for i, (repeat, variant) in enumerate(order))
