"""The candidates: which edits fit a pipeline, and which of them are worth a try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline_bench.diagnosis import fixes
from pipeline_bench.diagnosis.fixes import Context, cache_size
from pipeline_bench.diagnosis.fixes.order import elsewhere
from pipeline_bench.model.calls import AUTOTUNE, Value
from pipeline_bench.model.diagnosis import Attempt, Bottleneck, Fix
from pipeline_bench.model.edits import (
    BatchInGenerator,
    Edit,
    Fuse,
    GatherBatches,
    GatherWindows,
    InsertAfter,
    Interleave,
    KeepSamples,
    MoveBefore,
    Remove,
    SetArgument,
    SetOptions,
)
from pipeline_bench.model.element import Element
from pipeline_bench.model.function_edits import DivideMap, ParseBatch, Vectorize
from pipeline_bench.model.pipeline import INFINITE, Inspection, ScriptTraining, Stage
from pipeline_bench.model.service_edits import DistributeToService
from pipeline_bench.model.user_function import FixedPart, UserFunction
from pipeline_bench.text import units
from tests.unit.diagnoses import row, tensor
from tests.unit.diagnosis.simulated import (
    cost,
    find,
    function,
    inspection,
    python_decode,
    stage,
    with_function,
    with_stage,
)


def tried(looked: Inspection, **context: object) -> list[Attempt]:
    settings: dict[str, object] = {"cores": 2, "as_written_ms": 20.0, "free_memory_bytes": 1e9, **context}
    found = find(looked, 2, 20.0)
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


def test_a_fix_of_one_of_two_stages_with_one_name_has_its_line() -> None:
    stages = source(shuffle=False), mapped(1, "<lambda>"), mapped(2, "<lambda>", random=True), stage(3, "batch", 2)
    (kept,) = of_kind(tried(chain_of(*stages)), "cache")
    assert kept.variant == "cache in memory after map(<lambda>), line 11"
    stages = source(shuffle=False), mapped(1, "decode"), mapped(2, "<lambda>", random=True), stage(3, "batch", 2)
    (kept,) = of_kind(tried(chain_of(*stages)), "cache")
    assert kept.variant == "cache in memory after map(decode)"


def source(method: str = "range", **arguments: Any) -> Stage:
    return stage(0, method, **arguments)


ROWS = tensor("float32", 8)


def windows(of: Element | None = ROWS, **arguments: Any) -> tuple[Stage, ...]:
    """Windows of an array, a row of five elements each."""
    together = stage(9, "batch", batch_size=5)
    flat = stage(2, "flat_map", 1, of=function("together"), inner=(together,))
    rows = source("from_tensor_slices").model_copy(update={"element": of})
    return rows, stage(1, "window", 0, **arguments), flat


def mapped(number: int, name: str = "f", **arguments: Any) -> Stage:
    """A map of the user's function behind the stage before it; `random` and its like are the function's."""
    of_function = (
        *("random", "draws_in_python", "python", "stateful", "changes_state", "changes_seeds", "parses_examples"),
        "on_batches",
    )
    kinds = {key: arguments.pop(key) for key in of_function if key in arguments}
    serial = arguments.pop("serial", False)
    made = stage(number, "map", number - 1, of=function(name, **kinds), **arguments)
    return made.model_copy(update={"serial": serial})


@pytest.mark.parametrize(
    ("kind", "stages", "is_one"),
    [
        ("parallel_map", (source(), mapped(1), stage(2, "batch", 1)), False),  # tf.data makes it so by default
        ("parallel_map", (source(), mapped(1, num_parallel_calls=1)), True),  # the user's own argument is raised
        ("parallel_map", (source(), mapped(1, num_parallel_calls=AUTOTUNE)), False),
        ("parallel_map", (source(), mapped(1, python=True)), True),
        ("parallel_map", (source(), mapped(1, python=True, serial=True)), False),  # TensorFlow would not do it
        ("cache", (source("random"), mapped(1, random=True)), False),
        ("cache", (source(shuffle=False), mapped(1, "decode"), stage(2, "cache", 1)), False),
        ("cache", (source(shuffle=False), mapped(1, "decode"), stage(2, "cache", 1, filename="/data/kept")), True),
        ("batch_before_map", (source(), mapped(1), stage(2, "cache", 1), stage(3, "batch", 2)), False),
        ("batch_before_map", (source(), mapped(1, on_batches="not"), stage(2, "batch", 1)), False),
        ("batch_before_map", (source(), mapped(1, python=True), stage(2, "batch", 1)), True),
        ("batch_before_map", (source(), mapped(1, draws_in_python=True), stage(2, "batch", 1)), False),
        ("batch_before_map", (source(), mapped(1, random=True, on_batches="as-is"), stage(2, "batch", 1)), True),
        ("batch_before_map", (source(), mapped(1, random=True, on_batches="not"), stage(2, "batch", 1)), False),
        ("batch_before_map", (source(), mapped(1, on_batches="as-is"), stage(2, "ragged_batch", 1)), True),
        ("batch_before_map", (source(), mapped(1), stage(2, "padded_batch", 1)), False),
        ("superfluous", (source(), stage(1, "batch", 0, drop_remainder=True), stage(2, "unbatch", 1)), False),
        ("superfluous", (source(), mapped(1), stage(2, "cache", 1), stage(3, "batch", 2)), True),
        ("superfluous", (source(), mapped(1, random=True), stage(2, "cache", 1), stage(3, "batch", 2)), False),
        ("superfluous", (source(), stage(1, "shuffle", 0), stage(2, "cache", 1), stage(3, "batch", 2)), False),
        ("options", (source(), mapped(1)), False),
        ("read_size", (source("TFRecordDataset", buffer_size=1024), stage(1, "batch", 0)), True),
        ("read_size", (source("TFRecordDataset", buffer_size=64 * 2**20), stage(1, "batch", 0)), False),
        ("gather_batches", (source("from_tensor_slices"), mapped(1, random=True), stage(2, "batch", 1)), False),
        ("gather_batches", (source("from_tensor_slices"), mapped(1, on_batches="not"), stage(2, "batch", 1)), False),
        ("gather_batches", (source("from_tensor_slices"), stage(1, "filter", 0, of=function("f"))), False),
        ("gather_windows", windows(size=5), False),  # the last ones are shorter
        ("gather_windows", windows(size=4, drop_remainder=True), False),
        ("gather_windows", windows(of=row(tensor("float32", 8)), size=5, drop_remainder=True), False),
        ("gather_windows", windows(of=None, size=5, drop_remainder=True), False),
        ("out_of_python", (source("from_generator", of=function("rows", python=True)), mapped(1)), False),
        (
            "parallel_interleave",
            (source(), stage(1, "flat_map", 0, of=function("rows"), inner=(stage(9, "batch"),))),
            False,
        ),
    ],
)
def test_a_kind_is_a_candidate_or_none(kind: str, stages: tuple[Stage, ...], is_one: bool) -> None:
    assert bool(of_kind(tried(chain_of(*stages)), kind)) is is_one


def test_a_stateless_map_that_tf_data_does_not_parallelise_keeps_its_order() -> None:
    stages = (source(), mapped(1), stage(2, "batch", 1))
    off = of_kind(tried(chain_of(*stages, default_parallelised=False)), "parallel_map")
    assert [fix.reorders for fix in off] == [False]


@pytest.mark.parametrize(
    ("kind", "stages", "expected"),
    [
        (  # a batch moves before the last map and before all of them, but never before a random one
            "batch_before_map",
            (source(), mapped(1, random=True), mapped(2), mapped(3), stage(4, "batch", 3)),
            [(MoveBefore(stage=4, other=2),), (MoveBefore(stage=4, other=3),)],
        ),
        (  # what parses an example then parses a batch of them
            "batch_before_map",
            (source(), mapped(1, parses_examples=True), stage(2, "batch", 1)),
            [(MoveBefore(stage=2, other=1), ParseBatch(stage=1))],
        ),
        (  # before what takes batches, and what takes one sample is vectorized
            "batch_before_map",
            (
                source(),
                mapped(1, on_batches="not"),
                mapped(2, on_batches="vectorized-map"),
                mapped(3, on_batches="as-is"),
                stage(4, "batch", 3),
            ),
            [(MoveBefore(stage=4, other=2), Vectorize(stage=2)), (MoveBefore(stage=4, other=3),)],
        ),
        (
            "gather_batches",
            (source("from_tensor_slices"), mapped(1, on_batches="vectorized-map"), stage(2, "batch", 1)),
            [(MoveBefore(stage=2, other=1), Vectorize(stage=1), GatherBatches(source=0, batch=2))],
        ),
        (  # what is behind an endless repeat is cached in front of it
            "cache",
            (source(shuffle=False), stage(1, "repeat", 0), stage(2, "filter", 1, of=function("usable")), mapped(3)),
            [
                (InsertAfter(stage=0, method="cache"),),
                (MoveBefore(stage=2, other=1), MoveBefore(stage=3, other=1), InsertAfter(stage=3, method="cache")),
            ],
        ),
        (  # and so are the readers of files that are repeated
            "cache",
            (stage(0, "list_files", shuffle=False), stage(1, "repeat", 0), stage(2, "TFRecordDataset", 1), mapped(3)),
            [
                (InsertAfter(stage=0, method="cache"),),
                (MoveBefore(stage=2, other=1), MoveBefore(stage=3, other=1), InsertAfter(stage=3, method="cache")),
            ],
        ),
        (  # which stay behind a shuffle
            "cache",
            (source("list_files"), stage(1, "shuffle", 0), stage(2, "flat_map", 1, of=function("read"))),
            [(InsertAfter(stage=0, method="cache"),)],
        ),
        (  # a filter does not, unless it draws
            "cache",
            (source(), stage(1, "shuffle", 0), stage(2, "repeat", 1), stage(3, "filter", 2, of=function("usable"))),
            [
                (InsertAfter(stage=0, method="cache"),),
                (MoveBefore(stage=3, other=1), InsertAfter(stage=3, method="cache")),
            ],
        ),
        (
            "cache",
            (source(), stage(1, "shuffle", 0), stage(2, "filter", 1, of=function("some", random=True))),
            [(InsertAfter(stage=0, method="cache"),)],
        ),
        (  # and what is random behind a repeat
            "cache",
            (source(), stage(1, "repeat", 0), mapped(2, "crop", random=True)),
            [(InsertAfter(stage=0, method="cache"),)],
        ),
        (  # a cache of too little moves behind what is dear
            "cache",
            (source(shuffle=False), stage(1, "cache", 0), mapped(2, "decode"), stage(3, "batch", 2)),
            [(Remove(stage=1), InsertAfter(stage=3, method="cache"))],
        ),
        (  # consecutive maps alike are fused as the longest run
            "fuse",
            (source(), *(mapped(n, f"f{n}") for n in (1, 2, 3)), mapped(4, num_parallel_calls=2)),
            [(Fuse(stages=(1, 2, 3)),)],
        ),
        (
            "gather_batches",
            (source("from_tensor_slices"), stage(1, "shuffle", 0), stage(2, "batch", 1), mapped(3)),
            [(GatherBatches(source=0, batch=2),)],
        ),
        (  # in place of a cache of the slices too
            "gather_batches",
            (source("from_tensor_slices"), stage(1, "cache", 0), stage(2, "shuffle", 1), stage(3, "batch", 2)),
            [(Remove(stage=1), GatherBatches(source=0, batch=3))],
        ),
        (  # also behind maps that take whole batches
            "gather_batches",
            (source("from_tensor_slices"), stage(1, "shuffle", 0), mapped(2), stage(3, "batch", 2)),
            [(MoveBefore(stage=3, other=2), GatherBatches(source=0, batch=3))],
        ),
        (  # one at a time, and where nothing is drawn also by whole batches
            "gather_windows",
            (*windows(size=5, drop_remainder=True), stage(3, "shuffle", 2), mapped(4), stage(5, "batch", 4)),
            [
                (GatherWindows(source=0, window=1, flat_map=2),),
                (
                    MoveBefore(stage=3, other=2),
                    MoveBefore(stage=5, other=2),
                    GatherWindows(source=0, window=1, flat_map=2),
                ),
            ],
        ),
        (
            "gather_windows",
            (*windows(size=5, drop_remainder=True), mapped(3, random=True), stage(4, "batch", 3)),
            [(GatherWindows(source=0, window=1, flat_map=2),)],
        ),
        (
            "out_of_python",
            (source("from_generator", of=function("rows", python=True)), stage(1, "batch", 0)),
            [(BatchInGenerator(generator=0, batch=1),)],
        ),
    ],
)
def test_the_edits_of_a_kind(kind: str, stages: tuple[Stage, ...], expected: list[tuple[Any, ...]]) -> None:
    found = [fix.edits for fix in of_kind(tried(chain_of(*stages)), kind)]
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("of", "threads", "caveat"),
    [
        ({"stateful": True}, False, ""),  # it reads a table or a variable
        ({"random": True}, False, "with a seed"),
        ({"changes_state": True}, True, "safe to call from several threads"),
        ({"random": True, "changes_state": True}, True, "safe to call from several threads"),
        ({"random": True, "changes_state": True, "changes_seeds": True}, False, "may draw the same numbers"),
        ({"python": True}, True, "safe to call from several threads"),
    ],
)
def test_only_what_runs_python_or_changes_a_state_is_not_run_on_several_threads_unasked(
    of: dict[str, bool], threads: bool, caveat: str
) -> None:
    looked = chain_of(source(), mapped(1, "augment", **of), stage(2, "batch", 1))
    found = tried(looked)
    (fix,) = of_kind(found, "parallel_map")
    assert (fix.threads, reason(found, "parallel_map") != "") == (threads, threads)
    assert caveat in fix.because
    opened = stage(1, "interleave", 0, of=function("open"), inner=(mapped(9, "augment", **of),), cycle_length=2)
    assert of_kind(tried(chain_of(source(), opened)), "parallel_interleave")[0].threads is threads


def drawing(alike: bool, **arguments: Any) -> Stage:
    """A map that draws, alike for several parts of an element or not."""
    augment = function("augment", random=True).model_copy(update={"draws_alike": alike})
    return stage(1, "map", 0, of=augment, **arguments)


def opening(inner: Stage, **arguments: Any) -> Stage:
    return stage(1, "interleave", 0, of=function("open"), inner=(inner,), **arguments)


@pytest.mark.parametrize("allow_threads", [False, True])
@pytest.mark.parametrize("made", [drawing, lambda alike: drawing(alike, num_parallel_calls=1)])
def test_what_draws_alike_for_a_picture_and_its_mask_is_not_run_on_several_threads_and_other_draws_are(
    made: Any, allow_threads: bool
) -> None:
    stages = (source(), made(True), mapped(2, "noise", random=True), stage(3, "batch", 2))
    found = tried(chain_of(*stages), allow_threads=allow_threads)
    assert [fix.stages for fix in of_kind(found, "parallel_map")] == [(2,)]
    assert [fix.stages for fix in of_kind(found, "parallel_pairs")] == [(1,)]
    assert reason(found, "parallel_map") == ""
    assert reason(found, "parallel_pairs").startswith("it draws alike for several parts of an element, by equal seeds")
    other = tried(chain_of(source(), made(False), stage(2, "batch", 1)))
    assert (len(of_kind(other, "parallel_map")), of_kind(other, "parallel_pairs")) == (1, [])


@pytest.mark.parametrize("alike", [False, True])
def test_what_an_interleave_opens_that_draws_alike_is_not_read_in_parallel(alike: bool) -> None:
    stages = (source("list_files"), opening(drawing(alike), cycle_length=2), stage(2, "batch", 1))
    found = tried(chain_of(*stages), allow_reordering=True)
    assert bool(of_kind(found, "parallel_pairs")) == alike
    assert bool(of_kind(found, "parallel_interleave")) == (not alike)


def test_what_is_in_parallel_as_written_may_have_more_calls_though_it_draws_alike() -> None:
    stages = (source(), drawing(True, num_parallel_calls=2), stage(2, "batch", 1))
    found = tried(chain_of(*stages), cores=4)
    assert of_kind(found, "parallel_map")
    assert not of_kind(found, "parallel_pairs")


@pytest.mark.parametrize(("of", "threads"), [({"stateful": True}, False), ({"random": True}, True)])
def test_a_filter_that_draws_leaves_out_others_on_several_threads(of: dict[str, bool], threads: bool) -> None:
    stages = (source(), stage(1, "filter", 0, of=function("usable", **of)))  # type: ignore[arg-type]
    assert [fix.threads for fix in of_kind(tried(chain_of(*stages)), "options")] == [threads]


def test_a_map_that_waits_is_given_more_calls_than_cores() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("fetch", python=True)))
    looked = inspection(stages, (cost(0, 0.1), cost(1, 20.0, 0.5)))
    calls = [edit.value for fix in of_kind(tried(looked), "parallel_map") for edit in fix.edits[:1]]  # type: ignore[union-attr]
    assert calls == [AUTOTUNE, 16, 4]


def test_a_flat_map_over_files_becomes_an_interleave() -> None:
    files = stage(1, "flat_map", 0, of=function("open"), inner=(stage(9, "TFRecordDataset"),))
    fix = of_kind(tried(chain_of(stage(0, "list_files"), files)), "parallel_interleave")[0]
    assert isinstance(fix.edits[0], Interleave)
    assert fix.reorders


def test_an_interleave_keeps_its_order_unless_its_cycle_grows() -> None:
    found = of_kind(
        tried(chain_of(stage(0, "range"), stage(1, "interleave", 0, of=function("open")))), "parallel_interleave"
    )
    assert [fix.reorders for fix in found] == [False, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [("cycle_length", 3), ("num_parallel_calls", AUTOTUNE)]),  # by itself AUTOTUNE takes one in turn
        ({"cycle_length": AUTOTUNE}, [("cycle_length", 3), ("num_parallel_calls", AUTOTUNE)]),
        ({"cycle_length": 5}, [("num_parallel_calls", AUTOTUNE)]),
        ({"cycle_length": 5, "num_parallel_calls": 2}, [("num_parallel_calls", AUTOTUNE)]),
        ({"cycle_length": 5, "num_parallel_calls": 3}, None),
        ({"cycle_length": 2, "num_parallel_calls": 2}, None),  # it reads all that are in turn
        ({"num_parallel_calls": 1}, None),
    ],
)
def test_an_interleave_in_parallel_has_as_many_inputs_in_turn_as_before(
    given: dict[str, int], expected: list[tuple[str, int]] | None
) -> None:
    opened = stage(1, "interleave", 0, of=function("open")).model_copy(update={"arguments": given})
    found = of_kind(tried(chain_of(source(), opened), cores=3), "parallel_interleave")
    kept = [fix for fix in found if not fix.reorders]
    edits = None if expected is None else [SetArgument(stage=1, argument=name, value=of) for name, of in expected]
    assert [list(fix.edits) for fix in kept] == ([] if edits is None else [edits])


def test_under_a_quota_an_interleave_keeps_an_input_in_turn_for_each_cpu() -> None:
    """TensorFlow goes by the CPUs that the kernel lets it run on: two of 32 gave another order, and were refused."""
    opened = stage(1, "interleave", 0, of=function("open"))
    found = of_kind(tried(chain_of(source(), opened), cores=2, allowed_cpus=32), "parallel_interleave")
    kept = [fix.edits[0] for fix in found if not fix.reorders]
    assert kept == [SetArgument(stage=1, argument="cycle_length", value=32)]


@pytest.mark.parametrize(("reads", "is_tried"), [(None, True), (2, True), (4, False)])
def test_fewer_parallel_reads_than_cores_are_raised(reads: int | None, is_tried: bool) -> None:
    looked = chain_of(source("TFRecordDataset", num_parallel_reads=reads), stage(1, "batch", 0))
    assert bool(of_kind(tried(looked, cores=4), "parallel_interleave")) is is_tried


@pytest.mark.parametrize(
    ("method", "given", "waits", "counts"),
    [
        ("interleave", {"cycle_length": 16, "num_parallel_calls": AUTOTUNE}, True, [128, 64, 32]),
        ("interleave", {"num_parallel_calls": AUTOTUNE}, True, [16, 128, 64, 32]),  # it has one in turn for each core
        ("interleave", {"cycle_length": 64, "num_parallel_calls": 64}, True, [256, 128]),
        ("interleave", {"cycle_length": 16, "num_parallel_calls": AUTOTUNE}, False, []),
        ("interleave", {"cycle_length": 4}, True, [16]),  # one at a time so far
        ("TFRecordDataset", {"num_parallel_reads": 16}, True, [128, 64, 32]),
        ("TFRecordDataset", {"num_parallel_reads": 16}, False, []),
        ("TFRecordDataset", {"num_parallel_reads": 16, "filenames": 40}, True, [40, 32]),  # as many as there are
        ("TFRecordDataset", {"num_parallel_reads": 16, "filenames": 16}, True, []),
        ("TFRecordDataset", {"num_parallel_reads": AUTOTUNE}, True, [128, 64, 32]),
    ],
)
def test_what_waits_for_files_reads_more_of_them_than_there_are_cores(
    method: str, given: dict[str, int], waits: bool, counts: list[int]
) -> None:
    read = stage(1, method, 0, of=function("open") if method == "interleave" else None)
    stages = (source(), read.model_copy(update={"arguments": given}), stage(2, "batch", 1))
    alone = cost(1, 100.0, 160.0 if waits else 1400.0, elements=32.0).model_copy(update={"calls": 16.0})
    found = tried(inspection(stages, (cost(0, 0.1), alone, cost(2, 1.0))), cores=16)
    names = {"cycle_length", "num_parallel_reads"}
    edits = [edit for fix in of_kind(found, "parallel_interleave") if fix.reorders for edit in fix.edits]
    assert [edit.value for edit in edits if isinstance(edit, SetArgument) and edit.argument in names] == counts


@pytest.mark.parametrize(("python", "counts"), [(False, []), (True, [16, 64, 32])])
def test_an_interleave_of_one_input_is_not_given_more(python: bool, counts: list[int]) -> None:
    """It has one call, as one that runs Python has, whose inputs may be many."""
    opened = stage(1, "interleave", 0, of=function("open", python=python), cycle_length=8, num_parallel_calls=8)
    looked = inspection((source(), opened, stage(2, "batch", 1)), (cost(0, 0.1), cost(1, 100.0, 9.0), cost(2, 1.0)))
    found = of_kind(tried(looked, cores=8, allow_threads=True), "parallel_interleave")
    edits = [edit for fix in found for edit in fix.edits if isinstance(edit, SetArgument)]
    assert [edit.value for edit in edits if edit.argument == "cycle_length"] == counts


def augmented() -> tuple[Stage, ...]:
    return (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("decode")),
        stage(2, "shuffle", 1, buffer_size=100),
        stage(3, "map", 2, of=function("flip", random=True)),
        stage(4, "batch", 3),
    )


@pytest.mark.parametrize(
    ("training", "repeats", "is_tried"),
    [
        (ScriptTraining(line="train.py:9", model=True, epochs=1), False, False),
        (ScriptTraining(line="train.py:9", model=True, epochs=1), True, True),
        (ScriptTraining(line="train.py:9", model=True, epochs=1, in_loop=True), False, True),
        (ScriptTraining(line="train.py:9", model=True, epochs=2), False, True),
        (ScriptTraining(line="train.py:9", model=True, epochs=2, steps=100), True, False),
        (ScriptTraining(line="train.py:9", model=True, epochs=2, steps=101), True, True),
        (ScriptTraining(line="train.py:9"), False, True),
        (ScriptTraining(line="train.py:9", steps=100), True, False),
        (ScriptTraining(line="train.py:9", steps=101), True, True),
        (ScriptTraining(line="train.py:9", never_reads_again=True), False, False),
        (ScriptTraining(line="train.py:9", never_reads_again=True), True, True),
        (ScriptTraining(line="train.py:9", never_reads_again=True, steps=101), False, False),
        (ScriptTraining(line="train.py:9", pass_steps=20, leaves_passes=True), False, False),
        (ScriptTraining(line="train.py:9", pass_steps=20, leaves_passes=True), True, False),
        (ScriptTraining(line="train.py:9", pass_steps=20), True, True),
        (None, False, True),
    ],
)
def test_no_cache_is_tried_for_a_single_epoch(training: ScriptTraining | None, repeats: bool, is_tried: bool) -> None:
    again = [stage(2, "repeat", 1)] * repeats
    stages = (source(shuffle=False), mapped(1, "decode"), *again, stage(3, "batch", 1 + repeats))
    counted = {"pass_elements": 100, "cardinality": INFINITE if repeats else 100}
    found = tried(chain_of(*stages, training=training).model_copy(update=counted))
    caches = [attempt for attempt in found if attempt.fix.kind == "cache"]
    assert {attempt.outcome for attempt in caches} == {"pending" if is_tried else "not-tried"}
    if not is_tried:
        once = "the fit passes over its data once"
        if training is not None and training.leaves_passes:
            once = "the script's loop leaves each pass before its end, where a cache would be full"
        elif training is not None and training.never_reads_again:
            once = "the script's loop passes over its data once, or has another dataset in each pass"
        elif training is not None and training.epochs is None:
            once = "the script's loop ends within its first pass over the data"
        assert reason(found, "cache") == f"{once}, and nothing would be read from a cache."


def test_a_repeat_of_one_pass_begins_no_second_one() -> None:
    training = ScriptTraining(line="train.py:9", never_reads_again=True)
    once, twice = (chain_of(source(), stage(1, "repeat", 0, count=count), training=training) for count in (1, 2))
    assert once.model_copy(update={"cardinality": None, "pass_elements": None}).once
    assert not twice.model_copy(update={"cardinality": None, "pass_elements": None}).once


def test_a_repeat_that_makes_the_pass_no_longer_begins_no_second_one() -> None:
    """As of what a `zip` puts beside each element."""
    training = ScriptTraining(line="train.py:9", model=True, epochs=1)
    whole = chain_of(source(shuffle=False), stage(1, "repeat", 0), stage(2, "batch", 1), training=training)
    assert whole.model_copy(update={"cardinality": 100, "pass_elements": 100}).once
    assert not whole.model_copy(update={"cardinality": 100, "pass_elements": 50}).once
    assert not whole.model_copy(update={"cardinality": None, "pass_elements": None}).once


def test_no_cache_stands_behind_what_is_made_anew_for_each_pass() -> None:
    stages = [source(shuffle=False), mapped(1, "decode"), stage(2, "batch", 1)]
    found = tried(chain_of(*stages[:2], stages[2].model_copy(update={"anew": True})))
    assert [fix.edits for fix in of_kind(found, "cache")] == [(InsertAfter(stage=1, method="cache"),)]
    all_anew = tried(chain_of(*(each.model_copy(update={"anew": True}) for each in stages)))
    assert not of_kind(all_anew, "cache")


@pytest.mark.parametrize(
    ("listed", "shuffled", "reorders"), [(None, False, True), (False, False, False), (None, True, False)]
)
def test_a_cache_that_would_give_each_epoch_the_files_in_one_order_needs_an_option(
    listed: bool | None, shuffled: bool, reorders: bool
) -> None:
    stages = [source("list_files", shuffle=listed), mapped(1, "decode")]
    stages += [stage(2, "shuffle", 1, buffer_size=100)] if shuffled else []
    (found,) = (fix for fix in of_kind(tried(chain_of(*stages), allow_reordering=True), "cache") if not fix.combines)
    assert found.reorders is reorders


def opened_names(
    *between: str,
    mixed: bool = False,
    names: Element = tensor("string"),  # noqa: B008
    reader: str = "TFRecordDataset",
) -> Inspection:
    """Shuffled names of files, an interleave that reads them, and a map that parses what it reads."""
    stages = [
        source("from_tensor_slices"),
        stage(1, "shuffle", 0, buffer_size=9).model_copy(update={"element": names}),
    ]
    stages += [stage(2 + number, method, 1 + number) for number, method in enumerate(between)]
    last = len(stages)
    stages += [stage(last, "interleave", last - 1, of=function("open"), inner=(stage(99, reader),))]
    stages += [mapped(last + 1, "parse")]
    stages += [stage(last + 2, "shuffle", last + 1, buffer_size=100)] if mixed else []
    return chain_of(*stages, stage(len(stages), "batch", len(stages) - 1))


@pytest.mark.parametrize("between", [(), ("prefetch",)])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_shuffle_of_names_that_are_opened_behind_it_is_like_a_list_of_files_in_any_order(
    mixed: bool, between: tuple[str, ...]
) -> None:
    found = tried(opened_names(*between, mixed=mixed), allow_reordering=True)
    (fix,) = of_kind(found, "cache")
    assert fix.kept_stages == [3 + len(between) + (not mixed)], "behind all that is fixed"
    assert fix.because.endswith("; the files then keep the order of the first epoch")
    assert fix.reorders is not mixed
    assert 1 in fix.stages


def test_names_of_files_that_are_shuffled_with_their_labels_are_like_names_alone() -> None:
    (fix,) = of_kind(tried(opened_names(mixed=True, names=row(tensor("string"), tensor("int64")))), "cache")
    assert fix.kept_stages == [3]


def test_what_opens_shuffled_names_is_cached_in_front_of_a_repeat_and_behind_their_shuffle() -> None:
    edits = [fix.edits for fix in of_kind(tried(opened_names("repeat"), allow_reordering=True), "cache")]
    behind = (MoveBefore(stage=3, other=2), MoveBefore(stage=4, other=2), InsertAfter(stage=4, method="cache"))
    assert behind in edits


@pytest.mark.parametrize(
    "looked",
    [
        opened_names(names=tensor("int64")),
        opened_names(names=row(tensor("string", 32), tensor("int64", 32))),  # of batches
        opened_names(reader="from_tensor_slices"),
        opened_names("take"),  # it would keep the files that it takes in the first epoch
        opened_names("shuffle"),
    ],
)
def test_a_shuffle_of_anything_else_than_names_ends_what_is_cached(looked: Inspection) -> None:
    assert [fix.kept_stages for fix in of_kind(tried(looked, allow_reordering=True), "cache")] == [[0]]


def test_names_that_nothing_fixed_opens_are_not_kept_in_one_order() -> None:
    looked = with_stage(opened_names(), 2, inner=(stage(8, "TFRecordDataset"), stage(9, "shuffle", 8)))
    assert [fix.kept_stages for fix in of_kind(tried(looked), "cache")] == [[0]]


@pytest.mark.parametrize(
    ("reader", "kept"),
    [
        ((stage(8, "shuffle"), stage(9, "interleave", 8)), 1),
        ((stage(7, "prefetch"), stage(8, "shuffle", 7), stage(9, "flat_map", 8)), 1),
        ((stage(8, "interleave"), stage(9, "shuffle", 8)), None),  # it mixes the samples
        ((stage(7, "shuffle"), stage(8, "repeat", 7), stage(9, "interleave", 8)), None),
    ],
)
def test_a_loaded_dataset_whose_reader_shuffles_its_shards_is_like_files_in_any_order(
    reader: tuple[Stage, ...], kept: int | None
) -> None:
    stages = (stage(0, "load", inner=reader), mapped(1, "costly"), stage(2, "shuffle", 1), stage(3, "batch", 2))
    found = tried(chain_of(*stages))
    assert [fix.kept_stages for fix in of_kind(found, "cache")] == ([] if kept is None else [[kept]])
    caveat = "; the files then keep the order of the first epoch"
    assert all(fix.because.endswith(caveat) and not fix.reorders for fix in of_kind(found, "cache"))
    unmixed = tried(chain_of(*stages[:2], stage(2, "batch", 1)))
    assert ("--allow-reordering" in reason(unmixed, "cache")) if kept else not of_kind(unmixed, "cache")


def test_a_cache_stands_before_the_first_random_stage_with_its_size() -> None:
    looked = chain_of(*augmented()).model_copy(
        update={"costs": tuple(cost(n, 5.0, elements=32, element_bytes=2**20) for n in range(5))}
    )
    fix = of_kind(tried(looked, free_memory_bytes=2**33), "cache")[0]
    assert fix.edits == (InsertAfter(stage=1, method="cache"),)
    assert fix.because == "takes about 3.12 GiB in memory"
    short = of_kind(tried(looked, free_memory_bytes=2**30), "cache")[0]
    assert short.edits == (InsertAfter(stage=1, method="cache", arguments={"filename": "disk"}),)


def vectorized(*behind: Stage, **batch: Any) -> Inspection:
    """Texts that are read and batched behind a shuffle of their names, made numbers as batches; 100 batches of 32."""
    stages = (
        source("from_tensor_slices"),
        stage(1, "shuffle", 0, buffer_size=256),
        stage(2, "map", 1, of=function("read")),
        stage(3, "batch", 2, **{"batch_size": 32, **batch}),
        stage(4, "prefetch", 3, buffer_size=-1),
        mapped(5, "vectorize"),
        *behind,
    )
    costs = tuple(cost(each.id, 5.0, elements=1.0 if each.id > 2 else 32.0, element_bytes=2**20) for each in stages)
    return inspection(stages, costs).model_copy(update={"pass_elements": 100.0})


def test_the_samples_of_shuffled_batches_are_kept_and_shuffled_and_batched_behind_the_cache() -> None:
    (found,) = of_kind(tried(vectorized(stage(6, "prefetch", 5)), allow_reordering=True), "cache_samples")
    assert found.edits == (KeepSamples(stage=5, batch_size=32, buffer_size=256),)
    assert found.because == "takes about 100 MiB in memory"
    assert set(found.stages) >= {2, 5}
    assert "--allow-reordering" in reason(tried(vectorized()), "cache_samples")


def repeated(looked: Inspection, behind: int, **count: Any) -> Inspection:
    """The same with a repeat right behind a stage."""
    stages = [
        each.model_copy(update={"inputs": tuple(20 if number == behind else number for number in each.inputs)})
        for each in looked.stages
    ]
    stages.insert(behind + 1, stage(20, "repeat", behind, **count))
    return looked.model_copy(update={"stages": tuple(stages)})


@pytest.mark.parametrize(("count", "passes"), [({}, None), ({"count": -1}, -1), ({"count": 3}, 3)])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_repeat_in_front_of_the_batch_repeats_the_samples_that_are_kept_behind_their_cache(
    behind: int, count: dict[str, Value], passes: int | None
) -> None:
    (found,) = of_kind(tried(repeated(vectorized(), behind, **count), allow_reordering=True), "cache_samples")
    assert found.edits == (Remove(stage=20), KeepSamples(stage=5, batch_size=32, buffer_size=256, passes=passes))


def test_a_repeat_of_batches_stays_behind_the_batches_of_the_samples_that_are_kept() -> None:
    (found,) = of_kind(tried(repeated(vectorized(mapped(6)), 3), allow_reordering=True), "cache_samples")
    moves = [MoveBefore(stage=number, other=20) for number in (5, 6)]
    assert list(found.edits) == [*moves, KeepSamples(stage=6, batch_size=32, buffer_size=256)]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_what_each_epoch_drops_of_kept_samples_the_batch_behind_their_cache_drops(is_repeated: bool) -> None:
    looked = vectorized(drop_remainder=True)
    looked = repeated(looked, 1) if is_repeated else looked
    (found,) = of_kind(tried(looked, allow_reordering=True), "cache_samples")
    passes = None if is_repeated else 1
    keep = KeepSamples(stage=5, batch_size=32, buffer_size=256, passes=passes, drop_remainder=True)
    assert found.edits[-2:] == (SetArgument(stage=3, argument="drop_remainder", value=False), keep)
    again = ".repeat()" * is_repeated
    assert keep.call == f".unbatch().cache().shuffle(256){again}.batch(32, drop_remainder=True)"


@pytest.mark.parametrize("behind", [5, 6])
@pytest.mark.parametrize(
    ("drops", "repeat", "is_tried"), [(True, None, 0), (False, 1, 0), (False, 5, 1), (False, None, 1)]
)
def test_samples_of_maps_that_may_need_whole_batches_are_not_kept_where_a_pass_may_end_with_a_short_one(
    drops: bool, repeat: int | None, is_tried: bool, behind: int
) -> None:
    """As ``tf.reshape(batch, [32, 1])`` does, before or in the last map."""
    looked = vectorized(mapped(6), drop_remainder=drops)
    looked = looked if repeat is None else repeated(looked, repeat)
    elements = {5: tensor("float32", None, 1), 6: tensor("float32", None, 1), behind: tensor("float32", 32, 1)}
    stages = tuple(each.model_copy(update={"element": elements.get(each.id)}) for each in looked.stages)
    found = tried(looked.model_copy(update={"stages": stages}), allow_reordering=True)
    assert len(of_kind(found, "cache_samples")) == is_tried


OPEN = tensor("int64", None, None)


@pytest.mark.parametrize(
    ("of_batch", "of_maps", "kept"),
    [
        (tensor("string", None), [OPEN], None),
        (tensor("string", None), [row(OPEN, tensor("int64", None))], None),
        (tensor("string", None), [Element(kind="ragged", dtype="int64", shape=(None, None)), OPEN], 5),
        (tensor("string", None), [OPEN, tensor("float32", None, 100)], 6),  # such as a mean over each row
        (tensor("uint8", None, None, None), [tensor("float32", None, None, None)], 5),  # which were batched already
        (tensor("string", None), [Element(kind="tensor", dtype="int64")], None),  # of a NumPy function, of any rank
        (Element(kind="tensor", dtype="string"), [Element(kind="tensor", dtype="int64")], 5),
    ],
)
def test_rows_that_a_map_pads_to_the_longest_of_a_batch_are_not_kept(
    of_batch: Element, of_maps: Sequence[Element], kept: int | None
) -> None:
    looked = vectorized(*(mapped(6) for _ in of_maps[1:]))
    elements = dict(enumerate((of_batch, None, *of_maps), 3))
    stages = tuple(each.model_copy(update={"element": elements.get(each.id)}) for each in looked.stages)
    found = of_kind(tried(looked.model_copy(update={"stages": stages}), allow_reordering=True), "cache_samples")
    assert [fix.kept_stages for fix in found] == ([] if kept is None else [[kept]])


@pytest.mark.parametrize("opening", ["interleave", "flat_map", "apply"])
def test_samples_of_what_opens_shuffled_files_are_kept_too(opening: str) -> None:
    looked = with_stage(vectorized(), 2, method=opening, function=None)
    (found,) = of_kind(tried(looked, allow_reordering=True), "cache_samples")
    assert found.kept_stages == [5]


def test_no_samples_are_kept_of_files_that_are_read_without_end_or_opened_behind_the_batches() -> None:
    endless = (stage(8, "TFRecordDataset"), stage(9, "repeat", 8))
    for inner, kept in ((endless, 0), ((), 1)):
        looked = with_stage(vectorized(), 2, method="interleave", function=None, inner=inner)
        assert len(of_kind(tried(looked, allow_reordering=True), "cache_samples")) == kept
    behind = vectorized(stage(6, "flat_map", 5), mapped(7))
    assert not of_kind(tried(behind, allow_reordering=True), "cache_samples")


def test_samples_that_a_zip_has_joined_ahead_may_be_mixed_behind_it_but_in_front_of_none() -> None:
    (ahead,) = (each for each in tried(beside(vectorized()), allow_reordering=True) if each.fix.kind == "cache_samples")
    assert ahead.outcome == "pending"
    taken = vectorized(stage(6, "enumerate", 5))
    assert "on an element's position" in reason(tried(taken, allow_reordering=True), "cache_samples")


def beside(looked: Inspection) -> Inspection:
    """The same, whose names are zipped with their labels."""
    labels, joined = stage(8, "from_tensor_slices"), stage(9, "zip", 0).model_copy(update={"inputs": (0, 8)})
    shuffle = looked.stages[1].model_copy(update={"inputs": (9,)})
    return looked.model_copy(update={"stages": (looked.stages[0], labels, joined, shuffle, *looked.stages[2:])})


@pytest.mark.parametrize(
    ("looked", "free_memory_bytes"),
    [
        (vectorized(drop_remainder="a tensor"), 1e9),
        (repeated(vectorized(), 1, count="a tensor"), 1e9),
        (vectorized(batch_size="a tensor"), 1e9),
        (vectorized(mapped(6, "mixup", on_batches="not")), 1e9),
        (vectorized(mapped(6, "augment", random=True)).model_copy(update={"sink": 6}), 1e7),
        (vectorized(), 1e7),
        (vectorized(stage(6, "batch", 5, batch_size=2), mapped(7)), 1e9),
        (vectorized(stage(6, "cache", 5)), 1e9),
        (vectorized().model_copy(update={"pass_elements": None}), 1e9),
        (chain_of(source(), mapped(1), stage(2, "batch", 1, batch_size=32), mapped(3)), 1e9),  # a cache will do
        (chain_of(source(), stage(1, "shuffle", 0, buffer_size=9), mapped(2)), 1e9),
    ],
)
def test_no_samples_are_kept_of_other_batches(looked: Inspection, free_memory_bytes: float) -> None:
    found = tried(looked, allow_reordering=True, free_memory_bytes=free_memory_bytes)
    assert not of_kind(found, "cache_samples")


def test_of_python_among_the_maps_of_batches_it_is_said_that_it_must_treat_each_sample_by_itself() -> None:
    looked = vectorized(mapped(6, "tokenize", python=True))
    (found,) = of_kind(tried(looked, allow_reordering=True), "cache_samples")
    assert found.because.endswith("; right only if tokenize treats each sample of a batch as a single sample")


def test_samples_are_kept_in_place_of_a_cache_that_is_never_full() -> None:
    looked = vectorized(stage(6, "repeat", 5), stage(7, "cache", 6))
    (found,) = of_kind(tried(looked, allow_reordering=True), "cache_samples")
    assert found.edits == (Remove(stage=7), KeepSamples(stage=5, batch_size=32, buffer_size=256))


def test_a_random_map_runs_behind_the_samples_that_are_kept() -> None:
    looked = vectorized(mapped(6, "augment", random=True))
    (found,) = of_kind(tried(looked, allow_reordering=True), "cache_samples")
    assert found.kept_stages == [5]


def test_where_the_last_fixed_elements_do_not_fit_the_last_that_do_are_kept_in_memory_too() -> None:
    """Bytes are decoded, made floats and cut at random; decoded they take a quarter of what they take as floats."""
    stages = (
        source(),
        stage(1, "map", 0, of=function("decode")),
        stage(2, "map", 1, of=function("normalise")),
        stage(3, "map", 2, of=function("cut", random=True)),
        stage(4, "batch", 3),
    )
    sizes = (2**10, 2**18, 2**20, 2**20, 2**20)
    costs = [cost(each.id, 5.0, elements=32, element_bytes=size) for each, size in zip(stages, sizes, strict=True)]
    looked = inspection(stages, tuple(costs))
    kept = {free: of_kind(tried(looked, free_memory_bytes=free), "cache") for free in (2**32, 2**30, 2**29)}
    assert [[fix.variant for fix in found] for found in kept.values()] == [
        ["cache in memory after map(normalise)"],
        ["cache on disk after map(normalise)", "cache in memory after map(decode)"],
        ["cache on disk after map(normalise)", "cache in memory after range"],
    ]
    early = with_stage(looked, 1, left_early=True)  # as in front of a take
    assert "cache in memory after map(decode)" not in [
        fix.variant for fix in of_kind(tried(early, free_memory_bytes=2**30), "cache")
    ]


@pytest.mark.parametrize(
    ("source_bytes", "packed", "where"),
    [
        (1e6, "", "in memory"),
        (1e9, "", "on disk"),
        (1e8, "", "in memory"),
        (1e8, "GZIP", "on disk"),
        (None, "", "in memory"),
    ],
)
def test_a_cache_of_records_that_nobody_counted_is_as_large_as_their_files_say(
    source_bytes: float | None, packed: str, where: str
) -> None:
    """A batch has 32 records of 1,000 bytes, or of 100 where they are packed."""
    reader = stage(9, "TFRecordDataset", compression_type=packed)
    opened = stage(1, "interleave", 0, of=function("open"), inner=(reader,))
    looked = chain_of(source(), opened, stage(2, "batch", 1))
    costs = (
        looked.costs[0],
        *(each.model_copy(update={"elements": 32.0}) for each in looked.costs[1:2]),
        looked.costs[2],
    )
    known = looked.model_copy(
        update={"pass_elements": None, "read_bytes": 3200.0, "source_bytes": source_bytes, "costs": costs}
    )
    size = None if source_bytes is None else source_bytes / (3200 if packed else 32_000) * 1000
    (found,) = of_kind(tried(known, free_memory_bytes=2e7), "cache")
    assert f"cache {where} after batch" in found.variant
    assert found.because.startswith(
        "takes room in memory for the whole dataset, whose size is not known (1000 B a batch)"
        if size is None
        else f"takes about {units.size(size)} {where}"
    )


@pytest.mark.parametrize(
    ("inner", "known"), [((), True), ((stage(8, "prefetch", 9),), True), ((mapped(8, "decode"),), False)]
)
def test_records_that_an_interleaves_function_maps_have_another_size_than_in_their_files(
    inner: tuple[Stage, ...], known: bool
) -> None:
    opened = stage(1, "interleave", 0, of=function("open"), inner=(stage(9, "TFRecordDataset"), *inner))
    looked = chain_of(source(), opened, stage(2, "batch", 1))
    counted = looked.model_copy(update={"pass_elements": None, "read_bytes": 3200.0, "source_bytes": 1e6})
    (found,) = of_kind(tried(counted), "cache")
    assert ("size is not known" in found.because) is not known


def test_behind_a_generator_that_never_ends_no_cache_would_ever_be_full() -> None:
    def cached(endless: bool) -> list[Attempt]:
        rows = function("rows", python=True).model_copy(update={"endless": endless})
        looked = chain_of(source("from_generator", of=rows), stage(1, "batch", 0))
        return [each for each in tried(looked.model_copy(update={"pass_elements": None})) if each.fix.kind == "cache"]

    assert cached(endless=False)
    assert not cached(endless=True)


@pytest.mark.parametrize(("rate", "tried_on_disk"), [(1e9, True), (1e6, False), (None, True)])
def test_no_cache_on_disk_is_tried_that_is_read_no_faster_than_its_elements_are_made(
    rate: float | None, tried_on_disk: bool
) -> None:
    looked = chain_of(source(shuffle=False), mapped(1, "decode"), stage(2, "batch", 1))
    costs = tuple(each.model_copy(update={"element_bytes": 1e6}) for each in looked.costs)
    looked = looked.model_copy(update={"costs": costs, "disk_bytes_per_s": rate})
    found = next(each for each in tried(looked, free_memory_bytes=1.0) if each.fix.kind == "cache")
    assert "on disk" in found.fix.variant
    assert (found.outcome == "pending") is tried_on_disk
    assert tried_on_disk or "reading it from this disk takes 1.00 s" in found.reason


def test_a_shuffle_that_gives_one_order_for_all_epochs_is_kept_with_what_comes_behind_it() -> None:
    stages = (
        source(shuffle=False),
        stage(1, "shuffle", 0, buffer_size=100, reshuffle_each_iteration=False),
        stage(2, "skip", 1, count=20),
        mapped(3, "decode"),
        stage(4, "shuffle", 3, buffer_size=100),
    )
    (found,) = of_kind(tried(chain_of(*stages)), "cache")
    assert found.edits == (InsertAfter(stage=3, method="cache"),)


def test_a_prefetch_in_the_middle_does_not_keep_a_cache_from_what_comes_behind_it() -> None:
    stages = (source(shuffle=False), stage(1, "prefetch", 0), mapped(2, "decode"), stage(3, "prefetch", 2))
    (found,) = of_kind(tried(chain_of(*stages, stage(4, "shuffle", 3, buffer_size=100))), "cache")
    assert found.edits == (InsertAfter(stage=2, method="cache"),)


@pytest.mark.parametrize("ahead", [(), ("take",), ("zip",)])
@pytest.mark.parametrize(("again", "mapped_behind"), [(True, True), (True, False), (False, True)])
def test_what_is_shuffled_again_behind_its_maps_is_cached_between_the_shuffles(
    again: bool, mapped_behind: bool, ahead: tuple[str, ...]
) -> None:
    """A call of Keras' shuffles the names of a folder, reads, and prefetches; the script maps and shuffles again."""
    stages = [source(), *(stage(number, method, number - 1) for number, method in enumerate(ahead, 1))]
    mixed = stage(len(stages), "shuffle", len(stages) - 1, buffer_size=1024)
    read = mapped(mixed.id + 1, "read").model_copy(update={"place": mixed.place})
    stages += [mixed, read, stage(mixed.id + 2, "prefetch", mixed.id + 1)]
    stages += [mapped(mixed.id + 3, "vectorize")] if mapped_behind else []
    last = stages[-1] if mapped_behind else read  # behind the map, not behind the prefetch
    stages += [stage(len(stages), "shuffle", len(stages) - 1, reshuffle_each_iteration=again)]
    found = [each for each in tried(chain_of(*stages), allow_reordering=True) if each.fix.kind == "cache"]
    between = [each for each in found if each.fix.edits == (InsertAfter(stage=last.id, method="cache"),)]
    assert [each.outcome for each in between] == ["pending"] * again
    caveat = "; the shuffle in front of the cache then takes effect only once, in the first epoch"
    assert all(each.fix.reorders and each.fix.because.endswith(caveat) for each in between)


