"""The calls in the user's files that made a pipeline's stages: found by the place where each ends, and by its name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import libcst as cst

from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name, is_unbound
from pipeline_bench.model.calls import PARAMETERS, WORKERS, CannotPatchError
from pipeline_bench.model.edits import Edit, InsertAfter, KeepSamples, PrefetchToDevice, SetArgument, SetOptions
from pipeline_bench.model.function_edits import DivideMap, Memoize
from pipeline_bench.model.pipeline import Location, Stage

APPLY = "apply"
_NOT_TRIED = "also makes another dataset, with which it was not tried"
_PARALLEL_FILTERS = "experimental_optimization.filter_parallelization"


class StageCalls:
    """Those of one pipeline, as far as they were found.

    Attributes:
        files: the user's that hold them, by the names that the stages' places have.
        calls: of the stages, by id.
    """

    def __init__(self, texts: Mapping[str, str], stages: Mapping[int, Stage], edits: Sequence[Edit], sink: int) -> None:
        """Find every stage's call; one that made several stages cannot be changed for one of them.

        Args:
            texts: of the user's files, by the names that the stages' places have.
            stages: by id.
            edits: that are to be written: a call that also makes another dataset may allow some of them.
            sink: the last stage's id.
        """
        self._edits, self._sink = edits, sink
        self.files: dict[str, SourceFile] = {}
        self.calls: dict[int, tuple[SourceFile, cst.Call]] = {}
        self._texts = texts
        self._reasons: dict[int, str] = {}
        found: dict[cst.Call, tuple[SourceFile, list[int]]] = {}
        for stage in stages.values():
            try:
                file, call = self._find(stage)
            except CannotPatchError as reason:
                self._reasons[stage.id] = str(reason)
            else:
                found.setdefault(call, (file, []))[1].append(stage.id)
        self._several = {call: made for call, made in found.items() if len(made[1]) > 1}
        for call, (file, numbers) in found.items():
            if call not in self._several:
                self.calls[numbers[0]] = file, call
                continue
            method = stages[numbers[0]].method
            self._reasons |= dict.fromkeys(numbers, f"one call of {method} makes several stages")

    def of(self, number: int) -> tuple[SourceFile, cst.Call]:
        """Return the call of a stage, and the file that holds it.

        Raises:
            CannotPatchError: it cannot be changed.
        """
        if number not in self.calls:
            raise CannotPatchError(self._reasons.get(number, "the stage is not known"))
        return self.calls[number]

    def once(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits to write: of those that do the same to all stages of one call only that of the first."""
        together = {number: set(made) for _, made in self._several.values() for number in made}
        firsts = {number: min(made) for number, made in together.items()}
        alike: dict[str, set[int]] = {}
        for each in edits:
            changed = together.keys() & {number for number, _ in each.claims()}
            if not changed <= set(each.stage_numbers):
                return list(edits)
            alike.setdefault(each.at(firsts).model_dump_json(), set()).update(changed)
        if not any(alike.values()) or not all(together[each] <= own for own in alike.values() for each in own):
            return list(edits)
        self.calls |= {min(made): (file, call) for call, (file, made) in self._several.items()}
        return [each for each in edits if each.at(firsts) == each]

    def maker(self, place: Location) -> str | None:
        """Return the name of the function that is called in a place of a user's file; None where it is not known."""
        call = self.ending(place)
        return called_name(call) if call is not None else None

    def ending(self, place: Location) -> cst.Call | None:
        """Return the call of a user's file that ends in a place; None where it is not known."""
        file = self.files.get(place.file)
        calls = _ending(file, place) if file is not None else []
        return calls[0] if len(calls) == 1 else None

    def file(self, name: str) -> SourceFile:
        """Return a file of the user's.

        Raises:
            CannotPatchError: its text is not known, or is no Python.
        """
        if name not in self._texts:
            raise CannotPatchError(f"{PurePath(name).name} is not yours or has changed meanwhile")
        try:
            if name not in self.files:
                self.files[name] = SourceFile(self._texts[name])
        except (SyntaxError, ValueError):
            raise CannotPatchError(f"{PurePath(name).name} cannot be read as Python") from None
        return self.files[name]

    def _find(self, stage: Stage) -> tuple[SourceFile, cst.Call]:
        place = stage.place
        if place is None:
            raise CannotPatchError("where its call stands is not known")
        if place.file not in self._texts:
            raise CannotPatchError(f"{stage.label} is called in a file that is not yours or has changed meanwhile")
        file = self.file(place.file)
        calls = [
            node for node in file.nodes if isinstance(node, cst.Call) and stage.method in (called_name(node), WORKERS)
        ]
        calls += _applying(file, stage.method, place)
        if not any(place.line in file.lines(call) for call in calls):
            raise CannotPatchError(f"a library's function, called in line {place.line}, makes {stage.label}")
        if not all(_suits_another(edit, stage, is_sink=stage.id == self._sink) for edit in self._edits):
            raise CannotPatchError(f"the call of {stage.label} {_NOT_TRIED}")
        ending = _ending(file, place)
        has_columns = place.end_line is not None and place.end_column is not None
        calls = [call for call in calls if (call in ending if has_columns else place.line in file.lines(call))]
        if len(calls) != 1:
            raise CannotPatchError(f"the call of {stage.label} was not found in line {place.line}")
        return file, calls[0]


