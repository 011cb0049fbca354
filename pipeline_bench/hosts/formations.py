"""Which ranks run which trial at once: alone in turn, then more and more, interleaved round by round. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipeline_bench.model.trial import plan
from pipeline_bench.scenario import Scenario, Variant

_ALL_WIDTHS_UP_TO = 4
"""Hosts of which every number is tried; of more 2, 4, 8 … and all."""


class Slot(NamedTuple):
    """A trial of the hosts' common plan."""

    variant: str
    """As the ranks name it, see `name_of`."""
    repeat: int
    ranks: tuple[int, ...]
    together: bool = True
    """Whether it means something only where all of them run it."""


def name_of(variant: Variant, hosts: int) -> str:
    """Return a variant's name where so many hosts run it at once; a ceiling has no input that they could share."""
    if variant.is_ceiling:
        return variant.name
    return f"{variant.name}, {'alone' if hosts == 1 else f'{hosts} hosts'}"


def widths(size: int) -> list[int]:
    """Return how many hosts run at once, from 2 on."""
    if size <= _ALL_WIDTHS_UP_TO:
        return list(range(2, size + 1))
    powers = [2**power for power in range(1, size.bit_length()) if 2**power < size]
    return [*powers, size]


def slots(scenario: Scenario, size: int) -> list[Slot]:
    """Return every trial of all ranks in its order: in each round each variant alone, by 2, … by all, then the next."""
    return [slot for trial in plan(scenario) for slot in _of(trial.variant, trial.repeat, size)]


def _of(variant: Variant, repeat: int, size: int) -> Iterator[Slot]:
    if not variant.is_ceiling:
        yield from (Slot(name_of(variant, 1), repeat, (rank,)) for rank in range(size))
        yield from (Slot(name_of(variant, hosts), repeat, tuple(range(hosts))) for hosts in widths(size)[:-1])
    yield Slot(name_of(variant, size), repeat, tuple(range(size)), together=not variant.is_ceiling)


def of_rank(scenario: Scenario, size: int, rank: int) -> Scenario:
    """Return the scenario of one rank: each variant once for every number of hosts among which it is."""
    made: list[Variant] = []
    for variant in scenario.variants:
        taking = [1, *(hosts for hosts in widths(size) if rank < hosts)] if not variant.is_ceiling else [size]
        made += [variant.model_copy(update={"name": name_of(variant, hosts)}) for hosts in taking]
    return scenario.model_copy(update={"variants": tuple(made), "published": None})


def before(slots: Sequence[Slot], slot: int, rank: int) -> int | None:
    """Return the last slot before this one that the rank takes part in; None where there is none."""
    return next((number for number in range(slot - 1, -1, -1) if rank in slots[number].ranks), None)