def test_the_caveat_of_a_cache_between_two_shuffles_stays_where_a_trial_counted_its_elements() -> None:
    mixed, again = stage(1, "shuffle", 0, buffer_size=64), stage(4, "shuffle", 3, buffer_size=64)
    slow = mapped(3, "slow").model_copy(update={"place": mixed.place})  # it cannot move in front of the shuffle
    stages = (source(), mixed, stage(2, "prefetch", 1), slow, again)
    looked = chain_of(*stages)
    fix = next(fix for fix in of_kind(tried(looked, allow_reordering=True), "cache") if fix.reorders)
    caveat = "; the shuffle in front of the cache then takes effect only once, in the first epoch"
    assert fix.because.endswith(caveat)
    assert cache_size.priced(fix, looked, 3200).because.endswith(caveat)
    dropping = chain_of(*stages, stage(5, "batch", 4, batch_size=64, drop_remainder=True))
    assert not any(fix.reorders for fix in of_kind(tried(dropping, allow_reordering=True), "cache"))


def test_a_cache_that_keeps_a_random_order_in_front_of_a_take_would_keep_its_choice() -> None:
    stages = (source("list_files", shuffle=True), stage(1, "take", 0, count=10), mapped(2, "load"))
    found = tried(chain_of(*stages, stage(3, "batch", 2)), allow_reordering=True)
    assert reason(found, "cache").startswith("take depends on an element's position")


