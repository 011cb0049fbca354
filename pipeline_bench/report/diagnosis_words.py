"""What every report says of a diagnosis, in the same words: where it stands, what was tried, how far it can go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_bench.analysis.speedups import may_gain, smallest
from pipeline_bench.errors import sentence
from pipeline_bench.model.diagnosis import AS_WRITTEN, Attempt, Diagnosis, Outcome
from pipeline_bench.model.result import Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.text import code_line, one_line, units

MARK = "◀ bottleneck"
_RANK: dict[Outcome, int] = {
    "proposed": 0,
    "faster": 1,
    "no-gain": 2,
    "slower": 3,
    "refused": 4,
    "failed": 5,
    "not-tried": 6,
    "pending": 7,
}
_SAID: dict[Outcome, str] = {
    "proposed": "proposed",
    "faster": "faster",
    "no-gain": "no gain",
    "slower": "slower",
    "refused": "refused",
    "failed": "failed",
    "not-tried": "not tried",
    "pending": "not done",
}
_EQUALITY = {
    "identical": "the same samples in the same order",
    "reordered": "the same samples in another order",
    "random": "the same samples as far as random content can tell",
    "unequal": "other samples",
    "not-told": "whether the samples are the same is not known",
}
_TEXT_LIMIT = 400
_LOG_LINE = re.compile(
    r"[IWE]\d{4} \d\d:\d\d|WARNING: All log messages|To enable the following|\d{4}(-\d\d){2} .{8,20}: [IWE] "
)
"""TensorFlow's own log, below its fatal errors."""
_TOO_WIDE = 10.0
"""An interval whose ends are so many times apart, or a least difference so large, tells nobody anything."""


@dataclass(frozen=True)
class Tried:
    """One attempt as a report lists it."""

    attempt: Attempt
    variant: str
    title: str
    """What it does, in words; of a combination, which is of fixes that are listed too, only its name."""
    outcome: str
    gain: str
    """``3.12×``; a dash where it was not measured."""
    interval: str
    """``3.04× to 3.20×``, or that it is too wide to tell anything; empty where there is none."""
    remark: str
    """Whether the samples stayed the same, or why it came to nothing."""

    @property
    def helps(self) -> bool:
        """Whether it makes the pipeline faster and may be used."""
        return self.attempt.outcome in ("proposed", "faster")


@dataclass(frozen=True)
class LeftOut:
    """Fixes that were not tried for one and the same reason."""

    reason: str
    fixes: tuple[str, ...]
    """Their names."""

    @property
    def text(self) -> str:
        """Reason and fixes in a line."""
        return f"{self.reason}: {', '.join(self.fixes)}"


@dataclass(frozen=True)
class LimitLine:
    """One limit beside what was reached."""

    name: str
    ms: float | None
    text: str
    reached: bool = False
    """Whether it was measured of the pipeline, and is no limit."""


def as_written(session: Session) -> Result | None:
    """The result of the pipeline as the user wrote it."""
    return next((result for result in session.results if result.variant == AS_WRITTEN), None)


def standing(session: Session, diagnosis: Diagnosis) -> list[str]:
    """Where the pipeline stands, a sentence or list of figures a line; empty where nothing was measured."""
    result = as_written(session)
    reached_ms = diagnosis.reached_ms or (result.step_ms.mean if result is not None else None)
    if reached_ms is None or reached_ms <= 0:
        return []
    what = element_noun(diagnosis)
    lines = [f"{'A training step' if diagnosis.model else sentence(_a(what))} takes {units.milliseconds(reached_ms)}"]
    lines[0] += f": {units.rate(1e3 / reached_ms)} {what}{'es' if what == 'batch' else 's'}/s"
    if what == "batch" and (samples := _samples_per_second(diagnosis, result, reached_ms)) is not None:
        lines[0] += f", {units.rate(samples)} samples/s"
    lines[0] += "."
    if diagnosis.model is None:
        return [*lines, f"An accelerator whose step is shorter than {units.milliseconds(reached_ms)} would starve."]
    return [*lines, *(_trained(result) if result is not None else [])]


