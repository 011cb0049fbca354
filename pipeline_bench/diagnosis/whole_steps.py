"""What is said of a script's training whose whole step no trial makes: a part of it is, or the input is read alone."""

from __future__ import annotations

from pipeline_bench.diagnosis.step_times import StepTimes
from pipeline_bench.model.diagnosis import AS_WRITTEN, Diagnosis
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, one_line, units


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
