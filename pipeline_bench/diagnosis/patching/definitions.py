"""Where the function that a map is given is defined: in the file of its call, or in another one of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import ImportAssignment

from pipeline_bench.diagnosis.patching.bindings import stored_and_used
from pipeline_bench.diagnosis.patching.source_file import SourceFile
from pipeline_bench.diagnosis.patching.stage_calls import StageCalls
from pipeline_bench.model.calls import CannotPatchError
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.tfdata import function_halves, map_functions
from pipeline_bench.tfdata.function_halves import Within

_WITH_VARIABLES = (cst.FunctionDef, cst.ClassDef, cst.Module)


class Imported(NamedTuple):
    """How a function of another file gets a name in the file of the map's call.

    Attributes:
        calling: the file of the call.
        statement: the import of the function or of its module.
        module: that the function is taken from, as the import names it: ``data.loading``.
        is_direct: whether that is the module that defines the function, and no other one that imports it.
    """

    calling: SourceFile
    statement: cst.Import | cst.ImportFrom
    module: str
    is_direct: bool


@dataclass(frozen=True)
class Definition:
    """Where a map's function is defined, and how the map's call names it.

    Attributes:
        file: that the definition is in.
        node: the definition.
        prefix: what stands in front of the function's name in the call: ``self.``, or ``loading.`` of a module.
        imported: how the call's file imports it; None where both files are one.
        path: of the file.
    """

    file: SourceFile
    node: cst.FunctionDef
    prefix: str = ""
    imported: Imported | None = None
    path: str = ""

    @property
    def is_method(self) -> bool:
        """Whether the call names a method of an object."""
        return bool(self.prefix) and self.imported is None

    @property
    def is_of_module(self) -> bool:
        """Whether it stands in no class and in no other function, whose variables it could read."""
        around = self.file.around(self.node)[1:]
        return not any(isinstance(each, cst.ClassDef | cst.FunctionDef) for each in around)

    def write_called(self, within: Within, first: cst.Call, call: cst.Call) -> tuple[str, ...]:
        """Write both parts of a function of its file that it calls behind that one, and return their names.

        Args:
            within: how that function is divided.
            first: the first of the calls between which the map is divided.
            call: of the map.

        Raises:
            CannotPatchError: the name may be another function, or is defined too late.
        """
        node = self.file.only_definition(within.name, self.node.body)
        if node is None or self.file.lines(node)[0] != within.line:
            raise CannotPatchError(f"{within.name}, which its function calls, may be another function")
        called = Definition(self.file, node)
        if self.imported is None:
            called.check_before(first, call)
        fixed, random = called.free_names()
        called.write_behind({fixed: within.split.fixed(fixed), random: within.split.random(random)})
        return fixed, random

    def free_names(self) -> tuple[str, ...]:
        """Return names for both parts of the function: the first that neither file has.

        Raises:
            CannotPatchError: of two files, one has a name of each pair.
        """
        name = self.node.name.value
        wanted = [(f"{name}{one}", f"{name}{other}") for one, other in function_halves.NAME_ENDS]
        if self.imported is not None:
            wanted = [each for each in wanted if (self.file.names | self.imported.calling.names).isdisjoint(each)]
        if not wanted:
            raise CannotPatchError("the names for the two parts of its function are taken")
        return self.file.free_names(*wanted)

    def check_before(self, first: cst.Call, call: cst.Call) -> None:
        """Raise `CannotPatchError` where it stands behind a call in the function that the map's call is in, too."""
        file = self.file
        is_beside = self.imported is None and file.function(self.node) is file.function(call)
        if is_beside and file.start(self.node) > file.start(first):
            raise CannotPatchError("its function is defined behind the first of the two calls")

    def write_behind(self, parts: dict[str, str]) -> None:
        """Write the parts of the function, the texts by name, behind it, and import them where it is imported.

        Raises:
            CannotPatchError: the import is not of the file itself, or does not begin a line, or names may be taken.
        """
        self.file.behind[self.node] = [*parts.values()]
        if self.imported is None:
            return
        calling, statement, module, is_direct = self.imported
        if not is_direct:
            raise CannotPatchError(f"its function is imported from another module than {PurePath(self.path).name}")
        if self.prefix or not isinstance(statement, cst.ImportFrom):
            return
        if any(isinstance(each, cst.ImportStar) for each in calling.nodes):
            raise CannotPatchError("an import of all names (*) may set the names for the two parts of its function")
        line = calling.line_of(statement)
        if line is None:
            raise CannotPatchError("the import of its function does not begin a line")
        dots = "." * len(statement.relative)
        calling.lines_after.setdefault(line, []).append(f"from {dots}{module} import {', '.join(parts)}\n")


