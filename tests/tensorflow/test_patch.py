"""The code that a diagnosis writes, held against the TensorFlow that is installed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.diagnosis.fixes import Context, order
from pipeline_bench.diagnosis.patching.patch import change
from pipeline_bench.model.calls import PARAMETERS
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import (
    Edit,
    GatherBatches,
    GatherWindows,
    InsertAfter,
    KeepSamples,
    MoveBefore,
    Remove,
    SetArgument,
    SetOptions,
)
from pipeline_bench.model.function_edits import DivideMap, ParseBatch, Vectorize
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.tfdata import composing, describe, rebuild, splitting
from pipeline_bench.tfdata.recipe import Recipe
from tests.tensorflow import recorded
from tests.unit.diagnosis.recorded import patched


@pytest.mark.parametrize("method", PARAMETERS)
def test_arguments_by_position_are_counted_as_tensorflow_does(method: str) -> None:
    import keras
    import tensorflow as tf

    places = (keras.utils.PyDataset,) if method == "__init__" else (tf.data, tf.data.Dataset)
    own = next(getattr(each, method) for each in places if hasattr(each, method))
    parameters = [name for name in inspect.signature(own).parameters if name != "self"]
    assert tuple(parameters[: len(PARAMETERS[method])]) == PARAMETERS[method]


def test_options_are_set_by_names_that_tensorflow_has() -> None:
    import tensorflow as tf

    edit = SetOptions(options={"threading.private_threadpool_size": 2, "deterministic": False})
    space: dict[str, Any] = {"tf": tf}
    exec("\n".join(edit.lines("options")), space)
    assert space["options"].threading.private_threadpool_size == 2
    assert space["options"].deterministic is False


def patched_alike(file: Path, recipe: Recipe, edits: tuple[Edit, ...]) -> Path:
    """Return the file that a patch with the edits makes of one; its pipeline gives the same, in a trial as well."""
    as_written = recorded.values(recorded.call("make_dataset", file=file))
    assert recorded.values(rebuild.rebuild(recipe, edits, file.parent).dataset) == as_written
    source, fix = file.read_text(), Fix(kind="k", variant="v", title="t", edits=edits)
    code = change({str(file): source}, Inspection(stages=recipe.stages, sink=recipe.sink), fix)
    assert code.diff is not None
    changed = file.with_stem(f"changed_by_{len(edits)}")  # a file: AutoGraph reads the source
    changed.write_text(patched(source, code.diff))
    assert recorded.values(recorded.call("make_dataset", file=changed)) == as_written
    return changed


WINDOWS = """\
import numpy as np
import tensorflow as tf

series = np.arange(53, dtype=np.float32).reshape(53, 1)
W = 5


def make_dataset():
    ds = tf.data.Dataset.from_tensor_slices(series)
    ds = ds.window({})
    ds = ds.flat_map(lambda w: w.batch({}))
    ds = ds.shuffle(20, seed=3)
    return ds.batch(4)
"""


@pytest.mark.parametrize(
    ("window", "row"),
    [
        ("size=4, shift=3, stride=2, drop_remainder=True", "4"),
        ("W, shift=2, stride=3", "W, drop_remainder=True"),
        ("60, 1, drop_remainder=True", "60"),  # none is full
    ],
)
def test_gathered_windows_are_the_same_in_a_trial_and_as_it_is_written(window: str, row: str, tmp_path: Path) -> None:
    file = tmp_path / "windows.py"
    file.write_text(WINDOWS.format(window, row))
    recipe = recorded.recipe("make_dataset", file=file)
    slices, cut, flat, shuffle, batch = (stage.id for stage in recipe.stages)
    gather = GatherWindows(source=slices, window=cut, flat_map=flat)
    patched_alike(file, recipe, (gather,))
    if "size" in window:
        moved = [MoveBefore(stage=each, other=flat) for each in (shuffle, batch)]
        patched_alike(file, recipe, (*moved, gather))


VECTORIZED = """\
import tensorflow as tf


def make_dataset():
    ds = tf.data.Dataset.range(10).batch(4)
    return ds.map(lambda n: (n + 1, {"twice": 2 * n}))
