"""What a pipeline's elements are, as data that a session's file holds."""

from __future__ import annotations

from typing import Any

import numpy as np

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