@pytest.mark.parametrize("method", ["take", "skip", "shard"])
@pytest.mark.parametrize("shuffles", [True, False])
def test_a_cache_does_not_keep_one_choice_of_files_for_ever(method: str, shuffles: bool) -> None:
    """`list_files` lists them anew in each epoch; that a later shuffle mixes the samples does not change the choice."""
    stages = (source("list_files", shuffle=shuffles), stage(1, method, 0), mapped(2, "load"))
    found = tried(chain_of(*stages, stage(3, "shuffle", 2, buffer_size=500), stage(4, "batch", 3)))
    kept = of_kind(found, "cache")
    assert [bool(fix.kept_stages) for fix in kept] == [True]
    assert (f"{method} depends on an element's position" in reason(found, "cache")) == shuffles


@pytest.mark.parametrize("again", [True, False])
def test_behind_a_cache_and_a_shuffle_a_take_goes_by_an_order_of_each_epoch(again: bool) -> None:
    stages = (source("list_files", shuffle=True), mapped(1, "load"))
    mixed = stage(2, "shuffle", 1, buffer_size=500, reshuffle_each_iteration=again)
    found = tried(chain_of(*stages, mixed, stage(3, "take", 2, count=10)), allow_reordering=True)
    assert [reason(found, "cache").startswith("take depends on")] == [not again]


