"""Which function of the user's, or which script, is meant: named, and checked in the parent without importing it."""

from __future__ import annotations

import ast
import base64
import difflib
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from pipeline_bench import user_code
from pipeline_bench.errors import UsageError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.system.files import is_python
from pipeline_bench.text import did_you_mean, is_utf8, safe
from pipeline_bench.user_code import other_frameworks, own_modules, source_guards

_EXAMPLES = {"dataset": "train.py:make_dataset", "model": "train.py:make_model", "generator": "train.py:samples"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DATASET_CALLS = frozenset({"Dataset", "prefetch", "batch", "TFRecordDataset", "image_dataset_from_directory"})
_MOST_HELD = 4
_DOUBTFUL = frozenset({"*", "__getattr__", "globals", "exec", "vars", "setattr"})
"""Names and calls in a file that make it possible that it has names which its text does not show."""


def parse(text: str, argument: int | None = None, what: str = "dataset") -> Target:
    """Return the target of ``train.py:make_dataset`` or ``package.module:make_dataset``, checked as by `check`.

    Raises:
        UsageError: there is no colon, or see `check`.
    """
    _require_text(text)
    if text.endswith(".ipynb"):
        hint = (
            f"write its code as a script, jupyter nbconvert --to script {text}; or call pipeline_bench.diagnose in it"
        )
        raise UsageError(f"{text} is a notebook", hint)
    where, colon, name = text.rpartition(":")
    if not colon or not where:
        script = "FILE.py for a whole script, or " if what == "dataset" else ""
        hint = f"write {script}FILE.py:FUNCTION, such as {_EXAMPLES[what]}"
        raise UsageError(f"{text!r} does not name a function in a file", hint)
    is_file = where.endswith(".py") or "/" in where or (Path(where).exists() and not _is_module_too(where))
    target = Target(file=where if is_file else None, module=None if is_file else where, name=name, argument=argument)
    check(target, what)
    return target


def is_script(text: str) -> bool:
    """Return whether a whole script is named, ``train.py`` or ``package.train``, and no function in it."""
    return is_python(text) or (_is_module_name(text) and not Path(text).is_file())


def _is_module_too(where: str) -> bool:
    """Return whether a folder is a package, or a module has its name: ``train`` beside ``train.py``."""
    spec = importlib.machinery.PathFinder.find_spec(where, [str(Path.cwd()), *sys.path])
    return Path(where).is_dir() and spec is not None and spec.origin is not None


def _is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def parse_script(
    text: str,
    arguments: Sequence[str],
    model: Any = None,
    argument: int | None = None,
    dataset: str | None = None,
    training: str | None = None,
) -> Target:
    """Return the target of a whole script.

    Args:
        text: the script's file, or the module that ``python -m`` would run.
        arguments: what it is to be run with.
        model: has to be None, as `argument` has: they go with a function that makes the dataset.
        argument: see `model`.
        dataset: which of its datasets is meant, by name, line or number.
        training: which of its trainings is meant, by the number of its `fit` or by its line.

    Raises:
        UsageError: there is no such file or module, it is no valid Python, it trains without TensorFlow, the training
            is no number, or something is given that a script does not take.
    """
    if model is not None or argument is not None:
        option = "--model" if model is not None else "--batch-arg"
        raise UsageError(
            f"{text} is a whole script: {option} goes with a function", f"write {text}:FUNCTION, or leave it out"
        )
    number = None if training is None else training.lstrip("0")
    if number is not None and not number.isdecimal():  # no script is run whole in search of its training 0
        raise UsageError(
            f"--training {training}: it is no number from 1 on",
            "write which fit it is, from 1, or the line that it is on",
        )
    _require_text(text)
    file, module = (text, None) if is_python(text) else (None, text)
    target = Target(file=file, module=module, name="", arguments=tuple(arguments), dataset=dataset, training=number)
    source = script_file(target)
    _parsed(source, text)
    other_frameworks.refuse(target, source)
    return target


def script_file(target: Target) -> Path:
    """Return the file that holds a script's code; of a package its ``__main__``, as ``python -m`` has it.

    Raises:
        UsageError: there is no such file or module, or the module has no Python source.
    """
    if target.file is not None:
        path = Path(target.file)
        return path if is_python(target.file) and path.is_file() else _source_of_file(target.file, "dataset")
    module = str(target.module)
    found = _source_of_module(module)
    if found is None or found.name == "__init__.py":  # a package, also without a file of its own
        module = f"{module}.__main__"
        found = _source_of_module(module)
    if found is None:
        raise UsageError(f"the module {module} has no Python source", "name a .py file")
    return found


def check(target: Target, what: str = "dataset") -> ast.AST | None:
    """Check that a function exists as far as its source shows; the user's code is read, never imported.

    What cannot be decided is accepted: a name that is assigned, imported or may come from ``import *``.

    Returns:
        What the source defines under the name; None where it has no source or does not define it by itself.

    Raises:
        UsageError: there is no such file or module, no such name in it, or it is no valid Python.
    """
    where, name = str(target.file or target.module), target.name
    source = _source_of_file(where, what) if target.file is not None else _source_of_module(where)
    if source is None:
        return None
    _require_text(str(source.absolute()))
    tree = _parsed(source, where)
    defined = dict(_bound_names(tree))
    functions = [node.name for node in tree.body if isinstance(node, _DEFINITIONS)]
    if not name:
        raise UsageError(f"{where}: names no function", f"write one behind the colon: {', '.join(functions)}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is not the name of a function", f"write {where}:FUNCTION")
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    if name.partition(".")[0] not in defined and not _DOUBTFUL & (defined.keys() | called):
        variables = [each for each in defined.values() if isinstance(each, ast.Name)]
        held = [f"{each.id}, line {each.lineno}" for each in variables if _may_be_dataset(tree, each)]
        hint = did_you_mean(name, functions)
        more = f"; or of the whole script: {where} --dataset NAME: {'; '.join(held[:_MOST_HELD])}" if held else ""
        raise UsageError(f"there is no function {name!r} in {where}", f"{hint}{more}")
    _check_method(tree, defined, name, where)
    found = _defined(defined, name)
    if what in ("dataset", "model"):
        _check_returns(found, name, what)
        _check_keywords(found, name)
    return found


def _check_method(tree: ast.Module, defined: Mapping[str, ast.AST], name: str, where: str) -> None:
    """Check that a class has the method, where its text shows all that it has.

    Raises:
        UsageError: it has none of that name.
    """
    first, _, method = name.partition(".")
    found = defined.get(first)
    if not method or not isinstance(found, ast.ClassDef) or found.bases or found.keywords or found.decorator_list:
        return
    set_later = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    has = set_later.union(each for each, _ in _bound_names(ast.Module(found.body, [])))
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if method.partition(".")[0] not in has and not _DOUBTFUL & (has | called):
        methods = [f"{first}.{node.name}" for node in found.body if isinstance(node, _DEFINITIONS)]
        raise UsageError(f"there is no function {name!r} in {where}", did_you_mean(name, methods))


def _check_keywords(definition: ast.AST | None, name: str) -> None:
    """Check that a function can be called by position.

    Raises:
        UsageError: it has an argument without a default that has to be named.
    """
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return
    takes = definition.args
    needed = [each.arg for each, value in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if value is None]
    if needed:
        raise UsageError(by_keyword(name, needed), NO_ARGUMENTS_HINT)


NO_ARGUMENTS_HINT = "give them defaults, or name a function without arguments that calls it"


def by_keyword(name: str, needed: Sequence[str]) -> str:
    """Return the error that a function has keyword-only arguments without defaults, which are never given."""
    return f"{name} needs {' and '.join(needed)} by keyword, which no option gives"


def _defined(defined: Mapping[str, ast.AST], name: str) -> ast.AST | None:
    """Return what a name stands for, `Class.method` included; None where the text does not show it."""
    first, *parts = name.split(".")
    found = defined.get(first)
    for part in parts:
        inside = found.body if isinstance(found, ast.ClassDef) else []
        found = next((each for each in inside if isinstance(each, _DEFINITIONS) and each.name == part), None)
    return found


def _may_be_dataset(tree: ast.Module, node: ast.Name) -> bool:
    """Return whether a variable of the module is assigned what a call of tf.data gives, as far as its text says."""
    given = [each.value for each in ast.walk(tree) if isinstance(each, ast.Assign) and node in each.targets]
    return any(_DATASET_CALLS & _called(value) for value in given)


def _called(value: ast.AST) -> set[str]:
    calls = (each.func for each in ast.walk(value) if isinstance(each, ast.Call))
    return {part for each in calls if isinstance(each, ast.Attribute) for part in ast.unparse(each).split(".")}


def _check_returns(definition: ast.AST | None, name: str, what: str) -> None:
    """Check that a function may return what it is to return, as far as its own text says.

    Raises:
        UsageError: it has no `return` with a value, returns constants alone, or is a generator.
    """
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list or _is_empty(definition):
        return
    own = list(source_guards.own_nodes(definition.body))
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own):
        hint = f"name the function that makes the {what} of it: tf.data.Dataset.from_generator({name}, …)"
        raise UsageError(f"{name} is a generator, which returns no {what}", hint)
    values = [node.value for node in own if isinstance(node, ast.Return)]
    if not any(isinstance(node, ast.Raise) for node in own) and all(
        value is None or isinstance(value, ast.Constant) for value in values
    ):
        returns = "returns nothing" if all(value is None for value in values) else f"returns no {what}"
        raise UsageError(f"{name}, line {definition.lineno}, {returns}", f"end it with `return {what}`")


