"""The user's model on one batch that stays on the device: its ceiling, and what makes a step longer without any input.

That is the copy of a batch, shapes that the dataset does not promise, as TensorFlow then computes for any, and running
as eager code.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic_ns  # by itself: a user's code may replace that of the module
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.element import Shape
from pipeline_bench.model.events import Copied, InGraph, KnownShapes
from pipeline_bench.model.job import Eager
from pipeline_bench.script.training_data import Does
from pipeline_bench.tfdata import describe, passes, static_shapes
from pipeline_bench.tfdata.describe import nbytes
from pipeline_bench.tfdata.throughput import beyond_caches
from pipeline_bench.worker import consumers
from pipeline_bench.worker.consumers import Alive, Record, StepFunction, iterate

_HOST = "/cpu:0"
_PAIRS_NS, _FEWEST_PAIRS = 4e8, 3
"""The cost of a copy is measured for so long, and by so many pairs of steps at least."""
_TAKING_NS = 3e8
"""Batches are taken for so long at most."""
_MOST_PAIRS_NS = 2e9
"""Steps so long that so few pairs take more show no copy."""
_CERTAIN_ERRORS = 2.0
"""A copy is told from none if it is so many times its standard error."""
ERROR_OF_MEDIAN = 1.253
"""The standard error of a median over that of a mean, of a normal distribution."""
_LOOKED_AT, _LEAST_LOOKED_AT = 16, 2
"""Batches whose shapes are compared, if they come fast; and in any case, but for those that take longer than this."""
_LONG_BATCH_NS = 2e9
_SHORT_PASS = 16
"""Batches, of which a smaller one still is a visible part: 3 % of the steps' time where it has half of the samples."""
_SHORTER, _MUCH_SHORTER = 1.3, 2.0
"""Each step must be so many times as long as the other one; a long one, of which few are made, so many times."""
_LONGEST_EAGER_NS = 1e9
"""A longer step of eager code may loop in Python, which takes long to trace."""
_MOST_RETRACING_NS = 1.5e10
"""What traces and steps longer is not traced a second time."""


class EagerModel(NamedTuple):
    """A model that runs as eager code."""

    eager: Eager
    step_of: Callable[[], StepFunction]
    """Makes its step as a graph, after it has made others."""


class Retracing(NamedTuple):
    """How to make a step that is traced for other shapes; XLA compiles for each batch's own."""

    promised: Any
    """The spec of the dataset's elements, for which the step is traced."""
    step_of: Callable[[Any], StepFunction]
    """Makes a step of a spec."""


def other_step(model: Any, does: Does, spec: Any) -> Retracing | EagerModel | None:
    """Return how a step of a model may be made that takes less time; None where that is not known.

    Args:
        model: as `step_of` takes it, as are the others.
        does: what it does with a batch.
        spec: of what `fit` is given; None of any other input.
    """
    step_of = functools.partial(consumers.step_of, model, does)
    if (eager := consumers.why_eager(model)) is not None:
        return EagerModel(eager, functools.partial(step_of, in_graph=True))
    is_open = does == "train" and spec is not None and not getattr(model, "jit_compile", False)
    return Retracing(spec, step_of) if is_open else None


def run(
    dataset: Any,
    step: StepFunction,
    record: Record,
    warmup_s: float = 0.0,
    alive: Alive = lambda: None,
    other: Retracing | EagerModel | None = None,
) -> Iterator[Copied | KnownShapes | InGraph]:
    """Train on one batch that stays on the device, then alternately on that and with what may be longer or shorter.

    Where a pass has few batches and the last one is smaller, that takes its turn: so the mean is that of a pass.

    Args:
        dataset: gives the batch.
        step: as `step_of` makes it.
        record: called for every step on the device's batch that begins after the warm-up.
        warmup_s: how long to step before.
        alive: see `Alive`.
        other: see `other_step`.

    Yields:
        What the copy of the batch costs, unless TensorFlow has no GPU, or several; the pipeline copies its batches
        itself; steps on a batch in host memory fail, for one for lack of the GPU's memory; or no copy can be told from
        noise. And what a step takes with known shapes, or as a graph, if it is shorter.

    Raises:
        UserCodeError: the dataset gives no element, or it or the model fails.
    """
    devices, took_ns = _gpus(), list[int]()
    is_open = isinstance(other, Retracing) and static_shapes.are_open(other.promised)
    made, shapes = _taken(dataset, several=len(devices) == 1, looks=is_open, alive=alive)

    def placed(some: Any) -> Any:
        return _on_device(some, devices[0]) if devices else some

    batch = last = placed(made[0])
    rest, count = _smaller_last(dataset, made[0], alive) or (None, 1)
    if rest is not None:
        last = placed(rest)
    # The last one second: those two steps trace the model, and are not recorded.
    turns = itertools.chain([batch, last], itertools.cycle([*[batch] * (count - 1), last]))

    def timed(some: Any) -> float:
        begun_ns = monotonic_ns()
        loss = step(some)
        if some is batch:  # what follows steps on that, and is held against it
            took_ns.append(monotonic_ns() - begun_ns)
        return loss

    iterate(lambda: next(turns), timed, record, warmup_s, alive)
    # What follows may fail, for one for lack of memory: the ceiling is measured all the same.
    if len(devices) == 1 and not _is_on(made[0], devices[0]):
        alike = [each for each in made if _shapes(each) == _shapes(made[0])]
        with suppress(UserCodeError):
            yield from _copied(alike, batch, step, alive)
    if took_ns[0] + took_ns[-1] > _MOST_RETRACING_NS:
        return
    with suppress(UserCodeError):
        yield from _shorter(batch, step, other, shapes, min(took_ns), alive)