def test_options_in_the_middle_do_not_keep_a_cache_from_what_comes_behind_them() -> None:
    stages = (source(), stage(1, "with_options", 0, deterministic=False), mapped(2, "decode"))
    options, shuffle = stage(3, "with_options", 2), stage(4, "shuffle", 3, buffer_size=100)
    (found,) = of_kind(tried(chain_of(*stages, options, shuffle)), "cache")
    assert found.edits == (InsertAfter(stage=2, method="cache"),)


@pytest.mark.parametrize(("method", "reorders"), [("interleave", True), ("flat_map", False)])
def test_what_reads_several_files_at_a_time_has_another_order_in_front_of_a_repeat(method: str, reorders: bool) -> None:
    stages = (source(shuffle=False), stage(1, "repeat", 0), stage(2, method, 1, of=function("read")))
    found = [(fix.edits, fix.reorders) for fix in of_kind(tried(chain_of(*stages), allow_reordering=True), "cache")]
    assert ((MoveBefore(stage=2, other=1), InsertAfter(stage=2, method="cache")), reorders) in found


@pytest.mark.parametrize("method", ["shuffle", "repeat"])
def test_an_interleave_that_stays_where_it_is_keeps_the_order(method: str) -> None:
    stages = (source(), stage(1, "interleave", 0, of=function("read")), stage(2, method, 1), mapped(3, "decode"))
    found = [(fix.edits, fix.reorders) for fix in of_kind(tried(chain_of(*stages)), "cache")]
    assert ((MoveBefore(stage=3, other=2), InsertAfter(stage=3, method="cache")), False) in found


