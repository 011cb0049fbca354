"""How fast a pipeline could be if only one thing limited it: the model, the cores, the disk."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_bench.diagnosis import segments, step_times
from pipeline_bench.model.diagnosis import CEILING, Diagnosis, Limit
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.model.session import Session
from pipeline_bench.text import units
from pipeline_bench.text.units import NS_PER_MS


def of(session: Session, diagnosis: Diagnosis) -> tuple[Limit, ...]:
    """Return how fast the pipeline could be if only one thing limited it; empty before it was inspected."""
    if diagnosis.inspection is None:
        return ()
    cores = session.environment.cores
    return (
        _model_limit(session, diagnosis),
        *_copy_limit(session),
        _cores_limit(diagnosis.inspection, cores),
        _disk_limit(diagnosis.inspection),
    )


def _model_limit(session: Session, diagnosis: Diagnosis) -> Limit:
    if diagnosis.model is None:
        is_script = diagnosis.target.is_script
        return Limit(name="the model", text="its step is not run here" if is_script else "no --model was given")
    found = session.find_result(CEILING)
    if found is None or found.step_ms.mean is None:
        reason = found.reason if found is not None and found.reason else "its trial has not run"
        return Limit(name="the model", text=f"not measured: {reason}")
    return Limit(name="the model", ms=step_times.ceiling_ms(session), text="on one batch that stays on the device")


def _copy_limit(session: Session) -> Iterator[Limit]:
    """Yield how long the copy of a batch takes, where one was measured: no step is shorter, even if it runs ahead."""
    copies = [trial.copied for trial in session.trials_of(CEILING) if trial.copied is not None]
    if copies and (ms := step_times.copy_ms(session)) is not None:
        size_bytes = copies[0].size_bytes
        rate = units.size(1e3 * size_bytes / ms)
        yield Limit(name="the copy to the GPU", ms=ms, text=f"{units.size(size_bytes)} a batch, at {rate}/s")


def _cores_limit(inspection: Inspection, cores: int) -> Limit:
    name = "all cores busy"
    parts = segments.of(inspection, cores)
    if not parts.cpu_ns or parts.cores_ns <= 0:
        return Limit(name=name, text="the stages' CPU time was not measured")
    unmeasured = len(inspection.stages) - len(parts.cpu_ns)
    left_out = f"; {units.count(unmeasured, 'stage')} not measured" if unmeasured else ""
    computed = units.milliseconds(parts.cores_ns * parts.cores / NS_PER_MS)
    text = f"{computed} of CPU time as the stages are written, over {units.count(parts.cores, 'core')}{left_out}"
    return Limit(name=name, ms=parts.cores_ns / NS_PER_MS, text=text)


def _disk_limit(inspection: Inspection) -> Limit:
    name = "the disk"
    if inspection.read_bytes is None:
        return Limit(name=name, text="how much the pipeline reads was not measured")
    if inspection.read_bytes <= 0:
        return Limit(name=name, text="the pipeline reads no files")
    sources = [inspection.cost(stage.id) for stage in inspection.stages if not stage.inputs]
    if not inspection.cold and all(cost is not None and cost.elements == 0 for cost in sources):
        return Limit(name=name, text="files are read in the first epoch only: a cache keeps what they give")
    if not inspection.disk_bytes_per_s:
        reason = inspection.disk_reason or "its bandwidth was not measured"
        return Limit(name=name, text=reason.rstrip("."))
    read, rate = units.size(inspection.read_bytes), units.size(inspection.disk_bytes_per_s)
    ms = 1e3 * inspection.read_bytes / inspection.disk_bytes_per_s
    return Limit(name=name, ms=ms, text=f"{read} an element at {rate}/s, as measured here past the page cache")
