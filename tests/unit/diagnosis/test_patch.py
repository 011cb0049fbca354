"""The code to write for a fix: the changed source, run again, must make the calls that the edits mean."""

from __future__ import annotations

import itertools
import re
import sys
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.diagnosis.patching.patch import change
from pipeline_bench.model.calls import AUTOTUNE
from pipeline_bench.model.diagnosis import CodeChange
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
    PrefetchToDevice,
    Remove,
    SetArgument,
    SetOptions,
)
from pipeline_bench.model.element import Element
from pipeline_bench.model.function_edits import DivideMap, ParseBatch, Vectorize
from pipeline_bench.model.pipeline import Inspection, Location, Stage
from pipeline_bench.model.service_edits import DistributeToService, OffloadToService
from pipeline_bench.model.user_function import UserFunction
from tests.unit.diagnoses import tensor
from tests.unit.diagnosis.recorded import FILE, Recorder, change_of, fix_of, inspected, patched
from tests.unit.diagnosis.simulated import with_stage

FUNCTIONS = "def f(*x): return ('f', x)\ndef g(*x): return ('g', x)\n"


def changed(source: str, *edits: Edit) -> tuple[CodeChange, str]:
    """The change, and the source with its diff applied."""
    recorder = Recorder(any(isinstance(edit, DivideMap) for edit in edits))
    inspection = recorder.inspection(recorder.run(source))
    code = change({FILE: source}, inspection, fix_of(*edits))
    return code, patched(source, code.diff) if code.diff else source


def calls(source: str) -> list[Any]:
    return Recorder().run(source).calls


def number(source: str, method: str) -> int:
    """The stage of a method that occurs once."""
    recorder = Recorder()
    recorder.run(source)
    (found,) = [stage.id for stage in recorder.stages if stage.method == method]
    return found


def written(body: str) -> str:
    return FUNCTIONS + dedent(body)


