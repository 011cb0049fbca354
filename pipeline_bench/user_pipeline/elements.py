"""What the elements of a dataset are: in words, in bytes, and taken apart into their components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

UNKNOWN = "?"
"""A size that varies, in a shape."""


def describe(element_spec: Any) -> str:
    """The structure of elements in words: ``(float32[32, 224, 224, 3], int64[32])``, ``{image: uint8[?, ?, 3]}``.

    A size that varies is ``?``, an unknown number of dimensions ``[...]``.
    """
    if isinstance(element_spec, Mapping):
        return "{" + ", ".join(f"{key}: {describe(value)}" for key, value in element_spec.items()) + "}"
    if _is_named_tuple(element_spec):
        parts = zip(element_spec._fields, element_spec, strict=True)
        return "(" + ", ".join(f"{key}={describe(value)}" for key, value in parts) + ")"
    if isinstance(element_spec, tuple | list):
        inside = ", ".join(describe(value) for value in element_spec)
        return f"({inside},)" if len(element_spec) == 1 else f"({inside})"
    return _describe_leaf(element_spec)


def _describe_leaf(spec: Any) -> str:
    name = type(spec).__name__
    if name == "NoneTensorSpec":
        return "none"
    if name == "DatasetSpec":
        return f"dataset of {describe(spec.element_spec)}"
    if name == "OptionalSpec":
        return f"optional {describe(spec._element_spec)}"
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        return name
    kind = {"RaggedTensorSpec": "ragged ", "SparseTensorSpec": "sparse "}.get(name, "")
    return f"{kind}{dtype_name(spec)}{describe_shape(spec.shape)}"


def dtype_name(spec: Any) -> str:
    """The name of the type of a spec, a tensor or an array: ``float32``."""
    return str(getattr(spec.dtype, "name", spec.dtype))


def describe_shape(shape: Any) -> str:
    """A static shape in words: ``[32, ?, 3]``, ``[]`` of a scalar, ``[...]`` where not even the rank is known."""
    if getattr(shape, "rank", 0) is None:
        return "[...]"
    return "[" + ", ".join(UNKNOWN if size is None else str(size) for size in tuple(shape)) + "]"


def flatten(element: Any) -> list[tuple[str, Any]]:
    """The components of an element or of its spec, each with its path: ``0``, ``image``, ``1.label``.

    The path of a lone tensor is ``""``. Keys of a dict come sorted, as tf.data sorts them. A ragged or a sparse tensor
    is one component; None is none.
    """
    return list(_leaves(element, ""))


def _leaves(element: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(element, Mapping):
        for key in sorted(element, key=str):
            yield from _leaves(element[key], _join(path, str(key)))
    elif _is_named_tuple(element):
        for key in element._fields:
            yield from _leaves(getattr(element, key), _join(path, key))
    elif isinstance(element, tuple | list) and not _is_parts(element):
        for number, value in enumerate(element):
            yield from _leaves(value, _join(path, str(number)))
    elif element is not None and type(element).__name__ != "NoneTensorSpec":
        yield path, element


def parts(component: Any) -> list[Any]:
    """The dense tensors or arrays that a component consists of: itself; values and row splits; indices, values, shape.

    Of a nested dataset, or another thing that is no tensor, there are none.
    """
    if hasattr(component, "flat_values") and hasattr(component, "nested_row_splits"):
        return [component.flat_values, *component.nested_row_splits]
    if all(hasattr(component, name) for name in ("indices", "values", "dense_shape")):
        return [component.indices, component.values, component.dense_shape]
    return [component] if hasattr(component, "dtype") and hasattr(component, "shape") else []


def batch_size(element: Any) -> int | None:
    """The leading size that all components of an element share, or None where they share none.

    Takes the spec of an element as well; a leading size that is not static is then None. Whether the leading dimension
    is a batch of samples, or the height of a lone image, cannot be told from an element.
    """
    sizes = {_leading_size(component) for _, component in flatten(element)}
    return sizes.pop() if len(sizes) == 1 else None


def _leading_size(component: Any) -> int | None:
    if hasattr(component, "dense_shape") and hasattr(component.dense_shape, "numpy"):
        shape = component.dense_shape.numpy()
        return int(shape[0]) if len(shape) else None
    if hasattr(component, "nrows"):
        return int(component.nrows())
    shape = getattr(component, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None or len(shape) == 0 or shape[0] is None:
        return None
    return int(shape[0])


def nbytes(element: Any) -> int:
    """The bytes of an element of tensors or arrays: of strings their contents, of ragged and sparse ones all parts."""
    return sum(_dense_bytes(part) for _, component in flatten(element) for part in parts(component))


def _dense_bytes(part: Any) -> int:
    dtype = part.dtype
    if dtype_name(part) not in ("string", "object"):
        size = dtype.size if hasattr(dtype, "size") else dtype.itemsize
        return int(np.prod([int(n) for n in part.shape], dtype=np.int64)) * int(size)
    values = np.asarray(part.numpy() if hasattr(part, "numpy") else part, dtype=object)
    return sum(_content_bytes(value) for value in values.ravel())


def _content_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):  # a row of a ragged tensor, as NumPy gets it
        return _dense_bytes(value)
    return len(value.encode() if isinstance(value, str) else value)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields") and not _is_parts(value)


def _is_parts(value: Any) -> bool:
    """Whether a tuple is itself a tensor: what NumPy gives of a ragged or a sparse one."""
    return hasattr(value, "dense_shape") or hasattr(value, "nested_row_splits")
