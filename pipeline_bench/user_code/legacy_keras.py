"""Keras 2, the package `tf_keras`, which `TF_USE_LEGACY_KERAS=1` makes `tf.keras`; Keras 3 may be loaded beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.model.calls import POOL

NAME = "tf_keras"
WITHOUT_EAGER = "tf_keras.src.engine.training_v1"
"""The module whose `Model` it takes where eager execution is switched off."""
_TAPED_LAYERS = ("/layers/core/lambda_layer.py", "/layers/core/tf_op_layer.py")
"""Its layers that enter a `GradientTape` in each call: it shows them which variables their function reads."""


def is_model(value: object) -> bool:
    """Return whether it is a model of Keras 2; imports nothing."""
    keras = sys.modules.get(NAME)
    return keras is not None and isinstance(value, keras.Model)


def calls_taped_layer(frame: FrameType) -> bool:
    """Return whether a layer of Keras 2 enters a tape there, which is no sign of a training."""
    return frame.f_code.co_filename.endswith(_TAPED_LAYERS)


def backend_of(model: Any) -> str:
    """Return what a model of Keras 2 or 3 runs on, as Keras names it: ``tensorflow``."""
    if is_model(model):
        return "tensorflow"
    import keras  # the model's own, imported already

    return str(keras.backend.backend())


def steps_a_call(model: Any) -> int:
    """Return how many steps one call of a model's training function takes; Keras 2 keeps it in a variable."""
    if is_model(model):
        variable = model._steps_per_execution
        return 1 if variable is None else int(variable.numpy())
    return int(getattr(model, "steps_per_execution", 1) or 1)


@contextmanager
def one_step_a_call(model: Any) -> Iterator[None]:
    """Have a method for one batch take it alone; that of Keras 2 would take as many as a call of `fit` does."""
    before = model._steps_per_execution
    vars(model)["_steps_per_execution"] = None  # set as an attribute, it would become one of the weights
    try:
        yield
    finally:
        vars(model)["_steps_per_execution"] = before


def is_tuned(model: Any) -> bool:
    """Return whether Keras 2 changes how many steps a call takes, as with ``steps_per_execution="auto"``."""
    return is_model(model) and bool(model.autotune_steps_per_execution)


def steps_a_graph_call(model: Any) -> int | None:
    """Return how many steps one call of a model's training function takes; see `WallTime.steps_a_call` for None."""
    in_graph = backend_of(model) == "tensorflow" and user_code.runs_eagerly(model) is None and not is_tuned(model)
    return steps_a_call(model) if in_graph else None


def queues() -> int:
    """Return how many queues Keras 2 has begun in this process, which workers fill with batches; imports nothing."""
    data_utils = sys.modules.get(f"{NAME}.src.utils.data_utils")
    return len(getattr(data_utils, "_SHARED_SEQUENCES", ()))


def _num_batches(data: Any) -> int:
    """Return a `Sequence`'s own attribute `num_batches`, of which its length may be made; its length without one."""
    own = vars(data).get("num_batches")
    return len(data) if own is None else int(own)


_NUM_BATCHES = property(_num_batches, lambda data, value: vars(data).update(num_batches=value))
"""In place of a PyDataset's, which is its length alone, and cannot be set."""


def as_py_dataset(data: Any, given: Mapping[str, Any]) -> Any:
    """Return what a `fit` was given; a `Sequence` of Keras 2 has then become a PyDataset as well, of the same batches.

    One stays what it is if it has slots, or means something else by `num_batches`, which Keras 3 reads.

    Args:
        data: the `x` of a `fit`.
        given: its other arguments, by name; those of the workers belong to the `fit` there, and to the PyDataset here.
    """
    import keras

    legacy = sys.modules.get(NAME)
    if legacy is None or not isinstance(data, legacy.utils.Sequence):
        return data
    kind = type(data)
    if _means_something_else(data):
        return data
    own: dict[str, Any] = {"__module__": kind.__module__}
    if not hasattr(kind, "num_batches"):
        own["num_batches"] = _NUM_BATCHES
    with suppress(TypeError):  # it has slots, or a class of its own kind
        data.__class__ = type(kind.__name__, (kind, keras.utils.PyDataset), own)
    if not isinstance(data, keras.utils.PyDataset):
        return data
    pool = {name: given[name] for name in POOL if given.get(name) is not None}
    keras.utils.PyDataset.__init__(data, **pool)
    return data


def sequence_hint(data: Any) -> str:
    """Return what to change in a `Sequence` of Keras 2 for it to become a PyDataset; empty where that is not known."""
    legacy = sys.modules.get(NAME)
    if legacy is None or not isinstance(data, legacy.utils.Sequence) or not _means_something_else(data):
        return ""
    return (
        f"its num_batches is not its length, {len(data)}, and Keras 3, which reads it here, takes it for that: "
        f"give it another name in {type(data).__name__}"
    )


def _means_something_else(data: Any) -> bool:
    """Return whether a `Sequence` has a `num_batches` that is not its length."""
    return bool(getattr(data, "num_batches", len(data)) != len(data))


def dataset(data: Any, given: Mapping[str, Any]) -> Any:
    """Return the `tf.data.Dataset` that Keras 2 makes of arrays or of a generator, of arrays for all epochs.

    Args:
        data: the `x` of a `fit`.
        given: its other arguments that say what the batches are, by name.

    Raises:
        PipelineBenchError: this Keras 2 has it elsewhere.
        UserCodeError: Keras 2 does not take it.
    """
    try:
        from tf_keras.src.engine.data_adapter import DataHandler
    except ImportError as error:
        raise PipelineBenchError(
            "This tf_keras does not have its data adapters where tf_keras 2.21 has them."
        ) from error
    try:
        return DataHandler(data, **given)._dataset
    except Exception as error:
        message = f"Keras does not take what the fit was given: {user_code.summary(error)}"
        raise UserCodeError(message, traceback=user_code.traceback_of(error)) from error