def _shorter(
    batch: Any,
    step: StepFunction,
    other: Retracing | EagerModel | None,
    shapes: Sequence[list[Shape]],
    shortest_ns: int,
    alive: Alive,
) -> Iterator[KnownShapes | InGraph]:
    """Yield what a step takes that is made in another way, if it takes less; see `run`.

    Args:
        batch: that both step on.
        step: as the job makes it.
        other: how else it may be made.
        shapes: of some batches.
        shortest_ns: the shortest step so far.
        alive: see `Alive`.
    """
    if isinstance(other, EagerModel):
        if shortest_ns <= _LONGEST_EAGER_NS and (pair := _pair_ms(batch, step, other.step_of(), shortest_ns, alive)):
            yield InGraph(eager=other.eager, eager_ms=pair[0], ms=pair[1])
    elif other is not None and len(shapes) >= _LEAST_LOOKED_AT:
        known = static_shapes.known(other.promised, shapes)
        if known != other.promised and (pair := _pair_ms(batch, step, other.step_of(known), shortest_ns, alive)):
            element = describe.element(known)
            yield KnownShapes(element=element, batches=len(shapes), promised_ms=pair[0], ms=pair[1])


def _taken(dataset: Any, *, several: bool, looks: bool, alive: Alive) -> tuple[list[Any], list[list[Shape]]]:
    """Return a batch, or several where they come fast, and the shapes of these and more.

    Args:
        dataset: gives them.
        several: whether to keep more than one: the caches of the CPU would keep a single one.
        looks: whether more are taken for their shapes.
        alive: see `Alive`.
    """
    begun_ns = monotonic_ns()
    with user_code.element_errors():
        take = passes.batches(dataset)
        made = [take()]
        alive()
    first_ns, shapes = monotonic_ns() - begun_ns, [static_shapes.of_element(made[0])] if looks else []
    most, looked_at = beyond_caches(nbytes(made[0])) if several else 1, _LOOKED_AT if looks else 0
    begun_ns = monotonic_ns()
    while len(made) < most or len(shapes) < looked_at:
        if first_ns > _LONG_BATCH_NS and looks:
            break
        if monotonic_ns() - begun_ns > _TAKING_NS and len(shapes) >= min(looked_at, _LEAST_LOOKED_AT):
            break
        try:
            batch = take()
        except Exception:  # it has ended, or an element fails that no step of a ceiling needs
            break
        alive()
        shapes += [static_shapes.of_element(batch)] * looks
        made += [batch] * (len(made) < most)
    return made, shapes


def _smaller_last(dataset: Any, first: Any, alive: Alive) -> tuple[Any, int] | None:
    """Return the last batch of a pass and how many the pass has, where these are few and it has fewer samples.

    Args:
        dataset: gives them.
        first: the first batch.
        alive: see `Alive`.
    """
    count = int(dataset.cardinality()) if hasattr(dataset, "cardinality") else 0
    if not 1 < count <= _SHORT_PASS:
        return None
    if all(shape and shape[0] for shape in static_shapes.of_element(dataset.element_spec)):  # promised: of one size
        return None
    last, begun_ns = first, monotonic_ns()
    try:
        take = passes.batches(dataset)
        for _ in range(count):
            last = take()
            alive()
            if monotonic_ns() - begun_ns > _LONG_BATCH_NS:
                return None
    except Exception:  # an element fails that no step of a ceiling needs
        return None
    samples, fewer = _leading(first), _leading(last)
    is_smaller = len(samples) == len(fewer) == 1 and (fewer.pop() or 0) < (samples.pop() or 0)
    return (last, count) if is_smaller else None


