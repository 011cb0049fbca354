"""What each stage of a PyDataset or a generator costs: its Python alone, its workers and their queue, the copy."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.inspection import python_stages
from pipeline_bench.model.pipeline import Inspection, StageCost
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS
from pipeline_bench.tfdata import describe, fingerprint, keras_adapters, passes, throughput
from pipeline_bench.tfdata.keras_input import COPY, GET_ITEM, QUEUE, WORKERS_STAGE, KerasInput
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, Rate

_ALONE_SHARE, _PYTHON_SHARE, _WHOLE_SHARE = 0.3, 0.3, 0.3
"""Of the time for inspecting."""
_COPY_S = 0.5
_AGAIN_S = 0.2
"""For so long at least a PyDataset is asked again for batches that it has made."""
_KEPT = 0.25
"""A batch that takes less than this part of the time and of the CPU time that it took at first is kept by the class.
Files that are in memory by then spare the time alone: what is read is copied and decoded again."""
_HANDS_OVER = 1.25
"""Workers that are so many times as slow as they could make batches wait for these to be handed over."""
_LONGEST = 10
"""Times what a measurement is given: an element that comes later is given up."""


def inspect(
    read: KerasInput, inspection: Inspection, limit_s: float, alive: Callable[[], None]
) -> Iterator[Inspection]:
    """Measure the stages one after another; give the inspection with all that is known after each.

    Args:
        read: the input.
        inspection: as `KerasInput.described` gives it.
        limit_s: about the most time.
        alive: called now and then, as a sign of life.

    Raises:
        UserCodeError: it gives no batch, or fails.
    """
    if read.kind == "arrays":
        rate, first_ns, batch = _whole(read, limit_s * _WHOLE_SHARE)
        yield _with(inspection, {COPY: rate}, batch, first_ns=first_ns)
        return
    seconds, take, is_py_dataset = limit_s * _ALONE_SHARE, read.taker(), read.kind == "PyDataset"
    end_s = time.monotonic() + seconds
    made = _alone(take, seconds, alive, read.batches if is_py_dataset else None)
    batch = _guarded(lambda: _as_tuple(made.batch))
    rate, kept = made.rate, False
    yield (inspection := _with(inspection, {GET_ITEM: rate}, batch))
    leaves = [leaf for _, leaf in describe.components(batch)]
    if describe.are_doubles(leaves, leaves):
        inspection = python_stages.with_function(inspection, GET_ITEM, doubles=True)
    if is_py_dataset:
        again = _again(read.data, made.taken, max(_AGAIN_S, end_s - time.monotonic()), alive)
        inspection = _with_draws(inspection, batch, _guarded(lambda: _as_tuple(again.batch)))
        inspection, rate, kept = _of_later_epochs(read, inspection, made, again)
    costs, of_first_epoch = {GET_ITEM: rate}, kept and rate is made.rate
    told = functools.partial(_with, first_epoch=made.rate if kept and not read.in_processes else None)
    yield (inspection := told(inspection, costs, batch))
    looks = python_stages.look_into(
        inspection,
        GET_ITEM,
        lambda: _guarded(take),
        limit_s * _PYTHON_SHARE,
        alive,
        taker=read.taker_of_next_epoch if read.can_begin_again and not of_first_epoch else None,
        library=read.library(),
    )
    with suppress(_EndError):
        for found in looks:
            inspection = found
            yield found
    costs |= {COPY: _copy(batch)}
    if is_py_dataset:
        costs |= {WORKERS_STAGE: Rate(0.0, 0.0)}
    yield (inspection := told(inspection, costs, batch))
    alive()
    if is_py_dataset and read.pooled and not of_first_epoch:  # of which this process has made a part
        period, first_ns, _ = _whole(read, limit_s * _WHOLE_SHARE)
        yield told(inspection, _pooled(read, costs, period, first_ns), batch, first_ns=first_ns)


def _with_draws(inspection: Inspection, batch: Any, again: Any) -> Inspection:
    """Return the inspection with whether `__getitem__` draws random numbers: two calls for one batch differ then."""
    if fingerprint.digests(batch) == fingerprint.digests(again):
        return inspection
    return python_stages.with_function(inspection, GET_ITEM, random=True)


def _of_later_epochs(
    read: KerasInput, inspection: Inspection, made: _Taken, again: _Taken
) -> tuple[Inspection, Rate, bool]:
    """Return what is known of a PyDataset, what a batch takes, and whether the class keeps what it makes.

    If it does, a batch takes what it takes again: in later epochs, and so in trials, which first make a pass. It takes
    what it took at first if there is no time for such a pass, or no later epoch, or if what worker processes keep ends
    with them.

    Args:
        read: the PyDataset.
        inspection: of it.
        made: its first batches.
        again: as many as were taken of the same ones.
    """
    is_whole, first, later = made.taken == read.batches, made.rate, again.rate
    if later.elapsed_ns > _KEPT * first.elapsed_ns or later.cpu_ns > _KEPT * first.cpu_ns:
        return inspection, later if is_whole and again.taken >= made.taken else first, False
    took, takes = (units.milliseconds(each.elapsed_ns / NS_PER_MS) for each in (first, later))
    is_cold = not read.in_processes and (inspection.once or not is_whole)
    then = "What is said here is of later epochs: each trial first makes a pass."
    if read.in_processes:
        then = "Its worker processes end with each epoch, and what they keep with them."
    elif is_cold:
        then = "What is said here is of a first epoch, and later ones take less."
    note = (
        f"{inspection.stage(GET_ITEM).label} took {took} for a batch, and {takes} when it was asked for it again: it "
        f"keeps what it makes. {then}"
    )
    inspection = inspection.model_copy(update={"cold": is_cold, "notes": (*inspection.notes, note)})
    return inspection, first if is_cold or read.in_processes else later, True


def _pooled(read: KerasInput, costs: dict[int, Rate], period: Rate, first_ns: float) -> dict[int, Rate]:
    """Return the costs with a pool of workers, from the whole input's period.

    What it takes longer than a batch alone is handing it over. Processes make batches beside each other, and one thread
    takes all of them over, from bytes: where these come less often than they can be made, that is what takes the time.
    The pool's start, in each epoch anew, is shared by the epoch's batches.
    """
    alone, workers = costs[GET_ITEM], read.pool["workers"]
    own_ns, queue_ns = alone.elapsed_ns, max(0.0, period.elapsed_ns - alone.elapsed_ns)
    if read.in_processes:
        own_ns = max(alone.elapsed_ns / workers, alone.cpu_ns / min(workers, allowed_cpus()))
        hands_over = period.elapsed_ns > _HANDS_OVER * own_ns
        queue_ns = max(0.0, period.elapsed_ns - costs[COPY].elapsed_ns) if hands_over else 0.0
    start_ns = max(0.0, first_ns - alone.elapsed_ns)
    return {
        **costs,
        GET_ITEM: alone._replace(elapsed_ns=min(own_ns, period.elapsed_ns)),
        WORKERS_STAGE: Rate(start_ns / read.batches if read.batches else 0.0, 0.0),
        QUEUE: Rate(queue_ns, 0.0),
    }


def _with(
    inspection: Inspection,
    costs: dict[int, Rate],
    batch: Any,
    first_ns: float | None = None,
    first_epoch: Rate | None = None,
) -> Inspection:
    """Return the inspection with what the stages cost.

    Args:
        inspection: without it.
        costs: for a batch, by stage.
        batch: one of them.
        first_ns: how long the first one takes; None where that is not known.
        first_epoch: what the user's Python takes for a batch in the first epoch, where it keeps what it makes.
    """
    size = float(describe.nbytes(batch))
    known = {
        number: StageCost(stage=number, elements=1.0, element_bytes=size, **costs[number]._asdict()) for number in costs
    }
    if first_epoch is not None:
        own = {"first_epoch_ns": first_epoch.elapsed_ns, "first_epoch_cpu_ns": first_epoch.cpu_ns}
        known[GET_ITEM] = known[GET_ITEM].model_copy(update=own)
    return inspection.model_copy(
        update={
            "costs": tuple(known.values()),
            "batch_size": describe.batch_size(batch),
            "element_bytes": size,
            "first_ns": first_ns if first_ns is not None else inspection.first_ns,
        }
    )


class _EndError(UserCodeError):
    """A generator that cannot begin again gave its last batch."""


class _Taken(NamedTuple):
    """Batches that were taken one after another."""

    rate: Rate
    batch: Any
    """The first one."""
    taken: int


def _alone(take: Callable[[], Any], seconds: float, alive: Callable[[], None], most: int | None) -> _Taken:
    """Return how long a batch takes by itself, the first one aside, if there are more; `most` are taken at the most."""
    first = _taken(take, 0.0, alive)
    try:
        more = _taken(take, seconds, alive, None if most is None else most - 1)
    except (_EndError, StopIteration):
        return first
    return _Taken(more.rate, first.batch, first.taken + more.taken)


def _again(data: Any, count: int, seconds: float, alive: Callable[[], None]) -> _Taken:
    """Return how long the first batches of a PyDataset take, so many of them, once these have been made."""
    numbers = itertools.cycle(range(count))
    return _taken(lambda: data[next(numbers)], seconds, alive)


def _taken(take: Callable[[], Any], seconds: float, alive: Callable[[], None], most: int | None = None) -> _Taken:
    """Take batches for so long, one at least; `most` at the most.

    Raises:
        StopIteration: none may be taken.
        UserCodeError: taking one fails; `_EndError` where there is none.
    """
    batches: list[Any] = []
    count = 0

    def take_one() -> None:
        nonlocal count
        if count == most:
            raise StopIteration
        try:
            batch = _guarded(take)
        except _EndError:
            if not count:
                raise
            raise StopIteration from None
        batches[:] = batches or [batch]
        count += 1
        alive()

    rate = throughput.rate(take_one, seconds)
    return _Taken(rate, batches[0], count)


def _guarded(take: Callable[[], Any]) -> Any:
    try:
        return take()
    except StopIteration:
        raise _EndError(*passes.NO_ELEMENT) from None
    except Exception as error:
        message = f"Making a batch failed: {user_code.summary(error)}"
        raise UserCodeError(message, traceback=user_code.traceback_of(error)) from error


def _as_tuple(batch: Any) -> Any:
    """Return the batch with arrays as tensors, and a matrix of SciPy's as a sparse one, as Keras takes them."""
    import tensorflow as tf

    parts = tuple(part for part in batch if part is not None) if isinstance(batch, tuple | list) else batch
    return tf.nest.map_structure(_tensor, parts)