def element_noun(diagnosis: Diagnosis) -> str:
    """What the pipeline yields: a ``batch``, or an ``element`` where it is not batched."""
    return "batch" if diagnosis.inspection is not None and diagnosis.inspection.batch_size else "element"


def _a(noun: str) -> str:
    return f"{'an' if noun.startswith('e') else 'a'} {noun}"


def _samples_per_second(diagnosis: Diagnosis, result: Result | None, reached_ms: float) -> float | None:
    if result is not None and result.samples_per_second is not None:
        return result.samples_per_second
    size = diagnosis.inspection.batch_size if diagnosis.inspection is not None else None
    return size * 1e3 / reached_ms if size else None


def _trained(result: Result) -> list[str]:
    figures = [
        f"input wait {units.share(result.input_wait_share.value)}",
        f"host slowdown {units.share(result.host_slowdown_share.value)}",
        f"ceiling (the model alone) {units.milliseconds(result.ceiling_ms.value)}",
        f"accelerator utilization (AU) {units.fraction(result.accelerator_utilization.value)}",
    ]
    text = f"{sentence(', '.join(figures))}."
    return [text, sentence(one_line(result.verdict.text, _TEXT_LIMIT))]


def tried(session: Session, diagnosis: Diagnosis) -> list[Tried]:
    """Every attempt: those that help first, the best of them first, then those that do not, each with its reason."""
    results = {result.variant: result for result in session.results}
    labels = _labels(diagnosis)
    notes = _notes(session)
    made = [
        _tried(attempt, results.get(attempt.fix.variant), labels, notes.get(attempt.fix.variant, ""))
        for attempt in diagnosis.attempts
    ]
    return sorted(made, key=lambda each: (_RANK[each.attempt.outcome], -_gain(results, each)))


def left_out(tries: Sequence[Tried], diagnosis: Diagnosis) -> list[LeftOut]:
    """Those that were never tried, together where the reason is the same, in the order of `tries`."""
    groups: dict[str, list[str]] = {}
    for each in tries:
        if each.attempt.outcome == "not-tried":
            reason = one_line(each.attempt.reason, _TEXT_LIMIT).rstrip(".") or "no reason is known"
            groups.setdefault(reason, []).append(each.variant)
    labels = _labels(diagnosis)
    return [LeftOut(_opening(reason, labels), tuple(fixes)) for reason, fixes in groups.items()]


def _notes(session: Session) -> dict[str, str]:
    """What the first trial of a variant that said anything said of how it was measured."""
    found: dict[str, str] = {}
    for trial in session.trials:
        if trial.inspection is not None and trial.inspection.notes:
            text = trial.inspection.notes[0]
            found.setdefault(trial.variant, text[:1].lower() + text[1:])
    return found


def _labels(diagnosis: Diagnosis) -> tuple[str, ...]:
    stages = diagnosis.inspection.stages if diagnosis.inspection is not None else ()
    return tuple(f"{one_line(stage.label)} " for stage in stages)


def _opening(text: str, labels: tuple[str, ...]) -> str:
    """As a sentence begins; but a stage's name is code, and keeps its small letter."""
    return text if text.startswith(labels) else sentence(text)


def _gain(results: dict[str, Result], each: Tried) -> float:
    result = results.get(each.attempt.fix.variant)
    return (result.speedup.value or 0.0) if result is not None else 0.0


def _tried(attempt: Attempt, result: Result | None, labels: tuple[str, ...], note: str) -> Tried:
    speedup = result.speedup if result is not None else None
    measured = speedup is not None and speedup.value is not None
    said = _said(attempt, speedup)
    gain = units.ratio(speedup.value) if speedup is not None else units.NOT_MEASURED
    remarks = [attempt.reason, *_equality(attempt)]
    if speedup is not None and measured and said == _SAID["no-gain"] and (speedup.smallest or _TOO_WIDE) < _TOO_WIDE:
        remarks.append(smallest(speedup))
    remarks += [attempt.fix.because] if attempt.outcome in ("proposed", "faster", "not-tried", "pending") else []
    if not attempt.fix.because and attempt.outcome in ("proposed", "faster"):
        remarks += ["may change the order"] * attempt.fix.reorders
        remarks += ["runs a function on several threads at once"] * attempt.fix.threads
    remarks.append(note)
    remark = "; ".join(one_line(text, _TEXT_LIMIT).rstrip(".") for text in remarks if text)
    return Tried(
        attempt,
        one_line(attempt.fix.variant, 80),
        one_line(attempt.fix.variant if attempt.fix.combines else attempt.fix.title, 160),
        said,
        gain,
        _interval(speedup),
        _opening(remark, labels),
    )