def test_decoding_behind_a_shuffle_is_cached_in_front_of_it() -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "shuffle", 0, buffer_size=100),
        stage(2, "map", 1, of=function("decode")),
        stage(3, "map", 2, of=function("flip", random=True)),
    )
    found = of_kind(tried(chain_of(*stages)), "cache")
    assert (MoveBefore(stage=2, other=1), InsertAfter(stage=2, method="cache")) in [fix.edits for fix in found]


@pytest.mark.parametrize("method", ["prefetch", "with_options"])
@pytest.mark.parametrize("place", range(1, 6))
def test_what_hands_elements_on_does_not_keep_maps_from_moving_in_front_of_a_shuffle(method: str, place: int) -> None:
    """`tfds.load` ends with a prefetch."""
    methods = ["shuffle", "repeat", "map", "map", "batch"]
    methods.insert(place - 1, method)
    behind = [
        mapped(number, f"f{number}") if each == "map" else stage(number, each, number - 1)
        for number, each in enumerate(methods, 1)
    ]
    shuffle, *maps = (each.id for each in behind if each.method in ("shuffle", "map"))
    edits = [fix.edits for fix in of_kind(tried(chain_of(source(shuffle=False), *behind)), "cache")]
    moves = [MoveBefore(stage=each, other=shuffle) for each in maps]
    assert (*moves, InsertAfter(stage=maps[-1], method="cache")) in edits


def test_maps_behind_a_repeat_and_a_further_shuffle_move_in_front_of_both_with_what_reads_the_files() -> None:
    """The order of files that are read at the same time is another one then; the buffer holds what was parsed."""
    read = stage(2, "interleave", 1, of=function("read"), inner=(stage(9, "TFRecordDataset"),))
    stages = (source(), stage(1, "repeat", 0), read, stage(3, "shuffle", 2, buffer_size=9), mapped(4, "parse"))
    looked = chain_of(*stages, stage(5, "batch", 4))
    costs = [each.model_copy(update={"element_bytes": 2000.0}) if each.stage == 4 else each for each in looked.costs]
    looked = looked.model_copy(update={"costs": tuple(costs)})
    found = of_kind(tried(looked, allow_reordering=True, free_memory_bytes=150_000), "cache")
    moves = [MoveBefore(stage=2, other=1), MoveBefore(stage=4, other=1)]
    disk = {"filename": "disk"}
    edits = [fix.edits for fix in found]
    assert (*moves, InsertAfter(stage=4, method="cache", arguments=disk)) in edits
    assert (moves[0], InsertAfter(stage=2, method="cache")) in edits, "as what fits in memory"
    parsed = next(fix for fix in found if 4 in fix.kept_stages)
    assert parsed.reorders
    assert parsed.because.startswith("takes about 195 KiB on disk, and the shuffle's buffer about 17.6 KiB of memory")
    assert cache_size.priced(parsed, looked, 100).because == parsed.because


@pytest.mark.parametrize(
    ("last_ms", "free_bytes", "kept"),
    [(4.0, 2**30, [3, 5]), (0.2, 2**30, [3]), (None, 2**30, [3, 5]), (0.2, 2**20, [3, 5])],
)
def test_a_cache_behind_a_further_map_that_takes_nothing_is_not_tried_beside_a_simpler_one(
    last_ms: float | None, free_bytes: int, kept: list[int]
) -> None:
    """A shuffle, `decode`, another shuffle, and a map that takes so long; a cache on disk may be slower than one."""
    stages = [source(shuffle=False), stage(1, "prefetch", 0), stage(2, "shuffle", 1, buffer_size=9)]
    stages += [mapped(3, "decode"), stage(4, "shuffle", 3, buffer_size=9), mapped(5, "normalise")]
    took = {3: 20.0, 5: last_ms}
    costs = [cost(each.id, took.get(each.id, 0.01), elements=32, element_bytes=2**10) for each in stages]
    found = of_kind(tried(inspection(tuple(stages), tuple(costs)), free_memory_bytes=free_bytes), "cache")
    moved = [fix for fix in found if any(isinstance(edit, MoveBefore) for edit in fix.edits)]
    assert sorted(fix.kept_stages[-1] for fix in moved) == kept


def loaded_behind(
    shuffle_of: int, *, divided: bool = False, repeated: bool = False, prefetched: bool = False
) -> Inspection:
    """Names, a shuffle of them, and a map that makes a MiB of each, at least in its first part: 3200 in a pass."""
    of_parts = {"fixed_statements": 3, "fixed_bytes": 2.0**20} if divided else {}
    load = function("load", random=divided).model_copy(update=of_parts)
    again = [stage(1, "prefetch" if prefetched else "repeat", 0)] if repeated or prefetched else []
    count = len(again)
    mixed = stage(count + 1, "shuffle", count, buffer_size=shuffle_of)
    stages = (source("from_tensor_slices"), *again, mixed, stage(count + 2, "map", count + 1, of=load))
    small = [cost(each.id, 0.01, elements=32, element_bytes=60) for each in stages[:-1]]
    gives_bytes = 2**14 if divided else 2**20  # of a map that is divided, what its first part gives is kept
    return inspection(stages, (*small, cost(count + 2, 20.0, elements=32, element_bytes=gives_bytes)))


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize(
    ("shuffle_of", "repeated", "free_gib", "priced"),
    [
        (3200, False, 4, "takes about 3.12 GiB in memory"),  # which its shuffle shares
        (3200, False, 2, None),
        (10**6, False, 2, None),
        (1024, False, 2, "takes about 3.12 GiB on disk, and the shuffle's buffer about 1.00 GiB of memory"),
        (10**6, False, 3.1, None),
        (10**6, True, 4, "takes about 3.12 GiB in memory"),
        (5000, True, 3, None),  # it holds more than a pass
    ],
)
def test_no_cache_on_disk_moves_in_front_of_a_shuffle_that_would_hold_more_than_fits_in_memory(
    shuffle_of: int, repeated: bool, free_gib: float, priced: str | None, divided: bool
) -> None:
    looked = loaded_behind(shuffle_of, divided=divided, repeated=repeated)
    found = of_kind(tried(looked, free_memory_bytes=free_gib * 2**30), "cache_within_map" if divided else "cache")
    of_names = [] if divided else [fix for fix in found if fix.edits == (InsertAfter(stage=0, method="cache"),)]
    assert len(of_names) == (not divided), "which cannot hold much stays"
    moved = [fix.because.partition(";")[0] for fix in found if fix not in of_names]
    assert moved == ([] if priced is None else [priced])


def test_a_shuffle_whose_elements_become_smaller_holds_no_more_for_a_cache_on_disk() -> None:
    looked = loaded_behind(3200)
    costs = tuple(each.model_copy(update={"element_bytes": 2**21}) for each in looked.costs[:2])
    looked = looked.model_copy(update={"costs": (*costs, looked.costs[2])})
    found = of_kind(tried(looked, free_memory_bytes=2**31), "cache")
    said = "takes about 3.12 GiB on disk; trials read it from memory, a training from the disk"
    assert said in [fix.because for fix in found]


def test_a_cache_on_disk_says_what_reading_it_takes_which_a_short_trial_does_not_show() -> None:
    looked = loaded_behind(1024).model_copy(update={"disk_bytes_per_s": 2.0**30})
    on_disk, in_memory = (of_kind(tried(looked, free_memory_bytes=free), "cache") for free in (2**31, 2**33))
    assert any(fix.because.endswith("; reading it takes 31.2 ms a batch at this disk's 1.00 GiB/s") for fix in on_disk)
    assert not any("reading it" in fix.because for fix in in_memory)


@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("divided", [False, True])
def test_the_price_of_a_cache_that_a_trial_filled_still_has_what_stands_behind_it(
    divided: bool, prefetched: bool
) -> None:
    looked = loaded_behind(1024, divided=divided, prefetched=prefetched)
    looked = looked.model_copy(update={"disk_bytes_per_s": 2.0**30})
    found = of_kind(tried(looked, free_memory_bytes=2**31), "cache_within_map" if divided else "cache")
    moved = next(fix for fix in found if isinstance(fix.edits[0], DivideMap if divided else MoveBefore))
    assert "buffer about 1.00 GiB of memory; reading it takes 31.2 ms a batch" in moved.because
    assert cache_size.priced(moved, looked, 3200).because == moved.because
    uncounted = looked.model_copy(update={"pass_elements": None})
    assert cache_size.priced(moved, uncounted, 3200).because == moved.because


def test_the_first_part_of_a_map_that_reads_a_state_is_kept_only_if_that_stays_as_it_is() -> None:
    looked = loaded_behind(1024, divided=True)
    looked = with_function(looked, looked.stages[-1].id, fixed_reads=True)
    (fix,) = of_kind(tried(looked, free_memory_bytes=2**33), "cache_within_map")
    said = "takes about 3.12 GiB in memory; right only if the variables and tables that load reads stay as they are"
    assert fix.because.startswith(said)
    assert cache_size.priced(fix, looked, 3200).because.startswith(said)


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
    assert said.startswith("decode takes 67 % of the first epoch, and 0 % of the later ones, which read what the first")


