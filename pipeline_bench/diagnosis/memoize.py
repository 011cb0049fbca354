"""A call in the user's Python moved into a function of its own, whose results are kept by its arguments."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import libcst as cst

from pipeline_bench.diagnosis import imports
from pipeline_bench.diagnosis.source_file import SourceFile, called_name, expression
from pipeline_bench.model.calls import MemoizableCall


def memoize(file: SourceFile, call: cst.Call, made: MemoizableCall, decorator: str) -> None:
    """Have a function under a decorator make a call, in front of the statement of the module that the call is in.

    Args:
        file: that the call is in.
        call: the one whose results are to be kept.
        made: what is known of it.
        decorator: keeps what the function returns by its arguments.

    Raises:
        CannotPatchError: a module that is needed has another name there.
    """
    top = file.around(call)[-2]
    imports.require(file, decorator.partition(".")[0], call)
    names = {each.value for each in file.nodes if isinstance(each, cst.Name) and call in file.around(each)}
    named = _parameters(made.arguments, names)
    renamed = call.with_changes(lpar=(), rpar=()).visit(_Renamed(named))
    assert isinstance(renamed, cst.Call)
    body = file.code(renamed)
    returned = f"({body})" if "\n" in body else body
    name = file.free_name(f"kept_{called_name(call)}")
    file.ahead.setdefault(top, []).append(
        f"@{decorator}\ndef {name}({', '.join(named.values())}):\n    return {returned}\n"
    )
    kept = f"{name}({', '.join(named)})"
    if made.gives == "other":
        imports.require(file, "copy", call)
        kept = f"copy.deepcopy({kept})"
    file.replaced[call] = expression(f"{kept}.copy()" if made.gives == "array" else kept)


def _parameters(arguments: Sequence[str], taken: AbstractSet[str]) -> dict[str, str]:
    """Return the name of a parameter for each expression: that of a variable is its own."""
    named = {each: each for each in arguments if each.isidentifier()}
    for text in arguments:
        if text in named:
            continue
        last = text.removesuffix(".numpy()").rpartition(".")[2]
        wanted = last if last.isidentifier() and last not in dir(builtins) else "item"
        numbered = (f"{wanted}_{number}" for number in itertools.count(2))
        used = {*taken, *named.values()} - ({last} if wanted == last else set())
        named[text] = next(each for each in (wanted, *itertools.islice(numbered, len(used) + 1)) if each not in used)
    return {text: named[text] for text in arguments}


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