MAP, BATCH = ("map", "f"), ("batch", 2)
SOURCE = ("range", 9)
WAYS = {
    "one line": """
        def make_dataset():
            return tf.data.Dataset.range(9).map(f).batch(2)
        """,
    "parenthesised": """
        def make_dataset():
            return (
                tf.data.Dataset.range(9)
                .map(f)
                .batch(2)
            )
        """,
    "comments between": """
        def make_dataset():
            return (
                tf.data.Dataset.range(9)  # a.b(c) numbers
                # decode (them)
                .map(f)  # slow
                # and batch
                .batch(2)  # small
            )  # done
        """,
    "backslashes": """
        def make_dataset():
            return tf.data.Dataset.range(9) \\
                .map(f) \\
                .batch(2)
        """,
    "reassigned": """
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.map(f)  # decode
            ds = ds.batch(2)
            return ds
        """,
    "reassigned with others between": """
        def make_dataset():
            ds = tf.data.Dataset.range(9)

            ds = ds.map(f)
            size = 2
            print_ = "x"
            ds = ds.batch(2)
            return ds
        """,
    "returned last": """
        def make_dataset():
            dataset = tf.data.Dataset.range(9)
            dataset = dataset.map(f)
            return dataset.batch(2)
        """,
    "arguments over lines": """
        def make_dataset():
            ds = tf.data.Dataset.range(
                9,
            ).map(
                f,
            ).batch(
                2
            )
            return ds
        """,
    "on a function's result": """
        def source():
            return tf.data.Dataset.range(9)
        def make_dataset():
            return source().map(f).batch(2)
        """,
    "decorated": """
        def plain(made):
            return made
        @plain
        def make_dataset():
            ds = tf.data.Dataset.range(9).map(f); return ds.batch(2)
        """,
    "tabs": "\n"
    "def make_dataset():\n\tds = tf.data.Dataset.range(9)\n\tds = ds.map(f)\n\tds = ds.batch(2)\n\treturn ds\n",
    "non-ASCII before": """
        def make_dataset():
            größe = "Straße 名前 🎉"; ds = tf.data.Dataset.range(9); ds = {"é": ds}["é"].map(f).batch(2)
            return ds
        """,
    "f-string": """
        def make_dataset():
            name = f"{'x'}.map(f).batch(2)"
            return tf.data.Dataset.range(9).map(f).batch(2)
        """,
    "brackets around": """
        def make_dataset():
            return ((tf.data.Dataset.range(9)).map(f)).batch(2)
        """,
    "walrus and lambda": """
        make_dataset = lambda: (ds := tf.data.Dataset.range(9)).map(f).batch(2)
        """,
    "an attribute": """
        class Data:
            def build(self):
                self.ds = tf.data.Dataset.range(9)
                self.ds = self.ds.map(f)  # decode
                self.ds = self.ds.batch(2)
                return self.ds
        def make_dataset():
            return Data().build()
        """,
    "aug in a with and an if": """
        import contextlib
        def make_dataset():
            with contextlib.suppress(ValueError):
                if True:
                    ds = tf.data.Dataset.range(9)
                    ds = ds.map(f)
                    ds = ds.batch(2)
            return ds
        """,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return written(WAYS[request.param])


def test_a_call_is_added_at_the_end_and_in_the_middle(way: str) -> None:
    _, new = changed(way, InsertAfter(stage=number(way, "batch"), method="prefetch", arguments={"buffer_size": -1}))
    assert calls(new) == [SOURCE, MAP, BATCH, ("prefetch", -1)]
    _, new = changed(way, InsertAfter(stage=number(way, "map"), method="cache"))
    assert calls(new) == [SOURCE, MAP, ("cache",), BATCH]
    _, new = changed(way, InsertAfter(stage=number(way, "range"), method="shuffle", arguments={"buffer_size": 9}))
    assert calls(new) == [SOURCE, ("shuffle", 9), MAP, BATCH]


def test_a_shuffle_and_a_batch_move_before_a_map_in_their_order() -> None:
    chained = """
        def make_dataset():
            return tf.data.Dataset.range(9).map(f).shuffle(3).batch(2)
        """
    rebound = """
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.map(f)
            ds = ds.shuffle(3)  # mixed
            ds = ds.batch(2)
            return ds
        """
    for source in (chained, rebound):
        code, new = changed(written(source), MoveBefore(stage=2, other=1), MoveBefore(stage=3, other=1))
        assert code.diff is not None, code.text
        assert calls(new) == [SOURCE, ("shuffle", 3), BATCH, MAP]


ARRAYS = """
    x = [1] * 9
    y = [2] * 9
    def make_dataset():
        return tf.data.Dataset.from_tensor_slices(%s).shuffle(9).batch(2)
    """


@pytest.mark.parametrize(
    ("given", "first", "gathered"),
    [
        ("x", "x", "tf.gather(x_tensor, rows)"),
        ("(x, y)", "x", "(tf.gather(x_tensor, rows), tf.gather(y_tensor, rows))"),
        ("(x,)", "x", "(tf.gather(x_tensor, rows),)"),
        ('{"a": x, "b": y}', "x", '{"a": tf.gather(x_tensor, rows), "b": tf.gather(y_tensor, rows)}'),
        ("(x + y, y)", "samples", "(tf.gather(samples_tensor, rows), tf.gather(y_tensor, rows))"),
        ("(x, x)", "x", "(tf.gather(x_tensor, rows), tf.gather(x_tensor_2, rows))"),
        ('({"a": x}, y)', "x", '({"a": tf.gather(x_tensor, rows)}, tf.gather(y_tensor, rows))'),
        ('{"a": x, "b": (y,)}', "x", '{"a": tf.gather(x_tensor, rows), "b": (tf.gather(y_tensor, rows),)}'),
        (
            "((x, y), x + y)",
            "x",
            "((tf.gather(x_tensor, rows), tf.gather(y_tensor, rows)), tf.gather(samples_tensor, rows))",
        ),
    ],
)
def test_slices_become_numbers_of_rows_that_a_map_behind_the_batch_gathers(
    given: str, first: str, gathered: str
) -> None:
    code, new = changed(written(ARRAYS % given), GatherBatches(source=0, batch=2))
    assert code.text == ""
    assert (f"tf.data.Dataset.range({first}_tensor.shape[0]).shuffle(9).batch(2).map(lambda rows: {gathered})\n") in new
    value = "x + y" if first == "samples" else "x"
    assert f'    with tf.device("CPU:0"):\n        {first}_tensor = tf.convert_to_tensor({value})\n' in new


def test_a_dict_of_a_tables_columns_is_made_of_tensors_once() -> None:
    named = "table = dict(a=x, b=y)\n    def make_dataset"
    (code, new), (alone, newer) = (
        changed(written((ARRAYS % given).replace("def make_dataset", named)), GatherBatches(source=0, batch=2))
        for given in ("(dict(table), y)", "dict(table)")
    )
    assert code.text == alone.text == ""
    assert (
        "        table_tensors = {name: tf.convert_to_tensor(column) for name, column in dict(table).items()}\n"
        "        y_tensor = tf.convert_to_tensor(y)\n"
    ) in new
    gathered = "{name: tf.gather(column, rows) for name, column in table_tensors.items()}"
    assert "tf.data.Dataset.range(y_tensor.shape[0])" in new
    assert f".batch(2).map(lambda rows: ({gathered}, tf.gather(y_tensor, rows)))\n" in new
    assert "tf.data.Dataset.range(next(iter(table_tensors.values())).shape[0])" in newer
    assert f".batch(2).map(lambda rows: {gathered})\n" in newer


@pytest.mark.parametrize(
    ("lines", "added"),
    [
        (("from tensorflow import data as tf_data",), "import tensorflow as tf\n"),
        (("from tensorflow import data",), "import tensorflow as tf\n"),
        (("from tensorflow import data as tf_data", "import tensorflow as tf"), ""),
    ],
)
def test_a_file_that_names_only_tf_data_imports_tensorflow_for_what_gathers(lines: tuple[str, ...], added: str) -> None:
    imported = "".join(f"    {line}\n" for line in lines)
    makes = "def make_dataset():\n    return Dataset.from_tensor_slices(x).batch(2)\n"
    source = f"import os\ntry:\n    raise ImportError\n{imported}except ImportError:\n    x = [1] * 9\n{makes}"
    code, new = changed(source, GatherBatches(source=0, batch=1))
    assert code.text == ""
    assert new.startswith(f"{added}import os\n")
    assert "    return Dataset.range(x_tensor.shape[0]).batch(2).map(lambda rows: tf.gather(x_tensor, rows))\n" in new


@pytest.mark.parametrize(
    "given",
    [
        *("load()", "both", "tensors=(x, y)", "(x, *y)", "{**named}", "(named, y)", "([\n    1, 2], y)"),
        *("{key: x}", "(dict(a=(x, y)), y)"),
    ],
)
def test_slices_of_what_is_not_written_out_are_changed_in_words(given: str) -> None:
    others = "load = lambda: (x, x)\n    both = (x, x)\n    named = dict(a=x)\n    key = 'k'\n    def make_dataset"
    source = written((ARRAYS % given).replace("def make_dataset", others))
    code, _ = changed(source, GatherBatches(source=0, batch=2))
    assert code.diff is None
    assert "Make `from_tensor_slices` (train.py:" in code.text


def in_function(*lines: str) -> str:
    """A pipeline of these lines, with the arrays `x` and `y` and the numbers `size` and `none`."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"{FUNCTIONS}x, y, size, none = [1] * 9, [2] * 9, 3, None\ndef make_dataset():\n{body}\n"


SLICES = "ds = tf.data.Dataset.from_tensor_slices((x, y))"


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        ("ds has other uses)", (SLICES, "train = ds.skip(2).batch(2)", "val = ds.take(2)", "return train")),
        ("ds has other uses)", (SLICES, "later = lambda: ds.take(2)", "train = ds.batch(2)", "return train")),
        ("ds has other uses)", (SLICES, "ds = ds.shuffle(9)", "print(ds)", "ds = ds.batch(2)", "return ds")),
        ("ds has other uses)", (SLICES, "ds = ds.shuffle(9) if size else ds.take(2)", "return ds.batch(2)")),
        ("ds has other uses)", (SLICES, "ds = ds.batch(2) if size else ds", "return ds")),
        ("ds is set between", (SLICES, f"if none: {SLICES}", "ds = ds.batch(2)", "return ds")),
        *(
            ("ds has other uses between the two calls, or in another branch", (SLICES, *lines))
            for lines in (
                ("if size:", "    ds = ds.shuffle(9)", "total = ds.take(2)", "return ds.batch(2)"),
                ("if size:", "    ds = ds.shuffle(9)", "else:", "    ds = ds.map(f)", "return ds.batch(2)"),
                ("for _ in (1,):", "    ds = ds.shuffle(9)", "return ds.batch(2)"),
                ("ds = ds.shuffle(9) if ds else ds", "return ds.batch(2)"),
                ("ds = ds.shuffle(9) if size else ds", "total = ds.take(2)", "return ds.batch(2)"),
                ("ds = ds.shuffle(9) if size else ds", "ds = ds.batch(2) if size else ds", "return ds"),
            )
        ),
        ("in different places", (SLICES, "val = ds", "ds = val.shuffle(9) if size else val", "return ds.batch(2)")),
        ("in different places", (f"made = [each for each in [{SLICES[5:]}]]", "return made[0].batch(2)")),
        ("in different places", (f"ds = {SLICES[5:]} if size else None", "return ds.batch(2)")),
        ("in different blocks", ("if size:", f"    {SLICES}", "return ds.batch(2)")),
        ("in different blocks", (SLICES, "if size:", "    ds = ds.shuffle(9)", "    ds = ds.batch(2)", "return ds")),
        (
            "in different blocks",
            (SLICES, "made = []", "if not size: pass", "elif made.append(ds.batch(2)): pass", "return made[0]"),
        ),
    ],
)
def test_rows_are_not_numbered_where_something_else_reads_the_samples(reason: str, lines: tuple[str, ...]) -> None:
    source = in_function(*lines)
    recorder = Recorder()
    recorder.run(source)
    (batch,) = [stage for stage in recorder.stages if stage.method == "batch"][-1:]
    code, _ = changed(source, GatherBatches(source=0, batch=batch.id))
    assert code.diff is None
    assert "(no diff: " in code.text
    assert reason in code.text


def test_rows_are_gathered_from_what_the_array_was_where_it_was_cut() -> None:
    lines = (SLICES, "x = None", "ds = ds.shuffle(9)", "y.sort()", "ds = ds.batch(2)", "return ds")
    source = in_function("x, y = [1] * 9, [2] * 9", *lines, "ds = ds.take(1)")
    code, new = changed(source, GatherBatches(source=0, batch=2))
    assert code.text == ""
    assert new.index("x_tensor = tf.convert_to_tensor(x)") < new.index("x = None")
    assert "ds = ds.batch(2).map(lambda rows: (tf.gather(x_tensor, rows), tf.gather(y_tensor, rows)))" in new


SHUFFLED_IF = [
    "if size:\n        ds = ds.shuffle(9)",
    "ds = ds.shuffle(9) if size else ds",
    "ds = ds if not size else ds.shuffle(9)  # in epochs",
    "ds: object = (\n        ds.shuffle(9)\n        if size else ds)",
]


def test_what_has_nothing_left_to_say_is_left_out_of_a_branch_too() -> None:
    source = in_function(
        "ds = tf.data.Dataset.range(9)", "if size: ds = ds.batch(2) if size else ds", "return ds.map(f)"
    )
    _, new = changed(source, Remove(stage=1))
    assert calls(new) == [SOURCE, MAP]
    assert "if size: pass" in new


TWO_WAYS = [("", SHUFFLED_IF[0]), (".take(8)", SHUFFLED_IF[0]), ("", SHUFFLED_IF[1])]


@pytest.mark.parametrize(("ahead", "shuffled"), TWO_WAYS)
def test_rows_are_gathered_across_a_shuffle_that_a_condition_decides_on(ahead: str, shuffled: str) -> None:
    lines = (f"{SLICES}{ahead}", shuffled, "ds = ds.batch(2)", "return ds.prefetch(1)")
    source = in_function(*lines)
    code, new = changed(source, GatherBatches(source=0, batch=number(source, "batch")))
    assert code.text == ""
    taken = [("take", 8)] if ahead else []
    behind = [("batch", 2), ("map", "<lambda>"), ("prefetch", 1)]
    assert calls(new)[1:] == [*taken, ("shuffle", 9), *behind]
    assert calls(new.replace("[2] * 9, 3,", "[2] * 9, 0,"))[1:] == [*taken, *behind]


@pytest.mark.parametrize("shuffled", [*SHUFFLED_IF, "if size:\n        ds = ds.shuffle(9) if x else ds"])
def test_maps_and_a_cache_come_in_front_of_a_shuffle_that_a_condition_decides_on(shuffled: str) -> None:
    source = in_function("ds = tf.data.Dataset.range(9)", shuffled, "ds = ds.map(f)", "ds = ds.map(g)", "return ds")
    moves = [MoveBefore(stage=stage, other=1) for stage in (2, 3)]
    code, new = changed(source, *moves, InsertAfter(stage=3, method="cache"))
    assert code.text == ""
    assert f"    ds = tf.data.Dataset.range(9).map(f).map(g).cache()\n    {shuffled}\n    return ds\n" in new
    mapped = [SOURCE, MAP, ("map", "g"), ("cache",)]
    assert calls(new) == [*mapped, ("shuffle", 9)]
    assert calls(new.replace("[2] * 9, 3,", "[2] * 9, 0,")) == mapped


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("ds = ds.shuffle(9)", "ds = ds.map(f) if size else ds.take(3)"), "ds has other uses"),
        (("ds = ds.shuffle(9) if size else ds.take(3)", "ds = ds.map(f)"), "in different places"),
        (("ds = ds.shuffle(9) if y.sort() is none else ds", "ds = ds.map(f)"), "y.sort is called between"),
        (("ds = ds.shuffle(9) if (rows := size) else ds", "ds = ds.map(f)"), "it needs rows"),
    ],
)
def test_a_map_that_one_side_lacks_or_what_decides_may_change_does_not_move_in_front(
    lines: tuple[str, str], reason: str
) -> None:
    source = in_function("ds = tf.data.Dataset.range(9)", *lines, "return ds")
    code, _ = changed(source, MoveBefore(stage=2, other=1))
    assert code.diff is None
    assert reason in code.text


READERS = """
labeled, repeats, shuffles = 1, 1, 1

def make_dataset():
    ds = tf.data.Dataset.range(9)

    if repeats: ds = ds.repeat()
    # mixed
    if shuffles:
        ds = ds.shuffle(3)
        options = tf.data.Options()
        options.deterministic = False
        ds = ds.with_options(options)

    # read
    if labeled:  # for the training
        ds = ds.map(f, num_parallel_calls=2)  # fast
    # others
    else:
        # without labels
        ds = ds.map(lambda x: g(x, repeats))

    ds = ds.batch(2)
    return ds
"""
LIFTED = """
    ds = tf.data.Dataset.range(9)
    if labeled:  # for the training
        ds = ds.map(f, num_parallel_calls=2).cache()  # fast

    if repeats: ds = ds.repeat()
    # mixed
    if shuffles:
        ds = ds.shuffle(3)
        options = tf.data.Options()
        options.deterministic = False
        ds = ds.with_options(options)

    # read
    # others
    if not labeled:
        # without labels
        ds = ds.map(lambda x: g(x, repeats))

    ds = ds.batch(2)
"""


def calls_by_flags(source: str) -> dict[tuple[int, ...], list[Any]]:
    """The calls for each way in which the flags of `READERS` can be set."""
    flags = itertools.product((0, 1), repeat=3)
    return {each: calls(source.replace("= 1, 1, 1", "= {}, {}, {}".format(*each))) for each in flags}


def test_a_map_in_an_arm_moves_with_its_condition_and_the_other_arm_stays_as_it_is() -> None:
    source = FUNCTIONS + READERS
    code, new = changed(source, MoveBefore(stage=4, other=1), InsertAfter(stage=4, method="cache"))
    assert code.text == ""
    assert LIFTED in new
    mapped, made = ("map", "f", ("num_parallel_calls", 2)), calls_by_flags(new)
    for flags, written_calls in calls_by_flags(source).items():
        first, *others = written_calls
        moved = [first, mapped, ("cache",), *(each for each in others if each != mapped)]
        assert made[flags] == (moved if flags[0] else written_calls)


@pytest.mark.parametrize(
    ("test", "rest"),
    [
        ("not labeled", "labeled"),
        ("labeled and y or x", "not (labeled and y or x)"),
        ("(labeled)", "not (labeled)"),
        ("none != labeled", "not none != labeled"),
    ],
)
def test_the_other_arm_has_the_condition_that_holds_where_that_of_the_moved_one_does_not(test: str, rest: str) -> None:
    lines = ("labeled = x[0]", "ds = tf.data.Dataset.range(9)", "ds = ds.shuffle(9)")
    arms = (f"if {test}:", "    ds = ds.map(f)", "else:", "    ds = ds.map(g)")
    source = in_function(*lines, *arms, "return ds.batch(2)")
    code, new = changed(source, MoveBefore(stage=2, other=1))
    assert code.text == ""
    (above, moved), (behind, left) = [(test, "f"), (rest, "g")] if "not " not in test else [(rest, "g"), (test, "f")]
    assert f"    if {above}:\n        ds = ds.map({moved})\n    ds = ds.shuffle(9)\n" in new
    assert f"    if {behind}:\n        ds = ds.map({left})\n    return ds.batch(2)\n" in new
    written_calls, made = (calls(each.replace("labeled = x[0]", "labeled = x = 0")) for each in (source, new))
    assert made in (written_calls, [SOURCE, written_calls[2], written_calls[1], BATCH])


def test_what_stands_behind_both_arms_comes_behind_each_of_them() -> None:
    behind = "    ds = ds.map(lambda x: x + 1)\n    ds = ds.batch(2)\n"
    source = FUNCTIONS + READERS.replace("    ds = ds.batch(2)\n", behind)
    moves = [MoveBefore(stage=each, other=1) for each in (4, 5)]
    code, new = changed(source, *moves, InsertAfter(stage=5, method="cache"))
    assert code.text == ""
    assert "ds = ds.map(f, num_parallel_calls=2).map(lambda x: x + 1).cache()  # fast\n" in new
    assert "ds = ds.map(lambda x: g(x, repeats)).map(lambda x: x + 1)\n\n    ds = ds.batch(2)\n" in new
    added, mapped, made = ("map", "<lambda>"), ("map", "f", ("num_parallel_calls", 2)), calls_by_flags(new)
    for flags, written_calls in calls_by_flags(source).items():
        first, *others = written_calls
        moved = [first, mapped, added, ("cache",), *(each for each in others if each not in (mapped, added))]
        assert made[flags] == (moved if flags[0] else written_calls)


@pytest.mark.parametrize(
    "mapped",
    [
        "if size:\n        ds = ds.map(f)",
        "if none: pass\n    elif size:\n        ds = ds.map(f)",
        "ds = ds.map(f) if size else ds",
        "if size:\n        if y:\n            pass\n        ds = ds.map(f)",
    ],
)
@pytest.mark.parametrize("shuffled", ["ds = ds.shuffle(9)", *SHUFFLED_IF[:2]])
def test_a_map_that_one_way_lacks_moves_for_the_others_alone(shuffled: str, mapped: str) -> None:
    source = in_function("ds = tf.data.Dataset.range(9)", shuffled, mapped, "return ds.batch(2)")
    code, new = changed(source, MoveBefore(stage=2, other=1), InsertAfter(stage=2, method="cache"))
    assert code.text == ""
    assert calls(new) == [SOURCE, MAP, ("cache",), ("shuffle", 9), BATCH]
    none = "[2] * 9, 3,", "[2] * 9, 0,"
    assert calls(new.replace(*none)) == calls(source.replace(*none))


def test_two_maps_of_an_arm_move_together_and_one_behind_a_single_arm_moves_for_all() -> None:
    arm = ("if size:", "    # read", "    ds = ds.map(f)", "    # again", "    ds = ds.map(g)")
    source = in_function("ds = tf.data.Dataset.range(9)", SHUFFLED_IF[0], *arm, "ds = ds.map(str)", "return ds")
    moves = [MoveBefore(stage=each, other=1) for each in (2, 3, 4)]
    code, new = changed(source, *moves, InsertAfter(stage=4, method="cache"))
    assert code.text == ""
    lifted = "    if size:\n        # read\n        ds = ds.map(f).map(g)\n    ds = ds.map(str).cache()\n"
    assert f"{lifted}    {SHUFFLED_IF[0]}\n    # again\n    return ds\n" in new
    assert calls(new.replace("[2] * 9, 3,", "[2] * 9, 0,")) == [SOURCE, ("map", "str"), ("cache",)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("if len(y):", "    ds = ds.map(f)"), "what decides on the later one may change"),
        (("if (n := size):", "    ds = ds.map(f)"), "what decides on the later one may change"),
        (("if ds:", "    ds = ds.map(f)"), "what decides on the later one may change"),
        (("if size:", "    ds = ds.map(f).take(5)"), "in different blocks"),
        (("if size:", "    total = ds.take(2)", "    ds = ds.map(f)"), "ds has other uses"),
        (("if none: ds = ds.take(3)", "if size:", "    ds = ds.map(f)"), "ds has other uses"),
        (("size = 4", "if size:", "    ds = ds.map(f)"), "it needs size"),
        (("sorted(y)", "if size:", "    ds = ds.map(f)"), "sorted is called between"),
        (("if y:", "    if size:", "        ds = ds.map(f)"), "in different places"),
        (("for _ in (1,):", "    ds = ds.map(f)"), "in different blocks"),
        (("if size: return ds.map(f)",), "in different blocks"),
    ],
)
def test_a_map_stays_in_an_arm_whose_condition_may_be_another_above_or_with_what_may_use_it(
    lines: tuple[str, ...], reason: str
) -> None:
    source = in_function("size = 3", "ds = tf.data.Dataset.range(9)", "ds = ds.shuffle(9)", *lines, "return ds")
    code, _ = changed(source, MoveBefore(stage=2 + ("total" in source), other=1))
    assert code.diff is None
    assert reason in code.text


@pytest.mark.parametrize("other", ["pass", "ds = tf.data.Dataset.zip((ds, ds)) if y else ds"])
def test_a_map_behind_arms_of_which_one_does_not_end_with_a_call_stays(other: str) -> None:
    arms = ("if size:", "    ds = ds.map(f)", "else:", f"    {other}")
    source = in_function("ds = tf.data.Dataset.range(9)", "ds = ds.shuffle(9)", *arms, "ds = ds.map(g)", "return ds")
    code, _ = changed(source, *(MoveBefore(stage=each, other=1) for each in (2, 3)))
    assert code.diff is None
    assert "in different blocks" in code.text


@pytest.mark.parametrize("ternary", ["ds = ds.map(f) if size else ds", "ds = ds if not size else ds.map(f)"])
def test_what_stands_behind_a_call_of_one_side_is_of_that_side_alone(ternary: str) -> None:
    source = in_function("ds = tf.data.Dataset.range(9)", ternary, "return ds")
    prefetch = InsertAfter(stage=1, method="prefetch", arguments={"buffer_size": 1})
    for edits, behind in (
        ((InsertAfter(stage=1, method="cache"),), [("cache",)]),
        ((prefetch,), [("prefetch", 1)]),
        ((PrefetchToDevice(),), [("apply", ("to", "/GPU:0"))]),
    ):
        _, new = changed(source, *edits)
        assert calls(new) == [SOURCE, MAP, *behind]
        assert calls(new.replace("[2] * 9, 3,", "[2] * 9, 0,")) == [SOURCE]
    code, _ = changed(source, SetOptions(options={"deterministic": False}))
    assert "there is no line for it of its own" in code.text


@pytest.mark.parametrize(
    "mapped",
    ["if size:\n        ds = ds.map(f)", "ds = ds.map(f) if size else ds", "ds = ds if not size else ds.map(f)"],
)
def test_a_shuffle_and_a_batch_move_in_front_of_a_map_that_a_condition_decides_on(mapped: str) -> None:
    lines = ("ds = tf.data.Dataset.range(9)", mapped, "ds = ds.shuffle(3)", "return ds.batch(2)")
    _, new = changed(in_function(*lines), MoveBefore(stage=2, other=1), MoveBefore(stage=3, other=1))
    assert calls(new) == [SOURCE, ("shuffle", 3), BATCH, MAP]
    assert calls(new.replace("[2] * 9, 3,", "[2] * 9, 0,")) == [SOURCE, ("shuffle", 3), BATCH]


HOLDER = ("from types import SimpleNamespace", "self = SimpleNamespace(rows=3)")


@pytest.mark.parametrize(
    ("lines", "edits"),
    [
        ((SLICES, SHUFFLED_IF[0], "ds = ds.batch(2)"), [GatherBatches(source=0, batch=2)]),
        ((SLICES, SHUFFLED_IF[1], "ds = ds.batch(2)"), [GatherBatches(source=0, batch=2)]),
        (("ds = tf.data.Dataset.range(9)", SHUFFLED_IF[2], "ds = ds.map(f)"), [MoveBefore(stage=2, other=1)]),
        (("ds = tf.data.Dataset.range(9)", "ds = ds.map(f)", "ds = ds.cache()"), [Remove(stage=2)]),
        (
            ("ds = tf.data.Dataset.range(9)", "ds = ds.map(f)", "rows = 3", "ds = ds.batch(2)"),
            [MoveBefore(stage=2, other=1)],
        ),
        (
            ("ds = tf.data.Dataset.range(9)", "ds = ds.batch(2)", "ds = ds.unbatch().map(f)"),
            [Remove(stage=1), Remove(stage=2)],
        ),
    ],
)
def test_a_dataset_that_is_an_attribute_is_changed_like_a_variable(lines: tuple[str, ...], edits: list[Edit]) -> None:
    name = re.compile(r"\bds\b")
    source = in_function(*HOLDER, *lines, "return ds")
    code, new = changed(source, *edits)
    assert code.diff is not None, code.text
    code, of_attribute = changed(
        in_function(*HOLDER, *(name.sub("self.ds", each) for each in lines), "return self.ds"), *edits
    )
    assert of_attribute == name.sub("self.ds", new), code.text
    assert calls(of_attribute) == calls(new)


@pytest.mark.parametrize(
    ("between", "last", "reason"),
    [
        ("peek = lambda: self.ds.take(3)", "self.ds = self.ds.batch(2)", "self.ds has other uses"),
        ("val = self.ds.take(3)", "self.ds = self.ds.batch(2)", "self.ds has other uses"),
        ("same = self; val = same.ds", "self.ds = self.ds.batch(2)", "self.ds has other uses"),
        ("str(self)", "self.ds = self.ds.batch(2)", "str, which may read self.ds, is called between the two calls"),
        ("self.rows = 2", "self.ds = self.ds.batch(self.rows)", "it needs self.rows, which is set between"),
        ("self.ds.name = 'x'", "self.ds = self.ds.batch(2)", "self.ds has other uses"),
        ("if not size: return", "self.ds = self.ds.batch(2)", "self.ds may be read, or be another, between"),
        ("if not size: raise none", "self.ds = self.ds.batch(2)", "self.ds may be read, or be another, between"),
        ("if not size: self = none", "self.ds = self.ds.batch(2)", "self is set between the two calls"),
        ("for each in (self,): pass", "self.ds = self.ds.batch(2)", "self.ds may be read, or be another, between"),
        ("rows = self.shape", "self.ds = self.ds.batch(2)", "self.ds may be read, or be another, between"),
        ("rows = 2", "return self.ds.batch(2)", "self.ds may have other uses"),
        ("rows = 2", "train = self.ds.batch(2)", "self.ds may have other uses"),
    ],
)
def test_an_attribute_that_others_may_read_meanwhile_stays_what_it_is(between: str, last: str, reason: str) -> None:
    shape = "\nclass Data:\n    @property\n    def shape(self): return self.ds\n"
    lines = ("self.ds = tf.data.Dataset.range(9)", "self.ds = self.ds.map(f)", between, last)
    end = [] if "return" in last else ["return train" if "train" in last else "return self.ds"]
    source = in_function(HOLDER[0], "self = SimpleNamespace(rows=3, shape=2)", *lines, *end) + shape
    code, _ = changed(source, MoveBefore(stage=number(source, "batch"), other=number(source, "map")))
    assert code.diff is None
    assert reason in code.text


@pytest.mark.parametrize("between", ["if not size: return", "if not size: self = none", "if not size: self.ds = none"])
def test_an_attribute_across_a_condition_stays_what_it_is_where_another_may_have_it(between: str) -> None:
    shuffled = ("if size:", "    self.ds = self.ds.shuffle(9)")
    lines = ("self.ds = tf.data.Dataset.range(9)", *shuffled, between, "self.ds = self.ds.map(f)", "return self.ds")
    move = MoveBefore(stage=2, other=1)
    assert changed(in_function(*HOLDER, *lines), move)[0].diff is None
    assert changed(in_function(*HOLDER, *(each for each in lines if each != between)), move)[0].diff is not None


WINDOWS = "ds = tf.data.Dataset.from_tensor_slices(x)"


@pytest.mark.parametrize(
    ("window", "written_as"),
    [
        ("size, shift=1", "x_tensor.shape[0] - size + 1"),
        ("size, shift=none", "0, x_tensor.shape[0] - size + 1, size"),
        ("size + 1, 2", "0, x_tensor.shape[0] - (size + 1) + 1, 2"),
        ("size, **dict(shift=1)", None),
        ("size, *[1]", None),
        ("size # rows\n, shift=1", "x_tensor.shape[0] - size + 1"),
    ],
)
def test_windows_begin_at_the_rows_at_which_the_call_says(window: str, written_as: str | None) -> None:
    source = in_function(WINDOWS, f"ds = ds.window({window})", "ds = ds.flat_map(lambda w: w.batch(3))", "return ds")
    code, new = changed(source, GatherWindows(source=0, window=1, flat_map=2))
    if written_as is None:
        assert code.diff is None
        assert "its arguments are in a " in code.text
        assert "`tf.data.Dataset.range(0, end, shift)`" in code.text
        assert "+ stride * tf.range(size, dtype=tf.int64)" in code.text
    else:
        assert f"tf.data.Dataset.range({written_as})" in new


def test_an_argument_that_was_given_by_its_place_is_not_given_again() -> None:
    source = written("""
        def make_dataset():
            return tf.data.FixedLengthRecordDataset(["a"], 8, None, None, 4096).batch(2)
        """)
    _, new = changed(source, SetArgument(stage=0, argument="buffer_size", value=8 << 20))
    assert '(["a"], 8, None, None, 8388608)' in new


@pytest.mark.parametrize("between", ["self.size = 4", "size = 4", "size += 1", "[size][0] = 3"])
def test_windows_are_not_gathered_by_a_size_that_is_set_between(between: str) -> None:
    window = "self.size" if "self" in between else "size"
    lines = ("from types import SimpleNamespace", "self, size = SimpleNamespace(size=3), 3", WINDOWS, between)
    source = in_function(*lines, f"ds = ds.window({window})", "return ds.flat_map(lambda w: w.batch(3))")
    code, _ = changed(source, GatherWindows(source=0, window=1, flat_map=2))
    assert (code.diff is None) == (between != "[size][0] = 3")


def test_a_batch_does_not_move_in_front_of_what_others_read_too() -> None:
    lines = ("ds = tf.data.Dataset.range(9)", "ds = ds.map(f)", "train = ds.batch(2)")
    source = in_function(*lines, "val = ds.skip(4)", "return train")
    code, new = changed(source, MoveBefore(stage=2, other=1))
    assert new == source
    assert "(no diff: ds has other uses)" in code.text
    _, new = changed(in_function(*lines, "return train"), MoveBefore(stage=2, other=1))
    assert calls(new) == [SOURCE, BATCH, MAP]
    again = ("ds = tf.data.Dataset.range(3)", "val = ds.skip(4)", "return train")
    _, new = changed(in_function(*lines, *again), MoveBefore(stage=2, other=1))
    assert calls(new) == [SOURCE, BATCH, MAP]


@pytest.mark.parametrize("reader", [(), ("val = both.take(2)",)])
def test_a_batch_that_others_read_is_not_left_out(reader: tuple[str, ...]) -> None:
    lines = ("ds = tf.data.Dataset.range(9)", "both = ds.batch(2)", *reader, "return both.unbatch().map(f)")
    source = in_function(*lines)
    at = 1 + len(reader)
    code, new = changed(source, Remove(stage=1), Remove(stage=1 + at))
    assert calls(new) == ([SOURCE, BATCH, ("unbatch",), MAP] if reader else [SOURCE, MAP])
    assert (code.diff is None) == bool(reader)


def test_a_filter_does_not_move_in_front_of_what_its_function_may_use() -> None:
    lines = ("ds = tf.data.Dataset.range(9)", "ds = ds.map(f)", "limit = 3", "ds = ds.filter(g)", "return ds")
    assert changed(in_function(*lines), MoveBefore(stage=2, other=1))[0].diff is None
    _, new = changed(in_function(*lines[:2], *lines[3:]), MoveBefore(stage=2, other=1))
    assert calls(new) == [SOURCE, ("filter", "g"), MAP]


def test_every_wanted_name_may_be_taken() -> None:
    source = in_function("rows = row_numbers = row_numbers_2 = x_tensor = None", WINDOWS, "return ds.batch(2)")
    code, new = changed(source, GatherBatches(source=0, batch=1))
    assert code.text == ""
    assert ".map(lambda row_numbers_3: tf.gather(x_tensor_2, row_numbers_3))" in new


@pytest.mark.parametrize("name", WAYS)
def test_a_call_is_left_out_unless_brackets_stand_around_those_before_it(name: str) -> None:
    source = written(WAYS[name])
    code, new = changed(source, Remove(stage=number(source, "map")))
    if name in ("brackets around", "walrus and lambda"):
        assert code.diff is None
        assert re.match(r"Leave `map` \(train.py:\d\) out \(no diff: brackets stand around", code.text)
    else:
        assert calls(new) == [SOURCE, BATCH]


def test_several_edits_add_up(way: str) -> None:
    of_map, of_batch = number(way, "map"), number(way, "batch")
    edits: tuple[Edit, ...] = (
        MoveBefore(stage=of_batch, other=of_map),
        SetArgument(stage=of_map, argument="num_parallel_calls", value=4),
        SetArgument(stage=of_map, argument="deterministic", value=False),
        InsertAfter(stage=of_map, method="prefetch", arguments={"buffer_size": -1}),
    )
    code, new = changed(way, *edits, SetOptions(options={"threading.private_threadpool_size": 2}))
    expected = [
        SOURCE,
        BATCH,
        (*MAP, ("num_parallel_calls", 4), ("deterministic", False)),
        ("prefetch", -1),
    ]
    if code.text:
        assert "no line for it of its own" in code.text
        assert "lambda" in way or ";" in way
        code, new = changed(way, *edits)
    else:
        expected.append(("with_options", "namespace(threading=namespace(private_threadpool_size=2))"))
    assert calls(new) == expected


@pytest.mark.parametrize("name", ["comments between", "backslashes", "arguments over lines", "tabs"])
def test_windows_line_ends_stay(name: str) -> None:
    _, new = changed(
        written(WAYS[name]).replace("\n", "\r\n"),
        SetArgument(stage=1, argument="num_parallel_calls", value=-1),
        InsertAfter(stage=2, method="prefetch", arguments={"buffer_size": 3}),
    )
    assert calls(new) == [SOURCE, (*MAP, ("num_parallel_calls", -1)), BATCH, ("prefetch", 3)]
    assert new.count("\n") == new.count("\r\n")


def test_a_file_without_a_last_line_end_and_one_with_a_mark() -> None:
    source = written("make_dataset = lambda: tf.data.Dataset.range(9).map(f).batch(2)").rstrip()
    _, new = changed(source, InsertAfter(stage=2, method="cache"))
    assert new == source + ".cache()"
    marked = "\ufeff" + "make_dataset = lambda: tf.data.Dataset.range(9).batch(2)\n"
    inspection = inspected(marked.removeprefix("\ufeff"))
    diff = change({FILE: marked}, inspection, fix_of(InsertAfter(stage=1, method="cache"))).diff
    assert diff is not None
    assert patched(marked, diff) == marked.rstrip() + ".cache()\n"


def test_an_argument_that_was_given_is_replaced_where_it_stands() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.TFRecordDataset(["a"], None, 10, num_parallel_reads=1).map(f, 1, deterministic=True)
            return ds.batch(2, num_parallel_calls=3,)
        """)
    _, new = changed(
        source,
        SetArgument(stage=0, argument="buffer_size", value=8388608),
        SetArgument(stage=0, argument="num_parallel_reads", value=-1),
        SetArgument(stage=1, argument="num_parallel_calls", value=-1),
        SetArgument(stage=1, argument="deterministic", value=False),
        SetArgument(stage=2, argument="num_parallel_calls", value=None),
        SetArgument(stage=2, argument="drop_remainder", value=True),
    )
    assert 'TFRecordDataset(["a"], None, 8388608, num_parallel_reads=tf.data.AUTOTUNE)' in new
    assert ".map(f, tf.data.AUTOTUNE, deterministic=False)" in new
    assert ".batch(2, num_parallel_calls=None, drop_remainder=True,)" in new


