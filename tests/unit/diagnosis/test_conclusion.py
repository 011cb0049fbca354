"""What no edit can do is said in words, with the most that the stages' costs leave to gain."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

from pipeline_bench.diagnosis import attempt_statistics, bottleneck, conclusion, idea_bounds, limits, stage_graph
from pipeline_bench.diagnosis.step_times import Beginning, StepTimes
from pipeline_bench.model import Series
from pipeline_bench.model.diagnosis import AS_WRITTEN, CEILING, Attempt, Fix, Outcome
from pipeline_bench.model.edits import Edit, InsertAfter, SetArgument
from pipeline_bench.model.element import Element
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Inspection, Location, ScriptTraining, Stage, StageCost
from pipeline_bench.model.result import Estimate
from pipeline_bench.model.session import Session
from pipeline_bench.model.user_function import UserFunction
from tests.unit.diagnoses import row, tensor
from tests.unit.diagnosis.simulated import (
    STEPS,
    Machine,
    Told,
    component,
    cost,
    diagnose,
    fingerprint,
    function,
    inspection,
    measured,
    python_decode,
    said,
    shuffled,
    stage,
    text_of,
    with_function,
    with_stage,
)


def keeps(edits: Sequence[Edit]) -> bool:
    return any(edit.kept_stage is not None for edit in edits)


def of_map(map_ms: float) -> Inspection:
    """A map between a source and a batch that take next to nothing."""
    stages = (stage(0, "range"), stage(1, "map", 0), stage(2, "batch", 1))
    return inspection(stages, (cost(0, 0.1), cost(1, map_ms), cost(2, 0.1)))


@cache
def unsure() -> Session:
    """Trials that differ too much to prove the gain of any fix."""
    return diagnose(Machine(of_map(9.0), lambda edits: 8.0 if edits else 10.0, noise=0.4, seed=4), budget_s=60.0)


@cache
def unsure_of_a_cache() -> Session:
    """The same of what gains by a cache alone."""
    machine = Machine(of_map(9.0), lambda edits: 6.0 if keeps(edits) else 10.0, noise=0.6, seed=4)
    return diagnose(machine, budget_s=60.0)


def augmented(random: bool = True) -> Inspection:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("load", random=random)),
        stage(2, "batch", 1, batch_size=32),
    )
    return inspection(stages, (cost(0, 0.1), cost(1, 20.0), cost(2, 4.9)))


def test_a_map_that_draws_is_to_be_split_before_a_cache_and_the_gain_has_a_bound() -> None:
    (text,) = idea_bounds.ideas(augmented(), 1, as_written_ms=25.0, ceiling_ms=None, gained=1.0)
    assert "map(load), train.py:11, draws random numbers" in text
    assert "at most 5.00×" in text
    assert idea_bounds.ideas(augmented(random=False), 1, 25.0, None, 1.0) == ()
    once = ScriptTraining(line="train.py:9", model=True, epochs=1)
    assert idea_bounds.ideas(augmented().model_copy(update={"training": once}), 1, 25.0, None, 1.0) == ()


def test_python_that_draws_or_goes_on_from_a_state_is_to_be_split() -> None:
    looked = with_stage(augmented(random=False), 1, function=function("load", draws_in_python=True))
    (text,) = idea_bounds.ideas(looked, 1, 25.0, None, 1.0)
    assert "map(load), train.py:11, gives something else at each call for the same element, so nothing after" in text


def test_python_that_draws_on_several_threads_is_to_leave_python_first() -> None:
    """That all of it is to be kept, with the bound of all that it does, was said of what only changes at random."""
    looked = with_stage(augmented(random=False), 1, function=function("load", draws_in_python=True))
    several = with_stage(looked, 1, arguments={"num_parallel_calls": -1})
    first, second = idea_bounds.ideas(several, 1, 25.0, None, 1.0)
    assert first.startswith("map(load), train.py:11, runs Python, of which one call at a time computes")
    assert first.endswith("a batch would be at most 5.00× as fast.")
    (alone,) = idea_bounds.ideas(looked, 1, 25.0, None, 1.0)
    assert alone == second
    assert second.endswith("later epochs then compute only the rest.")


@pytest.mark.parametrize(
    ("kept", "behind", "fixed_share", "told"),
    [
        (row(tensor("string"), tensor("int64")), False, None, True),
        (tensor("uint8", None, None, 3), False, None, False),
        (tensor("uint8", None, None, 3), False, 0.9, True),
        (None, False, None, False),
        (tensor("string"), True, 0.9, False),
    ],
)
def test_a_cache_of_records_leaves_a_random_map_behind_it_to_be_divided(
    kept: Element | None, behind: bool, fixed_share: float | None, told: bool
) -> None:
    cache, load = stage(1, "cache", 0), function("load", random=True).model_copy(update={"fixed_share": fixed_share})
    cache = cache.model_copy(update={"element": kept})
    last = (stage(2, "map", 1, of=load), stage(3, "cache" if behind else "batch", 2))
    looked = inspection((stage(0, "list_files"), cache, *last), (cost(0, 0.1), cost(1, 0.1), cost(2, 20.0), cost(3, 1)))
    texts = idea_bounds.ideas(looked, 1, 21.2, None, 1.0)
    assert ["draws random numbers, so nothing after it can be cached" in each for each in texts] == [True] * told


def of_pictures(*methods: str, passes: int | None = None, **buffer: Any) -> Inspection:
    """10,000 batches of 32 pictures of 150 kB, 48 GB, through these stages of one element a picture."""
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("load")),
        *(
            stage(n, each, n - 1, **buffer if each in ("shuffle", "prefetch") else {})
            for n, each in enumerate(methods, 2)
        ),
        stage(2 + len(methods), "batch", 1 + len(methods), batch_size=32),
    )
    costs = [cost(each.id, 1.0).model_copy(update={"elements": 32.0, "element_bytes": 150_000.0}) for each in stages]
    trained = ScriptTraining(line="train.py:9", epochs=passes) if passes is not None else None
    return inspection(stages, tuple(costs)).model_copy(
        update={"pass_elements": 10_000, "cardinality": 10_000, "training": trained}
    )


@pytest.mark.parametrize(
    ("looked", "text"),
    [
        (
            of_pictures("cache"),
            "cache, train.py:12, would hold about 44.7 GiB in memory, and this machine has 29.8 GiB:",
        ),
        (of_pictures("shuffle", buffer_size=250_000), "shuffle, train.py:12, would hold about 34.9 GiB"),
        (of_pictures("shuffle", buffer_size=10**9), "shuffle, train.py:12, would hold about 44.7 GiB"),
        (of_pictures("repeat", "shuffle", buffer_size=10**6), "shuffle, train.py:13, would hold about 140 GiB"),
        (of_pictures("shuffle", buffer_size=100_000), ""),
        (of_pictures("repeat", "shuffle"), ""),
        (of_pictures("prefetch", buffer_size=250_000), "prefetch, train.py:12, would hold about 34.9 GiB"),
        (of_pictures("prefetch", buffer_size=-1), ""),
    ],
    ids=[
        *("a cache", "a buffer", "a buffer of all", "a buffer behind a repeat", "a small buffer", "an unknown buffer"),
        *("a prefetch", "a prefetch of TensorFlow's own size"),
    ],
)
def test_a_cache_or_a_buffer_that_memory_cannot_hold_is_told_though_no_trial_fills_it(
    looked: Inspection, text: str
) -> None:
    told = list(limits.overflows(looked, 32e9))
    assert len(told) == bool(text)
    assert all(each.startswith(text) for each in told)
    assert list(limits.overflows(looked, 1e15)) == []


def test_a_shuffle_of_what_a_cache_holds_is_told_with_that_and_what_is_not_read_is_not_counted() -> None:
    both = of_pictures("cache", "shuffle", buffer_size=300_000)
    assert [each.split(",")[0] for each in limits.overflows(both, 32e9)] == ["cache"]
    assert list(limits.overflows(of_pictures("cache", passes=3), 32e9)) != []
    part = ScriptTraining(line="train.py:9", steps=5_000)
    assert list(limits.overflows(both.model_copy(update={"training": part}), 32e9)) == []


@pytest.mark.parametrize(
    ("method", "takes"), [("skip", "drops what load has made"), ("shuffle", "is filled with what load has made")]
)
def test_a_shuffle_or_a_skip_that_a_pass_begins_with_is_to_stand_in_front_of_the_maps(method: str, takes: str) -> None:
    def told(*ahead: str, gained: float = 1.0, measured: bool = False, passes: int | None = None) -> list[str]:
        looked = of_pictures(*ahead, method, passes=passes)
        begins = Beginning(looked.stages[-2], 100, 6_020.0, 6_000.0, 1_000.0, measured)
        return list(idea_bounds.of_beginning(looked, begins, 20.0, gained))

    (text,) = told()
    assert text == (
        f"{method}, train.py:12, {takes}, in each epoch anew. Put it in front of load: an epoch would then be at most "
        "1.56× as fast."
    ), "what reads the records, which takes as long as the map, stays in front of it"
    assert told(measured=True) == told(gained=3.0) == told(passes=1) == told("filter") == []


@pytest.mark.parametrize(
    ("method", "number", "with_samples"),
    [
        ("shuffle", {"buffer_size": 1_000}, "a buffer of 1,000 × 32 samples"),
        ("shuffle", {}, "a buffer of as many samples"),
        ("skip", {"count": 50}, "a count of 50 × 32 samples"),
    ],
)
def test_a_shuffle_of_whole_batches_is_to_stand_in_front_of_the_maps_with_as_many_samples(
    method: str, number: dict[str, Any], with_samples: str
) -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "map", 0, of=function("load")),
        stage(2, "padded_batch", 1, batch_size=32),
        stage(3, "prefetch", 2),
        stage(4, method, 3, **number),
    )
    looked = inspection(stages, (cost(0, 1.0), cost(1, 9.0)))
    begins = Beginning(looked.stages[-1], 100, 6_020.0, 6_000.0, 1_000.0, measured=False)
    (text,) = idea_bounds.of_beginning(looked, begins, 20.0, 1.0)
    assert f"Put it in front of load, with {with_samples}: an epoch would then be at most" in text


@pytest.mark.parametrize(
    ("first", "behind", "told"),
    [
        ({}, "prefetch", True),
        ({}, "batch", False),  # the first batch cuts sequences, whose parts a shuffle in front would mix
        ({"place": "one call"}, "prefetch", False),  # nobody can write in front of a library's map
        ({"method": "batch"}, "prefetch", False),  # of two batches, the first one's are no samples
    ],
)
def test_a_shuffle_goes_in_front_of_no_batch_that_makes_sequences_and_of_no_librarys_map(
    first: dict[str, Any], behind: str, told: bool
) -> None:
    load = stage(1, first.get("method", "map"), 0, of=None if "method" in first else function("load"))
    batch = stage(2, "batch", 1, batch_size=32)
    if "place" in first:
        load = load.model_copy(update={"place": batch.place})
    stages = (stage(0, "list_files", shuffle=False), load, batch, stage(3, "shuffle", 2), stage(4, behind, 3))
    looked = inspection(stages, (cost(0, 1.0), cost(1, 9.0)))
    begins = Beginning(looked.stages[3], 100, 6_020.0, 6_000.0, 1_000.0, measured=False)
    assert bool(list(idea_bounds.of_beginning(looked, begins, 20.0, 1.0))) is told


@pytest.mark.parametrize("batches", [100, 0])
def test_a_cache_in_front_of_what_a_pass_begins_with_is_named_with_what_it_spares_of_that(batches: int) -> None:
    looked = of_pictures("filter", "shuffle")
    begins = Beginning(looked.stages[-2], batches, 6_020.0, 6_000.0, 1_000.0, measured=False)

    def told(
        stages: tuple[int, ...], outcome: Outcome = "no-gain", method: Literal["cache", "prefetch"] = "cache"
    ) -> str:
        edit = InsertAfter(stage=stages[-1], method=method)
        fix = Fix(kind="cache", variant="the cache", title="Keep", edits=(edit,), stages=stages)
        return " ".join(idea_bounds.of_beginning(looked, begins, 20.0, 1.0, [Attempt(fix=fix, outcome=outcome)]))

    faster = ": it would be at most 3.50× as fast by that alone" if batches else ""
    assert told((0, 1, 2)) == (
        f"From the second epoch on, the cache spares 100 % of what an epoch begins with{faster}. The steps of trials "
        "do not show that."
    )
    assert "the cache spares 67 % of" in told((0, 1))
    assert told((0,)) == told((0, 1, 2), "refused") == told((0, 1, 2), "not-tried") == ""
    assert told((0, 1, 2), method="prefetch") == "", "it keeps nothing"


@pytest.mark.parametrize(("fixed_share", "most"), [(None, "more than 20×"), (0.5, "at most 1.91×"), (0.01, None)])
def test_dividing_a_random_map_gains_what_of_its_time_is_not_random(
    fixed_share: float | None, most: str | None
) -> None:
    load = function("load", random=True).model_copy(update={"fixed_share": fixed_share})
    stages = (stage(0, "range"), stage(1, "map", 0, of=load), stage(2, "batch", 1))
    texts = idea_bounds.ideas(inspection(stages, (cost(0, 0.0), cost(1, 20.0), cost(2, 1.0))), 1, 21.0, None, 1.0)
    assert [each.partition("If that took no time, ")[2] for each in texts] == (
        [] if most is None else [f"a batch would be {most} as fast."]
    )


@pytest.mark.parametrize(
    ("source", "behind", "told"),
    [
        (stage(0, "counter"), stage(1, "prefetch", 0), False),  # as a replay buffer of TF-Agents
        (stage(0, "counter"), stage(1, "take", 0, count=100), True),
        (
            stage(0, "from_generator", of=function("f").model_copy(update={"endless": True})),
            stage(1, "batch", 0),
            False,
        ),
        (stage(0, "list_files"), stage(1, "repeat", 0, count=-1), True),
    ],
)
def test_no_cache_is_advised_behind_a_source_that_never_ends(source: Stage, behind: Stage, told: bool) -> None:
    stages = (source, behind, stage(2, "map", 1, of=function("load", random=True)), stage(3, "batch", 2))
    looked = inspection(stages, (cost(0, 0.0), cost(1, 0.0), cost(2, 20.0), cost(3, 1.0)))
    assert ["cache()" in each for each in idea_bounds.ideas(looked, 1, 21.0, None, 1.0)] == [True] * told


@pytest.mark.parametrize(
    ("methods", "told"), [(("shuffle", "batch"), True), (("batch",), False), (("prefetch", "shuffle"), False)]
)
def test_a_random_map_that_could_be_divided_is_told_where_no_trial_divides_it(
    methods: tuple[str, ...], told: bool
) -> None:
    stages = [stage(0, "from_tensor_slices"), *(stage(n, each, n - 1) for n, each in enumerate(methods, 1))]
    load = function("load", random=True).model_copy(
        update={"fixed_statements": 2, "fixed_within": "decode", "fixed_up_to": "line 7 of loading.py"}
    )
    stages.append(stage(len(stages), "map", len(stages) - 1, of=load))
    costs = [cost(each.id, 20.0 if each is stages[-1] else 0.1) for each in stages]
    texts = idea_bounds.ideas(inspection(tuple(stages), tuple(costs)), 1, 21.0, None, 1.0)
    assert [", draws random numbers, so nothing after it can be cached" in each for each in texts] == [True] * told
    assert all("with a cache() behind it, in front of any shuffle or repeat: later" in each for each in texts)
    assert all("The function decode draws none up to line 7 of loading.py." in each for each in texts)


def test_what_would_help_the_inputs_of_a_zip_is_told_once_for_all_that_run_one_function() -> None:
    def texts(*, random: bool, left_early: bool = False) -> tuple[str, ...]:
        load = function("load", random=random).model_copy(update={"fixed_statements": 2 if random else None})
        branches = [(stage(0, "range"), stage(1, "map", 0, of=load)), (stage(2, "range"), stage(3, "map", 2, of=load))]
        cache = stage(4, "cache", 3) if left_early else stage(4, "prefetch", 3)
        cache = cache.model_copy(update={"left_early": left_early})
        stages = (*branches[0], *branches[1], cache, stage(5, "zip", 1, 4), stage(6, "batch", 5))
        costs_ms = (0.0, 10.0, 0.0, 10.0, 0.0, 0.0, 1.0)
        looked = inspection(stages, tuple(cost(number, ms) for number, ms in enumerate(costs_ms)))
        return idea_bounds.ideas(looked, 1, 21.0, None, 1.0)

    (text,) = texts(random=True)
    assert text.startswith("map(load), train.py:13, draws random numbers")
    assert text.endswith("a batch would be more than 20× as fast."), "and not 1.91×, as of one of them"
    assert texts(random=False) == ()
    (lost,) = texts(random=False, left_early=True)
    assert lost.startswith("cache, train.py:14, never fills: each pass ends before the cache has all elements")
    assert lost.endswith("a batch would be at most 1.91× as fast.")


@pytest.mark.parametrize(
    ("text", "count", "cached", "told"),
    [
        ("data = tf.data.experimental.make_csv_dataset(", None, False, True),
        ("data = tfx.tf_dataset_factory(", None, False, True),
        ("data = tf.data.experimental.make_csv_dataset(PATH, 32, num_epochs=1).repeat()", None, False, False),
        ("data = tf.data.experimental.make_csv_dataset(", 3, False, False),  # a cache in front of the repeat is a fix
        ("data = tf.data.experimental.make_csv_dataset(", None, True, True),  # which is never full
        ("data = tf.data.Dataset.list_files(PATHS).map(load).repeat()", None, False, False),
    ],
)
def test_a_reader_that_repeats_by_itself_is_to_do_it_behind_a_cache(
    text: str, count: int | None, cached: bool, told: bool
) -> None:
    here = Location(file="train.py", line=9, text=text)
    chain = [stage(0, "apply", of=function("make_csv_dataset_v2")), stage(1, "repeat", 0, count=count)]
    chain = [each.model_copy(update={"place": here}) for each in chain]
    stages = (*chain, stage(2, "map", 1, of=function("pack")), stage(3, "cache" if cached else "prefetch", 2))
    looked = inspection(stages, (cost(0, 8.0), cost(1, 0.1), cost(2, 0.9), cost(3, 0.1)), cardinality=None)
    found = idea_bounds.ideas(looked, 1, 9.0, 3.0, 1.0)
    said = [each for each in found if "repeats by itself" in each]
    assert [each.partition(", train")[0] for each in said] == [text.partition("(")[0].rpartition(".")[2]] * told
    assert all("num_epochs=1" in each for each in said)
    assert all(each.endswith("If that took no time, a step would be at most 3.00× as fast.") for each in found)


@pytest.mark.parametrize(
    ("methods", "pass_elements", "epochs", "told"),
    [
        (("map", "shuffle", "batch"), None, 3, True),
        (("map", "shuffle", "batch"), None, 1, False),
        (("map", "shuffle", "batch"), 9, 3, False),  # a cache of the samples is tried
        (("map", "repeat", "batch"), None, 3, False),
    ],
)
def test_a_reader_that_makes_one_pass_is_to_read_for_a_cache_without_its_shuffle(
    methods: Sequence[str], pass_elements: int | None, epochs: int, told: bool
) -> None:
    """Most write `num_epochs=1`, in another line of the call."""
    here = Location(file="train.py", line=9, text="data = tf.data.experimental.make_csv_dataset(")
    chain = [stage(0, "apply", of=function("make_csv_dataset_v2"))]
    chain += [stage(number, method, number - 1) for number, method in enumerate(methods, 1)]
    stages = (*(each.model_copy(update={"place": here}) for each in chain), stage(4, "map", 3, of=function("pack")))
    looked = inspection(stages, tuple(cost(number, 2.0) for number in range(5)), cardinality=None).model_copy(
        update={
            "pass_elements": pass_elements,
            "training": ScriptTraining(line="train.py:12", model=True, epochs=epochs),
        }
    )
    found = [each for each in idea_bounds.ideas(looked, 1, 9.0, 3.0, 1.0) if "with shuffle=False" in each]
    assert [each.partition(", reads")[0] for each in found] == ["make_csv_dataset, train.py:9"] * told


@pytest.mark.parametrize(
    ("parallel", "cpu_ms", "told"),
    [(-1, 20.0, True), (4, 20.0, True), (None, 20.0, False), (-1, 2.0, False), (-1, 38.0, False)],
)
def test_python_that_computes_on_several_threads_is_to_leave_python(
    parallel: int | None, cpu_ms: float, told: bool
) -> None:
    """Where it waits, or lets go of Python's lock, several calls do help; where one is asked for, a trial has more."""
    given: dict[str, int] = {} if parallel is None else {"num_parallel_calls": parallel}
    stages = (
        stage(0, "TextLineDataset"),
        stage(1, "map", 0, of=function("tokenize", python=True)).model_copy(update={"arguments": given}),
        stage(2, "padded_batch", 1),
    )
    looked = inspection(stages, (cost(0, 0.1), cost(1, 20.0, cpu_ms), cost(2, 0.5)))
    found = idea_bounds.ideas(looked, 2, 21.0, 2.0, 1.0)
    assert [each.partition(", of which")[0] for each in found] == ["map(tokenize), train.py:11, runs Python"] * told


