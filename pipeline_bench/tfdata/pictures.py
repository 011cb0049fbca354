"""What the functions of a dataset do with pictures, by the ops of their graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

JPEG_DECODERS = {"DecodeJpeg", "DecodeImage"}
_WHOLE_PICTURE_OPS = frozenset(
    {"AddV2", "Cast", "EnsureShape", "ExpandDims", "Identity", "Maximum", "Minimum", "Mul", "RealDiv", "Sub"}
)
"""What they give has every pixel of what they are given."""
_RESIZES = {"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "ScaleAndTranslate"}
_PICTURE_AXES_MASK = 0b11
"""The bits of a slice's masks that stand for a picture's height and width."""


def crops_decoded(nodes: Sequence[Any], given: Iterable[str] = ()) -> bool:
    """Return whether a picture that may be a JPEG is decoded and then cropped, with no other pixels made in between.

    `tf.image.resize_with_crop_or_pad` is not counted: it may only pad.

    Args:
        nodes: of one graph or of one function of it, each before those that take its outputs.
        given: the names of those that are such pictures, decoded before.
    """
    padded = any(node.op in ("Pad", "PadV2") for node in nodes)
    return not padded and any(map(_crops, _taking_decoded(nodes, set(given))))


def resizes_decoded(nodes: Sequence[Any], given: Iterable[str] = ()) -> bool:
    """Return whether a picture that may be a JPEG is decoded whole, at its full size, and then resized.

    Args:
        nodes: as of `crops_decoded`.
        given: likewise.
    """
    return any(node.op in _RESIZES for node in _taking_decoded(nodes, set(given)))


def handed_on(maps: Sequence[Any]) -> Iterator[tuple[Sequence[Any], set[str]]]:
    """Yield the nodes of each map but the first, and which of them are whole pictures that a map before has decoded.

    Args:
        maps: datasets, each of which has the one before as its input.
    """
    places: set[int] = set()
    for number, dataset in enumerate(maps):
        graph = dataset._functions()[0].function.graph
        nodes = graph.as_graph_def().node
        given = {tensor.op.name for place, tensor in enumerate(graph.inputs) if place in places}
        if number:
            yield nodes, given
        whole = set(given)
        for _ in _taking_decoded(nodes, whole):
            pass
        places = {place for place, tensor in enumerate(graph.outputs) if tensor.op.name in whole}


def _taking_decoded(nodes: Sequence[Any], whole: set[str]) -> Iterator[Any]:
    """Yield the nodes that take a decoded picture with every pixel that the file has; add these pictures to `whole`."""
    for node in nodes:
        of_picture = bool(node.input) and node.input[0].partition(":")[0] in whole
        if of_picture:
            yield node
        is_full_size = node.op == "DecodeImage" or (node.op == "DecodeJpeg" and node.attr["ratio"].i <= 1)
        if is_full_size or (of_picture and node.op in _WHOLE_PICTURE_OPS):
            whole.add(node.name)


def _crops(node: Any) -> bool:
    """Return whether a node cuts a part out of a picture's height or width: of a slice, not of its colours alone."""
    if node.op != "StridedSlice":
        return bool(node.op == "Slice")
    masks = {name: node.attr[f"{name}_mask"].i for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    whole_axes = masks["begin"] & masks["end"] & _PICTURE_AXES_MASK
    return not (masks["ellipsis"] or masks["new_axis"] or masks["shrink_axis"]) and whole_axes != _PICTURE_AXES_MASK
