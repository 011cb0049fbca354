"""Which function of one definition a map runs: a plain one, a method, or the one that its lambda only calls.

Of ``lambda path: load(path, True)`` that is `load`: it gets the lambda's own parameters, and what is the same for all
elements. So it is of ``lambda image, label: (load(image, True), label)``, which hands the others on.
"""

from __future__ import annotations

import ast
import functools
import io
import linecache
import tokenize
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any, NamedTuple

_LAMBDA = "<lambda>"


@dataclass(frozen=True)
class CalledFunction:
    """What a lambda calls.

    Attributes:
        name: of the function.
        elements: the lambda's parameters, each of which is one argument; without those that it hands on.
        positional: the texts of the arguments by position. Those that are no elements are the same for all elements.
        named: the texts of the arguments by name, likewise.
        owner: the variable whose method it is; empty of a plain function.
        gives: what the lambda gives: its parameters that it hands on, and an empty text where the function's result is.
    """

    name: str
    elements: tuple[str, ...]
    positional: tuple[str, ...]
    named: dict[str, str]
    owner: str = ""
    gives: tuple[str, ...] = ("",)

    def given(self, function: ast.FunctionDef) -> dict[str, str] | None:
        """Return the texts of what the function is called with, by parameter, without its object.

        A default is among them. None where one is no literal, or where the call does not fit the parameters.
        """
        parameters = [each.arg for each in function.args.args]
        defaults = function.args.defaults
        with_default = zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
        literals = {name: ast.unparse(value) for name, value in with_default if _is_literal(value)}
        rest = parameters[bool(self.owner) :]
        if len(self.positional) > len(rest) or not self.named.keys() <= {*rest[len(self.positional) :]}:
            return None
        known = {**literals, **dict(zip(rest, self.positional, strict=False)), **self.named}
        return {name: known[name] for name in rest} if known.keys() >= {*rest} else None


def read(text: str) -> CalledFunction | None:
    """Return what a lambda calls, of its text; None of any other lambda, and of one with a comment in it."""
    try:
        return None if has_comment(text) else _called_by(ast.parse(f"({text})", mode="eval").body)
    except SyntaxError:
        return None


def has_comment(text: str) -> bool:
    """Return whether there is a comment in the text of an expression."""
    try:
        tokens = [*tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline)]
    except (SyntaxError, tokenize.TokenError):
        return "#" in text
    return any(each.type == tokenize.COMMENT for each in tokens)


class DefinedFunction(NamedTuple):
    """A function of one definition that a map runs.

    Attributes:
        plain: the function.
        caller: the lambda that calls it, or itself.
        called: how the lambda calls it.
        owner: the object that it gets in front of the elements, in a tuple; empty where it is no method.
    """

    plain: FunctionType
    caller: FunctionType
    called: CalledFunction | None = None
    owner: tuple[Any, ...] = ()

    def of_elements(self, half: FunctionType, given: dict[str, str], spread: bool = False) -> Callable[..., Any]:
        """Return a part of it as a function of the elements alone.

        Args:
            half: the part, with the variables around it.
            given: what it gets besides, the texts by parameter.
            spread: whether what the lambda hands on stands beside each value of the tuple that the part gives.
        """
        values = {name: value(self.caller, text) for name, text in given.items()}
        part = functools.partial(half, *self.owner, **values) if values or self.owner else half
        gives = ("",) if self.called is None else self.called.gives
        ahead, behind = gives.index(""), gives[::-1].index("")

        def handing_on(*elements: Any) -> Any:
            end = len(elements) - behind
            made = part(*elements[ahead:end])
            return (*elements[:ahead], *(made if spread else (made,)), *elements[end:])

        return part if len(gives) == 1 else handing_on


def defined(function: Any) -> DefinedFunction | None:
    """Return the function of one definition that a map's function is, or calls; None of any other, as of a partial."""
    if isinstance(function, MethodType):
        found = _method(function)
    elif type(function) is FunctionType and function.__name__ == _LAMBDA:
        found = _called_function(function)
    else:
        found = DefinedFunction(function, function) if isinstance(function, FunctionType) else None
    return None if found is None or hasattr(found.plain, "__wrapped__") else found


