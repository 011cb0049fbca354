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
    trials: list[Trial] = []
    for repeat in range(planned_rounds(scenario)):
        trials += round_of(scenario, repeat, len(trials))
    return tuple(trials)


def planned_rounds(scenario: Scenario) -> int:
    """How many rounds the scenario asks for: as many as the variant with the most repeats has."""
    return max(variant.run.repeats for variant in scenario.variants)


def round_of(scenario: Scenario, repeat: int, first_index: int) -> tuple[Trial, ...]:
    """The trials of one round, in the scenario's order.

    Args:
        scenario: as resolved.
        repeat: the round, from 0. Beyond those that the scenario asks for, every variant takes part.
        first_index: how many trials came before.
    """
    added = repeat >= planned_rounds(scenario)
    due = [variant for variant in scenario.variants if added or repeat < variant.run.repeats]
    return tuple(Trial(index=first_index + i, repeat=repeat, variant=variant) for i, variant in enumerate(due))