DRAWS_ALIKE = function("parse").model_copy(update={"draws_alike": True})
"""Calls beside each other would give a picture and its mask other numbers."""


@pytest.mark.parametrize(
    ("inner", "calls", "told"),
    [
        ((stage(8, "TFRecordDataset"), stage(9, "map", 8, of=function("parse"))), 1.0, True),
        ((stage(8, "TFRecordDataset"), stage(9, "map", 8, of=function("parse"))), 2.0, False),
        ((stage(8, "TFRecordDataset"), stage(9, "map", 8, of=function("parse"), num_parallel_calls=-1)), 1.0, False),
        ((stage(8, "TFRecordDataset"), stage(9, "map", 8, of=function("parse", python=True))), 1.0, False),
        ((stage(8, "TFRecordDataset"), stage(9, "map", 8, of=DRAWS_ALIKE)), 1.0, False),
        ((stage(8, "TFRecordDataset"),), 1.0, False),
        ((stage(8, "from_tensors"), stage(9, "map", 8, of=function("parse"))), 1.0, False),
    ],
)
def test_a_map_within_an_interleave_is_to_stand_behind_it(inner: tuple[Stage, ...], calls: float, told: bool) -> None:
    stages = (stage(0, "list_files"), stage(1, "interleave", 0, of=function("open"), inner=inner), stage(2, "batch", 1))
    costs = (cost(0, 0.1), cost(1, 20.0).model_copy(update={"calls": calls}), cost(2, 0.5))
    found = idea_bounds.ideas(inspection(stages, costs), 4, 21.0, 2.0, 1.0)
    start = "interleave(open), train.py:11, has map(parse) within its function, where one call at a time runs for each"
    assert [each.startswith(start) for each in found] == [True] * told