"""


def test_samples_that_are_kept_are_the_same_in_a_trial_and_as_it_is_written(tmp_path: Path) -> None:
    """A shuffle with a buffer of one leaves the order."""
    file = tmp_path / "vectorized.py"
    file.write_text(VECTORIZED)
    recipe = recorded.recipe("make_dataset", file=file)
    changed = patched_alike(file, recipe, (KeepSamples(stage=recipe.sink, batch_size=4, buffer_size=1),))
    assert "})).unbatch().cache().shuffle(1).batch(4)\n" in changed.read_text()


def test_kept_samples_are_repeated_behind_their_cache_and_a_rest_is_dropped_there(tmp_path: Path) -> None:
    """Of ten numbers, twice and in eights, the last four are dropped, which are kept."""
    file = tmp_path / "vectorized.py"
    file.write_text(VECTORIZED.replace(".batch(4)", ".repeat(2).batch(8, drop_remainder=True)"))
    recipe = recorded.recipe("make_dataset", file=file)
    repeat, batch = (each.id for each in recipe.stages if each.method in ("repeat", "batch"))
    keep = KeepSamples(stage=recipe.sink, batch_size=8, buffer_size=1, passes=2, drop_remainder=True)
    whole = SetArgument(stage=batch, argument="drop_remainder", value=False)
    text = patched_alike(file, recipe, (Remove(stage=repeat), whole, keep)).read_text()
    assert "range(10).batch(8, drop_remainder=False)\n" in text
    assert "})).unbatch().cache().shuffle(1).repeat(2).batch(8, drop_remainder=True)\n" in text


EXAMPLES = """\
import tensorflow as tf

def example(n):
    feature = {"n": tf.train.Feature(int64_list=tf.train.Int64List(value=[n]))}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

KEYS = {"n": tf.io.FixedLenFeature([], tf.int64)}

def parse(record):
    # of one example
    return tf.io.parse_single_example(record, KEYS)["n"] + 1

def make_dataset():
    records = tf.data.Dataset.from_tensor_slices([example(n) for n in range(9)])
    return records.map(FUNCTION).batch(4)
"""
USED_TWICE = "\nvalidation = tf.data.Dataset.from_tensors(example(1)).map(parse)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (EXAMPLES + USED_TWICE, "return tf.io.parse_example(record, KEYS)"),
        (EXAMPLES.replace("def parse", "@tf.function\ndef parse"), "return tf.io.parse_example(record, KEYS)"),
        (
            EXAMPLES.replace("FUNCTION", 'lambda one: tf.io.parse_single_example(one, KEYS)["n"]'),
            'records.batch(4).map(lambda one: tf.io.parse_example(one, KEYS)["n"])',
        ),
    ],
    ids=["two uses", "decorated", "a lambda"],
)
def test_examples_are_parsed_by_whole_batches_in_a_trial_and_as_it_is_written(
    source: str, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "examples.py"
    file.write_text(source.replace("FUNCTION", "parse"))
    recipe = recorded.recipe("make_dataset", file=file)
    _, parse, batch = recipe.stages
    assert recorded.function_of(parse).parses_examples
    edits = (MoveBefore(stage=batch.id, other=parse.id), ParseBatch(stage=parse.id))
    new = patched_alike(file, recipe, edits).read_text()
    assert expected in new
    space: dict[str, Any] = {}
    exec(new, space)
    if "validation" in space:
        assert recorded.values(space["validation"]) == [2]


@pytest.mark.parametrize(
    ("parsed", "parses_batches"),
    [('tf.io.parse_single_example(record, KEYS)["n"]', False), ("tf.strings.length(record)", True)],
    ids=["both parse", "one parses"],
)
def test_a_parser_of_batches_is_tried_where_one_function_alone_parses(
    parsed: str, parses_batches: bool, tmp_path: Path
) -> None:
    """The code that is written changes the map's own function: what that calls would be given a batch."""
    source = EXAMPLES.replace("FUNCTION", "parse").replace('["n"] + 1', '["n"], size(record)')
    source = "\n" * parses_batches + source  # AutoGraph takes equal functions on equal lines for one, of whichever file
    (tmp_path / "examples.py").write_text(f"{source}\ndef size(record):\n    return {parsed}\n")
    recipe = recorded.recipe("make_dataset", file=tmp_path / "examples.py")
    parse = recorded.function_of(composing.with_batches(recipe, recipe.stages)[1])
    assert (parse.on_batches == "parse-example") == parses_batches, parse.on_batches


