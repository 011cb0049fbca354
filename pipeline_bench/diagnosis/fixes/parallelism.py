"""More calls, files, threads or processes at the same time, and elements as they are ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.model.calls import AUTOTUNE, POOLED, Value
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import Edit, Interleave, SetArgument, SetOptions
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.service_edits import OffloadToService

_WAITING_A_CORE = (2, 8)
"""Calls that wait need no core each; AUTOTUNE never goes beyond one call a core."""
_MORE_CALLS = 4
"""Of a map that is parallel already: so many times as many."""
_MOST_CALLS = 256
"""Each call that waits holds a thread."""
_FILES_A_CORE = 4
"""Reads wait more than they compute, so more of them are opened than there are cores."""
_MOST_FILES = 16
"""Each open file has its buffers; AUTOTUNE decides how many of them are read at the same time."""
_OTHER_ORDER = "the files' samples are mixed in another order"
_NEEDS_THREADS = "its function must be safe to call from several threads"
_OTHER_DRAWS = "which sample gets which random numbers then differs from run to run, also with a seed"
_DRAW_ALIKE = "; two calls at the same time may draw the same numbers"
_DRAWN_ALIKE = "draws alike for several parts of an element, by equal seeds, as for a picture and its mask"
_DEFAULTS = {
    "autotune.enabled": "AUTOTUNE",
    "experimental_optimization.apply_default_optimizations": "its optimizations",
    "experimental_optimization.inject_prefetch": "a prefetch at the end",
    "experimental_optimization.map_and_batch_fusion": "fusion of map and batch",
    "experimental_optimization.map_parallelization": "parallel maps",
}
"""What the options that are True by default do."""


@kind(saving=1.0, has_price=True)
def parallel_map(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Run a map's calls beside each other. A stateless map is run so by default, which is then no fix."""
    return (each for each in _parallel_maps(inspection, context) if not _parts_alike(each, inspection))


def _parallel_maps(inspection: Inspection, context: Context) -> Iterator[Fix]:
    for stage in inspection.stages:
        given = stage.arguments.get("num_parallel_calls")
        by_default = given is None and inspection.default_parallelised and not stage_graph.may_differ(stage)
        if stage.method != "map" or by_default or stage.serial:
            continue
        alone = given in (None, 1)
        threads = alone and _needs_threads(stage)
        for calls in _degrees(stage, inspection, context.cores):
            edits: list[Edit] = [SetArgument(stage=stage.id, argument="num_parallel_calls", value=calls)]
            variant = f"parallel {stage.label}"
            title = f"Run {short(stage)} on several cores, as many as AUTOTUNE finds"
            if calls != AUTOTUNE:
                # The calls would else share a pool of one thread a core, where waiting ones keep the others out.
                edits.append(_room_to_wait(stage, inspection, calls))
                variant, title = f"{calls} {variant}", f"Run {calls} calls of {short(stage)} at the same time"
            yield fix(
                variant,
                title,
                *edits,
                reorders=alone and stage_graph.any_order(inspection, stage),
                threads=threads,
                caveat=_NEEDS_THREADS if threads else _of_draws(stage) * alone,
            )


