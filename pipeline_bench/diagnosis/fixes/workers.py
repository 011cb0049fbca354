"""Of a PyDataset: Keras' workers and their queue, and what is kept of its batches; of any Python, of its calls."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.diagnosis.fixes.cache_size import (
    fits,
    no_room,
    price,
    price_of_results,
    results_bytes,
    size_bytes_of,
)
from pipeline_bench.model.calls import WORKERS, WORKERS_QUEUE, MemoizableCall, Value
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import SetArgument
from pipeline_bench.model.function_edits import KeepBatches, Memoize
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.text import joined, one_line, units

_WAITING_A_CORE = 8
"""Threads a core for batches that mostly wait."""
_MOST_WORKERS = 64
"""Each holds a batch."""
_LONGER_QUEUE = 4
"""So many times as many batches in the queue: it evens out batches that take differently long."""
_CALL_CHARACTERS = 40
_PICKLED = "the PyDataset must be picklable, and each process starts with the same random state of Python and NumPy"


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


def _refills(inspection: Inspection, context: Context) -> str | None:
    """Return why each batch has to be used before the next one is made; worker processes hand over copies."""
    if any(run.function is not None and run.function.changes_state for _, run, *_ in pools(inspection)):
        return (
            "its __getitem__ fills the same arrays anew for each batch, which would change batches that wait for their "
            "step, or are kept; it can be tried with arrays that are made in each call"
        )
    return None


@kind(saving=0.9, blocker=_refills, apis=("PyDataset",))
def worker_threads(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make several batches at the same time, in threads: worth it where they wait, or leave Python's lock alone."""
    for stage, run, workers, processes in pools(inspection):
        cost = inspection.cost(run.id)
        waits = cost is not None and segments.waits(cost, context.cores)
        for count in _counts(*([context.cores * _WAITING_A_CORE] if waits else []), context.cores):
            if count > workers or processes:
                yield fix(
                    f"{count} worker threads",
                    f"Have {count} threads run {short(run)}'s __getitem__",
                    *_set(stage, workers=count, use_multiprocessing=False),
                    stages=[run.id, stage.id, *(_queues(inspection) if processes else [])],
                    threads=workers <= 1 or processes,
                    caveat="its __getitem__ must be safe to call from several threads" if workers <= 1 else "",
                )


def _draw_alike(inspection: Inspection, context: Context) -> str | None:
    """Return why processes would draw other random numbers than the one that makes the batches as written."""
    if any(run.draws and not processes for _, run, _, processes in pools(inspection)):
        return (
            "its __getitem__ draws random numbers, and Keras starts the processes in each epoch anew from the same "
            "random state of Python and NumPy: each may draw what the others draw, in every epoch"
        )
    return None


@kind(saving=0.8, blocker=_draw_alike, apis=("PyDataset",), has_price=True)
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