def test_what_a_map_draws_in_python_is_not_cached() -> None:
    def cached(decode: Stage) -> list[str]:
        looked = chain_of(source(shuffle=False), decode, stage(2, "batch", 1))
        return [fix.variant for fix in of_kind(tried(looked), "cache")]

    assert cached(mapped(1, python=True)) == ["cache in memory after batch"]
    assert cached(mapped(1, draws_in_python=True)) == ["cache in memory after range"]


@pytest.mark.parametrize(
    ("behind", "moved"),
    [
        ((stage(2, "repeat", 1), stage(3, "cache", 2)), (Remove(stage=3), InsertAfter(stage=1, method="cache"))),
        (
            (stage(2, "repeat", 1), stage(3, "batch", 2), stage(4, "cache", 3), stage(5, "prefetch", 4)),
            (Remove(stage=4), InsertAfter(stage=1, method="cache")),
        ),
        (
            (stage(2, "shuffle", 1), stage(3, "repeat", 2), stage(4, "cache", 3), mapped(5)),
            (
                Remove(stage=4),
                MoveBefore(stage=5, other=2),
                InsertAfter(stage=5, method="cache"),
            ),
        ),
    ],
)
def test_a_cache_behind_an_endless_repeat_moves_in_front_of_what_is_random_and_of_the_repeat(
    behind: tuple[Stage, ...], moved: tuple[Edit, ...]
) -> None:
    looked = chain_of(source(shuffle=False), mapped(1, "decode"), *behind)
    assert moved in [fix.edits for fix in of_kind(tried(looked), "cache")]


def test_where_a_map_that_draws_is_divided_no_cache_stays_behind_an_endless_repeat() -> None:
    divided = function("load", random=True).model_copy(update={"fixed_statements": 3})
    stages = (source(), stage(1, "repeat", 0), stage(2, "cache", 1), stage(3, "map", 2, of=divided))
    (fix,) = of_kind(tried(chain_of(*stages)), "cache_within_map")
    assert fix.edits == (
        Remove(stage=2),
        DivideMap(stage=3, after=0, statements=3),
        InsertAfter(stage=0, method="cache"),
    )


def test_a_cache_of_files_in_the_order_that_another_keeps_already_needs_no_option() -> None:
    stages = (source("list_files"), mapped(1, "read"), stage(2, "cache", 1), mapped(3, "decode"))
    found = tried(chain_of(*stages, mapped(4, "crop", random=True), stage(5, "batch", 4, drop_remainder=True)))
    (fix,) = of_kind(found, "cache")
    assert fix.edits == (Remove(stage=2), InsertAfter(stage=3, method="cache"))
    assert not fix.reorders
    assert reason(found, "cache") == ""


def test_a_cache_that_a_librarys_call_makes_stays_and_is_told_beside_the_one_that_is_tried() -> None:
    read, cached = stage(0, "TFRecordDataset"), stage(1, "cache", 0)
    looked = chain_of(read, cached, mapped(2, "decode"), stage(3, "shuffle", 2))
    (own,) = of_kind(tried(looked), "cache")
    assert own.edits == (Remove(stage=1), InsertAfter(stage=2, method="cache"))
    (fix,) = of_kind(tried(with_stage(looked, 1, place=read.place)), "cache")
    assert fix.edits == (InsertAfter(stage=2, method="cache"),)
    assert fix.because == f"{own.because}; the cache in front of it stays, with 97.7 KiB"
    assert "in place of" not in fix.title


def test_what_a_stage_chooses_among_is_cached_in_place_of_a_cache_behind_an_endless_repeat() -> None:
    inputs: list[Stage] = []
    for start in (0, 3):
        inputs += [stage(start, "range"), mapped(start + 1, "decode"), stage(start + 2, "repeat", start + 1)]
    looked = chain_of(*inputs, stage(6, "sample_from_datasets", 2, 5), stage(7, "cache", 6))
    (found,) = of_kind(tried(looked), "cache")
    kept = [InsertAfter(stage=1, method="cache"), InsertAfter(stage=4, method="cache")]
    assert list(found.edits) == [Remove(stage=7), *kept]


@pytest.mark.parametrize("ahead", [stage(1, "shuffle", 0), mapped(1, "crop", random=True)])
def test_a_cache_behind_what_is_random_moves_on_to_what_is_dear_and_keeps_what_it_kept(ahead: Stage) -> None:
    looked = chain_of(source(), ahead, stage(2, "cache", 1), mapped(3, "decode"), stage(4, "shuffle", 3))
    (fix,) = of_kind(tried(looked), "cache")
    assert fix.edits == (Remove(stage=2), InsertAfter(stage=3, method="cache"))
    assert not fix.reorders
    assert "takes effect only once" not in fix.because, "it does so as it is written"
    assert "right only if" not in fix.because, "what crop drew is kept as it is written"


def test_a_cache_that_a_pass_may_leave_early_is_not_taken_for_one_that_keeps_all() -> None:
    cache = stage(2, "cache", 1).model_copy(update={"left_early": None})
    looked = chain_of(
        source(), mapped(1, "crop", random=True), cache, stage(3, "take", 2, count=9), mapped(4, "decode")
    )
    assert of_kind(tried(looked, allow_reordering=True), "cache") == []


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


@pytest.mark.parametrize(("read_bytes", "is_candidate"), [(100.0, True), (1000.0, True), (9000.0, False)])
def test_a_shuffle_goes_before_a_map_only_if_its_buffer_gets_no_larger(read_bytes: float, is_candidate: bool) -> None:
    looked = chain_of(source(), mapped(1, "resize"), stage(2, "shuffle", 1, buffer_size=100), stage(3, "batch", 2))
    costs = (looked.costs[0].model_copy(update={"element_bytes": read_bytes}), *looked.costs[1:])
    found = [each.fix.title for each in tried(looked.model_copy(update={"costs": costs}))]
    assert ("Shuffle before resize, while the elements are still small" in found) is is_candidate


def test_what_cannot_gain_is_not_tried_and_says_so() -> None:
    found = tried(python_decode(20.0))
    batch = next(attempt for attempt in found if attempt.fix.kind == "parallel_batch")
    assert batch.outcome == "not-tried"
    assert batch.reason == "batch takes 2 % of the time: there is almost nothing to gain."


def test_the_gpu_needs_a_gpu_and_a_model_and_the_service_no_python() -> None:
    assert "no GPU" in reason(tried(python_decode()), "device_prefetch")
    assert "without the step of a model" in reason(tried(python_decode(), gpu=True), "device_prefetch")
    assert reason(tried(python_decode(), gpu=True, model=True), "device_prefetch") == ""
    training = ScriptTraining(line="train.py:9", behind="its class weights")
    weighted = tried(python_decode().model_copy(update={"training": training}), gpu=True, model=True)
    assert "puts its class weights behind its data" in reason(weighted, "device_prefetch")
    assert "Python of decode" in reason(tried(python_decode(), model=True), "service")
    assert "the same cores" in reason(tried(python_decode()), "service")


@pytest.mark.parametrize("as_written_ms", [3.0, 300.0])
def test_where_the_costs_do_not_explain_the_time_a_fix_is_ranked_by_what_its_kind_usually_saves(
    as_written_ms: float,
) -> None:
    looked = chain_of(stage(0, "range"), mapped(1), stage(2, "batch", 1, batch_size=8), costs_ms=(0.1, 2.4, 0.5))
    found = tried(looked, model=True, allow_threads=True, as_written_ms=as_written_ms)
    named = [attempt.fix.kind for attempt in found if attempt.outcome == "pending"]
    assert len(named) > 1
    assert named[-1] == "service", "it has the same cores here"


@pytest.mark.parametrize(
    ("cost_ms", "limits", "expected"),
    [(0.0, True, "not-tried"), (20.0, True, "pending"), (0.01, False, "not-tried")],
)
def test_no_cache_of_names_is_tried_though_the_stages_explain_little(
    cost_ms: float, limits: bool, expected: str
) -> None:
    """Nor where it is the model that takes the rest."""
    draws = stage(1, "shuffle", 0), mapped(2, "load", random=True), stage(3, "batch", 2)
    looked = chain_of(source("from_tensor_slices"), *draws, costs_ms=(cost_ms, 0.0, 5.0, 0.1))
    context = Context(cores=2, model=True, as_written_ms=100.0, bottleneck=Bottleneck(limits=limits))
    found = next(each for each in fixes.attempts(looked, context) if each.fix.kind == "cache")
    assert (found.fix.variant, found.outcome) == ("cache in memory after from_tensor_slices", expected)


@pytest.mark.parametrize(("size", "expected"), [(8, 32), (500, 500)])
def test_a_private_pool_of_the_users_grows_with_the_calls_that_wait(size: int, expected: int) -> None:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("ask", python=True), num_parallel_calls=8),
        stage(2, "with_options", 1).model_copy(update={"arguments": {"threading.private_threadpool_size": size}}),
    )
    looked = inspection(stages, (cost(0, 0.01), cost(1, 40.0, 2.0), cost(2, 0.0)))
    edits = [fix.edits for fix in of_kind(tried(looked), "parallel_map")]
    calls = SetArgument(stage=1, argument="num_parallel_calls", value=32)
    assert (calls, SetOptions(options={"threading.private_threadpool_size": expected})) in edits
    pools = [fix.variant for fix in of_kind(tried(looked), "threadpool") if "pool" in fix.variant]
    assert pools == (["pool of 16 threads"] if size < 16 else []), "none is made smaller"


def test_a_batch_that_is_taken_apart_again_is_left_out() -> None:
    batches = stage(0, "from_generator").model_copy(update={"element": tensor("int64", 8)})
    stages = (batches, stage(1, "unbatch", 0), stage(2, "batch", 1, batch_size=8))
    edits = [fix.edits for fix in of_kind(tried(chain_of(*stages)), "superfluous")]
    assert (Remove(stage=1), Remove(stage=2)) in edits


def test_a_cache_that_no_trial_has_filled_is_not_left_out() -> None:
    looked = chain_of(source(), mapped(1), stage(2, "cache", 1), stage(3, "batch", 2), cold=True)
    assert of_kind(tried(looked), "superfluous") == []


MAPS, PREFETCH = (f"experimental_optimization.{name}" for name in ("map_parallelization", "inject_prefetch"))


@pytest.mark.parametrize(
    ("given", "set_back"),
    [
        ([{"deterministic": False}], None),
        ([{MAPS: False, "autotune.enabled": True}], {MAPS: True}),
        ([{MAPS: False, PREFETCH: False}, {PREFETCH: True}], {MAPS: True}),
        ([{"autotune.enabled": False}], {"autotune.enabled": True}),
    ],
)
def test_only_options_that_the_user_has_switched_off_are_set_back_to_the_defaults(
    given: list[dict[str, Any]], set_back: dict[str, Value] | None
) -> None:
    options = [stage(number, "with_options", number - 1, **each) for number, each in enumerate(given, start=2)]
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f")), *options)
    found = of_kind(tried(chain_of(*stages, default_parallelised=not any(MAPS in each for each in given))), "options")
    assert [fix.edits for fix in found] == ([] if set_back is None else [(SetOptions(options=set_back),)])


def test_all_options_are_set_back_where_it_is_not_known_which_are_off() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0, of=function("f")), stage(2, "with_options", 1))
    (found,) = of_kind(tried(chain_of(*stages, default_parallelised=False)), "options")
    assert "experimental_optimization.apply_default_optimizations" in found.edits[0].model_dump()["options"]


@pytest.mark.parametrize(("size", "offered"), [(0, []), (2, ["pool of 4 threads"]), (4, [])])
def test_a_pool_of_as_many_threads_as_cores_is_offered_only_in_place_of_a_smaller_one(
    size: int, offered: list[str]
) -> None:
    options: dict[str, Any] = {"threading.private_threadpool_size": size} if size else {"deterministic": False}
    looked = chain_of(stage(0, "range"), stage(1, "map", 0, of=function("f")), stage(2, "with_options", 1, **options))
    assert [fix.variant for fix in of_kind(tried(looked, cores=4), "threadpool") if "pool" in fix.variant] == offered


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


def test_the_shuffle_goes_before_maps_and_before_a_repeat() -> None:
    stages = (
        stage(0, "list_files"),
        stage(1, "map", 0, of=function("decode")),
        stage(2, "repeat", 1),
        stage(3, "shuffle", 2, buffer_size=10),
    )
    found = of_kind(tried(chain_of(*stages)), "order")
    assert [(fix.edits, fix.reorders) for fix in found] == [((MoveBefore(stage=3, other=2),), True)]


NAME, PICTURE = tensor("string"), tensor("uint8", None, None, 3)


def keyed(*names: str) -> Element:
    return Element(kind="dict", parts=tuple(NAME.model_copy(update={"name": each}) for each in names))


