"""Times what the steps of a `fit`, and loops, take from what a `tf.distribute` strategy distributes.

Of several workers an iterator asks the others whether they have a batch, so that timed as a whole it shows every worker
the slowest one's wait. What is timed is what each takes from its own input. Iterators are taken apart and put together
again where a function is traced with them, so that nothing put on one stays: their class is patched instead, and
whoever takes is asked for, by who steps or by the line of the loop.
Nothing heavy is imported before something is timed: the class may be patched while TensorFlow is being imported.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipeline_bench.graph_ops import between_stamps

if TYPE_CHECKING:
    from pipeline_bench.monitoring.probe import Probe

ProbeOf = Callable[[Any], "Probe | None"]
"""Gives the probe of the loop over a distributed dataset, or over one that is not known, None."""
_PROBE = "_pipeline_bench_probe"
_DATA = "_pipeline_bench_data"
_PATCHED = "_pipeline_bench_patched"


class _OfThisThread(threading.local):
    """What this thread does.

    Attributes:
        probe: of the training whose step it takes.
        parts: the waits for its own input, in ns or as tensors in s, of the element that it takes; None: it takes none.
        graph: in which that element is taken; None in eager mode.
    """

    probe: Probe | None = None
    parts: list[Any] | None = None
    graph: Any = None


_here = _OfThisThread()


def _of_no_loop(_: Any) -> Probe | None:
    return None


_of_loop: ProbeOf = _of_no_loop
_of_loops: weakref.WeakSet[Probe] = weakref.WeakSet()


@contextmanager
def stepping(probe: Probe) -> Iterator[None]:
    """Time, in the block, what this thread takes from a distributed iterator."""
    before, _here.probe = _here.probe, probe
    try:
        yield
    finally:
        _here.probe = before


def patch(input_lib: Any, of_loop: ProbeOf | None = None) -> None:
    """Time the iterators of distributed datasets, once for the process, where there is a probe for who takes.

    Args:
        input_lib: TensorFlow's module of that name.
        of_loop: gives the probe of the loop of the job's own that is running, or traced, and takes from this dataset,
            or from one that is not known; None where it is not watched.
    """
    global _of_loop  # noqa: PLW0603 - the module that is patched is global as well
    if of_loop is not None:
        _of_loop = of_loop
    base = input_lib.DistributedIteratorBase
    if hasattr(base, _PATCHED):
        return
    setattr(base, _PATCHED, True)
    base.get_next = _timed(base.get_next, as_optional=False)
    base.get_next_as_optional = _timed(base.get_next_as_optional, as_optional=True)
    own = input_lib._SingleWorkerDatasetIteratorBase
    own.get_next_as_list = _own_part(own.get_next_as_list)
    own.get_next_as_optional_list = _own_part(own.get_next_as_optional_list)
    for kind in (input_lib.DistributedDataset, input_lib.DistributedDatasetsFromFunction):
        kind.__iter__ = _begun(kind.__iter__)


def is_taking() -> bool:
    """Return whether this thread takes an element, for a probe, from a distributed iterator."""
    return _here.parts is not None


def _probe_of(iterator: Any) -> Probe | None:
    if _here.parts is not None:
        return None
    if _here.probe is not None:
        return _here.probe
    import tensorflow as tf

    # An iterator is asked for once: what it serves is one loop, in whichever of its lines it takes.
    if _PROBE not in iterator.__dict__:
        data = iterator.__dict__.get(_DATA, lambda: None)()
        probe = iterator.__dict__[_PROBE] = _of_loop(data)
        if probe is not None:
            _of_loops.add(probe)
            if tf.executing_eagerly():
                probe.leave()
    found: Probe | None = iterator.__dict__[_PROBE]
    return found


def _begun(plain: Any) -> Any:
    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        import tensorflow as tf

        iterator = plain(self)
        iterator.__dict__[_DATA] = weakref.ref(self)
        if tf.executing_eagerly():  # which of the loops will take from it is not known yet
            begun = list(_of_loops)
        else:
            begun = [probe for probe in [_probe_of(iterator)] if probe is not None]
        for probe in begun:
            probe.leave()
        return iterator

    return __iter__


def _timed(plain: Any, as_optional: bool) -> Any:
    @functools.wraps(plain)
    def take(self: Any, *arguments: Any, **named: Any) -> Any:
        import tensorflow as tf

        probe = _probe_of(self)
        fetch = functools.partial(plain, self, *arguments, **named)
        if probe is None:
            return fetch()
        eager = tf.executing_eagerly()
        parts = _here.parts = []
        _here.graph = None if eager else tf.compat.v1.get_default_graph()
        try:
            return (_now if eager else _in_graph)(self, fetch, probe, parts, as_optional)
        finally:
            _here.parts = _here.graph = None

    return take


def _own_part(plain: Any) -> Any:
    @functools.wraps(plain)
    def get(self: Any, *arguments: Any, **named: Any) -> Any:
        import tensorflow as tf

        parts = _here.parts
        fetch = functools.partial(plain, self, *arguments, **named)
        if parts is None:
            return fetch()
        if tf.executing_eagerly():
            start_ns = time.monotonic_ns()
            try:
                return fetch()
            finally:
                parts.append(time.monotonic_ns() - start_ns)
        if tf.compat.v1.get_default_graph() is not _here.graph:  # a branch, of which nothing is seen outside
            return fetch()
        taken, before, after = between_stamps(fetch)
        parts.append(after - before)
        return taken

    return get


def _now(iterator: Any, fetch: Callable[[], Any], probe: Probe, parts: list[Any], as_optional: bool) -> Any:
    import tensorflow as tf

    from pipeline_bench.monitoring.steps import ENDED

    start_ns = time.monotonic_ns()
    try:
        element = fetch()
    except tf.errors.OutOfRangeError:
        probe.receive(start_ns, ENDED, id(iterator))
        raise
    wait_ns = sum(parts) if parts else time.monotonic_ns() - start_ns
    probe.receive(start_ns, ENDED if as_optional and not bool(element.has_value()) else wait_ns, id(iterator))
    return element


def _in_graph(iterator: Any, fetch: Callable[[], Any], probe: Probe, parts: list[Any], as_optional: bool) -> Any:
    import tensorflow as tf

    from pipeline_bench.monitoring.probe import number_in_graph, stamped
    from pipeline_bench.monitoring.steps import ENDED

    number = number_in_graph(iterator)
    if as_optional:
        probe.step_ends()
        # Keras' loop asks in a branch of it, and `step_ends` tells when its step ended.
        if type(tf.compat.v1.get_default_graph()).__name__ == "WhileBodyFuncGraph":
            probe.asks_ahead = True

    def keep(element: Any, at_s: Any, wait_s: Any) -> None:
        wait_s = tf.add_n(parts) if parts else wait_s
        if as_optional:
            wait_s = tf.where(element.has_value(), wait_s, tf.constant(ENDED, tf.float64))
        probe.ring.write(at_s, wait_s, number)

    return stamped(fetch, keep)