def test_python_that_gives_64_bit_floats_is_to_compute_with_32() -> None:
    def texts(method: str, *, doubles: bool) -> tuple[str, ...]:
        made = function("Batches", python=True).model_copy(update={"doubles": doubles})
        stages = (stage(0, method, of=made), stage(1, "batch", 0))
        return idea_bounds.ideas(inspection(stages, (cost(0, 20.0), cost(1, 1.0))), 2, 21.0, 2.0, 1.0)

    (text,) = texts("__getitem__", doubles=True)
    assert "__getitem__(Batches), train.py:10, returns float64" in text
    assert "If that took half the time, a step would be at most 1.91× as fast." in text
    assert texts("__getitem__", doubles=False) == ()
    first, second = texts("from_generator", doubles=True)
    assert "If that took no time, " in first
    assert "If that took half the time, " in second


@pytest.mark.parametrize(
    ("dtype", "shape", "labels", "told"),
    [
        ("int64", (None, 224, 224, 3), 1, True),
        ("int64", (None, None, None, 3), 1, True),
        ("int64", (None, 4096), 1, False),
        ("int64", (None, 8, 8, 3), 4096, False),
        ("uint8", (None, 224, 224, 3), 1, False),
    ],
)
def test_python_that_gives_pictures_as_64_bit_whole_numbers_is_to_give_bytes(
    dtype: str, shape: tuple[int | None, ...], labels: int, told: bool
) -> None:
    batch = row(tensor(dtype, *shape), tensor("float32", None, labels))

    def texts(method: str, behind: str, **more: Any) -> tuple[str, ...]:
        made = stage(0, method, of=function("Batches", python=True)).model_copy(update=more)
        looked = inspection((made, stage(1, behind, 0)), (cost(0, 20.0), cost(1, 1.0)))
        return idea_bounds.ideas(looked.model_copy(update={"element": batch}), 2, 21.0, 2.0, 1.0)

    found = texts("__getitem__", "copy")
    assert len(found) == told
    assert all("train.py:10, returns int64" in each and "As uint8, if they are pictures" in each for each in found)
    assert all("If that took half the time, a step would be at most 1.91× as fast." in each for each in found)
    assert not any("int64" in each for each in texts("from_generator", "prefetch")), "its signature may have cast them"


