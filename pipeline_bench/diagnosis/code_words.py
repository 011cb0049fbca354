"""What to write for an edit, in words and code, where a diff cannot be told. Pure."""

from __future__ import annotations

from pathlib import PurePath

from pipeline_bench.diagnosis.call_text import arguments_text, device_call, options_lines, value_text
from pipeline_bench.user_pipeline import (
    BatchInGenerator,
    Edit,
    Fuse,
    InsertAfter,
    Inspection,
    Interleave,
    MoveBefore,
    OffloadToService,
    PrefetchToDevice,
    Remove,
    SetArgument,
    SetOptions,
    Stage,
)

_PREFIX = "tf.data."


def words(edit: Edit, inspection: Inspection, reason: str = "") -> str:  # noqa: C901 - a case for each edit
    """One or two sentences: where, and what to write there.

    Args:
        edit: what to change.
        inspection: the pipeline as it is written.
        reason: why there is no diff, as the end of a sentence; empty where that needs no saying.
    """
    stages = {each.id: each for each in every_stage(inspection.stages)}
    why = f" (no diff: {reason})" if reason and not isinstance(edit, BatchInGenerator | OffloadToService) else ""

    def named(number: int) -> str:
        return _named(stages.get(number))

    match edit:
        case SetArgument():
            said = f"Give {named(edit.stage)} the argument `{edit.argument}={value_text(edit.argument, edit.value)}`"
        case InsertAfter():
            call = f".{edit.method}({arguments_text(edit.method, edit.arguments, _PREFIX)})"
            said = f"Write `{call}` behind {named(edit.stage)}"
        case Remove():
            said = f"Leave {named(edit.stage)} out"
        case MoveBefore():
            said = f"Move {named(edit.stage)} to right before {named(edit.other)}"
        case Fuse():
            said = f"Make one map of {', '.join(named(number) for number in edit.stages)}"
        case Interleave():
            arguments = f"cycle_length={edit.cycle_length}, num_parallel_calls="
            arguments += value_text("num_parallel_calls", edit.num_parallel_calls)
            said = f"Make {named(edit.stage)} an `interleave` of the same function, with `{arguments}`"
        case SetOptions():
            lines = "; ".join(options_lines(edit, "options", _PREFIX))
            said = f"Write `{lines}` and end the pipeline with `.with_options(options)`"
        case PrefetchToDevice():
            said = f"End the pipeline with `{device_call(edit, _PREFIX)}`"
        case BatchInGenerator():
            said = (
                f"Have the generator of {named(edit.generator)} gather whole batches, for example with `numpy.stack`, "
                f"give its `output_signature` a leading size of None, and leave {named(edit.batch)} out"
            )
        case OffloadToService():
            said = (
                f"Start a dispatcher and {edit.workers} tf.data service worker{'s' if edit.workers > 1 else ''}, and "
                "end the pipeline with `.apply(tf.data.experimental.service.distribute("
                f"processing_mode={_sharding(edit)}, service=dispatcher.target))`"
            )
    return f"{said}{why}."


def _sharding(edit: OffloadToService) -> str:
    """Every worker reads everything where none is told otherwise; with one that is each sample once."""
    policy = "OFF" if edit.workers == 1 else "DYNAMIC"
    return f"tf.data.experimental.service.ShardingPolicy.{policy}"


def _named(stage: Stage | None) -> str:
    if stage is None:
        return "a stage that is not known"
    if stage.place is None:
        return f"`{stage.label}`"
    return f"`{stage.label}` ({PurePath(stage.place.file).name}:{stage.place.line})"


def every_stage(stages: tuple[Stage, ...]) -> list[Stage]:
    """The stages with those that they build for each element."""
    return [each for stage in stages for each in (stage, *every_stage(stage.inner))]
