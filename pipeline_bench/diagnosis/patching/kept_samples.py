"""What calls behind kept samples take over from calls in front: only of one pipeline, and as it is written there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.patching import statements
from pipeline_bench.diagnosis.patching.source_file import Chain, SourceFile
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
    around = file.around(call) if call is not None and call in file.nodes else []
    is_conditional = any(isinstance(each, cst.IfExp) and each not in file.around(last) for each in around)
    if call is None or not around or is_conditional or file.statement(call) not in file.block(file.statement(last)):
        raise CannotPatchError(f"the call that makes {stage.label} stands elsewhere, as for one of several pipelines")


def _text(file: SourceFile, call: cst.Call, name: str, last: cst.Call) -> dict[str, str]:
    """Return how an argument with variables is written, by its name; nothing of others.

    Raises:
        CannotPatchError: one of the variables is set again in front of the last call.
    """
    arg = argument_of(call, name)
    if arg is None or not _has_variables(file, arg):
        return {}
    text = file.code(arg.value)
    if not statements.unchanged(file, arg.value, call, last) or any(mark in text for mark in "#\r\n"):
        raise CannotPatchError(f"the {name} of its call is written so that it cannot be written again")
    return {name: text}


def _has_variables(file: SourceFile, arg: cst.Arg | None) -> bool:
    return arg is not None and bool(statements.stored_and_used(file, arg.value)[1])