@pytest.mark.parametrize(
    ("line", "written_as"),
    [
        ("import tensorflow as tf", "tf.data.AUTOTUNE"),
        ("import tensorflow", "tensorflow.data.AUTOTUNE"),
        ("import tensorflow as the_flow", "the_flow.data.AUTOTUNE"),
        ("from tensorflow import data", "data.AUTOTUNE"),
        ("from tensorflow import data as tfd", "tfd.AUTOTUNE"),
        ("import tensorflow.compat.v2 as tf2", "tf2.data.AUTOTUNE"),
    ],
)
def test_the_files_own_name_of_tensorflow_is_used(line: str, written_as: str) -> None:
    source = written(f"""
        def unused():
            {line}
        try:
            raise ImportError
            {line}
        except ImportError:
            pass
        def make_dataset():
            return Dataset.range(9).map(f)
        """)
    code, _ = changed(source, SetArgument(stage=1, argument="num_parallel_calls", value=-1))
    assert f"num_parallel_calls={written_as})" in str(code.diff)


@pytest.mark.parametrize("conditional", ["import tensorflow.compat.v1 as v1", "import tensorflow as tf"])
def test_a_name_of_tensorflow_that_is_something_else_where_the_call_stands_is_not_used(conditional: str) -> None:
    source = written(f"""
        if False:
            {conditional}
        try:
            raise ImportError
            from tensorflow import data
        except ImportError:
            pass
        def made(data):
            return data.map(f)
        def make_dataset():
            return made(Dataset.range(9))
        """)
    edit = SetArgument(stage=1, argument="num_parallel_calls", value=-1)
    code = change_of(source, edit)
    assert code.diff is None
    lacks = "no name for tf.data itself" if " as tf" in conditional else "no place for `import tensorflow as tf`"
    assert lacks in code.text


