"""A script that trains with PyTorch or JAX and never imports TensorFlow, as far as its text and its modules' say."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path

from pipeline_bench import user_code
from pipeline_bench.errors import UsageError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.user_code import own_modules

_FRAMEWORKS = {
    "torch": ("PyTorch", frozenset({"backward", "manual_backward"})),
    "jax": ("JAX", frozenset({"grad", "value_and_grad"})),
}
"""What is imported, and the functions and methods that take a gradient in it."""
_OF_TENSORFLOW = ("keras", "tensorflow", "tf_", "tfds")
"""How the names of TensorFlow's packages, and of those that need it, begin."""
_UNSEEN = frozenset({"dlimp", "hydra", "importlib", "pkgutil", "pydoc", "rlds", "runpy", "seqio", "site"})
"""What imports modules that no text names, or makes tf.data pipelines by itself."""
_UNREAD = frozenset({"__import__", "eval", "exec", "to_tf", "to_tf_dataset"})
"""Functions and methods that do."""
_MOST_FILES = 200
"""A script with more modules of its own is not judged: reading them would take seconds."""


def refuse(target: Target, file: Path) -> None:
    """Refuse a script in which there is no tf.data pipeline to look at, before anything of it runs.

    Args:
        target: the script.
        file: with its code.

    Raises:
        UsageError: it trains with PyTorch or JAX, and nothing of the user's imports TensorFlow or Keras.
    """
    try:
        framework = trained_with(file, None if target.file is not None else target.module)
    except (OSError, MemoryError):  # of what cannot be read nothing is said
        return
    if framework is not None:
        raise UsageError(
            f"{target.text} trains with {framework}, and imports neither TensorFlow nor Keras: it has no tf.data "
            "pipeline that could be changed",
            f"`pipeline-bench run -- python {target.text}` says how long its training waits for its input, also over a "
            "DataLoader, grain or arrays",
        )


def trained_with(file: Path, module: str | None = None) -> str | None:
    """Return the framework that a script takes gradients with; None where TensorFlow may be imported, or none is taken.

    The script's modules are those beside it, or beside the package of `module`, which is run as by ``python -m``, and
    those in the user's folders on Python's path.

    Raises:
        OSError: a file or a folder cannot be read.
    """
    parts = () if module is None else tuple(module.removesuffix(".__main__").split("."))
    package = parts if file.name == "__main__.py" else parts[:-1]
    folders = {path.parents[len(package)] for path in (file.absolute(), file.resolve())}
    folders |= {Path(each) for each in sys.path if user_code.origin(f"{each}/__init__.py") == "user"}
    trees = {file: own_modules.readable(file.read_bytes())}
    others: set[str] = set()
    looked_at = [file]
    while looked_at:
        here = looked_at.pop()
        imports = [*own_modules.imported(trees[here], here.parent)]
        tops = {name[0] for around, name in imports if around is None}
        if len(trees) > _MOST_FILES or any(top.startswith(_OF_TENSORFLOW) or top in _UNSEEN for top in tops):
            return None
        for around, name in imports:
            searched = folders if around is None else {around}
            found = {each for folder in searched for each in own_modules.files(folder, name)}
            if name[-1] == "*" and any(each.name == "__init__.py" for each in found):  # it may name any of its modules
                return None
            others |= set() if found or around is not None else {name[0]}
            new = {each: own_modules.readable(each.read_bytes()) for each in found - trees.keys()}
            trees |= new
            looked_at += new
    called = frozenset(chain.from_iterable(map(_called, trees.values())))
    taken = (shown for name, (shown, gradients) in _FRAMEWORKS.items() if name in others and gradients & called)
    framework = next(taken, None)
    if framework is None or called & _UNREAD or user_code.origin(str(file.resolve())) != "user":
        return None
    owners = metadata.packages_distributions()
    foreign = (_is_foreign(each, owners, "path" in called) for each in others - _FRAMEWORKS.keys())
    return framework if all(foreign) else None


def _called(tree: ast.AST) -> Iterator[str]:
    """Give the names of the functions and methods that a file calls; also `path` if it has that of the module `sys`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", ""))
        elif isinstance(node, ast.Attribute) and node.attr == "path" and ast.unparse(node) != "os.path":
            yield "path"
        elif isinstance(node, ast.ImportFrom) and node.module == "sys":
            yield from (each.name for each in node.names)


def _is_foreign(name: str, owners: Mapping[str, Sequence[str]], finds_more: bool) -> bool:
    """Return whether a module that is in none of the user's folders is not the user's, and needs no TensorFlow.

    Args:
        name: of the module.
        owners: the installed packages by the names of their modules.
        finds_more: whether the script may find modules where Python does not yet.
    """
    if name in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None:  # a package that is not installed, or that the script finds by itself
        return not finds_more
    if spec.origin is None or user_code.origin(spec.origin) == "user":
        return False
    found = [metadata.distribution(each) for each in owners.get(name, ())]
    own = [each for each in found if each.read_text("direct_url.json") is not None]  # from a folder, by PEP 610
    return bool(found) and not own and not any(map(_needs_tensorflow, found))


def _needs_tensorflow(distribution: metadata.Distribution) -> bool:
    needed = (each for each in distribution.requires or () if "extra ==" not in each)
    return any(each.replace("-", "_").startswith(_OF_TENSORFLOW) for each in needed)
