"""Which of a script's own loops over a dataset is its training: eager ones, and those in a `tf.function`."""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.model.job import Eager
from pipeline_bench.script import loop_step, training_calls
from pipeline_bench.script.loop_step import LoopStep
from pipeline_bench.tfdata import dataset_graph, public_api
from pipeline_bench.user_code import legacy_keras, source_loops
from pipeline_bench.user_code.source_loops import SourceLoop

_LOOP_ELEMENTS = 3
"""A loop that takes so many elements trains, or has that many to take; who looks at an example takes one or two."""
_BARE_STEPS, _BARE_LEAST, _BARE_S = 50, 4, 20.0
"""So many steps in a row without any loop over a dataset, or fewer that take long, are a training without a dataset."""
_BETWEEN = ("/tensorflow/python/data/ops/", "/tensorflow/python/util/")
"""TensorFlow's own code between a user's loop and the iterator, of `as_numpy_iterator` for one."""


@dataclass
class DatasetLoop:
    """A loop that takes from a dataset."""

    dataset: Any
    line: str
    count: int = 0
    taken_ns: int = 0
    """How long its elements took in all."""
    element: Any = None
    """The last one."""
    trains: bool = False
    """Whether something that trains was run since its first element."""
    needs_training: bool = False
    """Whether to ignore the loop until something in it trains: the script trains elsewhere too, and may validate."""
    within: SourceLoop | None = None
    """The innermost loop of the script's that begins it again and again."""
    taken_in: tuple[SourceLoop, ...] = ()
    """The loops of the script's around what took its first element."""
    never_reads_again: bool = False
    """Whether nothing that one pass kept is read by another."""
    steps: int | None = None
    """How many elements it takes at the most, where the loops around that tell."""
    step: LoopStep | None = None
    """What trains on its elements, where a `tf.function` of them does."""
    eager: Eager | None = None
    """Why what trains on them runs as eager code, where it does."""
    place: int | None = None
    """Among the iterators that a training takes from at once, in their order; None where it is the only one."""
    others: tuple[Any, ...] = ()
    """The datasets of the others."""
    generator: Any = None
    """The code of the script's in which it takes them; None where it does so in none."""
    handed_on_by: str = ""
    """What hands them on to what trains, as `source_loops.handing_on` has it, where that is known already."""


