"""The candidates: which edits fit a pipeline, and which of them are worth a try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline_bench.diagnosis import bottleneck, fixes
from pipeline_bench.diagnosis.fixes import Context
from pipeline_bench.model.calls import AUTOTUNE
from pipeline_bench.model.diagnosis import Attempt, Fix
from pipeline_bench.model.edits import (
    BatchInGenerator,
    DistributeToService,
    Fuse,
    GatherBatches,
    InsertAfter,
    Interleave,
    MoveBefore,
    Remove,
    SetArgument,
    SetOptions,
)
from pipeline_bench.model.pipeline import Inspection, Stage
from tests.unit.diagnosis.simulated import cost, function, inspection, python_decode, stage


def tried(looked: Inspection, **context: object) -> list[Attempt]:
    settings: dict[str, object] = {"cores": 2, "as_written_ms": 20.0, "free_memory_bytes": 1e9, **context}
    found = bottleneck.find(looked, 2, 20.0)
    return list(fixes.attempts(looked, Context(bottleneck=found, **settings)))  # type: ignore[arg-type]


def of_kind(found: Sequence[Attempt], kind: str) -> list[Fix]:
    return [attempt.fix for attempt in found if attempt.fix.kind == kind]


def reason(found: Sequence[Attempt], kind: str) -> str:
    return next(attempt.reason for attempt in found if attempt.fix.kind == kind)


def chain_of(*stages: Stage, costs_ms: Sequence[float] = (), **updates: object) -> Inspection:
    times = costs_ms or [10.0] * len(stages)
    made = inspection(stages, tuple(cost(each.id, ms) for each, ms in zip(stages, times, strict=True)))
    return made.model_copy(update=updates)


@pytest.mark.parametrize("allow_reordering", [False, True])
def test_a_python_map_in_parallel_keeps_its_order_and_is_only_tried_where_threads_are_allowed(
    allow_reordering: bool,
) -> None:
    refused = tried(python_decode(), allow_reordering=allow_reordering)
    fix = of_kind(refused, "parallel_map")[0]
    assert fix.edits == (SetArgument(stage=1, argument="num_parallel_calls", value=AUTOTUNE),)
    assert (fix.threads, fix.reorders) == (True, False)
    assert "--allow-threads tries it" in reason(refused, "parallel_map")
    allowed = tried(python_decode(), allow_threads=True, allow_reordering=allow_reordering)
    assert allowed[0].fix.kind == "parallel_map", "the most promising comes first"
    assert allowed[0].outcome == "pending"


@pytest.mark.parametrize("of_the_options", [False, True])
def test_a_map_whose_user_wants_any_order_may_reorder_too_and_needs_both_options(of_the_options: bool) -> None:
    looked = python_decode()
    free: dict[str, Any] = {"deterministic": False}
    stages = [
        each.model_copy(update={"arguments": {**each.arguments, **free}})
        if each.method == "map" and not of_the_options
        else each
        for each in looked.stages
    ]
    if of_the_options:
        stages.append(stage(3, "with_options", 2, **free))
    looked = looked.model_copy(update={"stages": tuple(stages), "sink": stages[-1].id})
    assert "--allow-reordering and --allow-threads together try it" in reason(tried(looked), "parallel_map")
    half = tried(looked, allow_threads=True)
    assert "--allow-reordering tries it" in reason(half, "parallel_map")


def test_a_stateless_map_is_parallel_by_default_and_no_fix() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("scale")), stage(2, "batch", 1))
    assert of_kind(tried(chain_of(*stages)), "parallel_map") == []
    off = of_kind(tried(chain_of(*stages, default_parallelised=False)), "parallel_map")
    assert [fix.reorders for fix in off] == [False]


def test_one_call_at_a_time_by_the_users_own_argument_is_raised() -> None:
    one = stage(1, "map", 0, of=function("scale"), num_parallel_calls=1)
    assert of_kind(tried(chain_of(stage(0, "range"), one)), "parallel_map")
    many = stage(1, "map", 0, of=function("scale"), num_parallel_calls=AUTOTUNE)
    assert of_kind(tried(chain_of(stage(0, "range"), many)), "parallel_map") == []


def test_a_map_that_waits_is_given_more_calls_than_cores() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("fetch", python=True)))
    looked = inspection(stages, (cost(0, 0.1), cost(1, 20.0, 0.5)))
    calls = [edit.value for fix in of_kind(tried(looked), "parallel_map") for edit in fix.edits[:1]]  # type: ignore[union-attr]
    assert calls == [AUTOTUNE, 16, 4]


def test_a_flat_map_over_files_becomes_an_interleave_and_one_over_windows_does_not() -> None:
    files = stage(1, "flat_map", 0, of=function("open"), inner=(stage(9, "TFRecordDataset"),))
    fix = of_kind(tried(chain_of(stage(0, "list_files"), files)), "parallel_interleave")[0]
    assert isinstance(fix.edits[0], Interleave)
    assert fix.reorders
    windows = stage(1, "flat_map", 0, of=function("rows"), inner=(stage(9, "batch"),))
    assert of_kind(tried(chain_of(stage(0, "range"), windows)), "parallel_interleave") == []


def test_an_interleave_keeps_its_order_unless_its_cycle_grows() -> None:
    found = of_kind(
        tried(chain_of(stage(0, "range"), stage(1, "interleave", 0, of=function("open")))), "parallel_interleave"
    )
    assert [fix.reorders for fix in found] == [False, True]


def test_a_batch_is_moved_before_the_last_map_and_before_all_of_them_but_never_before_a_random_one() -> None:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("augment", random=True)),
        stage(2, "map", 1, of=function("parse")),
        stage(3, "map", 2, of=function("scale")),
        stage(4, "batch", 3),
    )
    edits = {fix.edits[0] for fix in of_kind(tried(chain_of(*stages)), "batch_before_map")}
    assert edits == {MoveBefore(stage=4, other=2), MoveBefore(stage=4, other=3)}


def augmented() -> tuple[Stage, ...]:
    return (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("decode")),
        stage(2, "shuffle", 1, buffer_size=100),
        stage(3, "map", 2, of=function("flip", random=True)),
        stage(4, "batch", 3),
    )


def test_a_cache_stands_before_the_first_random_stage_with_its_size() -> None:
    looked = chain_of(*augmented()).model_copy(
        update={"costs": tuple(cost(n, 5.0, elements=32, element_bytes=2**20) for n in range(5))}
    )
    fix = of_kind(tried(looked, free_memory_bytes=2**33), "cache")[0]
    assert fix.edits == (InsertAfter(stage=1, method="cache"),)
    assert fix.because == "takes about 3.12 GiB of memory"
    short = of_kind(tried(looked, free_memory_bytes=2**30), "cache")[0]
    assert short.edits == (InsertAfter(stage=1, method="cache", arguments={"filename": "disk"}),)


def test_decoding_behind_a_shuffle_is_cached_in_front_of_it() -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "shuffle", 0, buffer_size=100),
        stage(2, "map", 1, of=function("decode")),
        stage(3, "map", 2, of=function("flip", random=True)),
    )
    found = of_kind(tried(chain_of(*stages)), "cache")
    assert (MoveBefore(stage=2, other=1), InsertAfter(stage=2, method="cache")) in [fix.edits for fix in found]


def test_what_is_behind_an_endless_repeat_is_cached_in_front_of_it() -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "repeat", 0),
        stage(2, "filter", 1, of=function("usable")),
        stage(3, "map", 2, of=function("decode")),
        stage(4, "batch", 3),
    )
    moved = (MoveBefore(stage=2, other=1), MoveBefore(stage=3, other=1), InsertAfter(stage=3, method="cache"))
    found = [fix.edits for fix in of_kind(tried(chain_of(*stages)), "cache")]
    assert sorted(found, key=len) == [(InsertAfter(stage=0, method="cache"),), moved]


def test_a_filter_stays_behind_a_shuffle_and_what_is_random_behind_a_repeat() -> None:
    shuffled = (
        stage(0, "range"),
        stage(1, "shuffle", 0),
        stage(2, "repeat", 1),
        stage(3, "filter", 2, of=function("usable")),
    )
    drawn = (stage(0, "range"), stage(1, "repeat", 0), stage(2, "map", 1, of=function("crop", random=True)))
    for stages in (shuffled, drawn):
        found = [fix.edits for fix in of_kind(tried(chain_of(*stages)), "cache")]
        assert found == [(InsertAfter(stage=0, method="cache"),)]


def test_what_a_cache_spares_the_later_epochs_is_told_with_its_part_of_the_first() -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("decode", python=True)),
        stage(2, "cache", 1),
        stage(3, "map", 2, of=function("flip", python=True)),
    )
    looked = chain_of(*stages)
    costs = tuple(each.model_copy(update={"elapsed_ns": 0.0, "cpu_ns": 0.0}) for each in looked.costs[:2])
    spared = costs[1].model_copy(update={"first_epoch_ns": 40e6, "first_epoch_cpu_ns": 40e6})
    looked = looked.model_copy(update={"costs": (costs[0], spared, *looked.costs[2:])})
    found = fixes.attempts(looked, Context(cores=2, as_written_ms=10.0, allow_threads=True))
    said = next(each.reason for each in found if each.fix.variant == "parallel map(decode)")
    assert said.startswith("decode takes 67 % of the first epoch, and 0 % of the later ones, which read the cache")


def test_a_cache_of_too_little_moves_behind_what_is_dear() -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "cache", 0),
        stage(2, "map", 1, of=function("decode")),
        stage(3, "batch", 2),
    )
    found = of_kind(tried(chain_of(*stages)), "cache")
    assert [fix.edits for fix in found] == [(Remove(stage=1), InsertAfter(stage=3, method="cache"))]
    assert "in place of" in found[0].title
    there = (*stages[:1], stage(2, "map", 0, of=function("decode")), stage(3, "cache", 2))
    assert of_kind(tried(chain_of(*there)), "cache") == []


def test_a_cache_behind_an_endless_repeat_moves_in_front_of_it() -> None:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("decode")),
        stage(2, "repeat", 1),
        stage(3, "cache", 2),
    )
    edits = [fix.edits for fix in of_kind(tried(chain_of(*stages)), "order")]
    assert (MoveBefore(stage=3, other=2),) in edits
    twice = (*stages[:2], stage(2, "repeat", 1, count=2), stages[3])
    assert (MoveBefore(stage=3, other=2),) not in [fix.edits for fix in of_kind(tried(chain_of(*twice)), "order")]
    drawn = (stages[0], stage(1, "map", 0, of=function("crop", random=True)), *stages[2:])
    assert (MoveBefore(stage=3, other=2),) not in [fix.edits for fix in of_kind(tried(chain_of(*drawn)), "order")]


def test_a_batch_comes_before_a_map_also_through_what_does_not_look_at_the_elements() -> None:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("scale")),
        stage(2, "shuffle", 1, buffer_size=100),
        stage(3, "repeat", 2),
        stage(4, "batch", 3, batch_size=8),
    )
    (found,) = of_kind(tried(chain_of(*stages)), "batch_before_map")
    assert found.edits == tuple(MoveBefore(stage=number, other=1) for number in (2, 3, 4))
    assert found.title == "Shuffle first, and give scale whole batches"
    assert not found.reorders
    stateful = (stages[0], stage(1, "map", 0, of=function("count", stateful=True)), *stages[2:])
    (found,) = of_kind(tried(chain_of(*stateful), allow_reordering=True), "batch_before_map")
    assert found.reorders
    cached = (*stages[:2], stage(2, "cache", 1), *stages[3:])
    assert of_kind(tried(chain_of(*cached)), "batch_before_map") == []


def test_nothing_random_is_cached() -> None:
    drawn = (stage(0, "random"), stage(1, "map", 0, of=function("f", random=True)))
    assert of_kind(tried(chain_of(*drawn)), "cache") == []


def test_what_cannot_gain_is_not_tried_and_says_so() -> None:
    found = tried(python_decode(20.0))
    batch = next(attempt for attempt in found if attempt.fix.kind == "parallel_batch")
    assert batch.outcome == "not-tried"
    assert batch.reason == "batch takes 2 % of the time: there is next to nothing to gain."


def test_the_gpu_needs_a_gpu_and_a_model_and_the_service_no_python() -> None:
    assert "no GPU" in reason(tried(python_decode()), "device_prefetch")
    assert "without a --model" in reason(tried(python_decode(), gpu=True), "device_prefetch")
    assert reason(tried(python_decode(), gpu=True, model=True), "device_prefetch") == ""
    assert "Python of decode" in reason(tried(python_decode(), model=True), "service")
    assert "the same cores" in reason(tried(python_decode()), "service")


def test_a_private_pool_of_the_users_grows_with_the_calls_that_wait() -> None:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("ask", python=True), num_parallel_calls=8),
        stage(2, "with_options", 1).model_copy(update={"arguments": {"threading.private_threadpool_size": 8}}),
    )
    looked = inspection(stages, (cost(0, 0.01), cost(1, 40.0, 2.0), cost(2, 0.0)))
    edits = [fix.edits for fix in of_kind(tried(looked), "parallel_map")]
    calls = SetArgument(stage=1, argument="num_parallel_calls", value=32)
    assert (calls, SetOptions(options={"threading.private_threadpool_size": 32})) in edits


def test_arrays_are_gathered_by_whole_batches_also_behind_maps_that_take_them() -> None:
    rows, shuffle = stage(0, "from_tensor_slices"), stage(1, "shuffle", 0)
    direct = chain_of(rows, shuffle, stage(2, "batch", 1), stage(3, "map", 2, of=function("f")))
    assert of_kind(tried(direct), "gather_batches")[0].edits == (GatherBatches(source=0, batch=2),)
    mapped = chain_of(rows, shuffle, stage(2, "map", 1, of=function("f")), stage(3, "batch", 2))
    edits = (MoveBefore(stage=3, other=2), GatherBatches(source=0, batch=3))
    assert of_kind(tried(mapped), "gather_batches")[0].edits == edits
    drawn = chain_of(rows, stage(1, "map", 0, of=function("f", random=True)), stage(2, "batch", 1))
    filtered = chain_of(rows, stage(1, "filter", 0, of=function("f")), stage(2, "batch", 1))
    assert [*of_kind(tried(drawn), "gather_batches"), *of_kind(tried(filtered), "gather_batches")] == []


def test_a_generator_is_asked_for_whole_batches_only_right_before_the_batch() -> None:
    rows = stage(0, "from_generator", of=function("rows", python=True))
    direct = chain_of(rows, stage(1, "batch", 0))
    assert of_kind(tried(direct), "out_of_python")[0].edits == (BatchInGenerator(generator=0, batch=1),)
    between = chain_of(rows, stage(1, "map", 0, of=function("f")), stage(2, "batch", 1))
    assert of_kind(tried(between), "out_of_python") == []


def test_consecutive_maps_alike_are_fused_as_the_longest_run() -> None:
    stages = (
        stage(0, "range"),
        *(stage(n, "map", n - 1, of=function(f"f{n}")) for n in (1, 2, 3)),
        stage(4, "map", 3, of=function("f4"), num_parallel_calls=2),
    )
    assert [fix.edits for fix in of_kind(tried(chain_of(*stages)), "fuse")] == [(Fuse(stages=(1, 2, 3)),)]


def test_a_batch_that_is_taken_apart_again_is_left_out() -> None:
    stages = (stage(0, "range"), stage(1, "unbatch", 0), stage(2, "batch", 1))
    edits = [fix.edits for fix in of_kind(tried(chain_of(*stages)), "superfluous")]
    assert (Remove(stage=1), Remove(stage=2)) in edits


def test_a_batch_that_drops_the_last_samples_is_not_left_out() -> None:
    stages = (stage(0, "range"), stage(1, "batch", 0, batch_size=10, drop_remainder=True), stage(2, "unbatch", 1))
    assert of_kind(tried(chain_of(*stages)), "superfluous") == []


@pytest.mark.parametrize(
    ("before", "left_out"),
    [
        (stage(1, "map", 0, of=function("decode")), True),
        (stage(1, "map", 0, of=function("flip", random=True)), False),
        (stage(1, "shuffle", 0, buffer_size=9), False),
    ],
)
def test_a_cache_that_holds_one_order_or_one_draw_stays(before: Stage, left_out: bool) -> None:
    stages = (stage(0, "range"), before, stage(2, "cache", 1), stage(3, "batch", 2))
    looked = chain_of(*stages)
    assert bool(of_kind(tried(looked), "superfluous")) is left_out
    assert of_kind(tried(looked.model_copy(update={"cold": True})), "superfluous") == [], "no trial has it then"


def test_options_of_the_users_are_set_back_to_the_defaults() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f")), stage(2, "with_options", 1))
    found = of_kind(tried(chain_of(*stages, default_parallelised=False)), "options")
    assert isinstance(found[0].edits[0], SetOptions)
    assert of_kind(tried(chain_of(*stages[:2])), "options") == []


def test_a_buffer_cuts_the_longest_segment_where_it_hides_the_most() -> None:
    stages = (
        stage(0, "from_generator", of=function("rows", python=True)),
        stage(1, "map", 0, of=function("parse", python=True)),
        stage(2, "map", 1, of=function("scale", python=True)),
    )
    looked = chain_of(*stages, costs_ms=(9.0, 5.0, 3.0))
    middle = [fix for fix in of_kind(tried(looked), "prefetch") if fix.stages]
    assert middle[0].edits == (InsertAfter(stage=0, method="prefetch", arguments={"buffer_size": AUTOTUNE}),)
    assert set(middle[0].stages) == {1, 2}


def test_a_prefetch_at_the_end_is_not_put_behind_another() -> None:
    stages = (stage(0, "range"), stage(1, "prefetch", 0), stage(2, "with_options", 1))
    assert not any(fix.variant == "prefetch at the end" for fix in of_kind(tried(chain_of(*stages)), "prefetch"))


@pytest.mark.parametrize("count", [1, 7])
def test_the_names_of_variants_differ_even_for_one_function_called_on_one_line(count: int) -> None:
    place = stage(1, "map").place
    stages = [stage(0, "range")]
    for number in range(1, count + 1):
        made = stage(number, "map", number - 1, of=function("decode", python=True))
        stages.append(made.model_copy(update={"place": place}))
    names = [attempt.fix.variant for attempt in tried(chain_of(*stages))]
    assert len(names) == len(set(names))


def test_large_reads_are_for_readers_with_small_ones() -> None:
    small = chain_of(stage(0, "TFRecordDataset", buffer_size=1024), stage(1, "batch", 0))
    assert of_kind(tried(small), "read_size")
    large = chain_of(stage(0, "TFRecordDataset", buffer_size=64 * 2**20), stage(1, "batch", 0))
    assert of_kind(tried(large), "read_size") == []


def test_the_shuffle_goes_before_maps_and_before_a_repeat() -> None:
    stages = (
        stage(0, "list_files"),
        stage(1, "map", 0, of=function("decode")),
        stage(2, "repeat", 1),
        stage(3, "shuffle", 2, buffer_size=10),
    )
    found = of_kind(tried(chain_of(*stages)), "order")
    assert [(fix.edits, fix.reorders) for fix in found] == [((MoveBefore(stage=3, other=2),), True)]


CLUSTER = "grpc://store:5000"


def distributed(looked: Inspection, **context: object) -> list[tuple[int, str, bool]]:
    """Where each candidate for the service of the user's cuts the pipeline, how it shares, and whether it reorders."""
    found = of_kind(tried(looked, data_service=CLUSTER, **context), "data_service")
    cuts = [edit for fix in found for edit in fix.edits if isinstance(edit, DistributeToService)]
    assert all(cut.dispatcher == CLUSTER for cut in cuts)
    return [(cut.stage, cut.processing_mode, fix.reorders) for cut, fix in zip(cuts, found, strict=True)]


