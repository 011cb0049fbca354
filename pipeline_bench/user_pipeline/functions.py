"""What is known of a function that the user gave to a stage: its name, where it is, and what TensorFlow made of it."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

from pipeline_bench.user_pipeline import UserFunction

_PYTHON_OPS = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}
_RANDOM_OPS = re.compile(r"Random|TruncatedNormal|Multinomial|SampleDistorted|^Rng|^Stateful(Uniform|StandardNormal)")
# What is_stateful says of these is not what tf.data goes by when it decides whether to parallelise a map: it looks into
# the functions that control flow calls, and skips assertions (tensorflow/core/grappler/optimizers/data/function_utils).
_NOT_COUNTED = {"Assert", "If", "While", "Case", "For", "StatefulPartitionedCall", "PartitionedCall"}
_DATASET_OP = re.compile(r"Dataset(V\d+)?$")


def describe(function: Any, dataset: Any, generator: bool = False) -> UserFunction:
    """Tell a function, as the dataset that a stage made of it holds it traced."""
    ops = _ops(dataset)
    stateful = any(_is_stateful(op) for op in ops - _NOT_COUNTED)
    code = getattr(_plain(function), "__code__", None)
    return UserFunction(
        name=name(function),
        file=getattr(code, "co_filename", None),
        line=getattr(code, "co_firstlineno", None),
        python=generator or bool(ops & _PYTHON_OPS),
        stateful=generator or stateful,
        # Stateless random ops alone give the same for the same seed, which tf.data knows: it parallelises such a map.
        # Keras' random layers give them a seed out of a variable.
        random=stateful and any(_RANDOM_OPS.search(op) for op in ops),
    )


def name(function: Any) -> str:
    """A readable name: ``decode``, ``<lambda>``, ``partial of decode``, ``Augment.flip``; of an object its class."""
    if isinstance(function, functools.partial):
        return f"partial of {name(function.func)}"
    plain = getattr(function, "python_function", function)  # of a tf.function
    qualified = getattr(plain, "__qualname__", None) or type(plain).__qualname__
    if inspect.isclass(plain) and plain.__module__.startswith("tensorflow."):
        qualified = plain.__name__.removesuffix("V2")
    outer, _, own = str(qualified).rpartition(".<locals>.")
    # What `tf.data.experimental.assert_cardinality(…)` and its like return for `apply` has no name of its own.
    return outer.rpartition(".")[-1] if own in ("_apply_fn", "apply_fn") else own


def _plain(function: Any) -> Any:
    """The Python function behind a partial, a tf.function, a bound method, a decorated one or a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "python_function", function))
    function = getattr(function, "__func__", function)
    if hasattr(function, "__code__") or inspect.isclass(function):
        return function
    if type(function).__module__.split(".")[0] == "keras":
        return getattr(type(function), "call", function)  # __call__ is Keras' own
    return type(function).__call__


def _ops(dataset: Any) -> set[str]:
    """The types of all ops in the functions of a dataset, those that they call included."""
    found: set[str] = set()
    for wrapper in _wrappers(dataset):
        graph = wrapper.function.graph.as_graph_def()
        found |= {node.op for node in graph.node}
        found |= {node.op for function in graph.library.function for node in function.node_def}
    return found


def _wrappers(dataset: Any) -> list[Any]:
    try:
        return [wrapper for wrapper in dataset._functions() if hasattr(wrapper.function, "graph")]
    except (AttributeError, NotImplementedError):  # not every dataset tells its functions
        return []


@functools.cache
def _is_stateful(op: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op)
    return bool(definition is not None and definition.is_stateful and not _DATASET_OP.search(op))