@pytest.mark.parametrize(("before", "loops", "told"), [("batch", True, 1), ("batch", False, 0), ("prefetch", True, 0)])
def test_rows_of_a_batch_that_a_map_goes_over_in_a_loop_are_to_be_computed_at_once(
    before: str, loops: bool, told: int
) -> None:
    function_of = function("spectra").model_copy(update={"loops_over_rows": loops})
    stages = (stage(0, "range"), stage(1, before, 0), stage(2, "map", 1, of=function_of))
    texts = idea_bounds.ideas(inspection(stages, (cost(0, 0.1), cost(1, 0.2), cost(2, 20.0))), 1, 21.0, 2.0, 1.0)
    assert [each.split("goes over the rows")[0] for each in texts] == ["map(spectra), train.py:12, "] * told


def test_rows_of_a_batch_that_have_ops_of_their_own_are_to_be_computed_at_once() -> None:
    stages = (stage(0, "range"), stage(1, "batch", 0), stage(2, "map", 1, of=function("cutmix", random=True)))
    looked = inspection(stages, (cost(0, 0.1), cost(1, 0.2), cost(2, 20.0)))
    assert not any("copies" in each for each in idea_bounds.ideas(looked, 1, 21.0, 2.0, 1.0))
    (*_, text) = idea_bounds.ideas(with_function(looked, 2, row_copies=32), 1, 21.0, 2.0, 1.0)
    assert "train.py:12, goes over the rows of a batch in a loop of Python's, which is unrolled into 32 copies" in text
    assert "vectorized_map" not in text, "it takes no slices of drawn sizes"


@pytest.mark.parametrize(
    ("name", "applied_ms", "random", "told"),
    [
        ("map_and_batch", 20.0, False, True),
        ("shuffle_and_repeat", 0.1, False, True),  # the map moves in front of it
        ("shuffle_and_repeat", 0.1, True, False),
        ("own_function", 20.0, False, False),
    ],
)
def test_two_calls_in_one_are_to_be_written_as_two(name: str, applied_ms: float, random: bool, told: bool) -> None:
    stages = (
        stage(0, "list_files", shuffle=False),
        stage(1, "apply", 0, of=function(name)),
        stage(2, "map", 1, of=function("load", random=random)),
    )
    looked = inspection(stages, (cost(0, 0.1), cost(1, applied_ms), cost(2, 20.0)))
    texts = idea_bounds.ideas(looked, 1, 20.1 + applied_ms, 2.0, 1.0)
    found = [each.partition(" is two calls in one: ")[0] for each in texts if "two calls" in each]
    assert found == [f"apply({name}), train.py:11,"] * told


@pytest.mark.parametrize(("second", "told"), [("from_tensor_slices", True), ("TFRecordDataset", False)])
def test_arrays_whose_rows_a_zip_puts_together_are_to_be_cut_in_one_call(second: str, told: bool) -> None:
    stages = (
        stage(0, "from_tensor_slices"),
        stage(1, second),
        stage(2, "zip", 0, 1),
        stage(3, "shuffle", 2, buffer_size=100),
        stage(4, "batch", 3, batch_size=32),
    )
    looked = inspection(stages, tuple(cost(each.id, 4.0) for each in stages))
    texts = idea_bounds.ideas(looked, 1, 21.0, 2.0, 1.0)
    said = "zip, train.py:12, puts rows of arrays together one at a time. Give the arrays to one from_tensor_slices"
    assert [each.startswith(said) for each in texts] == [True] * told
    assert all(each.endswith("a step would be at most 10.5× as fast.") for each in texts)


@pytest.mark.parametrize(
    ("joined", "mapped", "told"),
    [("sample_from_datasets", False, True), ("sample_from_datasets", True, False), ("zip", False, False)],
)
def test_arrays_whose_rows_are_drawn_one_at_a_time_are_to_be_batched(joined: str, mapped: bool, told: bool) -> None:
    """As in TensorFlow's tutorial on classes of which one is rare."""
    stages: list[Stage] = []
    for start in (0, 3):
        repeat = stage(start + 2, "map" if mapped else "repeat", start + 1)
        stages += [stage(start, "from_tensor_slices"), stage(start + 1, "shuffle", start), repeat]
    stages += [stage(6, joined, 2, 5), stage(7, "batch", 6, batch_size=32), stage(8, "prefetch", 7)]
    looked = inspection(tuple(stages), tuple(cost(each.id, 3.0) for each in stages))
    texts = idea_bounds.ideas(looked, 1, 27.0, 2.0, 1.0)
    said = "sample_from_datasets, train.py:16, draws for each row from which array it comes. Repeat each of them"
    assert [each.startswith(said) for each in texts] == [True] * told
    assert all(each.endswith("a step would be at most 9.00× as fast.") for each in texts)


@pytest.mark.parametrize(
    ("name", "collates", "passes", "told"),
    [
        ("scan_random_index", function("fetch_function", python=True), 3, True),
        ("scan_random_index", function("fetch_function", python=True, draws_in_python=False), 3, True),
        ("scan_random_index", function("fetch_function", draws_in_python=True), 3, False),  # words are masked anew
        ("scan_random_index", function("fetch_function", python=True), 1, False),
        ("running_mean", function("fetch_function", python=True), 3, False),
    ],
)
def test_samples_that_a_scan_of_a_library_shuffles_are_to_be_kept_and_shuffled_behind_its_call(
    name: str, collates: UserFunction, passes: int, told: bool
) -> None:
    stages = (
        stage(0, "range"),
        stage(1, "scan", 0, of=function(name, random=True)),
        stage(2, "batch", 1, batch_size=32),
        stage(3, "map", 2, of=collates),
    )
    here = Location(file="/home/user/train.py", line=9)  # one call, `to_tf_dataset`, makes all of them
    looked = inspection(
        tuple(each.model_copy(update={"place": here}) for each in stages),
        (cost(0, 0.0), cost(1, 0.1), cost(2, 0.1), cost(3, 17.0)),
    ).model_copy(update={"training": ScriptTraining(line="train.py:12", model=True, epochs=passes)})
    texts = [each for each in idea_bounds.ideas(looked, 1, 20.0, 2.0, 1.0) if "shuffle=False" in each]
    assert [each.partition(", so ")[0] for each in texts] == (
        ["scan(scan_random_index), train.py:9, shuffles all samples"] * told
    )
    assert any("Right only if map(fetch_function)" in each for each in texts) is (
        told and collates.draws_in_python is None
    )
    assert all("put unbatch(), cache(), shuffle() and batch() behind it" in each for each in texts)
    assert all("shuffle=False and drop_remainder=False," in each for each in texts), "else each epoch drops the same"


@pytest.mark.parametrize(("size", "told"), [(None, True), (128, False)])
def test_rows_that_a_map_pads_to_the_longest_of_a_batch_are_to_be_padded_behind_what_is_kept(
    size: int | None, told: bool
) -> None:
    padded = stage(3, "map", 2, of=function("prepare")).model_copy(update={"element": tensor("int64", None, size)})
    stages = (stage(0, "TextLineDataset"), stage(1, "shuffle", 0), stage(2, "batch", 1, batch_size=32), padded)
    looked = inspection(stages, (cost(0, 1.0), cost(1, 1.0), cost(2, 1.0), cost(3, 17.0)))
    texts = idea_bounds.ideas(looked, 1, 20.0, 2.0, 1.0)
    said = "map(prepare), train.py:13, gives rows of no known size, as where it pads each batch to its longest row"
    assert [each.startswith(said) for each in texts] == [True] * told
    once = ScriptTraining(line="train.py:9", model=True, epochs=1)
    assert idea_bounds.ideas(looked.model_copy(update={"training": once}), 1, 20.0, 2.0, 1.0) == ()


@pytest.mark.parametrize(("kind", "told"), [("ragged", False), ("tensor", True)])
def test_rows_that_are_left_ragged_and_padded_behind_that_already_are_not_to_be_so_again(
    kind: Literal["ragged", "tensor"], told: bool
) -> None:
    size = None if kind == "ragged" else 100
    kept = stage(3, "map", 2, of=function("prepare"))
    kept = kept.model_copy(update={"element": Element(kind=kind, dtype="int64", shape=(None, size))})
    padded = stage(4, "map", 3, of=function("pad")).model_copy(update={"element": tensor("int64", None, None)})
    stages = (stage(0, "TextLineDataset"), stage(1, "shuffle", 0), stage(2, "batch", 1, batch_size=32), kept, padded)
    looked = inspection(stages, (*(cost(number, 1.0) for number in range(3)), cost(3, 17.0), cost(4, 1.0)))
    assert ["to_tensor()" in each for each in idea_bounds.ideas(looked, 1, 20.0, 2.0, 1.0)] == [True] * told


