"""Functions made of the user's functions: maps one after another, and a generator that gathers batches."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import BATCH_AS_IS, TAKE_ANY
from pipeline_bench.model.pipeline import Location, Stage
from pipeline_bench.model.user_function import OnBatches, UserFunction
from pipeline_bench.tfdata import dataflow, dataset_graph, describe
from pipeline_bench.user_code import function_calls

if TYPE_CHECKING:
    from pipeline_bench.tfdata.recipe import Recipe

_SOME = 2
"""Samples in a batch on which a function is traced."""
_TRIED_ROWS = 1024
"""In a batch in which rows are tried, if they are small: ``tokens[:128]`` cuts no fewer."""


def composed(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Return one function for `map` that does what maps of these functions one after another do.

    As tf.data does between two maps: a tuple is spread over the next one's parameters, and a list becomes a tuple. The
    function raises `PipelineBenchError` where one gives a number or an array, which between maps becomes a tensor: the
    code that is written hands it over as it is, and ``[x, x] * 2`` is another thing of a list than of a tensor.
    """
    first, following = functions[0], tuple(functions[1:])

    def fused(*args: Any) -> Any:
        value = first(*args)
        for function in following:
            value = tuple(value) if type(value) is list else value
            _check_tensors(value)
            value = function(*value) if type(value) is tuple else function(value)
        return value

    return fused


def _check_tensors(value: Any) -> None:
    import tensorflow as tf
    from tensorflow.python.data.util import nest  # where a list is one tensor, as in elements

    kinds = (bool, int, float, str, bytes, list, np.ndarray, np.generic, tf.Variable)
    for part in nest.flatten(value):
        if isinstance(part, kinds):
            raise PipelineBenchError(f"a map gives a {type(part).__name__}, which is a tensor only behind a map")