def _method(method: MethodType) -> DefinedFunction | None:
    """Return the method of an object's own class that no other class has; None of any other."""
    plain, kind = method.__func__, type(method.__self__)
    if not isinstance(plain, FunctionType) or vars(kind).get(plain.__name__) is not plain:
        return None
    return None if kind.__subclasses__() else DefinedFunction(plain, plain, owner=(method.__self__,))


def _called_function(function: FunctionType) -> DefinedFunction | None:
    """Return the function or method of the same file that a lambda only calls, as `read` says; None of any other.

    Of several lambdas in one line it is not known which of them it is.
    """
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename)).removeprefix("\ufeff")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    lambdas = [each for each in ast.walk(tree) if isinstance(each, ast.Lambda) and each.lineno == code.co_firstlineno]
    called = read(ast.get_source_segment(text, lambdas[0]) or "") if len(lambdas) == 1 else None
    if called is None:
        return None
    owner = value(function, called.owner) if called.owner else None
    given = getattr(owner, called.name, None) if called.owner else value(function, called.name)
    # An object may have another one's method: its own class would then get the halves.
    found = _method(given) if isinstance(given, MethodType) and given.__self__ is owner else None
    if isinstance(given, FunctionType) and not called.owner:
        found = DefinedFunction(given, given)
    if found is None or (found.plain.__code__.co_filename, found.plain.__name__) != (code.co_filename, called.name):
        return None
    return found._replace(caller=function, called=called) if bool(found.owner) == bool(called.owner) else None


def value(function: Any, text: str) -> Any:
    """Return what a name, or another text of a `CalledFunction`, stands for in a lambda."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return eval(text, function.__globals__, {name: cell.cell_contents for name, cell in cells})  # noqa: S307 - theirs


def names_in(texts: Iterable[str]) -> set[str]:
    """Return the variables that texts of a `CalledFunction` use."""
    trees = (ast.parse(text, mode="eval") for text in texts)
    return {each.id for tree in trees for each in ast.walk(tree) if isinstance(each, ast.Name)}


def _called_by(node: ast.expr) -> CalledFunction | None:
    if not isinstance(node, ast.Lambda):
        return None
    own, parameters = node.args, [each.arg for each in node.args.args]
    values = node.body.elts if isinstance(node.body, ast.Tuple) and node.body.elts[1:] else [node.body]
    calls = [each for each in values if isinstance(each, ast.Call)]
    called = call_of(calls[0], parameters) if len(calls) == 1 else None
    is_plain = not (own.vararg or own.kwarg or own.kwonlyargs or own.posonlyargs or own.defaults)
    if not is_plain or called is None or not called.elements or (called.owner and values[1:]):
        return None
    elements = tuple(each for each in parameters if each in called.elements)
    gives = tuple("" if each is calls[0] else ast.unparse(each) for each in values)
    takes = [name for each in gives for name in ((each,) if each else elements)]
    return replace(called, elements=elements, gives=gives) if takes == parameters else None


def call_of(call: ast.Call, varying: Collection[str]) -> CalledFunction | None:
    """Return what is called with elements, each of which is one argument, and else with what only reads what is there.

    None of any other call.

    Args:
        call: of a function or of a variable's method.
        varying: the variables that are others for each element. Those that are given are `elements`, in that order.
    """
    function, values = call.func, [*call.args, *(each.value for each in call.keywords)]
    owner, _, name = ast.unparse(function).rpartition(".")
    positional = tuple(map(ast.unparse, call.args))
    named = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg is not None}
    used = [each.id for part in (function, *values) for each in ast.walk(part) if isinstance(each, ast.Name)]
    elements = tuple(each for each in (*positional, *named.values()) if each in varying)
    is_named = name.isidentifier() and (not owner or owner.isidentifier()) and len(named) == len(call.keywords)
    is_each_once = sorted({*elements}) == sorted(each for each in used if each in varying)
    if not is_named or not is_each_once or not all(map(_is_same, values)):
        return None
    return CalledFunction(name, elements, positional, named, owner)


def _is_same(node: ast.expr) -> bool:
    """Return whether an expression only reads what is there: whenever it is computed, it should give the same."""
    if isinstance(node, ast.Tuple):
        return all(map(_is_same, node.elts))
    if isinstance(node, ast.Attribute):
        return _is_same(node.value)
    return isinstance(node, ast.Constant | ast.Name)


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Tuple) and all(map(_is_literal, node.elts)))
