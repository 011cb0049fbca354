"""The step of a script's own loop: the `tf.function` that the loop hands its batches to, run by itself.

A function of the graph makes its step and nothing else. Eager code around it, or in its place, may as well write a
checkpoint or a log, and is never run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class LoopStep:
    """Makes a step on a batch: the parts of the loop's batch among the arguments are exchanged, others stay."""

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

    def __call__(self, batch: Any) -> Any:
        """Make a step, and return what the function gives; without a tensor in it, when the devices are done."""
        import tensorflow as tf

        parts = tf.nest.flatten(batch)

        def exchanged(argument: Any) -> Any:
            own = tf.nest.flatten(argument)
            if not any(id(part) in self._places for part in own):
                return argument
            new = [parts[self._places[id(part)]] if id(part) in self._places else part for part in own]
            return tf.nest.pack_sequence_as(argument, new)

        named = {name: exchanged(value) for name, value in self._named.items()}
        given = self._function(*map(exchanged, self._arguments), **named)
        if not any(tf.is_tensor(part) for part in tf.nest.flatten(given)) and tf.config.list_logical_devices("GPU"):
            tf.test.experimental.sync_devices()
        return given


def of(call: tuple[Any, Sequence[Any], Mapping[str, Any]] | None, batch: Any) -> LoopStep | None:
    """Return the step that a call of a `tf.function` makes of a batch; None where it was not given the batch."""
    import tensorflow as tf

    if call is None:
        return None
    function, arguments, named = call
    places = _places(batch)
    try:
        given = [part for each in (*arguments, *named.values()) for part in tf.nest.flatten(each)]
    except (TypeError, ValueError):  # a structure whose keys have no order
        return None
    return LoopStep(function, arguments, named, batch) if any(id(part) in places for part in given) else None


def _places(batch: Any) -> dict[int, int]:
    """Return the place of each tensor of a batch among its parts, by identity; a distributed batch has none."""
    import tensorflow as tf

    kinds = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
    return {id(part): place for place, part in enumerate(tf.nest.flatten(batch)) if isinstance(part, kinds)}
