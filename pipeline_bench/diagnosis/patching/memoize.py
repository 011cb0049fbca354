"""A call in the user's Python moved into a function of its own, whose results are kept by its arguments."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import libcst as cst

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name, comment_at, expression
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import free_name


def nodes_of(file: SourceFile, made: MemoizableCall) -> list[Any]:
    """Return the call, or the assignments in a row; empty where they are not there any more."""
    start, end = file.at(made.line, made.column), file.at(made.end_line, made.end_column)
    kind = cst.Assign if made.variable else cst.Call
    begun = [each for each in file.nodes if isinstance(each, kind) and file.start(each) == start]
    if not made.variable:
        return [each for each in begun if file.end(each) == end]
    block = file.block(begun[0]) if begun else []
    found: list[Any] = [each for each in block if start <= file.start(each) < end]
    whole = bool(found) and file.end(found[-1]) == end
    return found if whole and all(_assigns(each, made.variable) for each in found) else []


def _assigns(statement: Any, variable: str) -> bool:
    targets = statement.targets if isinstance(statement, cst.Assign) else ()
    return len(targets) == 1 and isinstance(targets[0].target, cst.Name) and targets[0].target.value == variable


def memoize(file: SourceFile, nodes: Sequence[Any], made: MemoizableCall, decorator: str) -> None:
    """Have a function under a decorator make a call, in front of the statement of the module that the call is in.

    Args:
        file: that the call is in.
        nodes: the call, or the assignments in a row, of which only the last one's value is asked for then.
        made: what is known of it.
        decorator: keeps what the function returns by its arguments.

    Raises:
        CannotPatchError: a module that is needed has another name there.
    """
    last = nodes[-1]
    top = file.around(last)[-2]
    imports.require(file, decorator.partition(".")[0], last)
    named = _parameters(made.arguments, _variables_beside(nodes, made.arguments))
    renamed = [each.visit(_Renamed(named)) for each in nodes]
    if made.variable:
        comments = [*map(_comment, map(file.parents.__getitem__, nodes[:-1])), ""]
        lines = [f"{file.code(each)}{comment}" for each, comment in zip(renamed, comments, strict=True)]
        lines.append(f"return {made.variable}")
        file.dropped.update(nodes[:-1])
        value = last.value
    else:
        body = file.code(renamed[0].with_changes(lpar=(), rpar=()))
        lines = [f"return ({body})" if "\n" in body else f"return {body}"]
        value = last
    name = file.free_name(f"kept_{made.variable or called_name(last)}")
    head = f"@{decorator}\ndef {name}({', '.join(named.values())}):\n"
    file.ahead.setdefault(top, []).append(head + "".join(f"    {line}\n" for line in lines))
    kept = f"{name}({', '.join(named)})"
    if made.gives == "other":
        imports.require(file, "copy", last)
        kept = f"copy.deepcopy({kept})"
    file.replaced[value] = expression(f"{kept}.copy()" if made.gives == "array" else kept)


def _comment(line: Any) -> str:
    """Return the comment behind a statement, with the blanks in front of it."""
    end = getattr(line, "trailing_whitespace", None)
    return comment_at(end) if isinstance(end, cst.TrailingWhitespace) else ""


def _variables_beside(nodes: Sequence[Any], arguments: Sequence[str]) -> set[str]:
    """Return the names of the variables that remain where parameters replace the expressions of the arguments."""
    found = _Variables()
    for each in nodes:
        each.visit(_Renamed(dict.fromkeys(arguments, "_"))).visit(found)
    return found.names


def _parameters(arguments: Sequence[str], taken: AbstractSet[str]) -> dict[str, str]:
    """Return the name of a parameter for each expression: that of a variable is its own, and no other's is taken."""
    named = {each: each for each in arguments if each.isidentifier()}
    for text in arguments:
        if text in named:
            continue
        last = text.removesuffix(".numpy()").rpartition(".")[2]
        wanted = last if last.isidentifier() and last not in dir(builtins) else "item"
        named[text] = free_name(wanted, {*taken, *named.values()}, "_")
    return {text: named[text] for text in arguments}


class _Variables(cst.CSTVisitor):
    """Collects the names of variables, without those of attributes and of keyword arguments."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Attribute | cst.Arg):
            node.value.visit(self)
            return False
        if isinstance(node, cst.Name):
            self.names.add(node.value)
        return True


class _Renamed(cst.CSTTransformer):
    """Puts variables in the place of expressions."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._named = {text: name for text, name in named.items() if text != name}

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if isinstance(original_node, cst.BaseExpression) and not isinstance(original_node, cst.Name):
            try:
                text = ast.unparse(ast.parse(f"({cst.Module([]).code_for_node(original_node)})", mode="eval"))
            except SyntaxError:
                return updated_node
            if text in self._named:
                return cst.Name(self._named[text])
        return updated_node
