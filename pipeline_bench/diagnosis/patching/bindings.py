"""Which variables the statements of a user's file set and read: names, and attributes such as ``self.ds``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

import libcst as cst

from pipeline_bench.diagnosis.patching.source_file import SourceFile

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TARGETS = (cst.AssignTarget, cst.AnnAssign)
_LEAVING = (cst.Return, cst.Raise, cst.Break, cst.Continue, cst.Yield, cst.Await)


def variable(expression: cst.CSTNode) -> str | None:
    """Return the variable that an expression is: a name, or an attribute like ``self.ds``; None of any other."""
    if isinstance(expression, cst.Attribute) and (owner := variable(expression.value)) is not None:
        return f"{owner}.{expression.attr.value}"
    return expression.value if isinstance(expression, cst.Name) else None


def sets(statement: cst.CSTNode, name: str, value: cst.CSTNode | None = None) -> bool:
    """Return whether a statement is ``name = value``."""
    made = _assigned(statement, name)
    return made is not None and value in (None, made)


def sets_or_keeps(statement: cst.CSTNode, name: str, value: cst.CSTNode) -> cst.IfExp | None:
    """Return the ``value if … else name``, or the same with its sides swapped, that a statement sets a variable to.

    None of any other statement.
    """
    made = _assigned(statement, name)
    if not isinstance(made, cst.IfExp) or value not in (made.body, made.orelse):
        return None
    return made if variable(made.orelse if made.body is value else made.body) == name else None


def _assigned(statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """Return what a statement sets a variable to, and nothing else to; None of any other statement."""
    if isinstance(statement, cst.Assign):
        targets = [each.target for each in statement.targets]
    elif isinstance(statement, cst.AnnAssign):
        targets = [statement.target]
    else:
        return None
    return statement.value if [variable(each) for each in targets] == [name] else None


def mentions(file: SourceFile, statement: cst.CSTNode, name: str) -> int:
    """Return how often a statement sets or reads a variable; of an attribute, that of any object."""
    nodes = ast.walk(ast.parse(_bare(file, statement)))
    if "." in name:
        return sum(isinstance(each, ast.Attribute) and each.attr == name.rpartition(".")[2] for each in nodes)
    return sum(isinstance(each, ast.Name) and each.id == name for each in nodes)


def readers(file: SourceFile, read: cst.BaseExpression) -> list[cst.CSTNode]:
    """Return all places that read the variable that an expression is.

    Of an attribute, those of any object in the same function: what a call reads, there or elsewhere, is not among them.
    """
    if isinstance(read, cst.Name):
        return file.readers(read)
    assert isinstance(read, cst.Attribute)
    function, name = file.function(read), read.attr.value
    alike = [each for each in file.nodes if isinstance(each, cst.Attribute) and each.attr.value == name]
    return [
        each
        for each in alike
        if function in file.around(each)
        and not (isinstance(parent := file.parents[each], _TARGETS) and parent.target is each)
    ]


def shows(file: SourceFile, statement: cst.CSTNode, name: str) -> bool:
    """Return whether a statement may show an attribute to other code without its name: it leaves, or reads its object.

    As ``return`` and ``raise`` do, ``for each in self``, and a property of the file.
    """
    inside = [each for each in file.nodes if statement in file.around(each)]
    functions = [each for each in file.nodes if isinstance(each, cst.FunctionDef)]
    properties = {each.name.value for each in functions if any("property" in file.code(one) for one in each.decorators)}
    owner = name.partition(".")[0]
    return any(
        isinstance(each, _LEAVING)
        or (isinstance(each, cst.Attribute) and each.attr.value in properties)
        or (isinstance(each, cst.Name) and each.value == owner and not isinstance(file.parents[each], cst.Attribute))
        for each in inside
    )


def stored_and_used(file: SourceFile, node: cst.CSTNode) -> tuple[set[str], set[str]]:
    """Return the variables that a statement or an expression sets, or sets a part of, and all names that are in it.

    What is set may be an attribute, such as ``self.ds``; of what is read there is the name alone.
    """
    code = _bare(file, node)
    nodes = list(ast.walk(ast.parse(f"({code}\n)" if isinstance(node, cst.BaseExpression) else code)))
    used = {each.id for each in nodes if isinstance(each, ast.Name)}
    targets = (each for each in nodes if isinstance(getattr(each, "ctx", None), ast.Store | ast.Del))
    stored = {name for each in targets if (name := _stored(each))}
    stored |= {each.name for each in nodes if isinstance(each, _DEFINITIONS)}
    imported = (alias for each in nodes if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names)
    return stored | {(alias.asname or alias.name).split(".")[0] for alias in imported}, used


def stored_in(file: SourceFile, statements: Iterable[cst.CSTNode]) -> set[str]:
    """Return the variables that any of some statements sets, or sets a part of."""
    return {name for each in statements for name in stored_and_used(file, each)[0]}


def seen_elsewhere(file: SourceFile, statements: Sequence[cst.CSTNode]) -> set[str]:
    """Return those variables that some statements set, or a part of, which code that is not in them may read.

    It may not read what a call made for a variable that they alone use: ``options = tf.data.Options()``.
    """
    inside = {each for each in file.nodes if any(one in statements for one in file.around(each))}
    names = [each for each in inside if isinstance(each, cst.Name)]

    def is_own(name: str) -> bool:
        targets = [each for each in names if each.value == name and isinstance(file.parents[each], cst.AssignTarget)]
        made = [getattr(file.parents[file.parents[each]], "value", None) for each in targets]
        is_new = bool(made) and all(isinstance(each, cst.Call) for each in made)
        return is_new and all(reader in inside for each in targets for reader in file.readers(each))

    return {each for each in stored_in(file, statements) if not is_own(each.partition(".")[0])}


def overlapping(stored: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return those of some variables that are others, or have a part that is: ``self.data`` and ``self.data.ds``."""
    dotted = [f"{each}." for each in names]
    return {each for each in stored if any(f"{each}.".startswith(one) or one.startswith(f"{each}.") for one in dotted)}


def that_change(stored: Iterable[str], used: Iterable[str]) -> set[str]:
    """Return those of some variables that are set which may change what some names are, or a part of it."""
    names = set(used)
    return {each for each in stored if each.partition(".")[0] in names}


def unchanged(file: SourceFile, value: cst.BaseExpression, call: cst.Call, later: cst.Call) -> bool:
    """Return whether no variable in a value is set between a call and a later one of the same block."""
    first, last = file.statement(call), file.statement(later)
    block = file.block(last)
    if first not in block:
        return False
    between = block[block.index(first) : block.index(last)]
    used = stored_and_used(file, value)[1]
    return not that_change(stored_in(file, between), used)


def _bare(file: SourceFile, node: cst.CSTNode) -> str:
    return file.code(node).strip().rstrip(";")


def _stored(target: ast.AST) -> str | None:
    """Return the variable of a target: ``self.sizes`` of ``self.sizes[0]``; None where it is a part of a value."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute) and (owner := _stored(target.value)) is not None:
        return f"{owner}.{target.attr}"
    return target.id if isinstance(target, ast.Name) else None
