"""What every report says of a diagnosis, in the same words: the conclusion, what was tried, how far it can go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline_bench.analysis.conclusion import conclude, was_interrupted
from pipeline_bench.analysis.thresholds import FEWEST_STEPS
from pipeline_bench.diagnosis import model_step, step_times
from pipeline_bench.model.diagnosis import AS_WRITTEN, CodeChange, Diagnosis, Limit, Outcome
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.attempts import Tried, left_out, tried
from pipeline_bench.text import NAME, TEXT, code_line, joined, one_line, sentence, units, with_stop

MARK = "◀ bottleneck"
_GROUPS: dict[str, tuple[Outcome, ...]] = {
    "Fixes that help, best first": ("proposed", "faster"),
    "Tried, but of no proven use": ("no-gain", "pending"),
    "Tried and rejected": ("slower", "refused", "not-applicable", "failed"),
}
TRACEBACK = "Your own code's traceback"
_CODE = 400
"""The most characters of a line of a diff or a traceback."""


@dataclass(frozen=True)
class Section:
    """A part of a diagnosis' report: a format lays out what there is of these, in this order."""

    title: str
    more: str = ""
    """What stands beside the title in small letters."""
    code: Sequence[str] = ()
    """The lines of a diff or of a traceback."""
    is_diff: bool = False
    lines: Sequence[str] = ()
    is_finding: bool = False
    """Whether the lines name the bottleneck."""
    rows: Sequence[pipeline_tree.StageRow] = ()
    """The tree of stages."""
    tries: Sequence[tuple[str, Sequence[Tried]]] = ()
    """Attempts, in groups with a head each."""
    left_out: Sequence[str] = ()
    limits: Sequence[tuple[Limit, bool]] = ()
    """Each with whether it was measured of the pipeline, and is no limit."""


def sections(session: Session, diagnosis: Diagnosis) -> Iterator[Section]:
    """Yield what every report says of a diagnosis behind its headline; what there is not is left out."""
    tries, rows = tried(session, diagnosis), pipeline_tree.rows(diagnosis)
    groups = _groups(tries)
    name, change = _code(tries, diagnosis) or ("", CodeChange())
    noun, bound = element_noun(diagnosis), diagnosis.bottleneck
    besides = one_line(f"Also: {change.text}" if change.diff and change.text else change.text)
    looked = diagnosis.inspection
    warned = () if looked is None else tuple(f"Warning: {each}" for each in looked.warnings)
    for section in (
        Section(TRACEBACK, code=traceback_lines(diagnosis.traceback)),
        Section("How fast it is", lines=speed_lines(session, diagnosis)),
        Section(
            "Which stage",
            f"from source to sink, each stage measured alone; ms per {noun}",
            lines=[one_line(bound.text, TEXT)] if bound is not None and rows and not diagnosis.says_bottleneck else [],
            is_finding=bound is not None and bound.stage is not None,
            rows=rows,
        ),
        Section(
            "What to do",
            "each fix was tried in separate processes",
            lines=["No fix is proven to help."] if groups and not any(t.helps for t in tries) else [],
            tries=groups,
            left_out=left_out(tries, diagnosis),
        ),
        Section(
            "The code to write",
            f"for {name}; your files are not changed",
            code=[code_line(line, _CODE) for line in (change.diff or "").splitlines()],
            is_diff=True,
            lines=[line for line in (besides, _alike(change)) if line],
        ),
        Section("How far it can go", f"the shortest possible time of a {noun}", limits=limits(session, diagnosis)),
        Section("Notes on the pipeline", lines=(*warned, *(looked.notes if looked is not None else ()))),
    ):
        if any((section.code, section.lines, section.rows, section.tries, section.left_out, section.limits)):
            yield section


def _alike(change: CodeChange) -> str:
    """Return that the same calls stand elsewhere too, for another pipeline that was not measured."""
    if not change.alike:
        return ""
    where = f"The same calls make another pipeline at {joined(change.alike)}, which was not measured"
    return one_line(f"{where}: the same edit may help there.", TEXT)


def _groups(tries: Sequence[Tried]) -> list[tuple[str, list[Tried]]]:
    found = {head: [t for t in tries if t.attempt.outcome in outcomes] for head, outcomes in _GROUPS.items()}
    return [(head, group) for head, group in found.items() if group]


def headline(session: Session) -> str:
    """Return the sentence that every report of a session begins with."""
    diagnosis = session.diagnosis
    if diagnosis is None:
        return conclude(session)
    text = one_line(diagnosis.text or sentence(diagnosis.failure or ""), TEXT)
    stopped = was_interrupted(session)
    if text:
        return with_stop(f"Interrupted; until then: {text}" if stopped else text)
    return "Interrupted before there was a result." if stopped else "There is no result yet."


def element_noun(diagnosis: Diagnosis) -> str:
    """Return what the pipeline yields: a ``batch``, or an ``element`` where it is not batched."""
    return "batch" if diagnosis.inspection is not None and diagnosis.inspection.batch_size else "element"


def pace(session: Session, diagnosis: Diagnosis) -> str:
    """Return in a line what a step, or a batch, takes as written, and how much of it waits; empty if not measured."""
    result = session.find_result(AS_WRITTEN)
    took_ms = reached_ms(diagnosis, result)
    if took_ms is None or took_ms <= 0:
        return ""
    takes = f"{_of_what(diagnosis)} takes {units.milliseconds(took_ms)}"
    if diagnosis.model is None or result is None or result.input_wait_share.value is None:
        return f"{takes}{_of_few(result)}"
    ceiling, wait = units.milliseconds(step_times.ceiling_ms(session)), units.share(result.input_wait_share.value)
    most = "at most " * bool(model_step.part(diagnosis.inspection))
    # A narrow screen cuts the end.
    return f"{takes}; input wait {most}{wait}, the model alone {ceiling}{_of_few(result)}"


