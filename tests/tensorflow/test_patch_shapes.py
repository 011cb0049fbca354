"""Every fix of sources in many shapes: git applies its diff, and what then runs is the pipeline that was measured."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.diagnosis import fixes
from pipeline_bench.diagnosis.fixes import Context
from pipeline_bench.diagnosis.patching.patch import change
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import PrefetchToDevice
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.service_edits import OffloadToService
from pipeline_bench.tfdata import composing, describe, rebuild, splitting
from pipeline_bench.tfdata.plan import CallPlan
from pipeline_bench.tfdata.recipe import Recipe
from tests.tensorflow import recorded

HEAD = """\
import functools
import numpy as np
import tensorflow as tf

x, y = np.arange(40.0).reshape(20, 2), np.arange(20)

def f(a): return a * 2
def g(a): return a + 1
def h(a, b): return a * 2, b
def augment(a):
    a = tf.cast(a, tf.float32)
    a = a * 2.0
    return a + tf.random.uniform([])

"""
SHAPES = {
    "comments in brackets": """
def make_dataset():
    ds = (
        tf.data.Dataset.range(20)
        .map(f)  # one
        # two
        .map(g, num_parallel_calls=2)
        .shuffle(5, seed=3)
        .batch(
            4,
        )
    )
    return ds
""",
    "backslashes": """
def make_dataset():
    ds = tf.data.Dataset.range(20) \\
        .map(f, \\
             num_parallel_calls=1) \\
        .filter(lambda a: a > 3) \\
        .map(g).batch(4)
    return ds
""",
    "reassigned in branches": """
def make_dataset(training=True, cached=False):
    ds: tf.data.Dataset = tf.data.Dataset.from_tensor_slices((x, y))
    if training:
        ds = ds.shuffle(20, seed=1)
    else:
        ds = ds.take(3)
    ds = ds.map(h)
    if cached: ds = ds.cache()
    ds = ds.batch(4); ds = ds.prefetch(1)
    return ds if training else ds.take(1)
""",
    "shuffled in a branch": """
def make_dataset(training=True):
    ds = tf.data.Dataset.range(20)
    if training:
        ds = ds.shuffle(20, seed=1)  # of the training alone
    ds = ds.map(f).map(g)
    ds = ds.batch(4)
    return ds
""",
    "maps in arms": """
def make_dataset(labeled=True, training=True):
    ds = tf.data.Dataset.range(20)
    if training:
        ds = ds.shuffle(20, seed=1)
        options = tf.data.Options()
        options.deterministic = True
        ds = ds.with_options(options)
    if labeled:
        ds = ds.map(f)
    else:
        ds = ds.map(lambda a: g(f(a)))
    ds = ds.map(g)
    ds = ds.batch(4)
    return ds
""",
    "walrus and match": """
def make_dataset(kind="a"):
    if (ds := tf.data.Dataset.range(20).map(f)) is not None:
        match kind:
            case "a":
                ds = ds.map(g)
                ds = ds.batch(4)
            case _:
                ds = ds.batch(2)
    return (out := ds.map(g))
""",
    "loop and reduce": """
def make_dataset():
    ds = tf.data.Dataset.range(20)
    for each in (f, g):
        ds = ds.map(each)
    return functools.reduce(lambda d, fn: d.map(fn), [f, g], ds).batch(4)
""",
    "class": """
class Data:
    def __init__(self):
        self.ds = tf.data.Dataset.range(20)
    def double(self, a): return a * 2
    @property
    def batches(self):
        self.ds = self.ds.map(self.double)
        self.ds = self.ds.batch(4)
        return self.ds
def make_dataset():
    return Data().batches.prefetch(1)
""",
    "attribute": """
class Data:
    def build(self, training=True):
        self.ds = tf.data.Dataset.from_tensor_slices((x, y))
        if training:
            self.ds = self.ds.shuffle(20, seed=1)
        self.ds = self.ds.map(h)
        self.size = 4
        self.ds = self.ds.batch(4)
        return self.ds
def make_dataset():
    return Data().build().prefetch(1)
""",
    "calls of other kinds": """
def make_dataset():
    args, named = (4,), {"drop_remainder": True}
    ds = tf.data.Dataset.map(tf.data.Dataset.range(21), f)
    ds = getattr(ds, "map")(functools.partial(lambda a, n: a * n, n=3))
    return ds.apply(lambda d: d.map(lambda a, b=f: b(a))).map(*(g,)).batch(*args, **named)
