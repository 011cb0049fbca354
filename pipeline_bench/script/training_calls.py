"""Whether code of the user's calls what trains, as far as its text says."""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import chain
from pathlib import Path

from pipeline_bench import user_code
from pipeline_bench.user_code import own_modules, source_guards
from pipeline_bench.user_code.source_loops import SourceLoop

_TRAINS = frozenset({"train_on_batch", "GradientTape", "minimize", "stateless_apply"})
"""What trains, whatever it is given.

`apply_gradients` is none: beside a tape it needs no word, and that of Flax is compiled by JAX, where no call shows.
"""
_FITS = frozenset({"fit", "fit_generator"})
"""What trains on all of its data; the second is Keras 2's."""
_OF_KERAS = frozenset({"epochs", "steps_per_epoch", "validation_data", "validation_split", "callbacks"})
"""Arguments that tell a model's `fit`, and a tuner's `search`, from other methods of that name."""
_GRADIENTS = frozenset({"grad", "value_and_grad"})
_OF_GRADIENTS = ("flax", "jax", "torch")
"""What takes a gradient in these, beside a call of `backward`, and the packages whose functions do."""
_OTHERS = ("lightgbm", "scipy", "sklearn", "xgboost")
"""Libraries whose `fit` and `minimize` take no batches, as that of a scaler."""


def fit_lines(tree: ast.AST, after: int = 0) -> tuple[int, ...]:
    """Return the lines in which a script's own text calls a Keras model's `fit`, of those further down than one."""
    others = _of_others(tree)
    fits = (call for call in _calls(tree) if _called(call) in _FITS and _is_of_keras(call))
    return tuple(sorted({call.lineno for call in fits if call.lineno > after and not _comes_from(call.func, others)}))


def may_fit(tree: ast.AST) -> bool:
    """Return whether a text calls a `fit` that is not of a library whose `fit` takes no batches."""
    others = _of_others(tree)
    return any(_called(call) in _FITS and not _comes_from(call.func, others) for call in _calls(tree))


def trains(tree: ast.AST) -> bool:
    """Return whether a text calls what trains: a loop before that only prepares something."""
    others = _of_others(tree)
    return any(_trains(call) and (_is_of_keras(call) or not _comes_from(call.func, others)) for call in _calls(tree))


@functools.cache
def trains_in(file: str) -> bool:
    """Return whether a file is the user's and calls what trains."""
    if user_code.origin(file) != "user":
        return False
    try:
        return trains(own_modules.readable(Path(file).read_bytes()))
    except OSError:
        return False


def trains_in_imported() -> bool:
    """Return whether a module of the user's that is imported by now calls what trains."""
    return any(trains_in(file) for file, _ in user_code.users_modules())


def takes_gradient(loops: Iterable[SourceLoop]) -> bool:
    """Return whether the innermost of the user's loops takes a gradient of JAX or PyTorch, as far as its text says.

    Args:
        loops: around a call, inner ones first.
    """
    innermost = next((each for each in loops if user_code.origin(each.file) == "user"), None)
    if innermost is None or sys.modules.keys().isdisjoint(user_code.UNSEEN):
        return False
    nodes = source_guards.nodes(innermost.file)
    begun = (node for node in nodes if getattr(node, "lineno", 0) == innermost.line)
    return _reaches_gradient(nodes, begun, _imported(nodes, _OF_GRADIENTS))


def _reaches_gradient(nodes: Sequence[ast.AST], begun: Iterable[ast.AST], packages: Set[str]) -> bool:
    """Return whether a loop among some nodes, or what it names of a file, or what that names, takes a gradient.

    An attribute names a method only if the file has no other of that name: `update` may be any object's.

    Args:
        nodes: of the file.
        begun: those of the loop's first line.
        packages: names of those that take gradients.
    """
    named: list[ast.AST] = [*chain.from_iterable(each.body for each in begun if isinstance(each, ast.For | ast.While))]
    times = Counter(chain.from_iterable(map(_defined, nodes)))
    names: set[str] = set()
    while named:
        within = [each for node in named for each in ast.walk(node)]
        if any(_takes(each, packages) for each in within):
            return True
        known = {name for each in within for name in _own_name(each) if isinstance(each, ast.Name) or times[name] == 1}
        new, names = known - names, names | known
        named = [each for each in nodes if not new.isdisjoint(_defined(each))]
    return False


def _takes(node: ast.AST, packages: Set[str]) -> bool:
    """Return whether a node is a call that takes a gradient."""
    if not isinstance(node, ast.Call):
        return False
    name = _called(node) or _dotted(node.func)
    return _called(node) == "backward" or (name in _GRADIENTS and _comes_from(node.func, packages))


def _own_name(node: ast.AST) -> tuple[str, ...]:
    """Return the name that a node is, or that of the attribute."""
    return (node.id,) if isinstance(node, ast.Name) else (node.attr,) if isinstance(node, ast.Attribute) else ()


def _defined(node: ast.AST) -> tuple[str, ...]:
    """Return the name of a function, or of a method, or those of what an assignment gives to.

    Not of a class: of its methods only those run that are named themselves.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return (node.name,)
    targets = node.targets if isinstance(node, ast.Assign) else []
    return tuple(name for target in targets for each in ast.walk(target) for name in _own_name(each))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _called(call: ast.Call) -> str:
    """Return the name of the method that is called; empty for a function."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_of_keras(call: ast.Call) -> bool:
    return any(each.arg in _OF_KERAS for each in call.keywords)


def _trains(call: ast.Call) -> bool:
    name = _called(call)
    return name in _TRAINS | _FITS or (name == "search" and _is_of_keras(call))


def _of_others(tree: ast.AST) -> frozenset[str]:
    """Return the names, also of attributes as `self.scaler`, that hold only what other libraries are or have made."""
    nodes = [*ast.walk(tree)]
    imported = _imported(nodes, _OTHERS)
    stored = (each for each in nodes if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Store))
    times = Counter(map(_dotted, stored)) + Counter(each.arg for each in nodes if isinstance(each, ast.arg))
    assigned = (each for each in nodes if isinstance(each, ast.Assign) and _comes_from(each.value, imported))
    made = Counter(_dotted(target) for each in assigned for target in each.targets)
    return imported.union(name for name in made if name and made[name] == times[name])


def _imported(nodes: Sequence[ast.AST], packages: Collection[str]) -> frozenset[str]:
    """Return the names that imports of some packages, or of what is in them, bind."""
    plain = [(each, each.name) for node in nodes if isinstance(node, ast.Import) for each in node.names]
    parts = [(each, node.module or "") for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    bound = ((each.asname or each.name.partition(".")[0], origin.partition(".")[0]) for each, origin in plain + parts)
    return frozenset(name for name, package in bound if package in packages)


def _comes_from(node: ast.AST, names: Set[str]) -> bool:
    """Return whether an expression is one of these names, or an attribute of one, or what a call of it gives."""
    while isinstance(node, ast.Attribute | ast.Call):
        if _dotted(node) in names:
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return _dotted(node) in names


def _dotted(node: ast.AST) -> str:
    """Return a name, or an attribute of one, as it is written; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    owner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if isinstance(node, ast.Attribute) and owner else ""
