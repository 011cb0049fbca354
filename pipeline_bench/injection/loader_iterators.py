"""How the iterators of PyTorch's DataLoader and of grain are timed, also those of a program's own subclasses."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline_bench.injection.replacing import put_around

if TYPE_CHECKING:
    from pipeline_bench.injection.hooks import Watched

_MADE_BY_CLASS = 1 << 9
"""Of `type.__flags__`, Py_TPFLAGS_HEAPTYPE: the type was made while Python ran, as by a `class` statement."""


def patch_data_loader(module: Any, watched: Watched) -> None:
    """Patch PyTorch's DataLoader, its later subclasses, and what another library makes such iterators for."""

    def framework() -> str:
        return "torch"

    def make(iterator: Any, call: Callable[[], Any]) -> None:
        call()
        iterator._pipeline_bench_alone = _making.inner is None

    def begin(iterator: Any, call: Callable[[], Any]) -> Any:
        """Time an iterator that was made in no `__iter__`, as by fastai, with a dataset for each of its loaders."""
        if getattr(iterator, "_pipeline_bench_alone", False):
            iterator._pipeline_bench_alone = False
            watched.batches(iterator, framework(), iterator._dataset, 0)
        return call()

    time_iterators(module.DataLoader, watched, framework)
    _time_later_subclasses(module.DataLoader, watched, framework)
    put_around(module._BaseDataLoaderIter, "__init__", make)
    put_around(module._BaseDataLoaderIter, "__iter__", begin)


def patch_grain(module: Any, watched: Watched) -> None:
    """Patch every kind of grain's datasets, also those that are defined later; of a pipeline the last one is timed."""

    def framework() -> str:
        return "torch" if "torch" in sys.modules else "jax"

    _time_later_subclasses(module.IterDataset, watched, framework)
    kinds = [module.IterDataset]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds[1:]:
        time_iterators(kind, watched, framework)


def _time_later_subclasses(base: Any, watched: Watched, framework: Callable[[], str]) -> None:
    """Do as `time_iterators` for each subclass with an `__iter__` of its own that is defined from now on."""
    own = vars(base).get("__init_subclass__")

    def __init_subclass__(cls: Any, /, **named: Any) -> None:  # noqa: N807 - it stands in the place of that method
        if own is None:
            super(base, cls).__init_subclass__(**named)
        else:
            own.__func__(cls, **named)
        if inspect.isfunction(vars(cls).get("__iter__")):
            time_iterators(cls, watched, framework)

    base.__init_subclass__ = classmethod(__init_subclass__)


class _Making(threading.local):
    """What a thread makes.

    Attributes:
        inner: the iterators that were made within the `__iter__` it is in, each with its data; None: it is in none.
    """

    inner: list[tuple[Any, Any]] | None = None


_making = _Making()


def _forget_making() -> None:
    _making.inner = None


os.register_at_fork(after_in_child=_forget_making)  # an `__iter__` forks workers, which never return from it


def time_iterators(iterable: Any, watched: Watched, framework: Callable[[], str]) -> None:
    """Time what an `__iter__` returns, or, where that cannot be timed, the iterators that it was made of.

    A generator makes them later, when it is asked: they are timed then.
    """

    def around(data: Any, call: Callable[[], Any]) -> Any:
        begun_ns, outer = time.monotonic_ns(), _making.inner
        inner: list[tuple[Any, Any]] = []
        _making.inner = inner
        try:
            with watched.inside_library():
                iterator = call()
        finally:
            _making.inner = outer
        # Data that are their own iterator, and so would be of another class, could not be pickled any more.
        made = [(iterator, data)] if iterator is not data and _can_be_timed(iterator) else inner
        if outer is not None:  # the `__iter__` that calls this one may return another iterator
            outer += made
            return iterator
        for each, its_data in made:
            watched.batches(each, framework(), its_data, time.monotonic_ns() - begun_ns)
        return iterator

    put_around(iterable, "__iter__", around)


def _can_be_timed(iterator: Any) -> bool:
    """Return whether an iterator can be given another class: not a generator, nor one that is written in C."""
    kind = type(iterator)
    return bool(kind.__flags__ & _MADE_BY_CLASS and kind.__dictoffset__ and hasattr(kind, "__next__"))
