"""What a `fit` was given that is no tf.data pipeline: a PyDataset, a generator, arrays; read as Keras reads it.

Its stages are what Keras does with it: the user's Python makes a batch, workers hand it over through a queue, and it is
copied into tensors.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import POOL, WORKERS, WORKERS_QUEUE
from pipeline_bench.model.edits import Edit, SetArgument
from pipeline_bench.model.element import Element
from pipeline_bench.model.function_edits import KeepBatches, Memoize
from pipeline_bench.model.pipeline import Inspection, Location, Stage
from pipeline_bench.model.task import FINGERPRINT_BATCHES
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.tfdata import describe, keras_adapters, worker_places
from pipeline_bench.user_code import legacy_keras
from pipeline_bench.user_code.generator_call import GeneratorCall
from pipeline_bench.user_code.kept_results import Memos

Kind = Literal["tf.data", "distributed", "PyDataset", "generator", "arrays"]
"""What a `fit` or a loop takes its batches from."""
GET_ITEM, WORKERS_STAGE, QUEUE, COPY = range(4)
"""The stages of a PyDataset, by id; `COPY` comes last of a generator as well."""
_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
"""What a function that does nothing consists of."""
_ARGUMENTS = ("y", "sample_weight", "batch_size", "steps_per_epoch", "shuffle", "class_weight")
_NO_POOL = (1, False, 10)
"""Of the arguments in `POOL`, what Keras 2 has by default."""


class KerasInput:
    """The input of a `fit`, and how Keras reads it."""

    def __init__(self, kind: Kind, data: Any, given: Mapping[str, Any], legacy: bool = False) -> None:
        """Hold what a `fit` was given.

        Args:
            kind: what it is.
            data: the `fit`'s `x`.
            given: the other arguments of the `fit`, by name.
            legacy: whether Keras 2 reads it, if it is no PyDataset.
        """
        self._legacy = legacy
        self.kind, self.data, self._place = kind, data, worker_places.of(data)
        # In Keras 2 all epochs of arrays share an iterator, and a generator has workers.
        of_keras_2 = {"arrays": ("epochs",), "generator": ("epochs", *POOL)}.get(kind, ()) if legacy else ()
        names = (*_ARGUMENTS, *of_keras_2)
        self._given = {name: given[name] for name in names if given.get(name) is not None}
        self._given.setdefault("shuffle", True)
        self._adapted: Any = None
        self._as_written = self.pool if kind == "PyDataset" else {}
        self._kept_batches: int | None = None
        """How many of its batches stand for all of them where they are kept; all do where that is None."""
        self._memos = Memos()
        self._call = GeneratorCall.of(data) if kind == "generator" else None
        self._calls: list[tuple[int, int]] = []
        """When each call of a `__getitem__` that is timed began, and how long it took, in ns."""
        self._end_pool: Callable[[], None] = lambda: None

    @property
    def pool(self) -> dict[str, Any]:
        """Who makes its batches, by the arguments in `POOL`, with the edits that its dataset was last made with."""
        if self.kind == "PyDataset":
            return keras_adapters.pool_of(self.data)
        return {name: self._given.get(name, alone) for name, alone in zip(POOL, _NO_POOL, strict=True)}

    @property
    def pooled(self) -> bool:
        """Whether Keras has a pool of workers for it."""
        return bool(self.pool["workers"] > (0 if self.pool["use_multiprocessing"] else 1))

    @property
    def in_processes(self) -> bool:
        """Whether that pool is of processes."""
        return self.pooled and bool(self.pool["use_multiprocessing"])

    @property
    def held_batches(self) -> int:
        """How many batches its queue holds at the most."""
        return int(self.pool["max_queue_size"]) if self.pooled else 0

    def dataset(self, edits: Iterable[Edit] = (), *, timed: bool = False) -> Any:
        """Return the dataset that Keras takes its batches from, with edits.

        Args:
            edits: what to change.
            timed: whether to time the calls of a PyDataset's `__getitem__`; in processes none is.

        Raises:
            PipelineBenchError: an edit is of something else.
        """
        if self.kind == "PyDataset":
            read = self._edited(edits)
            if timed and not self.in_processes:
                read = keras_adapters.timed(read, self._calls)
            dataset, self._end_pool = keras_adapters.of_py_dataset(read, self._given)
            return self._taken(dataset)
        edits = tuple(edits)
        if any(isinstance(edit, Memoize) for edit in edits):
            self._memos.use(edits)
            self.data = self.again()
        if self._adapted is None:  # a second adapter of a generator would take its first batches anew
            self._adapted = self._adapter_of(self.data)
        return self._adapted

    def batch_ns(self, from_ns: int, to_ns: int) -> float | None:
        """Return what the timed calls took for a batch, on average of those that began between; None without any.

        Threads make so many batches at the same time.
        """
        took_ns = [each_ns for begun_ns, each_ns in self._calls if from_ns <= begun_ns <= to_ns]
        return statistics.fmean(took_ns) / (self.pool["workers"] if self.pooled else 1) if took_ns else None

    def _adapter_of(self, data: Any) -> Any:
        if self._legacy:  # no threads of a pool may share what is cut from its generator
            left_out = () if data is self.data else POOL
            return legacy_keras.dataset(data, {name: self._given[name] for name in self._given if name not in left_out})
        if self.kind == "arrays":
            return keras_adapters.of_arrays(data, self._given)
        return self._taken(keras_adapters.of_generator(data, self._given))

    def _taken(self, dataset: Any) -> Any:
        """Return a dataset of Keras 3's as its backend takes it: on PyTorch nothing is ahead but by workers."""
        import keras
        import tensorflow as tf
        from tensorflow.python.data.ops.prefetch_op import _PrefetchDataset

        if self._legacy or keras.backend.backend() != "torch" or not isinstance(dataset, _PrefetchDataset):
            return dataset
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        return dataset._input_dataset.with_options(options)

    @property
    def reusable(self) -> bool:
        """Whether `begin_again` makes it what it was; processes of a pool may outlive their pass."""
        return self.kind == "PyDataset" and not self.in_processes

    def begin_again(self) -> None:
        """Be a PyDataset as it was before any edit, with nothing kept and no pool."""
        self._end_pool()
        for name, value in self._as_written.items():
            setattr(self.data, name, value)
        self._memos.use(())
        self._memos, self._kept_batches, self._calls = Memos(), None, []
        vars(self).pop("_keeping", None)

    @property
    def can_begin_again(self) -> bool:
        """Whether its first batch can be had once more."""
        return self.kind == "PyDataset" or self._call is not None

    def again(self) -> Iterator[Any]:
        """Return a generator that begins anew.

        Raises:
            PipelineBenchError: how it was made is not known.
        """
        if self._call is None:
            raise PipelineBenchError(f"{self.kind} cannot be inspected outside their use")
        return self._call.again()

    def taker(self) -> Callable[[], Any]:
        """Return a function that has the user's Python make one more batch in this thread, endlessly.

        A generator begins anew where that is known how, else it goes on.
        """
        if self.kind == "PyDataset":
            count = self.data.num_batches
            numbers = itertools.cycle(range(count)) if count else itertools.count()
            return lambda: self.data[next(numbers)]
        if self._call is None:
            return lambda: next(self.data)

        def passes() -> Iterator[Any]:
            given = True
            while given:
                given = False
                for batch in self.again():
                    given = True
                    yield batch

        endless = passes()
        return lambda: next(endless)

    def taker_of_next_epoch(self) -> Callable[[], Any]:
        """As `taker`, behind what a PyDataset does between two epochs."""
        if self.kind == "PyDataset":
            self.data.on_epoch_end()
            self.data.on_epoch_begin()
        return self.taker()

    def keep(self, edits: Iterable[Edit], limit_s: float, alive: Callable[[], None]) -> bool:
        """Make the batches that edits keep, or keep a part of, as a first epoch; return whether all were made.

        Args:
            edits: of a trial.
            limit_s: the most time. The batches that were made in it, or what was kept of them, then stand for all.
            alive: called after each batch.

        Raises:
            PipelineBenchError: the file of a call that is memoized has changed.
            UserCodeError: making one fails.
        """
        end_s, batches = time.monotonic() + limit_s, self.batches
        with user_code.element_errors():
            self._memos.use(edits)
            take = self.taker()
            make = self._keeping if any(edit.kept_stage is not None for edit in edits) else lambda _: take()
            for index in range(batches) if batches is not None else itertools.count():
                make(index)
                alive()
                if time.monotonic() > end_s and index + 1 != batches:
                    self._kept_batches = index + 1
                    self._memos.stand_in()
                    return False
            if self.kind == "PyDataset":  # or what it sets between epochs, as a seed, would be asked for once more
                self.data.on_epoch_end()
        return True

    @property
    def batches(self) -> int | None:
        """How many batches an epoch has; None where that is not known."""
        given = self.data.num_batches if self.kind == "PyDataset" else self._given.get("steps_per_epoch")
        return None if given is None else math.ceil(given)  # Keras 2 goes on while it has made fewer steps

    @functools.cached_property
    def _keeping(self) -> Callable[[int], Any]:
        """Its `__getitem__`, decorated as `KeepBatches` says."""
        return functools.partial(functools.lru_cache(maxsize=None)(type(self.data).__getitem__), self.data)

    def _edited(self, edits: Iterable[Edit], afresh: bool = False) -> Any:
        """Return the PyDataset with edits; `afresh`: of calls that are memoized, nothing is known."""
        for name, value in self._as_written.items():
            setattr(self.data, name, value)
        keeps, edits = False, tuple(edits)
        for edit in edits:
            if isinstance(edit, SetArgument) and edit.stage == WORKERS_STAGE:
                setattr(self.data, edit.argument, edit.value)
            elif isinstance(edit, KeepBatches):
                keeps = True
            elif not isinstance(edit, Memoize):
                raise PipelineBenchError(f"a PyDataset has no such edit: {type(edit).__name__}")
        self._memos.use(edits, afresh=afresh)
        if not keeps:
            return self.data
        kept, batches = self._keeping, self.data.num_batches
        return keras_adapters.py_dataset(
            batches, lambda index: kept(index % (self._kept_batches or batches)), **self.pool
        )

    def subsampled(self, edits: Iterable[Edit], seed: int, most: int = FINGERPRINT_BATCHES) -> Any:
        """Return a dataset of the first batches, in their order.

        Args:
            edits: what to change.
            seed: of what is random.
            most: so many batches at the most.

        Raises:
            PipelineBenchError: it cannot be looked at without using it up.
        """
        if self.kind != "PyDataset":
            self._memos.use(edits, afresh=True)
            user_code.seed(seed)
            return self._adapter_of(each for each in itertools.islice(self.again(), most))
        whole = self._edited(edits, afresh=True)
        user_code.seed(seed)
        batches = min(most, whole.num_batches or most)
        first = keras_adapters.py_dataset(batches, lambda index: whole[index], **self.pool)
        return keras_adapters.of_py_dataset(first, {**self._given, "shuffle": False})[0]

    def described(self, make_ns: float) -> Inspection:
        """Return what is known before anything is run."""
        spec = self.dataset().element_spec
        element = describe.element(spec)
        batches = self.batches if self.kind != "arrays" else None
        return Inspection(
            stages=tuple(self._stages(element)),
            sink=COPY,
            element=element,
            cardinality=batches,
            pass_elements=batches,
            make_ns=make_ns,
            api=self.kind if self.kind in ("PyDataset", "generator", "arrays") else "tf.data",
        )

    def library(self) -> str | None:
        """Return the folder of the library whose code makes the batches; None where it is the user's code."""
        code = getattr(getattr(type(self.data), "__getitem__", None), "__code__", None)
        if self.kind != "PyDataset" or code is None or user_code.is_users(code.co_filename):
            return None
        return str(Path(code.co_filename).parent)

    def _stages(self, element: Element) -> Iterator[Stage]:
        kind = type(self.data)
        if self.kind == "PyDataset":
            method = UserFunction(name=kind.__name__, python=True)
            place = _definition(kind.__getitem__) if self.library() is None else self._place
            hooks = any(_does_something(kind, name) for name in ("on_epoch_begin", "on_epoch_end"))
            yield Stage(id=GET_ITEM, method="__getitem__", function=method, place=place, epoch_hooks=hooks)
            given = {"workers": self.data.workers, "use_multiprocessing": bool(self.data.use_multiprocessing)}
            queue = {"max_queue_size": self.data.max_queue_size}
            where: dict[str, Any] = {"place": self._place, "by_attributes": worker_places.by_attributes(self.data)}
            yield Stage(id=WORKERS_STAGE, method=WORKERS, inputs=(GET_ITEM,), arguments={**given, **queue}, **where)
            if self.pooled:
                yield Stage(id=QUEUE, method=WORKERS_QUEUE, inputs=(WORKERS_STAGE,), arguments=queue)
            before = QUEUE if self.pooled else WORKERS_STAGE
            yield Stage(id=COPY, method="copy", inputs=(before,), element=element)
            return
        if self.kind == "generator":
            within = _generator_in(self.data)
            name = getattr(within, "__qualname__", kind.__name__).rpartition(".")[2]
            code = getattr(within, "gi_code", None)
            place = None if code is None else Location(file=code.co_filename, line=code.co_firstlineno)
            function = UserFunction(name=name, python=True)
            given = self.pool if self.pooled else {}
            yield Stage(id=GET_ITEM, method="generator", function=function, place=place, arguments=given)
            yield Stage(id=COPY, method="copy", inputs=(GET_ITEM,), element=element)
            return
        yield Stage(id=COPY, method="arrays", element=element)


def _generator_in(iterator: Any) -> Any:
    """Return the generator that an iterator of a user's class goes over; the iterator if it holds none, or several."""
    held = [each for each in getattr(iterator, "__dict__", {}).values() if inspect.isgenerator(each)]
    return held[0] if len(held) == 1 else iterator


def _does_something(kind: type, method: str) -> bool:
    """Return whether a class has a method by that name that does more than return: `pass` is all of Keras' own."""
    code = getattr(getattr(kind, method, None), "__code__", None)
    return code is not None and not _NOTHING.issuperset(each.opname for each in dis.get_instructions(code))


def _definition(method: Callable[..., Any]) -> Location | None:
    code = getattr(method, "__code__", None)
    return None if code is None else Location(file=code.co_filename, line=code.co_firstlineno)