def _interval(speedup: Speedup | None) -> str:
    if speedup is None or speedup.ci95 is None:
        return ""
    low, high = speedup.ci95
    if too_wide(speedup.ci95):
        return "interval too wide to tell"
    return f"{units.ratio(low)} to {units.ratio(high)}"


def too_wide(interval: tuple[float, float]) -> bool:
    """Whether the ends of a ratio's interval are so far apart that it tells nothing."""
    low, high = interval
    return low <= 0 or high / low > _TOO_WIDE


def _said(attempt: Attempt, speedup: Speedup | None) -> str:
    """The outcome in words; what may well have gained, and was measured too little to tell, is not without gain."""
    if attempt.outcome == "no-gain" and speedup is not None and may_gain(speedup):
        return "not proven"
    return _SAID[attempt.outcome]


def _equality(attempt: Attempt) -> list[str]:
    if attempt.equality is None or attempt.outcome not in ("proposed", "faster"):
        return []
    return [attempt.equality.text or _EQUALITY[attempt.equality.status]]


def limits(session: Session, diagnosis: Diagnosis) -> list[LimitLine]:
    """The limits, the nearest first, with what was reached as it is written and with the fix among them."""
    result = as_written(session)
    reached_ms = diagnosis.reached_ms or (result.step_ms.mean if result is not None else None)
    lines = [LimitLine("as it is written", reached_ms, "reached", True)] if reached_ms else []
    proposed = next((r for r in session.results if r.variant == diagnosis.proposal), None)
    if proposed is not None and proposed.step_ms.mean is not None:
        name = one_line(proposed.variant, 60)
        lines.append(LimitLine(f"with {name}", proposed.step_ms.mean, "reached, the fix that is proposed", True))
    for limit in diagnosis.limits:
        text = one_line(limit.text, _TEXT_LIMIT)
        lines.append(LimitLine(one_line(limit.name, 60), limit.ms, text))
    return sorted(lines, key=lambda each: -each.ms if each.ms is not None else float("inf"))


def code(tries: Sequence[Tried], diagnosis: Diagnosis) -> Tried | None:
    """The attempt whose code is shown: the one that is proposed, else the best that helps and has any."""
    able = [each for each in tries if each.helps and each.attempt.code is not None]
    return next((each for each in able if each.attempt.fix.variant == diagnosis.proposal), able[0] if able else None)


def bottleneck(session: Session, diagnosis: Diagnosis) -> str:
    """What limits the pipeline, in a sentence with its share; empty where the headline says it already."""
    found = diagnosis.bottleneck
    if found is None or not found.text or found.text in diagnosis.text:
        return ""
    share = units.share(found.share)
    said = one_line(found.text, _TEXT_LIMIT)
    return said if found.share is None or share in said else f"{said} ({share} of the time)"


def diff_lines(diff: str) -> list[str]:
    """A diff's lines, harmless, their blanks kept."""
    return [code_line(line, 400) for line in diff.splitlines()]


def traceback_lines(text: str, most: int = 40) -> list[str]:
    """The last lines of the user's own traceback, harmless."""
    return [code_line(line, 400) for line in text.splitlines()][-most:]


def _ended(text: str) -> str:
    return text if text.endswith((".", "…")) else f"{text}."


def headline(session: Session, diagnosis: Diagnosis) -> str:
    """The sentence that every report begins with."""
    if diagnosis.text:
        return _ended(one_line(diagnosis.text, 1200))
    if diagnosis.failure:
        return _ended(sentence(one_line(diagnosis.failure, 1200)))
    stopped = any(trial.status == "interrupted" for trial in session.trials)
    return "Interrupted before anything was found out." if stopped else "Nothing was found out yet."


def own_words(stderr: str) -> list[str]:
    """What a trial's process said on stderr beside the lines that TensorFlow logs in any process."""
    return [line for line in stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
