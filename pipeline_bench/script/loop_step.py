"""The step of a script's own loop: the `tf.function` that the loop hands its batches to, run by itself.

A function whose graph runs no Python and writes no file makes its step and nothing else. Eager code around it, or in
its place, may as well write a checkpoint or a log, and is never run.

    for i, (x, y) in enumerate(dataset):
        noise = tf.random.normal([BATCH, 100])     # of no batch
        train_step(x, y, noise, first=i == 0)      # False in most rounds

What the loop gives it beside the batch is read from the text, and computed of numbers; nothing of the user's runs.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_DECIDING = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp, ast.boolop, ast.operator, ast.unaryop)
_COMPARING = (ast.Eq, ast.Gt, ast.GtE, ast.In, ast.Lt, ast.LtE, ast.NotEq, ast.NotIn)
_KINDS = (bool, float, int, str, type(None))
"""What a variable of a flag may hold to be computed with: nothing of the user's runs."""
_ROUNDS = 1000
"""So many rounds of a loop, from the one that it is in, are looked at for what a flag is in most of them."""
_ROUND = "__round__"


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

    A flag that tells only some rounds of the loop from the others, as ``first`` or ``i == 0``, is what it is in most.

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
    flags = in_most_rounds(call.frame, call.arguments, call.named, taken_in)
    arguments = [flags.get(place, each) for place, each in enumerate(call.arguments)]
    step = LoopStep(call.function, arguments, {name: flags.get(name, each) for name, each in call.named.items()}, batch)
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


def of_no_batch(frame: FrameType, size: int, names: Sequence[str]) -> frozenset[int | str]:
    """Return those arguments, by place or name, that the loop around the call makes of numbers alone.

    There is none where the text does not tell which call it is, or has no loop around it. What is there before the loop
    may be made of a batch all the same: the loop over the batches may be around the function's call.

    Args:
        frame: of the code that makes the call.
        size: how many arguments are given by their place.
        names: those of the others.
    """
    loops = _running(frame, ast.For, ast.While)
    if not loops:
        return frozenset()
    outermost = min(loops, key=lambda each: each.lineno)
    nodes, code = source_guards.nodes(frame.f_code.co_filename), frame.f_code
    shared = {name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}  # a function's may be of the batch: its size
    known = {name: each for name, each in frame.f_globals.items() if name not in own}
    text = _LoopText(outermost, shared, known, batch_calls.scope_of(frame))
    return frozenset(place for place, value in _texts(frame, size, names).items() if text.is_free(value))


def _running(frame: FrameType, *kinds: type[ast.AST]) -> list[Any]:
    """Return the nodes of some kinds that stand around the line that a function runs."""
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    nodes: list[Any] = [each for each in source_guards.nodes(frame.f_code.co_filename) if isinstance(each, kinds)]
    return [each for each in nodes if first <= each.lineno <= line <= (each.end_lineno or line)]


def _texts(frame: FrameType, size: int, names: Sequence[str]) -> dict[int | str, ast.expr]:
    """Return the text of each argument, by place or name; none where it is not told which call of the line it is."""
    calls = [each for each in _running(frame, ast.Call) if len(each.args) == size]
    calls = [each for each in calls if [named.arg for named in each.keywords] == [*names]]
    if len(calls) != 1:
        return {}
    return {**dict(enumerate(calls[0].args)), **{str(each.arg): each.value for each in calls[0].keywords}}


class _LoopText:
    """What a loop sets and reads, and the variables that hold nothing of a batch."""

    def __init__(self, loop: ast.AST, shared: set[str], known: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
        """Read the loop.

        Args:
            loop: that runs.
            shared: names that functions set outside of themselves.
            known: the module's variables.
            scope: those and the function's, of which only a layer of Keras is surely of no batch.
        """
        nodes = [*ast.walk(loop)]
        self._shared, self._known, self._scope = shared, known, scope
        self._set = _stored(loop)
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
        return is_plain and is_fixed and (all(map(_is_fixed, values)) or self._asks_layer(value))

    def _asks_layer(self, value: ast.expr) -> bool:
        """Return whether an expression only asks a layer for the state that a recurrent network begins with.

        As ``self.encoder.initialize_hidden_state()``, without arguments: ``model.last_state()`` is of a batch.
        """
        match value:
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[], keywords=[]):
                parts = {ast.unparse(each) for each in ast.walk(owner) if isinstance(each, ast.Attribute)}
                is_layer = parts.isdisjoint(self._set) and _is_layer(batch_calls.held(owner, self._scope)[0])
                return is_layer and _BEGINNING.fullmatch(method) is not None
        return False


def _stored(loop: ast.AST) -> list[str]:
    """Return what a loop sets, once for each time: names, and attributes of them as they are written."""
    nodes = (each for each in ast.walk(loop) if isinstance(each, ast.Name | ast.Attribute))
    return [ast.unparse(each) for each in nodes if isinstance(each.ctx, ast.Store)]


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


