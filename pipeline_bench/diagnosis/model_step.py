"""What makes the model's own step longer than need be, as strings; of a training whose step no trial makes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline_bench.analysis.thresholds import BOUND_SHARE, PROMISING, SHORT_STEP_MS, STEPS_A_CALL, WORTH_REWRITING
from pipeline_bench.diagnosis import stage_graph, step_times
from pipeline_bench.diagnosis.fixes.cache_size import batch_bytes_of
from pipeline_bench.diagnosis.stage_graph import named
from pipeline_bench.diagnosis.step_times import StepTimes
from pipeline_bench.model.diagnosis import AS_WRITTEN, Diagnosis
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.system.freed_memory import SETTINGS
from pipeline_bench.text import NAME, one_line, units

_ONE_BATCH = (
    "Each call of fit in the loop trains on one batch, and makes an iterator, callbacks and a history for it. With "
    "steps so short, train_on_batch in its place, which takes the step alone, may be much faster."
)
_SETS_MALLOC = (2, 21)
"""The first version of TensorFlow that does, with each Python that this program runs on."""
_KEPT_IN_VAIN = "Its page faults are not what slows it: with freed memory kept, a step takes {}, without {}."
"""`run` advises to keep it by the faults alone."""
_MOST_FAULTS_LEFT = 0.5
_MOST_OF_STEP = 0.5
"""From this share of the step on that the model takes, what it makes of strings may be worth a cache."""


def strings(session: Session, inspection: Inspection) -> str:
    """Return that a model makes numbers of strings in its own step, where a map can do that; empty of any other model.

    On a GPU it does so on the CPU, in each step. On a CPU a map gains nothing by itself, but a cache behind it does, in
    later epochs. How much of a step it takes is not measured.

    Source: Keras' guide to its preprocessing layers, which on a GPU has them in the dataset, beside the steps.
    """
    parts = [] if inspection.element is None else inspection.element.tensors()
    ceiling_ms, step_ms = step_times.ceiling_ms(session), step_times.mean_ms(session, AS_WRITTEN)
    if ceiling_ms is None or not any(each.dtype == "string" for each in parts):
        return ""
    if session.environment.accelerator_kind == "gpu":
        return (
            "The model is given strings, which no GPU takes: if a layer of it makes numbers of them, as "
            "TextVectorization and StringLookup do, that is on the CPU, in each step. In a map of the dataset, with "
            "num_parallel_calls=tf.data.AUTOTUNE, it runs beside the steps."
        )
    reads_again = not inspection.once and (stage_graph.passes(inspection) or 0.0) > 1
    if not reads_again or step_ms is None or ceiling_ms < _MOST_OF_STEP * step_ms:
        return ""
    cache = next((each for each in inspection.stages if each.method == "cache"), None)
    behind = "with a cache() behind it, both in front of any shuffle or repeat"
    where = behind if cache is None else f"in front of {named(cache)}"
    return (
        "The model is given strings: if a layer of it makes numbers of them, as TextVectorization and StringLookup do, "
        f"that is done anew in each epoch. In a map of the dataset, {where}, it is done in the first epoch only. How "
        "much of a step it takes is not measured here."
    )


def padding(session: Session, inspection: Inspection) -> Iterator[str]:
    """Yield how much of what a `padded_batch` gives is padding, where the model takes long for it."""
    ceiling_ms, step_ms = step_times.ceiling_ms(session), step_times.mean_ms(session, AS_WRITTEN)
    if ceiling_ms is None or not step_ms:
        return
    for stage in inspection.stages:
        before = stage_graph.before(inspection, stage)
        if stage.method != "padded_batch" or before is None:
            continue
        samples_bytes, batch_bytes = batch_bytes_of(inspection, before), batch_bytes_of(inspection, stage)
        if not samples_bytes or not batch_bytes:
            continue
        share = 1 - samples_bytes / batch_bytes
        # What the model takes for it goes with its size at least.
        if step_ms / (step_ms - share * min(ceiling_ms, step_ms)) >= WORTH_REWRITING:
            yield (
                f"Of the first batches of {named(stage)}, {units.share(share)} of the bytes are padding, for which the "
                "model computes too. If it takes batches of any length, bucket_by_sequence_length in place of "
                "padded_batch puts samples of like length together, with less padding."
            )


def freed_memory(session: Session, inspection: Inspection | None) -> str:
    """Return what steps take where malloc keeps what is freed, or that it is no less; empty where that is not known.

    Less is told if it is less than the same steps of another trial take without, also beside the steps before them, and
    with fewer page faults; by no more than the kernel's CPU time fell, in all threads.
    """
    sides = {trial.kept_memory.kept: trial.kept_memory for trial in session.trials_of(AS_WRITTEN) if trial.kept_memory}
    if len(sides) < len((True, False)) or inspection is None:
        return ""
    kept, freed = sides[True], sides[False]
    saved_ms = max(0.0, min(freed.ms - kept.ms, freed.kernel_ms - kept.kernel_ms))
    beside = freed.ms / freed.before_ms * kept.before_ms / kept.ms
    gain = min(freed.ms / (freed.ms - saved_ms), beside)
    if kept.page_faults > _MOST_FAULTS_LEFT * freed.page_faults:
        return ""
    if gain < PROMISING:
        is_no_less = max(freed.ms / kept.ms, beside) < PROMISING
        return _KEPT_IN_VAIN.format(*map(units.milliseconds, (kept.ms, freed.ms))) if is_no_less else ""
    more_bytes = kept.more_bytes - freed.more_bytes
    memory = f", with {units.size(more_bytes)} more memory at least" if more_bytes > 0 else ""
    settings = f"Start the training with {SETTINGS} in its environment; then diagnose again, with these."
    return (
        f"A step has {freed.page_faults:,.0f} page faults, as malloc gives large blocks back to the kernel when they "
        f"are freed.{_why_freed(session, inspection)} Where it keeps them, a step takes "
        f"{units.milliseconds(freed.ms - saved_ms)} in place of {units.milliseconds(freed.ms)}{memory}. {settings}"
    )


def _why_freed(session: Session, inspection: Inspection) -> str:
    """Return what has malloc give back more than it does by itself, as a sentence; empty where that is not known."""
    is_fed = inspection.api in ("PyDataset", "generator") or any(
        stage.method == "from_generator" for stage in inspection.stages
    )
    version = re.match(r"(\d+)\.(\d+)", session.environment.tensorflow or "")
    if not is_fed or version is None or (int(version[1]), int(version[2])) < _SETS_MALLOC:
        return ""
    return f" TensorFlow {version[0]} sets it to do so as soon as a generator feeds it."


def short_steps(session: Session, inspection: Inspection, proposed: str | None) -> str:
    """Return what has Keras do less for each of a `fit`'s short steps; empty where they are long, or wait for input.

    Keras works for a step while the input makes the next batch, so that less work shortens no step that waits for that.
    Of arrays, and of an input that alone takes little of a step, most of the wait is for what Keras does around it.

    Args:
        session: with its results.
        inspection: the stages.
        proposed: the fix that is proposed; None where none is.
    """
    training, found = inspection.training, session.find_result(proposed or AS_WRITTEN)
    if training is None or found is None or found.step_ms.mean is None:
        return ""
    if training.one_batch:
        own_ms = step_times.ceiling_ms(session) or found.step_ms.mean
        return _ONE_BATCH if training.in_loop and training.epochs == 1 and own_ms < SHORT_STEP_MS else ""
    wait_share = found.input_wait_share.value
    waits = inspection.api != "arrays" and (wait_share is None or wait_share >= BOUND_SHARE)
    if proposed is None and waits and session.diagnosis is not None and session.diagnosis.bottleneck is not None:
        made_ms = step_times.taken_ms(inspection, elapsed=True)
        takes_most = made_ms is None or made_ms >= _MOST_OF_STEP * found.step_ms.mean
        waits = session.diagnosis.bottleneck.limits and takes_most
    has_several = training.steps_a_call == 1 and inspection.cardinality != 1
    if waits or not has_several or found.step_ms.mean >= SHORT_STEP_MS:
        return ""
    steps = "With steps so short" if proposed is None else "With steps as short as this fix makes them"
    # Keras runs whole calls: of ten steps an epoch, it would take sixteen.
    uneven = training.steps is not None and training.steps % (STEPS_A_CALL * (training.epochs or 1)) != 0
    even = ", with a steps_per_epoch that is a multiple of it," * uneven
    return (
        f"{steps}, steps_per_execution={STEPS_A_CALL} in compile{even} may be faster; callbacks of a batch are then "
        f"called once for {STEPS_A_CALL}."
    )


def part(inspection: Inspection | None) -> str:
    """Return what a trial's step calls once, where the script's loop calls more for each batch; else nothing."""
    training = None if inspection is None else inspection.training
    return "" if training is None else one_line(training.part, NAME)


def is_of_unknown_use(diagnosis: Diagnosis) -> bool:
    """Return whether a script's pipeline was read alone, so that it is not known whether the training waits for it."""
    inspection = diagnosis.inspection
    return diagnosis.model is None and inspection is not None and inspection.training is not None


