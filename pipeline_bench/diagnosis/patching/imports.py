"""What a user's file calls a module that code to write needs, and the import of one that it lacks."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import ImportAssignment

from pipeline_bench.diagnosis.patching.source_file import SourceFile
from pipeline_bench.model.calls import CannotPatchError

_TENSORFLOW = ("tensorflow", "tensorflow.compat.v2", "tensorflow.compat.v1")


def tensorflow(file: SourceFile, call: cst.Call) -> str:
    """Return how the file calls ``tf.`` where a call stands, with an import of it where the file has none.

    Raises:
        CannotPatchError: the import would stand under a condition, or has no place.
    """
    names = (each.removesuffix("data.") for each in _imported_data(file, call) if each.endswith(".data."))
    return next(names, None) or _as_tf(file, call)


def spelled(file: SourceFile, call: cst.Call, text: str) -> str:
    """Return a text with ``tf.data.`` as the file calls it where a call stands, with an import where it has none.

    Raises:
        CannotPatchError: it has no name for it.
    """
    if "tf.data." not in text:
        return text
    return text.replace("tf.data.", next(_imported_data(file, call), None) or f"{_as_tf(file, call)}data.")


def unconditional(file: SourceFile) -> list[cst.Import | cst.ImportFrom]:
    """Return the imports of the module itself that no condition and no `try` is around."""
    lines = (each for each in file.module.body if isinstance(each, cst.SimpleStatementLine))
    return [each for line in lines for each in line.body if isinstance(each, cst.Import | cst.ImportFrom)]


def add(file: SourceFile, statement: str) -> None:
    """Write an import in front of the file's first one, once.

    Raises:
        CannotPatchError: the file has no import.
    """
    first = next((each for each in unconditional(file) if not file.code(each).startswith("from __future__")), None)
    line = file.line_of(first) if first is not None else None
    if line is None:
        raise CannotPatchError(f"there is no place for `{statement}`")
    before = file.lines_before.setdefault(line, [])
    if f"{statement}\n" not in before:
        before.append(f"{statement}\n")


def require(file: SourceFile, module: str, node: cst.CSTNode) -> None:
    """Import a module of Python's in front of the file's first import, where no name stands for it at a node.

    Raises:
        CannotPatchError: the name is something else there, or the file has no import in front of that.
    """
    imports = unconditional(file)
    own = [each for each in imports if _binds(each, module)]
    if file.made(module, node) and not (own and file.is_imported(module, node)):
        raise CannotPatchError(f"{module} is not a name for that module there")
    top = file.start(file.around(node)[-2])
    if not any(file.start(each) < top for each in own):  # as in a notebook, whose cells import what they need
        if imports and file.start(imports[0]) > top:
            raise CannotPatchError("the file has no import in front of that")
        add(file, f"import {module}")


def _as_tf(file: SourceFile, call: cst.Call) -> str:
    """Return ``tf.``, with an import of it where nothing makes it something where a call stands.

    Raises:
        CannotPatchError: the only import of it stands under a condition, or there is no place for one.
    """
    if "tf" not in file.names or _is_made_elsewhere(file, "tf", call):
        add(file, "import tensorflow as tf")
    elif _is_conditional(file, "tf", call):
        raise CannotPatchError("the file has no name for tf.data itself")
    return "tf."


def _imported_data(file: SourceFile, call: cst.Call) -> Iterator[str]:
    """Yield the names that imports have for ``tf.data.`` where a call stands: ``tf_data.``, ``tf.data.``."""
    places = (file.function(call), file.module)
    for node in file.nodes:
        if not isinstance(node, cst.Import | cst.ImportFrom) or file.function(node) not in places:
            continue
        if any(isinstance(each, cst.If) for each in file.around(node)):  # as for type checkers only
            continue
        start = f"{get_full_name_for_node(node.module)}." if isinstance(node, cst.ImportFrom) and node.module else ""
        for alias in node.names if not isinstance(node.names, cst.ImportStar) else ():
            used = alias.evaluated_alias or alias.evaluated_name.split(".")[0]
            whole = f"{start}{alias.evaluated_name}"
            if not file.is_imported(used, call):
                continue
            if whole in _TENSORFLOW:
                yield f"{used}.data."
            elif whole == "tensorflow.data" and (alias.asname or start):
                yield f"{used}."
            elif whole.startswith("tensorflow.") and not (alias.asname or start):
                yield "tensorflow.data."


def _is_made_elsewhere(file: SourceFile, name: str, node: cst.CSTNode) -> bool:
    """Return whether only other functions make a name something, and nothing does where a node stands.

    One that nothing in the file makes anything comes from an import of all names.
    """
    bodies = (each for each in file.nodes if isinstance(each, cst.IndentedBlock))
    return not file.made(name, node) and any(file.made(name, each) for each in bodies)


def _is_conditional(file: SourceFile, name: str, node: cst.CSTNode) -> bool:
    """Return whether a name is, where a node stands, only what an import under a condition makes it."""
    made = file.made(name, node)
    ifs = [isinstance(each, ImportAssignment) and cst.If in map(type, file.around(each.node)) for each in made]
    return bool(ifs) and all(ifs)


def _binds(statement: cst.Import | cst.ImportFrom, module: str) -> bool:
    """Return whether an import makes a module's name that module."""
    names = statement.names if isinstance(statement, cst.Import) else ()
    return any(alias.asname is None and alias.evaluated_name == module for alias in names)
