"""What a pipeline's elements are, as data that a session's file holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline_bench.model import element_flow
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.tfdata import describe


def test_elements_within_hundreds_of_structures_are_read_again() -> None:
    """Such an inspection was no event that the parent could read, and the diagnosis ended with it."""
    spec: Any = np.zeros((2, 3), np.float32)
    for _ in range(150):
        spec = {"a": (spec,)}
    known = describe.element(spec)
    assert known.text.startswith("{a: ({a: (")
    looked = Inspection(stages=(Stage(id=0, method="map", element=known),), element=known)
    assert Inspection.model_validate_json(looked.model_dump_json()) == looked


def test_what_lies_within_a_few_structures_is_named_with_its_shape() -> None:
    assert describe.element({"a": ([np.zeros(3, np.uint8)],)}).text == "{a: ((uint8[3],),)}"


@pytest.mark.parametrize(
    "weights",
    [
        [np.float64(0.25), np.float64(0.75)],  # counts / total, of NumPy
        np.array([0.25, 0.75], np.float32),
        [1 / 4, 3 / 4],
        [1 / 7] * 12,  # longer than a text of the arguments
    ],
)
def test_of_weights_it_is_known_how_often_each_dataset_is_chosen(weights: Any) -> None:
    count = len(weights)
    stage = Stage(
        id=count,
        method="sample_from_datasets",
        inputs=tuple(range(count)),
        arguments=describe.arguments({"weights": weights}),
    )
    Inspection.model_validate_json(Inspection(stages=(stage,)).model_dump_json())
    assert element_flow.shares(stage) == pytest.approx([each / sum(weights) for each in weights])


def test_a_size_that_is_no_whole_number_is_not_known() -> None:
    """TensorFlow 1's behaviour has a `Dimension`, an array of Dask's that nobody has counted has NaN."""
    of_dimensions = SimpleNamespace(dtype="float32", shape=(SimpleNamespace(value=None), SimpleNamespace(value=3)))
    uncounted = SimpleNamespace(dtype="float32", shape=(float("nan"), np.int64(3)))
    assert [describe.element(each).shape for each in (of_dimensions, uncounted)] == [(None, 3), (None, 3)]
    assert [describe.leading_size(each) for each in (of_dimensions, uncounted)] == [None, None]