PARSING = """\
import tensorflow as tf

KEYS = {"n": tf.io.FixedLenFeature([], tf.int64)}


def parse(record):
    n = tf.io.parse_single_example(record, KEYS)["n"]
    return n + 1


def example(n):
    feature = {"n": tf.train.Feature(int64_list=tf.train.Int64List(value=[n]))}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
"""
PARSED_ELSEWHERE = """\
import tensorflow as tf
from parsing_of_records import example
IMPORT


def make_dataset():
    records = tf.data.Dataset.from_tensor_slices([example(n) for n in range(9)])
    records = records.shuffle(9, seed=3)
    return records.map(FUNCTION).batch(4)
"""


def patched_in_two_files(folder: Path, recipe: Recipe, edits: tuple[Edit, ...]) -> tuple[str, str]:
    """Return the texts that git makes by a diff with the edits, of the module and of the file that imports it.

    The pipeline gives the same as before, in a trial as well.
    """
    module, file = folder / "parsing_of_records.py", folder / "train.py"
    as_written = recorded.values(recorded.call("make_dataset", file=file))
    assert recorded.values(rebuild.rebuild(recipe, edits, folder).dataset) == as_written
    texts = {str(each): each.read_text() for each in (module, file)}
    names = {name: (str(folder), Path(name).name) for name in texts}
    fix = Fix(kind="k", variant="v", title="t", edits=edits)
    code = change(texts, Inspection(stages=recipe.stages, sink=recipe.sink), fix, names)
    assert (code.root, code.text) == (str(folder), "")
    (folder / "fix.patch").write_text(code.diff or "")
    subprocess.run(["git", "apply", "fix.patch"], cwd=folder, check=True)
    sys.modules.pop("parsing_of_records", None)
    assert recorded.values(recorded.call("make_dataset", file=file)) == as_written
    return module.read_text(), file.read_text()


def recipe_of_two_files(folder: Path, monkeypatch: pytest.MonkeyPatch, imported: str, given: str) -> Recipe:
    """Return the recipe of `PARSED_ELSEWHERE`, with this import and this function, beside the module."""
    sys.modules.pop("parsing_of_records", None)  # of another test
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the changed module may be as long, and of the same second
    (folder / "parsing_of_records.py").write_text(PARSING)
    (folder / "train.py").write_text(PARSED_ELSEWHERE.replace("IMPORT", imported).replace("FUNCTION", given))
    return recorded.recipe("make_dataset", file=folder / "train.py")


def test_a_parser_in_another_file_is_changed_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = "records_of.parse"
    recipe = recipe_of_two_files(tmp_path, monkeypatch, "import parsing_of_records as records_of", given)
    parse, batch = (stage.id for stage in recipe.stages[-2:])
    module, train = patched_in_two_files(
        tmp_path, recipe, (MoveBefore(stage=batch, other=parse), ParseBatch(stage=parse))
    )
    assert module == PARSING.replace("parse_single_example", "parse_example")
    assert f".batch(4).map({given})\n" in train


def test_a_function_of_another_file_is_divided_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = "from parsing_of_records import parse as parse_one"
    recipe = recipe_of_two_files(tmp_path, monkeypatch, imported, "parse_one")
    source, _, parse, _ = (stage.id for stage in recipe.stages)
    edits = (DivideMap(stage=parse, after=source, statements=1), InsertAfter(stage=source, method="cache"))
    module, train = patched_in_two_files(tmp_path, recipe, edits)
    halves = """

def parse_fixed(record):
    n = tf.io.parse_single_example(record, KEYS)["n"]
    return n


def parse_random(n):
    return n + 1
"""
    assert module == PARSING.replace("    return n + 1\n", f"    return n + 1\n{halves}")
    assert f"{imported}\nfrom parsing_of_records import parse_fixed, parse_random\n\n" in train
    assert ".map(parse_fixed, num_parallel_calls=tf.data.AUTOTUNE).cache()\n" in train
    assert ".shuffle(9, seed=3)\n    return records.map(parse_random).batch(4)\n" in train


FLAGGED = """
import tensorflow as tf

def load(value, training):
    value = value * 2
    if training:
        value += tf.random.uniform([], 0, 9, tf.int64)
    return value

def make(count, training):
    ds = tf.data.Dataset.range(count)
    ds = ds.map(lambda value: load(value, training))
    return ds.batch(2)

def make_dataset():
    made = make(8, True)
    validation()
    return made

def validation():
    return make(4, False)
"""


