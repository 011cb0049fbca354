"""The code that a diagnosis writes, held against the TensorFlow that is installed."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pipeline_bench.diagnosis.patch import change
from pipeline_bench.model.calls import PARAMETERS
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import InsertAfter, MoveBefore, SetArgument, SetOptions
from pipeline_bench.model.pipeline import Inspection, Location, Stage
from tests.unit.diagnosis.recorded import patched

SOURCE = """\
import tensorflow as tf


def double(x):
    return x * 2


def make_dataset():
    ds = tf.data.Dataset.range(8)
    ds = ds.map(double)  # twice
    return (
        ds
        # in fours
        .batch(4)
    )
"""


@pytest.mark.parametrize("method", PARAMETERS)
def test_arguments_by_position_are_counted_as_tensorflow_does(method: str) -> None:
    import tensorflow as tf

    own = getattr(tf.data, method, None) or getattr(tf.data.Dataset, method)
    parameters = [name for name in inspect.signature(own).parameters if name != "self"]
    assert tuple(parameters[: len(PARAMETERS[method])]) == PARAMETERS[method]


def test_options_are_set_by_names_that_tensorflow_has() -> None:
    import tensorflow as tf

    edit = SetOptions(options={"threading.private_threadpool_size": 2, "deterministic": False})
    space: dict[str, Any] = {"tf": tf}
    exec("\n".join(edit.lines("options")), space)
    assert space["options"].threading.private_threadpool_size == 2
    assert space["options"].deterministic is False


def test_the_changed_source_gives_the_elements_that_the_edits_mean() -> None:
    def stage(number: int, method: str, line: int, end: str) -> Stage:
        text = SOURCE.splitlines()[line - 1]
        column = text.index(end) + len(end)
        place = Location(file="train.py", line=line, end_line=line, end_column=column)
        return Stage(id=number, method=method, inputs=(number - 1,) if number else (), place=place)

    stages = (stage(0, "range", 9, "range(8)"), stage(1, "map", 10, "map(double)"), stage(2, "batch", 14, "batch(4)"))
    edits = (
        MoveBefore(stage=2, other=1),
        SetArgument(stage=1, argument="num_parallel_calls", value=-1),
        InsertAfter(stage=1, method="prefetch", arguments={"buffer_size": -1}),
        SetOptions(options={"threading.private_threadpool_size": 2}),
    )
    fix = Fix(kind="several", variant="several", title="Several", edits=edits)
    code = change({"train.py": SOURCE}, Inspection(stages=stages, sink=2), fix)
    assert code.text == ""
    assert code.diff is not None
    space: dict[str, Any] = {}
    exec(patched(SOURCE, code.diff), space)
    made = space["make_dataset"]()
    assert [element.tolist() for element in made.as_numpy_iterator()] == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert made.options().threading.private_threadpool_size == 2