def test_of_pictures_that_are_cropped_the_crop_alone_is_to_be_decoded() -> None:
    cropped = with_function(augmented(random=False), 1, crops_decoded=True)
    (text,) = idea_bounds.ideas(cropped, 1, as_written_ms=25.0, ceiling_ms=None, gained=1.0)
    assert "map(load), train.py:11, decodes whole pictures and then crops them" in text
    assert "a batch would be at most 5.00×" in text

    def of_decoding(share: float, *, random: bool = False) -> tuple[str, ...]:
        looked = with_function(cropped, 1, decoding_share=share, random=random)
        return idea_bounds.ideas(looked, 1, 25.0, 2.0, 1.0)

    (of_half,) = of_decoding(0.5)
    assert "a step would be at most 1.67×" in of_half
    assert of_decoding(0.15) == (), "where other lines take the time, the crop alone gains next to nothing"
    split, crop = of_decoding(1.0, random=True)
    assert "would be at most 5.00×" in split
    assert "If that took no time" not in crop, "it has the same bound"


def test_pictures_that_are_decoded_whole_and_resized_may_be_decoded_smaller() -> None:
    def of_decoding(share: float, **more: bool) -> tuple[str, ...]:
        looked = with_function(augmented(random=False), 1, resizes_decoded=True, decoding_share=share, **more)
        return idea_bounds.ideas(looked, 1, 25.0, 2.0, 1.0)

    (text,) = of_decoding(0.5)
    assert "map(load), train.py:11, decodes whole pictures and then resizes them" in text
    assert "resize the files once" in text
    assert "a step would be at most 1.67×" in text
    assert of_decoding(0.15) == (), "where other lines take the time, fewer pixels gain next to nothing"
    (crops,) = of_decoding(0.5, crops_decoded=True)
    assert "decodes the crop alone" in crops
    assert "ratio=" not in crops, "what a crop needs of the file is not known"


def test_of_a_pydataset_that_draws_the_costly_line_is_to_be_kept_and_the_gain_has_a_bound() -> None:
    def texts(share: float | None, random: bool = True) -> tuple[str, ...]:
        made = function("Batches", python=True, random=random)
        made = made.model_copy(update={"costliest": "line 33", "costliest_share": share})
        stages = (stage(0, "__getitem__", of=made), stage(1, "copy", 0))
        return idea_bounds.ideas(inspection(stages, (cost(0, 20.0), cost(1, 1.0))), 2, 21.0, None, 1.0)

    (text,) = texts(0.7)
    assert "spends 70 % of its time in line 33" in text
    assert "at most 3.00×" in text
    assert texts(0.2) == texts(None) == ()
    (steady,) = texts(0.7, random=False)  # where no attempt keeps anything of it
    assert "spends 70 % of its time in line 33" in steady
    assert "random" not in steady


def test_a_pipeline_or_an_iterator_that_is_made_anew_for_each_pass_is_to_be_made_once() -> None:
    looked = augmented(random=False)
    stages = tuple(each.model_copy(update={"anew": True}) for each in looked.stages)
    (text,) = idea_bounds.ideas(looked.model_copy(update={"stages": stages}), 1, 25.0, None, 1.0)
    assert "make it once, before the loop, with a cache() behind batch, train.py:12" in text
    training = ScriptTraining(line="train.py:9", pass_steps=20, leaves_passes=True)
    (text,) = idea_bounds.ideas(looked.model_copy(update={"training": training}), 1, 25.0, None, 1.0)
    assert "iter(dataset.repeat()), and take next(batches) in it, with a cache() behind batch, train.py:12" in text
    made = (stage(0, "range"), stage(1, "shuffle", 0), stage(2, "batch", 1))
    stages = tuple(each.model_copy(update={"anew": True}) for each in made)
    numbers = inspection(stages, (cost(0, 10.0), cost(1, 0.1), cost(2, 0.1)))
    assert idea_bounds.ideas(numbers, 0, 25.0, None, 1.0) == (), "a cache of numbers"


def test_pictures_that_are_copied_to_the_gpu_as_floats_are_to_be_copied_as_bytes() -> None:
    def texts(dtype: str, *shape: int, copy_ms: float | None = 20.0) -> tuple[str, ...]:
        batch = row(tensor(dtype, 64, *shape), tensor("int64", 64))
        looked = augmented(random=False).model_copy(update={"element": batch})
        return idea_bounds.ideas(looked, 1, as_written_ms=25.0, ceiling_ms=None, gained=1.0, copy_ms=copy_ms)

    (text,) = texts("float32", 224, 224, 3)
    assert "takes 20.0 ms, of a step of 25.0 ms" in text
    assert "at most 2.50×" in text
    assert texts("uint8", 224, 224, 3) == ()
    assert texts("float32", 4096) == ()
    assert texts("float32", 224, 224, 16) == ()
    assert texts("float32", 3, 50, 20) == (), "windows of three sensors"
    assert texts("float32", 224, 224, 3, copy_ms=2.0) == ()
    assert texts("float32", 224, 224, 3, copy_ms=None) == ()


@pytest.mark.parametrize("shape", [(224, 224, 1), (3, 224, 224), (16, 112, 112, 3), (None, None, 3)])
def test_what_copying_floats_as_bytes_gains_goes_with_the_share_of_pictures_in_a_batch(shape: tuple[int, ...]) -> None:
    def texts(*others: Element) -> tuple[str, ...]:
        looked = augmented(random=False).model_copy(update={"element": row(tensor("float32", 64, *shape), *others)})
        return idea_bounds.ideas(looked, 1, as_written_ms=25.0, ceiling_ms=None, gained=1.0, copy_ms=20.0)

    (text,) = texts(tensor("int64", 64), tensor("string", 64), tensor("bool", 64))
    assert "at most 2.50×" in text
    if None not in shape:
        assert "at most 1.43×" in texts(tensor("float32", 64, math.prod(shape)))[0], "half of its bytes are pictures"
        assert texts(tensor("float32", 64, 9, math.prod(shape))) == (), "most is something else, as rays are"


def test_what_the_model_takes_by_itself_bounds_the_gain() -> None:
    (text,) = idea_bounds.ideas(augmented(), 1, as_written_ms=25.0, ceiling_ms=12.5, gained=1.0)
    assert "at most 2.00×" in text
    assert idea_bounds.ideas(augmented(), 1, as_written_ms=25.0, ceiling_ms=22.0, gained=1.0) == ()


def test_a_small_stage_beside_a_model_cannot_bring_the_whole_wait_back() -> None:
    """Its 20 ms of 200: the ceiling of 150 ms would leave room for more. What no cost explains may be its own."""
    assert idea_bounds.ideas(augmented(), 1, as_written_ms=200.0, ceiling_ms=150.0, gained=1.0) == ()
    (text,) = idea_bounds.ideas(augmented(), 1, as_written_ms=80.0, ceiling_ms=30.0, gained=1.0)
    assert "at most 1.57×" in text


def test_what_the_costs_do_not_explain_may_be_saved_as_well() -> None:
    """Of a step of 30 ms, 20 of the 25 ms that are known are one stage's: of the whole step it may be four fifths."""
    (text,) = idea_bounds.ideas(augmented(), 1, as_written_ms=30.0, ceiling_ms=None, gained=1.0)
    assert (
        "If that took no time, and the 17 % that no stage explains belonged to it, a batch would be at most 5.00×"
        in text
    )


@pytest.mark.parametrize(
    ("training", "size", "repeated", "expected"),
    [
        ({"epochs": 4}, 100, False, 4.0),
        ({"epochs": 4}, None, False, 4.0),  # records of files, which nobody has counted
        ({"epochs": 4}, None, True, None),
        ({"epochs": 4, "steps": 250}, 100, True, 2.5),
        ({"steps": 250}, 100, True, 2.5),
        ({"steps": 250}, None, True, None),
        ({"epochs": 4, "in_loop": True}, 100, False, None),
        ({}, 100, False, None),
    ],
)
def test_how_often_a_training_passes_over_its_data_is_known_from_its_script(
    training: dict[str, int], size: int | None, repeated: bool, expected: float | None
) -> None:
    stages = (stage(0, "range"), stage(1, "repeat" if repeated else "batch", 0))
    looked = inspection(stages, (), cardinality=-1 if repeated else size)
    trained = ScriptTraining.model_validate({"line": "train.py:9", **training})
    assert stage_graph.passes(looked.model_copy(update={"pass_elements": size, "training": trained})) == expected


