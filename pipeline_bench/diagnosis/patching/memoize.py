"""A call in the user's Python moved into a function of its own, whose results are kept by its arguments."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import libcst as cst

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name, comment_at, expression
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import free_name

_WITH_COPY = ("array", "opened")
"""What a call gives that has a method `copy()`."""


def nodes_of(file: SourceFile, made: MemoizableCall) -> list[Any]:
    """Return the call, or the assignments in a row and what leaves between them; empty where they are not there."""
    start, end = file.at(made.line, made.column), file.at(made.end_line, made.end_column)
    kind = cst.Assign if made.variable else cst.Call
    begun = [each for each in file.nodes if isinstance(each, kind) and file.start(each) == start]
    if not made.variable:
        return [each for each in begun if file.end(each) == end]
    block = file.block(begun[0]) if begun else []
    found: list[Any] = [each for each in block if start <= file.start(each) < end]
    whole = bool(found) and file.end(found[-1]) == end
    return found if whole and _variable(found[-1]) == made.variable and _are_in_a_row(found) else []


def _are_in_a_row(statements: Sequence[Any]) -> bool:
    """Return whether each of some assignments reads what the one before made.

    By one variable if they leave between, which they may once.
    """
    assigned = [each for each in statements if not isinstance(each, cst.If)]
    variables = list(map(_variable, assigned))
    leaves = len(statements) - len(assigned)
    reads = (one in _names([then.value]) for one, then in zip(variables, assigned[1:], strict=False))
    return all(variables) and not (leaves and len(set(variables)) > 1) and leaves <= 1 and all(reads)


def _variable(statement: Any) -> str:
    """Return the one variable that a statement assigns to; empty of any other statement."""
    targets = statement.targets if isinstance(statement, cst.Assign) else ()
    target = targets[0].target if len(targets) == 1 else None
    return target.value if isinstance(target, cst.Name) else ""


def memoize(file: SourceFile, nodes: Sequence[Any], made: MemoizableCall, decorator: str) -> None:
    """Have a function under a decorator make a call, in front of the statement of the module that the call is in.

    Args:
        file: that the call is in.
        nodes: the call, or the assignments in a row, of which only the last one's value is asked for then; with what
            leaves between them where there is none, which stays.
        made: what is known of it. What the methods of its owner read is a parameter too, which the function itself
            need not ask for: other code may set it at any time.
        decorator: keeps what the function returns by its arguments.

    Raises:
        CannotPatchError: a module that is needed has another name there.
    """
    last = nodes[-1]
    top = file.around(last)[-2]
    imports.require(file, decorator.partition(".")[0], last)
    arguments = tuple(dict.fromkeys((*made.arguments, *(f"{made.owner}.{each}" for each in made.owner_reads))))
    named = _parameters(arguments, _variables_beside(nodes, arguments))
    renamed = [each.visit(_Renamed(named)) for each in nodes]
    gives = "other" if made.gives in _WITH_COPY and _asks_for_none(file) else made.gives
    decoded = ".copy()" if gives == "opened" else ""  # within what runs once: two threads may not decode one file
    if made.variable:
        leaves = any(isinstance(each, cst.If) for each in nodes)
        stays = nodes[0] if leaves else last  # what leaves comes behind it
        lines = [*_lines_of(file, nodes, renamed, stays), f"return {made.variable}{decoded}"]
        dropped = [each for each in nodes if isinstance(each, cst.Assign) and each is not stays]
        file.dropped.update(dropped)
        file.moved.update(file.parents[each] for each in dropped if any(_comments_above(file.parents[each])))
        value = stays.value
    else:
        body = file.code(renamed[0].with_changes(lpar=(), rpar=()))
        lines = [f"return ({body}){decoded}" if "\n" in body else f"return {body}{decoded}"]
        value = last
    name = file.free_name(f"kept_{made.variable or called_name(last)}")
    head = f"@{decorator}\ndef {name}({', '.join(named.values())}):\n"
    file.ahead.setdefault(top, []).append(head + "".join(f"    {line}\n" for line in lines))
    kept = f"{name}({', '.join(named)})"
    if gives == "other":
        imports.require(file, "copy", last)
        kept = f"copy.deepcopy({kept})"
    file.replaced[value] = expression(f"{kept}.copy()" if gives in _WITH_COPY else kept)


def _lines_of(file: SourceFile, nodes: Sequence[Any], renamed: Sequence[Any], stays: Any) -> Iterator[str]:
    """Yield the lines of assignments, with their comments but for the one that stays, and of what leaves between."""
    for node, new in zip(nodes, renamed, strict=True):
        if isinstance(node, cst.If):
            yield f"if {file.code(node.test)}:"
            yield f"    return {_variable(nodes[0])}"
        elif node is stays:
            yield file.code(new)
        else:
            yield from _comments_above(file.parents[node])
            yield f"{file.code(new)}{_comment(file.parents[node])}"


def _comments_above(line: Any) -> Iterator[str]:
    """Yield the comments above a line whose statements all go, which take them along."""
    above = line.leading_lines if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else ()
    yield from (each.comment.value for each in above if each.comment is not None)


def _asks_for_none(file: SourceFile) -> bool:
    """Return whether a file asks whether something is None, as what reads a picture gives of a file that is none.

    An attribute does not count, nor does a parameter that is None where it is not given.
    """
    nodes = list(ast.walk(ast.parse(file.module.code)))
    not_given: set[str] = set()
    for each in nodes:
        if isinstance(each, ast.arguments):
            last = [*each.posonlyargs, *each.args][-len(each.defaults) :] if each.defaults else []
            pairs = zip([*last, *each.kwonlyargs], [*each.defaults, *each.kw_defaults], strict=True)
            not_given.update(parameter.arg for parameter, default in pairs if _is_none(default))
    return any(
        not isinstance(each.left, ast.Attribute)
        and not (isinstance(each.left, ast.Name) and each.left.id in not_given)
        and any(map(_is_none, each.comparators))
        for each in nodes
        if isinstance(each, ast.Compare)
    )


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _comment(line: Any) -> str:
    """Return the comment behind a statement, with the blanks in front of it."""
    end = getattr(line, "trailing_whitespace", None)
    return comment_at(end) if isinstance(end, cst.TrailingWhitespace) else ""


def _variables_beside(nodes: Sequence[Any], arguments: Sequence[str]) -> set[str]:
    """Return the names of the variables that remain where parameters replace the expressions of the arguments."""
    return _names([each.visit(_Renamed(dict.fromkeys(arguments, "_"))) for each in nodes])


def _names(nodes: Iterable[Any]) -> set[str]:
    """Return the names of the variables in nodes."""
    found = _Variables()
    for each in nodes:
        each.visit(found)
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