@pytest.mark.parametrize(
    "stays",
    [
        stage(2, "map", 1, of=function("augment", python=True)),
        stage(2, "map", 1, of=function("count", stateful=True)),
        stage(2, "cache", 1),
        stage(2, "flat_map", 1, of=function("open"), inner=(stage(9, "from_generator"),)),
    ],
)
def test_a_service_of_the_users_runs_what_is_in_front_of_the_first_stage_that_it_cannot(stays: Stage) -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("read")), stays, stage(3, "batch", 2))
    assert distributed(chain_of(*stages)) == [(1, "OFF", False), (1, "DYNAMIC", True)]
    assert of_kind(tried(chain_of(*stages)), "data_service") == [], "none was named"


@pytest.mark.parametrize(("repeat", "cut"), [(None, 2), (3, 1)])
def test_several_workers_of_a_service_share_samples_and_not_the_batches_of_one_pass(
    repeat: int | None, cut: int
) -> None:
    stages = (
        stage(0, "range"),
        stage(1, "repeat", 0, count=repeat),
        stage(2, "batch", 1),
        stage(3, "prefetch", 2),
    )
    assert distributed(chain_of(*stages)) == [(2, "OFF", False), (cut, "DYNAMIC", True)]


def test_a_pipeline_that_begins_with_python_has_nothing_for_a_service() -> None:
    stages = (stage(0, "from_generator", of=function("read", python=True)), stage(1, "batch", 0))
    found = tried(chain_of(*stages), data_service=CLUSTER)
    assert "from_generator(read) runs Python, which its workers do not have" in reason(found, "data_service")
