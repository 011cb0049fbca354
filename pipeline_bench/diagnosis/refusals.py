"""Why an attempt is no fix: it fails, or its samples are others, or not known to be the same. Pure."""

from __future__ import annotations

import math

from pipeline_bench.diagnosis import attempt_statistics, equality, stage_graph
from pipeline_bench.diagnosis.fixes import cache_size
from pipeline_bench.model.calls import BATCH_AS_IS
from pipeline_bench.model.diagnosis import AS_WRITTEN, RULED_OUT, Attempt, Diagnosis, Fix
from pipeline_bench.model.edits import BatchInGenerator, GatherBatches, GatherWindows, MoveBefore, Remove
from pipeline_bench.model.element_flow import AUTOTUNED_BATCHES, applied
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord, TrialStatus
from pipeline_bench.text import NAME, REASON, joined, one_line, units

_NAMED = 3
"""Of stages that may draw, so many are named."""
_FAILED = {"failed": "It failed", "stalled": "It stalled", "ok": "No step was measured after its warm-up"}
"""What shows that an attempt fails, by how a trial of it ended."""


def ruled(session: Session, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with those attempts marked that failed, or that are refused for their samples."""
    written = attempt_statistics.fingerprint(session, AS_WRITTEN)
    any_order = diagnosis.allow_reordering or attempt_statistics.order_varies(session, diagnosis.inspection)
    attempts = []
    for attempt in diagnosis.attempts:
        own = session.trials_of(attempt.fix.variant)
        if attempt.outcome in (*RULED_OUT, "not-tried"):
            attempts.append(attempt)
        elif not own:  # what is known without a trial needs none
            frozen = _frozen(attempt.fix, diagnosis.inspection, written)
            untried = {"outcome": "not-tried", "reason": frozen} if frozen else {}
            attempts.append(attempt.model_copy(update=untried))
        else:
            found = attempt_statistics.fingerprint(session, attempt.fix.variant)
            beside = found.as_written if found is not None else None
            attempts.append(_ruled(attempt, own, beside or written, found, diagnosis, any_order=any_order))
    return diagnosis.model_copy(update={"attempts": tuple(attempts)})


def _ruled(
    attempt: Attempt,
    own: list[TrialRecord],
    written: Fingerprint | None,
    found: Fingerprint | None,
    diagnosis: Diagnosis,
    *,
    any_order: bool,
) -> Attempt:
    if (bad := failure(own)) is not None:
        at_once = all(trial.status == "failed" and (trial.steps is None or not trial.steps.count) for trial in own)
        why = _does_not_apply(attempt.fix, diagnosis.inspection) if at_once else ""
        failed = {"outcome": "failed", "reason": f"{': '.join(filter(None, (_FAILED[bad[0]], bad[1])))}."}
        return attempt.model_copy(update={"outcome": "not-applicable", "reason": why} if why else failed)
    compared = equality.compare(written, found)
    if compared.status == "not-told" and found is None and len(own) < attempt_statistics.FINGERPRINT_TRIALS:
        return attempt  # its next trial is asked again
    updates: dict[str, object] = {"equality": compared}
    if diagnosis.inspection is not None and (kept := _kept(own)) is not None:
        parts = [diagnosis.attempt(name).fix for name in attempt.fix.combines]
        updates["fix"] = cache_size.priced(attempt.fix, diagnosis.inspection, kept, parts)
    reason = equality.refusal(compared, any_order) or _frozen(attempt.fix, diagnosis.inspection, written)
    reason = reason or _ends_before_reading(attempt.fix, diagnosis.inspection, own)
    if reason is None and compared.status == "not-told":
        seen = all(each is not None and each.components for each in (written, found))
        reason = _not_known(attempt.fix, compared.text, diagnosis, seen=seen)
    if reason is not None:
        updates |= {"outcome": "refused", "reason": reason}
    return attempt.model_copy(update=updates)


def _does_not_apply(fix: Fix, inspection: Inspection | None) -> str:
    """Return why a fix that failed could not but fail: a function got what it was not written for; "" of others."""
    if inspection is None or fix.combines:
        return ""
    moves = [(inspection.stage(e.stage), inspection.stage(e.other)) for e in fix.edits if isinstance(e, MoveBefore)]
    for stage, other in moves:
        if stage.method == "filter" and other.method not in cache_size.MIXING:
            return f"{one_line(stage.label, NAME)} looks at what {one_line(other.label, NAME)} gives."
    behind = {other.id for stage, other in moves if stage.method in BATCH_AS_IS}
    maps = [stage for stage in inspection.stages if stage.id in {*behind, *(fix.stages if behind else ())}]
    functions = [stage.function for stage in maps if stage.method == "map" and stage.function is not None]
    unknown = [each for each in functions if each.on_batches is None] or functions
    which = one_line(unknown[0].name, NAME) if len(unknown) == 1 else "one of its maps"
    return f"{which} takes one element, and no batch." if unknown else ""


def _not_known(fix: Fix, why: str, diagnosis: Diagnosis, *, seen: bool) -> str | None:
    """Return why a fix is refused whose samples are not known to be the same; None where the user accepts that.

    Who accepts another order does not accept other samples: where none was `seen`, a cache or a batch may freeze draws.
    """
    inspection, moved = diagnosis.inspection, [edit.stage for edit in fix.edits if isinstance(edit, MoveBefore)]
    # More than the order could change, which the user may have allowed.
    if inspection is not None and any(inspection.stage(number).method == "filter" for number in moved):
        return f"It is not known whether as many samples are left out: {why}."
    unknown = f"It is not known whether its samples are the same: {why}"
    gathers = any(isinstance(edit, BatchInGenerator | GatherBatches | GatherWindows) for edit in fix.edits)
    others = inspection is not None and bool(_run_otherwise(fix, inspection))
    if not seen and (fix.keeps or gathers or others):
        return f"{unknown}; no option accepts that for a fix that keeps samples or makes them in batches."
    return None if diagnosis.allow_reordering else f"{unknown}; --allow-reordering accepts that."


def _frozen(fix: Fix, inspection: Inspection | None, written: Fingerprint | None) -> str | None:
    """Return why a fix is refused that makes one random draw of many: of Python's draws, or of a variable's changes.

    A cache would keep one draw for ever, a batch share one. Where no sample could be compared, any may be drawn.
    """
    if inspection is None or written is None:
        return None
    none_seen = written.complete and not written.components
    if not none_seen and not _drawn_beside_graph(inspection, written):
        return None
    kept = _run_otherwise(fix, inspection)
    draw = [each for each in inspection.stages if each.method == "from_generator" or each.keeps_state]
    unknown = [each for each in draw if each.function is None or each.function.draws_in_python is not False]
    elsewhere = any(each.draws or each in unknown for each in inspection.stages if each not in kept)
    # If nothing else draws, what was found to give the same draws seldom.
    able = [each for each in (unknown if elsewhere else draw) if each in kept]
    if not able:
        return None
    names = joined([one_line(stage.label, NAME) for stage in able[:_NAMED]], "or")
    if none_seen:
        why = (written.reason or "no sample could be compared").rstrip(".")
        return f"It is not known whether {names} draws random samples: {why}."
    return f"The samples are random, and {names} may draw them: it must run as often as it does now."


def _drawn_beside_graph(inspection: Inspection, written: Fingerprint) -> bool:
    """Return whether Python or a variable draws: what the graph draws is known, and no candidate touches it.

    Samples then differ between two passes with one seed, or are random and no op of the graph explains it.
    """
    explained = any(each.function.random for each in inspection.stages if each.function is not None)
    return any(each.kept_state or (each.random and not explained) for each in written.components)


def _run_otherwise(fix: Fix, inspection: Inspection) -> list[Stage]:
    """Return the stages that run more or less often with a fix: in front of a cache, or on batches."""
    kept: list[Stage] = []
    for number in fix.kept_stages:
        kept += stage_graph.upstream(inspection, inspection.stage(number))
    for edit in fix.edits:
        if isinstance(edit, Remove) and inspection.stage(edit.stage).method == "cache":
            kept += stage_graph.upstream(inspection, inspection.stage(edit.stage))
        if isinstance(edit, MoveBefore) and inspection.stage(edit.stage).method in BATCH_AS_IS:
            ahead = stage_graph.upstream(inspection, inspection.stage(inspection.stage(edit.other).inputs[0]))
            kept += [
                each for each in stage_graph.upstream(inspection, inspection.stage(edit.stage)) if each not in ahead
            ]
    return kept


def _ends_before_reading(fix: Fix, inspection: Inspection | None, own: list[TrialRecord]) -> str | None:
    """Return why nothing would be read from the cache of a fix: the training, or each pass, takes too little.

    Where TensorFlow does not know how many elements a pass has, a trial that filled the cache does.
    """
    training = inspection.training if inspection is not None else None
    if inspection is None or training is None or training.in_loop:
        return None
    cost = inspection.cost(fix.kept_stages[0]) if len(fix.kept_stages) == 1 else None
    kept, steps = _kept(own), training.steps_known
    if kept is None or cost is None or not cost.elements or steps is None:
        return None
    ahead = 0.0 if training.pass_steps is None else _ahead(inspection)
    if steps + ahead > kept / cost.elements:
        return None
    takes, has = units.count(steps, "batch", "batches"), round(kept / cost.elements)
    who = "fit" if training.epochs is not None else "script's loop"
    each = "" if training.pass_steps is None else " of each iterator that it makes"
    return f"The {who} takes {takes}{each}, and a pass over the data has {has:,}: nothing would be read from a cache."


def _ahead(inspection: Inspection) -> float:
    """Return how many batches more than are taken may be read of a pass, to fill shuffles and buffers."""
    held = AUTOTUNED_BATCHES
    for stage in inspection.stages:
        size, cost = stage.arguments.get("buffer_size"), inspection.cost(stage.id)
        mixes = "shuffle" in applied(stage)
        if mixes or (stage.method == "prefetch" and isinstance(size, int) and size > 0):
            elements = None if cost is None else cost.elements
            held += size / elements if isinstance(size, int) and size >= 0 and elements else math.inf
    return held


def _kept(own: list[TrialRecord]) -> int | None:
    """Return how many elements the trials of a cache filled it with; None where none was, or it is not known."""
    filled = (trial.inspection.cached_elements for trial in own if trial.inspection is not None)
    return next((elements for elements in filled if elements is not None), None)


def failure(own: list[TrialRecord]) -> tuple[TrialStatus, str] | None:
    """Return how the trial ended by which an attempt fails, and why: ``failed``, ``out of memory``.

    A single stall beside trials that went through proves nothing against it: TensorFlow 2.21 now and then waits for
    its AUTOTUNE thread for seconds when an iterator is deleted, whatever the pipeline.
    """
    stalls = sum(trial.status == "stalled" for trial in own)
    tolerated = stalls == 1 and any(trial.measured for trial in own)
    for trial in own:
        if trial.status == "stalled" and tolerated:
            continue
        if trial.broke:
            reason = one_line(trial.reason or "", REASON).rstrip(".")
            return trial.status, reason
        if trial.status == "ok" and not trial.measured:
            return trial.status, ""
    return None