def test_a_line_that_makes_the_validation_data_without_draws_is_changed_so_that_these_stay_the_same(
    tmp_path: Path,
) -> None:
    file = tmp_path / "flagged.py"
    file.write_text(FLAGGED)
    recipe = recorded.recipe("make_dataset", file=file)
    (source, mapped, batch) = splitting.with_splits(recipe)
    assert (source.shared, mapped.shared, batch.shared) == ("alike", "varying", "alike")
    assert recorded.function_of(mapped).fixed_statements == 1
    edits = (
        DivideMap(stage=mapped.id, after=source.id, statements=1),
        InsertAfter(stage=source.id, method="cache"),
        SetArgument(stage=mapped.id, argument="num_parallel_calls", value=2),
    )
    looked = Inspection(stages=(source, mapped, batch), sink=batch.id)
    code = change({str(file): FLAGGED}, looked, Fix(kind="k", variant="v", title="t", edits=edits))
    assert code.diff is not None, code.text
    changed = file.with_stem("changed")  # a file: AutoGraph reads the source
    changed.write_text(patched(FLAGGED, code.diff))
    made = recorded.call("validation", file=changed)
    assert recorded.values(made) == recorded.values(made) == [[0, 2], [4, 6]]
    trained = recorded.values(recorded.call("make_dataset", file=changed))
    assert trained != [[0, 2], [4, 6], [8, 10], [12, 14]]
    frozen = InsertAfter(stage=mapped.id, method="cache")
    code = change({str(file): FLAGGED}, looked, Fix(kind="k", variant="v", title="t", edits=(frozen,)))
    assert code.diff is None


WORDS = """
import tensorflow as tf

def split(line):
    return tf.strings.split(line)

def make_dataset():
    lines = tf.data.Dataset.from_tensor_slices(["a b c", "d", "", "e f", "g h i j", "k"]).filter(lambda line: True)
    return lines.map(split).ragged_batch(4)
"""


def test_a_function_whose_samples_are_put_into_ragged_batches_takes_a_batch_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(WORDS)
    recipe = recorded.recipe("make_dataset", file=file)
    stages = composing.with_batches(recipe, recipe.stages)
    (of_map,) = (stage for stage in stages if stage.method == "map")
    assert recorded.function_of(of_map).on_batches == "as-is"
    inspected = Inspection(stages=stages, sink=recipe.sink)
    batched = next(iter(order.batch_before_map(inspected, Context(cores=2))))
    moved = rebuild.rebuild(recipe, batched.edits, tmp_path).dataset
    as_written = recorded.call("make_dataset", file=file)
    assert moved.element_spec == as_written.element_spec
    assert [each.to_list() for each in moved] == [each.to_list() for each in as_written]
    code = change({str(file): WORDS}, inspected, batched)
    assert code.diff is not None
    assert "lines.ragged_batch(4).map(split)" in patched(WORDS, code.diff)


def test_a_function_that_parses_examples_of_any_shape_takes_batches_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "examples.py"
    file.write_text(EXAMPLES.replace("FUNCTION", "parse").replace("parse_single_example", "parse_example"))
    recipe = recorded.recipe("make_dataset", file=file)
    stages = composing.with_batches(recipe, recipe.stages)
    function = recorded.function_of(stages[1])
    assert (function.parses_examples, function.on_batches) == (True, "as-is")
    batched = next(iter(order.batch_before_map(Inspection(stages=stages, sink=recipe.sink), Context(cores=2))))
    assert [edit.edit for edit in batched.edits] == ["move-before"]


ARRAYS = """\
import numpy as np
import tensorflow as tf

images, labels = np.arange(1800.0).reshape(150, 3, 4), np.arange(150)

def make_dataset():
    ds = tf.data.Dataset.from_tensor_slices({given})
    ds = ds.shuffle(20, seed=3)
    return ds.batch(4)
"""


def test_rows_are_gathered_in_place_of_a_cache_of_the_slices(tmp_path: Path) -> None:
    file = tmp_path / "arrays.py"
    file.write_text(ARRAYS.format(given="images").replace("ds.shuffle", "ds.cache().shuffle"))
    recipe = recorded.recipe("make_dataset", file=file)
    (gathered,) = order.gather_batches(Inspection(stages=recipe.stages, sink=recipe.sink), Context(cores=2))
    text = patched_alike(file, recipe, gathered.edits).read_text()
    assert "cache" not in text
    assert "tf.data.Dataset.range(" in text


