"""How each module of a framework is patched once a watched program has imported it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pipeline_bench.injection import batch_lines, loader_iterators
from pipeline_bench.injection.adapting import LAYERS
from pipeline_bench.injection.functions import Call
from pipeline_bench.injection.replacing import Around, method_of, put_around, put_before
from pipeline_bench.injection.watched_loops import WatchedLoops
from pipeline_bench.user_code import legacy_keras

if TYPE_CHECKING:
    from pipeline_bench.injection.hooks import Watched


def apply(module: Any, watched: Watched) -> None:
    """Patch a module, which is one of those that `site/sitecustomize.py` names."""
    _PATCHES[module.__name__](module, watched)


def _listed(callbacks: Any) -> Iterator[Any]:
    """Yield the callbacks that a `fit` is given, as Keras on TensorFlow takes them: also lists and dicts of them."""
    if isinstance(callbacks, list | tuple):
        for each in callbacks:
            yield from _listed(each)
    elif isinstance(callbacks, dict):
        for name in sorted(callbacks):
            yield from _listed(callbacks[name])
    elif callbacks is not None:
        yield callbacks


def _patch_keras(keras: Any, watched: Watched) -> None:
    if hasattr(keras.Model.fit, "_pipeline_bench"):  # the module was loaded again, which keeps its classes
        return
    own_list = keras.callbacks.CallbackList  # what has none is no Keras, and is left as it is
    plain_fit = method_of(keras.Model, "fit")
    signature = inspect.signature(plain_fit)

    @functools.wraps(plain_fit)
    def fit(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:  # Keras itself says what is wrong
            return plain_fit(*arguments, **named)
        with watched.between_fits.fit():
            return watched_fit(bound)

    def watched_fit(bound: inspect.BoundArguments) -> Any:
        given = bound.arguments.get("callbacks")
        listed: list[Any] = []
        if isinstance(given, own_list):
            unwatched = "a fit that gets Keras' own CallbackList: callbacks added to it would get no model"
            watched.callbacks([], unwatched=unwatched)
        else:
            listed = watched.callbacks(list(_listed(given)), bound.arguments.get("x"))
            bound.arguments["callbacks"] = listed or None
        watched.ends_step()
        try:
            with watched.inside_library():
                return plain_fit(*bound.args, **bound.kwargs)
        finally:
            watched.ends_fit(listed)

    fit._pipeline_bench = True  # type: ignore[attr-defined]
    keras.Model.fit = fit
    for name in ("evaluate", "predict", "test_on_batch", "predict_on_batch"):
        put_around(keras.Model, name, _inside(name, watched))
    put_around(keras.Model, "__call__", watched.model_call)
    framework = keras.backend.backend() if keras.__name__ == "keras" else "tensorflow"
    put_around(keras.Model, "train_on_batch", lambda _, call: watched.trains_on_batch(framework, call))
    for layer in (getattr(keras.layers, name, None) for name in LAYERS):
        if layer is not None:
            _patch_adapt(layer, keras.__name__ == "keras", watched)


def _patch_adapt(layer: Any, iterates: bool, watched: Watched) -> None:
    """Patch the `adapt` of a kind of layer; `iterates` where it iterates in Python, as that of Keras 3."""
    plain = method_of(layer, "adapt")

    @functools.wraps(plain)
    def adapt(self: Any, data: Any, *arguments: Any, **named: Any) -> Any:
        # Of tf-idf an element is a document; to the Normalization of Keras 3, Keras gives batches of its own.
        kind, is_document = type(self).__name__, getattr(self, "output_mode", None) == "tf_idf"
        may_batch = not is_document and not (iterates and kind == "Normalization")
        adapting = watched.adapting.to(data, kind, line, iterates=iterates, may_batch=may_batch)
        with adapting, watched.inside_library():
            return plain(self, data, *arguments, **named)

    def line() -> str | None:
        try:
            found = batch_lines.of_user()
        except Exception as error:
            watched.problem(error)
            return None
        return None if found is None else str(found)

    layer.adapt = adapt


def _inside(name: str, watched: Watched) -> Around:
    def around(_: Any, call: Callable[[], Any]) -> Any:
        calls = watched.ends_step(name)
        if name in ("evaluate", "predict"):
            watched.see(WatchedLoops.see_evaluation)
        with watched.inside_library(), watched.between_fits.computing():
            return call() if calls is None else calls.computes(call)

    return around


def _patch_keras_without_eager(module: Any, watched: Watched) -> None:
    def around(_: Any, call: Callable[[], Any]) -> Any:
        watched.problem(
            "a fit of Keras 2 with eager execution switched off (tf.compat.v1.disable_eager_execution or "
            "disable_v2_behavior), which trains in a way of its own; without that call it trains in a graph as well"
        )
        with watched.inside_library():
            return call()

    put_around(module.Model, "fit", around)


def _patch_functions(module: Any, watched: Watched) -> None:
    def called(call: Call, plain: Callable[[], Any]) -> Any:
        given = watched.function_call(call, plain)
        watched.adapting.see_call()
        return given

    _put_around_calls(module.Function, "__call__", called)
    _put_around_calls(module.Function, "get_concrete_function", watched.functions.concrete)


def _put_around_calls(owner: Any, name: str, around: Callable[[Call, Callable[[], Any]], Any]) -> None:
    """Do as `put_around` where it matters what the method is called with."""
    plain = method_of(owner, name)

    @functools.wraps(plain)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(Call.of(self, arguments, named), lambda: plain(self, *arguments, **named))

    setattr(owner, name, method)


def _patch_concrete_functions(module: Any, watched: Watched) -> None:
    put_around(module.ConcreteFunction, "__call__", lambda function, call: watched.function_call(Call(function), call))


def _patch_replicas(module: Any, watched: Watched) -> None:
    """Patch the threads in which a strategy has each replica traced, or run in eager code."""

    def make(thread: Any, call: Callable[[], Any]) -> None:
        call()
        thread._pipeline_bench = watched.functions.handed_on()

    def run(thread: Any, call: Callable[[], Any]) -> None:
        thread._pipeline_bench()
        call()

    put_around(module._MirroredReplicaThread, "__init__", make)
    put_around(module._MirroredReplicaThread, "run", run)


def _patch_tape(module: Any, watched: Watched) -> None:
    def enter(_: Any, call: Callable[[], Any]) -> Any:
        if not legacy_keras.calls_taped_layer(sys._getframe(2)):
            watched.enters_tape()
        return call()

    def leave(_: Any, call: Callable[[], Any]) -> Any:
        watched.eager_step(leaves_tape=True)
        return call()

    put_around(module.GradientTape, "__enter__", enter)
    put_around(module.GradientTape, "__exit__", leave)
    put_around(module.GradientTape, "gradient", _part_of_step(watched))


def _patch_variables(module: Any, watched: Watched) -> None:
    for name in ("assign", "assign_add", "assign_sub"):
        # Not where a metric counts, or random numbers go on, which may be a part of making a batch.
        around = _part_of_step(watched, lambda variable: getattr(variable, "trainable", False))
        put_around(module.BaseResourceVariable, name, around)


def _part_of_step(watched: Watched, is_part: Callable[[Any], bool] = lambda _: True) -> Around:
    """Return what is put around a method that a step of eager code calls."""

    def around(owner: Any, call: Callable[[], Any]) -> Any:
        given = call()
        if is_part(owner):
            watched.eager_step()
        return given

    return around


def _patch_datasets(dataset_ops: Any, watched: Watched) -> None:
    def by_iter(dataset: Any, call: Callable[[], Any]) -> Any:
        """Return what `make_one_shot_iterator` does: in eager code the same as `iter`, which is watched."""
        import tensorflow as tf

        return iter(dataset) if tf.executing_eagerly() else call()

    def made(dataset: Any, call: Callable[[], Any]) -> Any:
        return watched.adapting.counted(call()) if watched.adapting.will_iterate else watched.iterator(dataset, call)

    put_around(dataset_ops.DatasetV2, "__iter__", made)
    put_around(dataset_ops.DatasetV1, "_make_one_shot_iterator", by_iter)


def _patch_scan(dataset_autograph: Any, watched: Watched) -> None:
    """Patch what AutoGraph makes of a loop over a dataset."""
    plain = dataset_autograph._general_purpose_scan

    @functools.wraps(plain)
    def scan(dataset: Any, state: Any, body: Any) -> Any:
        timed = watched.scanned(dataset)
        if timed is dataset:
            return plain(dataset, state, body)
        with watched.inside_library():  # whoever times a loop calls this once more, for the plain scan
            return dataset_autograph._general_purpose_scan(timed, state, body)

    dataset_autograph._general_purpose_scan = scan


def _patch_distributed(input_lib: Any, watched: Watched) -> None:
    from pipeline_bench.monitoring import strategies

    strategies.patch(input_lib, watched.distributed_probe)


def _patch_collectives(module: Any, _: Watched) -> None:
    from pipeline_bench.monitoring import collectives

    collectives.patch(module)


def _patch_sessions(module: Any, watched: Watched) -> None:
    """Patch what runs a graph of TensorFlow 1."""
    plain = module.BaseSession.run

    @functools.wraps(plain)
    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        def of(fetched: Any) -> Any:
            return plain(self, fetched, feed_dict, options, run_metadata)

        return watched.session_run(self, fetches, feed_dict, of)

    module.BaseSession.run = run


def _patch_autograd(module: Any, watched: Watched) -> None:
    put_before(module, "backward", functools.partial(watched.see, WatchedLoops.see_backward))
    put_before(module, "grad", functools.partial(watched.see, WatchedLoops.see_gradient))


_PATCHES: dict[str, Callable[[Any, Watched], None]] = {
    "keras": _patch_keras,
    "tf_keras": _patch_keras,
    "tf_keras.src.engine.training_v1": _patch_keras_without_eager,
    "tensorflow.python.data.ops.dataset_ops": _patch_datasets,
    "tensorflow.python.data.ops.dataset_autograph": _patch_scan,
    "tensorflow.python.distribute.input_lib": _patch_distributed,
    "tensorflow.python.distribute.cross_device_utils": _patch_collectives,
    "tensorflow.python.distribute.mirrored_run": _patch_replicas,
    "tensorflow.python.client.session": _patch_sessions,
    "tensorflow.python.eager.backprop": _patch_tape,
    "tensorflow.python.ops.resource_variable_ops": _patch_variables,
    "tensorflow.python.eager.polymorphic_function.concrete_function": _patch_concrete_functions,
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": _patch_functions,
    "torch.autograd": _patch_autograd,
    "torch.utils.data.dataloader": loader_iterators.patch_data_loader,
    "grain._src.python.dataset.dataset": loader_iterators.patch_grain,
}
"""How a module is patched, by its name; the same names as in `site/sitecustomize.py`."""
