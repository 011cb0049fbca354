"""Pipelines made again: each edit gives what the user would have written by hand; their own files stay untouched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import AUTOTUNE
from pipeline_bench.model.edits import (
    BatchInGenerator,
    Edit,
    Fuse,
    GatherBatches,
    InsertAfter,
    Interleave,
    MoveBefore,
    PrefetchToDevice,
    Remove,
    SetArgument,
    SetOptions,
)
from pipeline_bench.tfdata import fingerprint, public_api, rebuild
from pipeline_bench.tfdata.recipe import OWN_FILE_NOTE, Recipe
from tests.tensorflow import recorded
from tests.tensorflow.recorded import recipe_of, values


def id_of(recipe: Recipe, label: str) -> int:
    return next(stage.id for stage in recipe.stages if stage.label == label)


def rebuilt(recipe: Recipe, edits: Iterable[Edit], scratch: Path) -> Any:
    return rebuild.rebuild(recipe, edits, scratch).dataset


def assert_alike(recipe: Recipe, edits: Sequence[Edit], folder: Path) -> None:
    """See that the edits change neither the elements, nor their types, nor those of the small pipeline."""
    changed = rebuilt(recipe, edits, folder)
    assert values(changed) == values(recipe.dataset(recipe.sink))
    assert changed.element_spec == recipe.dataset(recipe.sink).element_spec
    small = [values(rebuild.subsampled(recipe, each, folder, seed=1)) for each in ((), edits)]
    assert small[0] == small[1]


def chain() -> Any:
    import tensorflow as tf

    def double(x: Any) -> Any:
        return x * 2

    def pair(x: Any) -> Any:
        return x, x + 1

    return tf.data.Dataset.range(10).map(double).map(pair).filter(lambda a, b: a > 2).batch(4)


def by_hand(make: Callable[[Any], Any]) -> list[Any]:
    import tensorflow as tf

    return values(make(tf.data.Dataset.range(10)))


def test_without_edits_the_users_own_objects_are_used(tmp_path: Path) -> None:
    made = chain()
    recipe = recipe_of(lambda: made.prefetch(1))
    assert rebuilt(recipe, (), tmp_path) is recipe.dataset(recipe.sink)
    again = rebuilt(recipe, [SetArgument(stage=1, argument="buffer_size", value=3)], tmp_path)
    assert again._input_dataset is made


CHAIN_EDITS: dict[str, tuple[list[Edit], Callable[[Any], Any]]] = {
    "set an argument that was given": (
        [SetArgument(stage=4, argument="batch_size", value=3)],
        lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).filter(lambda a, b: a > 2).batch(3),
    ),
    "set one that was not": (
        [SetArgument(stage=4, argument="drop_remainder", value=True)],
        lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).filter(lambda a, b: a > 2).batch(4, drop_remainder=True),
    ),
    "insert": (
        [InsertAfter(stage=2, method="repeat", arguments={"count": 2})],
        lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).repeat(2).filter(lambda a, b: a > 2).batch(4),
    ),
    "remove": ([Remove(stage=3)], lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).batch(4)),
    "remove the sink": ([Remove(stage=4)], lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).filter(lambda a, b: a > 2)),
    "batch before map": (
        [Remove(stage=3), MoveBefore(stage=4, other=1)],
        lambda d: d.batch(4).map(lambda x: (x * 2, x * 2 + 1)),
    ),
    "batch before two maps, one after another": (
        [Remove(stage=3), MoveBefore(stage=4, other=2), MoveBefore(stage=4, other=1)],
        lambda d: d.batch(4).map(lambda x: (x * 2, x * 2 + 1)),
    ),
    "fuse, then parallel under the name of the first": (
        [Fuse(stages=(1, 2)), SetArgument(stage=1, argument="num_parallel_calls", value=AUTOTUNE)],
        lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).filter(lambda a, b: a > 2).batch(4),
    ),
}


def test_a_class_that_reads_the_files_of_a_dataset_moves_in_front_of_their_repeat(tmp_path: Path) -> None:
    import tensorflow as tf

    (tmp_path / "lines").write_text("one\ntwo\n")
    files = tf.data.Dataset.from_tensor_slices([str(tmp_path / "lines")])
    recipe = recipe_of(lambda: tf.data.TextLineDataset(files.repeat(2)))
    read, repeat = (each.id for each in reversed(recipe.stages[-2:]))
    made = rebuilt(recipe, [MoveBefore(stage=read, other=repeat), InsertAfter(stage=read, method="cache")], tmp_path)
    assert values(made) == [b"one", b"two"] * 2


@pytest.mark.parametrize(("edits", "hand"), CHAIN_EDITS.values(), ids=CHAIN_EDITS)
def test_an_edit_gives_what_one_would_write_by_hand(
    edits: list[Edit], hand: Callable[[Any], Any], tmp_path: Path
) -> None:
    assert values(rebuilt(recipe_of(chain), edits, tmp_path)) == by_hand(hand)


def test_a_fused_map_is_one_op_with_the_arguments_of_each(tmp_path: Path) -> None:
    import tensorflow as tf

    def listed(x: Any) -> Any:
        return [x, x]  # a list becomes a tuple

    def branched(x: Any, y: Any) -> Any:
        if x > 2:  # AutoGraph converts a function that is called by another
            x = x * 10
        return {"x": x, "y": tf.rank(y)}

    two = {"num_parallel_calls": 2}
    recipe = recipe_of(lambda: tf.data.Dataset.range(5).map(listed, **two).map(branched, **two))
    fused = rebuilt(recipe, [Fuse(stages=(1, 2))], tmp_path)
    assert type(fused).__name__ == "_ParallelMapDataset"
    assert fused._input_dataset is recipe.dataset(0)
    assert values(fused) == values(recipe.dataset(2))


@pytest.mark.parametrize("part", [3, [1, 2], np.arange(2)], ids=["number", "list", "array"])
def test_maps_are_not_fused_where_what_is_no_tensor_yet_would_pass_between_their_functions(
    part: Any, tmp_path: Path
) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(5).map(lambda x: (x, part)).map(lambda x, y: (x, y * 2)))
    with pytest.raises(PipelineBenchError, match="which is a tensor only behind a map"):
        rebuilt(recipe, [Fuse(stages=(1, 2))], tmp_path)


def test_inserted_calls_stand_in_the_order_of_the_edits(tmp_path: Path) -> None:
    edits: list[Edit] = [
        InsertAfter(stage=4, method="cache"),
        InsertAfter(stage=4, method="prefetch", arguments={"buffer_size": AUTOTUNE}),
    ]
    made = rebuild.rebuild(recipe_of(chain), edits, tmp_path)
    assert type(made.dataset).__name__ == "_PrefetchDataset"
    assert made.dataset._input_dataset is made.caches[0]
    assert values(made.dataset) == values(chain())


@pytest.mark.parametrize("draws", [False, True])
def test_one_seed_repeats_what_parallel_calls_draw_but_not_what_python_draws_beside_them(
    draws: bool, tmp_path: Path
) -> None:
    import tensorflow as tf

    generator = np.random.default_rng()

    def load(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(lambda x: x + draws * generator.integers(99), [x], tf.int64), [])

    def draw(x: Any) -> Any:
        return tf.cast(x, tf.float64) + tf.random.uniform([], dtype=tf.float64)

    recipe = recipe_of(lambda: tf.data.Dataset.range(64).map(load).map(draw, 4))
    found = fingerprint.of(lambda seed: rebuild.subsampled(recipe, (), tmp_path, seed), recipe.stages, 20.0)
    (component,) = found.components
    assert (component.random, component.kept_state) == (True, draws)


def test_a_cache_on_disk_lies_under_the_scratch_folder_and_can_be_kept_small(tmp_path: Path) -> None:
    edits: list[Edit] = [InsertAfter(stage=2, method="cache", arguments={"filename": "disk"})]
    made = rebuild.rebuild(recipe_of(chain), edits, tmp_path, cached_elements=3)
    assert values(made.dataset.take(2)) == by_hand(
        lambda d: d.map(lambda x: (x * 2, x * 2 + 1)).take(3).repeat(9).filter(lambda a, b: a > 2).batch(4).take(2)
    )
    assert values(made.caches[0]) == [(0, 1), (2, 3), (4, 5)]
    assert list(tmp_path.glob("cache-*/data*"))


def test_the_users_own_cache_files_are_never_touched(tmp_path: Path) -> None:
    import tensorflow as tf

    theirs, scratch = tmp_path / "theirs", tmp_path / "scratch"
    theirs.mkdir()

    def within(x: Any) -> Any:
        return tf.data.Dataset.from_tensors(x).cache(str(theirs / "inner"))

    recipe = recipe_of(
        lambda: (
            tf.data.Dataset.range(4)
            .cache(str(theirs / "cache"))
            .map(lambda x: x + 1)
            .flat_map(within)
            .snapshot(str(theirs / "snapshot"))
            .batch(2)
        )
    )
    assert recipe.notes == (OWN_FILE_NOTE,)
    for made in (rebuilt(recipe, (), scratch), rebuild.subsampled(recipe, (), scratch, seed=1)):
        assert values(made) == [[1, 2], [3, 4]]
    first = recipe.stages[0].id
    values(rebuild.stage(recipe, recipe.stages[1].id, [recipe.dataset(first)], scratch))
    assert not list(theirs.iterdir())
    assert list(scratch.glob("cache-*/data*"))


SIGNATURES: dict[str, tuple[Any, Callable[[Any], dict[str, Any]]]] = {
    "a signature": (
        lambda: iter([(n, {"t": f"é{n}", "v": [n, n]}) for n in range(5)]),
        lambda tf: {
            "output_signature": (
                tf.TensorSpec([], tf.int32),
                {"t": tf.TensorSpec([], tf.string), "v": tf.TensorSpec([2], tf.float32)},
            )
        },
    ),
    "types and shapes": (
        lambda: [(n, [n] * 3) for n in range(5)],
        lambda tf: {"output_types": (tf.int64, tf.float32), "output_shapes": ([], [None])},
    ),
    "types alone": (lambda: range(5), lambda tf: {"output_types": tf.int64}),
}


@pytest.mark.parametrize("drop", [False, True], ids=["rest", "no rest"])
@pytest.mark.parametrize(("generator", "given"), SIGNATURES.values(), ids=SIGNATURES)
def test_a_generator_gathers_batches(
    generator: Any, given: Callable[[Any], dict[str, Any]], drop: bool, tmp_path: Path
) -> None:
    import tensorflow as tf

    recipe = recipe_of(
        lambda: tf.data.Dataset.from_generator(generator, **given(tf)).batch(2, drop_remainder=drop).prefetch(1)
    )
    first, batch, _ = (stage.id for stage in recipe.stages)
    assert_alike(recipe, [BatchInGenerator(generator=first, batch=batch)], tmp_path)


@pytest.mark.parametrize("drop", [False, True])
def test_rows_are_gathered_in_the_order_of_the_slices(drop: bool, tmp_path: Path) -> None:
    import tensorflow as tf

    pictures, labels = np.arange(40, dtype=np.float32).reshape(10, 4), [str(n) for n in range(10)]

    def scale(element: Any) -> Any:
        return {**element, "x": element["x"] / 2}

    recipe = recipe_of(
        lambda: (
            tf.data.Dataset.from_tensor_slices({"x": pictures, "y": (labels, labels)})
            .shuffle(7, seed=3)
            .map(scale)
            .repeat(2)
            .batch(3, drop_remainder=drop)
        )
    )
    source, _, scaled, repeat, batch = (stage.id for stage in recipe.stages)
    with pytest.raises(PipelineBenchError, match="stands between"):
        rebuilt(recipe, [GatherBatches(source=source, batch=batch)], tmp_path)
    moved = [MoveBefore(stage=each, other=scaled) for each in (repeat, batch)]
    assert_alike(recipe, [*moved, GatherBatches(source=source, batch=batch)], tmp_path)


def test_what_is_no_array_is_not_gathered(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).batch(1))
    with pytest.raises(PipelineBenchError, match="no array"):
        rebuilt(recipe, [GatherBatches(source=0, batch=1)], tmp_path)


def test_a_flat_map_becomes_an_interleave(tmp_path: Path) -> None:
    import tensorflow as tf

    def twice(x: Any) -> Any:
        return tf.data.Dataset.from_tensors(x).repeat(2)

    recipe = recipe_of(lambda: tf.data.Dataset.range(3).flat_map(twice))
    edit = Interleave(stage=recipe.sink, cycle_length=3)
    assert values(rebuilt(recipe, [edit], tmp_path)) == [0, 1, 2, 0, 1, 2]


def test_an_argument_of_a_call_within_a_function_can_be_set(tmp_path: Path) -> None:
    import tensorflow as tf

    def nested(x: Any) -> Any:
        return tf.data.Dataset.range(4).flat_map(lambda y: tf.data.Dataset.from_tensors(x + y).repeat(1)).take(3)

    recipe = recipe_of(lambda: tf.data.Dataset.range(2).flat_map(nested))
    inner = {each.method: each for each in recipe.stages[1].inner}
    deepest = next(each for each in inner["flat_map"].inner if each.method == "repeat")
    edits: list[Edit] = [
        SetArgument(stage=inner["take"].id, argument="count", value=4),
        SetArgument(stage=deepest.id, argument="count", value=2),
    ]
    assert values(rebuilt(recipe, edits, tmp_path)) == [0, 0, 1, 1, 1, 1, 2, 2]


def test_options_come_at_the_end(tmp_path: Path) -> None:
    options = {"deterministic": False, "threading.private_threadpool_size": 3}
    edits: list[Edit] = [
        SetOptions(options=options),
        InsertAfter(stage=4, method="prefetch", arguments={"buffer_size": 1}),
    ]
    changed = rebuilt(recipe_of(chain), edits, tmp_path)
    assert changed.options().deterministic is False
    assert changed.options().threading.private_threadpool_size == 3
    assert type(changed._input_dataset).__name__ == "_PrefetchDataset"


def test_rows_of_data_are_not_searched_for_datasets_and_pairs_with_some_are() -> None:
    """A table of 100,000 rows was copied at each look at the inputs of its stage."""
    import tensorflow as tf

    rows = [[1.0, (2, "a")] for _ in range(100)]
    assert public_api.replaced((rows,), tf.data.Dataset, lambda _: None)[0] is rows
    data = tf.data.Dataset.range(3)
    assert public_api.datasets([("a", data) for _ in range(100)]) == [data] * 100


def test_inputs_in_tuples_lists_and_dicts_are_replaced(tmp_path: Path) -> None:
    recipe = recorded.recipe("make_sources")
    repeat = id_of(recipe, "repeat")
    changed = rebuilt(recipe, [SetArgument(stage=repeat, argument="count", value=1)], tmp_path)
    taken = [value for value, _ in values(changed)]
    assert (taken.count(1), taken.count(2)) == (3, 2)


def test_apply_runs_the_users_function_again(tmp_path: Path) -> None:
    recipe = recorded.recipe("make_dataset")
    take_out = Remove(stage=id_of(recipe, "shuffle"))
    changed = rebuilt(recipe, [take_out], tmp_path)
    assert next(iter(changed))["label"].numpy().tolist() == list(range(8))


def test_one_stage_on_other_inputs(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(chain)
    other = tf.data.Dataset.from_tensors(tf.constant(21, tf.int64)).repeat(2)
    assert values(rebuild.stage(recipe, 1, [other], tmp_path)) == [42, 42]
    assert values(rebuild.stage(recipe, 0, [], tmp_path)) == list(range(10))
    with pytest.raises(PipelineBenchError, match="has 1 inputs, not 2"):
        rebuild.stage(recipe, 1, [other, other], tmp_path)


REFUSED: dict[str, tuple[list[Edit], str]] = {
    "no such stage": ([Remove(stage=99)], "no stage 99"),
    "no such argument": ([SetArgument(stage=1, argument="colour", value=1)], "map has no argument 'colour'"),
    "a source": ([Remove(stage=0)], "range has 0 inputs"),
    "not upstream": ([MoveBefore(stage=1, other=3)], "range has 0 inputs"),
    "no maps": ([Fuse(stages=(2, 3))], "only maps"),
    "not in a row": (
        [InsertAfter(stage=1, method="cache"), Fuse(stages=(1, 2))],
        r"map\(pair\) does not stand right behind",
    ),
    "a function that takes no batch": (
        [MoveBefore(stage=4, other=3)],
        r"filter\(<lambda>\) cannot be made with this change: ",
    ),
    "no such option": ([SetOptions(options={"threading.colour": 1})], "no option threading.colour"),
    "no flat_map": ([Interleave(stage=1, cycle_length=2)], "is no flat_map"),
}


@pytest.mark.parametrize(("edits", "words"), REFUSED.values(), ids=REFUSED)
def test_an_edit_that_does_not_fit_is_refused_in_words(edits: list[Edit], words: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineBenchError, match=words):
        rebuilt(recipe_of(chain), edits, tmp_path)


def test_prefetching_to_a_device_needs_one(tmp_path: Path) -> None:
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    with pytest.raises(PipelineBenchError, match="there is no GPU"):
        rebuilt(recipe_of(chain), [PrefetchToDevice()], tmp_path)


def test_a_ragged_generator_gathers_no_batches(tmp_path: Path) -> None:
    import tensorflow as tf

    ragged = tf.RaggedTensorSpec([2, None], tf.int32)
    recipe = recipe_of(
        lambda: tf.data.Dataset.from_generator(
            lambda: [tf.ragged.constant([[1], [2, 3]])], output_signature=ragged
        ).batch(1)
    )
    with pytest.raises(PipelineBenchError, match="RaggedTensors cannot be batched"):
        rebuilt(recipe, [BatchInGenerator(generator=0, batch=1)], tmp_path)


def test_no_shuffle_holds_more_than_is_asked_for_and_those_that_hold_less_stay_as_written(tmp_path: Path) -> None:
    import tensorflow as tf

    recipe = recipe_of(lambda: tf.data.Dataset.range(500).shuffle(400).shuffle(2))
    made = rebuild.rebuild(recipe, (), tmp_path, ahead_elements=8).dataset
    came = values(made)
    assert sorted(came) == list(range(500))
    assert max(number - at for at, number in enumerate(came)) <= 8
    assert rebuild.rebuild(recipe, (), tmp_path, ahead_elements=400).dataset is recipe.dataset(recipe.sink)


def test_a_skip_leaves_out_no_more_than_is_asked_for_and_gives_as_many_elements_as_before(tmp_path: Path) -> None:
    import tensorflow as tf

    def shifted(number: Any) -> Any:
        return number + 1

    def made(ahead: int, *edits: Edit) -> Any:
        return values(rebuild.rebuild(recipe, edits, tmp_path, ahead_elements=ahead).dataset)

    recipe = recipe_of(lambda: tf.data.Dataset.range(100).map(shifted).skip(90))
    assert made(4) == list(range(5, 15))
    assert made(4, MoveBefore(stage=2, other=1)) == list(range(5, 15))
    assert made(90) == list(range(91, 101))
    header = recipe_of(lambda: tf.data.Dataset.range(100).filter(lambda number: number < 50).skip(10).skip(-1))
    assert values(rebuild.rebuild(header, (), tmp_path, ahead_elements=4).dataset) == []


def test_a_shuffle_within_a_users_function_holds_no_more_than_is_asked_for_either(tmp_path: Path) -> None:
    import tensorflow as tf

    def opened(number: Any) -> Any:
        return tf.data.Dataset.range(number, number + 300).shuffle(250)

    recipe = recipe_of(lambda: tf.data.Dataset.range(0, 900, 300).flat_map(opened))
    came = values(rebuild.rebuild(recipe, (), tmp_path, ahead_elements=8).dataset)
    assert sorted(came) == list(range(900))
    assert max(number - at for at, number in enumerate(came)) <= 8


def test_what_a_map_draws_in_python_while_it_is_traced_follows_from_the_seed(tmp_path: Path) -> None:
    import tensorflow as tf

    def drawing(number: Any) -> Any:
        return number + np.random.randint(10**9) + random.randint(0, 10**9)

    recipe = recipe_of(lambda: tf.data.Dataset.range(3).map(drawing))
    first, again, other = (values(rebuild.subsampled(recipe, (), tmp_path, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
