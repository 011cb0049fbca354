"""The architecture, read from the imports: who may import TensorFlow, what a child loads, which way layers point."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2] / "pipeline_bench"

TENSORFLOW_PARTS = {
    "sources",
    "backends",
    "models",
    "loops",
    "replication",
    "worker",
    "graph_ops",
    "planted",
    "inspection",
    "script",
    "tfdata",
    "user_code",
    "lessons",
}
CHILD_PARTS = {*TENSORFLOW_PARTS - {"lessons"}, "model", "scenario", "plugins", "system", "text"}
# These run in a training job's own process, which has TensorFlow and Keras before it imports them.
JOB_PARTS = {"monitoring", "keras", "injection"}
ARE_TENSORFLOWS = {
    "pipeline_bench.keras",
    "pipeline_bench.monitoring.iterator_ends",
    "pipeline_bench.monitoring.probe",
    "pipeline_bench.monitoring.ring",
    "pipeline_bench.injection.callback_marks",
}
"""Their classes are Keras' and TensorFlow's own with something added; nothing else imports them at module level."""
NOT_IN_THE_CHILD = {"rich", "typer", "pynvml", "psutil", "scipy", "libcst"}

# From the top; a part may import those of its own layer, but no two import each other. A part that is not listed has no
# place yet: add it.
LAYERS = [
    {"__main__", "cli"},
    {"library", "lessons", "monitoring", "keras", "injection"},
    {"ui", "report", "selftest"},
    {"run"},
    {"worker", "inspection", "samplers", "diagnosis", "analysis", "hosts"},
    {"loops", "replication", "backends", "models", "sources", "planted"},
    {"script", "tfdata", "user_code", "environment"},
    {"model"},
    {"scenario"},
    {"plugins", "native", "graph_ops", "system", "errors", "text", "pipeline_bench"},
]


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    at_module_level: bool
    for_typing: bool


def part_of(module: str) -> str:
    """The file or folder directly under the package: ``backends`` of ``pipeline_bench.backends.tf_data``."""
    names = module.split(".")
    return names[1] if len(names) > 1 else names[0]


def name_of(path: Path) -> str:
    names = ("pipeline_bench", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
EXERCISES = {name for name, path in MODULES.items() if part_of(name) == "lessons" and path.with_suffix(".md").exists()}
"""What a child executes of the lessons: the modules beside a lesson's text."""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def every_import_of(module: str) -> list[Import]:
    return list(_walk(tree(module), True, False))


def imports(module: str) -> list[Import]:
    return [found for found in every_import_of(module) if not found.for_typing]


def _walk(node: ast.AST, at_module_level: bool, for_typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # no import is within one
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, at_module_level, for_typing)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            for alias in child.names:
                # `from pipeline_bench import plugins` imports a module, `from pipeline_bench.errors import X` a name.
                whole = f"{child.module}.{alias.name}"
                found = whole if whole in MODULES else str(child.module)
                yield Import(found, child.lineno, at_module_level, for_typing)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            typing = isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
            yield from _walk(child, at_module_level and not function, for_typing or typing)


def test_tensorflow_is_imported_in_functions_of_the_childs_parts_only() -> None:
    of_tensorflow = [
        (module, found)
        for module in MODULES
        for found in every_import_of(module)
        if found.module.split(".")[0] in ("tensorflow", "keras")
    ]
    assert not [each for each in of_tensorflow if each[1].at_module_level and each[0] not in ARE_TENSORFLOWS]
    assert {part_of(module) for module, _ in of_tensorflow} <= TENSORFLOW_PARTS | JOB_PARTS


def test_what_is_tensorflows_is_loaded_by_nothing_else() -> None:
    others = [found for module in MODULES if module not in ARE_TENSORFLOWS for found in imports(module)]
    assert not [found for found in others if found.at_module_level and found.module in ARE_TENSORFLOWS]


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
            waiting += [found.module for found in imports(name)]
            waiting += [name.rsplit(".", 1)[0]] if "." in name else []
    return frozenset(loaded)


def test_the_child_loads_nothing_of_the_parents() -> None:
    of_the_child = EXERCISES.union(name for name in MODULES if part_of(name) in CHILD_PARTS)
    roots = {module: {name.split(".")[0] for name in loaded_by(module)} for module in of_the_child}
    assert not {module: found & NOT_IN_THE_CHILD for module, found in roots.items() if found & NOT_IN_THE_CHILD}


def test_what_reads_nvml_starts_without_what_takes_half_a_second_to_import() -> None:
    roots = {name.split(".")[0] for name in loaded_by("pipeline_bench.samplers.nvml_reader")}
    assert not roots & {"numpy", "pydantic"}


def test_imports_point_down() -> None:
    depths = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}
    assert not {part_of(module) for module in MODULES} - depths.keys(), "in no layer: add it to LAYERS"
    ours = ((name, each) for name in MODULES for each in imports(name) if each.module.startswith("pipeline_bench"))
    assert not [(module, up) for module, up in ours if depths[part_of(up.module)] < depths[part_of(module)]]


def test_no_part_imports_one_that_imports_it() -> None:
    below: dict[str, set[str]] = {}
    for name in MODULES:
        found = {part_of(each.module) for each in imports(name) if each.module.startswith("pipeline_bench")}
        below.setdefault(part_of(name), set()).update(found - {part_of(name), "pipeline_bench"})
    order = TopologicalSorter(below)
    order.prepare()  # raises CycleError, which names the parts


ENDS = ("print", "sys.exit", "exit", "quit", "typer.echo", "typer.Exit")


def test_only_the_command_line_prints_or_exits() -> None:
    last_names = {each.rpartition(".")[2] for each in ENDS}  # to unparse every call would take seconds
    may_end = re.compile(r"\b(print|echo|exit|quit)\(|Exit\b|typer\.")
    for module, path in MODULES.items():
        if part_of(module) in ("cli", "__main__") or not may_end.search(path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in last_names:
                assert ast.unparse(node.func) not in ENDS, f"{module}, line {node.lineno}"
            if isinstance(node, ast.Raise) and node.exc is not None:
                assert not ast.unparse(node.exc).startswith(("SystemExit", "typer.")), f"{module}, line {node.lineno}"


def test_every_module_opens_with_a_docstring() -> None:
    assert not [module for module in MODULES if not (ast.get_docstring(tree(module)) or "").strip()]


def test_the_map_of_the_architecture_names_every_part_and_none_that_is_gone() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = {part_of(name) for name in MODULES} - {"pipeline_bench", "__main__"}
    assert {part for part in parts if not re.search(rf"\b{part}\b", page)} == set()
    modules = {name.rsplit(".", maxsplit=1)[-1] for name in MODULES}
    named = re.findall(r"`(?:\w+/)*(\w+)\.py`", page)
    assert set(named) - modules - {"test_layers", "test_hostile_text"} == set()
