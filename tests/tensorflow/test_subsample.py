"""A small part of a pipeline's input: enough for some batches, and the same samples whatever the edits."""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.diagnosis import equality
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.edits import Edit, GatherWindows, Interleave, MoveBefore, SetArgument
from pipeline_bench.tfdata import fingerprint, rebuild, subsample
from pipeline_bench.tfdata.plan import CallPlan
from tests.tensorflow.recorded import recipe_of, values


def small(recipe: Any, folder: Path, *edits: Edit, seed: int = 1) -> list[Any]:
    return values(rebuild.subsampled(recipe, edits, folder, seed))


def flat(batches: list[Any]) -> list[Any]:
    return sorted(value for batch in batches for value in batch)


def test_of_a_source_enough_for_two_batches_is_taken(tmp_path: Path) -> None:
    import tensorflow as tf

    source = tf.data.Dataset.range
    assert len(small(recipe_of(lambda: source(10**6)), tmp_path)) == 64
    assert len(small(recipe_of(lambda: source(10**6).batch(100, drop_remainder=True)), tmp_path)) == 2
    skipped = recipe_of(lambda: source(10**6).skip(500).shard(3, 2).batch(50).batch(2))
    assert [len(part) for part in flat(small(skipped, tmp_path))[:2]] == [50, 50]


