"""What calls behind kept samples take over from calls in front: only of one pipeline, and as it is written there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.patching import bindings, statements
from pipeline_bench.diagnosis.patching.source_file import NOT_AT_ONCE, Chain, SourceFile
from pipeline_bench.diagnosis.patching.stage_calls import StageCalls, argument_of
from pipeline_bench.model.calls import CannotPatchError
from pipeline_bench.model.edits import Edit, KeepSamples, Remove
from pipeline_bench.model.pipeline import Inspection, Stage


def arguments(
    inspection: Inspection,
    calls: StageCalls,
    chains: Callable[[int, int], list[Chain]],
    edits: Sequence[Edit],
    edit: KeepSamples,
) -> dict[str, str]:
    """Return how the arguments are written that the new calls take over, as far as variables are in them, by name.

    Args:
        inspection: of the pipeline.
        calls: of its stages.
        chains: returns those from an earlier stage, which comes second, to a stage.
        edits: all of the fix.
        edit: the one that keeps samples.

    Raises:
        CannotPatchError: a call that they come from may make another pipeline's elements too, such as the
            validation's, or an argument is another value behind the samples.
    """
    file, last = calls.of(edit.stage)
    texts: dict[str, str] = {}
    for stage in _taken_from(inspection, edits, edit):
        if stage_graph.is_librarys(inspection, stage):
            _check_block(calls, stage, file, last)
            continue
        own, call = calls.of(stage.id)
        try:
            statements.check_handed_on(own, call, chains(edit.stage, stage.id))
        except CannotPatchError as reason:
            raise CannotPatchError(f"{reason}; change the pipeline of the training alone") from None
        if stage.method == "batch":
            texts |= _text(file, call, "batch_size", last)
            if _has_variables(file, argument_of(call, "drop_remainder")):
                raise CannotPatchError("a variable decides on the drop_remainder of its batch")
        elif Remove(stage=stage.id) in edits:
            texts |= _text(file, call, "count", last)
    if "count" in texts and edit.passes == 1:  # which writes no repeat
        raise CannotPatchError(f"the count of its repeat, {texts['count']}, is 1 in this run alone")
    return texts


def _taken_from(inspection: Inspection, edits: Sequence[Edit], edit: KeepSamples) -> Iterator[Stage]:
    """Yield the nearest shuffle and batch in front of the samples, and the repeat there that the fix moves."""
    trunk = stage_graph.trunk(inspection, inspection.stage(edit.stage))
    changed = {number for each in edits for number, _ in each.claims()}
    for method in ("shuffle", "batch"):
        yield from [each for each in trunk if each.method == method][:1]
    yield from (each for each in trunk if each.method == "repeat" and each.id in changed)


def _check_block(calls: StageCalls, stage: Stage, file: SourceFile, last: cst.Call) -> None:
    """Check that a library's call stands in the block of the call whose samples are kept.

    Raises:
        CannotPatchError: it may make one of several pipelines' elements.
    """
    call = calls.ending(stage.place) if stage.place is not None and stage.place.file in calls.files else None
    if call is None or call not in file.nodes or not _is_of_one(file, call, last):
        raise CannotPatchError(f"the call that makes {stage.label} stands elsewhere, as for one of several pipelines")


def _is_of_one(file: SourceFile, call: cst.Call, last: cst.Call) -> bool:
    """Return whether a call of the same block is handed on to another one, and nothing else can be in its place."""
    first, end = file.statement(call), file.statement(last)
    block, around_last = file.block(end), file.around(last)
    if any(isinstance(each, NOT_AT_ONCE) and each not in around_last for each in file.around(call)):
        return False
    if first is end or first not in block:
        return first is end
    names = bindings.stored_and_used(file, first)[0]
    between = block[block.index(first) + 1 : block.index(end)]
    setting = [each for each in between if bindings.overlapping(bindings.stored_and_used(file, each)[0], names)]
    return _is_made_of(first, call) and all(any(_is_made_of(each, name) for name in names) for each in setting)


def _is_made_of(statement: cst.CSTNode, base: cst.Call | str) -> bool:
    """Return whether a statement sets variables to a call, or to a variable, with at most methods called on it."""
    value = statement.value if isinstance(statement, cst.Assign | cst.AnnAssign) else None
    while value is not base and isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        value = value.func.value
    return value is base or (value is not None and bindings.variable(value) == base)


def _text(file: SourceFile, call: cst.Call, name: str, last: cst.Call) -> dict[str, str]:
    """Return how an argument with variables is written, by its name; nothing of others.

    Raises:
        CannotPatchError: one of the variables is set again in front of the last call.
    """
    arg = argument_of(call, name)
    if arg is None or not _has_variables(file, arg):
        return {}
    text = file.code(arg.value)
    if not bindings.unchanged(file, arg.value, call, last) or any(mark in text for mark in "#\r\n"):
        raise CannotPatchError(f"the {name} of its call is written so that it cannot be written again")
    return {name: text}


def _has_variables(file: SourceFile, arg: cst.Arg | None) -> bool:
    return arg is not None and bool(bindings.stored_and_used(file, arg.value)[1])