@pytest.mark.parametrize(("epochs", "parallel", "over"), [(2, True, "6.43× over all 2 epochs"), (None, False, "")])
def test_a_cache_is_proposed_for_what_it_gains_over_all_epochs(epochs: int | None, parallel: bool, over: str) -> None:
    def true_ms(edits: tuple[Edit, ...]) -> float:
        return 20.6 / (9.0 if keeps(edits) else 5.0 if any(isinstance(edit, SetArgument) for edit in edits) else 1.0)

    loop = ScriptTraining(line="train.py:9", dataset="ds", datasets=("ds",), epochs=epochs)
    looked = python_decode().model_copy(update={"training": loop})
    found = said(diagnose(Machine(looked, true_ms), allow_threads=True, budget_s=120.0))
    chosen = found.attempt(found.proposal or "").fix
    assert ("parallel map(decode)" in chosen.combines) is parallel
    assert over in found.text
    assert ("over all" in found.text) is bool(over)


def test_nothing_is_said_that_what_is_proposed_reaches_or_that_the_costs_do_not_show() -> None:
    assert idea_bounds.ideas(augmented(), 1, as_written_ms=25.0, ceiling_ms=None, gained=4.5) == ()
    assert idea_bounds.ideas(augmented(), 1, as_written_ms=90.0, ceiling_ms=None, gained=1.0) == ()


def test_a_map_on_what_is_parsed_already_is_not_told_to_parse_whole_batches() -> None:
    """As on what `Dataset.load` gives."""
    for element, ideas in ((tensor("string"), 1), (row(tensor("float32", 512), tensor("float32")), 0)):
        read = stage(0, "load").model_copy(update={"element": element})
        stages = (read, stage(1, "map", 0, of=function("f")), stage(2, "batch", 1, batch_size=32))
        costs = (cost(0, 1.0), cost(1, 20.0), cost(2, 1.0))
        assert len(idea_bounds.ideas(inspection(stages, costs), 1, 23.0, None, 1.0)) == ideas


@pytest.mark.parametrize("batch", ["batch", "padded_batch", "ragged_batch"])
def test_a_map_on_records_and_windows_are_told_how_to_take_whole_batches(batch: str) -> None:
    stages = (
        stage(0, "TFRecordDataset"),
        stage(1, "shuffle", 0),
        stage(2, "map", 1, of=function("parse")),
        stage(3, batch, 2, batch_size=32),
    )
    (text,) = idea_bounds.ideas(
        inspection(stages, (cost(0, 1.0), cost(1, 1.0), cost(2, 20.0), cost(3, 1.0))), 1, 23.0, None, 1.0
    )
    assert "tf.io.parse_example, of SequenceExamples by tf.io.parse_sequence_example" in text
    of_lines = (stage(0, "TextLineDataset"), *stages[1:])
    costs = (cost(0, 1.0), cost(1, 1.0), cost(2, 20.0), cost(3, 1.0))
    (text,) = idea_bounds.ideas(inspection(of_lines, costs), 1, 23.0, None, 1.0)
    assert "by tf.strings, or by tf.io.decode_csv, with use_quote_delim=False where quotes" in text
    assert "parse_example" not in text
    stages = (
        stage(0, "from_tensor_slices"),
        stage(1, "window", 0, size=20, shift=1),
        stage(2, "flat_map", 1, of=function("together")),
        stage(3, "batch", 2, batch_size=32),
    )
    (text,) = idea_bounds.ideas(
        inspection(stages, (cost(0, 1.0), cost(1, 9.0), cost(2, 9.0), cost(3, 1.0))), 1, 20.0, None, 1.0
    )
    assert "tf.gather" in text
    assert "at most 10.0×" in text


def test_samples_cut_one_by_one_from_a_whole_array_are_to_be_gathered_by_batches() -> None:
    """As `keras.utils.timeseries_dataset_from_array` does it."""

    def made(array: str) -> Inspection:
        stages = (
            stage(0, array),
            stage(1, "repeat", 0),
            stage(2, "range"),
            stage(3, "zip").model_copy(update={"inputs": (1, 2)}),
            stage(4, "map", 3, of=function("cut")),
            stage(5, "batch", 4, batch_size=32),
        )
        return inspection(stages, tuple(cost(number, 10.0 if number == 4 else 0.5) for number in range(6)))

    (text,) = idea_bounds.ideas(made("from_tensors"), 1, as_written_ms=12.5, ceiling_ms=None, gained=1.0)
    assert "cuts one sample a call" in text
    assert "tf.gather" in text
    assert idea_bounds.ideas(made("range"), 1, as_written_ms=12.5, ceiling_ms=None, gained=1.0) == ()


def test_a_wait_that_lies_where_epochs_begin_is_told_from_one_in_every_step() -> None:
    arrays = inspection((stage(0, "arrays"),), (cost(0, 0.2),)).model_copy(update={"api": "arrays"})
    state = measured(Machine(arrays, lambda edits: 5.0, ceiling_ms=1.0))
    whole = "wait 4.00 ms of 5.00 ms (80 %) for the arrays, 200 µs of it for making batches; Keras hands"
    assert whole in said(state).text
    first_of_eight = np.where(np.arange(STEPS) % 8 == 0, 28_000_000, 500_000)
    trials = tuple(
        trial.model_copy(update={"steps": trial.steps.model_copy(update={"wait_ns": Series.pack(first_of_eight)})})
        if trial.steps is not None
        else trial
        for trial in state.trials
    )
    later = conclusion.concluded(state.model_copy(update={"trials": trials}), said(state), "not-needed")
    begins = "for the arrays, most of it where an epoch begins (median 500 µs): Keras makes an iterator for each."
    assert begins in later.text


UNKNOWN = StageCost(stage=0, reason="its elements are too few to measure")


@pytest.mark.parametrize(
    ("api", "made", "ceiling_ms", "wait_ms", "told"),
    [
        (
            *("generator", cost(0, 3.0), 8.0, 0.1),
            "wait 100 µs of 10.0 ms (1 %) for the generator, but making a batch takes 3.00 ms of CPU time meanwhile",
        ),
        ("generator", cost(0, 0.1), 8.0, 0.1, "No fix of the input makes the training step faster."),
        (
            *("generator", UNKNOWN, 5.0, 0.1),
            "for the generator; what making a batch takes from the model meanwhile was not measured.",
        ),
        (
            *("arrays", UNKNOWN, 5.0, 1.0),
            "(10 %) for the arrays; Keras hands them to the step, and no argument of fit changes that.",
        ),
        (
            *("generator", cost(0, 3.0), 4.0, 1.0),  # whose cores the model wants
            "a step would take 9.00 ms at best; with less work, which leaves the model its cores too, 4.00 ms, as the ",
        ),
        (
            *("generator", cost(0, 3.0), 8.9, 1.0),
            "In a PyDataset with workers, or with less work, a step would take 9.00 ms at best. No call in it was",
        ),
    ],
)
def test_what_a_step_waits_for_arrays_or_a_generator_is_told_with_what_would_shorten_it(
    api: str, made: StageCost, ceiling_ms: float, wait_ms: float, told: str
) -> None:
    looked = inspection((stage(0, api),), (made,)).model_copy(update={"api": api})
    state = measured(Machine(looked, lambda edits: 10.0, ceiling_ms=ceiling_ms))
    results = tuple(each.model_copy(update={"input_wait_ms": Estimate(value=wait_ms)}) for each in state.results)
    later = conclusion.concluded(state.model_copy(update={"results": results}), said(state), "not-needed")
    assert told in later.text
    assert later.bottleneck is not None
    assert later.says_bottleneck == (later.bottleneck.text in later.text)


def test_of_a_generator_that_is_hardly_waited_for_its_wait_is_told_once() -> None:
    looked = inspection((stage(0, "generator"),), (cost(0, 3.0),)).model_copy(update={"api": "generator"})
    state = measured(Machine(looked, lambda edits: 10.0, ceiling_ms=8.0))
    results = tuple(each.model_copy(update={"input_wait_ms": Estimate(value=0.1)}) for each in state.results)
    found = bottleneck.find(looked, 2, StepTimes(as_written_ms=10.0, ceiling_ms=8.0, wait_ms=0.1))
    assert (found.stage, found.limits) == (0, False), "it is no bottleneck"
    known = said(state).model_copy(update={"bottleneck": found})
    later = conclusion.concluded(state.model_copy(update={"results": results}), known, "not-needed")
    assert later.text == (
        "The training hardly waits for its input (1 % of a step of 10.0 ms); the input can only take cores from the "
        "model, which alone takes 8.00 ms. The costliest stage, generator, train.py:10, computes for 3.00 ms a batch. "
        "Cheaper batches may shorten the step; no argument of fit makes them cheaper."
    )