@pytest.mark.parametrize(
    "given", ['({"image": images}, (labels + 1, [*range(150)]))', "(dict(image=images, size=labels), labels)"]
)
def test_gathered_rows_are_the_same_in_a_trial_and_as_it_is_written(given: str, tmp_path: Path) -> None:
    file = tmp_path / "arrays.py"
    file.write_text(ARRAYS.format(given=given))
    recipe = recorded.recipe("make_dataset", file=file)
    edits = (GatherBatches(source=recipe.stages[0].id, batch=recipe.stages[-1].id),)
    made = recorded.call("make_dataset", file=patched_alike(file, recipe, edits))
    graph = made._map_func.function.graph
    held = [op for op in graph.get_operations() if op.type == "Const" and op.outputs[0].shape.num_elements() > 1]
    assert held == [], "no array is in the graph"


SAMPLES = """\
import tensorflow as tf

rows = {rows}

def prepare(image, label):
    if tf.reduce_sum(image) > 20.0:
        image = -image
    return tf.reshape(image, [12]), tf.one_hot(label[0], 3)

def turn(row):
    x = row["x"]
    if tf.reduce_sum(x) > 500:
        x = -x
    return {{"x": x, "y": row["y"]}}

def make_dataset():
    return rows.shuffle(20, seed=3).map({function}).batch(4)
"""
PAIRS = """tf.data.Dataset.from_tensor_slices(
    (tf.reshape(tf.range(132, dtype=tf.float32), [11, 3, 4]), tf.reshape(tf.range(11) % 3, [11, 1])))"""
RECORDS = 'tf.data.Dataset.from_tensor_slices({"x": tf.reshape(tf.range(132), [11, 12]), "y": tf.range(11)})'


@pytest.mark.parametrize(
    ("rows", "function", "expected"),
    [
        (PAIRS, "prepare", "lambda *samples: tf.vectorized_map(lambda sample: prepare(*sample), samples)"),
        (
            PAIRS,
            "lambda a, b: (a[0], b)",
            "lambda *samples: tf.vectorized_map(lambda sample: (lambda a, b: (a[0], b))(*sample), samples)",
        ),
        (
            RECORDS,
            'lambda r: {"z": r["x"][0] + r["y"]}',
            'lambda samples: tf.vectorized_map(lambda r: {"z": r["x"][0] + r["y"]}, samples)',
        ),
        (RECORDS, "turn", "lambda samples: tf.vectorized_map(lambda sample: turn(sample), samples)"),
    ],
    ids=["a function of two", "a lambda of two", "a dict", "an if of a dict"],
)
def test_a_function_of_one_sample_runs_on_batches_in_a_trial_and_as_it_is_written(
    rows: str, function: str, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "samples.py"
    file.write_text(SAMPLES.format(rows=rows, function=function))
    recipe = recorded.recipe("make_dataset", file=file)
    of_map = next(stage for stage in composing.with_batches(recipe, recipe.stages) if stage.method == "map")
    assert recorded.function_of(of_map).on_batches == "vectorized-map"
    batch = recipe.stages[-1]
    edits = (MoveBefore(stage=batch.id, other=of_map.id), Vectorize(stage=of_map.id))
    assert f".batch(4).map({expected})" in patched_alike(file, recipe, edits).read_text()


PARSERS = """
import tensorflow as tf

SPEC = {"x": tf.io.FixedLenFeature([3], tf.float32)}

def make_dataset():
    return tf.data.Dataset.from_tensor_slices(tf.constant(["0,1,2"] * 9)).map(prepare).batch(4)
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return tf.stack(tf.io.decode_csv(row, [0.0] * 3), axis=-1)", "as-is"),
        ("x = tf.stack(tf.io.decode_csv(row, [0.0] * 3), axis=-1)\n    return x[..., :2]", "as-is"),
        (
            "x = tf.stack(tf.io.decode_csv(row, [0.0] * 3), axis=-1)\n"
            "    if tf.reduce_any(tf.math.is_nan(x)):\n        x = tf.zeros_like(x)\n    return x",
            "vectorized-map",
        ),
        ("return tf.io.parse_single_example(row, SPEC)['x'] / 2.0", "parse-example"),
        (
            "x = tf.io.parse_single_example(row, SPEC)['x']\n"
            "    if tf.reduce_any(tf.math.is_nan(x)):\n        x = tf.zeros_like(x)\n    return x",
            "vectorized-map",
        ),
    ],
    ids=["of texts", "columns", "an if of texts", "of records", "an if of records"],
)
def test_what_parses_gets_whole_batches_if_no_op_of_it_goes_over_rows(body: str, expected: str, tmp_path: Path) -> None:
    """A single bad record made zeros of its whole batch: no made-up text can be parsed, so nothing was compared."""
    file = tmp_path / "parsers.py"
    file.write_text(f"{PARSERS}\ndef prepare(row):\n    {body}\n")
    recipe = recorded.recipe("make_dataset", file=file)
    of_map = next(stage for stage in composing.with_batches(recipe, recipe.stages) if stage.method == "map")
    assert recorded.function_of(of_map).on_batches == expected


def test_what_cuts_rows_only_of_many_gets_no_whole_batch(tmp_path: Path) -> None:
    file = tmp_path / "cuts.py"
    file.write_text(
        "import tensorflow as tf\n\ndef cut(row):\n    return row[:64]\n\ndef make_dataset():\n"
        "    rows = tf.ragged.constant([[1, 2], [3]] * 9)\n"
        "    return tf.data.Dataset.from_tensor_slices(rows).map(cut).ragged_batch(4)\n"
    )
    recipe = recorded.recipe("make_dataset", file=file)
    of_map = next(stage for stage in composing.with_batches(recipe, recipe.stages) if stage.method == "map")
    assert recorded.function_of(of_map).on_batches != "as-is"


BRANCHES = """
import tensorflow as tf

def scale(image):
    if tf.reduce_max(image) > 1.0:  # no picture of the first ones
        image = image / 255.0
    return image

def limit(image):
    return tf.clip_by_norm(image, 10.0)

def whiten(image):
    return tf.image.per_image_standardization(image)

seen = tf.Variable(0)
names = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [3, 4]), 0)