def parsing_batches(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a map's function with `tf.io.parse_example` in place of `tf.io.parse_single_example`.

    It raises `PipelineBenchError` where both the function itself and another one that it calls parse: the code that is
    written changes the function alone.
    """
    import tensorflow as tf

    def parsing(*args: Any) -> Any:
        are_own = set[bool]()

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator] # TensorFlow has no types
        def parse_example(*given: Any, **named: Any) -> Any:
            are_own.add(_is_in(describe.plain_function(function), user_code.location()))
            if len(are_own) > 1:
                raise PipelineBenchError("a map's function parses examples, and so does another one that it calls")
            return tf.io.parse_example(*given, **named)

        with user_code.patched(tf.io, "parse_single_example", parse_example):
            return function(*args)

    return parsing


def _is_in(function: Any, place: Location | None) -> bool:
    """Return whether a place is in the definition of a function."""
    code = getattr(function, "__code__", None)
    if code is None or place is None or place.file != code.co_filename:
        return False
    codes = (code, *function_calls.inner_codes(code))
    return place.line in {line for each in codes for *_, line in each.co_lines()}


def vectorized(function: Callable[..., Any], fallback: bool = True) -> Callable[..., Any]:
    """Return a function of batches that does to each sample what a map's function does to one.

    Args:
        function: the map's.
        fallback: whether an op that has no vectorized form runs in a loop over the samples; else tracing raises.
    """
    import tensorflow as tf

    def whole(*batch: Any) -> Any:
        return tf.vectorized_map(lambda sample: function(*sample), batch, fallback_to_while_loop=fallback)

    return whole


def with_batches(recipe: Recipe, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages, of each map that single samples pass before they are batched with how it can be given batches.

    A function that draws is not traced for that, unless a Keras layer draws; one that changes a state would do so once
    a batch. What Python does in one is not known, but the shapes that the function gives may show that it takes no
    batch. A map that is given batches as written takes none if a row of one may change another: cut into samples again,
    they would be others.
    """
    batched: dict[int, str] = {}
    for batch in (stage for stage in stages if stage.method in BATCH_AS_IS):
        at = recipe.calls[batch.inputs[0]]
        while at.method == "map" or at.method in TAKE_ANY:
            if at.method == "map":
                batched[at.id] = batch.method
            at = recipe.calls[at.inputs[0]]
    return tuple(
        _with_batches(recipe, stage, batched[stage.id]) if stage.id in batched else _with_mixed_rows(recipe, stage)
        for stage in stages
    )


def _with_mixed_rows(recipe: Recipe, stage: Stage) -> Stage:
    """Return a map behind a shuffle and a `batch` with whether rows are seen to mix in it; any other as it is."""
    function, call = stage.function, recipe.calls[stage.id]
    if stage.method != "map" or function is None or function.random or function.python or call.function is None:
        return stage
    before = recipe.calls[stage.inputs[0]]
    while before.method == "map" or before.method in TAKE_ANY | {"with_options"}:
        before = recipe.calls[before.inputs[0]]
    rows = describe.arguments(before.given()).get("batch_size")
    shuffled = any(each.method == "shuffle" for each in recipe.stages if each.id < before.id)
    if before.method != "batch" or not shuffled or describe.changes_state(call.result):
        return stage
    with contextlib.suppress(Exception):  # a kind of tensor that has no rows
        samples = recipe.dataset(stage.inputs[0]).unbatch().element_spec
        mixes = dataflow.mixes_rows(call.function, samples, rows if isinstance(rows, int) else 2)
        if dataset_graph.may_mix_rows(describe.bodies(call.result)) if mixes is None else mixes:
            return stage.model_copy(update={"function": function.model_copy(update={"on_batches": "not"})})
    return stage


def _with_batches(recipe: Recipe, stage: Stage, batch: str) -> Stage:
    function, call = stage.function, recipe.calls[stage.id]
    if function is None or call.function is None or (function.random and not function.changes_seeds):
        return stage
    found: OnBatches | None = "not"
    before = recipe.dataset(stage.inputs[0])
    if function.python:
        found = None if _may_take(call.function, before, call.result, batch) else "not"
    elif function.random or not describe.changes_state(call.result):
        found = _on_batches(call.function, function, before, call.result, batch)
    return stage.model_copy(update={"function": function.model_copy(update={"on_batches": found})})


def _on_batches(function: Callable[..., Any], known: UserFunction, samples: Any, mapped: Any, batch: str) -> OnBatches:
    """Return how a map's function can be given whole batches, by the shapes of what it gives when it is traced so.

    Args:
        function: the map's, of which no op changes a state, but the seeds of Keras' layers if it draws.
        known: of it.
        samples: the dataset that it is mapped over.
        mapped: the dataset of the map.
        batch: the method that makes the batches.
    """
    ways: dict[OnBatches, Callable[..., Any]] = {"as-is": function}
    if known.parses_examples:
        ways["parse-example"] = parsing_batches(function)
    if not known.random:
        ways["vectorized-map"] = vectorized(function, fallback=False)
    with contextlib.suppress(Exception), of_any_rank():  # what cannot be batched at all
        batches, wanted = (getattr(each, batch)(_SOME) for each in (samples, mapped))
        for way, changed in ways.items():
            with contextlib.suppress(Exception):  # of the user's code, which was not written for batches
                made = batches.map(changed)
                are_batches = _are_batches(made.element_spec, wanted.element_spec)
                if are_batches and _keeps_apart(way, function, known, (samples, mapped), made):
                    return way
    return "not"


def _keeps_apart(
    way: OnBatches, function: Callable[..., Any], known: UserFunction, of_samples: tuple[Any, Any], made: Any
) -> bool:
    """Return whether a function that gets batches in this way mixes no rows or axes, and draws for each row.

    Of what parses texts or records, for which none can be made up, its ops tell.

    Args:
        way: in which it gets them.
        function: of samples.
        known: of it.
        of_samples: the datasets in front of its map, and behind.
        made: the dataset of batches that it makes.
    """
    samples, mapped = of_samples
    if known.random:
        seeds = describe.seed_states(mapped)
        return way == "as-is" and dataflow.draws_by_row(function, mapped, samples.element_spec, seeds)
    if way == "vectorized-map":
        return True
    spec = samples.element_spec  # behind a map that draws, no sample of a trial would show another axis
    mixes = None if way == "parse-example" else dataflow.mixes_rows(function, spec, _TRIED_ROWS)
    if dataset_graph.may_mix_rows(describe.bodies(made)) if mixes is None else mixes:
        return False
    return way == "parse-example" or dataflow.keeps_axes(function, spec) is not False


@contextlib.contextmanager
def of_any_rank() -> Iterator[None]:
    """Let a `keras.Sequential` that the recorded call built for single samples take batches until the block ends.

    It is built by its first call: in the code that is written that one has batches.
    """
    keras = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "Sequential"):
        yield
        return
    as_built = keras.Sequential.call

    @functools.wraps(as_built)
    def call(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        built, rank = getattr(self, "_functional", None), getattr(getattr(inputs, "shape", None), "rank", None)
        if not built or rank in (None, len(self.input_shape)):
            return as_built(self, inputs, *args, **kwargs)
        self._functional = None  # its layers are then called in turn
        try:
            return as_built(self, inputs, *args, **kwargs)
        finally:
            self._functional = built

    with user_code.patched(keras.Sequential, "call", call):
        yield


def _may_take(function: Callable[..., Any], samples: Any, mapped: Any, batch: str) -> bool:
    """Return whether what a function gives of batches may be batches, as far as its shapes are known."""
    from tensorflow.python.data.util import nest

    with contextlib.suppress(Exception):  # as in `_on_batches`
        batches, wanted = (getattr(each, batch)(_SOME) for each in (samples, mapped))
        given, expected = (nest.flatten(each.element_spec) for each in (batches.map(function), wanted))
        return len(given) == len(expected) and all(
            one.dtype == other.dtype and one.shape.is_compatible_with(other.shape)
            for one, other in zip(given, expected, strict=True)
        )
    return False


def _are_batches(given: Any, wanted: Any) -> bool:
    """Return whether a spec is that of batches of any size: the same parts, types and ranks as the wanted one's."""
    import tensorflow as tf
    from tensorflow.python.data.util import nest

    nest.assert_same_structure(given, wanted)
    batched = (tf.TensorSpec, tf.RaggedTensorSpec)
    return all(
        isinstance(one, batched)
        and type(one) is type(other)
        and one.dtype == other.dtype
        and one.shape.rank == other.shape.rank
        and one.shape[0] is None
        and one.shape.is_compatible_with(other.shape)
        and (isinstance(one, tf.TensorSpec) or one.ragged_rank == other.ragged_rank)
        for one, other in zip(nest.flatten(given), nest.flatten(wanted), strict=True)
    )


def first_elements(generator: Callable[..., Any], count: int) -> Callable[..., Iterator[Any]]:
    """Return a generator of the first elements of another."""

    def limited(*args: Any) -> Iterator[Any]:
        return itertools.islice(iter(generator(*args)), count)

    return limited


def gathered(
    generator: Callable[..., Any], signature: Any, size: int, drop_remainder: bool
) -> Callable[..., Iterator[Any]]:
    """Return a generator of batches of another's elements, stacked for each component."""

    def batches(*args: Any) -> Iterator[Any]:
        elements = iter(generator(*args))
        while len(batch := list(itertools.islice(elements, size))) == size or (batch and not drop_remainder):
            yield _stacked(signature, batch)

    return batches


def _stacked(signature: Any, elements: list[Any]) -> Any:
    from tensorflow.python.data.util import nest

    def stack(spec: Any, *parts: Any) -> Any:
        return np.stack([np.asarray(part, dtype=spec.dtype.as_numpy_dtype) for part in parts])

    return nest.map_structure_up_to(signature, stack, signature, *elements)


def gathering(tensors: Any) -> tuple[int, Callable[[Any], Any]]:
    """Return how many rows tensors have, and a function that gathers those of some numbers.

    The parts of tuples and dicts are tensors of their own, as `from_tensor_slices` has it; a list is one tensor.

    Raises:
        PipelineBenchError: there are ragged or sparse tensors among them, or no rows.
    """
    import tensorflow as tf
    from tensorflow.python.data.util import nest

    composite = (tf.SparseTensor, tf.RaggedTensor)
    with tf.device("CPU:0"):
        held = nest.map_structure(
            lambda part: part if isinstance(part, composite) else tf.convert_to_tensor(part), tensors
        )
    parts = tf.nest.flatten(held)
    if not parts or any(not isinstance(part, tf.Tensor) or not part.shape.rank for part in parts):
        raise PipelineBenchError("what is cut into slices is no array, so that its rows cannot be gathered")

    def gather(rows: Any) -> Any:
        return tf.nest.map_structure(lambda part: tf.gather(part, rows), held)

    return int(parts[0].shape[0]), gather


def windows(tensors: Any, size: int, stride: int) -> tuple[int, Callable[[Any], Any]]:
    """Return how many rows an array has, and a function that gathers windows by the numbers of their first rows.

    Args:
        tensors: the array.
        size: rows in a window.
        stride: from one row of a window to the next.

    Raises:
        PipelineBenchError: it is no array.
    """
    import tensorflow as tf

    rows, gather = gathering(tensors)

    def gathered_windows(start: Any) -> Any:
        return gather(start[..., tf.newaxis] + stride * tf.range(size, dtype=tf.int64))

    return rows, gathered_windows


def signature_of(given: Mapping[str, Any]) -> Any:
    """Return the specs of a `from_generator`'s elements, of its older arguments for types and shapes as well.

    Raises:
        PipelineBenchError: it has ragged or sparse components, which cannot be stacked.
    """
    import tensorflow as tf
    from tensorflow.python.data.util import nest

    signature = given.get("output_signature")
    if signature is None:
        types, shapes = given.get("output_types"), given.get("output_shapes")
        if shapes is None:
            signature = nest.map_structure(lambda each: tf.TensorSpec(None, tf.as_dtype(each)), types)
        else:
            signature = nest.map_structure_up_to(
                types, lambda each, shape: tf.TensorSpec(shape, tf.as_dtype(each)), types, shapes
            )
    for spec in tf.nest.flatten(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise PipelineBenchError(f"a generator of {type(spec).__name__.removesuffix('Spec')}s cannot be batched")
    return signature


def batched_signature(signature: Any, size: int | None) -> Any:
    """Return the specs with a leading dimension."""
    import tensorflow as tf

    def batched(spec: Any) -> Any:
        shape = None if spec.shape.rank is None else [size, *spec.shape]
        return tf.TensorSpec(shape, spec.dtype)

    return tf.nest.map_structure(batched, signature)


def static(value: Any) -> int | None:
    """Return a whole number that was given as a number, an array or a tensor; None where its value is not known yet."""
    try:
        return int(value.numpy() if hasattr(value, "numpy") else value)
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return None
