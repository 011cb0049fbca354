"""Makes a recorded pipeline again: with edits, in part, one stage on other inputs, or small.

Nothing of a TensorFlow graph is edited: the user's calls are made again with their live arguments. What an edit does
not touch is the user's own dataset object. Files that their pipeline would keep elements in (`cache` with a name,
`snapshot`) are never read or written; others under a scratch folder take their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.user_pipeline import AUTOTUNE, Edit, MoveBefore, Value, editing, smaller
from pipeline_bench.user_pipeline.making import Maker
from pipeline_bench.user_pipeline.plan import Node, Plan
from pipeline_bench.user_pipeline.recording import Recipe


@dataclass(frozen=True)
class Rebuilt:
    """A pipeline made again: its dataset, and the datasets of the caches that edits inserted, upstream first.

    Iterating a cache's dataset to its end fills it for the pipeline, which shares it.
    """

    dataset: Any
    caches: tuple[Any, ...] = ()


def rebuild(recipe: Recipe, edits: Iterable[Edit], scratch: Path, seeds: int | None = None) -> Any:
    """The dataset of the sink with the edits.

    Args:
        recipe: how the user made it.
        edits: applied one after another. Options, the service and the device always come at the end.
        scratch: a folder for the files of caches; made where it does not exist.
        seeds: makes everything again with this global seed, and shuffles the same way in every process.

    Raises:
        PipelineBenchError: an edit does not fit, or a stage does not take what it gives it; says what failed.
    """
    return rebuilt(recipe, edits, scratch, seeds).dataset


def rebuilt(
    recipe: Recipe,
    edits: Iterable[Edit],
    scratch: Path,
    seeds: int | None = None,
    cached_elements: int | None = None,
) -> Rebuilt:
    """As `rebuild`, with the caches. With `cached_elements` a cache keeps the first ones only and repeats them."""
    plan = _edited(Plan(recipe), edits)
    maker = Maker(plan, scratch, seeds, cached_elements=cached_elements)
    return Rebuilt(_finished(plan, maker.dataset(plan.sink)), tuple(maker.caches))


def upstream(recipe: Recipe, stage: int, scratch: Path) -> Any:
    """The dataset of one stage, with what comes before it."""
    return Maker(Plan(recipe), scratch).dataset(stage)


def on(recipe: Recipe, stage: int, inputs: Sequence[Any], scratch: Path) -> Any:
    """One stage's call made again on other datasets, in the order of `Stage.inputs`; a source takes none.

    Raises:
        PipelineBenchError: it does not take them, or there are more or fewer of them.
    """
    plan = Plan(recipe)
    node = plan.node(stage)
    if len(inputs) != len(node.inputs):
        raise PipelineBenchError(f"{node.label} has {len(node.inputs)} inputs, not {len(inputs)}")
    if node.entry is None:
        return recipe.dataset(stage)
    return Maker(plan, scratch).make(node, inputs)


def small(recipe: Recipe, edits: Iterable[Edit], scratch: Path, seed: int) -> Any:
    """The edits on a small part of the input, the same part whatever the edits; see `smaller`.

    Every stage is made again. Stages that decide an order (`shuffle`, `list_files`, …) decide it alike in every process
    and for every seed; random ops in the user's functions differ between seeds. Sets TensorFlow's global seed. Options
    of an edit are kept; a service and a device, which change no sample, are left out.

    Raises:
        PipelineBenchError: an edit does not fit, or moves a filter that leaves nothing out of the small part, so that
            equal samples would prove nothing.
    """
    plan, edits = Plan(recipe), tuple(edits)
    doubtful = [edit.stage for edit in edits if isinstance(edit, MoveBefore) and _may_filter_otherwise(plan, edit)]
    smaller.shrink(plan)
    _edited(plan, edits)
    plan.service_workers = plan.device_buffer = None
    maker = Maker(plan, scratch, seed)
    dataset = maker.dataset(plan.sink)
    for number in doubtful:
        _must_leave_out(plan.node(number), plan, maker)
    return _finished(plan, dataset)


def _may_filter_otherwise(plan: Plan, edit: MoveBefore) -> bool:
    """Whether a filter that is moved may see other elements than before: not where it only passes repeats."""
    node = plan.node(edit.stage)
    if node.method != "filter":
        return False
    while len(node.inputs) == 1:
        node = plan.node(node.inputs[0])
        if node.method not in ("repeat", "filter"):
            return True
        if node.id == edit.other:
            return False
    return True


def _must_leave_out(moved: Node, plan: Plan, maker: Maker) -> None:
    given, kept = (_count(maker.dataset(number)) for number in (plan.single_input(moved), moved.id))
    if given == kept:
        raise PipelineBenchError(f"{moved.label} leaves none of the first {given} elements out, which shows nothing")


def _count(dataset: Any) -> int:
    return sum(1 for _ in dataset.take(smaller.MOST_ELEMENTS))


def _edited(plan: Plan, edits: Iterable[Edit]) -> Plan:
    for edit in edits:
        editing.apply(plan, edit)
    return plan


def _finished(plan: Plan, dataset: Any) -> Any:
    if plan.options:
        dataset = dataset.with_options(options(plan.options))
    if plan.service_workers is not None:
        dataset = offload(dataset, plan.service_workers)
    if plan.device_buffer is not None:
        dataset = _on_device(dataset, plan.device_buffer)
    return dataset


def options(values: dict[str, Value]) -> Any:
    """A `tf.data.Options` of dotted names: ``{"threading.private_threadpool_size": 8}``.

    Raises:
        PipelineBenchError: there is no such option, or it does not take the value.
    """
    import tensorflow as tf

    made = tf.data.Options()
    for name, value in values.items():
        *path, last = name.split(".")
        try:
            owner = made
            for part in path:
                owner = getattr(owner, part)
            setattr(owner, last, value)
        except (AttributeError, TypeError, ValueError) as error:
            raise PipelineBenchError(f"tf.data has no option {name} that can be {value!r}") from error
    return made


def offload(dataset: Any, workers: int) -> Any:
    """The dataset run by tf.data service workers in processes of their own."""
    from pipeline_bench.user_pipeline import service

    return service.offload(dataset, workers)


def _on_device(dataset: Any, buffer_size: int) -> Any:
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU")
    if not devices:
        raise PipelineBenchError("there is no GPU that TensorFlow can use to prefetch to")
    buffer = None if buffer_size == AUTOTUNE else buffer_size
    return dataset.apply(tf.data.experimental.prefetch_to_device(devices[0].name, buffer))