def _is_empty(definition: ast.FunctionDef) -> bool:
    """Return whether it is a stub, which something else may take the place of."""
    stubs = [isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in definition.body]
    return all(stub or isinstance(each, ast.Pass) for stub, each in zip(stubs, definition.body, strict=True))


def check_arguments(definition: ast.AST | None, name: str, given: Mapping[str, Any]) -> None:
    """Check that a function takes the keyword arguments, where its source shows what it takes.

    Raises:
        UsageError: it does not, or needs others.
    """
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return
    takes = definition.args
    positional = [each.arg for each in (*takes.posonlyargs, *takes.args)]
    required = positional[: len(positional) - len(takes.defaults)]
    required += [each.arg for each, value in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if value is None]
    allowed = [each.arg for each in (*takes.args, *takes.kwonlyargs)]
    for unknown in given:
        if unknown not in allowed and takes.kwarg is None:
            raise UsageError(f"{name} takes no {unknown!r}", did_you_mean(unknown, allowed))
    for missing in required:
        if missing not in given:
            hint = f"write arguments = {{ {missing} = … }}, or give it a default"
            raise UsageError(f"{name} needs {missing!r}, which has no default", hint)


def _require_text(path: str) -> None:
    """Refuse a path whose bytes are no text: it is sent to a trial as JSON, and TensorFlow makes no op in such a file.

    Raises:
        UsageError: the path is so.
    """
    if not is_utf8(path):
        raise UsageError(
            f"{path} holds bytes that are no text in this locale's encoding, {sys.getfilesystemencoding()}",
            "rename the file or its folder, or set LC_ALL to a UTF-8 locale such as C.UTF-8",
        )