@pytest.mark.parametrize(
    "batched",
    [
        lambda data: data.batch(1025, drop_remainder=True).shuffle(9).batch(32, drop_remainder=True),
        lambda data: data.batch(32_768, drop_remainder=True),
        lambda data: data.shard(700, 0).batch(32, drop_remainder=True),
    ],
    ids=["long sequences", "large batches", "many shards"],
)
def test_a_batch_that_takes_more_than_the_most_arrives_all_the_same(batched: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    assert len(small(recipe_of(lambda: batched(tf.data.Dataset.range(10**6))), tmp_path)) == 1


def test_of_an_older_function_for_apply_that_batches_two_batches_are_taken(tmp_path: Path) -> None:
    import tensorflow as tf

    fused = tf.data.experimental.map_and_batch(lambda number: number + 1, 200, drop_remainder=True)
    recipe = recipe_of(lambda: tf.data.Dataset.range(10**6).apply(fused))
    assert [len(batch) for batch in small(recipe, tmp_path)] == [200, 200]


@pytest.mark.parametrize(
    ("behind", "arrive"),
    [
        (lambda data: data.skip(30_000).batch(100, drop_remainder=True), 200),
        (lambda data: data.skip(30_000).shuffle(10).skip(40_000).batch(100), 200),
        (lambda data: data.batch(1000).skip(25).unbatch(), 1000),
        (lambda data: data.skip(3).batch(15_000), subsample.MOST_ELEMENTS - 3),
        (lambda data: data.repeat().skip(10**7), 64),
    ],
)
def test_a_skip_of_more_than_the_small_part_leaves_samples_to_compare(behind: Any, arrive: int, tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: behind(tf.data.Dataset.range(10**6)))
    first, *rest = itertools.chain.from_iterable(
        each if isinstance(each, list) else [each] for each in small(recipe, tmp_path)
    )
    assert first > 0, "what is skipped, in part, does not arrive"
    assert len([first, *rest]) >= arrive


@pytest.fixture
def fewer_frames() -> Iterator[None]:
    """A frame a stage is too much with fewer stages, which take less time to make."""
    before, depth = sys.getrecursionlimit(), sum(1 for _ in traceback.walk_stack(None))
    sys.setrecursionlimit(depth + 220)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("again", [False, True])
def test_a_skip_may_have_hundreds_of_stages_before_it_or_shared_ones(again: bool, fewer_frames: None) -> None:
    import tensorflow as tf

    def make() -> Any:
        made = tf.data.Dataset.range(100)
        for _ in range(40 if again else 250):
            made = made.concatenate(made if again else tf.data.Dataset.range(2))
        return made.skip(30).batch(50)

    plan = CallPlan(recipe_of(make))
    subsample.shrink(plan)
    assert [node.given()["count"] for node in plan.nodes.values() if node.method == "skip"] == [30]


def test_why_no_sample_arrives_is_told(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(10**6).filter(lambda number: number >= 10**5).batch(8))
    found = fingerprint.of(lambda seed: rebuild.subsampled(recipe, (), tmp_path, seed), recipe.stages, 20.0)
    assert found.complete
    assert (found.reason or "").endswith("which alone are compared, none arrives behind filter(<lambda>)")


def test_of_arrays_the_first_rows_are_cut_out_and_not_all_of_them_copied(tmp_path: Path) -> None:
    import numpy as np
    import tensorflow as tf

    rows = np.zeros([200, 4])
    recipe = recipe_of(lambda: tf.data.Dataset.from_tensor_slices(({"x": rows, "y": tf.range(200)}, rows)).batch(10))
    named, others = subsample._shrunk_source(CallPlan(recipe).node(0), 64).given()["tensors"]
    assert [len(part) for part in (named["x"], named["y"], others)] == [64, 64, 64]
    listed = recipe_of(lambda: tf.data.Dataset.from_tensor_slices((rows, list(range(200)))).batch(10))
    assert sum(len(part[1]) for part in small(listed, tmp_path)) == 64


@pytest.mark.parametrize("repeated", [False, True])
def test_what_takes_any_elements_may_pass_a_map_with_the_batch_and_gives_the_same(
    repeated: bool, tmp_path: Path
) -> None:
    import tensorflow as tf

    def double(number: Any) -> Any:
        return tf.cast(number, tf.float32) * 2.0

    def make() -> Any:
        made = tf.data.Dataset.range(70).map(double).shuffle(20)
        return (made.repeat() if repeated else made).batch(8).prefetch(1)

    recipe = recipe_of(make)
    passed = [stage for stage in recipe.stages if stage.method in ("shuffle", "repeat", "batch")]
    edits = [MoveBefore(stage=stage.id, other=1) for stage in passed]
    stages, seeds = recipe.stages, itertools.count()

    def told(*own: Edit) -> Any:
        make = lambda seed: rebuild.subsampled(recipe, own, tmp_path / str(next(seeds)), seed)  # noqa: E731
        return fingerprint.of(make, stages, 20.0)

    found = equality.compare(told(), told(*edits))
    assert found.status == "identical", found.text
    assert small(recipe, tmp_path, *edits)[0] != list(range(0, 16, 2)), "it is shuffled"


def test_an_endless_pipeline_ends(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.zip((tf.data.Dataset.range(3).repeat(), tf.data.Dataset.counter())))
    assert small(recipe, tmp_path) == [(n % 3, n) for n in range(64)]
    assert len(small(recipe_of(lambda: tf.data.Dataset.range(40).repeat()), tmp_path)) == 80


def test_a_generator_is_asked_for_no_more_than_it_needs(tmp_path: Path) -> None:
    import tensorflow as tf

    given: list[int] = []

    def endless() -> Any:
        for number in range(10**9):
            given.append(number)
            yield number

    recipe = recipe_of(lambda: tf.data.Dataset.from_generator(endless, output_types=tf.int64).batch(50))
    assert flat(small(recipe, tmp_path)) == list(range(100))
    assert max(given) == 99


def test_a_shuffle_is_the_same_for_each_seed_and_random_ops_are_not(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(
        lambda: tf.data.Dataset.range(20).shuffle(20).repeat(2).map(lambda x: (x, tf.random.uniform([])))
    )
    first, again, other = (small(recipe, tmp_path, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert [x for x, _ in first] == [x for x, _ in other]
    assert [r for _, r in first] != [r for _, r in other]
    assert [x for x, _ in first[:20]] != list(range(20))
    assert [x for x, _ in first[:20]] != [x for x, _ in first[20:]]  # reshuffled in each pass


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    folder = tmp_path / "files"
    folder.mkdir()
    for file in range(6):
        (folder / f"{file}.txt").write_text("".join(f"{file}-{line}\n" for line in range(40)))
    return [str(folder / f"{file}.txt") for file in range(6)]


def test_files_read_in_parallel_give_the_same_samples(files: list[str], tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.TextLineDataset(files).batch(10))
    written = small(recipe, tmp_path)
    parallel = small(recipe, tmp_path, SetArgument(stage=0, argument="num_parallel_reads", value=3))
    assert written != parallel
    assert flat(written) == flat(parallel)
    assert len(flat(written)) == 64
    assert {line[:1] for line in flat(written)} == {b"0", b"1", b"2", b"3"}


def test_one_file_gives_as_much_as_several(files: list[str], tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.TextLineDataset(files[0]).batch(20, drop_remainder=True))
    assert [len(batch) for batch in small(recipe, tmp_path)] == [20, 20]


def test_files_opened_by_a_function_give_the_same_samples(files: list[str], tmp_path: Path) -> None:
    import tensorflow as tf

    def opened(name: Any) -> Any:
        return tf.data.TextLineDataset(name).shuffle(40).repeat()

    recipe = recipe_of(
        lambda: tf.data.Dataset.list_files(str(Path(files[0]).parent / "*.txt")).flat_map(opened).batch(30)
    )
    flat_map = recipe.stages[1].id
    for seed in (1, 2):
        written = small(recipe, tmp_path, seed=seed)
        changed = small(recipe, tmp_path, Interleave(stage=flat_map, cycle_length=4), seed=seed)
        assert flat(written) == flat(changed)
        assert flat(written) == flat(small(recipe, tmp_path, seed=3))
    assert len(flat(written)) == 64


def test_of_files_opened_by_an_older_function_for_apply_the_first_are_read_in_part(
    files: list[str], tmp_path: Path
) -> None:
    import tensorflow as tf

    def opened(name: Any) -> Any:
        return tf.data.TextLineDataset(name).shuffle(40)

    applied = tf.data.experimental.parallel_interleave(opened, cycle_length=4, sloppy=True)
    recipe = recipe_of(lambda: tf.data.Dataset.from_tensor_slices(files).apply(applied).batch(30))
    found = flat(small(recipe, tmp_path))
    assert len(found) == 64
    assert {line[:1] for line in found} == {b"0", b"1", b"2", b"3"}
    assert found == flat(small(recipe, tmp_path, seed=2))


def test_a_shuffle_in_front_of_the_maps_gives_the_same_order(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(30).map(lambda x: x * 2).shuffle(8).batch(5))
    moved = small(recipe, tmp_path, MoveBefore(stage=2, other=1))
    assert moved == small(recipe, tmp_path)


@pytest.mark.parametrize(
    ("mapped", "keep", "moves"),
    [
        (lambda x, y: (x * 2, y), lambda x, y: y > 9, True),
        (lambda x, y: (x * 2, y), lambda x, y: x > 9, False),
        (lambda x, y: (y, x), lambda x, y: y > 9, False),  # of equal numbers, as in the small part
        (lambda x, y: (x, tf_cast(y)), lambda x, y: y > 9, False),
        (lambda x, y: (x, y), lambda x, y: py_greater(y), True),
    ],
    ids=["what stays", "what changes", "what changes places", "another type", "in Python"],
)
def test_a_filter_moves_only_in_front_of_a_map_that_hands_on_what_it_looks_at(
    mapped: Any, keep: Any, moves: bool, tmp_path: Path
) -> None:
    import tensorflow as tf

    numbers = tf.range(300, dtype=tf.int64)
    recipe = recipe_of(lambda: tf.data.Dataset.from_tensor_slices((numbers, numbers)).map(mapped).filter(keep).batch(8))
    edit = MoveBefore(stage=2, other=1)
    if moves:
        assert small(recipe, tmp_path, edit) == small(recipe, tmp_path)
    else:
        with pytest.raises(PipelineBenchError, match=r"filter\(<lambda>\) may look at what map\(<lambda>\) changes"):
            small(recipe, tmp_path, edit)


def tf_cast(value: Any) -> Any:
    import tensorflow as tf

    return tf.cast(value, tf.int32)


def py_greater(value: Any) -> Any:
    import tensorflow as tf

    return tf.numpy_function(lambda number: number > 9, [value], tf.bool)


@pytest.mark.parametrize("kind", [list, np.array])
def test_windows_of_the_part_are_of_its_rows_whatever_holds_them(kind: Any, tmp_path: Path) -> None:
    """A list is not cut but taken from: the edit had 64 windows, and the pipeline as written 55, of 64 rows."""
    import tensorflow as tf

    def make() -> Any:
        data = tf.data.Dataset.from_tensor_slices(kind([float(each) for each in range(200)]))
        data = data.window(10, shift=1, drop_remainder=True).flat_map(lambda rows: rows.batch(10))
        return data.batch(8)

    recipe = recipe_of(make)
    slices, cut, flat, _ = (stage.id for stage in recipe.stages)
    gather = GatherWindows(source=slices, window=cut, flat_map=flat)
    assert small(recipe, tmp_path / "edited", gather) == small(recipe, tmp_path / "as_written")


def test_what_was_asserted_of_the_whole_is_not_of_the_part(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(
        lambda: tf.data.Dataset.range(1000).apply(tf.data.experimental.assert_cardinality(1000)).map(lambda x: x)
    )
    assert small(recipe, tmp_path) == list(range(64))
