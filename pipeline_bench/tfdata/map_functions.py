"""Which function of one definition a map runs: a plain one, a method, or the one that its lambda only calls.

Of ``lambda path: load(path, True)`` that is `load`: it gets the lambda's own parameters, and then what is the same for
all elements.
"""

from __future__ import annotations

import ast
import functools
import io
import linecache
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, NamedTuple

_LAMBDA = "<lambda>"


@dataclass(frozen=True)
class CalledFunction:
    """What a lambda calls.

    Attributes:
        name: of the function.
        elements: the lambda's parameters, which are the first arguments.
        positional: the texts of the arguments behind them, each of which is the same for all elements.
        named: the texts of the arguments that are given by name, likewise.
    """

    name: str
    elements: tuple[str, ...]
    positional: tuple[str, ...]
    named: dict[str, str]

    def given(self, function: ast.FunctionDef) -> dict[str, str] | None:
        """Return the texts of what each element is called with, by parameter of the function, beside the element.

        A default is among them. None where one is no literal, or where the call does not fit the parameters.
        """
        parameters = [each.arg for each in function.args.args]
        defaults = function.args.defaults
        with_default = zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
        literals = {name: ast.unparse(value) for name, value in with_default if _is_literal(value)}
        rest = parameters[len(self.elements) :]
        if len(self.positional) > len(rest) or not self.named.keys() <= {*rest[len(self.positional) :]}:
            return None
        known = {**literals, **dict(zip(rest, self.positional, strict=False)), **self.named}
        fits = len(parameters) >= len(self.elements) and known.keys() >= {*rest}
        return {name: known[name] for name in rest} if fits else None


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
        given: the map's function.
        called: how that calls `plain`, where it is a lambda.
    """

    plain: FunctionType
    given: FunctionType | MethodType
    called: CalledFunction | None = None

    @property
    def is_method(self) -> bool:
        """Whether it gets an object in front of the elements."""
        return isinstance(self.given, MethodType)

    def of_elements(self, half: FunctionType, given: dict[str, str]) -> Callable[..., Any]:
        """Return a part of it as a function of the elements alone.

        Args:
            half: the part, with the variables around it.
            given: what it gets besides, the texts by parameter.
        """
        if isinstance(self.given, MethodType):
            return functools.partial(half, self.given.__self__)
        caller = self.given
        values = {name: _value(caller, text) for name, text in given.items()}
        return functools.partial(half, **values) if values else half


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
    return None if kind.__subclasses__() else DefinedFunction(plain, method)


def _called_function(function: FunctionType) -> DefinedFunction | None:
    """Return the plain function of the same file that a lambda only calls, as `read` says; None of any other lambda.

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
    plain = _value(function, called.name)
    is_its_own = isinstance(plain, FunctionType) and plain.__code__.co_filename == code.co_filename
    return DefinedFunction(plain, function, called) if is_its_own and plain.__name__ == called.name else None


def _value(function: FunctionType, text: str) -> Any:
    """Return what a name, or another text of a `CalledFunction`, stands for in a lambda."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return eval(text, function.__globals__, {name: cell.cell_contents for name, cell in cells})  # noqa: S307 - theirs


def names_in(texts: Iterable[str]) -> set[str]:
    """Return the variables that texts of a `CalledFunction` use."""
    trees = (ast.parse(text, mode="eval") for text in texts)
    return {each.id for tree in trees for each in ast.walk(tree) if isinstance(each, ast.Name)}


def _called_by(node: ast.expr) -> CalledFunction | None:
    if not (isinstance(node, ast.Lambda) and isinstance(node.body, ast.Call) and isinstance(node.body.func, ast.Name)):
        return None
    own, call = node.args, node.body
    elements = tuple(each.arg for each in own.args)
    first, more = call.args[: len(elements)], call.args[len(elements) :]
    passed_on = tuple(each.id for each in first if isinstance(each, ast.Name))
    values = [*more, *(each.value for each in call.keywords)]
    is_plain = not (own.vararg or own.kwarg or own.kwonlyargs or own.posonlyargs or own.defaults)
    if not elements or passed_on != elements or not is_plain or not all(map(_is_same, values)):
        return None
    positional = tuple(map(ast.unparse, more))
    named = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg is not None}
    used = {node.body.func.id, *names_in([*positional, *named.values()])}
    if len(named) < len(call.keywords) or not used.isdisjoint(elements):
        return None
    return CalledFunction(node.body.func.id, elements, positional, named)


def _is_same(node: ast.expr) -> bool:
    """Return whether an expression only reads what is there: whenever it is computed, it should give the same."""
    if isinstance(node, ast.Tuple):
        return all(map(_is_same, node.elts))
    if isinstance(node, ast.Attribute):
        return _is_same(node.value)
    return isinstance(node, ast.Constant | ast.Name)


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Tuple) and all(map(_is_literal, node.elts)))
