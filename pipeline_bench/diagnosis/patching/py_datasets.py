"""Changes of a PyDataset in the user's files: its workers as attributes, and a decorator on its `__getitem__`."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
from libcst.helpers import get_full_name_for_node

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name
from pipeline_bench.diagnosis.patching.stage_calls import StageCalls
from pipeline_bench.model.calls import TAKE_WORKERS, WORKERS, CannotPatchError
from pipeline_bench.model.pipeline import Stage


def takes_attributes_alone(stages: Mapping[int, Stage], number: int, call: cst.Call) -> bool:
    """Return whether attributes alone set the workers of what a call makes.

    The class of a library may not take the arguments, and one that does not call Keras' `__init__` does not. The `fit`
    of Keras 2 does.

    Args:
        stages: of the pipeline, by id.
        number: of a stage, of the workers or of anything else.
        call: of that stage.
    """
    stage = stages[number]
    if stage.method != WORKERS or called_name(call) in TAKE_WORKERS:
        return False
    return stage.by_attributes or _is_of_library(stages[stage.inputs[0]], stage)


def set_attribute(file: SourceFile, call: cst.Call, name: str, text: str) -> None:
    """Set an attribute of what a call makes in a line of its own, after the statement that names it.

    Raises:
        CannotPatchError: that statement is no ``name = call``, or shares its line with another.
    """
    statement = file.statement(call)
    line = file.line_of(statement)
    is_only = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    if line is not None and is_only and isinstance(statement, cst.Assign) and statement.value is call:
        target = statement.targets[0].target
        if len(statement.targets) == 1 and (made := _dotted(file, target)):
            file.lines_after.setdefault(line, []).append(f"{made}.{name} = {text}")
            return
    raise CannotPatchError(f"set the attribute `{name}` of what the call makes")


def decorate(calls: StageCalls, method: Stage, workers: Stage, decorator: str) -> None:
    """Put a decorator, of a module of Python's, on the method that a stage runs, and import that module.

    It stands above the user's definition. The method of a library's class is decorated in front of the call of it.

    Args:
        calls: of the pipeline.
        method: its stage.
        workers: the stage of the workers that run it.
        decorator: with the module's name: ``functools.cache``.

    Raises:
        CannotPatchError: neither is there, the module's name is something else there, or the file has no import.
    """
    module = decorator.partition(".")[0]
    if _is_of_library(method, workers):
        file, call = calls.of(workers.id)
        named = _dotted(file, call.func)
        if not named or method.function is None or called_name(call) != method.function.name:
            raise CannotPatchError("the call that makes it does not name its class")
        imports.require(file, module, call)
        file.write_before(call, [f"{named}.{method.method} = {decorator}({named}.{method.method})"])
        return
    found = calls.files.get(method.place.file) if method.place is not None else None
    definition = found.definition(method.method, method.place.line) if found is not None and method.place else None
    if found is None or definition is None:
        raise CannotPatchError("its class is not in a file of yours, or has changed meanwhile")
    imports.require(found, module, definition)
    found.decorators[definition] = decorator


def _is_of_library(method: Stage, workers: Stage) -> bool:
    """Return whether a library's class has the method that workers run: it is then told where the user makes one."""
    return workers.place is not None and method.place == workers.place


def _dotted(file: SourceFile, node: cst.CSTNode) -> str:
    """Return the text of a name or of an attribute of one, ``self.train``; empty of anything else."""
    text = file.code(node)
    return text if get_full_name_for_node(node) == text else ""
