"""The step of a script's own loop: the `tf.function` that the loop hands its batches to, run by itself.

A function whose graph runs no Python and writes no file makes its step and nothing else. Eager code around it, or in
its place, may as well write a checkpoint or a log, and is never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from time import monotonic  # by itself: a user's code may replace that of the module
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from pipeline_bench.errors import UserCodeError
from pipeline_bench.script import batch_calls
from pipeline_bench.tfdata import describe
from pipeline_bench.user_code import source_guards
from pipeline_bench.user_code.source_loops import SourceLoop

_COMPUTE = ("keras", "numpy", "tensorflow")
"""Packages whose functions make an array of numbers, as of a shape."""
_KERAS = ("keras", "tf_keras")
_BEGINNING = re.compile(r"(get_)?(init|initial|initialize|zero)(_\w*)?")
"""What the methods are named that give a state to begin with; the state that a batch left has another name."""
_STRUCTURES = (ast.Constant, ast.List, ast.Name, ast.Tuple, ast.expr_context)
_COMPUTING = (ast.Attribute, ast.BinOp, ast.Call, ast.UnaryOp, ast.keyword, ast.operator, ast.unaryop)


class Call(NamedTuple):
    """A call of a `tf.function`: the function, its arguments, those by name, and what makes the call."""

    function: Any
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    frame: FrameType


class LoopStep:
    """Makes a step on a batch: the parts of the loop's batch among the arguments are exchanged, others stay."""

    part = ""
    """Its name, if the loop calls more for each batch, as `batch_calls.part` says."""

    def __init__(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any], batch: Any) -> None:
        """Copy the function: it is being traced for the script, which never ends, and holds its lock.

        Args:
            function: of `tf.function`.
            arguments: that the loop gives it.
            named: those by name.
            batch: that the loop took last.
        """
        self.name = str(getattr(function.python_function, "__name__", "a tf.function"))
        self.batch = batch
        self._function = function._clone(None)
        self._arguments, self._named = tuple(arguments), dict(named)
        self._places = _places(batch)
        self._shapes: set[tuple[Any, ...]] = set()
        """Of the parts of the batches for which the function's graph was looked at."""
        self._graphs: list[Any] = []
        """Those that were looked at: a batch of another shape may have the function traced anew, into another graph."""
        self.traced_anew_s = 0.0
        """How long it took to trace those behind the first."""

    @property
    def traced_anew(self) -> int:
        """How often it was traced behind the first time, for batches of other shapes."""
        return max(0, len(self._graphs) - 1)

    def __call__(self, batch: Any) -> Any:
        """Make a step, and return what the function gives; without a tensor in it, when the devices are done.

        Raises:
            UserCodeError: more than a step would be made.
        """
        import tensorflow as tf

        arguments, named = self._given(batch)
        with tf.summary.record_if(False):  # they would go into the script's logs
            self._look(tuple(getattr(part, "shape", None) for part in tf.nest.flatten(batch)), arguments, named)
            given = self._function(*arguments, **named)
        if not any(tf.is_tensor(part) for part in tf.nest.flatten(given)) and tf.config.list_logical_devices("GPU"):
            tf.test.experimental.sync_devices()
        return given

    def _look(self, shapes: tuple[Any, ...], arguments: list[Any], named: dict[str, Any]) -> None:
        """Look at the graph that runs for a batch, before it runs for the first one of these shapes."""
        if shapes in self._shapes:
            return
        begun_s = monotonic()
        graph = self._function.get_concrete_function(*arguments, **named).graph
        if self._graphs:
            self.traced_anew_s += monotonic() - begun_s
        if all(graph is not each for each in self._graphs):
            if describe.leaves_graph(graph):
                raise UserCodeError(f"{self.name} runs Python, or writes files, in its graph")
            self._graphs.append(graph)
        self._shapes.add(shapes)

    def _given(self, batch: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments, and those by name, with the parts of a batch in their places."""
        import tensorflow as tf

        parts = tf.nest.flatten(batch)

        def exchanged(argument: Any) -> Any:
            own = tf.nest.flatten(argument)
            if not any(id(part) in self._places for part in own):
                return argument
            new = [parts[self._places[id(part)]] if id(part) in self._places else part for part in own]
            return tf.nest.pack_sequence_as(argument, new)

        return [*map(exchanged, self._arguments)], {name: exchanged(value) for name, value in self._named.items()}


def of(call: Call | None, batch: Any, taken_in: Sequence[SourceLoop]) -> LoopStep | None:
    """Return the step that a call of a `tf.function` makes of a batch; None where it was not given the batch.

    Nor is there one where it got an array that is no part of the batch: it may have been made of it, as by a cast or by
    a transposition, and would fit no other. An array that is made of no batch, as noise, is given again with each. A
    function that runs eagerly may do anything.

    Args:
        call: that trains.
        batch: that the loop took last.
        taken_in: the loops around what took its first batch, inner ones first.
    """
    import tensorflow as tf

    if call is None or tf.config.functions_run_eagerly():
        return None
    places = _places(batch)
    given: Iterator[tuple[int | str, Any]] = chain(enumerate(call.arguments), call.named.items())
    try:
        parts = [(place, part) for place, each in given for part in tf.nest.flatten(each)]
    except (TypeError, ValueError):  # a structure whose keys have no order
        return None
    others = [(place, part) for place, part in parts if id(part) not in places]
    arrays = {place for place, part in others if _is_array(part)}
    known = of_no_batch(call.frame, len(call.arguments), [*call.named]) if arrays else arrays
    if len(others) == len(parts) or not arrays <= known:
        return None
    step = LoopStep(call.function, call.arguments, call.named, batch)
    step.part = batch_calls.part(step.name, taken_in, call.frame)
    return step


def _is_array(argument: Any) -> bool:
    """Return whether an argument holds more than one number; a variable is none of a batch's samples."""
    import tensorflow as tf

    holds_data = tf.is_tensor(argument) or isinstance(argument, np.ndarray)
    return holds_data and not hasattr(argument, "assign") and tf.TensorShape(argument.shape).rank != 0


def _places(batch: Any) -> dict[int, int]:
    """Return the place of each tensor of a batch among its parts, by identity; a distributed batch has none."""
    import tensorflow as tf

    kinds = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
    return {id(part): place for place, part in enumerate(tf.nest.flatten(batch)) if isinstance(part, kinds)}


# --- arguments that are made of nothing that the loop takes, as far as its text says ----------------------------------


def of_no_batch(frame: FrameType, size: int, names: Sequence[str]) -> frozenset[int | str]:
    """Return those arguments, by place or name, that the loop around the call makes of numbers alone.

    There is none where the text does not tell which call it is, or has no loop around it. What is there before the loop
    may be made of a batch all the same: the loop over the batches may be around the function's call.

    Args:
        frame: of the code that makes the call.
        size: how many arguments are given by their place.
        names: those of the others.
    """
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    nodes = source_guards.nodes(frame.f_code.co_filename)
    around = [each for each in nodes if isinstance(each, ast.Call | ast.For | ast.While) and each.lineno >= first]
    around = [each for each in around if each.lineno <= line <= (each.end_lineno or line)]
    loops = [each for each in around if not isinstance(each, ast.Call)]
    calls = [each for each in around if isinstance(each, ast.Call) and len(each.args) == size]
    calls = [each for each in calls if [named.arg for named in each.keywords] == [*names]]
    if len(calls) != 1 or not loops:
        return frozenset()
    outermost = min(loops, key=lambda each: each.lineno)
    shared = {name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    code = frame.f_code
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}  # a function's may be of the batch: its size
    known = {name: each for name, each in frame.f_globals.items() if name not in own}
    known |= {name: each for name, each in frame.f_locals.items() if _is_layer(each)}  # which is of no batch
    text = _LoopText(outermost, shared, known)
    given: Iterator[tuple[int | str, ast.expr]] = chain(
        enumerate(calls[0].args), ((str(each.arg), each.value) for each in calls[0].keywords)
    )
    return frozenset(place for place, value in given if text.is_free(value))


class _LoopText:
    """What a loop sets and reads, and the variables that hold nothing of a batch."""

    def __init__(self, loop: ast.AST, shared: set[str], known: Mapping[str, Any]) -> None:
        """Read the loop.

        Args:
            loop: that runs.
            shared: names that functions set outside of themselves.
            known: the module's variables, and those of the function that hold a layer of Keras.
        """
        nodes = [*ast.walk(loop)]
        self._shared, self._known = shared, known
        self._set = [each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        named = (getattr(each, field, None) for each in nodes for field in ("name", "rest"))  # as by a `case`
        self._set += [name for name in named if isinstance(name, str)]
        self._read = [each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
        self._assigned = [each for each in nodes if isinstance(each, ast.Assign)]

    def is_free(self, value: ast.expr) -> bool:
        """Return whether an argument is made of numbers alone, there or by the loop, which does no more with it."""
        if not isinstance(value, ast.Name):
            return self._is_of_numbers(value)
        if value.id in self._shared or self._read.count(value.id) > 1:  # as in `noise += x`, `noise[:] = x`
            return False
        made = [each.value for each in self._assigned if [ast.unparse(to) for to in each.targets] == [value.id]]
        return 0 < len(made) == self._set.count(value.id) and all(map(self._is_of_numbers, made))

    def _is_of_numbers(self, value: ast.expr) -> bool:
        """Return whether an expression computes of numbers alone, or of nothing but what a layer of Keras has."""
        parts = [*ast.walk(value)]
        names = {each.id for each in parts if isinstance(each, ast.Name)}
        is_plain = all(isinstance(each, (*_STRUCTURES, *_COMPUTING)) for each in parts)
        is_fixed = names.isdisjoint(self._set) and names.isdisjoint(self._shared)
        values = [self._known.get(name) for name in names]
        return is_plain and is_fixed and (all(map(_is_fixed, values)) or (_asks_alone(value) and _is_layer(values[0])))


def _asks_alone(value: ast.expr) -> bool:
    """Return whether an expression only asks a variable for the state that a recurrent network begins with.

    As ``encoder.initialize_hidden_state()``, without arguments: ``model.last_state()`` is of a batch.
    """
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=method), args=[], keywords=[]):
            return _BEGINNING.fullmatch(method) is not None
    return False


def _is_layer(value: Any) -> bool:
    """Return whether a variable is a layer or a model of Keras."""
    kinds = type(value).__mro__
    return any(each.__name__ == "Layer" and each.__module__.partition(".")[0] in _KERAS for each in kinds)


def _is_fixed(value: Any) -> bool:
    """Return whether a variable is a number, several of them, or a package that computes of what it is given alone."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _COMPUTE
    several = isinstance(value, tuple | list) and len(value) > 0
    return isinstance(value, int | float | str) or (several and all(map(_is_fixed, value)))
