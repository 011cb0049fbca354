"""How each module of a framework is patched once a watched program has imported it."""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pipeline_bench.injection import batch_lines
from pipeline_bench.injection.adapting import LAYERS
from pipeline_bench.injection.functions import Call

if TYPE_CHECKING:
    from pipeline_bench.injection.hooks import Watched


_Around = Callable[[Any, Callable[[], Any]], Any]
"""What is done in the place of a method: given the object, and what calls the method itself."""


def apply(module: Any, watched: Watched) -> None:
    """Patch a module, which is one of those that `site/sitecustomize.py` names."""
    _PATCHES[module.__name__](module, watched)


def _plain(owner: Any, name: str) -> Callable[..., Any]:
    """Return a class' method as it is; where it inherits it, what a subclass with other bases has behind the class."""
    plain: Callable[..., Any] = getattr(owner, name)
    if name in vars(owner):
        return plain

    @functools.wraps(plain)
    def inherited(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(super(owner, self), name)(*arguments, **named)

    # A method is pickled by its name: that of the base would not be the patched one.
    inherited.__module__, inherited.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    return inherited


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


def _put_around(owner: Any, name: str, around: _Around) -> None:
    """Replace a class' method by one that calls `around`."""
    plain = _plain(owner, name)

    @functools.wraps(plain)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(self, lambda: plain(self, *arguments, **named))

    setattr(owner, name, method)


def _patch_keras(keras: Any, watched: Watched) -> None:
    if hasattr(keras.Model.fit, "_pipeline_bench"):  # the module was loaded again, which keeps its classes
        return
    own_list = keras.callbacks.CallbackList  # what has none is no Keras, and is left as it is
    plain_fit = _plain(keras.Model, "fit")
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
        _put_around(keras.Model, name, _inside(None if name == "evaluate" else name, watched))
    _put_around(keras.Model, "__call__", watched.model_call)
    framework = keras.backend.backend() if keras.__name__ == "keras" else "tensorflow"
    _put_around(keras.Model, "train_on_batch", lambda _, call: watched.trains_on_batch(framework, call))
    for layer in (getattr(keras.layers, name, None) for name in LAYERS):
        if layer is not None:
            _patch_adapt(layer, keras.__name__ == "keras", watched)


def _patch_adapt(layer: Any, iterates: bool, watched: Watched) -> None:
    """Patch the `adapt` of a kind of layer; `iterates` where it iterates in Python, as that of Keras 3."""
    plain = _plain(layer, "adapt")

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


def _inside(name: str | None, watched: Watched) -> _Around:
    def around(_: Any, call: Callable[[], Any]) -> Any:
        calls = watched.ends_step(name)
        if name in (None, "predict"):
            watched.evaluates()
        with watched.inside_library(), watched.between_fits.computing():
            return call() if calls is None or name is None else calls.computes(call)

    return around


def _patch_keras_without_eager(module: Any, watched: Watched) -> None:
    def around(_: Any, call: Callable[[], Any]) -> Any:
        watched.problem(
            "a fit of Keras 2 with eager execution switched off (tf.compat.v1.disable_eager_execution or "
            "disable_v2_behavior), which trains in a way of its own; without that call it trains in a graph as well"
        )
        with watched.inside_library():
            return call()

    _put_around(module.Model, "fit", around)


def _patch_functions(module: Any, watched: Watched) -> None:
    def called(call: Call, plain: Callable[[], Any]) -> Any:
        given = watched.function_call(call, plain)
        watched.adapting.see_call()
        return given

    _put_around_calls(module.Function, "__call__", called)
    _put_around_calls(module.Function, "get_concrete_function", watched.functions.concrete)


def _put_around_calls(owner: Any, name: str, around: Callable[[Call, Callable[[], Any]], Any]) -> None:
    """Do as `_put_around` where it matters what the method is called with."""
    plain = _plain(owner, name)

    @functools.wraps(plain)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(Call.of(self, arguments, named), lambda: plain(self, *arguments, **named))

    setattr(owner, name, method)


def _patch_concrete_functions(module: Any, watched: Watched) -> None:
    _put_around(module.ConcreteFunction, "__call__", lambda function, call: watched.function_call(Call(function), call))


def _patch_replicas(module: Any, watched: Watched) -> None:
    """Patch the threads in which a strategy has each replica traced, or run in eager code."""

    def make(thread: Any, call: Callable[[], Any]) -> None:
        call()
        thread._pipeline_bench = watched.functions.handed_on()

    def run(thread: Any, call: Callable[[], Any]) -> None:
        thread._pipeline_bench()
        call()

    _put_around(module._MirroredReplicaThread, "__init__", make)
    _put_around(module._MirroredReplicaThread, "run", run)


def _patch_tape(module: Any, watched: Watched) -> None:
    def enter(_: Any, call: Callable[[], Any]) -> Any:
        watched.enters_tape()
        return call()

    def leave(_: Any, call: Callable[[], Any]) -> Any:
        watched.eager_step(leaves_tape=True)
        return call()

    _put_around(module.GradientTape, "__enter__", enter)
    _put_around(module.GradientTape, "__exit__", leave)
    _put_around(module.GradientTape, "gradient", _part_of_step(watched))


def _patch_variables(module: Any, watched: Watched) -> None:
    for name in ("assign", "assign_add", "assign_sub"):
        # Not where a metric counts, or random numbers go on, which may be a part of making a batch.
        around = _part_of_step(watched, lambda variable: getattr(variable, "trainable", False))
        _put_around(module.BaseResourceVariable, name, around)


def _part_of_step(watched: Watched, is_part: Callable[[Any], bool] = lambda _: True) -> _Around:
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

    _put_around(dataset_ops.DatasetV2, "__iter__", made)
    _put_around(dataset_ops.DatasetV1, "_make_one_shot_iterator", by_iter)


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


def _patch_data_loader(module: Any, watched: Watched) -> None:
    _time_iterators(module.DataLoader, watched, lambda: "torch")


def _patch_grain(module: Any, watched: Watched) -> None:
    """Patch every kind of grain's datasets, also those that are defined later; of a pipeline the last one is timed."""

    def framework() -> str:
        return "torch" if "torch" in sys.modules else "jax"

    base = module.IterDataset
    plain = base.__init_subclass__.__func__

    def __init_subclass__(cls: Any, /, **named: Any) -> None:  # noqa: N807 - it stands in the place of that method
        plain(cls, **named)
        _time_iterators(cls, watched, framework)

    base.__init_subclass__ = classmethod(__init_subclass__)
    kinds = [base]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds[1:]:
        _time_iterators(kind, watched, framework)


def _time_iterators(iterable: Any, watched: Watched, framework: Callable[[], str]) -> None:
    def around(data: Any, call: Callable[[], Any]) -> Any:
        begun_ns = time.monotonic_ns()
        with watched.inside_library():
            iterator = call()
        return watched.batches(iterator, framework(), data, time.monotonic_ns() - begun_ns)

    _put_around(iterable, "__iter__", around)


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
    "torch.utils.data.dataloader": _patch_data_loader,
    "grain._src.python.dataset.dataset": _patch_grain,
}
"""How a module is patched, by its name; the same names as in `site/sitecustomize.py`."""