def test_of_a_generator_whose_steps_wait_it_is_told_too_what_no_fix_can_change() -> None:
    made = function("data_gen", python=True).model_copy(update={"doubles": True})
    of_generator = inspection((stage(0, "generator", of=made),), (cost(0, 7.0),))
    looked = of_generator.model_copy(update={"api": "generator"})
    text = text_of(Machine(looked, lambda edits: 10.0, ceiling_ms=3.0))
    assert "wait 7.00 ms of 10.0 ms (70 %) for the generator. In a PyDataset with workers, " in text
    assert "generator(data_gen), train.py:10, returns float64" in text


def test_what_a_step_waits_is_never_more_than_the_step_where_the_first_rounds_were_slower() -> None:
    """The ceiling is measured in these alone."""
    periods_ms = itertools.chain([22.0, 20.0], itertools.repeat(10.0))
    slower_first = Machine(of_map(0.2), lambda edits: 1.0 if edits else next(periods_ms), ceiling_ms=0.3)
    written = diagnose(slower_first).result(AS_WRITTEN)
    assert 0 < (written.input_wait_ms.value or 0.0) < (written.step_ms.mean or 0.0)


def test_a_wait_that_making_batches_of_arrays_explains_is_keras_own() -> None:
    arrays = inspection((stage(0, "arrays"),), (cost(0, 4.0),)).model_copy(update={"api": "arrays"})
    text = text_of(Machine(arrays, lambda edits: 5.0, ceiling_ms=1.0))
    assert "The steps of fit wait 4.00 ms of 5.00 ms (80 %) for the arrays, which Keras cuts" in text


def test_the_most_promising_fix_is_named_after_enough_trials_too() -> None:
    able = [each for each in attempt_statistics.of(unsure(), said(unsure())) if each.contends]
    assert said(unsure()).proposal is None
    best = min(able, key=attempt_statistics.by_gain)
    assert best.trials >= attempt_statistics.CONFIRMED_TRIALS
    assert f"The most promising is {best.name}" in said(unsure()).text


def test_of_a_diagnosis_that_was_interrupted_no_larger_budget_is_asked_for() -> None:
    state = unsure()
    *_, last = (number for number, trial in enumerate(state.trials) if trial.variant == AS_WRITTEN)
    begun = state.trials[: last + 1]
    trials = (*begun[:-1], begun[-1].model_copy(update={"status": "interrupted", "steps": None}))
    for ended, advice in (("interrupted", "let it run to its end."), ("budget", "use --budget ")):
        shown = state.model_copy(update={"trials": trials if ended == "interrupted" else begun})
        found = conclusion.concluded(shown, said(state), "interrupted" if ended == "interrupted" else "budget")
        assert "The most promising is" in found.text
        assert advice in found.text


def test_a_wait_of_trials_that_differ_many_times_is_not_decided() -> None:
    arrays = inspection((stage(0, "arrays"),), (cost(0, 0.2),)).model_copy(update={"api": "arrays"})
    trials_ms = itertools.chain([569.0], itertools.repeat(13.0))
    found = said(diagnose(Machine(arrays, lambda edits: next(trials_ms), ceiling_ms=1.0)))
    assert "is not decided: its trials differ, with means of 13.0 to 569 ms a step." in found.text


@pytest.mark.parametrize(("first_ms", "tries"), [(6000.0, True), (300.0, True), (150.0, False)])
def test_a_buffer_that_an_epoch_fills_first_is_worth_fixes_though_no_step_waits_for_it(
    first_ms: float, tries: bool
) -> None:
    found = said(diagnose(Machine(shuffled(first_ms), lambda edits: 15.0, ceiling_ms=15.0)))
    assert any(each.outcome == "no-gain" for each in found.attempts) is tries
    assert ("limits an epoch" in found.text) is tries
    assert ("No fix of the input makes the training step faster." in found.text) is not tries


def concluding(looked: Inspection, told: Told = lambda edits: fingerprint(), budget_s: float = 60.0) -> str:
    return said(diagnose(Machine(looked, lambda edits: 5.0 if edits else 20.6, told=told), budget_s=budget_s)).text


def test_where_no_fix_was_tried_the_reason_is_said() -> None:
    text = concluding(of_map(20.0), budget_s=8.0)
    advised = re.search(r"No fix was tried: the budget left no time for one\. Use --budget (\d+)\.$", text)
    assert advised is not None
    assert "Proposed: " in concluding(of_map(20.0), budget_s=float(advised[1]))


def test_a_proposal_of_random_maps_on_several_threads_says_what_becomes_of_their_numbers() -> None:
    of_layer = function("augment", random=True, changes_state=True, changes_seeds=True)
    stages = (stage(0, "range"), stage(1, "map", 0, of=of_layer), stage(2, "batch", 1, batch_size=32))
    looked = inspection(stages, (cost(0, 0.1, elements=32), cost(1, 20.0, elements=32), cost(2, 0.5)))
    assert (
        " Which sample gets which random numbers then differs from run to run, also with a seed; two calls at the same "
        "time may draw the same numbers." in concluding(looked)
    )


@pytest.mark.parametrize("shared", [False, "alike"])
def test_a_proposal_says_that_another_dataset_of_its_line_has_another_order_too(shared: Any) -> None:
    stages = (stage(0, "TFRecordDataset", filenames=8), stage(1, "batch", 0, batch_size=32))
    reader = stages[0].model_copy(update={"shared": shared})
    looked = inspection((reader, stages[1]), (cost(0, 20.0, elements=32), cost(1, 0.5)))
    machine = Machine(looked, lambda edits: 5.0 if any(map(reads_more, edits)) else 20.6)
    text = said(diagnose(machine, allow_reordering=True)).text
    assert "Proposed: " in text
    assert ("A changed line also makes another dataset, which may have another order too." in text) == bool(shared)


def reads_more(edit: Edit) -> bool:
    return isinstance(edit, SetArgument) and edit.argument == "num_parallel_reads"


def test_of_the_only_fix_tried_it_is_said_why_it_is_refused() -> None:
    def others(edits: tuple[Edit, ...]) -> Fingerprint:
        return fingerprint(component(tuple(range(64 + len(edits)))))

    only = inspection((stage(0, "shuffle"), stage(1, "batch", 0)), (cost(0, 20.0), cost(1, 0.1)))
    text = concluding(only, others)
    assert "The only fix tried, prefetch at the end, is refused: It changes which samples arrive" in text
    assert "proven" not in text


def test_a_generator_is_to_give_only_names_and_one_that_waits_is_limited_by_what_it_waits_for() -> None:
    def said(cpu_ms: float) -> str:
        stages = (stage(0, "from_generator", of=function("gen", python=True)), stage(1, "batch", 0))
        looked = inspection(stages, (cost(0, 20.0, cpu_ms), cost(1, 5.0)))
        return " ".join(idea_bounds.ideas(looked, 1, as_written_ms=25.0, ceiling_ms=None, gained=1.0))

    assert "a map with num_parallel_calls" in said(20.0)
    assert "at most 5.00×" in said(20.0)
    assert "waits" not in said(20.0)
    assert "It mostly waits: what it waits for" in said(0.5)


@pytest.mark.parametrize(("elements", "each_ms", "is_told"), [(128, 0.3, True), (128, 2.0, False), (2, 0.3, False)])
def test_a_generator_of_many_small_elements_is_to_give_many_at_once(
    elements: int, each_ms: float, is_told: bool
) -> None:
    stages = (stage(0, "from_generator", of=function("patches", python=True)), stage(1, "padded_batch", 0))
    looked = inspection(stages, (cost(0, elements * each_ms, elements=elements), cost(1, 0.1)))
    (text,) = idea_bounds.ideas(looked, 1, elements * each_ms + 0.1, ceiling_ms=None, gained=1.0)
    assert ("cut these up with unbatch()" in text) == is_told
    assert ("a map with num_parallel_calls" in text) != is_told