@pytest.mark.parametrize("elsewhere", ["def model():\n    import tensorflow as tf", "def model(tf):\n    return tf"])
def test_a_name_of_tensorflow_that_another_function_has_is_none_where_the_call_stands(elsewhere: str) -> None:
    makes = "def make_dataset():\n    return Dataset.range(9).map(f)\n"
    source = f"import os\n\n{FUNCTIONS}\n{elsewhere}\n\n{makes}"
    diff = str(changed(source, SetArgument(stage=1, argument="num_parallel_calls", value=-1))[0].diff)
    assert "+import tensorflow as tf\n import os\n" in diff
    assert "num_parallel_calls=tf.data.AUTOTUNE" in diff


def test_a_file_with_no_name_of_tensorflow_imports_it() -> None:
    makes = "def make_dataset():\n    return Dataset.range(9).map(f).map(f)\n"
    edits = tuple(SetArgument(stage=number, argument="num_parallel_calls", value=-1) for number in (1, 2))
    source = f"from __future__ import annotations\n\nimport os\n\n{FUNCTIONS}\n{makes}"
    diff = str(change_of(source, *edits).diff)
    assert diff.count("+import tensorflow as tf\n import os\n") == 1
    assert diff.count("num_parallel_calls=tf.data.AUTOTUNE") == 2
    code = change_of(f"{FUNCTIONS}\n{makes}", *edits)
    assert code.diff is None
    assert "there is no place for `import tensorflow as tf`" in code.text


def test_fused_maps_compute_what_they_did_apart() -> None:
    source = written("""
        def make_dataset():
            return (
                tf.data.Dataset.range(9)
                .map(f, num_parallel_calls=2)
                # twice
                .map(lambda *x: ("twice", x), num_parallel_calls=2)
                .batch(2)
            )
        """)
    code, new = changed(source, Fuse(stages=(1, 2)))
    assert calls(new) == [SOURCE, ("map", "<lambda>", ("num_parallel_calls", 2)), BATCH]
    assert code.diff is not None
    assert 'lambda *sample: (lambda *x: ("twice", x))(*f(*sample))' in new
    assert "# twice" in new


def test_a_fused_map_leaves_the_users_variables_as_they_are() -> None:
    source = written("""
        def make_dataset():
            x = 3
            return tf.data.Dataset.range(9).map(lambda a: (a, x)).map(g).batch(2)
        """)
    _, new = changed(source, Fuse(stages=(1, 2)))
    fused = new.partition(".map(")[2].partition(").batch")[0]
    assert eval(fused, {"x": 3, "g": lambda *each: each})(1) == (1, 3)


@pytest.mark.parametrize(("given", "is_written"), [("make()", False), ("partial(f, 3)", True)])
def test_a_function_that_a_call_makes_is_not_made_again_in_a_graph(given: str, is_written: bool) -> None:
    source = written(f"""
        from functools import partial
        def make():
            return f
        def make_dataset():
            return tf.data.Dataset.range(9).map({given}).map(g).batch(2)
        """)
    for edit in (Fuse(stages=(1, 2)), Vectorize(stage=1)):
        code, _ = changed(source, edit)
        assert (code.diff is not None) == is_written, code.text


def test_named_tuples_are_not_spread_over_the_parameters_of_a_fused_function() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).map(f).map(g)\n")
    named = Element(kind="named-tuple", parts=(tensor("uint8", 9), tensor("int64")))
    looked = with_stage(inspected(source), 1, element=named)
    fix = fix_of(Fuse(stages=(1, 2)))
    assert "lambda *sample: g(f(*sample))" in str(change({FILE: source}, looked, fix).diff)


def test_a_source_that_python_warns_of_is_no_trouble() -> None:
    source = written("def make_dataset():\n    '\\d'\n    return tf.data.Dataset.range(9).batch(2)\n")
    with pytest.warns(Warning, match="invalid escape"):
        inspection = inspected(source)
    assert ".cache()" in str(change({FILE: source}, inspection, fix_of(InsertAfter(stage=1, method="cache"))).diff)


def test_a_cache_on_disk_is_told_in_words_because_no_path_is_known_that_nothing_else_uses() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).batch(2)\n")
    code, _ = changed(source, InsertAfter(stage=1, method="cache", arguments={"filename": "disk"}))
    assert code.diff is None
    assert "Its path must be no other pipeline's" in code.text


def test_several_options_are_set_on_one_object() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).batch(2)\n")
    first, second = SetOptions(options={"deterministic": False}), SetOptions(options={"autotune": True})
    _, new = changed(source, first, second)
    assert new.count("with_options") == 1
    assert "deterministic=False, autotune=True" in str(calls(new)[-1])


def test_a_branch_in_another_calls_arguments() -> None:
    source = written("""
        def make_dataset():
            left = tf.data.Dataset.range(9).map(f)
            return tf.data.Dataset.zip((
                left,
                tf.data.Dataset.range(5).map(g),
            )).batch(2)
        """)
    _, new = changed(
        source,
        SetArgument(stage=1, argument="num_parallel_calls", value=2),
        SetArgument(stage=3, argument="num_parallel_calls", value=3),
        InsertAfter(stage=3, method="cache"),
        InsertAfter(stage=4, method="prefetch", arguments={"buffer_size": 1}),
        InsertAfter(stage=5, method="prefetch", arguments={"buffer_size": -1}),
    )
    left = [SOURCE, (*MAP, ("num_parallel_calls", 2))]
    right = [("range", 5), ("map", "g", ("num_parallel_calls", 3)), ("cache",)]
    assert calls(new) == [left, right, ("zip",), ("prefetch", 1), BATCH, ("prefetch", -1)]


def test_consecutive_statements_change_places_with_their_comments() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.map(f)  # decode
            ds = ds.batch(2)  # pairs
            return ds
        """)
    _, new = changed(source, MoveBefore(stage=2, other=1))
    assert new == source.replace("map(f)  # decode", "XX").replace("batch(2)  # pairs", "map(f)  # decode").replace(
        "XX", "batch(2)  # pairs"
    )


def test_a_comment_never_swallows_what_stands_behind_a_call() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.map(f); size = 2
            ds = ds.batch(2)  # pairs
            return ds if size else None
        """)
    code, _ = changed(source, MoveBefore(stage=2, other=1))
    assert code.diff is None
    assert "a comment would hide what stands behind the calls" in code.text


def test_a_comment_of_its_own_line_follows_its_call() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.map(f)
            return (
                ds
                # in pairs
                .batch(2)
            )
        """)
    _, new = changed(source, MoveBefore(stage=2, other=1))
    assert calls(new) == [SOURCE, BATCH, MAP]
    assert "ds = ds.batch(2)  # in pairs\n" in new


def test_a_call_does_not_move_above_what_it_needs() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.map(f)
            size = 2
            ds = ds.batch(size)
            return ds
        """)
    code, new = changed(source, MoveBefore(stage=2, other=1))
    assert new == source
    assert code.diff is None
    assert "`batch` (train.py:8) to right before `map` (train.py:6)" in code.text
    assert "it needs size" in code.text


def test_what_is_done_to_all_that_one_call_makes_is_written_once() -> None:
    source = written("""
        def branch(count):
            return tf.data.Dataset.range(count).map(f).repeat()
        def make_dataset():
            return tf.data.Dataset.zip([branch(each) for each in (5, 7)]).batch(2)
        """)
    edits: list[Edit] = [InsertAfter(stage=stage, method="cache") for stage in (1, 4)]
    edits += [SetArgument(stage=stage, argument="num_parallel_calls", value=3) for stage in (1, 4)]
    code, new = changed(source, *edits, SetOptions(options={"deterministic": False}))
    assert code.diff
    branches = calls(new)[:2]
    assert [[each[0] for each in branch] for branch in branches] == [["range", "map", "cache", "repeat"]] * 2
    assert branches[0][1] == branches[1][1] == ("map", "f", ("num_parallel_calls", 3))
    for others in ([edits[0]], [*edits, Remove(stage=2)], [*edits[:3]]):
        code, new = changed(source, *others)
        assert new == source
        assert "one call of map makes several stages" in code.text