def _source_of_file(where: str, what: str) -> Path:
    path, example = Path(where), f"FILE.py:FUNCTION, such as {_EXAMPLES[what]}"
    if path.is_dir():
        raise UsageError(f"{where} is a folder", f"name a file in it: {example}")
    if not path.exists():
        # Only the nearest: a folder may hold thousands of files.
        near = difflib.get_close_matches(path.name, [each.name for each in path.parent.glob("*.py")], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"check the path; a relative one begins at {Path.cwd()}"
        raise UsageError(f"there is no file {where}", hint)
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"{where} is not a .py file", f"write {example}")
    return path


def _source_of_module(where: str) -> Path | None:
    """Return a module's file, found without importing it or its packages; None if it has no source to read."""
    parts = where.split(".")
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"{where!r} is neither a .py file nor the name of a module", "write FILE.py:FUNCTION")
    folders: list[str] | None = [str(Path.cwd()), *sys.path]
    spec = None
    for depth in range(1, len(parts) + 1):
        full = ".".join(parts[:depth])
        # By its last name: with a dot, a folder without __init__.py asks for the package around it, as of an import.
        spec = importlib.machinery.PathFinder.find_spec(parts[depth - 1], folders)
        if spec is None:
            if full in sys.builtin_module_names:
                return None
            raise UsageError(
                f"there is no module {full}", "check its name, write FILE.py:FUNCTION, or run where it can be imported"
            )
        folders = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
        if folders is None and depth < len(parts):
            raise UsageError(f"{full} is a module, not a package: there is no {where}", "check the name")
    file = spec.origin if spec is not None else None
    return Path(file) if file is not None and file.endswith(".py") else None


def _parsed(path: Path, shown: str) -> ast.Module:
    try:
        return own_modules.parsed(path.read_bytes(), shown)
    except SyntaxError as error:
        where = f"{shown}:{error.lineno}" if error.lineno else shown
        raise UsageError(f"{where}: {error.msg}", "correct the file; Python cannot read it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{shown} cannot be read: {error}", "check the file") from error


def _bound_names(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Return the names bound at module level, under ``if``, ``try``, ``with`` and loops too, and by ``global``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield child.name, child
            inside = (inner for inner in ast.walk(child) if isinstance(inner, ast.Global))
            yield from ((name, inner) for inner in inside for name in inner.names)
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.split(".")[0], child) for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, child
        elif isinstance(child, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and child.name:
            yield child.name, child
        if not isinstance(child, ast.Lambda):
            yield from _bound_names(child)


def from_callable(function: Callable[..., Any], argument: int | None = None) -> Target:
    """Return the target of a function that the caller holds.

    A function that a child can import is named; one of a notebook, a script's own, a lambda or a closure travels by
    value, with what it refers to.

    Raises:
        UsageError: it holds something that cannot travel.
    """
    name = safe(str(getattr(function, "__qualname__", type(function).__qualname__)))
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is not None and _is_importable(module, name, function):
        if module.__spec__ is not None and module.__spec__.parent:
            return Target(module=module.__name__, name=name, argument=argument)
        file = str(Path(str(module.__file__)).resolve())
        _require_text(file)
        return Target(file=file, name=name, argument=argument)
    try:
        pickled = base64.b64encode(cloudpickle.dumps(function)).decode()
    except Exception as error:  # whatever the objects that it refers to raise
        hint = "have the function make what it needs itself, or put it into a file and name that: train.py:make_dataset"
        raise UsageError(f"{name} cannot be sent to another process: {user_code.summary(error)}", hint) from error
    return Target(name=name.rsplit("<locals>.", maxsplit=1)[-1], pickled=pickled, argument=argument)


def _is_importable(module: ModuleType, name: str, function: Any) -> bool:
    if module.__name__ == "__main__" or not getattr(module, "__file__", None) or "<" in name:
        return False
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function