def test_what_a_trial_does_not_show_of_a_proposal_stands_beside_its_gain() -> None:
    def true_ms(edits: tuple[Edit, ...]) -> float:
        return 20.6 / (4.0 if any(isinstance(edit, InsertAfter) for edit in edits) else 1.0)

    found = said(diagnose(Machine(python_decode().model_copy(update={"pass_elements": None}), true_ms)))
    assert found.attempt(found.proposal or "").fix.kind == "cache"
    price = (
        "It takes room in memory for the whole dataset, whose size is not known (1000 B a batch); right only if decode"
    )
    assert price in found.text


def test_where_a_loop_of_a_scripts_is_not_run_its_pipeline_alone_is_said_to_gain() -> None:
    loop = ScriptTraining(line="train.py:9", dataset="ds", datasets=("ds",))
    looked = python_decode().model_copy(update={"training": loop})
    ran = Machine(looked, lambda edits: 20.6 / (4.0 if edits else 1.0))
    text = said(diagnose(ran, allow_threads=True)).text
    assert "makes the pipeline alone 4.00× as fast" in text
    assert "; `pipeline-bench run` tells whether the training waits for it." in text
    noisy = Machine(looked, lambda edits: 8.0 if edits else 10.0, noise=0.4, seed=4)
    told = "trials of the pipeline alone: if `pipeline-bench run` shows that the training waits, use --budget 120."
    assert told in said(diagnose(noisy, budget_s=60.0)).text
    known = looked.model_copy(update={"training": loop.model_copy(update={"model": True, "step": "step"})})
    text = said(diagnose(Machine(known, ran.period_ms, ceiling_ms=20.5), allow_threads=True)).text
    assert text.endswith("No fix of the input makes the training step faster.")


def test_a_gain_that_the_ceiling_excludes_is_told_as_the_most_that_there_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = unsure_of_a_cache()
    assert "at most" not in conclusion._promising(state, said(state))
    monkeypatch.setattr(conclusion, "headroom", lambda session: 1.18)
    assert ", at most 1.18× in " in conclusion._promising(state, said(state))


@pytest.mark.parametrize(("ceiling_ms", "promises"), [(5.0, True), (9.9, False)])
def test_a_gain_that_the_model_alone_excludes_on_average_is_not_promising(ceiling_ms: float, promises: bool) -> None:
    """One trial of the model alone was fast by chance: it is the bound of the search, but not of what is promised."""
    state = diagnose(Machine(of_map(9.0), lambda edits: 8.0 if edits else 10.0, noise=0.4, seed=4, ceiling_ms=5.0))
    assert "The most promising is" in conclusion._promising(state, said(state))
    means = {each.variant: each.step_ms.mean for each in state.results} | {AS_WRITTEN: 10.0, CEILING: ceiling_ms}
    slower = tuple(
        each.model_copy(update={"step_ms": each.step_ms.model_copy(update={"mean": means[each.variant]})})
        for each in state.results
    )
    promising = conclusion._promising(state.model_copy(update={"results": slower}), said(state))
    assert bool(promising) is promises


def test_the_most_promising_fix_is_told_with_its_price() -> None:
    found = said(unsure_of_a_cache())
    assert found.proposal is None
    assert "The most promising is cache" in found.text
    assert "use --budget 120. It takes about 97.7 KiB in memory." in found.text


def test_a_fix_that_had_luck_in_its_only_trial_is_not_the_most_promising(monkeypatch: pytest.MonkeyPatch) -> None:
    found = attempt_statistics.of(unsure(), said(unsure()))
    able = [each for each in found if each.possible][:2]
    known = [dataclasses.replace(able[0], in_all=1.33, trials=3), dataclasses.replace(able[1], trials=1)]
    for lucky, promising in ((1.53, known[0]), (3.0, known[1])):
        known[1] = dataclasses.replace(known[1], in_all=lucky)
        monkeypatch.setattr(attempt_statistics, "of", lambda *_: list(known))
        assert f"The most promising is {promising.name}, " in conclusion._promising(unsure(), said(unsure()))


def test_the_most_promising_fix_is_the_one_that_gains_most_over_all_epochs() -> None:
    """A cache of a training of two epochs halves its time at most."""
    training = ScriptTraining(line="train.py:9", epochs=2, model=True)
    looked = of_map(9.0).model_copy(update={"training": training})
    state = diagnose(Machine(looked, lambda edits: 2.5 if keeps(edits) else 4.0 if edits else 10.0, noise=0.9, seed=4))
    found = {each.name: each for each in attempt_statistics.of(state, said(state)) if each.contends}
    cache = next(each for each in found.values() if each.attempt.fix.keeps)
    other = next(each for each in found.values() if not each.attempt.fix.keeps)
    known = [
        dataclasses.replace(cache, gain=4.0, in_all=1.6, trials=2),
        dataclasses.replace(other, gain=2.5, in_all=2.5, trials=2),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt_statistics, "of", lambda *_: known)
        assert f"is {other.name}, 2.50× in 2 trials" in conclusion._promising(state, said(state))
        patch.setattr(attempt_statistics, "of", lambda *_: known[:1])
        assert f"is {cache.name}, 1.60× over all 2 epochs in 2 trials" in conclusion._promising(state, said(state))


def test_fixes_that_the_budget_left_no_time_for_are_counted_with_the_budget_for_them() -> None:
    state = diagnose(Machine(of_map(20.0), lambda edits: 20.0))
    attempts = said(state).attempts
    assert len(attempts) > 2
    left = [each.model_copy(update={"outcome": "not-tried", "cause": "budget"}) for each in attempts[1:]]
    few = said(state).model_copy(update={"attempts": (attempts[0], *left)})
    more = "1 more fix" if len(left) == 1 else f"{len(left)} more fixes"
    assert re.fullmatch(
        rf" The budget left no time for {more}: use --budget \d+\.", conclusion._no_time_for(state, few)
    )
    assert conclusion._no_time_for(state, said(state)) == ""


def test_of_a_step_that_the_loop_makes_more_of_for_each_batch_what_it_waits_and_gains_is_a_bound() -> None:
    """A public WGAN's call took 8.75 ms, of which it waited 11 %; of its 40 ms for a batch that was 1 %."""
    training = ScriptTraining(line="train.py:9", model=True, step="train_d", part="train_d")
    looked = python_decode(18.0).model_copy(update={"training": training})
    found = said(diagnose(Machine(looked, lambda edits: 10.0 if edits else 20.0, ceiling_ms=4.0)))
    assert found.bottleneck is not None
    assert found.bottleneck.certainty == "probable"
    begins = "A call of train_d takes 20.0 ms, and the loop calls more for each batch: its input wait is at most"
    assert found.text.startswith(begins)
    assert "In doubt: the loop calls more for each batch than train_d once." in found.text
    assert "takes at most " in found.text
    assert "makes the training at most 2.00× as fast" in found.text


@pytest.mark.parametrize("part", ["", "train_d"])
def test_nothing_is_promising_of_a_step_that_is_a_part_of_the_training_s(part: str) -> None:
    training = ScriptTraining(line="train.py:9", model=True, step="train_d", part=part)
    looked = python_decode(18.0).model_copy(update={"training": training})
    machine = Machine(looked, lambda edits: 15.0 if edits else 20.0, ceiling_ms=4.0, noise=0.3, seed=3)
    found = said(diagnose(machine, budget_s=20.0))
    assert ("The most promising is" in found.text) != bool(part)
    assert ("the loop calls more for each batch" in found.text) == bool(part)


@pytest.mark.parametrize("script", [True, False])
def test_of_an_input_that_was_read_alone_the_time_is_told_that_a_longer_step_does_not_wait_for(script: bool) -> None:
    """A public script's shuffle took "66 % of the time between two batches", which was 0.15 ms."""
    training = ScriptTraining(line="train.py:9") if script else None
    looked = python_decode(18.0).model_copy(update={"training": training})
    found = said(diagnose(Machine(looked, lambda edits: 20.0)))
    time = "20.0 ms" if script else "time"
    assert f" of the {time} between two batches: it runs Python" in found.text
    follows = (
        ". It limits only steps that are shorter than 20.0 ms. `pipeline-bench run` tells whether the training waits "
        "for it. "
    )
    assert (follows in found.text) == script
    if training is not None:
        handed_on = training.model_copy(update={"handed_on_by": "batches, train.py:3"})
        found = said(diagnose(Machine(looked.model_copy(update={"training": handed_on}), lambda edits: 20.0)))
        assert "What is measured is the dataset alone, on whose elements batches, train.py:3, a generator" in found.text
