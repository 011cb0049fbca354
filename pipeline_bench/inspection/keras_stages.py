"""What each stage of a PyDataset or a generator costs: its Python alone, its workers and their queue, the copy."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
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

_ALONE_SHARE, _PYTHON_SHARE, _WHOLE_SHARE, _SIZES_SHARE = 0.3, 0.3, 0.3, 0.1
"""Of the time for inspecting."""
_COPY_S = 0.5
_AGAIN_S = 0.2
"""For so long at least a PyDataset is asked again for batches that it has made."""
_KEPT = 0.25
"""A batch that takes less than this part of the time and of the CPU time that it took at first is kept by the class.
Files that are in memory by then spare the time alone: what is read is copied and decoded again."""
_HANDS_OVER = 1.25
"""Workers that are so many times as slow as they could make batches may wait for these to be handed over."""
_HANDED_S = 0.2
_THROUGH_PIPE = 4.0
"""At most, a batch takes so many times what its bytes take to be made and read, from process to process. Of 0.4 to
77 MB of floats it took 2.4 to 3.3 times as long, two processes on two cores."""
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
    made, batch = _alone(take, seconds, alive, read.batches if is_py_dataset else None)
    rate, keeps, is_whole = made.rate, False, made.taken == read.batches
    yield (inspection := _with(inspection, {GET_ITEM: rate}, batch))
    leaves = [leaf for _, leaf in describe.components(batch)]
    if describe.are_doubles(leaves, leaves):
        inspection = python_stages.with_function(inspection, GET_ITEM, doubles=True)
    if is_py_dataset:
        inspection = _with_draws(read, inspection, batch, alive)
        same = itertools.cycle(range(made.taken))
        again = _taken(lambda: read.data[next(same)], max(_AGAIN_S, end_s - time.monotonic()), alive)
        inspection, rate, keeps = _of_later_epochs(read, inspection, made, again)
    of_first_epoch = keeps and rate is made.rate
    costs, calls = {GET_ITEM: rate}, 1
    if of_first_epoch:
        costs, calls = {GET_ITEM: _together(read, rate)}, read.pool["workers"] if read.in_processes else 1
    first_epoch = _together(read, made.rate) if keeps and is_whole and not read.in_processes else None
    told = functools.partial(_with, first_epoch=first_epoch, calls=calls)
    yield (inspection := told(inspection, costs, batch))
    looks = python_stages.look_into(
        inspection,
        GET_ITEM,
        lambda: _guarded(take),
        limit_s * _PYTHON_SHARE,
        alive,
        taker=read.taker_of_next_epoch if read.can_begin_again and not (of_first_epoch and is_whole) else None,
        again=(lambda: lambda: read.data[0]) if is_py_dataset else None,
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
        handed_ns = _handed_ns(_guarded(lambda: read.data[0])) if read.in_processes else 0.0
        costs = _pooled(read, costs, period, first_ns, handed_ns)
        yield (inspection := told(inspection, costs, batch, first_ns=first_ns))
    taker, seconds = read.taker_of_next_epoch, limit_s * _SIZES_SHARE
    yield from python_stages.with_sizes(inspection, GET_ITEM, taker, read.batches, seconds, alive)


def _with_draws(read: KerasInput, inspection: Inspection, batch: Any, alive: Callable[[], None]) -> Inspection:
    """Return the inspection with whether `__getitem__` draws random numbers: two calls for one batch differ then.

    Also with whether it changes a state of its own: a batch that it gave is another one once the next is made. Arrays
    that are only given with each batch, such as ones for labels, stay what they are.

    Args:
        read: the PyDataset.
        inspection: of it.
        batch: its first one.
        alive: called after each call.
    """
    given = _guarded(lambda: read.data[0])
    before = fingerprint.digests(_guarded(lambda: _as_tuple(given)))
    alive()
    refills = False
    if read.batches != 1:
        _guarded(lambda: read.data[1])
        refills = fingerprint.digests(_guarded(lambda: _as_tuple(given))) != before
        alive()
    draws = fingerprint.digests(batch) != before
    return python_stages.with_function(inspection, GET_ITEM, random=draws, changes_state=refills)


def _of_later_epochs(
    read: KerasInput, inspection: Inspection, made: _Taken, again: _Taken
) -> tuple[Inspection, Rate, bool]:
    """Return what is known of a PyDataset, what a batch takes, and whether the class keeps what it makes, or may.

    If it does, a batch takes what it takes again: in later epochs, and so in trials, which first make a pass. It takes
    what it took at first if there is no later epoch, or if what worker processes keep ends with them. If not all
    batches were made, it takes what it took at first: the class may keep only so many, and an epoch has more of them.
    Of a single batch nothing is said: its first call also does what is done once.

    Args:
        read: the PyDataset.
        inspection: of it.
        made: its first batches.
        again: as many as were taken of the same ones.
    """
    is_whole, first, later = made.taken == read.batches, made.rate, again.rate
    takes_less = later.elapsed_ns <= _KEPT * first.elapsed_ns and later.cpu_ns <= _KEPT * first.cpu_ns
    if made.taken == 1 or not takes_less:
        return inspection, later if is_whole and again.taken >= made.taken else first, False
    took, takes = (units.milliseconds(each.elapsed_ns / NS_PER_MS) for each in (first, later))
    is_cold = not read.in_processes and inspection.once and is_whole
    said = "What is said here is of later epochs: each trial first makes a pass."
    if read.in_processes:
        said = "Its worker processes end with each epoch, and what they keep with them."
    elif not is_whole:
        said = "What is said here is of batches that it makes; if it keeps all of them, later epochs make none."
    elif is_cold:
        said = "What is said here is of the first epoch."
    note = (
        f"{inspection.stage(GET_ITEM).label} took {took} for a batch, and {takes} when it was asked for it again: it "
        f"{'keeps' if is_whole else 'may keep'} what it makes. {said}"
    )
    inspection = inspection.model_copy(update={"cold": is_cold, "notes": (*inspection.notes, note)})
    return inspection, later if is_whole and not is_cold and not read.in_processes else first, True


def _together(read: KerasInput, alone: Rate) -> Rate:
    """Return what a batch takes at least where a pool's workers make several: it stands for a pool not measured.

    Processes share the cores, and threads Python's lock.
    """
    if not read.pooled:
        return alone
    workers = read.pool["workers"]
    at_once = min(workers, allowed_cpus()) if read.in_processes else 1
    return alone._replace(elapsed_ns=max(alone.elapsed_ns / workers, alone.cpu_ns / at_once))


def _pooled(
    read: KerasInput, costs: dict[int, Rate], period: Rate, first_ns: float, handed_ns: float = 0.0
) -> dict[int, Rate]:
    """Return the costs with a pool of workers, from the whole input's period.

    What it takes longer than a batch alone is handing it over. Processes make batches beside each other, and one thread
    takes all of them over, from bytes: where these come less often than they can be made, that is what takes the time,
    if making the bytes and reading them takes so long. Else processes make them no faster than that, as where they
    share cores with other programs. The pool's start, in each epoch anew, is shared by the epoch's batches.
    """
    alone = costs[GET_ITEM]
    own_ns, queue_ns = alone.elapsed_ns, max(0.0, period.elapsed_ns - alone.elapsed_ns)
    if read.in_processes:
        together_ns = _together(read, alone).elapsed_ns
        rest_ns = max(0.0, period.elapsed_ns - costs[COPY].elapsed_ns)
        most_ns = min(_THROUGH_PIPE * handed_ns, rest_ns)
        if period.elapsed_ns <= _HANDS_OVER * together_ns:
            own_ns, queue_ns = together_ns, 0.0
        elif _HANDS_OVER * most_ns >= rest_ns:
            own_ns, queue_ns = together_ns, rest_ns
        else:
            queue_ns = min(most_ns, max(handed_ns, queue_ns))
    start_ns = max(0.0, first_ns - alone.elapsed_ns)
    return {
        **costs,
        GET_ITEM: alone._replace(elapsed_ns=min(own_ns, period.elapsed_ns)),
        WORKERS_STAGE: Rate(start_ns / read.batches if read.batches else 0.0, 0.0),
        QUEUE: Rate(queue_ns, 0.0),
    }


def _handed_ns(batch: Any) -> float:
    """Return how long a batch takes into bytes and back, as from a worker process; 0 where it cannot be done here."""
    try:
        return throughput.rate(lambda: ForkingPickler.loads(ForkingPickler.dumps(batch)), _HANDED_S).elapsed_ns
    except Exception:  # whatever a class of the user's raises, the pool has handed its batches over
        return 0.0


def _with(
    inspection: Inspection,
    costs: dict[int, Rate],
    batch: Any,
    first_ns: float | None = None,
    first_epoch: Rate | None = None,
    calls: int = 1,
) -> Inspection:
    """Return the inspection with what the stages cost.

    Args:
        inspection: without it.
        costs: for a batch, by stage.
        batch: one of them.
        first_ns: how long the first one takes; None where that is not known.
        first_epoch: what the user's Python takes for a batch in the first epoch, where it keeps what it makes.
        calls: how many of the user's Python run at the same time in what its cost is.
    """
    size = float(describe.nbytes(batch))
    known = {
        number: StageCost(stage=number, elements=1.0, element_bytes=size, **costs[number]._asdict()) for number in costs
    }
    if calls > 1:
        known[GET_ITEM] = known[GET_ITEM].model_copy(update={"calls": float(calls)})
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
    taken: int


def _alone(take: Callable[[], Any], seconds: float, alive: Callable[[], None], most: int | None) -> tuple[_Taken, Any]:
    """Return how long a batch takes by itself, the first one aside, if there are more; and that first one as tensors.

    These are made at once: the next call may fill the same arrays again. `most` batches are taken at the most.
    """
    batches: list[Any] = []
    first = _taken(lambda: batches.append(take()), 0.0, alive)
    batch = _guarded(lambda: _as_tuple(batches.pop()))
    try:
        more = _taken(take, seconds, alive, None if most is None else most - 1)
    except (_EndError, StopIteration):
        return first, batch
    return _Taken(more.rate, first.taken + more.taken), batch


def _taken(take: Callable[[], Any], seconds: float, alive: Callable[[], None], most: int | None = None) -> _Taken:
    """Take batches for so long, one at least; `most` at the most.

    Raises:
        StopIteration: none may be taken.
        UserCodeError: taking one fails; `_EndError` where there is none.
    """
    count = 0

    def take_one() -> None:
        nonlocal count
        if count == most:
            raise StopIteration
        try:
            _guarded(take)
        except _EndError:
            if not count:
                raise
            raise StopIteration from None
        count += 1
        alive()

    rate = throughput.rate(take_one, seconds)
    return _Taken(rate, count)


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
