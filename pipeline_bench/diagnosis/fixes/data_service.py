"""What the workers of a tf.data service of the user's may run: all in front of the first stage that they cannot."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.fixes import Context, fix, kind, short
from pipeline_bench.model.calls import BATCHING, KEEPING
from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.service_edits import DistributeToService

_STAY_BEHIND = ("prefetch", "prefetch_to_device", "with_options")
"""At the end of a pipeline: what they do is for the process that trains."""


def _nothing_to_move(inspection: Inspection, context: Context) -> str | None:
    if context.data_service is None or _last(inspection) is not None:
        return None
    first = next((stage for stage in inspection.stages if (_why_not(stage))), None)
    why = "the pipeline is not made of calls that are known" if first is None else _why_not(first)
    return f"no tf.data service can run a part of it: {why}, and nothing in front of that is a pipeline of its own"


@kind(saving=0.9, blocker=_nothing_to_move)
def data_service(inspection: Inspection, context: Context) -> Iterator[Fix]:
    """Move to the workers of a running tf.data service what needs neither this process's Python nor its state.

    One worker gives each sample once, in its order, under `OFF`; several do under `DYNAMIC`, in another order.
    """
    if context.data_service is None:
        return
    last = _last(inspection)
    for mode, reorders in (("OFF", False), ("DYNAMIC", True)):
        cut = last if mode == "OFF" or last is None else _before_batches(inspection, last)
        moved = [] if cut is None else stage_graph.upstream(inspection, cut)
        how = "each sample by whichever worker is free" if reorders else "by one worker"
        behind = "" if cut is None else f", up to {short(cut)}"
        yield fix(
            f"{mode.lower()} on tf.data service",
            f"Have the tf.data service at {context.data_service} run the pipeline{behind}, {how}",
            DistributeToService(
                stage=inspection.sink if cut is None else cut.id,
                dispatcher=context.data_service,
                processing_mode="DYNAMIC" if reorders else "OFF",
            ),
            stages=inspection.measured(stage.id for stage in moved),
            reorders=reorders,
            caveat="" if reorders else "with more workers each would give every sample",
        )


def _last(inspection: Inspection) -> Stage | None:
    """Return the last stage of the trunk that a worker can run with all in front of it; None if there is none."""
    run = stage_graph.trunk(inspection)
    while len(run) > 1 and run[0].method in _STAY_BEHIND:
        run = run[1:]
    return next((stage for stage in run if not any(map(_why_not, stage_graph.upstream(inspection, stage)))), None)


def _before_batches(inspection: Inspection, last: Stage) -> Stage:
    """Return the stage in front of the first batch, if its data end: each worker's last batch would be incomplete."""
    stage: Stage | None = last
    cut = last
    while stage is not None:
        before = stage_graph.before(inspection, stage)
        if stage.method in BATCHING and before is not None and not stage_graph.endless(inspection, before):
            cut = before
        stage = before
    return cut


def _why_not(stage: Stage) -> str | None:
    """Return why a worker cannot run a stage, or must not; None if it can."""
    if stage.method == "opaque":
        return "what a dataset is made of is not known"
    if stage.method in KEEPING:  # each job of the service would fill its own
        return f"{stage.label} would be filled anew by each job"
    return next(filter(None, map(_of_function, stage.with_inner())), None)


def _of_function(stage: Stage) -> str | None:
    if stage.runs_python:
        return f"{stage.label} runs Python, which its workers do not have"
    if stage.keeps_state:
        return f"{stage.label} keeps a state in this process"
    return None
