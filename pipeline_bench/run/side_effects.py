"""What a script does before its training, which every start repeats: read from its text and its own modules'."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline_bench.run.trial_environment import TRACKERS
from pipeline_bench.user_code import own_modules

_DOWNLOADS = frozenset(
    {"get_file", "urlretrieve", "urlopen", "load_data", "load_dataset", "download", "download_and_prepare"}
    | {"requests.get", "tfds.load", "hub.load", "hub.KerasLayer", "snapshot_download", "hf_hub_download"}
    | {"from_pretrained", "from_preset", "download_file"}
    | {"dataset_download", "model_download", "competition_download"}  # of kagglehub
)
_WRITES = frozenset(
    {"mkdir", "makedirs", "write_text", "write_bytes", "savetxt", "savez", "to_csv", "touch", "os.replace"}
    | {"os.rename", "extractall", "unpack_archive", "copytree", "TFRecordWriter", "open", "GFile", "dump", "save"}
    | {"save_weights", "savez_compressed", "savefig", "imwrite", "to_parquet", "to_pickle", "to_json", "to_excel"}
    | {"create_file_writer", "copyfile", "copy2", "shutil.copy", "shutil.move"}
)
_DELETES = frozenset({"rmtree", "unlink", "os.remove", "rmdir", "removedirs", "DeleteRecursively"})
_STARTS = frozenset({"os.system", "Popen", "check_call", "check_output", "popen", "subprocess.run", "subprocess.call"})
_TRACKS = frozenset(
    {"wandb.init", "mlflow.start_run", "neptune.init_run", "neptune.init", "Task.init", "comet_ml.start"}
    | {"comet_ml.Experiment", "aim.Run"}
)
_EFFECTS = (
    ("delete files", _DELETES),
    ("download", _DOWNLOADS),
    ("write files", _WRITES),
    ("start programs", _STARTS),
    ("start runs of a tracker", _TRACKS),
)
_MOST = 3
_MOST_MODULES = 50
"""So many of the user's own are read, the nearest to the script first."""
_HOOK = re.compile(r"on_(?:train|epoch|batch|test|predict)_\w*(?:begin|end)")
_OPENS = frozenset({"open", "GFile"})
_OF_TEXT = frozenset({"sort_keys", "default_flow_style", "indent", "width", "allow_unicode", "Dumper", "encoding"})
"""Arguments of YAML's `dump` that name no file."""
_TO_WRITE = re.compile(r"(?=.*[wax+])[rwaxbt+]{1,4}")
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def side_effects(text: str, beside: Sequence[Path] = ()) -> str:
    """Return the side effects of a script's calls, `` It may download: get_file (line 12).``; empty if none is known.

    With those of the modules beside it that it imports, ``rmtree (files.py:3)``; nothing is imported for that.

    Args:
        text: the script.
        beside: the folders that it may import modules of its own from: its own first, then where it is run.
    """
    script = own_modules.readable(text)
    modules = _imported(script, beside)
    calls = [(name, f"line {line}") for name, line in _calls(script, beside)]
    used = {name for tree in (script, *modules.values()) for name in _used(tree)}
    for file, module in modules.items():
        roots = (folder.absolute() for folder in reversed(beside))
        shown = next((file.relative_to(root) for root in roots if file.is_relative_to(root)), file)
        calls += [(name, f"{shown}:{line}") for name, line in _calls(_run_by_others(module, used), beside)]
    found = {does: [f"{name} ({place})" for name, place in calls if name in names] for does, names in _EFFECTS}
    parts = [f"{does}: {_listed(places)}" for does, places in found.items() if places]
    if not parts:
        return ""
    set_to = ", ".join(f"{name}={value}" for name, value in TRACKERS.items())
    tracked = f" Trials have {set_to}, where you have not set these: they start runs only of other trackers."
    return f" It may {'; '.join(parts)}.{tracked if found[_EFFECTS[-1][0]] else ''}"


def _imported(script: ast.Module, beside: Sequence[Path]) -> dict[Path, ast.Module]:
    """Return the modules in these folders that a script imports, and that these import in turn, by their files."""
    found: dict[Path, ast.Module] = {}
    waiting = [file for folder in beside[:1] for file in _files(script, folder, beside)]
    while waiting and len(found) < _MOST_MODULES:
        file = waiting.pop(0).absolute()
        if file in found:
            continue
        try:
            found[file] = own_modules.readable(file.read_bytes())
        except OSError:
            continue
        waiting += _files(found[file], file.parent, beside)
    return found