def count(image):
    return image * tf.cast(seen.assign_add(1) > 90, tf.float32)  # as a curriculum does

def look_up(image):
    return names.lookup(tf.cast(image, tf.int32)) + seen

def pillow(image):
    image = tf.numpy_function(lambda pixels: pixels / 2, [image], tf.float32)
    image.set_shape([4, 4, 3])
    return image

def swap_colours(image):
    return image[:, :, ::-1]

def grey(image):
    return tf.image.rgb_to_grayscale(image) / 255.0

def shrink(image):
    return tf.image.resize(image, [2, 2])

def any_shape(image):
    return tf.numpy_function(lambda pixels: pixels / 2, [image], tf.float32)

def make_dataset():
    return tf.data.Dataset.from_tensor_slices(tf.random.uniform([99, 4, 4, 3], seed=1)).map({}).batch(8)
"""


def on_batches_of(file: Path) -> str | None:
    """How the only map of a file's pipeline can be given whole batches."""
    recipe = recorded.recipe("make_dataset", file=file)
    (of_map,) = (each for each in composing.with_batches(recipe, recipe.stages) if each.method == "map")
    return recorded.function_of(of_map).on_batches


@pytest.mark.parametrize(
    ("function", "on_batches"),
    [
        ("scale", "vectorized-map"),
        ("limit", "vectorized-map"),
        ("whiten", "as-is"),
        ("count", "not"),
        ("look_up", "as-is"),
        ("swap_colours", "vectorized-map"),  # of a batch it is a mirror
        ("grey", "as-is"),
        ("shrink", "as-is"),
        ("pillow", "not"),  # no batch has the shape that it gives
        ("any_shape", None),  # what Python does is only known when it runs
    ],
)
def test_a_function_in_which_one_sample_may_decide_for_others_gets_samples(
    function: str, on_batches: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "branches.py"
    file.write_text(BRANCHES.format(function))
    assert on_batches_of(file) == on_batches


LAYERS = """
import keras
import tensorflow as tf

seeds, random = keras.random.SeedGenerator(3), keras.random
layers = keras.layers
flip = layers.RandomFlip("horizontal")
both = keras.Sequential([flip, keras.Sequential([layers.RandomContrast(0.2)])])
crop = keras.Sequential([flip, layers.RandomCrop(4, 4)])

def one_mean(x):
    return x + tf.reduce_mean(random.uniform(tf.shape(x)[:-3] if x.shape.rank == 4 else [1], seed=seeds))

def make_dataset():
    rows = tf.data.Dataset.from_tensor_slices((tf.random.uniform([99, 8, 8, 3], seed=1), tf.range(99)))
    return rows.map(lambda x, y: ({}, y)).batch(8)
"""


@pytest.mark.parametrize(
    ("drawn", "on_batches"),
    [
        ("flip(x, training=True)", "as-is"),
        ("both(x, training=True)", "as-is"),  # though single samples have built it
        ("crop(x, training=True)", "not"),  # at one place for all pictures
        ("flip(x, training=True) / tf.reduce_max(x)", "not"),
        ("flip(x, training=True)[:, ::-1]", "not"),  # of a batch another axis
        ("flip(x, training=True) + one_mean(x)", "not"),
        ("x * random.uniform([3], seed=seeds)", "not"),
        ("x + tf.random.uniform([])", None),
    ],
)
def test_what_draws_gets_batches_only_if_it_draws_for_each_row(
    drawn: str, on_batches: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "layers.py"
    file.write_text(LAYERS.format(drawn))
    assert on_batches_of(file) == on_batches


def test_a_sequential_that_single_samples_have_built_takes_batches_in_a_trial(tmp_path: Path) -> None:
    file = tmp_path / "layers.py"
    file.write_text(LAYERS.format("both(x, training=True)"))
    recipe = recorded.recipe("make_dataset", file=file)
    of_map, batch = recipe.stages[1:]
    (seeds, *_) = describe.seed_states(recipe.calls[of_map.id].result)
    before = seeds.numpy().tolist()
    composing.with_batches(recipe, recipe.stages)
    assert seeds.numpy().tolist() == before
    dataset = rebuild.rebuild(recipe, (MoveBefore(stage=batch.id, other=of_map.id),), tmp_path).dataset
    assert dataset.element_spec == recipe.dataset(batch.id).element_spec
    assert next(list(numbers) for _, numbers in dataset.as_numpy_iterator()) == list(range(8))


PICTURES = "(tf.random.uniform([99, 4, 4, 3], seed=1), tf.range(99) % 3)"
MOLECULES = """(
    tf.RaggedTensor.from_row_lengths(tf.reshape(tf.range(160.0), [80, 2]), [1, 3] * 20), tf.range(40))"""


@pytest.mark.parametrize(
    ("given", "function", "on_batches"),
    [
        (PICTURES, "lambda x, y: (x / tf.reduce_max(x), y)", "not"),
        (PICTURES, "lambda x, y: (tf.concat([x[4:], x[:4]], 0), y)", "not"),  # only of as many rows as it is given
        (PICTURES, "lambda x, y: (x, tf.sequence_mask(y))", "not"),  # as wide as the largest of a batch
        (PICTURES, "lambda x, y: (x[::2], y[::2])", "not"),
        (PICTURES, "lambda x, y: (x, tf.cast(y, tf.uint16) / tf.reduce_max(tf.cast(y, tf.uint16)))", "not"),
        (PICTURES, "lambda x, y: (x, tf.io.decode_raw(tf.strings.as_string(y), tf.int64))", None),  # takes none
        (PICTURES, "lambda x, y: (tf.ensure_shape(x, [8, 4, 4, 3]), y)", None),
        (PICTURES, "lambda x, y: (x / 255.0, tf.one_hot(y, 3))", None),
        (MOLECULES, "lambda x, y: (x.merge_dims(0, 1), y)", "not"),  # one graph of a batch
        (MOLECULES, "lambda x, y: (tf.reduce_sum(x, 1), y)", None),
    ],
)
def test_a_map_of_batches_in_which_samples_mix_is_told_from_one_that_treats_each_by_itself(
    given: str, function: str, on_batches: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "batches.py"
    file.write_text(
        f"import tensorflow as tf\nrows = tf.data.Dataset.from_tensor_slices({given})\n"
        "batches = rows.shuffle(20).batch(8).with_options(tf.data.Options())\n"
        f"def make_dataset():\n    return batches.map({function}).prefetch(1)\n"
    )
    assert on_batches_of(file) == on_batches
