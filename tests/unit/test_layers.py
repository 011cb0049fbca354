"""The architecture, read from the imports: who may import TensorFlow, what a child loads, which way layers point."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "pipeline_bench"
FILES = sorted(ROOT.rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in FILES]

TENSORFLOW_PARTS = {
    "sources",
    "backends",
    "models",
    "loops",
    "replication",
    "worker",
    "graph_ops",
    "planted",
    "tfdata",
    "lessons",
}
CHILD_PARTS = {*TENSORFLOW_PARTS - {"lessons"}, "model", "scenario", "plugins", "system", "text"}
# These run in a training job's own process, which has TensorFlow and Keras before it imports them.
JOB_PARTS = {"monitoring", "keras", "injection"}
ARE_TENSORFLOWS = {"pipeline_bench.keras", "pipeline_bench.monitoring.probe", "pipeline_bench.injection.marks"}
"""Their classes are subclasses of Keras' and TensorFlow's own; nothing else imports them at module level."""
NOT_IN_THE_CHILD = {"rich", "typer", "pynvml", "psutil", "scipy", "libcst"}

# From the top; a part may import those of its own layer, but no two import each other. A part that is not listed has no
# place yet: add it.
LAYERS = [
    {"__main__", "cli"},
    {"library", "lessons", "monitoring", "keras", "injection"},
    {"ui", "report", "selftest"},
    {"run"},
    {"worker", "samplers", "diagnosis", "analysis", "hosts"},
    {"loops", "replication", "backends", "models", "sources", "planted"},
    {"tfdata", "environment"},
    {"model"},
    {"scenario"},
    {"plugins", "native", "graph_ops", "system", "errors", "text", "pipeline_bench"},
]


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    at_module_level: bool


def part_of(module: str) -> str:
    """The file or folder directly under the package: ``backends`` of ``pipeline_bench.backends.tf_data``."""
    names = module.split(".")
    return names[1] if len(names) > 1 else names[0]


def name_of(path: Path) -> str:
    names = ("pipeline_bench", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


MODULES = {name_of(path): path for path in FILES}
EXERCISES = {name for name, path in MODULES.items() if part_of(name) == "lessons" and path.with_suffix(".md").exists()}
"""What a child executes of the lessons: the modules beside a lesson's text."""


@cache
def imports(path: Path, typing_too: bool = True) -> list[Import]:
    return list(_walk(ast.parse(path.read_text(encoding="utf-8")), True, typing_too))


def _walk(node: ast.AST, at_module_level: bool, typing_too: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, at_module_level)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            for alias in child.names:
                # `from pipeline_bench import plugins` imports a module, `from pipeline_bench.errors import X` a name.
                whole = f"{child.module}.{alias.name}"
                yield Import(whole if whole in MODULES else str(child.module), child.lineno, at_module_level)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not typing_too:
            continue
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, at_module_level and not function, typing_too)


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_tensorflow_is_imported_in_functions_of_the_childs_parts_only(path: Path) -> None:
    for found in imports(path):
        if found.module.split(".")[0] in ("tensorflow", "keras"):
            said = f"line {found.line} imports {found.module}"
            assert not found.at_module_level or name_of(path) in ARE_TENSORFLOWS, f"{said} at module level"
            assert part_of(name_of(path)) in TENSORFLOW_PARTS | JOB_PARTS, said


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_what_is_tensorflows_is_loaded_by_nothing_else(path: Path) -> None:
    for found in imports(path, typing_too=False):
        assert not (found.at_module_level and found.module in ARE_TENSORFLOWS), f"line {found.line}"


@cache
def loaded_by(module: str) -> frozenset[str]:
    """Every module that importing this one loads, itself and the packages around it included."""
    loaded: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in loaded:
            continue
        loaded.add(name)
        if name in MODULES:
            waiting += [found.module for found in imports(MODULES[name], typing_too=False)]
            waiting += [name.rsplit(".", 1)[0]] if "." in name else []
    return frozenset(loaded)


@pytest.mark.parametrize("module", sorted(EXERCISES.union(name for name in MODULES if part_of(name) in CHILD_PARTS)))
def test_the_child_loads_nothing_of_the_parents(module: str) -> None:
    assert not {name.split(".")[0] for name in loaded_by(module)} & NOT_IN_THE_CHILD


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_point_down(path: Path) -> None:
    depths = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}
    own = part_of(name_of(path))
    assert own in depths, f"{own} is in no layer: add it to LAYERS"
    for found in imports(path, typing_too=False):
        if found.module.split(".")[0] == "pipeline_bench":
            assert depths[part_of(found.module)] >= depths[own], (
                f"line {found.line} imports {found.module}, which is above"
            )


def test_no_part_imports_one_that_imports_it() -> None:
    below: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        found = {part_of(each.module) for each in imports(path, False) if each.module.startswith("pipeline_bench")}
        below.setdefault(part_of(name), set()).update(found - {part_of(name), "pipeline_bench"})
    order = TopologicalSorter(below)
    order.prepare()  # raises CycleError, which names the parts


@pytest.mark.parametrize("path", [path for path in FILES if "report" in path.relative_to(ROOT).parts[:1]], ids=str)
def test_reports_never_import_the_screen(path: Path) -> None:
    assert "ui" not in {part_of(found.module) for found in imports(path)}


@pytest.mark.parametrize("path", [path for path in FILES if part_of(name_of(path)) not in ("cli", "__main__")], ids=str)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "sys.exit", "exit", "quit", "typer.echo", "typer.Exit"), (
                f"line {node.lineno}"
            )
        if isinstance(node, ast.Raise) and node.exc is not None:
            assert not ast.unparse(node.exc).startswith(("SystemExit", "typer.")), f"line {node.lineno}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_module_opens_with_a_docstring(path: Path) -> None:
    assert (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").strip(), "no docstring"


def test_the_map_of_the_architecture_names_every_part_and_none_that_is_gone() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = {part_of(name) for name in MODULES} - {"pipeline_bench", "__main__"}
    assert {part for part in parts if not re.search(rf"\b{part}\b", page)} == set()
    modules = {name.rsplit(".", maxsplit=1)[-1] for name in MODULES}
    named = re.findall(r"`(?:\w+/)*(\w+)\.py`", page)
    assert set(named) - modules - {"test_layers", "test_hostile_text"} == set()
