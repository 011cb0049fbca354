"""A call in the user's Python moved into a function of its own, whose results are kept by its arguments."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import libcst as cst

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.bindings import stored_and_used
from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name, expression
from pipeline_bench.model.calls import MemoizableCall
from pipeline_bench.text import free_name
from pipeline_bench.user_code import assignments
from pipeline_bench.user_code.call_keys import outside_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_WITH_COPY = ("array", "opened")
"""What a call gives that has a method `copy()`."""


def nodes_of(file: SourceFile, made: MemoizableCall) -> list[Any]:
    """Return the call, or the assignments in a row and what leaves between them; empty where they are not there.

    Without what else stands between them.
    """
    start, end = file.at(made.line, made.column), file.at(made.end_line, made.end_column)
    kind = cst.Assign if made.variable else cst.Call
    begun = [each for each in file.nodes if isinstance(each, kind) and file.start(each) == start]
    if not made.variable:
        return [each for each in begun if file.end(each) == end]
    block = file.block(begun[0]) if begun else []
    found: list[Any] = [each for each in block if start <= file.start(each) < end]
    if not found or file.end(found[-1]) != end:
        return []
    run = [_parsed(file, each) for each in found]
    members = assignments.members(run)
    variables = list(filter(None, map(assignments.variable, members)))
    whole = bool(variables) and variables[-1] == made.variable and members[-1] is run[-1]
    nodes = [node for node, each in zip(found, run, strict=True) if each in members]
    leaves = [node for node in nodes if _leaves(file, node)]
    return nodes if whole and len(leaves) <= (len(set(variables)) == 1) else []


def _parsed(file: SourceFile, statement: Any) -> ast.stmt:
    return ast.parse(file.code(statement)).body[0]


def _leaves(file: SourceFile, statement: Any) -> bool:
    """Return whether one of some assignments in a row is what leaves between them."""
    return isinstance(statement, cst.If) and not assignments.variable(_parsed(file, statement))


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
    named = _parameters(arguments, _variables_beside(file, nodes, arguments))
    of_class = next((each.name.value for each in file.around(last) if isinstance(each, cst.ClassDef)), "")
    renamed = [each.visit(_Renamed(named)).visit(_Public(of_class)) for each in nodes]
    may_be_none = made.gives in _WITH_COPY and (_reads_pictures(nodes) or _asks_for_none(file))
    gives = "other" if may_be_none else made.gives
    kept = "copy.deepcopy({})" if gives == "other" else "{}.copy()"
    # Within what runs once, too: two threads may not decode one file, and what is kept is to hold none open.
    within = kept if made.gives == "opened" else "{}"
    value = nodes[0].value if made.variable else last
    name = file.free_name(f"kept_{made.variable or called_name(last)}")
    head = f"@{decorator}\ndef {name}({', '.join(named.values())}):\n"
    if made.variable:
        of_function: Any = cst.parse_statement(f"{head}    return {within.format(made.variable)}\n")
        statements = [*_statements_of(file, nodes, renamed, made.variable), *of_function.body.body]
        definition = file.code(of_function.with_changes(body=cst.IndentedBlock(statements)))
        _take_out(file, nodes, made.variable)
    else:
        body = file.code(renamed[0].with_changes(lpar=(), rpar=()))
        definition = f"{head}    return {within.format(f'({body})' if len(body.splitlines()) > 1 else body)}\n"
    file.ahead.setdefault(top, []).append(definition)
    if gives == "other":
        imports.require(file, "copy", last)
    call = f"{name}({', '.join(named)})"
    file.replaced[value] = expression(call if gives == "constant" else kept.format(call))


def _take_out(file: SourceFile, nodes: Sequence[Any], variable: str) -> None:
    """Leave only the first of some assignments, to the variable that the last one makes; what leaves stays behind it.

    So does a last one that is to a part of something, which gets the variable.
    """
    first, *others = nodes
    file.replaced[first.targets[0].target] = cst.Name(variable)
    for each in others:
        if isinstance(each, cst.Assign) and not isinstance(each.targets[0].target, cst.Name):
            file.replaced[each.value] = cst.Name(variable)
        elif not _leaves(file, each):
            file.dropped.add(each)
            if any(_comments_above(file.parents[each])):
                file.moved.add(file.parents[each])


def _statements_of(file: SourceFile, nodes: Sequence[Any], renamed: Sequence[Any], variable: str) -> Iterator[Any]:
    """Yield assignments, with the comments of those that are taken out, and what leaves between."""
    for node, new in zip(nodes, renamed, strict=True):
        line: Any = file.parents[node]
        if _leaves(file, node):
            yield cst.parse_statement(f"if {file.code(node.test)}:\n    return {variable}\n")
        elif isinstance(node, cst.If):
            yield new.with_changes(leading_lines=list(_comments_above(node)))
        else:
            is_part = not isinstance(node.targets[0].target, cst.Name)
            targets = [cst.AssignTarget(cst.Name(variable))] if is_part else new.targets
            single = new.with_changes(targets=targets, semicolon=cst.MaybeSentinel.DEFAULT)
            goes = node is not nodes[0] and not is_part and isinstance(line, cst.SimpleStatementLine)
            beside = {"trailing_whitespace": line.trailing_whitespace} if goes else {}
            yield cst.SimpleStatementLine([single], list(_comments_above(line)) if goes else [], **beside)


def _comments_above(line: Any) -> Iterator[cst.EmptyLine]:
    """Yield the comments above a line whose statements all go, which take them along."""
    goes = isinstance(line, cst.If) or (isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1)
    yield from (each for each in (line.leading_lines if goes else ()) if each.comment is not None)


def _reads_pictures(nodes: Iterable[Any]) -> bool:
    """Return whether nodes call OpenCV's `imread`, or one like it, which gives None of a file that is no picture."""
    return any("imread" in cst.Module([]).code_for_node(each) for each in nodes)


