"""Keras' own adapters, by which it reads what a `fit` was given, and PyDatasets made of another one's batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic_ns  # by itself: a user's code may replace that of the module
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.model.calls import POOL

_READ_BY = {"jax": "get_jax_iterator", "torch": "get_torch_dataloader"}
"""By backend, the method of an adapter whose batches a `fit` takes; on TensorFlow that is `get_tf_dataset`."""


def adapter(data: Any, given: Mapping[str, Any]) -> Any:
    """Return what Keras reads it through; Keras does not export it, but nothing else reads as `fit` does.

    Raises:
        PipelineBenchError: this Keras has it elsewhere.
        UserCodeError: Keras does not take it.
    """
    import keras

    try:
        from keras.src.trainers.data_adapters import get_data_adapter
    except ImportError as error:
        raise PipelineBenchError(
            f"Keras {keras.__version__} does not have its data adapters where Keras 3.15 has them.",
            "Install Keras 3.15.",
        ) from error
    try:
        return get_data_adapter(data, **given)
    except Exception as error:
        message = f"Keras does not take what the fit was given: {user_code.summary(error)}"
        raise UserCodeError(message, traceback=user_code.traceback_of(error)) from error


class BackendBatches:
    """The batches of arrays as a `fit` takes them on JAX and PyTorch: cut in its own thread, none before its step.

    Each iteration is an epoch.
    """

    def __init__(self, epoch: Callable[[], Iterable[Any]]) -> None:
        """Take the batches of an epoch from what a function returns."""
        from keras.src.trainers.data_adapters.data_adapter_utils import get_tensor_spec

        self._epoch = epoch
        self.element_spec = get_tensor_spec([next(iter(self))])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._epoch())


def of_arrays(data: Any, given: Mapping[str, Any]) -> Any:
    """Return the batches of arrays as a `fit` takes them: a `tf.data.Dataset`, or on other backends `BackendBatches`.

    Raises:
        PipelineBenchError: this Keras has its adapters elsewhere.
        UserCodeError: Keras does not take the arrays.
    """
    import keras

    made, method = adapter(data, given), _READ_BY.get(keras.backend.backend())
    return made.get_tf_dataset() if method is None else BackendBatches(getattr(made, method))


def of_generator(data: Any, given: Mapping[str, Any]) -> Any:
    """Return the dataset of a generator's batches, each of which it gives once, however often it is iterated.

    Keras looks at the first two. It gives them again with each iterator that it makes, also once the generator has
    ended: a training that begins anew would have these two for ever.

    Raises:
        PipelineBenchError: this Keras has its adapters elsewhere.
        UserCodeError: Keras does not take the generator.
    """
    made = adapter(data, given)
    made.generator = functools.partial(iter, made.generator())
    return made.get_tf_dataset()


def of_py_dataset(data: Any, given: Mapping[str, Any]) -> tuple[Any, Callable[[], None]]:
    """Return a dataset of a PyDataset whose passes are epochs, with its pool started and its hooks called.

    And a function that ends the pool of a pass that was left before its end.

    Raises:
        PipelineBenchError: this Keras has its adapters elsewhere.
        UserCodeError: Keras does not take the PyDataset.
    """
    made = adapter(data, given)
    plain = made._get_iterator

    def end_pool() -> None:
        if made.enqueuer is not None:
            made.enqueuer.stop()

    def epoch() -> Iterator[Any]:
        end_pool()
        data.on_epoch_begin()
        yield from plain()
        data.on_epoch_end()

    made._get_iterator = epoch
    return made.get_tf_dataset(), end_pool


def py_dataset(batches: int | None, make: Callable[[int], Any], **pool: Any) -> Any:
    """Return a PyDataset of so many batches, each made by a function of its number; `pool` are its workers.

    None for `batches`: it has no end.
    """
    import keras

    class Made(keras.utils.PyDataset):  # type: ignore[misc]
        @property
        def num_batches(self) -> int | None:
            return batches

        def __getitem__(self, index: int) -> Any:
            return make(index)

    return Made(**pool)


def timed(data: Any, calls: list[tuple[int, int]]) -> Any:
    """Return a PyDataset of another one's batches, which adds when each call of that began and how long it took."""
    import keras

    class Timed(keras.utils.PyDataset):  # type: ignore[misc]
        @property
        def num_batches(self) -> int | None:
            count: int | None = data.num_batches
            return count

        def __getitem__(self, index: int) -> Any:
            begun_ns = monotonic_ns()
            batch = data[index]
            calls.append((begun_ns, monotonic_ns() - begun_ns))
            return batch

        def on_epoch_begin(self) -> None:
            data.on_epoch_begin()

        def on_epoch_end(self) -> None:
            data.on_epoch_end()

    return Timed(**pool_of(data))


def pool_of(data: Any) -> dict[str, Any]:
    """Return who makes the batches of a PyDataset, as the arguments of another one."""
    return {name: getattr(data, name) for name in POOL}