def in_most_rounds(
    frame: FrameType, arguments: Sequence[Any], named: Mapping[str, Any], taken_in: Sequence[SourceLoop]
) -> dict[int | str, bool]:
    """Return what the flags among a call's arguments, by place or name, are in most rounds of the loop around it.

    Those alone are there that the text tells: that are computed of numbers, of what counts the rounds, and of what the
    loop sets to such. They are looked at together, as two may never be set at once.

    Args:
        frame: of the code that makes the call.
        arguments: of the call.
        named: those by name.
        taken_in: the loops around what took the first batch, inner ones first.
    """
    given: Iterator[tuple[int | str, Any]] = chain(enumerate(arguments), named.items())
    flags = [place for place, value in given if isinstance(value, bool)]
    lines = [each.line for each in taken_in if each.frame == id(frame)]
    loop = next((each for each in _running(frame, ast.For, ast.While) if each.lineno in lines[:1]), None)
    if not flags or loop is None:
        return {}
    texts, counting = _texts(frame, len(arguments), [*named]), _Counting(loop, batch_calls.scope_of(frame))
    told = {place: flag for place in flags if place in texts and (flag := counting.flag(texts[place])) is not None}
    try:
        found = Counter(tuple(flag(number) for flag in told.values()) for number in range(_ROUNDS))
    except (ArithmeticError, TypeError, ValueError):
        return {}
    ((most, _),) = found.most_common(1)
    return {place: value for place, value in zip(told, most, strict=True) if isinstance(value, bool)}


class _Counting(ast.NodeTransformer):
    """Puts into an expression what its variables hold, and for those that count a loop's rounds, so many more."""

    def __init__(self, loop: ast.For | ast.While, scope: Mapping[str, Any]) -> None:
        """Read the loop that counts; the scope holds the variables of the round that it is in."""
        self._scope = scope
        self._times = Counter(_stored(loop))
        self._set = dict(_set_in_each_round(loop))
        self._rises = {*_rising(loop)}
        self._open: list[str] = []
        """What is being put in: a variable may be made of itself."""

    def flag(self, text: ast.expr) -> Callable[[int], Any] | None:
        """Return what gives an expression's value so many rounds later; None where the text does not tell it."""
        put = self._visited(text)
        parts = [*ast.walk(put)]
        is_plain = all(isinstance(each, (*_STRUCTURES, *_DECIDING, *_COMPARING)) for each in parts)
        if not is_plain or any(isinstance(each, ast.Name) and each.id != _ROUND for each in parts):
            return None
        code = compile(ast.fix_missing_locations(ast.Expression(put)), "<flag>", "eval")
        return lambda number: eval(code, {_ROUND: number})  # noqa: S307 - numbers alone, no name of the user's

    def _visited(self, text: ast.expr) -> ast.expr:
        visited: ast.expr = self.visit(copy.deepcopy(text))
        return visited

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._put(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._put(node)

    def _put(self, node: ast.Name | ast.Attribute) -> ast.expr:
        name, (value, _) = ast.unparse(node), batch_calls.held(node, self._scope)
        if self._times[name] > 1 or type(value) not in _KINDS:
            return node
        if name in self._rises:
            return ast.BinOp(ast.Constant(value), ast.Add(), ast.Name(_ROUND, ast.Load()))
        if name in self._set and name not in self._open:
            self._open.append(name)
            made = self._visited(self._set[name])
            self._open.pop()
            return made
        return node if self._times[name] else ast.Constant(value)


def _rising(loop: ast.For | ast.While) -> Iterator[str]:
    """Yield what counts the rounds of a loop: what a `for` goes over first, and what something is added to."""
    target = loop.target if isinstance(loop, ast.For) else None
    first = target.elts[0] if isinstance(target, ast.Tuple) else target
    if first is not None:
        yield ast.unparse(first)
    for each in ast.walk(loop):
        match each:
            case ast.AugAssign(target=to, op=ast.Add(), value=ast.Constant()):
                yield ast.unparse(to)
            case ast.Assign(targets=[to], value=ast.BinOp(left=left, op=ast.Add(), right=ast.Constant())):
                if ast.unparse(left) == ast.unparse(to):
                    yield ast.unparse(to)


def _set_in_each_round(loop: ast.For | ast.While) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a loop gives a value in each round, or as soon as it is true: ``if first: ...; first = False``."""
    for statement in loop.body:
        test = ast.unparse(statement.test) if isinstance(statement, ast.If) else None
        for each in statement.body if isinstance(statement, ast.If) else [statement]:
            match each:
                case ast.Assign(targets=[to], value=value) if test in (None, ast.unparse(to)):
                    yield ast.unparse(to), value
