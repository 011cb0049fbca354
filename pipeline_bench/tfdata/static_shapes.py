"""The shapes that a dataset promises of its elements, for which `fit` traces a model, and those that elements have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench.model.element import Shape
from pipeline_bench.tfdata import describe


def traceable_spec(dataset: Any) -> Any:
    """Return the spec of a dataset's elements where a `tf.function` can be traced for it, as `fit` does; else None."""
    import tensorflow as tf

    spec = getattr(dataset, "element_spec", None)
    kinds = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)
    return spec if all(isinstance(each, kinds) for each in tf.nest.flatten(spec)) else None


def are_open(spec: Any) -> bool:
    """Return whether a spec leaves open how large its tensors are, but for their leading sizes."""
    import tensorflow as tf

    sizes = [describe.shape(each.shape) for each in tf.nest.flatten(spec) if isinstance(each, tf.TensorSpec)]
    return any(each is None or None in each[1:] for each in sizes)


def of_element(of: Any) -> list[Shape]:
    """Return the shapes of an element's tensors, whole where they are ragged or sparse; None of what has none."""
    import tensorflow as tf

    found = (getattr(part, "shape", None) for part in tf.nest.flatten(of))
    return [None if each is None else describe.shape(each) for each in found]


def known(spec: Any, some: Sequence[Sequence[Shape]]) -> Any:
    """Return a spec with the sizes that it leaves open and the shapes of some elements share, but for leading ones."""
    import tensorflow as tf

    found = [
        tf.TensorSpec(_agreed(describe.shape(each.shape), own), each.dtype) if isinstance(each, tf.TensorSpec) else each
        for each, *own in zip(tf.nest.flatten(spec), *some, strict=True)
    ]
    return tf.nest.pack_sequence_as(spec, found)


def _agreed(promised: Shape, some: Sequence[Shape]) -> Shape:
    """Return a promised shape with the sizes that it leaves open and some shapes have in common."""
    known = [each for each in some if each is not None]
    if len({len(each) for each in known}) != 1:
        return promised
    own = (None,) * len(known[0]) if promised is None else promised
    return tuple(
        size if axis == 0 or size is not None or len(set(sizes)) > 1 else sizes[0]
        for axis, (size, *sizes) in enumerate(zip(own, *known, strict=True))
    )
