"""Times what the steps of a `fit`, and loops in a graph, take from what a `tf.distribute` strategy distributes.

Their iterators are taken apart and put together again where a function is traced with them, so that nothing put on one
stays: their class is patched instead, and whoever takes is asked for, by who steps or by the line of the loop.
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

if TYPE_CHECKING:
    from pipeline_bench.monitoring.probe import Probe

ProbeOf = Callable[[], "Probe | None"]
_PROBE = "_pipeline_bench_probe"
_PATCHED = "_pipeline_bench_patched"


class _OfThisThread(threading.local):
    """Attributes: probe: of the training whose step this thread takes; inside: whether it takes an element already."""

    probe: Probe | None = None
    inside = False


_here = _OfThisThread()


def _of_no_loop() -> Probe | None:
    return None


_of_loop: ProbeOf = _of_no_loop
_of_loops: weakref.WeakSet[Probe] = weakref.WeakSet()


@contextmanager
def stepping(probe: Probe) -> Iterator[None]:
    """Have what this thread takes from a distributed iterator in the block timed by a probe."""
    before, _here.probe = _here.probe, probe
    try:
        yield
    finally:
        _here.probe = before


def patch(input_lib: Any, of_loop: ProbeOf | None = None) -> None:
    """Time the iterators of distributed datasets, once for the process, where there is a probe for who takes.

    Args:
        input_lib: TensorFlow's module of that name.
        of_loop: gives the probe of the loop of the job's own that is running, or traced, and takes from one of them;
            None where it is not watched.
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
    for kind in (input_lib.DistributedDataset, input_lib.DistributedDatasetsFromFunction):
        kind.__iter__ = _begun(kind.__iter__)


def _probe_of(iterator: Any) -> Probe | None:
    if _here.inside or _here.probe is not None:
        return None if _here.inside else _here.probe
    import tensorflow as tf

    if tf.executing_eagerly():
        return None
    # An iterator is asked for once: what it serves is one loop, in whichever of its lines it takes.
    if _PROBE not in iterator.__dict__:
        probe = iterator.__dict__[_PROBE] = _of_loop()
        if probe is not None:
            _of_loops.add(probe)
    found: Probe | None = iterator.__dict__[_PROBE]
    return found


def _begun(plain: Any) -> Any:
    @functools.wraps(plain)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it stands in the place of that method
        import tensorflow as tf

        iterator = plain(self)
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
        _here.inside = True
        try:
            if tf.executing_eagerly():
                return _now(fetch, probe, as_optional)
            return _in_graph(fetch, probe, as_optional)
        finally:
            _here.inside = False

    return take


def _now(fetch: Callable[[], Any], probe: Probe, as_optional: bool) -> Any:
    import tensorflow as tf

    from pipeline_bench.monitoring.steps import ENDED

    start_ns = time.monotonic_ns()
    try:
        element = fetch()
    except tf.errors.OutOfRangeError:
        probe.receive(start_ns, ENDED)
        raise
    wait_ns = time.monotonic_ns() - start_ns
    probe.receive(start_ns, ENDED if as_optional and not bool(element.has_value()) else wait_ns)
    return element


def _in_graph(fetch: Callable[[], Any], probe: Probe, as_optional: bool) -> Any:
    import tensorflow as tf

    from pipeline_bench.monitoring.probe import stamped
    from pipeline_bench.monitoring.steps import ENDED

    def keep(element: Any, at_s: Any, wait_s: Any) -> None:
        if as_optional:
            wait_s = tf.where(element.has_value(), wait_s, tf.constant(ENDED, tf.float64))
        probe.write(at_s, wait_s)

    return stamped(fetch, keep)
