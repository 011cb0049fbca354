"""The whole pipeline as written, run for a moment: its elements, what AUTOTUNE sets, what it reads.

TensorFlow gives what AUTOTUNE set as a tree of nodes (`tf.data.experimental.get_model_proto`), of which only the
settings are taken: the processing times there count a parallel interleave's waiting as its work. The tree is of the
optimized pipeline, with nodes inserted, made parallel, fused: it is matched to the stages by names from the sink on.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.inspection import disk
from pipeline_bench.model import Series
from pipeline_bench.model.edits import Remove
from pipeline_bench.model.pipeline import INFINITE, Inspection, Stage, Tuned
from pipeline_bench.tfdata import composing, dataset_graph, describe, passes, rebuild, throughput
from pipeline_bench.tfdata.iterators import end_aside
from pipeline_bench.tfdata.plan import larger_ahead
from pipeline_bench.tfdata.recipe import Recipe, upstream

_ELEMENTS_WEIGHED = 64
_NAMES_READ, _LONGEST_NAME = 64, 4096
_LONG_FIRST = 3
"""Where the first element takes so many times the time for all of them, it must do."""
_FIRST_WITHIN_S = 2.0
"""What each trial may spend on filling the buffers of shuffles, or skipping: about as long as it then measures."""
_AHEAD_ELEMENTS = 64
"""What they hold, or leave out, where that takes longer: what an element of the input costs does not depend on it."""
_SETTINGS_EVERY_S, _MOST_SETTINGS = 0.05, 512
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
    "bucket_by_sequence_length": {"groupbywindow"},
}
"""The nodes, without version and variety, that a stage's own calls leave; of other methods, the method's own name."""


def described(recipe: Recipe, make_ns: float, scratch: Path) -> Inspection:
    """Return what is known of a pipeline before anything is run.

    Args:
        recipe: how the user made it.
        make_ns: how long that took.
        scratch: a folder for the files of caches.
    """
    sink = recipe.dataset(recipe.sink)
    cardinality = in_a_pass = int(sink.cardinality())
    if once := [Remove(stage=number) for number in _repeats_of_data(recipe)]:
        with contextlib.suppress(PipelineBenchError):
            in_a_pass = int(rebuild.rebuild(recipe, once, scratch).dataset.cardinality())
    optimization = sink.options().experimental_optimization
    return Inspection(
        stages=recipe.stages,
        sink=recipe.sink,
        element=describe.element(sink.element_spec),
        batch_size=describe.batch_size(sink.element_spec),
        cardinality=None if cardinality < INFINITE else cardinality,
        pass_elements=None if in_a_pass < 0 else in_a_pass,
        make_ns=make_ns,
        default_parallelised=optimization.apply_default_optimizations is not False
        and optimization.map_parallelization is not False,
        warnings=recipe.warnings,
        notes=(*recipe.notes, *map(_serial_note, filter(lambda stage: stage.serial, recipe.stages))),
    )


def _serial_note(stage: Stage) -> str:
    return (
        f"{stage.label} makes one call at a time, whatever num_parallel_calls says: its function runs Python, and "
        "TensorFlow is to be deterministic (enable_op_determinism)."
    )


def _repeats_of_data(recipe: Recipe) -> list[int]:
    """Return the ids of the repeats that begin another pass.

    One without an end in front of a `zip` that ends is none: it gives each element of the other inputs the same one
    beside it, as in `timeseries_dataset_from_array`. Nor is one of some inputs of a stage: these come more often.
    """

    def is_endless(number: int) -> bool:
        return composing.static(recipe.dataset(number).cardinality()) == INFINITE

    repeats = {stage.id: stage.arguments.get("count") for stage in recipe.stages if stage.method == "repeat"}
    finite = {number for number in repeats if not is_endless(number)}
    beside: set[int] = set()
    for stage in recipe.stages:
        if stage.method == "zip" and not is_endless(stage.id):
            beside |= upstream(recipe.calls, filter(is_endless, stage.inputs))
        before = [upstream(recipe.calls, [number]) & finite for number in stage.inputs]
        if len({tuple(sorted(str(repeats[one]) for one in each)) for each in before}) > 1:
            beside.update(*before)
    return [number for number in repeats if number not in beside]


def ahead_elements(recipe: Recipe, whole: Any) -> int | None:
    """Return the most that shuffles hold and skips leave out in the trials; None: as written an element comes soon.

    Args:
        recipe: how the user made the pipeline.
        whole: it, as written.

    Raises:
        UserCodeError: it fails.
    """
    if not larger_ahead(recipe.calls.values(), _AHEAD_ELEMENTS):
        return None
    deadline = throughput.Deadline(_FIRST_WITHIN_S)
    with user_code.element_errors(), contextlib.suppress(StopIteration), deadline:
        try:
            throughput.FlatIterator(whole).take(deadline)
        except throughput.OutOfTimeError:
            return _AHEAD_ELEMENTS
    return None


def run(
    dataset: Any,
    inspection: Inspection,
    seconds: float,
    scratch: Path,
    alive: Callable[[], None] = lambda: None,
) -> tuple[Inspection, float | None]:
    """Take elements for so long, at least one.

    Args:
        dataset: the pipeline as written.
        inspection: with its stages.
        seconds: how long, from the first element on; it alone where it took very long.
        scratch: where files are this program's own.
        alive: called for every element, as a sign of life.

    Returns:
        The inspection with what that showed, and the nanoseconds of an element but the first, if there were others.

    Raises:
        UserCodeError: it gives no element, or fails.
    """
    with user_code.element_errors(), disk.opened_files(apart_from=[scratch]) as opened:
        read_before = disk.bytes_read()
        start_ns = time.perf_counter_ns()
        iterators = [iter(dataset)]
        element = next(iterators[0], None)
        if element is None:
            raise UserCodeError(*passes.NO_ELEMENT)
        first_ns = float(time.perf_counter_ns() - start_ns)
        read_first = disk.bytes_read()
        user_code.restore_imports()
        alive()
        batch_size = describe.batch_size(element)
        settings = AutotuneSettings(iterators[0])
        sizes = [describe.nbytes(element)]
        count = 1
        second_ns = time.perf_counter_ns()
        end_s = time.monotonic() + (seconds if first_ns < _LONG_FIRST * seconds * 1e9 else 0.0)
        while time.monotonic() < end_s and (element := next(iterators[0], None)) is not None:
            user_code.restore_imports()
            alive()
            count += 1
            if len(sizes) < _ELEMENTS_WEIGHED:
                sizes.append(describe.nbytes(element))
            settings.read()
        each_ns = (time.perf_counter_ns() - second_ns) / (count - 1) if count > 1 else None
        read_after = disk.bytes_read()
    tuned = settings.tuned(inspection.stages, inspection.sink)
    del settings
    end_aside(iterators)
    is_one_pass = inspection.ahead_elements is None and all(stage.method != "repeat" for stage in inspection.stages)
    if element is None and is_one_pass and inspection.pass_elements is None:
        inspection = inspection.model_copy(update={"pass_elements": count})
    sources = sources_of_files(dataset)
    found = inspection.model_copy(
        update={
            "element_bytes": sum(sizes) / len(sizes),
            "batch_size": batch_size,
            "first_ns": first_ns,
            "tuned": tuned,
            "read_bytes": _read_for_one(read_before, read_first, read_after, count, ended=element is None),
            "source_bytes": source_bytes(sources),
            "files": tuple(dict.fromkeys((*opened, *(file for _, files in sources for file in files)))),
        }
    )
    return found, each_ns


def with_all_ahead(inspection: Inspection, each_ns: float) -> Inspection:
    """Return the inspection with the time until the first element with all that comes ahead of it as written.

    Args:
        inspection: with its costs, where shuffles hold, or skips leave out, less than as written.
        each_ns: what an element of the sink takes behind them.
    """
    batches = inspection.pass_elements or math.inf
    first_ns = inspection.first_ns or 0.0
    for stage in inspection.stages:
        cost, size = inspection.cost(stage.id), stage.ahead
        if cost is not None and cost.elements and size:
            of_sink = size / cost.elements
            first_ns += each_ns * (min(of_sink, batches) if stage.method == "shuffle" else of_sink)
    return inspection.model_copy(update={"first_ns": first_ns})


def _read_for_one(before: int | None, first: int | None, after: int | None, count: int, ended: bool) -> float | None:
    """Return the bytes that are read for one element; None where that is not known.

    What is read before the first one comes may fill a buffer, as a shuffle's, and be of many elements. Less than a
    block behind it is of no file: a reader with a large buffer has read it before.
    """
    if before is None or first is None or after is None:
        return None
    if ended or after == before:
        return (after - before) / count
    return (after - first) / (count - 1) if after - first >= mmap.PAGESIZE and count > 1 else None


def source_bytes(sources: Sequence[tuple[int, list[str]]]) -> float | None:
    """Return the size of all files that `sources_of_files` name, by the first of each; None where none is named."""
    total = 0.0
    for count, files in sources:
        if count < 0:
            return None
        total += sum(Path(file).stat().st_size for file in files) * count / min(count, _NAMES_READ)
    return total or None


def sources_of_files(dataset: Any) -> list[tuple[int, list[str]]]:
    """Return of each source whose elements are names of files how many it has, and the first of the files."""
    import tensorflow as tf

    found = []
    for each in dataset_graph.upstream_of(dataset):
        if not dataset_graph.inputs_of(each) and getattr(each, "element_spec", None) == tf.TensorSpec([], tf.string):
            files = [*filter(None, map(_existing_file, each.take(_NAMES_READ).as_numpy_iterator()))]
            if files:
                found.append((int(each.cardinality()), files))
    return found


def _existing_file(name: bytes) -> str | None:
    if 0 < len(name) < _LONGEST_NAME and b"\0" not in name:
        path = Path(name.decode(errors="surrogateescape"))
        with contextlib.suppress(OSError):  # a line of text is no path, and a part of it too long for one
            return str(path.resolve()) if path.is_file() else None
    return None


class ModelNode(NamedTuple):
    """A node of TensorFlow's tree."""

    name: str
    inputs: tuple[int, ...] = ()

    def fits(self, stage: Stage) -> bool:
        """Return whether a stage's own call may have left it."""
        names = _NODES.get(stage.method, {stage.method.replace("_", "").removesuffix("Dataset").lower()})
        return self.plain_name in names

    @property
    def plain_name(self) -> str:
        """The name without what the optimizer made of it: ``map`` of ``ParallelMapV2``."""
        short = _VERSION.sub("", self.name.split("[", maxsplit=1)[0]).lower()
        return short if short in ("range", "list") else _VARIETIES.sub("", short)


