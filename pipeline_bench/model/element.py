"""What the elements of a pipeline are as plain data: a tensor, or a structure of tensors, before any is computed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, model_serializer

from pipeline_bench.model import Data
from pipeline_bench.text import Line

Shape = tuple[int | None, ...] | None
"""The sizes of a tensor's axes, None for one that varies; None altogether where not even their number is known."""
_TEXTS = {
    "tuple": "({})",
    "named-tuple": "({})",
    "dict": "{{{}}}",
    "dataset": "dataset of {}",
    "optional": "optional {}",
    "none": "none",
}


class Element(Data):
    """What each element of a stage is, as TensorFlow's `element_spec` has it."""

    kind: Literal["tensor", "ragged", "sparse", "tuple", "named-tuple", "dict", "dataset", "optional", "none", "other"]
    name: Line = ""
    """The key or the field that it is in a dict or in a named tuple."""
    dtype: Line = ""
    """``float32``; of what is no tensor, and no structure either, its class."""
    shape: Shape = None
    parts: tuple[Element, ...] = ()
    """Of a structure its values; of a dataset, or of an optional, what it holds."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, given: SerializerFunctionWrapHandler) -> dict[str, Any]:  # a batch may have thousands
        return {key: value for key, value in given(self).items() if (value if key != "shape" else value is not None)}

    @property
    def is_record(self) -> bool:
        """Whether it is one string: the record of a file until it is parsed, or a file's name."""
        return self.kind == "tensor" and self.dtype == "string" and self.shape == ()

    def tensors(self) -> Iterator[Element]:
        """Yield what it consists of that is no structure; of a dataset or an optional nothing that it holds."""
        if self.kind in ("tuple", "named-tuple", "dict"):
            for part in self.parts:
                yield from part.tensors()
        elif self.kind != "none":
            yield self

    @property
    def row_bytes(self) -> int | None:
        """The bytes of one row of it, as of a sample in a batch; None where that is not known, as of strings."""
        bits = re.search(r"\d+", self.dtype.replace("bool", "bool8"))
        if self.kind != "tensor" or bits is None or self.shape is None:
            return None
        sizes = [size for size in self.shape[1:] if size is not None]
        return math.prod(sizes) * int(bits[0]) // 8 if len(sizes) == len(self.shape[1:]) else None

    @property
    def text(self) -> str:
        """The element for people: ``(float32[32, 224, 224, 3], int64[32])``, ``{image: uint8[?, ?, 3]}``."""
        named = {"dict": ": ", "named-tuple": "="}.get(self.kind, "")
        inside = ", ".join(f"{part.name}{named}{part.text}" for part in self.parts)
        if self.kind in _TEXTS:
            return _TEXTS[self.kind].format(f"{inside}," if self.kind == "tuple" and len(self.parts) == 1 else inside)
        if self.kind == "other":
            return self.dtype
        return f"{'' if self.kind == 'tensor' else f'{self.kind} '}{self.dtype}{axes(self.shape)}"


def axes(shape: Shape) -> str:
    """Return a shape for people: ``[32, ?, 3]``, ``[]`` of a scalar, ``[...]`` where its rank is not known."""
    return "[...]" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


KnownElement = Annotated[Element | None, BeforeValidator(lambda given: None if isinstance(given, str) else given)]
"""The element as far as it is known: an older file has its text alone."""
