"""Elements of pipelines as they are stored: short, and the same again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model.element import Element

SHAPES = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4).map(tuple)
TENSORS = st.builds(
    Element,
    kind=st.sampled_from(["tensor", "ragged", "sparse", "other"]),
    name=st.sampled_from(["", "image"]),
    dtype=st.sampled_from(["float32", "string"]),
    shape=SHAPES,
)
ELEMENTS = st.recursive(
    TENSORS,
    lambda parts: st.builds(
        Element, kind=st.sampled_from(["tuple", "dict", "dataset"]), parts=st.lists(parts, max_size=3).map(tuple)
    ),
)


@given(ELEMENTS)
def test_a_stored_element_is_the_same_again(element: Element) -> None:
    assert Element.model_validate_json(element.model_dump_json()) == element
    assert Element.model_validate(element.model_dump()) == element


def test_a_scalar_is_not_taken_for_a_tensor_of_unknown_rank() -> None:
    scalar, unknown = Element(kind="tensor", dtype="int64", shape=()), Element(kind="tensor", dtype="int64")
    assert scalar.model_dump_json() == '{"kind":"tensor","dtype":"int64","shape":[]}'
    assert unknown.model_dump_json() == '{"kind":"tensor","dtype":"int64"}'
