"""Takes elements from a dataset, with a deadline and without copies to NumPy, and measures how fast they come.

An element is taken by one eager call of the iterator's own op, about 12 us in TensorFlow 2.21; `next(iterator)` takes
20 us, and a loop in a `tf.function` 28 us an element. The call can be cancelled, so that a filter that lets nothing
through ends in time; Python code of the user's cannot be.

Fast elements are counted in windows (`Dataset.window`): one call from Python for many elements costs 0.6 us an element.
`skip` would have sources and shuffles skip their work, and `reduce` runs a function an element.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.model.pipeline import INFINITE
from pipeline_bench.system.processes import queued_s
from pipeline_bench.tfdata.describe import nbytes
from pipeline_bench.tfdata.iterators import EagerIterator

SLOW_NS = 1e6
"""Slower elements are taken one by one: the call's 12 us are about 1 % of them."""
_KEPT_BYTES = 64 << 20
"""The most that is kept of one stage, and the most that a window holds: little beside a machine's memory."""
_KEPT_MOST = 512
_KEPT_OPAQUE_MOST = 64
"""Of elements whose size is not known: ragged ones, windows."""
_KEPT_TENSORS_MOST, _KEPT_LEAST = 2048, 16
"""Making an iterator that is fed with kept elements takes some 0.2 ms for each of their tensors: 3 s for 512 rows of a
table with 40 columns."""
_SLICES = 3
_WINDOW_NS = 4e6
"""About how long a window takes, so that a slice ends near the time that it was given."""
_WINDOW_MOST = 4096
_CPU_COLUMNS = (1, 2, 3, 8)
"""Of the first line of /proc/stat, behind its name: user, nice, system, idle, iowait, irq, softirq, steal."""
_BEYOND_CACHES_BYTES, _BEYOND_CACHES_MOST = 2**28, 16
"""Batches of so much together do not stay in the caches of a CPU; no more than a short trial's warm-up can make."""


class OutOfTimeError(Exception):
    """No element came within the time that was given."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Deadline:
    """For the block, a time after which taking an element raises `OutOfTimeError`, also in a call that waits."""

    def __init__(self, seconds: float) -> None:
        from tensorflow.python.eager import cancellation

        self.manager = cancellation.CancellationManager()
        self.passed = False
        self.seconds = max(0.0, seconds)
        self._timer = threading.Timer(self.seconds, self._pass)
        self._timer.daemon = True

    def _pass(self) -> None:
        self.passed = True
        self.manager.start_cancel()

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        self._timer.join()


class FlatIterator(EagerIterator):
    """An iterator over a dataset whose elements stay lists of tensors, as tf.data moves them."""

    def __init__(self, dataset: Any) -> None:
        from tensorflow.python.eager import cancellation, context, execute

        super().__init__(dataset)
        self._spec = dataset.element_spec
        specs = _flat_specs(self._spec)
        types = tuple(spec.dtype.as_datatype_enum for spec in specs)
        shapes = tuple(spec.shape for spec in specs)
        self._outputs = len(specs)
        self._call = ("output_types", types, "output_shapes", shapes), context.context()
        self._execute = execute.execute_with_cancellation
        self._never = cancellation.CancellationManager()

    def take(self, deadline: Deadline | None = None) -> list[Any]:
        """Return the next element.

        Raises:
            StopIteration: there is none.
            OutOfTimeError: the deadline came first.
            tensorflow.errors.OpError: what the pipeline raises.
        """
        if deadline is not None and deadline.passed:
            raise OutOfTimeError(deadline.seconds)
        manager = self._never if deadline is None else deadline.manager
        try:
            # No name holds the resource: with it, what is raised would hold the iterator, and end it in this thread.
            element: list[Any] = self._execute(
                "IteratorGetNext", self._outputs, [self.iterator._iterator_resource], *self._call, manager
            )
        except Exception as error:
            raise self._explained(error, deadline) from None
        return element

    def nbytes(self, element: list[Any]) -> int:
        """Return the bytes of an element, of the ragged and sparse tensors in it too, which travel as variants."""
        from tensorflow.python.data.util import structure

        return nbytes(structure.from_compatible_tensor_list(self._spec, element))

    @staticmethod
    def _explained(error: Exception, deadline: Deadline | None) -> Exception:
        user_code.restore_imports()
        import tensorflow as tf
        from tensorflow.python.eager import core

        if isinstance(error, core._NotOkStatusException):  # as the C interface gives it
            error = core._status_to_exception(error)
        # Not a CancelledError alone: a Python function that was cancelled shows as another one, a generator as its end.
        if deadline is not None and deadline.passed:
            return OutOfTimeError(deadline.seconds)
        return StopIteration() if isinstance(error, tf.errors.OutOfRangeError) else error


def endless(dataset: Any) -> Any:
    """Return a dataset that begins anew at its end, and runs nothing ahead of what is taken."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return (dataset if int(dataset.cardinality()) == INFINITE else dataset.repeat()).with_options(options)


