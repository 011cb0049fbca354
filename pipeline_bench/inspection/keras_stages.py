"""What each stage of a PyDataset or a generator costs: its Python alone, its workers and their queue, the copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.inspection import python_stages
from pipeline_bench.model.pipeline import Inspection, StageCost
from pipeline_bench.tfdata import describe, fingerprint, keras_input, passes, throughput
from pipeline_bench.tfdata.keras_input import COPY, GET_ITEM, QUEUE, WORKERS_STAGE, KerasInput
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, Rate

_ALONE_SHARE, _PYTHON_SHARE, _WHOLE_SHARE = 0.3, 0.3, 0.3
"""Of the time for inspecting."""
_COPY_S = 0.5
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
    take = read.taker()
    rate, batch = _alone(take, limit_s * _ALONE_SHARE, alive)
    costs = {GET_ITEM: rate}
    yield (inspection := _with(inspection, costs, batch))
    leaves = [leaf for _, leaf in describe.components(batch)]
    if describe.are_doubles(leaves, leaves):
        inspection = python_stages.with_function(inspection, GET_ITEM, doubles=True)
    if read.kind == "PyDataset":
        inspection = _with_draws(inspection, batch, _as_tuple(_guarded(lambda: read.data[0])))
        alive()
    stage = inspection.stage(GET_ITEM)
    keeps_batches = read.kind == "PyDataset" and not (stage.draws or stage.epoch_hooks)
    looks = python_stages.look_into(
        inspection,
        GET_ITEM,
        lambda: _guarded(take),
        limit_s * _PYTHON_SHARE,
        alive,
        taker=read.taker_of_next_epoch if read.can_begin_again and not keeps_batches else None,
        library=read.library(),
    )
    with suppress(_EndError):
        for found in looks:
            inspection = found
            yield found
    costs |= {COPY: _copy(batch)}
    if read.kind == "PyDataset":
        costs |= {WORKERS_STAGE: Rate(0.0, 0.0)}
    yield (inspection := _with(inspection, costs, batch))
    alive()
    if read.pooled:
        period, first_ns, _ = _whole(read, limit_s * _WHOLE_SHARE)
        yield _with(inspection, _pooled(read, costs, period, first_ns), batch, first_ns=first_ns)


def _with_draws(inspection: Inspection, batch: Any, again: Any) -> Inspection:
    """Return the inspection with whether `__getitem__` draws random numbers: two calls for one batch differ then."""
    if fingerprint.digests(batch) == fingerprint.digests(again):
        return inspection
    return python_stages.with_function(inspection, GET_ITEM, random=True)


def _pooled(read: KerasInput, costs: dict[int, Rate], period: Rate, first_ns: float) -> dict[int, Rate]:
    """Return the costs with a pool of workers, from the whole input's period.

    What it takes longer than a batch alone is handing it over: to processes and back, as bytes. Its start, in each
    epoch anew, is shared by the epoch's batches.
    """
    alone, batches = costs[GET_ITEM], read.data.num_batches
    start_ns = max(0.0, first_ns - alone.elapsed_ns)
    return {
        **costs,
        GET_ITEM: alone._replace(elapsed_ns=min(alone.elapsed_ns, period.elapsed_ns)),
        WORKERS_STAGE: Rate(start_ns / batches if batches else 0.0, 0.0),
        QUEUE: Rate(max(0.0, period.elapsed_ns - alone.elapsed_ns), 0.0),
    }


def _with(inspection: Inspection, costs: dict[int, Rate], batch: Any, first_ns: float | None = None) -> Inspection:
    size = float(describe.nbytes(batch))
    return inspection.model_copy(
        update={
            "costs": tuple(
                StageCost(stage=number, elements=1.0, element_bytes=size, **rate._asdict())
                for number, rate in costs.items()
            ),
            "batch_size": describe.batch_size(batch),
            "element_bytes": size,
            "first_ns": first_ns if first_ns is not None else inspection.first_ns,
        }
    )


class _EndError(UserCodeError):
    """A generator that cannot begin again gave its last batch."""


def _alone(take: Callable[[], Any], seconds: float, alive: Callable[[], None]) -> tuple[Rate, Any]:
    """Return how long a batch takes by itself, the first one aside, if there are more; and one of them."""
    taken: list[Any] = []

    def take_one() -> None:
        taken[:] = [_guarded(take)]
        alive()

    def take_another() -> None:
        try:
            take_one()
        except _EndError:
            raise StopIteration from None

    first = throughput.rate(take_one, 0.0)
    batch = _as_tuple(taken[0])
    try:
        return throughput.rate(take_another, seconds), batch
    except StopIteration:
        return first, batch


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

    same = keras_input.py_dataset(1 << 20, lambda _: arrays)
    iterator = FlatIterator(keras_input.KerasInput("PyDataset", same, {"shuffle": False}).dataset())
    with Deadline(_LONGEST * _COPY_S) as deadline:
        iterator.take(deadline)
        return throughput.rate(lambda: iterator.take(deadline), _COPY_S)


def _whole(read: KerasInput, seconds: float) -> tuple[Rate, float, Any]:
    """Return how fast batches come with nothing behind them; how long the first takes; one of them.

    Raises:
        UserCodeError: there is none, or it fails.
    """
    with user_code.element_errors():
        dataset = read.dataset()
        start_ns = time.perf_counter_ns()
        batch = next(iter(dataset), None)
        first_ns = float(time.perf_counter_ns() - start_ns)
        if batch is None:
            raise UserCodeError(*passes.NO_ELEMENT)
        again = dataset.repeat()
        with Deadline(_LONGEST * seconds) as deadline:
            iterator = FlatIterator(again)
            iterator.take(deadline)
            return throughput.rate(lambda: iterator.take(deadline), seconds), first_ns, batch