def _asks_for_none(file: SourceFile) -> bool:
    """Return whether a file asks whether something is None, or what it is, as who reads a file that may be none.

    An attribute does not count, nor does a parameter of the same function that is None where it is not given.
    """
    tree = ast.parse(file.module.code)
    of_parameters = {
        id(each)
        for function in ast.walk(tree)
        if isinstance(function, _FUNCTIONS)
        for each in _asked_of_parameters(function)
    }
    return any(
        not isinstance(each.left, ast.Attribute)
        and id(each) not in of_parameters
        and any(map(_is_none, each.comparators))
        for each in ast.walk(tree)
        if isinstance(each, ast.Compare)
    )


def _asked_of_parameters(function: Any) -> Iterator[ast.Compare]:
    """Yield where a function compares a parameter of its own that is None where it is not given."""
    arguments = function.args
    last = [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) :] if arguments.defaults else []
    pairs = zip([*last, *arguments.kwonlyargs], [*arguments.defaults, *arguments.kw_defaults], strict=True)
    not_given = {parameter.arg for parameter, default in pairs if _is_none(default)}
    for each in ast.walk(function):
        if isinstance(each, ast.Compare) and isinstance(each.left, ast.Name) and each.left.id in not_given:
            yield each


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _variables_beside(file: SourceFile, nodes: Sequence[Any], arguments: Sequence[str]) -> set[str]:
    """Return the names of the variables that remain where parameters replace the expressions of the arguments."""
    beside = (each.visit(_Renamed(dict.fromkeys(arguments, "_"))) for each in nodes)
    return {name for each in beside for name in stored_and_used(file, each)[1]}


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


class _Public(cst.CSTTransformer):
    """Names attributes that are another one within a class as code outside of it does: ``_Pictures__read``."""

    def __init__(self, of_class: str) -> None:
        self._of_class = of_class

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if not isinstance(original_node, cst.Attribute):
            return updated_node
        own = original_node.attr.value
        name = outside_of(self._of_class, own)
        return updated_node if name == own else updated_node.with_changes(attr=cst.Name(name))


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