@pytest.mark.parametrize(
    ("given", "made", "moves"),
    [
        (None, keyed("image", "label"), True),
        (NAME, keyed("image", "label"), False),
        (keyed("bytes"), keyed("image"), False),
        (keyed("bytes", "label"), keyed("image", "label"), True),
        (row(NAME, NAME), row(PICTURE, NAME), True),
        (row(NAME), row(PICTURE, NAME), False),
        (NAME, PICTURE, False),
        (PICTURE, tensor("float32", 8), True),
    ],
)
def test_a_filter_goes_before_a_map_only_where_it_may_take_what_that_takes(
    given: Element | None, made: Element, moves: bool
) -> None:
    """A filter by a key of parsed records can only fail in front of the map that parses them."""
    stages = (
        source("TFRecordDataset").model_copy(update={"element": given}),
        mapped(1, "parse").model_copy(update={"element": made}),
        stage(2, "filter", 1, of=function("wanted")).model_copy(update={"element": made}),
        stage(3, "batch", 2, batch_size=8),
    )
    found = [each.edits for each in of_kind(tried(chain_of(*stages)), "order")]
    assert found == [(MoveBefore(stage=2, other=1),)] * moves


def test_a_cache_behind_one_in_a_file_is_named_for_what_it_spares() -> None:
    """Its elements are computed once as it is: "cache in memory after cache" said nothing of that."""
    stages = (source(shuffle=False), mapped(1, "decode"), stage(2, "cache", 1, filename="/data/kept"))
    (kept,) = of_kind(tried(chain_of(*stages)), "cache")
    assert kept.variant == "cache in memory behind the cache in a file"
    assert kept.title == (
        "Keep what the cache in a file gives in memory too, so that only the first epoch reads it from the file"
    )


def test_a_shard_goes_before_the_maps_in_front_of_it_whatever_they_give() -> None:
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, of=function("read", python=True)),
        stage(2, "map", 1, of=function("crop", random=True)),
        stage(3, "shard", 2, num_shards=8, index=3),
        stage(4, "batch", 3, batch_size=32),
    )
    (found,) = of_kind(tried(chain_of(*stages)), "shard_first")
    assert (found.edits, found.stages, found.reorders) == ((MoveBefore(stage=3, other=1),), (1, 2), False)
    early = (stages[0], stage(1, "shard", 0, num_shards=8, index=3), stage(2, "map", 1, of=function("read")))
    assert not of_kind(tried(chain_of(*early)), "shard_first")


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


def test_a_random_map_that_can_be_divided_is_cached_within_behind_what_does_not_draw() -> None:
    augment = function("load", random=True, stateful=True)
    divided = augment.model_copy(update={"fixed_statements": 3})

    def chained(given: UserFunction, *ahead: Stage) -> Inspection:
        count = len(ahead)
        return chain_of(
            stage(0, "from_tensor_slices"),
            *ahead,
            stage(count + 1, "map", count, of=given),
            stage(count + 2, "batch", count + 1),
            cardinality=50,
        )

    mixed = [stage(1, "shuffle", 0), stage(2, "repeat", 1)]
    loaded = [stage(1, "prefetch", 0), stage(2, "shuffle", 1), stage(3, "with_options", 2)]
    for ahead in ([], mixed, loaded[:1], loaded):
        (fix,) = of_kind(tried(chained(divided, *ahead)), "cache_within_map")
        number = len(ahead) + 1
        assert fix.edits == (
            DivideMap(stage=number, after=0, statements=3),
            InsertAfter(stage=0, method="cache"),
        )
        assert number in fix.stages
        assert not fix.reorders
    assert not of_kind(tried(chained(augment, *mixed)), "cache_within_map"), "it was not proven to be divisible"
    assert not of_kind(
        tried(chained(divided, stage(1, "batch", 0), stage(2, "shuffle", 1), stage(3, "take_while", 2))),
        "cache_within_map",
    )
    assert not of_kind(tried(chained(divided, stage(1, "repeat", 0), stage(2, "snapshot", 1))), "cache_within_map")
    behind_one = chained(divided, stage(1, "cache", 0), stage(2, "shuffle", 1))
    (fix,) = of_kind(tried(behind_one), "cache_within_map")
    assert fix.edits[0] == DivideMap(stage=3, after=1, statements=3)
    assert not of_kind(tried(behind_one.model_copy(update={"cold": True})), "cache_within_map")


def test_only_where_a_filter_moves_in_front_of_a_shuffle_may_a_cache_change_the_order() -> None:
    stages = [source(shuffle=False), stage(1, "shuffle", 0), mapped(2, "parse"), stage(3, "repeat", 2)]
    stages += [stage(4, "filter", 3, of=function("has_boxes")), mapped(5, "decode"), stage(6, "batch", 5)]
    found = {fix.kept_stages[-1]: fix for fix in of_kind(tried(chain_of(*stages)), "cache")}
    assert {number: fix.reorders for number, fix in found.items()} == {0: False, 2: False, 5: True}
    stages[2:4] = [mapped(2, "parse"), stage(3, "prefetch", 2)]  # all in one run of stages
    found = {fix.kept_stages[-1]: fix for fix in of_kind(tried(chain_of(*stages)), "cache")}
    assert {number: fix.reorders for number, fix in found.items()} == {0: False, 2: False, 5: True}
    stages[1:3] = [mapped(1, "parse"), stage(2, "repeat", 1)]
    repeated = of_kind(tried(chain_of(*stages)), "cache")
    assert not any(fix.reorders for fix in repeated), "it only passes a repeat"


def records(**of_load: Any) -> Inspection:
    """Records in memory, mixed, parsed, and then a picture of each that is decoded and changed at random."""
    load = function("load", random=True).model_copy(update={"fixed_statements": 3, "fixed_share": 0.6, **of_load})
    stages = [source("TFRecordDataset"), stage(1, "cache", 0), stage(2, "repeat", 1), stage(3, "shuffle", 2)]
    stages += [mapped(4, "parse"), stage(5, "map", 4, of=load), stage(6, "batch", 5)]
    return inspection(tuple(stages), tuple(cost(each.id, 10.0, elements=32, element_bytes=100) for each in stages))


def test_a_map_is_divided_behind_maps_that_move_in_front_of_the_shuffle_too() -> None:
    (fix,) = of_kind(tried(records()), "cache_within_map")
    assert fix.edits == (
        MoveBefore(stage=4, other=2),
        DivideMap(stage=5, after=4, statements=3),
        InsertAfter(stage=4, method="cache"),
    )
    assert fix.stages == (0, 1, 4, 5)
    assert not fix.reorders


def test_where_memory_has_no_room_for_floats_the_bytes_that_they_are_made_of_are_kept_too() -> None:
    """100 batches of 32 in a pass: 31 GiB, or 7.8 GiB a statement before."""
    smaller = FixedPart(fixed_statements=2, fixed_up_to="line 7 of train.py", fixed_bytes=2.5 * 2**20)
    looked = records(fixed_bytes=10.0 * 2**20, fixed_smaller=smaller).model_copy(update={"pass_elements": 100})

    def kept(free_gib: int) -> list[tuple[int, bool]]:
        found = of_kind(tried(looked, free_memory_bytes=free_gib * 2.0**30), "cache_within_map")
        for fix in found:
            assert cache_size.priced(fix, looked, 3200).because == fix.because
        inserted = [(fix.edits[-2], fix.edits[-1]) for fix in found]
        return [(one.statements, bool(other.arguments)) for one, other in inserted]  # type: ignore[union-attr]

    assert kept(free_gib=100) == [(3, False)]
    assert kept(free_gib=20) == [(2, False)]
    assert kept(free_gib=5) == []


def branches(*of_pictures: Stage) -> Inspection:
    """Masks, pictures, and a zip of the two behind their last stages."""
    behind = of_pictures[-1].id + 1
    joined = (stage(behind, "zip", 0, behind - 1), stage(behind + 1, "batch", behind))
    return chain_of(source("from_tensor_slices"), stage(1, "TFRecordDataset"), *of_pictures, *joined)


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("parallel_interleave", ()),
        ("deterministic", (mapped(2, "decode", num_parallel_calls=AUTOTUNE),)),
        ("superfluous", (stage(2, "shuffle", 1, buffer_size=10**6),)),
    ],
)
def test_what_zip_joins_by_its_place_is_not_put_into_another_order(kind: str, stages: tuple[Stage, ...]) -> None:
    allowed = {"allow_reordering": True, "allow_threads": True}
    joined = branches(*stages) if stages else branches(stage(2, "batch", 1))
    found = [each for each in tried(joined, **allowed) if each.fix.kind == kind and each.fix.stages != (0,)]
    assert found
    assert all("would no longer belong together" in each.reason for each in found)


@pytest.mark.parametrize("python", [False, True])
def test_random_maps_in_two_inputs_of_a_zip_are_not_put_beside_each_other_and_in_one_they_are(python: bool) -> None:
    """Pictures and masks that draw alike, by one seed, would no longer; plain labels draw nothing."""
    drawn: dict[str, Any] = {"draws_in_python": True} if python else {"random": True}
    pictures = (stage(2, "TFRecordDataset"), stage(3, "map", 2, of=function("flip", **drawn)))
    joined = (stage(4, "zip", 1, 3), stage(5, "batch", 4))
    for masks, together in ((stage(1, "map", 0, of=function("flip_mask", random=True)), True), (mapped(1), False)):
        looked = chain_of(source("from_tensor_slices"), masks, *pictures, *joined)
        found = [each for each in tried(looked, allow_threads=True) if each.fix.stages == (3,)]
        (parallel,) = [each for each in found if each.fix.kind == "parallel_map"]
        assert ("would no longer belong together" in parallel.reason) is together
        assert (parallel.outcome == "not-tried") is together


def test_a_prefetch_in_a_branch_of_a_zip_moves_nothing() -> None:
    joined = branches(mapped(2, "flip", random=True))
    found = [each for each in tried(joined) if each.fix.kind in ("prefetch", "read_size")]
    assert len(found) == 2
    assert not any("belong together" in each.reason for each in found)


def test_a_shuffle_that_does_not_reshuffle_stays_behind_the_repeat() -> None:
    stages = (source(), stage(1, "repeat", 0), stage(2, "shuffle", 1, buffer_size=10, reshuffle_each_iteration=False))
    assert not of_kind(tried(chain_of(*stages)), "order")


@pytest.mark.parametrize(
    ("count", "left_early", "is_tried"), [(8, True, False), (8, None, False), (8, False, True), (-1, None, True)]
)
def test_nothing_is_cached_in_front_of_what_may_end_a_pass_early(
    count: int, left_early: bool | None, is_tried: bool
) -> None:
    decode = mapped(1, "decode").model_copy(update={"left_early": left_early})
    stages = (source(), decode, stage(2, "shuffle", 1), stage(3, "take", 2, count=count))
    found = [each for each in tried(chain_of(*stages)) if each.fix.kind == "cache"]
    assert [each.outcome == "pending" for each in found] == [is_tried]
    assert is_tried or "take behind it may end a pass before the cache is full" in found[0].reason


@pytest.mark.parametrize("deterministic", [True, False, None])
def test_any_order_is_tried_where_the_options_do_not_ask_for_it(deterministic: bool | None) -> None:
    given: dict[str, Any] = {} if deterministic is None else {"deterministic": deterministic}
    stages = (source(), stage(1, "with_options", 0, **given), mapped(2, "decode", num_parallel_calls=AUTOTUNE))
    found = of_kind(tried(chain_of(*stages), allow_reordering=True), "deterministic")
    assert len(found) == (deterministic is not False)


@pytest.mark.parametrize("shared", [False, "alike", "varying"])
def test_what_a_fix_does_to_another_dataset_of_the_same_line_is_said(shared: Any) -> None:
    def sunk(*stages: Stage) -> Inspection:
        last = stage(len(stages), "batch", len(stages) - 1).model_copy(update={"shared": shared})
        return chain_of(*stages, last)

    def said(looked: Inspection, kind: str) -> str:
        return elsewhere(of_kind(tried(looked, allow_reordering=True), kind)[:1], looked)

    order = "A changed line also makes another dataset, which may have another order too." if shared else ""
    maps = sunk(source(), mapped(1, "decode", num_parallel_calls=AUTOTUNE))
    assert said(maps, "deterministic") == order
    assert said(maps, "prefetch") == ""
    reader = source("TFRecordDataset", filenames=8)
    assert said(sunk(reader, mapped(1)), "parallel_interleave") == ""
    assert said(sunk(reader.model_copy(update={"shared": shared}), mapped(1)), "parallel_interleave") == order
    cache = of_kind(tried(maps), "cache")[0].model_copy(update={"reorders": True})
    kept = maps.model_copy(update={"stages": tuple(each.model_copy(update={"shared": shared}) for each in maps.stages)})
    assert elsewhere([cache], kept) == (order.replace("too.", "too and is kept too.") if shared else "")
    threads = SetArgument(stage=2, argument="num_parallel_calls", value=2)
    both = cache.model_copy(update={"edits": (InsertAfter(stage=1, method="cache"), threads)})
    assert elsewhere([both], maps) == order


