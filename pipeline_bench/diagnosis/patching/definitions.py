"""Where the function that a map is given is defined in the user's file."""

from __future__ import annotations

import libcst as cst

from pipeline_bench.diagnosis.patching.source_file import SourceFile
from pipeline_bench.model.calls import CannotPatchError
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.tfdata import map_functions


def of_map(file: SourceFile, stage: Stage, given: cst.Arg | None) -> cst.FunctionDef:
    """Return the definition that the call of a map names, that its lambda only calls, or that is a method beside it.

    Args:
        file: that the call is in.
        stage: of the map.
        given: the argument of the call that is the function.

    Raises:
        CannotPatchError: it is not known, or is in another file.
    """
    function, place = stage.function, stage.place
    if function is None or place is None or function.file != place.file or function.line is None:
        raise CannotPatchError("its function is in another file")
    if given is not None and isinstance(given.value, cst.Lambda):
        return _called(file, given.value)
    if given is not None and isinstance(given.value, cst.Attribute):
        return _method(file, given.value, function.line)
    if given is None or not isinstance(given.value, cst.Name) or given.value.value != function.name:
        raise CannotPatchError("its function is not given by its name")
    definition = file.definition(function.name, function.line)
    if definition is None:
        raise CannotPatchError("its function has changed")
    if file.only_definition(function.name, given.value) is not definition:
        raise CannotPatchError(f"{function.name} may be another function where it is given")
    return definition


def _called(file: SourceFile, given: cst.Lambda) -> cst.FunctionDef:
    if map_functions.has_comment(file.code(given)):
        raise CannotPatchError("its lambda has a comment in it")
    called = map_functions.read(file.code(given))
    definition = file.only_definition(called.name, given) if called is not None else None
    if definition is None:
        raise CannotPatchError("its lambda does more than call one function of the file")
    return definition


def _method(file: SourceFile, given: cst.Attribute, line: int) -> cst.FunctionDef:
    """Return the method that a method of the same class gives as its object's, where no other function is named so.

    A class that is derived from this one may have another, which would no longer be called.
    """
    name, around = given.attr.value, file.function(given)
    alike = [each for each in file.nodes if isinstance(each, cst.FunctionDef) and each.name.value == name]
    definition = file.definition(name, line)
    if definition is None or alike != [definition] or not isinstance(around, cst.FunctionDef):
        raise CannotPatchError("its function is not given by its name, or may be another one")
    owners = [each.name.value for each in around.params.params[:1]]
    is_own = isinstance(given.value, cst.Name) and [given.value.value] == owners
    own_class = _class(file, definition)
    if not is_own or own_class is None or _class(file, around) is not own_class:
        raise CannotPatchError("its method is not given by another one of the same object")
    return definition


def _class(file: SourceFile, method: cst.FunctionDef) -> cst.ClassDef | None:
    """Return the class whose method a function is; None of any other function."""
    around = file.around(method)[2:3]  # behind the class's block
    return around[0] if around and isinstance(around[0], cst.ClassDef) else None