def share_of_time(share: float, inspection: Inspection, times: StepTimes) -> tuple[str, str]:
    """Return how much a stage takes of the time between two batches, and what follows from that time, as a sentence.

    Of a step that is a part of the training's it is a bound. Of an input that was read alone the time is told: it
    matters to no step that is longer.
    """
    elements = "batches" if inspection.batch_size is not None else "elements"
    taken = f"{'at most ' * bool(part(inspection))}{units.share(share)}"
    if inspection.training is None or times.trains or times.as_written_ms is None:
        return f"{taken} of the time between two {elements}", ""
    time = units.milliseconds(times.as_written_ms)
    return f"{taken} of the {time} between two {elements}", f" It limits only steps that are shorter than {time}."


def of_a_part(session: Session, inspection: Inspection | None) -> str:
    """Return what a step takes and waits that is a part of the training's; nothing of another."""
    name, written = part(inspection), session.find_result(AS_WRITTEN)
    wait = None if written is None else written.input_wait_share.value
    if not name or written is None or wait is None:
        return ""
    takes = f"A call of {name} takes {units.milliseconds(written.step_ms.mean)}"
    most = f"its input wait is at most {units.share(wait)}"
    return f"{takes}, and the loop calls more for each batch: {most}, and only `pipeline-bench run` tells it."


def whether_it_waits(diagnosis: Diagnosis, is_said: bool) -> str:
    """Return what tells whether a training waits for a stage, where its input was read alone; else nothing.

    Args:
        diagnosis: with the stage.
        is_said: whether a sentence about a fix tells that already.
    """
    training = None if diagnosis.inspection is None else diagnosis.inspection.training
    if training is None or not is_of_unknown_use(diagnosis):
        return ""
    if training.handed_on_by:
        return (
            f"What is measured is the dataset alone, on whose elements {one_line(training.handed_on_by, NAME)}, a "
            "generator of the script's, then works: `pipeline-bench run` tells how long the training waits for that, "
            "and in which line."
        )
    if is_said or diagnosis.bottleneck is None or diagnosis.bottleneck.stage is None:
        return ""
    return "`pipeline-bench run` tells whether the training waits for it."
