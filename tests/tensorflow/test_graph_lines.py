"""The costliest line of a map in the graph, which has no Python to follow."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from pipeline_bench.inspection import graph_lines, python_stages
from pipeline_bench.model.pipeline import Inspection
from tests.tensorflow import recorded
from tests.unit.diagnosis.simulated import cost, inspection

CODE = """
    import tensorflow as tf

    @tf.function
    def squared(x):
        return tf.linalg.matmul(x, x)

    def multiplies(x):
        for _ in range(16):
            x = squared(x) / 500.0
        return x

    def load(number):
        picture = tf.io.decode_jpeg(PICTURE, channels=3)
        crop = tf.image.random_crop(picture, [4, 4, 3])
        rest = multiplies(tf.ones([500, 500]) * tf.cast(number, tf.float32))
        return crop, rest

    @tf.function
    def cropped(number):
        picture = tf.io.decode_jpeg(PICTURE, channels=3)
        return tf.image.random_crop(picture, [4, 4, 3])

    def load_within(number):
        crop = cropped(number)
        rest = multiplies(tf.ones([500, 500]) * tf.cast(number, tf.float32))
        return crop, rest

    def changes(sample):
        sample["x"] = multiplies(sample["x"])[:2, :2]
        sample["x"] = sample["x"] + 1.0
        return sample["x"]

    def endless(number):
        while number >= 0:
            number = number + 1
        return number

    def picks(number):
        row = tf.gather(LARGE, [number % 2])[0]
        part = row[:10]
        return part + 1.0

    def loops(number):
        x = tf.ones([300]) * tf.cast(number, tf.float32)
        for _ in tf.range(30):
            wide = [300, 300]
            x = tf.math.lgamma(tf.fill(wide, x[0]))[0] if x[0] > 0.5 else tf.math.lgamma(tf.fill(wide, 0.5 - x[0]))[0]
        return x

    def loops_over_rows(number):
        rows = tf.random.uniform([100, 10])
        rows = tf.map_fn(lambda row: row * 2.0, rows)
        return tf.linalg.matmul(tf.ones([100, 100]), rows)

    def augments(number):
        picture = tf.ones([60, 60, 1]) * tf.cast(number, tf.float32)
        picture = AUGMENTING(picture)
        return picture[:5] + 1.0

    def short(number):
        return number + 1

    @tf.function
    def noise(number):
        return tf.random.uniform([500, 500]) + tf.cast(number, tf.float32)

    def draws(number):
        fixed = multiplies(tf.ones([500, 500]) * tf.cast(number, tf.float32))
        mixed = multiplies(noise(number))
        return fixed, mixed

    LARGE = tf.ones([2, 1_000_000])
    AUGMENTING = tf.keras.Sequential([tf.keras.layers.RandomFlip(), tf.keras.layers.RandomRotation(0.1)])
    PICTURE = tf.io.encode_jpeg(tf.zeros([8, 8, 3], tf.uint8))
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    file = tmp_path_factory.mktemp("code") / "code_of_maps.py"
    file.write_text(textwrap.dedent(CODE))
    return recorded.module(file)


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes longest is to read what the profiler wrote of each op."""
    monkeypatch.setattr(graph_lines, "_LONGEST_S", 0.15)


def looked_into(code: ModuleType, name: str, folder: Path, *, each_ms: float, seconds: float = 3.0) -> list[Inspection]:
    import tensorflow as tf

    recipe = recorded.recipe_of(lambda: tf.data.Dataset.range(9).shuffle(9).map(getattr(code, name)))
    looked = inspection(recipe.stages, (cost(0, 0.0), cost(1, 0.0), cost(2, each_ms)))
    return list(python_stages.of_tf_data(recipe, looked, folder, seconds, lambda: None))


def test_the_costliest_line_is_found_in_what_a_map_calls_in_loops_and_functions_of_its_graph_too(
    code: ModuleType, tmp_path: Path
) -> None:
    (found,) = looked_into(code, "load", tmp_path, each_ms=50.0)
    function = recorded.function_of(found.stage(2))
    assert function.costliest.startswith("line 6 of "), "the product, in a function of TensorFlow's that a loop calls"
    assert (function.costliest_share or 0.0) > 0.5
    assert function.crops_decoded
    assert function.decoding_share is not None
    assert function.decoding_share < 0.3


def test_what_decodes_in_a_function_of_the_graph_is_weighed_too(code: ModuleType, tmp_path: Path) -> None:
    (found,) = looked_into(code, "load_within", tmp_path, each_ms=50.0)
    function = recorded.function_of(found.stage(2))
    assert function.crops_decoded
    assert function.decoding_share is not None
    assert function.decoding_share < 0.3


def test_the_costliest_line_may_take_a_part_of_a_dict(code: ModuleType, tmp_path: Path) -> None:
    import tensorflow as tf

    ones = tf.ones([500, 500])
    recipe = recorded.recipe_of(lambda: tf.data.Dataset.range(9).map(lambda _: {"x": ones}).map(code.changes))
    looked = inspection(recipe.stages, (cost(0, 0.0), cost(1, 0.0), cost(2, 50.0)))
    (found,) = python_stages.of_tf_data(recipe, looked, tmp_path, 3.0, lambda: None)
    function = recorded.function_of(found.stage(2))
    assert function.costliest.startswith("line 6 of ")


def test_a_function_that_takes_too_long_is_given_up(code: ModuleType, tmp_path: Path) -> None:
    assert looked_into(code, "endless", tmp_path, each_ms=5.0, seconds=0.3) == []


def test_no_line_is_named_of_a_map_with_a_single_line(code: ModuleType, tmp_path: Path) -> None:
    found = looked_into(code, "short", tmp_path, each_ms=5.0)
    assert [each for each in found if each.notes] == []


@pytest.mark.parametrize(
    ("name", "line", "op"),
    [
        ("picks", 1, "GatherV2"),
        ("loops", 4, "Lgamma"),
        ("loops_over_rows", 2, ""),
        ("augments", 2, ""),
    ],
)
def test_the_line_is_that_which_made_the_costliest_ops(
    name: str, line: int, op: str, code: ModuleType, tmp_path: Path
) -> None:
    """Of much data that is copied for a little of it, in a loop of AutoGraph's, of many cheap ops, in Keras' layers."""
    (found,) = looked_into(code, name, tmp_path, each_ms=0.2)
    function = recorded.function_of(found.stage(2))
    assert function.costliest.startswith(f"line {getattr(code, name).__code__.co_firstlineno + line} of ")
    assert (function.costliest_share or 0.0) > 0.5
    assert (f" ({op}): " in found.notes[-1]) == bool(op)


def test_what_depends_on_no_draw_has_its_share(code: ModuleType, tmp_path: Path) -> None:
    """Two rows of products that take as long, one of them of what a function of TensorFlow's draws."""
    shares = {}
    for name in ("draws", "picks"):
        (found,) = looked_into(code, name, tmp_path / name, each_ms=50.0)
        function = recorded.function_of(found.stage(2))
        shares[name] = function.fixed_share
    assert shares["picks"] is None
    assert shares["draws"] is not None
    assert 0.3 < shares["draws"] < 0.7


def test_a_profiler_that_is_on_already_is_left_alone(code: ModuleType, tmp_path: Path) -> None:
    import tensorflow as tf

    tf.profiler.experimental.start(str(tmp_path / "own"))
    try:
        assert looked_into(code, "picks", tmp_path, each_ms=0.2) == []
    finally:
        tf.profiler.experimental.stop()
    assert list((tmp_path / "own").rglob("*.xplane.pb"))
