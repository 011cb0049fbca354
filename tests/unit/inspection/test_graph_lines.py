"""Which line of a map in the graph takes its time, by events as TensorFlow's profiler gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.inspection import graph_lines

US = 1000
FILE = "train.py"
EXECUTOR = "ExecutorState::Process"


def graph(ops: dict[str, int | None], **called: Any) -> Any:
    """A graph of ops, each made on that line of the user's, and the functions that it calls."""
    library = SimpleNamespace(filename="tensorflow.py", lineno=7)
    made = []
    for name, line in ops.items():
        traceback = [library] if line is None else [SimpleNamespace(filename=FILE, lineno=line), library]
        made.append(SimpleNamespace(name=name, traceback=traceback))
    functions = {name: SimpleNamespace(graph=each) for name, each in called.items()}
    return SimpleNamespace(get_operations=lambda: made, _functions=functions)


BODY = graph({"while/Exp": 4, "while/add": 3, "while/Identity": 3})
OTHER = graph({"MatMul": 9, "while/Identity": 8})
GRAPH = graph({"while": 3, "sub": 5, "Identity": None, "range/Const": 3}, body=BODY, other=OTHER)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sub", 5),
        ("while/body/_1/while/Exp", 4),
        ("while/body/_1/while/PartitionedCall/MatMul", 9),
        ("while/body/_1/while/Identity", 3),  # two functions have one of that name: of the loop
        ("while/body/_1/while/cond/then/_9/Other", 3),
        ("ArithmeticOptimizer/Rewrite_x", None),
        ("Identity", None),
    ],
)
def test_an_op_is_of_the_line_that_made_it_or_what_it_is_a_part_of(name: str, line: int | None) -> None:
    line_of = graph_lines.lines_of_ops(GRAPH, lambda file: file == FILE)
    assert line_of(name) == (None if line is None else (FILE, line))


def test_what_the_executor_does_between_ops_is_of_the_next_one_and_idle_time_of_none() -> None:
    first = [
        (0, 100 * US, EXECUTOR),
        (5 * US, 10 * US, "a:Add"),
        (40 * US, 60 * US, "b:_MklMatMul"),
        (60 * US, 61 * US, "Iterator::Root::Map"),
        (101 * US, 120 * US, EXECUTOR),  # so near that it goes on
        (115 * US, 120 * US, "c:Exp"),
        (500 * US, 520 * US, EXECUTOR),
        (510 * US, 520 * US, "a:Add"),
        (600 * US, 700 * US, "EagerLocalExecute: IteratorGetNext"),
    ]
    second = [(50 * US, 80 * US, EXECUTOR), (70 * US, 80 * US, "a:Add")]
    runs = list(graph_lines.op_runs(iter([first[::-1], second])))
    assert [(run.name, run.type, run.took_ns // US) for run in runs] == [
        ("a", "Add", 10),
        ("b", "_MklMatMul", 50),
        ("c", "Exp", 60),
        ("a", "Add", 20),
        ("a", "Add", 30),
    ]


def test_a_line_has_the_time_of_its_ops_and_the_name_of_one_that_takes_most_of_it() -> None:
    lines = {"a": (FILE, 1), "b": (FILE, 1), "c": (FILE, 2), "d": (FILE, 2)}
    runs = [
        graph_lines.OpRun("a", "_MklMatMul", 50),
        graph_lines.OpRun("b", "Add", 10),
        graph_lines.OpRun("c", "Exp", 10),
        graph_lines.OpRun("d", "DecodeJpeg", 10),
        graph_lines.OpRun("e", "Cast", 20),
    ]
    found = graph_lines.of_runs(iter(runs), lines.get)
    assert [(each.place.line, each.share) for each in found.lines] == [(1, 0.6), (2, 0.2)]
    assert found.ops == {(FILE, 1): "MatMul"}
    assert found.decoding_share == 0.1
    assert graph_lines.of_runs(iter(runs[:3]), lines.get).decoding_share is None
    assert graph_lines.of_runs(iter([]), lines.get).lines == []
    assert found.fixed_share is None
    assert graph_lines.of_runs(iter(runs), lines.get, lambda name: name == "c").fixed_share == 0.9


def node(name: str, op: str, *given: str, **functions: str) -> Any:
    """A node; of a function in `branches`, as `tf.switch_case` has several, in a list."""
    named = {key: SimpleNamespace(name=value) for key, value in functions.items()}
    none = SimpleNamespace(name="")
    attributes = {
        key: SimpleNamespace(func=none, list=SimpleNamespace(func=[of]))
        if key == "branches"
        else SimpleNamespace(func=of, list=SimpleNamespace(func=[]))
        for key, of in named.items()
    }
    return SimpleNamespace(name=name, op=op, input=given, attr=attributes)


def test_what_takes_something_random_is_random() -> None:
    library = {
        "draws": [node("x", "RandomUniform")],
        "calls": [node("y", "PartitionedCall", f="draws")],
        "fixed": [node("z", "Add")],
    }
    nodes = [
        node("number", "Placeholder"),
        node("size", "Const"),
        node("decoded", "DecodeJpeg", "number"),
        node("flip", "If", "number:0", then_branch="calls", else_branch="fixed"),
        node("turned", "Mul", "decoded", "flip:1"),
        node("chosen", "Case", "number", branches="draws"),
        node("resized", "ResizeBilinear", "decoded:0", "^size"),
    ]
    functions = [SimpleNamespace(signature=SimpleNamespace(name=name), node_def=body) for name, body in library.items()]
    definition = SimpleNamespace(node=nodes, library=SimpleNamespace(function=functions))
    is_random = graph_lines.randomness(SimpleNamespace(as_graph_def=lambda: definition))
    assert is_random is not None
    names = ["decoded", "flip", "turned", "resized", "flip/then/_1/flip/y/x", "turned/Rewritten", "chosen", "unknown"]
    assert [name for name in names if is_random(name)] == [
        "flip",
        "turned",
        "flip/then/_1/flip/y/x",
        "turned/Rewritten",
        "chosen",
    ]
    definition.node = nodes[:3]
    assert graph_lines.randomness(SimpleNamespace(as_graph_def=lambda: definition)) is None
