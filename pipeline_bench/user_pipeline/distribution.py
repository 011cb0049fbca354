"""Datasets that a `tf.distribute` strategy was given: what the user's function returns then is no tf.data dataset."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

NOTE = (
    "The function returned a dataset distributed by a tf.distribute strategy; the dataset that it was made of was "
    "diagnosed, in one process and with its own batch size."
)


class Hidden(Protocol):
    """Runs something with the calls that it makes hidden from the recording, or visible again."""

    def __call__(self, run: Callable[[], Any], visible: bool = False) -> Any:
        """What `run` returns."""


class Distributed:
    """The distributed datasets that were made, each with the dataset that it was made of."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any]] = []

    def origin(self, value: object) -> Any | None:
        """The tf.data dataset behind a distributed one; None where it is none of those noted."""
        return next((dataset for distributed, dataset in self._made if distributed is value), None)

    @contextmanager
    def noted(self, hidden: Hidden) -> Iterator[None]:
        """Note what the strategies are given, until the end of the block."""
        import tensorflow as tf

        owner = tf.distribute.Strategy.__mro__[1]  # where the methods are defined, for all strategies
        names = ("experimental_distribute_dataset", "distribute_datasets_from_function")
        before = {name: getattr(owner, name) for name in names}
        wrappers = (self._of_a_dataset, self._of_a_function)
        try:
            for name, wrap in zip(names, wrappers, strict=True):
                setattr(owner, name, wrap(before[name], hidden))
            yield
        finally:
            for name, original in before.items():
                setattr(owner, name, original)

    def _of_a_dataset(self, original: Callable[..., Any], hidden: Hidden) -> Callable[..., Any]:
        @functools.wraps(original)
        def distribute(strategy: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            result = hidden(lambda: original(strategy, dataset, *args, **kwargs))
            self._made.append((result, dataset))
            return result

        return distribute

    def _of_a_function(self, original: Callable[..., Any], hidden: Hidden) -> Callable[..., Any]:
        @functools.wraps(original)
        def distribute(strategy: Any, dataset_fn: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
            datasets: list[Any] = []

            def noting(context: Any) -> Any:
                datasets.append(hidden(lambda: dataset_fn(context), visible=True))
                return datasets[-1]

            result = hidden(lambda: original(strategy, noting, *args, **kwargs))
            if datasets:
                self._made.append((result, datasets[0]))
            return result

        return distribute
