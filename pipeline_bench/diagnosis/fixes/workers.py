"""Keras' workers for a PyDataset: more threads, processes, a longer queue, or none of them."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import bottleneck
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.model.calls import WORKERS, Value
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import SetArgument
from pipeline_bench.model.pipeline import Inspection, Stage

_WAITING_A_CORE = 8
"""Threads a core for batches that mostly wait."""
_MOST_WORKERS = 64
"""Each holds a batch."""
_LONGER_QUEUE = 4
"""So many times as many batches in the queue: it evens out batches that take differently long."""
_PICKLED = (
    "the PyDataset must be picklable, and each process begins with the same state of random and of NumPy's numbers"
)


def pools(inspection: Inspection) -> Iterator[tuple[Stage, Stage, int, bool]]:
    """Yield the stage of the workers with the one that they run, their number, and whether they are processes."""
    for stage in inspection.stages:
        if stage.method == WORKERS:
            workers, processes = stage.arguments.get("workers"), stage.arguments.get("use_multiprocessing")
            yield (
                stage,
                inspection.stage(stage.inputs[0]),
                workers if isinstance(workers, int) else 1,
                processes is True,
            )


@kind(saving=0.9, api="PyDataset")
def worker_threads(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make several batches at the same time, in threads: worth it where they wait, or leave Python's lock alone."""
    for stage, run, workers, processes in pools(inspection):
        cost = inspection.cost(run.id)
        waits = cost is not None and bottleneck.waits(cost)
        for count in _counts(*([context.cores * _WAITING_A_CORE] if waits else []), context.cores):
            if count > workers or processes:
                yield fix(
                    f"{count} worker threads",
                    f"Have {count} threads run {short(run)}'s __getitem__",
                    *_set(stage, workers=count, use_multiprocessing=False),
                    stages=[run.id, stage.id],
                    threads=workers <= 1 or processes,
                    caveat="its __getitem__ must be safe to call from several threads" if workers <= 1 else "",
                )


@kind(saving=0.8, api="PyDataset", has_price=True)
def worker_processes(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make several batches at the same time, in processes, which do not share Python's lock."""
    for stage, run, workers, processes in pools(inspection):
        for count in _counts(context.cores, context.cores // 2):
            if count != workers or not processes:
                yield fix(
                    f"{count} worker processes",
                    f"Have {count} processes run {short(run)}'s __getitem__",
                    *_set(stage, workers=count, use_multiprocessing=True),
                    stages=[run.id, stage.id],
                    caveat=_PICKLED,
                )


@kind(saving=0.3, api="PyDataset")
def longer_queue(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Hold more batches ready: worth it where some take much longer than others."""
    for stage, run, _, _ in pools(inspection):
        size = stage.arguments.get("max_queue_size")
        if isinstance(size, int) and any(each.method == "queue" for each in inspection.stages):
            yield fix(
                f"queue of {_LONGER_QUEUE * size}",
                f"Hold up to {_LONGER_QUEUE * size} batches ready",
                *_set(stage, max_queue_size=_LONGER_QUEUE * size),
                stages=[run.id, stage.id],
            )


@kind(saving=0.4, api="PyDataset")
def no_workers(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make the batches one by one without a pool: worth it where handing them over costs more than making them."""
    for stage, run, workers, processes in pools(inspection):
        if workers > 1 or processes:
            queue = [each.id for each in inspection.stages if each.method == "queue"]
            yield fix(
                "no worker pool",
                f"Run {short(run)}'s __getitem__ one batch at a time, without a pool",
                *_set(stage, workers=1, use_multiprocessing=False),
                stages=[run.id, stage.id, *queue],
            )


def _counts(*wanted: int) -> list[int]:
    """Return the numbers of workers to try, each once, from two on."""
    return list(dict.fromkeys(min(max(2, count), _MOST_WORKERS) for count in wanted))


def _set(stage: Stage, **wanted: Value) -> list[SetArgument]:
    """Return the edits that give the workers these arguments, where they have others."""
    return [
        SetArgument(stage=stage.id, argument=name, value=value)
        for name, value in wanted.items()
        if stage.arguments.get(name) != value
    ]
