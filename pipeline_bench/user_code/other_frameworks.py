"""A script that trains with PyTorch or JAX and never imports TensorFlow, as far as its text and its modules' say."""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline_bench import user_code
from pipeline_bench.errors import UsageError
from pipeline_bench.model.pipeline import Target

_FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX"}
_GRADIENTS = frozenset({"backward", "grad", "value_and_grad"})
"""Functions and methods that take a gradient in these."""
_UNSEEN = frozenset({"dlimp", "hydra", "importlib", "rlds", "runpy", "seqio"})
"""What imports modules that no text names, or makes tf.data pipelines by itself."""


def refuse(target: Target, file: Path) -> None:
    """Refuse a script in which there is no tf.data pipeline to look at, before anything of it runs.

    Args:
        target: the script.
        file: with its code.

    Raises:
        UsageError: it trains with PyTorch or JAX, and nothing of the user's imports TensorFlow or Keras.
    """
    framework = trained_with(file, None if target.file is not None else target.module)
    if framework is not None:
        raise UsageError(
            f"{target.text} trains with {framework}, and imports neither TensorFlow nor Keras: it has no tf.data "
            "pipeline that could be changed",
            f"`pipeline-bench run -- python {target.text}` says how long its training waits for its input, also over a "
            "DataLoader, grain or arrays",
        )


def trained_with(file: Path, module: str | None = None) -> str | None:
    """Return the framework that a script takes gradients with; None where TensorFlow may be imported, or none is taken.

    It may also be imported where a module of the user's is not found.

    The script's modules are those beside it, or with `module`, which is run as by ``python -m``, in the working folder.
    """
    folder = file.parent if module is None else Path.cwd()
    package = tuple((module or "").split(".")[: None if file.name == "__main__.py" else -1])
    trees: dict[Path, ast.AST | None] = {file: _parsed(file)}
    missing: set[str] = set()
    looked_at = [(file, package)]
    while looked_at:
        here, package = looked_at.pop()
        for name in _imported(trees[here], package):
            found = _files(folder, name)
            missing |= set() if found else {name[0]}
            new = {each: around for each, around in found.items() if each not in trees}
            trees |= {each: _parsed(each) for each in new}
            looked_at += new.items()
    if any(name.startswith(("tensorflow", "keras", "tf_", "tfds")) for name in missing) or missing & _UNSEEN:
        return None
    if not all(map(_is_installed, missing - _FRAMEWORKS.keys())):  # a folder of PYTHONPATH or of `sys.path.append`
        return None
    framework = next((shown for name, shown in _FRAMEWORKS.items() if name in missing), None)
    return framework if any(map(_takes_gradient, trees.values())) else None


def _parsed(file: Path) -> ast.AST | None:
    """Return what a file holds; None where Python cannot read it."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _imported(tree: ast.AST | None, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give the names of the modules that a file may import, in parts, also those that may be no module.

    Args:
        tree: of the file.
        package: that the file is in, to which relative imports refer.
    """
    for node in [] if tree is None else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(each.name.split(".")) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else ()
            of = (*around, *(node.module.split(".") if node.module else ()))
            yield from ((*of, each.name) for each in node.names)


def _files(folder: Path, name: tuple[str, ...]) -> dict[Path, tuple[str, ...]]:
    """Return the files that importing a module runs, with the packages that they are in; none if it is elsewhere."""
    parts = [name[:depth] for depth in range(1, len(name) + 1)]
    modules = {folder.joinpath(*part).with_suffix(".py"): part[:-1] for part in parts}
    packages = {folder.joinpath(*part, "__init__.py"): part for part in parts}
    return {file: package for file, package in {**modules, **packages}.items() if file.is_file()}


def _is_installed(name: str) -> bool:
    """Return whether a module is Python's own or an installed package's, and not the user's."""
    if name in sys.stdlib_module_names:
        return True
    spec = importlib.machinery.PathFinder.find_spec(name)
    return spec is not None and spec.origin is not None and user_code.origin(spec.origin) != "user"


def _takes_gradient(tree: ast.AST | None) -> bool:
    calls = (node.func for node in ([] if tree is None else ast.walk(tree)) if isinstance(node, ast.Call))
    return any(getattr(each, "attr", getattr(each, "id", "")) in _GRADIENTS for each in calls)