def test_what_one_call_makes_for_several_inputs_is_changed_together() -> None:
    readers = [stage(number, "TFRecordDataset") for number in (0, 2)]
    maps = [mapped(number, "decode", python=True) for number in (1, 3)]
    for each in (readers, maps):
        each[1] = each[1].model_copy(update={"place": each[0].place})
    joined = stage(4, "sample_from_datasets", 1, 3)
    looked = chain_of(readers[0], maps[0], readers[1], maps[1], joined)
    for kind, ids in (("read_size", (0, 2)), ("parallel_map", (1, 3))):
        (fix,) = of_kind(tried(looked, allow_threads=True), kind)
        assert fix.stages == ids
        assert [edit.stage for edit in fix.edits if isinstance(edit, SetArgument)] == [*ids]
    apart = looked.model_copy(update={"stages": (*looked.stages[:3], mapped(3, "decode", python=True), joined)})
    assert [fix.stages for fix in of_kind(tried(apart, allow_threads=True), "parallel_map")] == [(1,), (3,)]


@pytest.mark.parametrize(
    ("method", "stops", "repeats", "takes", "is_tried"),
    [
        ("sample_from_datasets", None, (True, True), -1, True),
        ("sample_from_datasets", None, (False, False), -1, True),
        ("sample_from_datasets", True, (False, False), -1, False),  # the other one may not be read to its end
        ("sample_from_datasets", None, (True, False), -1, False),  # one pass never ends, and reads that one once
        ("sample_from_datasets", None, (True, True), 8, False),
        ("choose_from_datasets", None, (True, True), -1, True),
        ("choose_from_datasets", None, (False, True), -1, False),
        ("zip", None, (True, True), -1, True),
        ("zip", None, (False, True), -1, True),  # as its record tells, of an input that is left early
        ("zip", None, (True, True), 8, False),
    ],
)
def test_what_a_pipeline_chooses_among_or_joins_is_cached_in_front_of_that_where_all_of_it_is_read(
    method: str, stops: bool | None, repeats: tuple[bool, bool], takes: int, is_tried: bool
) -> None:
    inputs: list[Stage] = []
    for start, repeated in zip((0, 4), repeats, strict=True):
        inputs += [stage(start, "range"), mapped(start + 1, "decode"), stage(start + 2, "shuffle", start + 1)]
        inputs.append(stage(start + 3, "repeat" if repeated else "prefetch", start + 2))
    chooses = Stage(id=8, method=method, inputs=(3, 7), arguments={"stop_on_empty_dataset": stops})
    stages = (*inputs, chooses, stage(9, "take", 8, count=takes), stage(10, "batch", 9))
    found = [each for each in tried(chain_of(*stages)) if each.fix.kind == "cache" and each.outcome == "pending"]
    edits = (InsertAfter(stage=1, method="cache"), InsertAfter(stage=5, method="cache"))
    assert [each.fix.edits for each in found] == ([edits] if is_tried else [])
    assert all(each.fix.stages == (0, 1, 4, 5) for each in found)


@pytest.mark.parametrize(("left_early", "is_tried"), [(False, True), (True, False), (None, False)])
def test_the_maps_of_what_zip_joins_move_before_its_shuffles_where_they_are_read_to_their_end(
    left_early: bool | None, is_tried: bool
) -> None:
    stages: list[Stage] = []
    for start in (0, 4):
        stages += [source(shuffle=False), stage(start + 1, "shuffle", start), stage(start + 2, "repeat", start + 1)]
        stages.append(mapped(start + 3, "load"))
        stages[start] = stages[start].model_copy(update={"id": start, "left_early": left_early})
    looked = chain_of(*stages, stage(8, "zip", 3, 7), stage(9, "batch", 8))
    found = [fix for fix in of_kind(tried(looked), "cache") if fix.edits]
    moves = [MoveBefore(stage=3, other=1), MoveBefore(stage=7, other=5)]
    kept = [InsertAfter(stage=3, method="cache"), InsertAfter(stage=7, method="cache")]
    assert [list(fix.edits) for fix in found] == ([[*moves, *kept]] if is_tried else [])
    title = "Keep what load gives in memory, before the shuffle of each input, so that only the first epoch computes it"
    assert all(fix.title == title and not fix.reorders for fix in found)


def test_in_a_branch_maps_move_in_front_of_all_shuffles_and_repeats_also_behind_a_prefetch() -> None:
    stages: list[Stage] = []
    for start in (0, 7):
        stages.append(source(shuffle=False).model_copy(update={"id": start}))
        methods = ("prefetch", "repeat", "map", "shuffle", "map", "prefetch")
        for number, method in enumerate(methods, start + 1):
            made = mapped(number, f"f{number}") if method == "map" else stage(number, method, number - 1)
            stages.append(made)
    looked = chain_of(*stages, stage(14, "sample_from_datasets", 6, 13), stage(15, "batch", 14))
    (fix,) = of_kind(tried(looked), "cache")
    moves = [MoveBefore(stage=start + number, other=start + 2) for start in (0, 7) for number in (3, 5)]
    assert list(fix.edits) == [*moves, *(InsertAfter(stage=number, method="cache") for number in (5, 12))]


@pytest.mark.parametrize(
    "keeping",
    [
        mapped(1, "scale", stateful=True),
        stage(
            1, "interleave", 0, of=function("open"), inner=(stage(9, "from_generator", of=function("g", python=True)),)
        ),
    ],
)
def test_a_cache_behind_what_reads_a_variable_or_runs_python_within_is_said_to_keep_its_first_epoch(
    keeping: Stage,
) -> None:
    (fix, *_) = of_kind(tried(chain_of(source(), keeping, mapped(2, "double"))), "cache")
    assert "right only if" in fix.because
    assert "gives the same in each epoch" in fix.because


def test_a_cache_of_what_is_drawn_from_seeds_says_that_these_are_the_same_in_each_epoch() -> None:
    augment = function("augment").model_copy(update={"draws_by_seed": True})
    (fix, *_) = of_kind(tried(chain_of(source(), stage(1, "map", 0, of=augment), mapped(2, "double"))), "cache")
    assert fix.because.endswith(
        "; augment draws from seeds that are the same in each epoch, and goes on giving the same"
    )


def test_a_prefetch_between_two_functions_with_python_runs_them_beside_each_other() -> None:
    generator = source("from_generator").model_copy(update={"function": function("rows", python=True)})
    stages = (generator, mapped(1, "decode", python=True))
    (fix,) = (fix for fix in of_kind(tried(chain_of(*stages)), "prefetch") if "after" in fix.variant)
    assert fix.threads
    plain = chain_of(generator, mapped(1, "decode", num_parallel_calls=1), default_parallelised=False)
    assert not any(fix.threads for fix in of_kind(tried(plain), "prefetch"))


@pytest.mark.parametrize("python", [False, True])
def test_that_python_treats_each_sample_of_a_batch_by_itself_is_said_to_be_the_users_to_know(python: bool) -> None:
    stages = (source(), mapped(1, "decode", python=python), stage(2, "batch", 1))
    (fix,) = of_kind(tried(chain_of(*stages)), "batch_before_map")
    assert ("right only if decode treats each sample of a batch as a single sample" in fix.because) == python


@pytest.mark.parametrize("random", [False, True])
def test_of_what_draws_on_batches_it_is_said_that_the_numbers_are_others(random: bool) -> None:
    stages = (source(), mapped(1, "augment", random=random, on_batches="as-is"), stage(2, "batch", 1))
    (fix,) = of_kind(tried(chain_of(*stages)), "batch_before_map")
    assert ("samples then get other random numbers than as written, also with a seed" in fix.because) == random


@pytest.mark.parametrize(
    ("element", "is_left_out"),
    [
        (row(tensor("float32", 32, 8), tensor("int64", 32)), True),
        (row(tensor("float32", None, 8), tensor("int64", None)), False),
        (row(tensor("float32", 32), tensor("int64", None)), False),
        (None, False),
    ],
)
def test_batches_are_not_left_as_they_are_where_some_may_be_shorter(element: Element | None, is_left_out: bool) -> None:
    batches = source("interleave").model_copy(update={"element": element})
    stages = (batches, stage(1, "unbatch", 0), stage(2, "batch", 1, batch_size=32))
    assert bool(of_kind(tried(chain_of(*stages)), "superfluous")) is is_left_out


@pytest.mark.parametrize(
    ("names", "are_several"),
    [({}, True), ({"filenames": 2}, True), ({"filenames": 1}, False), ({"filenames": "my files"}, False)],
)
def test_only_several_files_are_read_at_the_same_time(names: dict[str, Value], are_several: bool) -> None:
    found = tried(chain_of(source("TFRecordDataset", **names)), allow_reordering=True)
    assert bool(of_kind(found, "parallel_interleave")) is are_several


@pytest.mark.parametrize("method", ["take", "skip", "shard", "window"])
def test_the_order_does_not_change_in_front_of_what_goes_by_the_place_in_it(method: str) -> None:
    stages = (source("TFRecordDataset"), stage(1, "shuffle", 0, buffer_size=10**6), stage(2, method, 1))
    for kind in ("parallel_interleave", "superfluous"):
        for behind in (stages, stages[:2]):
            found = tried(chain_of(*behind), allow_reordering=True)
            assert (f"{method} depends on an element's position" in reason(found, kind)) == (behind is stages)
            assert of_kind(found, kind)[0].reorders == (behind is not stages), "no option would permit it"


def test_what_fails_within_a_batch_drops_the_samples_that_it_did() -> None:
    stages = (source(), mapped(1), stage(2, "batch", 1), stage(3, "ignore_errors", 2), mapped(4, num_parallel_calls=1))
    found = tried(chain_of(*stages))
    for kind in ("parallel_batch", "batch_before_map"):
        assert "ignore_errors drops the whole batch" in reason(found, kind)
    assert "ignore_errors" not in reason(found, "parallel_map")


def test_a_cache_in_front_of_a_repeat_holds_one_of_its_passes() -> None:
    stages = (source(), mapped(1, "decode"), stage(2, "repeat", 1), stage(3, "batch", 2))
    (fix, *_) = of_kind(tried(chain_of(*stages, cardinality=-1, pass_elements=10)), "cache")
    assert fix.because == "takes about 9.77 KiB in memory"


@pytest.mark.parametrize(
    "mixing",
    [
        stage(1, "interleave", 0, of=function("open"), inner=(stage(8, "TFRecordDataset"), stage(9, "shuffle", 8))),
        stage(1, "apply", 0, of=function("shuffle_and_repeat")),
    ],
)
def test_nothing_is_cached_behind_a_shuffle_by_another_name_or_of_what_an_interleave_opens(mixing: Stage) -> None:
    (fix, *_) = of_kind(tried(chain_of(source(), mixing, mapped(2, "decode"))), "cache")
    assert fix.edits == (InsertAfter(stage=0, method="cache"),)


def test_no_option_is_asked_for_that_would_gain_nothing() -> None:
    looked = chain_of(source(), mapped(1, "decode", python=True), mapped(2, "slow", python=True), costs_ms=(0, 0.1, 20))
    found = next(each for each in tried(looked) if each.fix.variant == "parallel map(decode)")
    assert "almost nothing to gain" in found.reason
    assert not found.fix.threads


def test_batches_in_parallel_come_in_any_order_where_the_user_wants_that() -> None:
    any_order: dict[str, Any] = {"deterministic": False}
    stages = (source(), stage(1, "batch", 0), stage(2, "with_options", 1, **any_order), stage(3, "with_options", 2))
    for each, expected in ((stages, True), (stages[:3], True), (stages[:2], False)):
        assert of_kind(tried(chain_of(*each)), "parallel_batch")[0].reorders == expected


@pytest.mark.parametrize(
    ("file", "name"), [("own", "the lambda of line 11"), ("keras/image_dataset.py", "the map of line 11")]
)
def test_a_lambda_is_named_by_its_line_only_where_it_stands(file: str, name: str) -> None:
    mapping = stage(1, "map", 0, of=function("<lambda>"))
    assert mapping.function is not None
    assert mapping.place is not None
    made = mapping.function.model_copy(update={"file": mapping.place.file if file == "own" else file})
    assert fixes.short(mapping.model_copy(update={"function": made})) == name