def check_divided(stage: Stage, given: Sequence[Mapping[str, str]], *, is_of_module: bool) -> None:
    """Check that the first half of a divided function is the same for another dataset that the call makes.

    It is where only the second half gets what may differ, as `training` in ``lambda path: load(path, training)``.

    Args:
        stage: that the call makes.
        given: what the lambda of the call gives each half beside the element, as `Split.given`.
        is_of_module: whether the function is defined at module level, where no other variables are around it.

    Raises:
        CannotPatchError: it may be another one, in which a variable that it hands over has no value.
    """
    first, second = (all(map(_is_literal, each.values())) for each in given)
    if stage.shared == "varying" and not (is_of_module and first and not second):
        raise CannotPatchError(f"the call of {stage.label} {_NOT_TRIED}")


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except ValueError:
        return False
    return True


def _suits_another(edit: Edit, stage: Stage, *, is_sink: bool) -> bool:
    """Return whether an edit leaves a stage's call alone, or is surely right for another dataset that the call makes.

    What moves, leaves out or changes calls is not: it takes for granted what stands in front of them and behind. To run
    calls beside each other is, since the other one's function needs no threads of its own; to keep elements only where
    they are the same in each epoch.
    """
    if stage.shared is False or _leaves_alone(edit, stage, is_sink=is_sink):
        return True
    if stage.shared == "alike":
        # Of the samples that are kept the order varies: the other's may be the same in each epoch, as of a validation.
        is_kept = isinstance(edit, KeepSamples) and edit.stage == stage.id
        return not is_kept and not (isinstance(edit, PrefetchToDevice) and stage.others_go_on)
    match edit:
        case InsertAfter(method="cache"):
            return stage.shared == "fixed"
        case SetOptions(options=options) if _PARALLEL_FILTERS in options:
            return False  # those in front may be others, which are not safe to call from several threads
        case SetArgument() | SetOptions() | InsertAfter(method="prefetch") | DivideMap():
            return stage.shared is not True
    return False


def _leaves_alone(edit: Edit, stage: Stage, *, is_sink: bool) -> bool:
    """Return whether an edit changes other calls alone, whatever stands between them and this one."""
    if isinstance(edit, PrefetchToDevice | SetOptions):
        return not is_sink
    changed = {number for number, _ in edit.claims()}
    return isinstance(edit, InsertAfter | Memoize | SetArgument) and stage.id not in changed


def argument_of(call: cst.Call, argument: str) -> cst.Arg | None:
    """Return what a call gives for an argument, by name or by position; None where it gives nothing.

    Raises:
        CannotPatchError: what it gives is not written out.
    """
    if called_name(call) == APPLY:
        raise CannotPatchError("a function that is given to `apply` makes it")
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == argument:
            return arg
    if any(arg.star == "*" for arg in call.args):
        raise CannotPatchError("its arguments are in a sequence")
    if is_unbound(call):
        raise CannotPatchError("it is called as a function of its class")
    parameters = PARAMETERS.get(called_name(call), ())
    given = [arg for arg in call.args if arg.keyword is None and not arg.star]
    place = parameters.index(argument) if argument in parameters else len(given)
    if place < len(given):
        return given[place]
    if any(arg.star == "**" for arg in call.args):
        raise CannotPatchError("its arguments are in a dict")
    return None


def _ending(file: SourceFile, place: Location) -> list[cst.Call]:
    """Return the calls that end in a place; none where its columns are not known."""
    if place.end_line is None or place.end_column is None:
        return []
    end = file.at(place.end_line, place.end_column)
    return [each for each in file.nodes if isinstance(each, cst.Call) and file.end(each) == end]


def _applying(file: SourceFile, method: str, place: Location) -> list[cst.Call]:
    """Return the calls like ``.apply(dense_to_ragged_batch(8))``, of `ragged_batch`, that end in a place."""
    calls = (each for each in _ending(file, place) if called_name(each) == APPLY != method)
    given = ((each, each.args[0].value) for each in calls if len(each.args) == 1)
    return [call for call, made in given if isinstance(made, cst.Call) and called_name(made).endswith(method)]