@kind(saving=0.6)
def parallel_batch(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Copy the elements of several batches at the same time: worth it for large elements."""
    for stage in inspection.stages:
        if stage.method == "batch" and stage.arguments.get("num_parallel_calls") in (None, 1):
            yield fix(
                f"parallel {stage.label}",
                f"Have {short(stage)} copy several batches at the same time",
                SetArgument(stage=stage.id, argument="num_parallel_calls", value=AUTOTUNE),
                reorders=stage_graph.any_order(inspection, stage),
            )


@kind(saving=0.95)
def parallel_interleave(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Read several files, or other inner datasets, at the same time."""
    return (each for each in _parallel_inputs(inspection, context) if not _parts_alike(each, inspection))


def _parallel_inputs(inspection: Inspection, context: Context) -> Iterator[Fix]:
    files = min(_MOST_FILES, max(4, _FILES_A_CORE * context.cores))
    for stage in inspection.stages:
        if stage.method == "interleave":
            yield from _of_interleave(inspection, stage, files, context)
        elif stage.method == "flat_map" and stage_graph.reads_files(stage):
            yield fix(
                f"interleave for {stage.label}",
                f"Interleave {files} of the files that {short(stage)} reads one after another",
                Interleave(stage=stage.id, cycle_length=files),
                reorders=True,
                threads=_needs_threads(stage),
                caveat=_OTHER_ORDER,
            )
        elif stage.method in ("TFRecordDataset", "TextLineDataset"):
            yield from _of_reader(inspection, stage, files, context.cores)


def _of_reader(inspection: Inspection, stage: Stage, files: int, cores: int) -> Iterator[Fix]:
    known, present = stage.arguments.get("filenames"), stage.arguments.get("num_parallel_reads")
    most = known if isinstance(known, int) else _MOST_CALLS if known is None else 1  # a text says what they are
    reads = 1 if present is None else present if isinstance(present, int) and present > 0 else cores
    counts = [files] if reads < cores or present is None else []
    counts = _with_more(counts, _more_calls(inspection, stage, reads, cores))
    for count in dict.fromkeys(min(each, most) for each in counts if reads < most):
        yield fix(
            f"{count} parallel reads in {stage.label}",
            f"Have {short(stage)} read {count} files at the same time",
            SetArgument(stage=stage.id, argument="num_parallel_reads", value=count),
            reorders=True,
            caveat=_OTHER_ORDER,
        )


def _other_pairs(inspection: Inspection, context: Context) -> str:
    return (
        f"it {_DRAWN_ALIKE}: calls at the same time would give these parts different numbers; one draw for all of "
        "them, or stateless ops of one seed, would be right in any order"
    )


@kind(saving=1.0, blocker=_other_pairs)
def parallel_pairs(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Yield what would run calls beside each other that draw alike one by one: none is tried, and no trial shows it."""
    found = (*_parallel_maps(inspection, context), *_parallel_inputs(inspection, context))
    return (each for each in found if _parts_alike(each, inspection))


def drawn_apart(inspection: Inspection) -> Iterator[str]:
    """Yield of each stage that runs several calls as written that these draw alike one by one, and so do not."""
    for stage in inspection.stages:
        if _at_the_same_time(stage) and stage_graph.draws_alike(stage):
            yield (
                f"{stage_graph.subject(stage)} {_DRAWN_ALIKE}, but runs several calls at the same time: these parts "
                "may get different numbers. Draw once for all of them, use stateless ops of one seed, or take out "
                "num_parallel_calls."
            )


def _parts_alike(fix: Fix, inspection: Inspection) -> bool:
    """Return whether a fix runs calls beside each other that draw alike one by one, as they are written."""
    stages = map(inspection.stage, fix.stages)
    return any(stage_graph.draws_alike(stage) and not _at_the_same_time(stage) for stage in stages)


def _at_the_same_time(stage: Stage) -> bool:
    """Return whether several of its calls, or of one that it makes for each element, run at the same time as asked."""
    calls = (each.arguments.get("num_parallel_calls") for each in stage.with_inner() if not each.serial)
    return any(each not in (None, 1) for each in calls)


@kind(saving=0.4)
def deterministic(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Let parallel stages give what is ready first: worth it where some calls take longer than others."""
    stages = [stage for stage in inspection.stages if _waits_for_its_turn(stage, inspection)]
    held = [stage for stage in stages if stage.arguments.get("deterministic") is True]
    if stages:
        yield fix(
            "any order",
            "Take what is ready first in parallel stages",
            SetOptions(options={"deterministic": False}),
            *(SetArgument(stage=stage.id, argument="deterministic", value=False) for stage in held),
            stages=[stage.id for stage in stages],
            reorders=True,
            caveat="samples come in an order that differs from run to run",
        )


@kind(saving=0.45)
def threadpool(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Threads of the pipeline's own, in place of the shared pool or of one that is too small."""
    limiting = [] if context.bottleneck.stage is None else [context.bottleneck.stage]
    waiting = [
        stage.id
        for cost in inspection.costs
        if segments.waits(cost, context.cores)
        for stage in [inspection.stage(cost.stage)]
        if stage.method in POOLED
        and stage.arguments.get("use_unbounded_threadpool") is not True
        and stage_graph.hands_over(stage, inspection.default_parallelised)
    ]
    pools = []
    if 0 < _pool(inspection) < context.cores:
        pools.append((context.cores, limiting, "the options have a smaller one"))
    if waiting:
        pools.append((_WAITING_A_CORE[-1] * context.cores, waiting, "a call that waits needs no core"))
    for threads, stages, caveat in pools:
        if threads <= _pool(inspection):
            continue
        yield fix(
            f"pool of {threads} threads",
            f"Give the pipeline {threads} threads of its own",
            SetOptions(options={"threading.private_threadpool_size": threads}),
            stages=stages,
            caveat=caveat,
        )
    if context.cores > 1 and limiting and context.bottleneck.cause == "cpu":
        yield fix(
            "one thread an op",
            "Run each op of the pipeline on one thread, and so more calls beside each other",
            SetOptions(options={"threading.max_intra_op_parallelism": 1}),
        )


@kind(saving=0.9)
def options(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Yield what tf.data does by default and these options switch off, and what it could do and does not by default."""
    if off := _switched_off(inspection):
        yield fix(
            "default options",
            f"Switch on what tf.data does by default: {', '.join(map(_DEFAULTS.__getitem__, off))}",
            SetOptions(options=dict.fromkeys(off, True)),
            stages=[] if context.bottleneck.stage is None else [context.bottleneck.stage],
        )
    filters = [stage for stage in inspection.stages if stage.method == "filter"]
    if filters:
        yield fix(
            "parallel filter",
            "Run the filters on several cores",
            SetOptions(options={"experimental_optimization.filter_parallelization": True}),
            stages=[stage.id for stage in filters],
            threads=any(_needs_threads(stage) or stage_graph.draws(stage) for stage in filters),
        )


def _no_service(inspection: Inspection, context: Context) -> str | None:
    if not context.model:
        return "a worker on this machine has the same cores, and without a model nothing competes for them"
    if context.no_servers is not None:
        return context.no_servers
    python = next((stage for stage in inspection.stages if stage.runs_python_within), None)
    return None if python is None else f"a tf.data service worker cannot run the Python of {short(python)}"


@kind(saving=0.05, blocker=_no_service)
def service(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Move the pipeline to a tf.data service worker on this machine; on other machines it gains their cores."""
    yield fix(
        "tf.data service",
        "Have a tf.data service worker in a process of its own run the pipeline",
        OffloadToService(workers=1),
        caveat="here it has the same cores; workers on other machines bring their own",
    )


def _degrees(stage: Stage, inspection: Inspection, cores: int) -> Iterator[int]:
    """Yield how many calls at the same time are worth a try."""
    given = stage.arguments.get("num_parallel_calls")
    present = given if isinstance(given, int) else 1
    if given is None or 0 < present < cores:
        yield AUTOTUNE
    yield from _more_calls(inspection, stage, present, cores)


def _more_calls(inspection: Inspection, stage: Stage, present: int, cores: int) -> list[int]:
    """Return how many calls, or inputs, at the same time are worth a try of a stage that waits; the most first.

    Args:
        inspection: with the stages' costs.
        stage: of it.
        present: how many it has as written.
        cores: that the pipeline may use.
    """
    cost = inspection.cost(stage.id)
    if cost is None or not segments.waits(cost, cores):
        return []
    degrees = {each * cores for each in _WAITING_A_CORE} | {_MORE_CALLS * present}
    return sorted((each for each in degrees if present < each <= _MOST_CALLS), reverse=True)


def _with_more(counts: Sequence[int], more: Iterable[int]) -> list[int]:
    """Return the counts, and what is more than each of them."""
    return [*counts, *(each for each in more if each > max(counts, default=0))]


def _room_to_wait(stage: Stage, inspection: Inspection, calls: int) -> Edit:
    """Return threads for so many calls: a larger pool where the user set one, which would stay as it is otherwise."""
    if size := _pool(inspection):
        return SetOptions(options={"threading.private_threadpool_size": max(calls, size)})
    return SetArgument(stage=stage.id, argument="use_unbounded_threadpool", value=True)


def _pool(inspection: Inspection) -> int:
    """Return how many threads the pipeline has of its own, as the user set it; 0 for none."""
    sizes = (one.arguments.get("threading.private_threadpool_size") for one in inspection.stages)
    return max((size for size in sizes if isinstance(size, int)), default=0)


def _switched_off(inspection: Inspection) -> list[str]:
    """Return the options that the user sets to False and tf.data to True; all of them where no stage tells which."""
    given: dict[str, Value] = {}
    for stage in inspection.stages:
        if stage.method == "with_options":
            given |= stage.arguments
    off = [name for name in _DEFAULTS if given.get(name) is False]
    return off if off or inspection.default_parallelised else list(_DEFAULTS)


def _of_interleave(inspection: Inspection, stage: Stage, files: int, context: Context) -> Iterator[Fix]:
    cores = context.cores
    given, cycle = stage.arguments.get("num_parallel_calls"), stage.arguments.get("cycle_length")
    parallel = SetArgument(stage=stage.id, argument="num_parallel_calls", value=AUTOTUNE)
    cycle = None if cycle == AUTOTUNE else cycle
    # Without a cycle_length tf.data takes one input in turn for each CPU that it may run on, whatever their quota
    # (tensorflow/core/kernels/data/interleave_dataset_op.cc, port::MaxParallelism), but with num_parallel_calls only so
    # many as that says, and of AUTOTUNE one: the order would be another, and nothing be read beside it.
    as_now = SetArgument(stage=stage.id, argument="cycle_length", value=context.allowed_cpus or cores)
    in_turn = [as_now] if cycle is None else []
    more = isinstance(given, int) and isinstance(cycle, int) and 0 < given < min(cores, cycle)
    if given is None or more:
        yield fix(
            f"parallel {stage.label}",
            f"Have {short(stage)} read its inputs in parallel{', as many in turn as now' if in_turn else ''}",
            *in_turn,
            parallel,
            reorders=stage_graph.any_order(inspection, stage),
            threads=given in (None, 1) and _needs_threads(stage),
        )
    in_turn_now = cycle if isinstance(cycle, int) and cycle > 0 else context.allowed_cpus or cores
    counts = [files] if cycle is None or (isinstance(cycle, int) and 0 < cycle < files) else []
    if given is not None:
        waiting = _more_calls(inspection, stage, in_turn_now, cores)
        counts = [] if stage_graph.has_one_input(inspection, stage) else _with_more(counts, waiting)
    for count in counts:
        yield fix(
            f"{count} inputs in {stage.label}",
            f"Have {short(stage)} read {count} inputs in parallel",
            SetArgument(stage=stage.id, argument="cycle_length", value=count),
            parallel,
            reorders=True,
            threads=_needs_threads(stage),
            caveat=_OTHER_ORDER,
        )


def _needs_threads(stage: Stage) -> bool:
    """Return whether a function of the user's in it must be safe to run on several threads at once.

    A table or a variable that is only read is, and an op that draws, also by a seed out of a state of Keras';
    tf.data leaves them on one thread nevertheless.
    """
    functions = (each.function for each in stage.with_inner() if each.function is not None)
    return any(each.python or (each.changes_state and not each.changes_seeds) for each in functions)


def _of_draws(stage: Stage) -> str:
    """Return what becomes of the random numbers of a stage on several threads; empty of one that draws none."""
    alike = any(each.function is not None and each.function.changes_seeds for each in stage.with_inner())
    return f"{_OTHER_DRAWS}{_DRAW_ALIKE * alike}" if stage_graph.draws(stage) else ""


def _waits_for_its_turn(stage: Stage, inspection: Inspection) -> bool:
    if stage.method not in ("map", "interleave", "batch") or stage_graph.any_order(inspection, stage):
        return False
    if stage.method == "map" and stage.arguments.get("num_parallel_calls") is None:
        return False  # tf.data made it parallel by itself: its calls compute, and are ready about in turn
    return stage_graph.hands_over(stage, inspection.default_parallelised)