def _files(tree: ast.Module, own: Path, beside: Sequence[Path]) -> Iterator[Path]:
    """Yield the files in these folders, or in its `own`, that the imports of a module run, packages' first."""
    for around, name in own_modules.imported(tree, own):
        for folder in beside if around is None else (around,):
            with suppress(OSError):  # a folder that is not to be read
                if files := own_modules.files(folder, name):
                    yield from files
                    break


def _used(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module uses, or imports from another."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _run_by_others(module: ast.Module, used: Collection[str]) -> ast.Module:
    """Return a module without what does not run when another imports it: its main part, and what nobody uses."""

    def runs(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return statement.name in used or bool(statement.decorator_list)
        test = statement.test if isinstance(statement, ast.If) else None
        return not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__")

    return ast.Module(body=[statement for statement in module.body if runs(statement)], type_ignores=[])


def _listed(places: Sequence[str]) -> str:
    left = len(places) - _MOST
    return ", ".join(places[:_MOST]) + (f" and {left} more" if left > 0 else "")


def _calls(tree: ast.Module, beside: Collection[Path]) -> list[tuple[str, int]]:
    """Return what is called in a module, but for what is plainly behind its `fit`, with the lines."""
    try:
        nodes = list(ast.walk(tree))
        late = (*_behind_fit(nodes), *(node for node in nodes if _is_hook(node)))
        behind = {id(node) for statement in late for node in ast.walk(statement)}
        # A `load_data` of theirs is not Keras'.
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        own |= {name for node in nodes for name in _imported_own(node, beside)}
        made = {name for node in nodes for name in _made_by_own(node, own)}
        calls = [node for node in nodes if isinstance(node, ast.Call) and id(node) not in behind]
        return sorted(
            ((name, call.lineno) for call in calls for name in _names(call, own, made)), key=lambda each: each[1]
        )
    except RecursionError:  # as of a sum of a thousand terms
        return []


def _imported_own(node: ast.AST, beside: Collection[Path]) -> Iterator[str]:
    """Yield the names that an import of a module which lies beside the script binds."""

    def is_own(module: str) -> bool:
        root = module.partition(".")[0]
        return any((folder / f"{root}.py").exists() or (folder / root).is_dir() for folder in beside)

    if isinstance(node, ast.ImportFrom) and (node.level > 0 or is_own(node.module or "")):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names if is_own(alias.name))


def _made_by_own(node: ast.AST, own: Collection[str]) -> Iterator[str]:
    """Yield what an object is assigned to that a class or function of the script's own makes: ``self.loader``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return
    if ast.unparse(node.value.func).partition(".")[0] in own:
        yield from (ast.unparse(target) for target in node.targets)


def _behind_fit(nodes: Collection[ast.AST]) -> Iterator[ast.stmt]:
    """Yield the statements that come only after one that calls a `fit`."""
    for node in nodes:
        body = getattr(node, "body", [])
        fits = [_fits(statement) for statement in body] if isinstance(body, list) else []
        if True in fits:
            yield from [*body[fits.index(True) + 1 :], *getattr(node, "finalbody", ())]


def _is_hook(node: ast.AST) -> bool:
    """Return whether a function is one that a Keras callback has called in the training: ``on_epoch_end``."""
    return isinstance(node, ast.FunctionDef) and _HOOK.fullmatch(node.name) is not None


def _fits(node: ast.AST) -> bool:
    """Return whether a `fit` is called in a statement, in any case and not by a function that it defines."""
    if isinstance(node, _Scope | ast.If):
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
        return True
    return any(_fits(child) for child in ast.iter_child_nodes(node))


def _names(call: ast.Call, own: Collection[str], made: Collection[str]) -> Iterator[str]:
    """Yield what a call may be known by, ``load`` and ``tfds.load``; of what opens a file only if it is to write.

    Nor of YAML's `dump` that is given no file: it returns text.
    """
    if isinstance(call.func, ast.Attribute):
        whole = ast.unparse(call.func.value)
        name, of = call.func.attr, whole.rpartition(".")[2]
        if whole.partition(".")[0] in own or (whole == "self" and name in own):
            return
        if whole in made and name in _DOWNLOADS:  # but its `save` may be Keras', of a model
            return
        yield f"{of}.{name}"
    elif isinstance(call.func, ast.Name) and call.func.id not in own:
        name = call.func.id
    else:
        return
    first = 1 if isinstance(call.func, ast.Name) else 0  # the file's own name
    given = [*call.args[first:], *(each.value for each in call.keywords if each.arg == "mode")]
    modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    of_yaml = name == "dump" and "yaml" in ast.unparse(call.func).lower()
    returns = of_yaml and len(call.args) == 1 and all(each.arg in _OF_TEXT for each in call.keywords)
    if not returns and (name not in _OPENS or any(map(_TO_WRITE.fullmatch, modes))):
        yield name