def _of_few(result: Result | None) -> str:
    """Return of how few steps a mean is, of which one that was disturbed makes up much; "" of one of enough steps."""
    if result is None or not 0 < result.steps < FEWEST_STEPS or result.step_ms.median is None:
        return ""
    return f" (a mean of {units.count(result.steps, 'step')}, median {units.milliseconds(result.step_ms.median)})"


def _of_what(diagnosis: Diagnosis) -> str:
    if diagnosis.model is not None:
        part = model_step.part(diagnosis.inspection)
        return f"A call of {part}" if part else "A training step"
    return "A batch" if element_noun(diagnosis) == "batch" else "An element"


def speed_lines(session: Session, diagnosis: Diagnosis) -> list[str]:
    """Return how fast the pipeline is, a sentence or figures a line; empty where nothing was measured."""
    result = session.find_result(AS_WRITTEN)
    took_ms = reached_ms(diagnosis, result)
    if took_ms is None or took_ms <= 0:
        return []
    is_batch = element_noun(diagnosis) == "batch"
    rates = [f"{units.rate(1e3 / took_ms)} {'batches' if is_batch else 'elements'}/s"]
    if is_batch and (samples := _samples_per_second(diagnosis, result, took_ms)) is not None:
        rates.append(f"{units.rate(samples)} samples/s")
    lines = [f"{_of_what(diagnosis)} takes {units.milliseconds(took_ms)}: {', '.join(rates)}."]
    if diagnosis.model is None:
        return [
            *lines,
            f"An accelerator whose step is shorter than {units.milliseconds(took_ms)} would wait for its data.",
        ]
    if result is None:
        return lines
    part = model_step.part(diagnosis.inspection)
    return [
        *lines,
        f"Input wait {'at most ' * bool(part)}{units.share(result.input_wait_share.value)}, "
        f"host slowdown {units.share(result.host_slowdown_share.value)}, "
        f"ceiling (the model alone) {units.milliseconds(step_times.ceiling_ms(session))}, "
        f"accelerator utilization (AU) {units.fraction(result.accelerator_utilization.value)}.",
        *_why_missing(result),
        *([] if part else [sentence(one_line(result.verdict.text, TEXT))]),  # which is of whole steps
    ]


def _why_missing(result: Result) -> Iterator[str]:
    """Yield why a share of the step is a dash, each reason once; not again what the verdict says."""
    shares = (result.input_wait_share, result.host_slowdown_share, result.accelerator_utilization)
    reasons = dict.fromkeys((share.reason or "").rstrip(".") for share in shares if share.value is None)
    yield from (f"Not known: {reason}." for reason in reasons if reason not in ("", result.verdict.reason))


def _samples_per_second(diagnosis: Diagnosis, result: Result | None, took_ms: float) -> float | None:
    if result is not None and result.samples_per_second is not None:
        return result.samples_per_second
    size = diagnosis.inspection.batch_size if diagnosis.inspection is not None else None
    return size * 1e3 / took_ms if size else None


def code(session: Session) -> CodeChange | None:
    """Return the code that is shown: of the proposed attempt, else of the best that has any; None where none has."""
    found = session.diagnosis
    shown = None if found is None else _code(tried(session, found), found)
    return None if shown is None else shown[1]


def _code(tries: Sequence[Tried], diagnosis: Diagnosis) -> tuple[str, CodeChange] | None:
    """Return the same, behind the attempt that it is of."""
    able = [(each, each.attempt.code) for each in tries if each.helps and each.attempt.code is not None]
    able.sort(key=lambda pair: pair[0].attempt.fix.variant != diagnosis.proposal)
    return (able[0][0].variant, able[0][1]) if able else None


def traceback_lines(text: str, most: int = 40) -> list[str]:
    """Return the last lines of the user's own traceback, harmless."""
    return [code_line(line, _CODE) for line in text.splitlines()][-most:]


def limits(session: Session, diagnosis: Diagnosis) -> list[tuple[Limit, bool]]:
    """Return the limits, the nearest first, and among them, marked, what was reached as written and with the fix."""
    if not diagnosis.limits:
        return []
    written_ms = reached_ms(diagnosis, session.find_result(AS_WRITTEN))
    lines = [(Limit(name="as written", ms=written_ms, text="reached"), True)] if written_ms else []
    proposed = session.find_result(diagnosis.proposal or "")
    if proposed is not None and proposed.step_ms.mean is not None:
        name, mean_ms = f"with {one_line(proposed.variant, NAME)}", proposed.step_ms.mean
        lines.append((Limit(name=name, ms=mean_ms, text="reached, with the proposed fix"), True))
    for limit in diagnosis.limits:
        lines.append((Limit(name=one_line(limit.name, NAME), ms=limit.ms, text=one_line(limit.text, TEXT)), False))
    return sorted(lines, key=lambda line: -line[0].ms if line[0].ms is not None else float("inf"))


def reached_ms(diagnosis: Diagnosis, result: Result | None) -> float | None:
    """Return the mean of a step, or of an element, as written; None where it was not measured."""
    return diagnosis.reached_ms or (result.step_ms.mean if result is not None else None)