def _tensor(part: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    if isinstance(part, tf.Tensor | tf.RaggedTensor | tf.SparseTensor):
        return part
    if hasattr(part, "detach"):  # a tensor of PyTorch's, which may be on a GPU
        part = part.detach().cpu()
    if hasattr(part, "tocoo"):
        cells = part.tocoo()
        indices = np.stack([cells.row, cells.col], axis=1).astype(np.int64)
        return tf.sparse.reorder(tf.SparseTensor(indices, cells.data, cells.shape))
    return tf.convert_to_tensor(np.asarray(part))


def _copy(batch: Any) -> Rate:
    """Return what Keras' own part costs for a batch that is there: into tensors, from Python into tf.data."""
    import tensorflow as tf

    def given(part: Any) -> Any:
        return part.numpy() if isinstance(part, tf.Tensor) and part.dtype != tf.string else part

    arrays = tf.nest.map_structure(given, batch)

    same = keras_adapters.py_dataset(1 << 20, lambda _: arrays)
    iterator = FlatIterator(KerasInput("PyDataset", same, {"shuffle": False}).dataset())
    with Deadline(_LONGEST * _COPY_S) as deadline:
        iterator.take(deadline)
        return throughput.rate(lambda: iterator.take(deadline), _COPY_S)


def _whole(read: KerasInput, seconds: float) -> tuple[Rate, float, Any]:
    """Return how fast batches come with nothing behind them; how long the first takes; one of them.

    Raises:
        UserCodeError: there is none, or it fails.
    """
    import tensorflow as tf

    with user_code.element_errors():
        dataset = read.dataset()
        start_ns = time.perf_counter_ns()
        batch = next(iter(dataset), None)
        first_ns = float(time.perf_counter_ns() - start_ns)
        if batch is None:
            raise UserCodeError(*passes.NO_ELEMENT)
        if not isinstance(dataset, tf.data.Dataset):
            return throughput.rate(passes.batches(dataset), seconds), first_ns, _as_tuple(batch)
        again = dataset.repeat()
        with Deadline(_LONGEST * seconds) as deadline:
            iterator = FlatIterator(again)
            iterator.take(deadline)
            return throughput.rate(lambda: iterator.take(deadline), seconds), first_ns, batch