def of_map(calls: StageCalls, stage: Stage, given: cst.Arg | None) -> Definition:
    """Return the definition that the call of a map names, that its lambda only calls, or that is a method beside it.

    Args:
        calls: in the user's files, of which one is the map's.
        stage: of the map.
        given: the argument of the call that is the function.

    Raises:
        CannotPatchError: it is not known.
    """
    file, function = calls.of(stage.id)[0], stage.function
    if function is None or stage.place is None or function.file is None or function.line is None or given is None:
        raise CannotPatchError("where its function is defined is not known")
    if function.file != stage.place.file:
        return _imported(calls, stage.place.file, function, given.value)
    method = _attribute(given.value)
    prefix = "" if method is None else f"{file.code(method.value)}."
    if isinstance(given.value, cst.Lambda):
        return Definition(file, _called(file, given.value), prefix)
    if method is not None:
        return Definition(file, _method(file, method, function.line), prefix)
    if not isinstance(given.value, cst.Name) or given.value.value != function.name:
        raise CannotPatchError("its function is not given by its name")
    definition = file.definition(function.name, function.line)
    if definition is None:
        raise CannotPatchError("its function has changed")
    if file.only_definition(function.name, given.value) is not definition:
        raise CannotPatchError(f"{function.name} may be another function where it is given")
    return Definition(file, definition)


def _imported(calls: StageCalls, path: str, function: UserFunction, given: cst.BaseExpression) -> Definition:
    """Return the definition of a function of another file's module that an import gives a name, or gives its module.

    Args:
        calls: in the user's files.
        path: of the file with the map's call.
        function: the map's.
        given: what the call is given for it.

    Raises:
        CannotPatchError: there is none.
    """
    assert function.file is not None
    assert function.line is not None
    calling = calls.file(path)
    variable = given.value if isinstance(given, cst.Attribute) else given
    made = calling.made(variable.value, variable) if isinstance(variable, cst.Name) else []
    statement = made[0].node if len(made) == 1 and isinstance(made[0], ImportAssignment) else None
    if not isinstance(variable, cst.Name) or not isinstance(statement, cst.Import | cst.ImportFrom):
        raise CannotPatchError("its function is in another file, and not given as an import names it")
    around = next(each for each in calling.around(statement)[1:] if isinstance(each, _WITH_VARIABLES))
    if getattr(made[0].scope, "node", calling.module) is not around:
        raise CannotPatchError("the import of its function sets a variable of another function or of the module")
    module, _, name = f"{_whole_name(statement, variable.value)}{_behind(given)}".rpartition(".")
    file = calls.file(function.file)
    definition = file.definition(function.name, function.line)
    is_of_module = definition is not None and file.function(definition) is file.module
    if definition is None or name != function.name or not is_of_module or len(file.made(name, definition)) > 1:
        raise CannotPatchError(f"its function is not the only {name or 'one'} of {PurePath(function.file).name}")
    prefix = f"{variable.value}." if variable is not given else ""
    imported = Imported(calling, statement, module, _is_direct(function, statement, module, PurePath(path)))
    return Definition(file, definition, prefix, imported, function.file)


def _is_direct(function: UserFunction, statement: cst.Import | cst.ImportFrom, module: str, calling: PurePath) -> bool:
    """Return whether the module that an import in a file names is the one that a function is defined in."""
    dots = len(statement.relative) if isinstance(statement, cst.ImportFrom) else 0
    if not dots:
        return module == function.module
    named = PurePath(*list(calling.parents)[dots - 1 : dots], *filter(None, module.split(".")))
    return function.file in (str(named.parent / f"{named.name}.py"), str(named / "__init__.py"))


def _whole_name(statement: cst.Import | cst.ImportFrom, variable: str) -> str:
    """Return what an import makes a variable, ``data.loading.load``; empty where it is only the top of a package."""
    aliases = statement.names if not isinstance(statement.names, cst.ImportStar) else ()
    names = {each.evaluated_alias or each.evaluated_name: each.evaluated_name for each in aliases}
    module = (
        get_full_name_for_node(statement.module) if isinstance(statement, cst.ImportFrom) and statement.module else ""
    )
    return f"{module}.{names[variable]}".lstrip(".") if variable in names else ""


def _behind(given: cst.BaseExpression) -> str:
    return f".{given.attr.value}" if isinstance(given, cst.Attribute) else ""


def _attribute(given: cst.BaseExpression) -> cst.Attribute | None:
    """Return the method that is given, or that a lambda calls; None of anything else."""
    if isinstance(given, cst.Lambda) and isinstance(given.body, cst.Call):
        given = given.body.func
    return given if isinstance(given, cst.Attribute) else None


def _called(file: SourceFile, given: cst.Lambda) -> cst.FunctionDef:
    if map_functions.has_comment(file.code(given)):
        raise CannotPatchError("its lambda has a comment in it")
    called, method = map_functions.read(file.code(given)), _attribute(given)
    if called is not None and method is not None:
        return _method(file, method)
    definition = file.only_definition(called.name, given) if called is not None else None
    if definition is None:
        raise CannotPatchError("its lambda does more than call one function of the file")
    return definition


def _method(file: SourceFile, given: cst.Attribute, line: int | None = None) -> cst.FunctionDef:
    """Return the method that a method of the same class gives as its object's, where no other function is named so.

    A class that is derived from this one may have another, which would no longer be called.

    Args:
        file: that it is in.
        given: the method as it is named: ``self.load``.
        line: where it is defined, where that is known.
    """
    name, around = given.attr.value, file.function(given)
    alike = [each for each in file.nodes if isinstance(each, cst.FunctionDef) and each.name.value == name]
    definition = alike[0] if line is None and alike else file.definition(name, line or 0)
    is_set = any(each.endswith(f".{name}") for each in stored_and_used(file, file.module)[0])  # self.load = other.load
    if definition is None or alike != [definition] or is_set or not isinstance(around, cst.FunctionDef):
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
