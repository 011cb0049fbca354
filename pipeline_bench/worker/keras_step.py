"""The step of a Keras model: what `fit`, `evaluate` or `predict` does with one batch.

On TensorFlow it is the model's `train_step` in a `tf.function`; on JAX and PyTorch it is Keras' method for one batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.script.training_data import Does
from pipeline_bench.user_code import legacy_keras


def is_on_tensorflow(model: Any) -> bool:
    """Return whether a Keras model runs on TensorFlow, as each of Keras 2 does."""
    import keras

    return legacy_keras.is_model(model) or keras.backend.backend() == "tensorflow"


def step_of(model: Any, does: Does, spec: Any, in_graph: bool) -> Callable[[Any], Any]:
    """Return a function that takes a batch, and returns what the model's step returns: its metrics, or predictions.

    Args:
        model: of Keras 2 or 3.
        does: what it does with a batch.
        spec: see `consumers.step_of`.
        in_graph: see `consumers.step_of`.
    """
    return _traced(model, does, spec, in_graph) if is_on_tensorflow(model) else _on_batch(model, does)


def _traced(model: Any, does: Does, spec: Any, in_graph: bool) -> Callable[[Any], Any]:
    import tensorflow as tf

    own = getattr(model, f"{does}_step")
    if not legacy_keras.is_model(model):
        own = _unconverted(own)
    make_variables: Callable[[Any], Any] | None = None
    strategy = model.distribute_strategy
    if strategy is not None and type(strategy) is not type(tf.distribute.get_strategy()):  # of one replica too
        own, make_variables = _on_each_replica(strategy, own), _on_batch(model, does)
    traced: Callable[[Any], Any] | None = None

    def step(batch: Any) -> Any:
        nonlocal traced
        if spec is None:
            batch = _without_optionals(batch)
        if traced is None:
            if make_variables is not None:  # a replica makes none; without replicas the first call makes them
                make_variables(batch)
            jit = bool(getattr(model, "jit_compile", False))
            given = {"reduce_retracing": True} if spec is None else {"input_signature": [spec]}
            traced = own if model.run_eagerly and not in_graph else tf.function(own, jit_compile=jit, **given)
        with user_code.functions_traced() if in_graph else nullcontext():
            return traced(batch)

    return step


def _unconverted(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a step of which AutoGraph converts nothing, as in Keras 3; Keras 2 has it convert the layers."""
    import tensorflow as tf

    def own(batch: Any) -> Any:
        return step(batch)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(own)
    return unconverted


def _on_each_replica(strategy: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a step that has each replica of a strategy take its part of a batch; it gives what the first one gives."""
    import tensorflow as tf

    count = strategy.num_replicas_in_sync

    def own_part(batch: Any) -> Any:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return step(tf.nest.map_structure(lambda part: part[replica::count], batch))

    def step_of_all(batch: Any) -> Any:
        given = strategy.run(own_part, (batch,))
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], given)

    return step_of_all


def _on_batch(model: Any, does: Does) -> Callable[[Any], Any]:
    """Return Keras' own method for one batch, which gives the loss as a number: on JAX too the step has ended then.

    It is that of `keras.Model`, whatever the model's class has in its place: the classes of KerasHub prepare the
    samples in theirs, and their `fit` has the dataset do that, whose batches come here.
    """
    import keras
    import tensorflow as tf

    package = keras if isinstance(model, keras.Model) else sys.modules[legacy_keras.NAME]
    method, own = getattr(package.Model, f"{does}_on_batch"), getattr(model, f"{does}_step")
    on_tensorflow = is_on_tensorflow(model)
    given: Any = None

    def own_step(*state_and_data: Any) -> Any:
        # Keras' method for one batch makes (x, y, None) of it, which a train_step with ``x, y = data`` does not take,
        # and Keras 2 makes (x,) of a dict.
        *state, data = state_and_data
        if isinstance(data, tuple):
            data = data[: len(given)] if isinstance(given, tuple | list) else data[0]
        return own(*state, data)

    setattr(model, f"{does}_step", own_step)
    setattr(model, f"{does}_function", None)  # of a model that was trained before, it runs the step before

    def step(batch: Any) -> Any:
        nonlocal given
        given = batch
        if not on_tensorflow:
            batch = tf.nest.map_structure(_as_array, batch)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        with legacy_keras.one_step_a_call(model) if package is not keras else nullcontext():
            return method(model, x) if does == "predict" else method(model, x, y, sample_weight=weights)

    return step


def _without_optionals(batch: Any) -> Any:
    """Return a batch as Keras 3 hands it to a step: None for an Optional, which its datasets give for a None."""
    import tensorflow as tf

    return tf.nest.map_structure(lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch)


def _as_array(part: Any) -> Any:
    """Return a part of a batch as an array, of a sparse or ragged one a dense array; None for None or an Optional.

    What was read for the backend is returned as it is.
    """
    import tensorflow as tf

    if part is None or isinstance(part, tf.experimental.Optional):
        return None
    if isinstance(part, tf.SparseTensor):
        part = tf.sparse.to_dense(part)
    elif isinstance(part, tf.RaggedTensor):
        part = part.to_tensor()
    return part.numpy() if tf.is_tensor(part) else part
