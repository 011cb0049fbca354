"""Which fixes can be made together, and how their edits are put in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from pipeline_bench.diagnosis import next_trial
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Fix
from pipeline_bench.model.edits import Edit, Fuse, InsertAfter, MoveBefore, Remove, SetArgument, SetOptions
from pipeline_bench.model.service_edits import OffloadToService
from tests.unit.diagnosis.simulated import Machine, diagnose, inspection, shuffled, stage, with_function

LOOKED = inspection(
    (
        stage(0, "range"),
        stage(1, "map", 0),
        stage(2, "shuffle", 1),
        stage(3, "map", 2),
        stage(4, "batch", 3),
    ),
    (),
)


def fits(one: Fix, other: Fix) -> bool:
    return next_trial.compatible(one, other, LOOKED)


def combined(parts: list[Fix], taken: set[str]) -> Fix:
    return next_trial.combine(parts, LOOKED, taken)


def fix(name: str, *edits: Edit, stages: tuple[int, ...] = (), kind: str = "") -> Fix:
    return Fix(kind=kind or name, variant=name, title=name.capitalize(), edits=edits, stages=stages)


PARALLEL = fix("parallel", SetArgument(stage=1, argument="num_parallel_calls", value=-1), stages=(1,))
MORE = fix("more", SetArgument(stage=1, argument="num_parallel_calls", value=16), stages=(1,))
BATCHED = fix("batched", MoveBefore(stage=2, other=1), stages=(1,))
FUSED = fix("fused", Fuse(stages=(0, 1)), stages=(0, 1))
CACHED = fix("cached", InsertAfter(stage=1, method="cache"), stages=(0, 1))
CACHED_LATER = fix("cached later", InsertAfter(stage=2, method="cache"), stages=(0, 1, 2))
POOL = fix("pool", SetOptions(options={"threading.private_threadpool_size": 4}))
SMALL_POOL = fix("small pool", SetOptions(options={"threading.private_threadpool_size": 2}))
GONE = fix("gone", Remove(stage=1), stages=(1,))


def test_two_fixes_that_want_the_same_thing_otherwise_do_not_fit() -> None:
    assert not fits(PARALLEL, MORE)
    assert not fits(CACHED, CACHED_LATER)
    assert not fits(POOL, SMALL_POOL)
    assert not fits(PARALLEL, GONE)
    assert not fits(FUSED, PARALLEL)
    assert not fits(FUSED, BATCHED), "the batch would stand between the two"
    assert not fits(PARALLEL, PARALLEL)


def test_fixes_that_touch_different_things_fit_either_way_round() -> None:
    for one, other in ((PARALLEL, BATCHED), (PARALLEL, CACHED), (BATCHED, POOL), (FUSED, POOL)):
        assert fits(one, other)
        assert fits(other, one)


def test_nothing_moves_in_front_of_a_cache_which_would_keep_it() -> None:
    """A shuffle would have the order of the first epoch for ever."""
    last = fix("batch before the last map", MoveBefore(stage=4, other=3), stages=(3,))
    moved = fix("cached before the shuffle", MoveBefore(stage=3, other=2), InsertAfter(stage=3, method="cache"))
    for one, other, expected in ((BATCHED, CACHED, False), (last, CACHED, True), (last, moved, False)):
        assert fits(one, other) == fits(other, one) == expected


def test_no_cache_is_filled_anew_by_each_job_of_a_service() -> None:
    assert not fits(CACHED, fix("service", OffloadToService(workers=1)))


def test_edits_are_made_in_an_order_in_which_they_fit() -> None:
    found = combined([POOL, CACHED, BATCHED, PARALLEL], set())
    assert [edit.edit for edit in found.edits] == ["set-argument", "move-before", "insert-after", "set-options"]
    assert found.combines == ("pool", "cached", "batched", "parallel")
    assert found.stages == (0, 1)


def test_a_prefetch_at_the_end_stays_there_where_another_fix_moves_the_batch() -> None:
    ahead = fix("ahead", InsertAfter(stage=4, method="prefetch"))
    within = fix("within", InsertAfter(stage=1, method="prefetch"), stages=(1,))
    first = fix("batch first", MoveBefore(stage=4, other=1), stages=(1,))
    inserted = [edit for edit in combined([first, ahead, within], set()).edits if isinstance(edit, InsertAfter)]
    assert [edit.stage for edit in inserted] == [3, 1]
    assert combined([PARALLEL, ahead], set()).edits[-1] == ahead.edits[0]


def test_a_combination_has_a_short_name_of_its_own() -> None:
    long = PARALLEL.model_copy(update={"variant": "x" * 60})
    first = combined([long, POOL, CACHED], set())
    assert first.variant == f"{'x' * 60} + 2 more"
    assert combined([long, POOL, BATCHED], {first.variant}).variant == f"{first.variant} #2"


def test_a_combination_reorders_when_a_part_does() -> None:
    reorders = PARALLEL.model_copy(update={"reorders": True})
    assert combined([reorders, POOL], set()).reorders
    assert not combined([PARALLEL, POOL], set()).reorders


@pytest.mark.parametrize(("first_ms", "cache_first"), [(1_500.0, True), (20.0, False)])
def test_what_spares_the_beginning_of_an_epoch_is_tried_again_before_what_gained_more_in_a_step(
    first_ms: float, cache_first: bool
) -> None:
    looked = with_function(shuffled(first_ms), 1, stateful=False)

    def period_ms(edits: Sequence[Edit]) -> float:
        if any(edit.keeps for edit in edits):
            return 12.0
        return 11.0 if any(isinstance(edit, InsertAfter) for edit in edits) else 14.0

    machine = Machine(looked, period_ms, ceiling_ms=8.0)
    diagnose(machine)
    tried: Counter[str] = Counter()
    for trial in machine.ran:
        tried[trial.variant.name] += trial.variant.name not in (AS_WRITTEN, CEILING)
        if tried[trial.variant.name] == 2:
            break
    assert trial.variant.name.startswith("cache") == cache_first, tried