@kind(saving=0.3, apis=("PyDataset",))
def longer_queue(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Hold more batches ready: worth it where some take much longer than others."""
    for stage, run, _, _ in pools(inspection):
        size = stage.arguments.get("max_queue_size")
        if isinstance(size, int) and any(each.method == WORKERS_QUEUE for each in inspection.stages):
            yield fix(
                f"queue of {_LONGER_QUEUE * size}",
                f"Hold up to {_LONGER_QUEUE * size} batches ready",
                *_set(stage, max_queue_size=_LONGER_QUEUE * size),
                stages=[run.id, stage.id],
            )


@kind(saving=0.4, apis=("PyDataset",))
def no_workers(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Make the batches one by one without a pool: worth it where handing them over costs more than making them."""
    for stage, run, workers, processes in pools(inspection):
        if workers > 1 or processes:
            yield fix(
                "no worker pool",
                f"Run {short(run)}'s __getitem__ one batch at a time, without a pool",
                *_set(stage, workers=1, use_multiprocessing=False),
                stages=[run.id, stage.id, *_queues(inspection)],
            )


def _queues(inspection: Inspection) -> list[int]:
    """Return the stage in which a pool hands its batches over, in a list; without a pool there is none."""
    return [each.id for each in inspection.stages if each.method == WORKERS_QUEUE]


def _whole_bytes(inspection: Inspection, stage: Stage) -> float | None:
    """Return the size of all batches of a PyDataset; None where it is not known, or each epoch may have others."""
    may_differ = inspection.api != "PyDataset" or stage.draws or stage.epoch_hooks
    return None if may_differ else size_bytes_of(inspection, stage)


def _batches_not_kept(inspection: Inspection, context: Context) -> str | None:
    """Return why the batches of a PyDataset are not kept."""
    sizes = (_whole_bytes(inspection, stage) for _, stage, *_ in pools(inspection))
    return _read_once(inspection) or _refills(inspection, context) or no_room(next(sizes, None), context)


@kind(saving=0.9, blocker=_batches_not_kept, apis=("PyDataset",), has_price=True)
def keep_batches(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep the batches that a PyDataset made, if each is the same in every epoch."""
    here, edits, slower = _without_processes(inspection)
    for workers, stage, _, _ in pools(inspection):
        size_bytes = _whole_bytes(inspection, stage)
        if size_bytes is None:
            continue
        yield fix(
            f"keep what {stage.label} gives",
            f"Keep the batches that {short(stage)}'s __getitem__ makes{here}, so that only the first epoch makes them",
            KeepBatches(stage=stage.id, workers=workers.id),
            *edits,
            stages=[stage.id, *(_queues(inspection) if edits else [])],
            caveat=f"{price([stage], size_bytes, 'in memory')}; other objects of the class keep theirs too{slower}",
        )


def _results_not_kept(inspection: Inspection, context: Context) -> str | None:
    """Return why no results of calls are kept: what is kept is of one stage, whose Python was looked into."""
    calls = [call for stage in inspection.stages for call in _calls_of(stage, inspection, context)]
    size_bytes = results_bytes(calls, inspection.pass_elements)
    unread, why = _read_once(inspection), no_room(size_bytes, context)
    if unread is not None or why is None or size_bytes is None or not all(call.singles for call in calls):
        return unread or why
    return (
        f"{why}; 32-bit floats, which held the same values where they were compared, would take "
        f"{units.size(size_bytes / 2)} (of nibabel: `get_fdata(dtype=np.float32)`), and what is cut out or made "
        "smaller first less still"
    )


@kind(saving=0.95, blocker=_results_not_kept, apis=("PyDataset", "generator", "tf.data"), has_price=True)
def memoize(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Keep what calls give, such as decoded pictures, in Python whose batches differ in each epoch, or are too many."""
    here, edits, slower = _without_processes(inspection)
    for stage in inspection.stages:
        calls, whole_bytes = _calls_of(stage, inspection, context), _whole_bytes(inspection, stage)
        if not calls or (whole_bytes is not None and fits(whole_bytes, context)):
            continue
        first, *others = calls
        more = f", and {len(others)} more" if others else ""
        variant = f"keep what {one_line(first.text, _CALL_CHARACTERS - len(more))} gives{more}"
        then = "makes them" if others else "makes it" if first.variable else "calls it"
        workers = next((each.id for each, *_ in pools(inspection)), None)
        yield fix(
            f"keep {first.variable} of {first.lines}{more}" if first.variable else variant,
            f"Keep {joined(map(_in_words, calls), 'and')}{here}, so that only the first epoch {then}",
            *(Memoize(stage=stage.id, workers=workers, call=each) for each in calls),
            *edits,
            stages=[stage.id, *(_queues(inspection) if edits else [])],
            caveat=f"{price_of_results(calls, inspection.pass_elements)}{slower}",
        )


def _calls_of(stage: Stage, inspection: Inspection, context: Context) -> list[MemoizableCall]:
    """Return the calls in a stage's Python to keep: those that memory has room for together, or else the smallest."""
    found = stage.function.memoizable_calls if stage.function is not None else ()
    kept: list[MemoizableCall] = []
    for each in found:
        if fits(results_bytes([*kept, each], inspection.pass_elements), context):
            kept.append(each)
    return kept or sorted(found, key=lambda call: call.batch_bytes)[:1]


def _in_words(call: MemoizableCall) -> str:
    if not call.variable:
        return f"what `{call.text}` gives"
    return f"the `{call.variable}` that {call.lines} {'makes' if call.line == call.end_line else 'make'}"


def _read_once(inspection: Inspection) -> str | None:
    """Return why nothing would be read from what is kept; what calls gave is kept beyond a pass that is left early."""
    if not inspection.once or (inspection.training is not None and inspection.training.leaves_passes):
        return None
    return f"{stage_graph.one_pass(inspection)}, and no batch would be asked for again"


def _without_processes(inspection: Inspection) -> tuple[str, list[SetArgument], str]:
    """Return how to keep things where processes make the batches, as words and edits, and what it costs.

    Each process would keep its own. The first epoch is then made without them.
    """
    counts = [(stage, workers) for stage, _, workers, processes in pools(inspection) if processes]
    edits = [edit for stage, _ in counts for edit in _set(stage, workers=1, use_multiprocessing=False)]
    if not counts:
        return "", edits, ""
    most = max(workers for _, workers in counts)
    slower = f"; the first epoch may take up to {most} times as long" if most > 1 else ""
    return ", in one process in place of the workers", edits, slower


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