""",
    "read twice": """
def make_dataset():
    ds = tf.data.Dataset.range(20).map(f)
    train, val = ds.take(12).batch(4), ds.skip(12).batch(4)
    return tf.data.Dataset.zip((train, train.skip(1)))
""",
    "another name of tensorflow": """
import tensorflow.compat.v2 as other
def make_dataset():
    from tensorflow import data as D
    return D.Dataset.range(20).map(f, num_parallel_calls=D.AUTOTUNE).map(g).batch(4)
""",
    "signs of all kinds": """
\x0c
def größe(ü): return ü * 2  # ∑
def make_dataset():
\ts = f"{'äöü😀'}"; ds = tf.data.Dataset.range(20).map(größe); t = "😀"; ds = ds.batch(4)
\treturn ds  # 日本""",
    "arrays in windows": """
def make_dataset():
    ds = tf.data.Dataset.from_tensor_slices(x)
    ds = ds.window(3, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(3))
    return ds.shuffle(9, seed=2).map(lambda w: w * 2.0).batch(4)
""",
    "random": """
def make_dataset():
    ds = tf.data.Dataset.range(20)
    ds = ds.shuffle(20, seed=1)
    ds = ds.map(augment)
    ds = ds.batch(4)
    return ds
""",
}
WRITTEN = {
    **{name: f"{HEAD}{text}".encode() for name, text in SHAPES.items()},
    "line ends of Windows": f"{HEAD}{SHAPES['comments in brackets']}".replace("\n", "\r\n").encode(),
    "a mark": b"\xef\xbb\xbf" + f"{HEAD}{SHAPES['random']}".encode(),
}


BROADER = {"line ends of Windows", "a mark", "another name of tensorflow", "backslashes", "loop and reduce"}
"""Shapes whose parts the others have too."""


def candidates(recipe: Recipe) -> tuple[Inspection, list[Fix]]:
    stages = composing.with_batches(recipe, splitting.with_splits(recipe))
    looked = Inspection(stages=stages, sink=recipe.sink)
    tried = fixes.attempts(looked, Context(cores=2, model=True))
    on_other_devices = (OffloadToService, PrefetchToDevice)
    return looked, [each.fix for each in tried if not isinstance(each.fix.edits[0], on_other_devices)]


def tree(calls: CallPlan | Recipe, number: int) -> Any:
    """Which calls make a dataset, with their arguments."""
    call = calls.nodes[number] if isinstance(calls, CallPlan) else calls.calls[number]
    given = {name: value for name, value in describe.arguments(call.given()).items() if value is not None}
    if call.method in ("range", "zip"):  # the same numbers, and the same inputs, written in another way
        given = {}
    return call.method, given, call.function is None, [tree(calls, each) for each in call.inputs]


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=pytest.mark.slow if shape in BROADER else ()) for shape in WRITTEN]
)
def test_a_diff_makes_of_any_source_the_pipeline_that_was_measured(shape: str, tmp_path: Path) -> None:
    file, text = tmp_path / "train.py", WRITTEN[shape]
    file.write_bytes(text)
    recipe = recorded.recipe("make_dataset", file=file)
    looked, found = candidates(recipe)
    numbers, diffs = itertools.count(), 0
    assert found
    for fix in found:
        code = change({str(file): text.decode()}, looked, fix)
        if code.diff is None:
            continue
        diffs += 1
        (tmp_path / "fix.patch").write_bytes(code.diff.encode())
        subprocess.run(["git", "apply", "fix.patch"], cwd=tmp_path, check=True)
        changed = tmp_path / f"changed_{next(numbers)}.py"  # a module of its own
        file.rename(changed)
        file.write_bytes(text)
        made, plan = recorded.recipe("make_dataset", file=changed), CallPlan(recipe)
        for edit in fix.edits:
            edit.apply(plan)
        sink = made.calls[made.sink].inputs[0] if plan.options else made.sink
        assert tree(made, sink) == tree(plan, plan.sink), code.diff
        if not fix.reorders and not any(stage.method == "shuffle" for stage in looked.stages):
            measured = rebuild.rebuild(recipe, fix.edits, tmp_path / "scratch").dataset
            assert recorded.values(made.dataset(made.sink)) == recorded.values(measured), code.diff
    assert diffs