def _flat_specs(structure: Any) -> list[Any]:
    """Return the specs of the tensors that tf.data moves for an element: a ragged one travels as one variant."""
    import tensorflow as tf

    return [spec for part in tf.nest.flatten(structure) for spec in part._flat_tensor_specs]


class KeptElements:
    """Elements that are kept in memory, as tf.data moves them."""

    def __init__(self, spec: Any, elements: Sequence[list[Any]]) -> None:
        self.count = len(elements)
        self._spec = spec
        self._tensors = [tensor for element in elements for tensor in element]

    def dataset(self) -> Any:
        """Return a dataset of them, once through; its spec is that of the dataset which they came from.

        Giving an element from it takes about 1 us and copies nothing.
        """
        import tensorflow as tf

        specs = _flat_specs(self._spec)
        variant = tf.raw_ops.ListDataset(
            tensors=self._tensors,
            output_types=[spec.dtype for spec in specs],
            output_shapes=[spec.shape for spec in specs],
        )
        return tf.data.experimental.from_variant(variant, self._spec)


class ElementSample(NamedTuple):
    """Some elements, the time that one took in ns as far as it is known, and their mean size in bytes."""

    elements: list[list[Any]]
    each_ns: float | None
    element_bytes: float


def sample(iterator: FlatIterator, deadline: Deadline, first: list[Any], seconds: float) -> ElementSample:
    """Take and keep elements for so long, until there are enough or there are no more."""
    kept, size = [first], iterator.nbytes(first)
    opaque = any(not tensor.dtype.is_numpy_compatible for tensor in first)
    fitting = max(_KEPT_LEAST, _KEPT_TENSORS_MOST // len(first))
    most = min(fitting, _KEPT_OPAQUE_MOST if opaque else _KEPT_MOST)
    taking_ns = 0
    end_ns = time.perf_counter_ns() + seconds * 1e9
    with contextlib.suppress(OutOfTimeError, StopIteration):
        while len(kept) < most and size * (1 + 1 / len(kept)) < _KEPT_BYTES:
            if (start_ns := time.perf_counter_ns()) > end_ns:
                break
            kept.append(iterator.take(deadline))
            taking_ns += time.perf_counter_ns() - start_ns
            size += iterator.nbytes(kept[-1])
    return ElementSample(kept, taking_ns / (len(kept) - 1) if len(kept) > 1 else None, size / len(kept))


class Rate(NamedTuple):
    """Nanoseconds for one element: wall time, CPU time over all threads, and how long these queued for a core.

    The last is None where that is not known.
    """

    elapsed_ns: float
    cpu_ns: float
    queued_ns: float | None = None


def rate(take: Callable[[], object], seconds: float, window: int = 1) -> Rate:
    """Take for so long, at least once, and return the mean, because parallel calls come in bursts.

    Args:
        take: takes one more; it raises StopIteration where there is none, which ends the measuring.
        seconds: how long.
        window: how many elements are in what is taken.
    """
    calls = 0
    before = _CoreTimes.now()  # reads a file a thread, and is no part of what is timed
    start_ns, start_cpu_s = time.perf_counter_ns(), _cpu_s()
    end_ns = start_ns + seconds * 1e9
    while not calls or time.perf_counter_ns() < end_ns:
        try:
            take()
        except StopIteration:
            if not calls:
                raise
            break
        calls += 1
    count = calls * window
    elapsed_ns, cpu_s = time.perf_counter_ns() - start_ns, _cpu_s() - start_cpu_s
    queued_s = _queued_s(before, _CoreTimes.now(), cpu_s)
    return Rate(elapsed_ns / count, cpu_s * 1e9 / count, None if queued_s is None else queued_s * 1e9 / count)


def calls_at_once(iterator: EagerIterator) -> float:
    """Return how many calls a dataset may have under way at the same time, as TensorFlow's model of it says.

    It is 1 where the model says nothing, and of several parallel stages that of the one with the most.
    """
    import tensorflow as tf

    with contextlib.suppress(tf.errors.OpError, ValueError, AttributeError):
        nodes = tf.data.experimental.get_model_proto(iterator.iterator).nodes.values()
        found = [float(each.state_value) for node in nodes for each in node.parameters if each.name == "parallelism"]
        return max([1.0, *found])
    return 1.0


def window_size(each_ns: float, element_bytes: float) -> int:
    """Return how many elements a window should hold that take so long and are so large each; one at least."""
    most = min(_WINDOW_MOST, round(_KEPT_BYTES / max(1.0, element_bytes)))
    return max(1, min(most, round(_WINDOW_NS / max(each_ns, 100.0))))


def can_window(dataset: Any) -> bool:
    """Return whether `Dataset.window` takes the elements: it fails where a part of one is None, as of ``(x, None)``."""
    import tensorflow as tf

    return all(part._flat_tensor_specs for part in tf.nest.flatten(dataset.element_spec))


def windowed_rate(dataset: Any, deadline: Deadline, each_ns: float, element_bytes: float, seconds: float) -> Rate:
    """Take by windows, in slices, and return the median slice.

    Args:
        dataset: without end.
        deadline: when to give up.
        each_ns: about how long one element takes.
        element_bytes: of one; a window holds all of its elements at once.
        seconds: how long to take.
    """
    size = window_size(each_ns, element_bytes) if can_window(dataset) else 1
    iterator = FlatIterator(dataset if size == 1 else dataset.window(size))
    iterator.take(deadline)
    rates = [rate(lambda: iterator.take(deadline), seconds / _SLICES, size) for _ in range(_SLICES)]
    elapsed_ns, cpu_ns, queued_ns = zip(*rates, strict=True)
    return Rate(statistics.median(elapsed_ns), statistics.median(cpu_ns), _known_median(queued_ns))


def _known_median(values: Sequence[float | None]) -> float | None:
    """Return the median of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _cpu_s() -> float:
    """Return the CPU seconds of this process so far, over all of its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class _CoreTimes(NamedTuple):
    """Seconds until now: of this process's threads without a core, None if not known, and the whole machine's."""

    queued_s: float | None
    busy_s: float
    stolen_s: float
    """What the hypervisor gave to others; 0 where the system does not count it."""

    @classmethod
    def now(cls) -> _CoreTimes:
        """Return them; of the machine 0 for what cannot be read."""
        each_s = [queued_s(os.getpid(), int(each.name)) for each in Path("/proc/self/task").glob("*")]
        known_s = [each for each in each_s if each is not None]  # a thread may end meanwhile
        own_s = sum(known_s) if known_s else None
        with contextlib.suppress(OSError, IndexError, ValueError):
            user, nice, system, stolen = _machine_s()
            return cls(own_s, user + nice + system, stolen)
        return cls(own_s, 0.0, 0.0)


def _machine_s() -> list[float]:
    """Return the seconds of all CPUs for users, for those of low priority, in the system, and stolen (Linux).

    Raises:
        OSError, IndexError, ValueError: they cannot be read.
    """
    columns = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
    return [int(columns[column]) / os.sysconf("SC_CLK_TCK") for column in _CPU_COLUMNS]


def _queued_s(before: _CoreTimes, after: _CoreTimes, cpu_s: float) -> float | None:
    """Return how many seconds threads of this process could have run and had no core; None where that is not known.

    Other processes had it, which the kernel counts for each thread, or the hypervisor, which it counts for the machine:
    it takes from all that runs alike, and so from this process in proportion to what it computed.

    Args:
        before: at the begin.
        after: at the end.
        cpu_s: what this process computed meanwhile.
    """
    if before.queued_s is None or after.queued_s is None:
        return None
    own_s = max(0.0, after.queued_s - before.queued_s)  # a thread that has ended takes its figure along
    busy_s = max(after.busy_s - before.busy_s, cpu_s)  # the machine's moves in ticks
    return own_s + (max(0.0, after.stolen_s - before.stolen_s) * cpu_s / busy_s if busy_s else 0.0)


class Pass(NamedTuple):
    """How far one pass over a dataset came."""

    complete: bool
    elements: int


def fill(caches: Sequence[Any], limit_s: float, alive: Callable[[], None] = lambda: None) -> list[Pass]:
    """Make one pass over each of the caches; all of them share the time.

    What is measured afterwards is every pass but the first.

    Raises:
        UserCodeError: the pipeline before a cache fails.
    """
    end_s = time.monotonic() + limit_s
    passes = []
    for cache in caches:
        with user_code.element_errors(), Deadline(end_s - time.monotonic()) as deadline:
            passes.append(_pass_over(FlatIterator(cache), deadline, alive))
    return passes


def _pass_over(iterator: FlatIterator, deadline: Deadline, alive: Callable[[], None]) -> Pass:
    count = 0
    try:
        while True:
            iterator.take(deadline)
            count += 1
            alive()
    except StopIteration:
        return Pass(True, count)
    except OutOfTimeError:
        return Pass(False, count)


def beyond_caches(size_bytes: int) -> int:
    """Return how many batches of a size together do not stay in the caches of a CPU, 16 at most; 0 of a huge one."""
    return min(_BEYOND_CACHES_MOST, _BEYOND_CACHES_BYTES // max(size_bytes, 1))
