"""Each kind of edit, applied to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.user_pipeline import (
    BatchInGenerator,
    Edit,
    Fuse,
    InsertAfter,
    Interleave,
    MoveBefore,
    OffloadToService,
    PrefetchToDevice,
    Remove,
    SetArgument,
    SetOptions,
    composing,
)
from pipeline_bench.user_pipeline.plan import Node, Plan, Ref
from pipeline_bench.user_pipeline.public_api import entries
from pipeline_bench.user_pipeline.record import Call

_KEPT_WHEN_FUSED = ("num_parallel_calls", "deterministic")


def apply(plan: Plan, edit: Edit) -> None:
    """Change the plan as the edit says.

    Raises:
        PipelineBenchError: the edit does not fit the pipeline.
    """
    appliers: dict[type, Callable[[Plan, Any], None]] = {
        SetArgument: _set_argument,
        InsertAfter: lambda plan, edit: plan.insert_after(edit.stage, edit.method, edit.arguments),
        Remove: _remove,
        MoveBefore: _move_before,
        Fuse: _fuse,
        BatchInGenerator: _batch_in_generator,
        Interleave: _interleave,
        SetOptions: _set_options,
        PrefetchToDevice: _prefetch_to_device,
        OffloadToService: _offload,
    }
    appliers[type(edit)](plan, edit)


def _set_argument(plan: Plan, edit: SetArgument) -> None:
    for node in plan.nodes.values():
        call = _inner(node.recorded.inner, edit.stage) if node.recorded is not None else None
        if call is not None:
            if call.entry is None or edit.argument not in call.entry.signature.parameters:
                raise PipelineBenchError(f"{call.method} has no argument {edit.argument!r}")
            arguments = {**node.inner.get(edit.stage, {}), edit.argument: edit.value}
            plan.put(replace(node, inner={**node.inner, edit.stage: arguments}, changed=True))
            return
    plan.put(plan.node(edit.stage).setting(**{edit.argument: edit.value}))


def _inner(calls: tuple[Call, ...], number: int) -> Call | None:
    for call in calls:
        found = call if call.id == number else _inner(call.inner, number)
        if found is not None:
            return found
    return None


def _remove(plan: Plan, edit: Remove) -> None:
    plan.take_out(edit.stage)


def _move_before(plan: Plan, edit: MoveBefore) -> None:
    moved, other = plan.node(edit.stage), plan.node(edit.other)
    at = plan.single_input(moved)
    while at != other.id:
        if len(plan.consumers(at)) != 1:
            raise PipelineBenchError(f"{moved.label} does not stand in one chain behind {other.label}")
        at = plan.single_input(plan.nodes[at])
    if len(plan.consumers(other.id)) != 1:
        raise PipelineBenchError(f"{other.label} feeds several stages")
    source = plan.single_input(other)
    plan.take_out(moved.id)
    plan.put(moved.reading(plan.single_input(moved), source))
    plan.put(plan.nodes[other.id].reading(source, moved.id))


def _fuse(plan: Plan, edit: Fuse) -> None:
    nodes = [plan.node(number) for number in edit.stages]
    if not nodes[1:] or any(node.method != "map" for node in nodes):
        raise PipelineBenchError("only maps, two at least, can be made one")
    for before, after in itertools.pairwise(nodes):
        if after.inputs != (before.id,) or len(plan.consumers(before.id)) != 1 or plan.sink == before.id:
            raise PipelineBenchError(f"{after.label} does not stand right behind {before.label}")
    functions = [node.given()[node.function_parameter()] for node in nodes]
    last = nodes[-1]
    kept: dict[str, Any] = {}
    for node in nodes:
        kept |= {name: value for name, value in node.given().items() if name in _KEPT_WHEN_FUSED and value is not None}
    fused = last.setting(map_func=composing.composed(functions), **kept).reading(nodes[-2].id, nodes[0].inputs[0])
    plan.become(tuple(node.id for node in nodes), fused)


def _batch_in_generator(plan: Plan, edit: BatchInGenerator) -> None:
    generator, batch = plan.node(edit.generator), plan.node(edit.batch)
    if generator.method != "from_generator" or batch.method != "batch":
        raise PipelineBenchError("only a from_generator with a batch behind it can gather batches")
    if batch.inputs != (generator.id,) or len(plan.consumers(generator.id)) != 1:
        raise PipelineBenchError("the batch does not stand right behind the generator")
    given, of_batch = generator.given(), batch.given()
    signature = composing.signature_of(given)
    size, drop_remainder = composing.static(of_batch["batch_size"]), of_batch.get("drop_remainder", False)
    if size is None or not isinstance(drop_remainder, bool):
        raise PipelineBenchError("the size of the batches is only known when they are made")
    gathered = composing.gathered(given["generator"], signature, size, drop_remainder)
    batched = composing.batched_signature(signature, size if drop_remainder else None)
    node = generator.without("output_types").without("output_shapes")
    node = node.setting(generator=gathered, output_signature=batched)
    plan.redirect(batch.id, generator.id)
    plan.become((batch.id, generator.id), node)


def _interleave(plan: Plan, edit: Interleave) -> None:
    node = plan.node(edit.stage)
    if node.method != "flat_map":
        raise PipelineBenchError(f"{node.label} is no flat_map")
    given = {**node.given(), "cycle_length": edit.cycle_length, "num_parallel_calls": edit.num_parallel_calls}
    changed: Node = replace(node, entry=entries()["interleave"], args=(Ref(plan.single_input(node)),), kwargs={})
    plan.put(changed.setting(**given))


def _set_options(plan: Plan, edit: SetOptions) -> None:
    plan.options |= edit.options


def _prefetch_to_device(plan: Plan, edit: PrefetchToDevice) -> None:
    plan.device_buffer = edit.buffer_size


def _offload(plan: Plan, edit: OffloadToService) -> None:
    plan.service_workers = edit.workers
