"""What AUTOTUNE sets while a pipeline runs, and how full the buffers are, by stage.

TensorFlow tells it as a tree of nodes (`tf.data.experimental.get_model_proto`), of which only the settings are taken:
the processing times there count a parallel interleave's waiting as its work. The tree is that of the optimized
pipeline: nodes were inserted, made parallel and fused, so it is matched to the stages from the sink on by names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_bench.model.series import Series
from pipeline_bench.user_pipeline import Stage, Tuned

_MOST_SAMPLES = 512
_SETTINGS = frozenset({"parallelism", "buffer_size"})
_VERSION = re.compile(r"V\d+$")
_VARIETIES = re.compile(r"^(parallel|finite|forever|empty|memory|file|legacy|range|list)(?=.)")
_NODES = {
    "map": {"map", "mapandbatch", "mapandfilter"},
    "batch": {"batch", "mapandbatch"},
    "repeat": {"repeat", "shuffleandrepeat"},
    "shuffle": {"shuffle", "shuffleandrepeat"},
    "from_tensor_slices": {"tensorslice"},
    "from_tensors": {"tensor"},
    "from_generator": {"flatmap", "generator"},
    "list_files": {"shuffle", "tensorslice"},
    "TFRecordDataset": {"tfrecord", "flatmap", "interleave"},
    "TextLineDataset": {"textline", "flatmap", "interleave"},
    "FixedLengthRecordDataset": {"fixedlengthrecord", "flatmap", "interleave"},
    "sample_from_datasets": {"directedinterleave"},
    "choose_from_datasets": {"directedinterleave"},
    "unbatch": {"unbatch", "flatmap"},
    "ragged_batch": {"densetoragged", "batch"},
    "enumerate": {"zip"},
    "group_by_window": {"groupbywindow"},
    "bucket_by_sequence_length": {"groupbywindow"},
    "take_while": {"takewhile"},
}
"""The nodes, without version and variety, that a stage's own calls leave; of other methods, the method's own name."""


@dataclass(frozen=True)
class Node:
    """A node of TensorFlow's tree."""

    id: int
    name: str
    inputs: tuple[int, ...] = ()


@dataclass
class _Track:
    at_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def plain(name: str) -> str:
    """A node's name without what the optimizer made of it: ``map`` of ``ParallelMapV2``."""
    short = _VERSION.sub("", name.split("[", maxsplit=1)[0]).lower()
    return short if short in ("range", "list") else _VARIETIES.sub("", short)


def _fits(stage: Stage, node: Node) -> bool:
    names = _NODES.get(stage.method, {stage.method.replace("_", "").removesuffix("Dataset").lower()})
    return plain(node.name) in names


def match(stages: Sequence[Stage], sink: int, nodes: Mapping[int, Node], output: int) -> dict[int, int]:
    """The stage of each node, by ids, as far as names tell; both trees are walked from the sink to the sources.

    Args:
        stages: of the pipeline.
        sink: the last one's id.
        nodes: by id.
        output: the id of the node at the root.
    """
    by_id = {stage.id: stage for stage in stages}
    matched: dict[int, int] = {}
    waiting = [(sink, output)]
    while waiting:
        number, at = waiting.pop()
        stage = by_id.get(number)
        if stage is None or at not in nodes:
            continue
        found = _nearest(stage, at, nodes)
        if found is None:  # it leaves no node, as `with_options` does
            waiting += [(before, at) for before in stage.inputs]
            continue
        matched.setdefault(found, number)
        waiting += _onwards(stage, found, nodes, by_id)
    return matched


def _nearest(stage: Stage, at: int, nodes: Mapping[int, Node]) -> int | None:
    """The first node from there on that fits the stage; only nodes with one input are passed over."""
    while at in nodes:
        node = nodes[at]
        if _fits(stage, node):
            return at
        if len(node.inputs) != 1:
            return None
        at = node.inputs[0]
    return None


def _onwards(stage: Stage, found: int, nodes: Mapping[int, Node], by_id: Mapping[int, Stage]) -> list[tuple[int, int]]:
    """Where to go on: a node that two stages share stays for the next; an interleave's inner nodes are not taken."""
    inputs = nodes[found].inputs
    if len(stage.inputs) > 1:
        return list(zip(stage.inputs, inputs, strict=False))
    onwards = []
    for number in stage.inputs:
        before = by_id.get(number)
        if before is not None and "and" in plain(nodes[found].name) and _fits(before, nodes[found]):
            onwards.append((number, found))
            continue
        fitting = [one for one in inputs if before is not None and one in nodes and _nearest(before, one, nodes)]
        onwards += [(number, one) for one in (fitting or list(inputs))[:1]]
    return onwards


class Watch:
    """Asks an iterator now and then what AUTOTUNE has set."""

    def __init__(self, iterator: Any, every_s: float = 0.05) -> None:
        self._iterator = iterator
        self._every_s = every_s
        self._next_s = 0.0
        self._tracks: dict[tuple[int, str], _Track] = {}
        self._nodes: dict[int, Node] = {}
        self._output = 0
        self._looks = 0

    def look(self) -> None:
        """Note the settings, where it is time for it; an iterator without a model has none."""
        import tensorflow as tf

        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        try:
            model = tf.data.experimental.get_model_proto(self._iterator)
        except (tf.errors.OpError, ValueError, AttributeError):
            self._next_s = float("inf")
            return
        self._enter(model, time.monotonic_ns())

    def _enter(self, model: Any, at_ns: int) -> None:
        self._looks += 1
        self._output = int(model.output)
        self._nodes = {number: Node(number, node.name, tuple(node.inputs)) for number, node in model.nodes.items()}
        for number, node in model.nodes.items():
            settings = [parameter for parameter in node.parameters if parameter.name in _SETTINGS]
            values = {parameter.name: float(parameter.state_value) for parameter in settings}
            if values:
                values["buffered_elements"] = float(node.buffered_elements)
            for name, value in values.items():
                track = self._tracks.setdefault((number, name), _Track())
                if len(track.values) < _MOST_SAMPLES:
                    track.at_ns.append(at_ns)
                    track.values.append(value)

    def told(self, stages: Sequence[Stage], sink: int) -> tuple[Tuned, ...]:
        """What was set over time, by stage where the node could be matched; what an interleave opens comes and goes."""
        matched = match(stages, sink, self._nodes, self._output)
        return tuple(
            Tuned(
                stage=matched.get(number),
                node=self._nodes[number].name,
                parameter=name,
                at_ns=Series.pack(track.at_ns),
                values=Series.pack(track.values),
            )
            for (number, name), track in sorted(self._tracks.items())
            if number in self._nodes and (number in matched or len(track.values) >= self._looks / 2)
        )
