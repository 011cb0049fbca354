"""What the functions of a dataset do with pictures, by the ops of their graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JPEG_DECODERS = {"DecodeJpeg", "DecodeImage"}
_WHOLE_PICTURE_OPS = frozenset(
    {"AddV2", "Cast", "EnsureShape", "ExpandDims", "Identity", "Maximum", "Minimum", "Mul", "RealDiv", "Sub"}
)
"""What they give has every pixel of what they are given."""
_RESIZES = {"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "ScaleAndTranslate"}
_NONE: Mapping[str, str] = {}
_PICTURE_AXES_MASK = 0b11
"""The bits of a slice's masks that stand for a picture's height and width."""


def crops_decoded(nodes: Sequence[Any], given: Mapping[str, str] = _NONE) -> bool:
    """Return whether one part is cut out of a decoded picture that may be a JPEG, before other pixels are made of it.

    A picture that several parts are cut from does not count: they may be all of it, as its two halves are. Nor does
    `tf.image.resize_with_crop_or_pad`: it may only pad.

    Args:
        nodes: of one graph or of one function of it, each before those that take its outputs.
        given: the names of those that are such pictures, decoded before, with what names the picture of each: the
            same one may be there several times, as in bytes and in floats.
    """
    padded = any(node.op in ("Pad", "PadV2") for node in nodes)
    parts = Counter(picture for node, picture in _taking_decoded(nodes, {**given}) if _crops(node))
    return not padded and 1 in parts.values()


def resizes_decoded(nodes: Sequence[Any], given: Mapping[str, str] = _NONE) -> bool:
    """Return whether a picture that may be a JPEG is decoded whole, at its full size, and then resized.

    Args:
        nodes: as of `crops_decoded`.
        given: likewise.
    """
    return any(node.op in _RESIZES for node, _ in _taking_decoded(nodes, {**given}))


def handed_on(maps: Sequence[Any]) -> Iterator[tuple[Sequence[Any], dict[str, str]]]:
    """Yield the nodes of each map but the first, and which of them are whole pictures that a map before has decoded.

    The latter are as `crops_decoded` is given them.

    Args:
        maps: datasets, each of which has the one before as its input.
    """
    places: dict[int, str] = {}
    for number, dataset in enumerate(maps):
        graph = dataset._functions()[0].function.graph
        nodes = graph.as_graph_def().node
        given = {tensor.op.name: places[place] for place, tensor in enumerate(graph.inputs) if place in places}
        if number:
            yield nodes, given
        whole = {**given}
        for _ in _taking_decoded(nodes, whole):
            pass
        outputs = ((place, tensor.op.name) for place, tensor in enumerate(graph.outputs))
        # With the map's number: a later map may have a node of the same name.
        places = {place: f"{whole[name]} {number}" for place, name in outputs if name in whole}


def _taking_decoded(nodes: Sequence[Any], whole: dict[str, str]) -> Iterator[tuple[Any, str]]:
    """Yield the nodes that take a decoded picture with every pixel that the file has, and the picture's first name.

    Add the names of these pictures to `whole`, with that one.
    """
    for node in nodes:
        taken = node.input[0].partition(":")[0] if node.input else ""
        of_picture = taken in whole
        if of_picture:
            yield node, whole[taken]
        is_full_size = node.op == "DecodeImage" or (node.op == "DecodeJpeg" and node.attr["ratio"].i <= 1)
        if is_full_size:
            whole[node.name] = node.name
        elif of_picture and node.op in _WHOLE_PICTURE_OPS:
            whole[node.name] = whole[taken]


def _crops(node: Any) -> bool:
    """Return whether a node cuts a part out of a picture's height or width: of a slice, not of its colours alone."""
    if node.op != "StridedSlice":
        return bool(node.op == "Slice")
    masks = {name: node.attr[f"{name}_mask"].i for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    whole_axes = masks["begin"] & masks["end"] & _PICTURE_AXES_MASK
    return not (masks["ellipsis"] or masks["new_axis"] or masks["shrink_axis"]) and whole_axes != _PICTURE_AXES_MASK