def _leading(of: Any) -> set[int | None]:
    """Return the leading sizes of an element's tensors."""
    return {shape[0] for shape in static_shapes.of_element(of) if shape}


def _pair_ms(
    batch: Any, step: StepFunction, other: StepFunction, shortest_ns: int, alive: Alive
) -> tuple[float, float] | None:
    """Return how long a step takes, and another one that is to be shorter: medians of pairs.

    None as soon as the first of a pair is not surely longer.

    Args:
        batch: that they step on.
        step: the longer one.
        other: the other one.
        shortest_ns: the shortest step so far; a long one is not made again.
        alive: see `Alive`.
    """
    is_short = 2 * _FEWEST_PAIRS * shortest_ns < _MOST_PAIRS_NS
    least, fewest = (_SHORTER, _FEWEST_PAIRS) if is_short else (_MUCH_SHORTER, 2)

    def of(one: StepFunction) -> int:
        begun_ns = monotonic_ns()
        one(batch)
        alive()
        return monotonic_ns() - begun_ns

    of(other)
    pairs: list[tuple[int, int]] = []
    begun_ns = monotonic_ns()
    while len(pairs) < fewest or monotonic_ns() - begun_ns < _PAIRS_NS:
        pairs.append((of(step) if is_short else shortest_ns, of(other)))
        if pairs[-1][0] < least * pairs[-1][1]:
            return None
    longer_ms, shorter_ms = (statistics.median(each) / 1e6 for each in zip(*pairs, strict=True))
    return longer_ms, shorter_ms


def _shapes(batch: Any) -> list[Any]:
    """Return the shapes of a batch's tensors: TensorFlow compiles a model anew for others."""
    import tensorflow as tf

    return [getattr(part, "shape", None) for part in tf.nest.flatten(batch, expand_composites=True)]


def _gpus() -> list[str]:
    """Return the GPUs that a model of TensorFlow's may be on."""
    import keras
    import tensorflow as tf

    if keras.backend.backend() != "tensorflow":
        return []
    return [f"/gpu:{number}" for number, _ in enumerate(tf.config.list_logical_devices("GPU"))]


def _on_device(batch: Any, device: str) -> Any:
    """Return the batch with its numbers on the device, in tensors of their own; strings stay where they are."""
    import tensorflow as tf

    def moved(part: Any) -> Any:
        return tf.identity(part) if tf.is_tensor(part) and part.dtype != tf.string else part

    with tf.device(device):
        return tf.nest.map_structure(moved, batch, expand_composites=True)


def _is_on(batch: Any, device: str) -> bool:
    """Return whether some part of the batch is on the device."""
    import tensorflow as tf

    parts = filter(tf.is_tensor, tf.nest.flatten(batch, expand_composites=True))
    return any(part.device.lower().endswith(device.lower().removeprefix("/")) for part in parts)


def _copied(made: Sequence[Any], on_device: Any, step: StepFunction, alive: Alive) -> Iterator[Copied]:
    """Yield what steps on a batch in host memory take longer than those on the device's, by the median of pairs.

    Each has a tensor of its own there: where TensorFlow has moved one to a GPU once, it keeps what it moved.
    """
    longer_ns: list[int] = []
    step(_on_device(made[0], _HOST))  # TensorFlow sets a function up anew for a batch from elsewhere, for seconds
    begun_ns = monotonic_ns()
    while monotonic_ns() - begun_ns < _PAIRS_NS or len(longer_ns) < _FEWEST_PAIRS:
        if monotonic_ns() - begun_ns > _MOST_PAIRS_NS:
            return
        in_host_memory = _on_device(made[len(longer_ns) % len(made)], _HOST)
        ends_ns = [monotonic_ns()]
        for batch in (on_device, in_host_memory):
            step(batch)
            ends_ns.append(monotonic_ns())
        alive()
        start, between, end = ends_ns
        longer_ns.append((end - between) - (between - start))
    median_ns = statistics.median(longer_ns)
    error_ns = ERROR_OF_MEDIAN * statistics.stdev(longer_ns) / len(longer_ns) ** 0.5
    if median_ns > _CERTAIN_ERRORS * error_ns:
        yield Copied(size_bytes=nbytes(made[0]), ms=median_ns / 1e6)
