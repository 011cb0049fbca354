"""A digest of what a function of the user's does: functions of one definition may do different things, as by a flag.

``lambda path: load(path, training)`` is one definition for both values of `training`, but TensorFlow traces a graph for
each, and these differ. A graph does not show what the Python does that it calls: there, the digest also covers the
values that the function finds around it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from pipeline_bench.graph_ops import PYTHON_OPS
from pipeline_bench.tfdata import dataset_graph
from pipeline_bench.user_code import function_calls

_BY_CHANCE = frozenset({"token", "metadata", "shared_name", "container", "seed", "seed2", "shape", "output_shapes"})
"""Attributes of ops that number what was traced, or tell the seeds and the shapes that it was traced with."""
_MOST_BYTES = 1 << 20
"""Of a tensor from outside of the function whose values are compared; a larger one is only equal to itself."""
_Bodies = Mapping[str, Any]
"""The functions that a graph calls, by name."""


def of(function: Any, dataset: Any, method: str) -> str:
    """Return a digest of what a function does, the same for functions of one definition that do the same.

    Of a generator only the flags around it count: its numbers, its texts and its arguments tell what it reads.

    Args:
        function: that the user gave to a stage; None of a stage without one.
        dataset: of the stage, which holds the function as it was traced.
        method: of the stage.
    """
    if method == "from_generator":
        return _digest(_around(function, (bool,), set()))
    wrappers = dataset_graph.functions_in(dataset)
    graphs = [each.function.graph for each in wrappers if hasattr(each.function, "graph")]
    parts: list[str] = []
    for graph in graphs:
        definition = graph.as_graph_def()
        bodies = {each.signature.name: each for each in definition.library.function}
        parts.append(_body(definition.node, [], [each.name for each in graph.outputs], bodies))
        parts += [_value(tensor) for tensor, _ in graph.captures]
        nodes = [*definition.node, *(node for each in bodies.values() for node in each.node_def)]
        if any(node.op in PYTHON_OPS for node in nodes):
            parts += _around(function, (bool, int, float, str), set())
    return _digest(parts)


def _body(nodes: Sequence[Any], arguments: Sequence[str], outputs: Sequence[str], bodies: _Bodies) -> str:
    """Return a digest of the ops of a function, whatever the names of its nodes are.

    Args:
        nodes: of the function, in the order in which they were traced.
        arguments: the names of those that are no nodes.
        outputs: what it returns, each as a node names its inputs.
        bodies: of the functions that are called.
    """
    numbers = {name: str(number) for number, name in enumerate([*arguments, *(node.name for node in nodes)])}

    def source(name: str) -> str:
        node, _, output = name.removeprefix("^").partition(":")
        return f"{name[: name.startswith('^')]}{numbers.get(node, node)}:{output}"

    ops = [[node.op, *map(source, node.input), *_attributes(node.attr, bodies)] for node in nodes]
    return _digest([*(repr(each) for each in ops), *map(source, outputs)])


def _attributes(attributes: Mapping[str, Any], bodies: _Bodies) -> Iterator[str]:
    for name in sorted(attributes):
        if name in _BY_CHANCE or name.startswith("_"):
            continue
        value = attributes[name]
        called = [value.func.name] if value.HasField("func") else [each.name for each in value.list.func]
        for each in filter(None, called):
            yield f"{name}={_called(each, bodies)}"
        if not called:
            yield f"{name}={value.SerializeToString(deterministic=True).hex()}"


def _called(name: str, bodies: _Bodies) -> str:
    """Return a digest of a function that an op calls; its name where the graph does not hold it."""
    if name not in bodies:
        return name
    own = bodies[name]
    returned = [own.ret[each.name] for each in own.signature.output_arg]
    inner = {other: body for other, body in bodies.items() if other != name}  # one that calls itself ends so
    return _body(own.node_def, [each.name for each in own.signature.input_arg], returned, inner)


def _value(tensor: Any) -> str:
    """Return the value of a tensor from outside of a function; of a variable, a table or a dataset only its type."""
    if tensor.dtype.name in ("resource", "variant") or not hasattr(tensor, "numpy"):
        return str(tensor.dtype.name)
    if tensor.dtype.size * (tensor.shape.num_elements() or 0) > _MOST_BYTES:
        return str(id(tensor))
    values = np.asarray(tensor)
    # The bytes of an array of texts are the places where they are.
    data = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
    return f"{tensor.dtype.name} {tensor.shape} {hashlib.blake2b(data, digest_size=16).hexdigest()}"


def _around(function: Any, kinds: tuple[type, ...], seen: set[CodeType]) -> Iterator[str]:
    """Yield the values of some types that a function, or one that it calls, finds around it.

    They are arguments of a partial, variables of the function around it, and attributes of its object.
    """
    if isinstance(function, functools.partial):
        held = [*enumerate(function.args), *sorted(function.keywords.items())]
        yield from (f"{name}={value!r}" for name, value in held if isinstance(value, kinds))
        yield from _around(function.func, kinds, seen)
        return
    function = getattr(function, "python_function", function)  # of a tf.function
    plain, owner = getattr(function, "__func__", function), getattr(function, "__self__", None)
    if not isinstance(plain, FunctionType):
        plain, owner = getattr(type(plain), "__call__", None), plain  # noqa: B004 - of an object that is called
    if not isinstance(plain, FunctionType) or plain.__code__ in seen:
        return
    seen.add(plain.__code__)
    codes = (plain.__code__, *function_calls.inner_codes(plain.__code__))
    used = sorted({name for each in codes for name in each.co_names})  # globals and attributes
    for name, value in [("self", owner), *_closure(plain)]:
        if isinstance(value, kinds):
            yield f"{name}={value!r}"
        elif isinstance(value, FunctionType | MethodType | functools.partial):
            yield from _around(value, kinds, seen)
        else:
            own = getattr(value, "__dict__", {})
            yield from (f"{name}.{each}={own[each]!r}" for each in used if isinstance(own.get(each), kinds))
            methods = (getattr(type(value), each, None) for each in used)
            for method in (each for each in methods if isinstance(each, FunctionType)):
                yield from _around(MethodType(method, value), kinds, seen)


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is not set yet
            continue


def _digest(parts: Iterator[str] | Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
