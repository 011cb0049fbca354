"""A script that trains with PyTorch or JAX and never imports TensorFlow, as far as its text and its modules' say."""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from collections.abc import Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path

from pipeline_bench import user_code
from pipeline_bench.errors import UsageError
from pipeline_bench.model.pipeline import Target

_FRAMEWORKS = {
    "torch": ("PyTorch", frozenset({"backward", "manual_backward"})),
    "jax": ("JAX", frozenset({"grad", "value_and_grad"})),
}
"""What is imported, and the functions and methods that take a gradient in it."""
_OF_TENSORFLOW = ("keras", "tensorflow", "tf_", "tfds")
"""How the names of TensorFlow's packages, and of those that need it, begin."""
_UNSEEN = frozenset({"dlimp", "hydra", "importlib", "rlds", "runpy", "seqio"})
"""What imports modules that no text names, or makes tf.data pipelines by itself."""
_MOST_FILES = 1000
"""Of more, nothing is said: they would take seconds to read."""


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

    The script's modules are those beside it, or, with `module`, which is run as by ``python -m``, beside its package.
    """
    package = tuple((module or "").split(".")[: None if file.name == "__main__.py" else -1])
    folder = file.resolve().parents[len(package)]
    trees: dict[Path, ast.AST | None] = {file: _parsed(file)}
    others: set[str] = set()
    looked_at = [(file, package)]
    while looked_at:
        here, package = looked_at.pop()
        names = [*_imported(trees[here], package)]
        if len(trees) > _MOST_FILES or any(name[0].startswith(_OF_TENSORFLOW) or name[0] in _UNSEEN for name in names):
            return None
        for name in names:
            found = _files(folder, name)
            others |= set() if found else {name[0]}
            new = {each: around for each, around in found.items() if each not in trees}
            trees |= {each: _parsed(each) for each in new}
            looked_at += new.items()
    called = frozenset(chain.from_iterable(map(_called, trees.values())))
    taken = (shown for name, (shown, gradients) in _FRAMEWORKS.items() if name in others and gradients & called)
    framework = next(taken, None)
    if framework is None or not all(_is_foreign(each, "path" in called) for each in others - _FRAMEWORKS.keys()):
        return None
    return framework


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


def _called(tree: ast.AST | None) -> Iterator[str]:
    """Give the names of the functions and methods that a file calls, and `path` where it has one of `sys`."""
    for node in [] if tree is None else ast.walk(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", ""))
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
            yield "path"


def _is_foreign(name: str, finds_more: bool) -> bool:
    """Return whether a module that is not beside the script is neither the user's nor needs TensorFlow.

    Args:
        name: of the module.
        finds_more: whether the script may find modules where Python does not yet.
    """
    if name in sys.stdlib_module_names:
        return True
    spec = importlib.machinery.PathFinder.find_spec(name)
    if spec is None:  # a package that is not installed, or that the script finds by itself
        return not finds_more
    if spec.origin is None or user_code.origin(spec.origin) == "user":
        return False
    distributions = map(metadata.distribution, metadata.packages_distributions().get(name, ()))
    return not any(_is_own(each) or _needs_tensorflow(each) for each in distributions)


def _is_own(distribution: metadata.Distribution) -> bool:
    """Return whether a package was installed from a folder or a repository, as one's own (PEP 610)."""
    return distribution.read_text("direct_url.json") is not None


def _needs_tensorflow(distribution: metadata.Distribution) -> bool:
    needed = (each for each in distribution.requires or () if "extra ==" not in each)
    return any(each.replace("-", "_").startswith(_OF_TENSORFLOW) for each in needed)