class AutotuneSettings:
    """What AUTOTUNE has set while an iterator ran, and how full its buffers were."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._next_s = 0.0
        self._values: dict[tuple[int, str], list[tuple[int, float]]] = {}
        self._nodes: dict[int, ModelNode] = {}
        self._output = 0
        self._reads = 0

    def read(self) -> None:
        """Note the settings, where it is time for it; an iterator without a model has none."""
        import tensorflow as tf

        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _SETTINGS_EVERY_S
        try:
            model = tf.data.experimental.get_model_proto(self._iterator)
        except (tf.errors.OpError, ValueError, AttributeError):
            self._next_s = float("inf")
            return
        at_ns = time.monotonic_ns()
        self._reads += 1
        self._output = int(model.output)
        self._nodes = {number: ModelNode(node.name, tuple(node.inputs)) for number, node in model.nodes.items()}
        for number, node in model.nodes.items():
            values = {each.name: float(each.state_value) for each in node.parameters if each.name in _SETTINGS}
            if values:
                values["buffered_elements"] = float(node.buffered_elements)
            for name, value in values.items():
                track = self._values.setdefault((number, name), [])
                if len(track) < _MOST_SETTINGS:
                    track.append((at_ns, value))

    def tuned(self, stages: Sequence[Stage], sink: int) -> tuple[Tuned, ...]:
        """Return what was set over time, by stage where the node could be matched.

        Nodes of what an interleave opens come and go; those that were seen in less than half of the time are left out.
        """
        matched = match(stages, sink, self._nodes, self._output)
        return tuple(
            Tuned(
                stage=matched.get(number),
                node=self._nodes[number].name,
                parameter=name,
                at_ns=Series.pack([at_ns for at_ns, _ in track]),
                values=Series.pack([value for _, value in track]),
            )
            for (number, name), track in sorted(self._values.items())
            if number in self._nodes and (number in matched or len(track) >= self._reads / 2)
        )


def match(stages: Sequence[Stage], sink: int, nodes: Mapping[int, ModelNode], output: int) -> dict[int, int]:
    """Return the stage of each node, by ids, as far as the names show it.

    Both trees are walked from the sink to the sources.

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
        else:
            matched.setdefault(found, number)
            waiting += _upstream(stage, found, nodes, by_id)
    return matched


def _nearest(stage: Stage, at: int, nodes: Mapping[int, ModelNode]) -> int | None:
    """Return the first node from there on that fits the stage; only nodes with one input are passed over."""
    while at in nodes:
        if nodes[at].fits(stage):
            return at
        if len(nodes[at].inputs) != 1:
            return None
        at = nodes[at].inputs[0]
    return None


def _upstream(
    stage: Stage, found: int, nodes: Mapping[int, ModelNode], by_id: Mapping[int, Stage]
) -> list[tuple[int, int]]:
    """Return the pairs to go on with: a node that two stages share is left to the next; inner nodes are left out."""
    node = nodes[found]
    if len(stage.inputs) != 1:
        return list(zip(stage.inputs, node.inputs, strict=False))
    number = stage.inputs[0]
    before = by_id.get(number)
    if before is None:
        return []
    if "and" in node.plain_name and node.fits(before):
        return [(number, found)]
    fitting = [each for each in node.inputs if _nearest(before, each, nodes) is not None]
    return [(number, each) for each in (fitting or node.inputs)[:1]]
