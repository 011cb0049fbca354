"""The step of a script's own loop: the `tf.function` that the loop hands its batches to, run by itself.

A function whose graph runs no Python and writes no file makes its step and nothing else. Eager code around it, or in
its place, may as well write a checkpoint or a log, and is never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from time import monotonic  # by itself: a user's code may replace that of the module
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pipeline_bench.errors import UserCodeError
from pipeline_bench.script import batch_calls, loop_arguments
from pipeline_bench.tfdata import describe
from pipeline_bench.user_code.source_loops import SourceLoop


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
    known = loop_arguments.of_no_batch(call.frame, len(call.arguments), [*call.named]) if arrays else arrays
    if len(others) == len(parts) or not arrays <= known:
        return None
    flags = loop_arguments.in_most_rounds(call.frame, call.arguments, call.named, taken_in)
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