class Loops:
    """Counts what loops of the user's own code take, and finds which of them trains."""

    def __init__(
        self,
        reach: Callable[[DatasetLoop], None],
        note: Callable[[DatasetLoop], None],
        bare: Callable[[str, bool], None],
        needs_training: Callable[[str], bool],
        which: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            reach: called with a loop that trains; returns only where another is meant.
            note: called with a loop that may be the training.
            bare: called with the line of what trains without a dataset, and whether by `Session.run`; as `reach`.
            needs_training: whether of the loops in a file only one counts in which something trains, for the script
                trains somewhere; else one of three elements does.
            which: the place of the iterator that is meant, of several in a step; None: the one waited for longest.
        """
        self._reach, self._note, self._bare = reach, note, bare
        self._needs_training, self._which = needs_training, which
        self._loops: weakref.WeakKeyDictionary[Any, DatasetLoop] = weakref.WeakKeyDictionary()
        self._last: DatasetLoop | None = None
        self._trained: list[DatasetLoop] = []
        self._bare_steps: dict[bool, tuple[int, float]] = {}
        """Those in a row without any loop, and since when; of another framework, and of TensorFlow."""
        self._called: defaultdict[int | None, list[loop_step.Call]] = defaultdict(list)
        """The `tf.function`s under way with their arguments, by thread, the outermost first."""
        self._training_functions: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those of which something trains, as their tracing showed."""
        self._traced: list[DatasetLoop] = []
        """The loops in a `tf.function` whose bodies are being traced, the outermost first."""
        self.is_paused = False
        """Whether what runs is left alone."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the loops that are run in the block."""
        from tensorflow.python.autograph.operators import control_flow
        from tensorflow.python.client.session import BaseSession
        from tensorflow.python.data.ops import dataset_autograph, dataset_ops, iterator_ops
        from tensorflow.python.distribute import input_lib
        from tensorflow.python.eager import backprop
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

        places = [
            (dataset_ops.DatasetV2, "__iter__", self._iterate),
            (dataset_ops.DatasetV1, "_make_one_shot_iterator", _by_iter),
            (input_lib.DistributedDataset, "__iter__", self._iterate),
            (input_lib.DistributedDatasetsFromFunction, "__iter__", self._iterate),
            (iterator_ops.OwnedIterator, "_next_internal", self._take),
            (iterator_ops.OwnedIterator, "get_next_as_optional", self._take),
            (input_lib.DistributedIteratorBase, "get_next", self._take),
            (input_lib.DistributedIteratorBase, "get_next_as_optional", self._take),
            (dataset_autograph, "_general_purpose_scan", self._in_graph),
            (control_flow, "_tf_distributed_iterable_for_stmt", self._in_graph),
            (backprop.GradientTape, "__enter__", self._tape),
            (backprop.GradientTape, "gradient", self._gradient),
            (Function, "__call__", self._calling),
            (BaseSession, "run", self._session_run),
        ]
        with ExitStack() as patches:
            for owner, name, wrapper in places:
                patches.enter_context(user_code.patched(owner, name, wrapper(getattr(owner, name))))
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave alone what is run in the block."""
        before, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = before

    def behind(self, data: Any) -> Any:
        """Return the dataset behind an iterator of the script's, which Keras 2 takes; any other data as it is."""
        from tensorflow.python.data.ops import iterator_ops

        iterator = getattr(data, "_iterator", data)  # of `as_numpy_iterator`
        loop = self._loops.get(iterator) if isinstance(iterator, iterator_ops.OwnedIterator) else None
        return data if loop is None else loop.dataset

    def under_way(self) -> DatasetLoop | None:
        """Return the loop that took an element last, and has not ended."""
        return self._last if any(loop is self._last for loop in self._loops.values()) else None

    @property
    def one_batch_an_iterator(self) -> str | None:
        """The line of what was taken last, if a loop of the script's makes an iterator there for one element alone."""
        last = self._last
        if last is None or last.count != 1 or last.within is None or self.under_way() is not None:
            return None
        return last.line

    def let_go(self) -> None:
        """Free the iterators of the loops: nothing takes from them any more, and their buffers would go on filling."""
        for iterator in list(self._loops):
            vars(iterator).clear()

    def training(self, plain: Any) -> Any:
        """Return what stands in the place of something that trains."""
        return self._gradient(self._tape(plain))

    def training_beside(self, plain: Any) -> Any:
        """Return what stands in the place of what trains in another framework, in no `tf.function`."""

        def note(*_: Any) -> None:
            for loop in () if self.is_paused else self._loops.values():
                loop.trains = loop.trains or loop.count > 0
                loop.handed_on_by = loop.handed_on_by or source_loops.handing_on(loop.generator)
            self.count_bare(before_tensorflow=True)

        return _before(plain, note)

    def _gradient(self, plain: Any) -> Any:
        """Return what stands in the place of something that is done once in a step, if anything is trained at all."""
        return _before(plain, lambda *_: self.count_bare())

    def _tape(self, plain: Any) -> Any:
        """Return what stands in the place of something with which a step may begin.

        It alone is no sign of a training: a tape may also show an attack on a model, or a penalty on its inputs.
        """

        def note(*arguments: Any) -> None:
            if self.is_paused or legacy_keras.calls_taped_layer(sys._getframe(2)):
                return
            self._reach_traced()
            for loop in self._by_wait([each for each in list(self._loops.values()) if each.count]):
                if loop.step is None:
                    loop.step = loop_step.of(self._outermost_call(), loop.element, loop.taken_in)
                    loop.eager = self._eager() if type(next(iter(arguments), None)).__name__ == "GradientTape" else None
                # Before its first step, which may take long; but a loop over `take(1)` may look at an example or two.
                if not 0 <= dataset_graph.count(loop.dataset) < _LOOP_ELEMENTS:
                    self._reach(loop)
                if not loop.trains:
                    loop.trains = True
                    self._trained.append(loop)
                    self._note(loop)
            if (call := self._outermost_call()) is not None:
                self._training_functions.add(call.function)

        return _before(plain, note)

    def _reach_traced(self) -> None:
        for loop in self._traced:
            self._reach(loop)

    def _by_wait(self, loops: list[DatasetLoop]) -> list[DatasetLoop]:
        """Return the loops that a step takes from, as by `zip`, the one meant first; note which of them each is."""
        for place, loop in enumerate(loops):
            loop.place = place if len(loops) > 1 else None
            others = {id(each.dataset): each.dataset for each in loops if each.dataset is not loop.dataset}
            loop.others = tuple(others.values())
        return sorted(loops, key=lambda each: (each.place is None or each.place != self._which, -each.taken_ns))

    def _calling(self, plain: Any) -> Any:
        """Return what stands in the place of a call of a `tf.function`; what trains in it shows as it is traced."""

        @functools.wraps(plain)
        def call(function: Any, *arguments: Any, **named: Any) -> Any:
            called = self._called[threading.get_ident()]
            if function in self._training_functions:
                self._reach_traced()
                if not called:
                    self.count_bare()
            called.append(loop_step.Call(function, arguments, named, sys._getframe(1)))
            try:
                return plain(function, *arguments, **named)
            finally:
                called.pop()

        return call

    def _outermost_call(self) -> loop_step.Call | None:
        """Return the call of a `tf.function` that led here; of a strategy's replica the one that runs its thread."""
        # Not another thread's, as of a generator that prepares the next batch.
        threads = (threading.get_ident(), threading.main_thread().ident)
        return next((self._called[each][0] for each in threads if self._called[each]), None)

    def _eager(self) -> Eager | None:
        """Return why what trains now runs as eager code; None where it is traced."""
        if user_code.functions_run_eagerly():
            return "functions"
        return "no-function" if self._outermost_call() is None else None

    def _session_run(self, plain: Any) -> Any:
        """Return what stands in the place of `Session.run`: a step, whatever it takes."""
        return _before(plain, lambda *_: self.count_bare(by_session=True))

    def count_bare(self, by_session: bool = False, before_tensorflow: bool = False) -> None:
        """Count a step, if no loop is under way; what another framework trains may come before what TensorFlow does."""
        if self.is_paused:
            return
        count, from_s = self._bare_steps.get(before_tensorflow, (0, 0.0))
        count, from_s = (0 if self._loops else count + 1), (from_s if count else time.monotonic())
        is_long = count >= _BARE_LEAST and time.monotonic() - from_s > _BARE_S
        is_training = is_long or count > _BARE_STEPS
        may_come = is_training and before_tensorflow and user_code.names(user_code.TENSORFLOW)
        self._bare_steps[before_tensorflow] = 0 if may_come else count, from_s
        if is_training and not may_come:
            self._bare(user_code.line(), by_session)

    def _iterate(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def __iter__(dataset: Any) -> Any:  # noqa: N807 - it stands in the place of that method
            import tensorflow as tf

            if self.is_paused or not tf.executing_eagerly() or not _by_user():
                return plain(dataset)
            for trained in self._trained:
                if dataset is trained.dataset:  # in its second epoch: it has few batches
                    self._reach(DatasetLoop(dataset, user_code.line(), step=trained.step))
            iterator = plain(dataset)
            place = user_code.location()
            loop = self._last = self._loops[iterator] = DatasetLoop(dataset, user_code.named(place))
            loop.within = next(source_loops.around(), None)
            loop.never_reads_again = source_loops.never_reads_again()
            loop.needs_training = self._needs_training("" if place is None else place.file)
            return iterator

        return __iter__

    def _take(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def take(iterator: Any, *arguments: Any, **named: Any) -> Any:
            import tensorflow as tf

            if not tf.executing_eagerly():  # a step is traced that takes its elements itself
                self._take_in_graph(iterator)
                return plain(iterator, *arguments, **named)
            loop = self._loops.get(iterator)
            if loop is not None:
                self._last = loop
                loop.count += 1
                if loop.count <= 2:  # noqa: PLR2004 - the first may be an example, taken before the loop
                    _place(loop, iterator)
                if loop.count >= _LOOP_ELEMENTS:
                    self._note(loop)
                    if loop.trains or not loop.needs_training:
                        self._reach(loop)
            start_ns = time.perf_counter_ns()
            element = plain(iterator, *arguments, **named)
            if loop is not None:
                loop.taken_ns += time.perf_counter_ns() - start_ns
                loop.element = element
            return element

        return take

    def _take_in_graph(self, iterator: Any) -> None:
        import tensorflow as tf

        if self.is_paused:
            return
        by_identity = {id(made): (made, loop) for made, loop in self._loops.items()}
        # The function's own iterator is a symbol where it is an argument of the call, or in one.
        call = self._outermost_call()
        given = [iterator, *(() if call is None else tf.nest.flatten([call.arguments, call.named]))]
        found = [by_identity[each] for each in dict.fromkeys(map(id, given)) if each in by_identity]
        self._by_wait([loop for _, loop in found])
        found.sort(key=lambda each: each[1].place != self._which)  # how long each is waited for is not known yet
        for made, loop in found or ([] if self._last is None else [(self, self._last)]):
            if loop.dataset.element_spec == iterator.element_spec:
                if call is not None and source_loops.takes_one(function := call.function.python_function):
                    loop.steps = source_loops.rounds(loop.within, made, call=call.frame, function=function.__name__)
                self._reach(loop)

    def _in_graph(self, plain: Any) -> Any:
        """Return what stands in the place of what AutoGraph makes of a loop over a dataset."""

        @functools.wraps(plain)
        def loop(dataset: Any, *arguments: Any, **named: Any) -> Any:
            if self.is_paused:
                return plain(dataset, *arguments, **named)
            place, within = user_code.location(), next(source_loops.around(), None)
            found = DatasetLoop(public_api.eager_dataset(dataset), user_code.named(place), within=within)
            if not self._needs_training("" if place is None else place.file):
                self._reach(found)
            self._note(found)
            self._traced.append(found)
            try:
                return plain(dataset, *arguments, **named)
            finally:
                self._traced.pop()

        return loop


def _before(plain: Any, action: Callable[..., None]) -> Any:
    """Return what does something with its positional arguments, and then what stood in its place."""

    @functools.wraps(plain)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        action(*arguments)
        return plain(*arguments, **named)

    return wrapper


def _place(loop: DatasetLoop, iterator: Any) -> None:
    """Note where a loop takes an element, unless it took the one before in as many loops."""
    taken_in = tuple(source_loops.around(body=False))
    if loop.count == 1 or len(taken_in) > len(loop.taken_in):
        loop.taken_in, loop.generator = taken_in, source_loops.generator()
        loop.needs_training = loop.needs_training and not training_calls.takes_gradient(taken_in)
        steps = source_loops.rounds(loop.within, iterator, in_header=loop.line == user_code.line())
        loop.steps = None if steps is None else loop.count - 1 + steps


def _by_iter(plain: Any) -> Any:
    """Return what stands in the place of `make_one_shot_iterator`: in eager code `iter`, which does the same."""
    import tensorflow as tf

    return functools.wraps(plain)(lambda dataset: iter(dataset) if tf.executing_eagerly() else plain(dataset))


def _by_user() -> bool:
    """Return whether code of the user's takes the iterator, by itself or by a library such as a progress bar's."""
    for frame in user_code.outward(sys._getframe(2)):
        file = frame.f_code.co_filename
        origin = user_code.origin(file)
        if origin == "user":
            return True
        if origin == "tensorflow" and not any(each in file for each in _BETWEEN):
            return False
    return False