def test_what_moves_in_every_branch_that_one_call_makes_is_written_once() -> None:
    source = written("""
        def branch(count):
            return tf.data.Dataset.range(count).shuffle(count).repeat().map(f)
        def make_dataset():
            return tf.data.Dataset.zip([branch(each) for each in (5, 7)]).batch(2)
        """)
    edits: list[Edit] = [MoveBefore(stage=start + 3, other=start + 1) for start in (0, 4)]
    edits += [InsertAfter(stage=start + 3, method="cache") for start in (0, 4)]
    code, new = changed(source, *edits)
    assert code.diff
    assert [[each[0] for each in branch] for branch in calls(new)[:2]] == [
        ["range", "map", "cache", "shuffle", "repeat"]
    ] * 2
    for others in (edits[:1], edits[:3]):
        code, new = changed(source, *others)
        assert new == source
        assert "one call of map makes several stages" in code.text


def test_what_one_call_made_several_times_is_told_in_words() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            for each in (f, g):
                ds = ds.map(each)
            return ds.batch(2)
        """)
    code, new = changed(
        source,
        SetArgument(stage=1, argument="num_parallel_calls", value=-1),
        InsertAfter(stage=3, method="prefetch", arguments={"buffer_size": -1}),
    )
    assert new == source
    assert "Write `.prefetch(tf.data.AUTOTUNE)` behind `batch`" in code.text
    assert "one call of map makes several stages" in code.text
    assert "`num_parallel_calls=tf.data.AUTOTUNE`" in code.text


def test_a_call_in_a_library_is_told_in_words() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).map(f)\n")
    inspection = inspected(source)
    fix = fix_of(InsertAfter(stage=1, method="cache"))
    for texts in ({}, {FILE: "def broken(:"}, {FILE: "x = 1\n" * 9}):
        code = change(texts, inspection, fix)
        assert code.diff is None
        assert "Write `.cache()` behind `map`" in code.text


def test_a_flat_map_becomes_an_interleave() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).flat_map(f).batch(2)\n")
    _, new = changed(source, Interleave(stage=1, cycle_length=4))
    assert ".interleave(f, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE).batch(2)" in new


def test_a_fix_of_which_a_part_is_more_than_a_call_is_told_in_words_as_a_whole() -> None:
    source = written(WAYS["one line"])
    cache = InsertAfter(stage=2, method="cache")
    code, new = changed(source, BatchInGenerator(generator=0, batch=2), cache, OffloadToService())
    assert new == source
    assert "Write `.cache()` behind `batch`" in code.text
    assert "gather whole batches" in code.text
    assert "leave `batch` (train.py:5) out" in code.text
    assert "1 tf.data service worker" in code.text


def test_a_service_of_the_users_comes_behind_its_stage_and_in_front_of_the_next() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).map(f).batch(2)\n")
    edit = DistributeToService(stage=1, dispatcher="grpc://store:5000", processing_mode="DYNAMIC")
    _, new = changed(source, edit)
    assert (
        ".map(f).apply(tf.data.experimental.service.distribute(processing_mode="
        'tf.data.experimental.service.ShardingPolicy.DYNAMIC, service="grpc://store:5000")).batch(2)'
    ) in new


def test_handing_over_to_the_device_stays_last() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).map(f).batch(2)\n")
    _, new = changed(source, PrefetchToDevice(), InsertAfter(stage=2, method="prefetch", arguments={"buffer_size": -1}))
    assert calls(new)[-2:] == [("prefetch", -1), ("apply", ("to", "/GPU:0"))]


def test_the_options_are_set_before_the_sinks_statement() -> None:
    source = written("""
        def make_dataset():
            options = 3
            ds = tf.data.Dataset.range(9).map(f)
            return ds.batch(2)
        """)
    _, new = changed(source, SetOptions(options={"deterministic": False, "threading.max_intra_op_parallelism": 1}))
    assert new.endswith(
        "    data_options = tf.data.Options()\n"
        "    data_options.deterministic = False\n"
        "    data_options.threading.max_intra_op_parallelism = 1\n"
        "    return ds.batch(2).with_options(data_options)\n"
    )


PIECES = st.lists(
    st.sampled_from(["", " ", "\n", "\n    ", "  # a) comment.x\n  ", "\n\n  # (two\n  # lines\n  "]),
    min_size=4,
    max_size=4,
)


@given(PIECES, PIECES, st.sampled_from(["f", "f,", "(f)", "\n        f,\n    ", "f  # it)\n", "map_func=f"]))
def test_any_layout_gives_the_same_calls_or_words(before: list[str], inside: list[str], function: str) -> None:
    source = FUNCTIONS + (
        "def make_dataset():\n  return (tf.data.Dataset.range(9)"
        f"{before[0]}.map({inside[0]}{function}){before[1]}.batch({inside[1]}2{inside[2]}){before[2]})\n"
    )
    edits: tuple[Edit, ...] = (
        SetArgument(stage=1, argument="num_parallel_calls", value=-1),
        MoveBefore(stage=2, other=1),
        InsertAfter(stage=1, method="prefetch", arguments={"buffer_size": -1}),
    )
    code, new = changed(source, *edits)
    given_as = ("map_func", "f") if "map_func" in function else "f"
    moved = [SOURCE, BATCH, ("map", given_as, ("num_parallel_calls", -1)), ("prefetch", -1)]
    if code.diff is None:
        assert "no diff" in code.text
        assert "#" in source, "a comment alone is in the way of a diff"
    else:
        assert calls(new) == moved
        assert new.count("#") == source.count("#"), "no comment is lost"


def test_only_the_statement_that_says_nothing_any_more_is_left_out() -> None:
    source = written("""
        def make_dataset(some=True):
            # numbers
            ds = tf.data.Dataset.range(9); ds = ds.map(f); ds = ds.cache()
            # mixed
            ds = ds.shuffle(3) if some else ds
            return ds.batch(2)
        """)
    _, new = changed(source, Remove(stage=2), Remove(stage=3))
    assert "    ds = tf.data.Dataset.range(9); ds = ds.map(f)\n" in new
    assert calls(new) == [SOURCE, MAP, BATCH]
    assert "if some" not in new
    _, new = changed(source, Remove(stage=1))
    assert calls(new) == [SOURCE, ("cache",), ("shuffle", 3), BATCH]
    _, new = changed(source.replace("if some", "if print or next(some)"), Remove(stage=3))
    assert "    ds = ds if print or next(some) else ds\n" in new


def test_what_does_not_change_keeps_its_blank_lines_and_comments() -> None:
    source = written("""
        def make_dataset():
            return (
                (
                    tf.data.Dataset.range(9)

                    # decode
                    .map(f)  # slow
                )

                .batch(2)  # pairs
            ).cache()
        """)
    _, new = changed(source, InsertAfter(stage=2, method="prefetch", arguments={"buffer_size": -1}))
    assert new == source.replace("# pairs\n", "# pairs\n        .prefetch(tf.data.AUTOTUNE)\n")
    _, new = changed(source, InsertAfter(stage=3, method="repeat"), InsertAfter(stage=1, method="cache"))
    assert new == source.replace("# slow\n", "# slow\n            .cache()\n").replace(
        ").cache()", ").cache().repeat()"
    )


AUGMENTED = """
import os


def load(path):
    \"\"\"Decode and flip.\"\"\"
    image = path * 2  # decoded
    # and flipped
    return image, os.sep


def make_dataset():
    ds = tf.data.Dataset.range(9).shuffle(9)
    ds = ds.map({})  # dear
    return ds.batch(2)
"""
DIVIDED = (DivideMap(stage=2, after=0, statements=1), InsertAfter(stage=0, method="cache"))


def test_a_map_is_divided_by_two_definitions_behind_its_function_and_a_cache_between_them() -> None:
    code, new = changed(AUGMENTED.format("load"), *DIVIDED)
    assert (
        new
        == """
import os


def load(path):
    \"\"\"Decode and flip.\"\"\"
    image = path * 2  # decoded
    # and flipped
    return image, os.sep


def load_fixed(path):
    image = path * 2  # decoded
    return image


def load_random(image):
    # and flipped
    return image, os.sep


def make_dataset():
    ds = tf.data.Dataset.range(9).map(load_fixed, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(9)
    ds = ds.map(load_random)  # dear
    return ds.batch(2)
"""
    )
    assert code.text == ""
    assert calls(new) == [
        ("range", 9),
        ("map", "load_fixed", ("num_parallel_calls", -1)),
        ("cache",),
        ("shuffle", 9),
        ("map", "load_random"),
        ("batch", 2),
    ]


def divided_across(*lines: str) -> str:
    functions = f"size = 3\n{FUNCTIONS}{AUGMENTED.partition('    ds =')[0]}"
    return functions + "".join(f"    {line}\n" for line in (*lines, "ds = ds.map(load)", "return ds.batch(2)"))


@pytest.mark.parametrize(("ahead", "shuffled"), TWO_WAYS)
def test_a_map_is_divided_across_a_shuffle_that_a_condition_decides_on(ahead: str, shuffled: str) -> None:
    source, after = divided_across(f"ds = tf.data.Dataset.range(9){ahead}", shuffled), 1 if ahead else 0
    divided = DivideMap(stage=after + 2, after=after, statements=1), InsertAfter(stage=after, method="cache")
    code, new = changed(source, *divided)
    assert code.text == ""
    front = [SOURCE, *([("take", 8)] if ahead else []), ("map", "load_fixed", ("num_parallel_calls", -1)), ("cache",)]
    assert calls(new) == [*front, ("shuffle", 9), ("map", "load_random"), BATCH]
    assert calls(new.replace("size = 3", "size = 0")) == [*front, ("map", "load_random"), BATCH]


@pytest.mark.parametrize("behind", [(), ("ds = ds.map(str)",)])
def test_the_first_part_of_a_map_comes_behind_each_arm_in_front_of_it(behind: tuple[str, ...]) -> None:
    arms, last = ("if size:", "    ds = ds.map(f)", "else:", "    ds = ds.map(g)"), 2 + len(behind)
    source = divided_across("ds = tf.data.Dataset.range(9)", SHUFFLED_IF[1], *arms, *behind)
    moves = [MoveBefore(stage=each, other=1) for each in range(2, last + 1)]
    divided = DivideMap(stage=last + 1, after=last, statements=1), InsertAfter(stage=last, method="cache")
    code, new = changed(source, *moves, *divided)
    assert code.text == ""
    more = [("map", "str") for _ in behind]
    halves = [("map", "load_fixed", ("num_parallel_calls", -1)), ("map", "load_random")]
    assert calls(new) == [SOURCE, MAP, *more, halves[0], ("cache",), ("shuffle", 9), halves[1], BATCH]
    assert calls(new.replace("size = 3", "size = 0")) == [SOURCE, ("map", "g"), *more, *halves, BATCH]


def test_a_map_of_one_side_is_not_divided_as_its_first_part_would_run_for_the_other_too() -> None:
    source = divided_across("ds = tf.data.Dataset.range(9).map(f)", SHUFFLED_IF[0])
    source = source.replace("ds = ds.map(load)", "ds = ds.map(load) if size else ds")
    code, _ = changed(source, DivideMap(stage=3, after=1, statements=1), InsertAfter(stage=1, method="cache"))
    assert code.diff is None
    assert "in different blocks" in code.text


def test_a_map_is_not_divided_behind_an_arm_that_has_no_other() -> None:
    arm = ("if size:", "    ds = ds.map(f)")
    source = divided_across("ds = tf.data.Dataset.range(9)", SHUFFLED_IF[1], *arm)
    code, _ = changed(source, MoveBefore(stage=2, other=1), DivideMap(stage=3, after=2, statements=1))
    assert code.diff is None
    assert "in different blocks" in code.text


@pytest.mark.parametrize("shuffled", SHUFFLED_IF[:2])
@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ("total = ds.reduce(0, f)", "ds has other uses"),
        ("rows = 4", "rows is set between"),
        ("sorted([])", "sorted is called between"),
    ],
)
def test_a_map_is_not_divided_across_a_condition_and_what_may_change_or_read_it(
    between: str, reason: str, shuffled: str
) -> None:
    source = divided_across("ds = tf.data.Dataset.range(9)", shuffled, between)
    code, _ = changed(source, DivideMap(stage=number(source, "map"), after=0, statements=1))
    assert code.diff is None
    assert reason in code.text


def test_lambdas_give_the_halves_of_what_a_lambda_calls_what_is_the_same_for_all_elements() -> None:
    source = AUGMENTED.format("lambda path: load(path, 2)")
    source = source.replace("def load(path)", "def load(path, times, flips=False)").replace("path * 2", "path * times")
    code, new = changed(source.replace("return image, os.sep", "return image, flips"), *DIVIDED)
    assert code.text == ""
    assert "def load_fixed(path, times):\n    image = path * times  # decoded\n    return image\n" in new
    assert "def load_random(image, flips):\n    # and flipped\n    return image, flips\n" in new
    first = ".map(lambda path: load_fixed(path, times=2), num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(9)\n"
    assert f"    ds = tf.data.Dataset.range(9){first}" in new
    assert "    ds = ds.map(lambda image: load_random(image, flips=False))  # dear\n" in new


def test_a_map_moves_in_front_of_a_shuffle_with_the_first_part_of_the_next_one_whose_lambda_hands_elements_on() -> None:
    functions = AUGMENTED.partition("def make_dataset")[0].replace("def load(path)", "def load(path, flips=False)")
    source = f"""{functions}def parse(record):
    return record, 1


def make_dataset(augment=True):
    ds = tf.data.Dataset.range(9).cache().repeat().shuffle(9)
    ds = ds.map(parse, num_parallel_calls=2)
    ds = ds.map(lambda image, label: (load(image, flips=augment), label), num_parallel_calls=2)
    return ds.batch(2)
"""
    source = source.replace("return image, os.sep", "return image, flips")
    code, new = changed(
        source,
        MoveBefore(stage=4, other=2),
        DivideMap(stage=5, after=4, statements=1),
        InsertAfter(stage=4, method="cache"),
    )
    assert code.text == ""
    assert "def load_random(image, flips):\n    # and flipped\n    return image, flips\n" in new
    first = ".map(lambda path, label: (load_fixed(path), label), num_parallel_calls=tf.data.AUTOTUNE).cache()"
    parsed = "    ds = tf.data.Dataset.range(9).cache().map(parse, num_parallel_calls=2)"
    assert f"{parsed}{first}.repeat().shuffle(9)\n" in new
    assert "ds.map(lambda image, label: (load_random(image, flips=augment), label), num_parallel_calls=2)\n" in new
    ran = calls(new)
    assert [each[0] for each in ran] == ["range", "cache", "map", "map", "cache", "repeat", "shuffle", "map", "batch"]


@pytest.mark.parametrize("shuffled", ["ds = ds.shuffle(9).repeat()", "ds = ds.shuffle(9).repeat() if size else ds"])
def test_a_filter_moves_in_front_of_a_shuffle_between_the_maps_that_move_too(shuffled: str) -> None:
    body = f"""
        size = 3
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            {shuffled}
            ds = ds.map(f).filter(bool).map(g)
            return ds.batch(2)
        """
    moves = [MoveBefore(stage=number, other=1) for number in (3, 4, 5)]
    code, new = changed(written(body), *moves, InsertAfter(stage=5, method="cache"))
    assert code.text == ""
    assert calls(new) == [
        SOURCE, MAP, ("filter", "bool"), ("map", "g"), ("cache",), ("shuffle", 9), ("repeat",), BATCH,
    ]  # fmt: skip


LOADER = """
class Loader:
    times = 2

    def load(self, path):
        image = path * self.times
        return image, 1

    def make(self):
        ds = tf.data.Dataset.range(9).shuffle(9)
        return ds.map(self.load).batch(2)


def make_dataset():
    return Loader().make()
"""


def test_a_method_gets_two_more_beside_it() -> None:
    code, new = changed(LOADER, *DIVIDED)
    assert code.text == ""
    halves = """
    def load_fixed(self, path):
        image = path * self.times
        return image

    def load_random(self, image):
        return image, 1
"""
    expected = LOADER.replace("        return image, 1\n", f"        return image, 1\n{halves}")
    mapped = ".map(self.load_fixed, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(9)"
    assert new == expected.replace(".shuffle(9)", mapped).replace(".map(self.load)", ".map(self.load_random)")
    assert [each[1] for each in calls(new) if each[0] == "map"] == ["load_fixed", "load_random"]


@pytest.mark.parametrize("given", ["self.load(path)", "self.load(path=path)"])
def test_a_method_that_a_lambda_only_calls_gets_two_more_beside_it(given: str) -> None:
    code, new = changed(LOADER.replace(".map(self.load)", f".map(lambda path: {given})"), *DIVIDED)
    assert code.text == ""
    assert new == changed(LOADER, *DIVIDED)[1]


@pytest.mark.parametrize("given", ["self.load", "lambda path: self.load(path)"])
@pytest.mark.parametrize(
    ("old", "new", "made", "reason"),
    [
        (
            "def make_dataset",
            "class Other(Loader):\n    def load(self, path): return path\n\n\ndef make_dataset",
            "Loader().make()",
            "may be another one",
        ),
        ("def make(self)", "def make(loader, self)", "Loader().make(Loader())", "not given by another one of the same"),
        (
            "    def make(self)",
            "    times = 3\n\n\nclass Maker(Loader):\n    def make(self)",
            "Maker().make()",
            "not given by another one of the same",
        ),
        (
            "    def make(self)",
            "    def take(self, other):\n        self.load = other.load\n\n    def make(self)",
            "Loader().make()",
            "may be another one",
        ),
        (
            "image = path * self.times",
            "self.image = path\n        image = self.image",
            "Loader().make()",
            "it changes its object",
        ),
    ],
)
def test_a_method_that_another_object_may_have_is_not_divided(
    old: str, new: str, made: str, reason: str, given: str
) -> None:
    source = LOADER.replace(old, new).replace("Loader().make()", made).replace("self.load)", f"{given})")
    code, _ = changed(source, *DIVIDED)
    assert code.diff is None
    assert reason in code.text


@pytest.mark.parametrize(("times", "reason"), [("self.times", "self.size is called between"), ("2", "")])
def test_what_a_lambda_gives_the_first_half_may_not_change_in_calls_that_it_moves_above(
    times: str, reason: str
) -> None:
    source = LOADER.replace("load(self, path)", "load(self, path, times)").replace("path * self.times", "path * times")
    source = source.replace(".map(self.load)", f".map(lambda path: self.load(path, {times}))")
    size = "    def size(self):\n        self.times = 3\n        return 9\n\n    def make"
    code, _ = changed(source.replace("shuffle(9)", "shuffle(self.size())").replace("    def make", size), *DIVIDED)
    assert (code.diff is None) == bool(reason), code
    assert reason in code.text


def test_a_map_is_not_divided_in_front_of_what_others_read() -> None:
    for reader in ("", "    val = files.map(print)\n"):
        pipeline = f"    files = tf.data.Dataset.range(9)\n{reader}    return files.shuffle(3).map(load)\n"
        source = f"{AUGMENTED.split('    ds =', maxsplit=1)[0]}{pipeline}"
        number = 3 if reader else 2
        code, _ = changed(source, DivideMap(stage=number, after=0, statements=1))
        assert (code.diff is None) == bool(reader), code.text


def test_a_definition_within_a_function_has_its_halves_there_under_names_that_are_free() -> None:
    source = """
        def make_dataset():
            load_random = None
            scale = 2
            def load(x):
                y = x * scale
                if y > 3:
                    return y
                return x
            return tf.data.Dataset.range(9).map(load, num_parallel_calls=2)
        """
    _, new = changed(dedent(source), DivideMap(stage=1, after=0, statements=1))
    assert calls(new)[1:] == [
        ("map", "load_fixed_part", ("num_parallel_calls", -1)),
        ("map", "load_random_part", ("num_parallel_calls", 2)),
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("lambda path: load(path)", ""),
        ("lambda path: load(path + 1)", "does more than call one function"),
        ("lambda path: load(  # slow\n        path)", "its lambda has a comment in it"),
        ("(load)", ""),
        ("other", "not given by its name"),
    ],
)
def test_only_a_function_that_is_given_by_its_name_or_that_a_lambda_only_calls_is_divided(
    given: str, reason: str
) -> None:
    source = AUGMENTED.replace("import os", "import os\nother = lambda path: path").format(given)
    code, _ = changed(source, DivideMap(stage=2, after=0, statements=1))
    assert (code.diff is None) == bool(reason)
    assert reason in code.text


WRAPPED = AUGMENTED.replace(
    "def make_dataset", "def load_all(path):\n    # all\n    return load(path), 1\n\n\ndef make_dataset"
)
WITHIN = (DivideMap(stage=2, after=0, statements=1, within="load"), DIVIDED[1])


@pytest.mark.parametrize("given", ["load_all", "lambda path: load_all(path)"])
def test_a_map_of_a_wrapper_is_divided_within_the_function_that_it_calls(given: str) -> None:
    code, new = changed(WRAPPED.format(given), *WITHIN)
    assert code.text == ""
    assert (
        """
def load_fixed(path):
    image = path * 2  # decoded
    return image


def load_random(image):
    # and flipped
    return image, os.sep


def load_all(path):
    # all
    return load(path), 1


def load_all_fixed(path):
    image = load_fixed(path)
    return image


def load_all_random(image):
    return load_random(image), 1


def make_dataset():
    ds = tf.data.Dataset.range(9).map(load_all_fixed, num_parallel_calls=tf.data.AUTOTUNE).cache().shuffle(9)
    ds = ds.map(load_all_random)  # dear
"""
        in new
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("import os", "import os\nload = print", "load, which its function calls, may be another function"),
        ("def load_all(path):", "def load_all(path, load=load):", "its parameters are not all plain names"),
        ("load(path), 1", "load(path + 1), 1", "its function has changed"),
    ],
)
def test_a_map_of_a_wrapper_of_anything_else_is_not_divided(old: str, new: str, reason: str) -> None:
    code, _ = changed(WRAPPED.format("load_all").replace(old, new), *WITHIN)
    assert code.diff is None
    assert reason in code.text


MADE = """
def loader(times):
    def load(path):
        image = path * times
        return image, 1
    return load


def make_dataset():
    return tf.data.Dataset.range(9).shuffle(9).map(loader(2)).batch(2)
"""


@pytest.mark.parametrize(
    ("within", "divided"),
    [
        ("", "the function of `map(load)` (train.py:10)"),
        ("decode", "decode, which the function of `map(load)` (train.py:10) calls,"),
    ],
)
def test_what_to_divide_of_a_function_that_a_call_makes_and_behind_which_line_is_told(
    within: str, divided: str
) -> None:
    edit = DivideMap(stage=2, after=0, statements=1, within=within, up_to="line 4 of train.py")
    code, _ = changed(MADE, edit)
    assert code.diff is None
    assert code.text == (
        f"Divide {divided} behind line 4 of train.py, before it draws random numbers, and map the first part behind "
        "`range` (train.py:10) (no diff: its function is not given by its name)."
    )


LOADING = """
def load(path):
    image = path * 2
    return image, 1
"""


@pytest.mark.parametrize(
    ("imported", "given", "loading", "reason"),
    [
        ("from loading import load", "load", LOADING, ""),
        ("from loading import load as decode", "decode", LOADING, ""),
        ("import loading", "loading.load", LOADING, ""),
        ("from package import load", "load", LOADING, "imported from another module than loading.py"),
        ("import package", "package.load", LOADING, "imported from another module than loading.py"),
        ("from package.loading import load", "load", LOADING, "imported from another module than loading.py"),
        ("__package__ = 'package'\nfrom .loading import load", "load", LOADING, ""),
        ("__package__ = 'package'\nfrom . import loading", "loading.load", LOADING, ""),
        ("__package__ = 'package'\nfrom . import load", "load", LOADING, "imported from another module than"),
        ("def setup():\n    global load\n    from loading import load\nsetup()", "load", LOADING, "sets a variable of"),
        ("from loading import load\nfrom package import *", "load", LOADING, "an import of all names"),
        ("from loading import load\nmade = load", "made", LOADING, "not given as an import names it"),
        ("from loading import load\nload = load", "load", LOADING, "not given as an import names it"),
        ("from loading import load; x = 1", "(load if x else 0)", LOADING, "not given as an import names it"),
        ("from loading import load", "load", f"load = 1\n{LOADING}", "not the only load of loading.py"),
        ("import loading; from loading import load", "load", LOADING, "does not begin a line"),
        ("from loading import load", "load", None, "loading.py is not yours or has changed"),
    ],
)
def test_a_function_of_another_file_is_divided_where_an_import_alone_names_it(
    imported: str, given: str, loading: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, file = ModuleType("loading"), "/home/user/loading.py"
    exec(compile(loading or LOADING, file, "exec"), vars(module))
    vars(module)["loading"] = module
    for name in ("loading", "package", "package.loading"):
        monkeypatch.setitem(sys.modules, name, module)
    source = f"{imported}\n{AUGMENTED.partition('def load')[0]}def make_dataset():\n"
    source += f"    return tf.data.Dataset.range(9).shuffle(9).map({given}).batch(2)\n"
    inspection = inspected(source, functions=True)
    stages = list(inspection.stages)
    line = module.__dict__["load"].__code__.co_firstlineno
    function = UserFunction(name="load", file=file, line=line, module="loading")
    stages[2] = stages[2].model_copy(update={"function": function})
    texts = {FILE: source} if loading is None else {FILE: source, file: loading}
    code = change(texts, Inspection(stages=tuple(stages), sink=inspection.sink), fix_of(*DIVIDED))
    assert (code.diff is None) == bool(reason), code
    assert reason in code.text
    assert reason or "+++ b/loading.py\n" in (code.diff or "")


def test_a_map_is_not_divided_across_what_sets_a_variable_of_its_lambda() -> None:
    lines = (
        "raw = tf.data.Dataset.range(9)",
        "ds = raw.take(8)",
        "raw = 5",
        "ds = ds.map(lambda path: load(path, raw))",
    )
    source = AUGMENTED.partition("    ds =")[0].replace("def load(path)", "def load(path, times)")
    source += "".join(f"    {line}\n" for line in (*lines, "return ds"))
    code, _ = changed(source.replace("path * 2", "path * times"), DivideMap(stage=2, after=1, statements=1))
    assert code.diff is None
    assert "raw is set between the two calls" in code.text


def test_what_is_put_behind_one_stage_stands_in_the_order_of_the_edits() -> None:
    edits = [InsertAfter(stage=1, method=method) for method in ("cache", "prefetch", "repeat")]
    _, new = changed(written(WAYS["one line"]), *edits)
    assert [each[0] for each in calls(new)] == ["range", "map", "cache", "prefetch", "repeat", "batch"]


def test_a_function_that_parses_nothing_itself_is_changed_in_words() -> None:
    source = WAYS["one line"]
    code, _ = changed(written(source), ParseBatch(stage=1))
    assert code.diff is None
    assert "write `tf.io.parse_example` for `tf.io.parse_single_example` (no diff: " in code.text


CACHE, PREFETCH = (InsertAfter(stage=1, method=method) for method in ("cache", "prefetch"))
THREADS = SetArgument(stage=1, argument="num_parallel_calls", value=8)
UNSHARED_CACHE = CACHE.model_copy(update={"stage": 0})


@pytest.mark.parametrize(
    ("shared", "written_out", "in_words"),
    [
        (
            "alike",
            [THREADS, PREFETCH, CACHE, MoveBefore(stage=2, other=1)],
            [KeepSamples(stage=1, batch_size=2, buffer_size=9)],
        ),
        ("fixed", [THREADS, PREFETCH, CACHE, UNSHARED_CACHE], [MoveBefore(stage=2, other=1), Remove(stage=1)]),
        ("varying", [THREADS, PREFETCH, UNSHARED_CACHE], [CACHE, MoveBefore(stage=2, other=1), Vectorize(stage=1)]),
        (True, [UNSHARED_CACHE], [THREADS, PREFETCH, CACHE, Interleave(stage=1, cycle_length=4)]),
    ],
)
def test_a_call_that_makes_another_dataset_otherwise_too_is_changed_only_by_what_is_right_for_both(
    shared: Any, written_out: list[Edit], in_words: list[Edit]
) -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).map(f).batch(2)\n")
    inspection = with_stage(inspected(source), 1, shared=shared)
    for edit in (*written_out, *in_words):
        code = change({FILE: source}, inspection, fix_of(edit))
        assert (code.diff is not None) == (edit in written_out), edit
        assert edit in written_out or "the call of map also makes another dataset, with which it was not" in code.text


@pytest.mark.parametrize("shared", ["varying", True])
def test_options_are_written_behind_a_call_that_makes_another_dataset_too_if_they_are_right_for_both(
    shared: Any,
) -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).batch(2)\n")
    inspection = with_stage(inspected(source), 1, shared=shared)
    threads = SetOptions(options={"threading.private_threadpool_size": 8})
    filters = SetOptions(options={"experimental_optimization.filter_parallelization": True})
    for edit, is_diff in ((threads, shared == "varying"), (filters, False), (PrefetchToDevice(), False)):
        assert (change({FILE: source}, inspection, fix_of(edit)).diff is not None) == is_diff


@pytest.mark.parametrize("others_go_on", [False, True])
def test_batches_are_put_onto_the_device_by_a_line_that_ends_all_of_its_datasets(others_go_on: bool) -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).batch(2)\n")
    inspection = with_stage(inspected(source), 1, shared="alike", others_go_on=others_go_on)
    code = change({FILE: source}, inspection, fix_of(PrefetchToDevice()))
    assert (code.diff is None) == others_go_on


@pytest.mark.parametrize(
    ("given", "body", "reason"),
    [
        ("lambda path: load(path, training)", "image = path * 2", ""),
        ("lambda path: load(path, training=training)", "image = path * 2", ""),
        ("lambda path: load(path, training)", "image = path * 2 if training else path", "not tried"),
        ("lambda path: load(path, True)", "image = path * 2", "not tried"),
        ("lambda path: load(path, training, SIZE)", "image = path * size", "not tried"),
    ],
)
def test_a_map_whose_call_makes_another_dataset_too_is_divided_only_if_its_first_half_is_the_same_there(
    given: str, body: str, reason: str
) -> None:
    source = (
        AUGMENTED.format(given).replace("image = path * 2 ", f"{body} ").replace("(path):", "(path, training, size=2):")
    )
    source = source.replace("return image, os.sep", "return image, training").replace(
        "make_dataset()", "make(training)"
    )
    source = source.replace("import os", "SIZE = 3") + "\ndef make_dataset():\n    return make(True)\n"
    looked = with_stage(inspected(source, functions=True), 2, shared="varying")
    code = change({FILE: source}, looked, fix_of(*DIVIDED))
    assert (code.diff is None) == bool(reason)
    assert reason in code.text


@pytest.mark.parametrize(("shared", "is_diff"), [("alike", True), ("fixed", True), ("varying", False)])
def test_the_first_half_of_a_function_is_kept_only_where_nothing_in_front_of_it_varies_in_the_other_dataset(
    shared: Any, is_diff: bool
) -> None:
    source = AUGMENTED.format("load")
    looked = with_stage(inspected(source, functions=True), 0, shared=shared)
    code = change({FILE: source}, looked, fix_of(*DIVIDED))
    assert (code.diff is not None) == is_diff, code.text


def test_the_same_calls_for_another_pipeline_are_named() -> None:
    source = written("""
        def decode(*x): return ('decode', x)
        def make_dataset():
            train = tf.data.Dataset.range(9).map(decode, num_parallel_calls=2).batch(2)
            val = tf.data.Dataset.range(5).map(f).batch(2)
            return train
        def second():
            test = (
                tf.data.Dataset.range(4)
                .map(decode,
                     num_parallel_calls=2)  # as above
                .batch(2)
            )
            other = tf.data.Dataset.range(4).map(decode).batch(2)
            return test.repeat()
        """)
    recorder = Recorder(functions=True)
    sink = recorder.run(source)
    recorder.stages = recorder.stages[:3]
    looked = recorder.inspection(sink)
    for edit, alike in (
        (SetArgument(stage=1, argument="num_parallel_calls", value=8), ("train.py:10",)),
        (MoveBefore(stage=2, other=1), ("train.py:10",)),
        (SetArgument(stage=0, argument="name", value="rows"), ()),
    ):
        code = change({FILE: source}, looked, fix_of(edit))
        assert code.diff
        assert code.alike == alike


def test_the_same_statements_for_another_pipeline_are_named() -> None:
    """A call of a method that stands in any pipeline is the same work only behind the same map."""
    source = written("""
        def decode(*x): return ('decode', x)
        def make_dataset():
            train = tf.data.Dataset.range(9)
            train = train.map(decode)
            train = train.batch(2)
            return train
        def second():
            val = tf.data.Dataset.range(4)
            val = val.map(decode)
            val = val.batch(2)
            other = val.map(f)
            other = other.batch(2)
            other = other.batch(2)
            return other
        """)
    looked = inspected(source, functions=True)
    code = change({FILE: source}, looked, fix_of(InsertAfter(stage=2, method="cache")))
    assert code.diff
    assert code.alike == ("train.py:13",)


def test_what_a_librarys_function_makes_is_changed_in_words() -> None:
    source = written("def make_dataset():\n    return tf.data.Dataset.range(9).map(f)\n")
    looked, fix = with_stage(inspected(source), 1, method="shuffle"), fix_of(Remove(stage=1))
    code = change({FILE: source}, looked, fix)
    assert code.diff is None
    assert "(no diff: a library's function, called in line 4, makes shuffle)" in code.text
    code = change({FILE: source}, with_stage(looked, 1, shared=True), fix)
    assert "a library's function" in code.text


def of_one_call(method: str, *, shuffled: bool = True, batched_last: bool = True) -> dict[str, Any]:
    """A file with one call of a library's function, and an inspection of what that made: names, map, batch, prefetch.

    The call is of the method in the file; the stages stand where it stands.
    """
    source = f"def make_dataset():\n    return keras.utils.{method}(\n        'data', batch_size=32)\n"
    place = Location(file=FILE, line=2, end_line=3, column=11, end_column=30)
    calls: list[tuple[str, dict[str, Any]]] = [("from_tensor_slices", {})]
    calls += [("shuffle", {"buffer_size": 256})] if shuffled else []
    calls += [("map", {}), ("batch", {"batch_size": 32})] if batched_last else [("batch", {}), ("map", {})]
    calls += [("prefetch", {})]
    stages = tuple(
        Stage(id=number, method=name, arguments=arguments, inputs=(number - 1,) if number else (), place=place)
        for number, (name, arguments) in enumerate(calls)
    )
    looked = Recorder().inspection(Recorder().run(written("def make_dataset():\n    return tf.data.Dataset.range(9)")))
    return {"source": source, "looked": looked.model_copy(update={"stages": stages, "sink": len(stages) - 1})}


def said_of(made: dict[str, Any], *edits: Edit) -> str:
    code = change({FILE: made["source"]}, made["looked"], fix_of(*edits))
    assert code.diff is None
    return code.text


def test_within_a_reader_of_a_folder_the_words_say_what_stands_behind_its_samples() -> None:
    made = of_one_call("image_dataset_from_directory")
    kept = (MoveBefore(stage=2, other=1), InsertAfter(stage=2, method="cache"))
    text = said_of(made, *kept, SetOptions(options={"threading.max_intra_op_parallelism": 1}))
    assert (
        "`image_dataset_from_directory` (train.py:2) makes these stages in one call: give it `batch_size=None`" in text
    )
    assert "`.cache().shuffle(256).batch(32).prefetch(tf.data.AUTOTUNE)` directly behind that call" in text
    assert "options.threading.max_intra_op_parallelism = 1" in text
    assert "Move" not in text
    assert "A script that reads its `class_names` does so before that" in text
    parallel = SetArgument(stage=3, argument="num_parallel_calls", value=AUTOTUNE)
    assert "`.batch(32, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)`" in said_of(made, parallel)
    plain = of_one_call("audio_dataset_from_directory", shuffled=False)
    assert "`.cache().batch(32).prefetch(tf.data.AUTOTUNE)`" in said_of(plain, InsertAfter(stage=1, method="cache"))


@pytest.mark.parametrize("edits", [(SetArgument(stage=2, argument="num_parallel_calls", value=4),), (Remove(stage=1),)])
def test_within_a_reader_what_its_samples_do_not_give_is_said_as_of_any_library(edits: tuple[Edit, ...]) -> None:
    assert "no diff: a library's function" in said_of(of_one_call("image_dataset_from_directory"), *edits)


def test_what_comes_behind_all_that_a_library_made_stands_behind_its_call() -> None:
    text = said_of(of_one_call("load_pictures", shuffled=False), InsertAfter(stage=3, method="cache"))
    assert text == "Write `.cache()` behind the dataset that `load_pictures` (train.py:2) returns."
    inside = said_of(of_one_call("load_pictures", shuffled=False), InsertAfter(stage=1, method="cache"))
    assert "no diff: a library's function, called in line 2, makes map" in inside


def test_of_a_call_that_returns_several_datasets_the_one_of_the_training_is_meant() -> None:
    """`.cache()` behind `tfds.load(…)` itself fails, where that is given two splits."""
    made = of_one_call("load_pictures", shuffled=False)
    place = {"text": "(train, test), info = tfds.load('mnist', split=['train', 'test'],"}
    stages = [each.model_copy(update={"place": each.place.model_copy(update=place)}) for each in made["looked"].stages]
    made["looked"] = made["looked"].model_copy(update={"stages": tuple(stages)})
    text = said_of(made, InsertAfter(stage=3, method="cache"))
    assert text.startswith("Write `.cache()` behind the dataset of this training, of those that `load_pictures`")


def test_what_keeps_elements_in_front_of_a_librarys_last_prefetch_stands_behind_its_call_with_a_prefetch() -> None:
    made = of_one_call("make_csv_dataset", batched_last=False)
    text = said_of(made, InsertAfter(stage=3, method="cache"))
    assert text == (
        "Write `.cache().prefetch(tf.data.AUTOTUNE)` behind the dataset that `make_csv_dataset` (train.py:2) returns."
    )
    kept = said_of(made, KeepSamples(stage=3, batch_size=32, buffer_size=256))
    assert "Write `.unbatch().cache().shuffle(256).batch(32).prefetch(tf.data.AUTOTUNE)` behind the dataset" in kept
    assert "no diff" in said_of(made, InsertAfter(stage=3, method="repeat"))


def test_what_fit_maps_itself_is_to_be_mapped_before_it() -> None:
    text = said_of(of_one_call("fit", batched_last=False), InsertAfter(stage=3, method="cache"))
    assert text.startswith(
        "`fit` (train.py:2) maps the dataset itself. Map it before that call, write "
        "`.cache().prefetch(tf.data.AUTOTUNE)` behind the map, and keep the model from mapping it again."
    )
    assert "`.map(model.preprocessor, num_parallel_calls=tf.data.AUTOTUNE).cache().prefetch(tf.data.AUTOTUNE)`" in text
    assert text.endswith("and `model.preprocessor = None` during that `fit` alone.")


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("to_tf_dataset", "What it takes is `num_workers`"),
        ("prepare_tf_dataset", "What the data's own `to_tf_dataset` takes, which it calls, is `num_workers`"),
    ],
)
def test_to_tf_dataset_is_given_workers_and_no_parallel_calls_which_it_does_not_take(name: str, takes: str) -> None:
    made = of_one_call(name)
    text = said_of(made, SetArgument(stage=2, argument="num_parallel_calls", value=AUTOTUNE))
    assert text.startswith(
        f"`{name}` (train.py:2) makes these stages in one call, which takes no `num_parallel_calls`. {takes}"
    )
    assert "no diff: a library's function" in said_of(made, Remove(stage=1))


def test_what_a_librarys_function_makes_in_an_apply_is_that_call() -> None:
    source = written("""
        def dense_to_ragged_batch(size): return size
        def make_dataset():
            return tf.data.Dataset.range(9).map(f).apply(dense_to_ragged_batch(2))
        """)
    looked = inspected(source)
    line = len(source.splitlines())
    place = Location(file=FILE, line=line, end_line=line, end_column=len(source.splitlines()[-1]))
    batch = Stage(id=2, method="ragged_batch", inputs=(1,), place=place)
    looked = looked.model_copy(update={"stages": (*looked.stages, batch), "sink": 2})
    expected: dict[str, Edit] = {
        "map(f).apply(dense_to_ragged_batch(2)).cache()": InsertAfter(stage=2, method="cache"),
        "map(f)": Remove(stage=2),
        "a function that is given to `apply` makes it": SetArgument(stage=2, argument="drop_remainder", value=True),
    }
    for text, edit in expected.items():
        code = change({FILE: source}, looked, fix_of(edit))
        if code.diff is None:
            assert text in code.text
        else:
            assert patched(source, code.diff).splitlines()[-1] == f"    return tf.data.Dataset.range(9).{text}"


PARTS = "def load(path):\n    image = path * 2\n    return image, 1\n"
NOT_DIVIDED = {
    "image is set between": """
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.shuffle(9)
            size = 3
            def load(path):
                image = path * size
                return image, 1
            ds = ds.map(load)
            return ds.batch(2)
        """,
    "self.configure is called between": """
        class Loader:
            def configure(self):
                self.times = 3
            def load(self, path):
                image = path * self.times
                return image, 1
            def make(self):
                ds = tf.data.Dataset.range(9)
                ds = ds.shuffle(9)
                self.configure()
                ds = ds.map(self.load)
                return ds.batch(2)

        def make_dataset():
            return Loader().make()
        """,
    "setup is called between": """
        class Sizes: pass
        sizes = Sizes()
        def setup():
            sizes.own = 3
        def load(path, size):
            image = path * size
            return image, 1
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            ds = ds.shuffle(9)
            setup()
            ds = ds.map(lambda path: load(path, sizes.own))
            return ds.batch(2)
        """,
    "load may be another function": PARTS
    + """
def build(load):
    ds = tf.data.Dataset.range(9)
    ds = ds.shuffle(9)
    return ds.map(load).batch(2)

def make_dataset():
    return build(load)
""",
}


@pytest.mark.parametrize(("reason", "source"), NOT_DIVIDED.items(), ids=NOT_DIVIDED)
def test_a_function_that_is_not_there_at_the_first_call_or_may_be_another_is_not_divided(
    reason: str, source: str
) -> None:
    """The diff called load_fixed four statements above its definition, or ignored what another caller gives."""
    code, _ = changed(dedent(source), *DIVIDED)
    assert code.diff is None
    assert f"(no diff: {reason}" in code.text


BETWEEN = """
class Vectorizer:
    def adapt(self, texts): pass
    def __call__(self, text): return text

vectorizer = Vectorizer()
sizes = iter([2, 3, 4])
def peek(): return ds

def make_dataset():
    global ds
    ds = tf.data.Dataset.range(9)
    ds = ds.{first}
    {between}
    ds = ds.{second}
    return ds
"""


@pytest.mark.parametrize(
    ("first", "between", "second", "moves"),
    [
        ("shuffle(9)", "vectorizer.adapt([])", "map(vectorizer)", False),
        ("shuffle(9)", "print(vectorizer)", "map(vectorizer)", True),
        ("shuffle(9)", "def later(): vectorizer.adapt([])", "map(vectorizer)", False),  # it is set between
        ("map(vectorizer)", "next(sizes)", "batch(next(sizes))", False),
        ("map(vectorizer)", "peek()", "batch(2)", False),
        ("map(vectorizer)", "print()", "batch(2)", True),
    ],
)
def test_a_call_does_not_move_above_what_changes_or_reads_what_it_uses(
    first: str, between: str, second: str, moves: bool
) -> None:
    code, new = changed(BETWEEN.format(first=first, between=between, second=second), MoveBefore(stage=2, other=1))
    assert (code.diff is not None) is moves, code.text
    if moves:
        assert [each[0] for each in calls(new)[1:]] == [second.partition("(")[0], first.partition("(")[0]]


def test_a_call_moves_between_statements_with_annotations() -> None:
    source = written("""
        def make_dataset():
            ds: object = tf.data.Dataset.range(9).map(f)
            ds = ds.batch(2)
            return ds
        """)
    _, new = changed(source, MoveBefore(stage=2, other=1))
    assert calls(new) == [SOURCE, BATCH, MAP]


def test_a_method_that_is_called_by_its_class_is_changed_in_words() -> None:
    source = written("""
        def make_dataset():
            ds = tf.data.Dataset.range(9)
            return tf.data.Dataset.map(ds, f)
        """)
    made = written(WAYS["one line"])
    inspection = inspected(made)
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "Dataset.map" in text)
    place = inspection.stages[1].place
    assert place is not None
    call = place.model_copy(update={"line": line, "end_line": line, "column": 11, "end_column": 11 + 26})
    edit = SetArgument(stage=1, argument="num_parallel_calls", value=-1)
    code = change({FILE: source}, with_stage(inspection, 1, place=call), fix_of(edit))
    assert code.diff is None
    assert "it is called as a function of its class" in code.text


TAKEN_OVER = """
    EPOCHS, SIZE, training = 3, 2, True
    def make_dataset():
        ds = tf.data.Dataset.range(9).shuffle(4)
        ds = ds.repeat(EPOCHS)
        ds = ds.batch(SIZE, drop_remainder=True)
        ds = ds.map(f)
        return ds
    """
REPEAT, BATCHES, MAPPED = "ds = ds.repeat(EPOCHS)", "ds = ds.batch(SIZE, drop_remainder=True)", "ds = ds.map(f)"


def keeping_samples(source: str, passes: int | None = 3) -> CodeChange:
    repeat, batch, mapped = (number(source, each) for each in ("repeat", "batch", "map"))
    keep = KeepSamples(stage=mapped, batch_size=2, buffer_size=4, passes=passes, drop_remainder=True)
    whole = SetArgument(stage=batch, argument="drop_remainder", value=False)
    return change_of(source, Remove(stage=repeat), whole, keep)


@pytest.mark.parametrize(
    ("count", "size", "passes", "call"),
    [
        ("EPOCHS", "SIZE", 3, ".repeat(EPOCHS).batch(SIZE, drop_remainder=True)"),
        ("count=2 * EPOCHS", "batch_size=SIZE // 1", 6, ".repeat(2 * EPOCHS).batch(SIZE // 1, drop_"),
        ("-EPOCHS // 3", "2", -1, ".repeat(-EPOCHS // 3).batch(2, drop_remainder=True)"),
        ("3", "2", 3, ".repeat(3).batch(2, drop_remainder=True)"),
        ("None", "2", None, ".repeat().batch(2, drop_remainder=True)"),
    ],
)
def test_behind_kept_samples_the_repeat_and_the_batch_have_the_variables_of_those_in_front(
    count: str, size: str, passes: int | None, call: str
) -> None:
    source = written(TAKEN_OVER).replace("repeat(EPOCHS)", f"repeat({count})").replace("SIZE, drop", f"{size}, drop")
    diff = keeping_samples(source, passes).diff
    assert diff is not None
    assert f"    ds = ds.map(f).unbatch().cache().shuffle(4){call}" in patched(source, diff)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (REPEAT, f"if training:\n        {REPEAT}", "different blocks"),
        (BATCHES, f"if training:\n        {BATCHES}", "different blocks"),
        ("9).shuffle(4)", "9)\n    if training:\n        ds = ds.shuffle(4)", "different blocks"),
        (REPEAT, f"{REPEAT} if training else ds", "ds has other uses"),
        (BATCHES, f"{BATCHES} if training else ds", "ds has other uses"),
        ("9).shuffle(4)", "9)\n    ds = ds.shuffle(4) if training else ds", "different places"),
        (MAPPED, f"{MAPPED} if training else ds", "ds has other uses"),
        (MAPPED, "train = ds.map(f)\n    other = ds.take(2)\n    ds = train", "ds has other uses"),
        (REPEAT, f"other = ds.take(2)\n    {REPEAT}", "ds has other uses"),
        (REPEAT, f"{REPEAT}\n    for _ in [1]:\n        other = ds", "ds has other uses"),
        ("remainder=True", "remainder=training", "a variable decides on the drop_remainder of its batch"),
        ("SIZE, drop_remainder=True", "SIZE, training", "a variable decides on the drop_remainder of its batch"),
        (BATCHES, f"{BATCHES}\n    EPOCHS = 9", "the count of its call is written so that"),
        (BATCHES, f"{BATCHES}\n    SIZE = 9", "the batch_size of its call is written so that"),
    ],
)
def test_what_kept_samples_take_over_of_other_pipelines_or_of_what_varies_is_told_in_words(
    old: str, new: str, reason: str
) -> None:
    source = written(TAKEN_OVER).replace(old, new)
    if "EPOCHS = 9" in new or "SIZE = 9" in new:
        source = source.replace("def make_dataset():", "def make_dataset(EPOCHS=3, SIZE=2):")
    code = keeping_samples(source)
    assert code.diff is None
    assert "(no diff: " in code.text
    assert reason in code.text
    is_of_others = any(each in reason for each in ("other uses", "blocks", "places"))
    assert ("change the pipeline of the training alone" in code.text) == is_of_others


def test_a_repeat_whose_variable_is_one_in_this_run_is_not_left_out_behind_kept_samples() -> None:
    code = keeping_samples(written(TAKEN_OVER.replace("= 3, 2", "= 1, 2")), passes=1)
    assert code.diff is None
    assert "no diff: the count of its repeat, EPOCHS, is 1 in this run alone" in code.text


@pytest.mark.parametrize("apart", ["", "passed", "attribute", "if", "else", "or", "chosen", "replaced", "later"])
def test_samples_of_what_a_library_shuffles_are_kept_in_the_block_of_its_call(apart: str) -> None:
    call = "keras.utils.texts_of_folder('data')"
    opened = {
        "passed": f"ds = {call}\n    ds = ds.prefetch(2)",
        "attribute": f"self.ds = {call}",
        "if": f"if training:\n        ds = {call}",
        "else": f"ds = {call} if training else val",
        "or": f"ds = val or {call}",
        "chosen": f"ds = (val, {call})[training]",
        "replaced": f"ds = {call}\n    if not training: ds = val",
        "later": f"ds = {call}\n    ds = ds if training else val",
    }.get(apart, f"ds = {call}")
    ds = "self.ds" if apart == "attribute" else "ds"
    source = f"training = True\ndef make_dataset():\n    {opened}\n    {ds} = {ds}.map(f)\n    return {ds}\n"
    lines = source.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if call in text)
    column = lines[line - 1].index(call)
    place = Location(file=FILE, line=line, end_line=line, column=column, end_column=column + len(call))
    line = lines.index(f"    {ds} = {ds}.map(f)") + 1
    column = lines[line - 1].index(f"{ds}.map")
    behind = Location(file=FILE, line=line, end_line=line, column=column, end_column=len(lines[line - 1]))
    names = ("from_tensor_slices", "shuffle", "batch", "map")
    stages = tuple(
        Stage(id=at, method=name, inputs=(at - 1,) if at else (), place=behind if name == "map" else place)
        for at, name in enumerate(names)
    )
    looked = inspected(written("def make_dataset(): return tf.data.Dataset.range(9)"))
    looked = looked.model_copy(update={"stages": stages, "sink": 3})
    code = change({FILE: source}, looked, fix_of(KeepSamples(stage=3, batch_size=2, buffer_size=4)))
    if apart not in ("", "passed", "attribute"):
        assert "no diff: the call that makes shuffle stands elsewhere, as for one of several pipelines" in code.text
    else:
        assert code.diff is not None
        assert f"+    {ds} = {ds}.map(f).unbatch().cache().shuffle(4).batch(2)" in code.diff
