"""What every report says of a diagnosis, in the same words: the conclusion, what was tried, how far it can go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline_bench.analysis.conclusion import conclude, was_interrupted
from pipeline_bench.analysis.speedups import beyond_ceiling, is_open, may_gain, smallest
from pipeline_bench.analysis.thresholds import FEWEST_STEPS, PROBABLE_CLAIM
from pipeline_bench.diagnosis import attempt_statistics, step_times
from pipeline_bench.diagnosis.attempt_statistics import CONFIRMED_TRIALS, AttemptStatistics
from pipeline_bench.diagnosis.conclusion import beaten, best_part
from pipeline_bench.errors import sentence, with_stop
from pipeline_bench.model.diagnosis import AS_WRITTEN, Attempt, CodeChange, Diagnosis, Outcome
from pipeline_bench.model.result import Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report import pipeline_tree
from pipeline_bench.report.layout import DETAILS
from pipeline_bench.report.limits import LimitLine, limits, reached_ms
from pipeline_bench.text import NAME, REASON, TEXT, code_line, joined, one_line, units

MARK = "◀ bottleneck"
_OUTCOMES: dict[Outcome, str] = {
    "proposed": "proposed",
    "faster": "faster",
    "no-gain": "no gain",
    "slower": "slower",
    "refused": "refused",
    "not-applicable": "does not apply",
    "failed": "failed",
    "not-tried": "not tried",
    "pending": "not done",
}
"""The outcomes in words, in the order of a report."""
_GROUPS: dict[str, tuple[Outcome, ...]] = {
    "Fixes that help, best first": ("proposed", "faster"),
    "Tried, but of no proven use": ("no-gain", "pending"),
    "Tried and rejected": ("slower", "refused", "not-applicable", "failed"),
}
TRACEBACK = "Your own code's traceback"
_EQUALITY = {
    "identical": "the same samples in the same order",
    "reordered": "the same samples in another order",
    "random": "the same samples, apart from random content",
    "unequal": "other samples",
    "not-told": "whether the samples are the same is not known",
}
_TOO_WIDE = 10.0
"""An interval whose ends are so many times apart, or a least difference so large, says nothing of use."""
_LACKS = ("hardly faster", "hardly more than a part alone", "too few trials", "samples not compared")
"""What a fix lacks that is faster beyond chance and yet not proposed."""
_CODE = 400
"""The most characters of a line of a diff or a traceback."""


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
    """``3.04 to 3.20×``, or that it is too wide to be of use; empty where there is none."""
    remark: str
    """Whether the samples stayed the same, or why it came to nothing."""

    @property
    def helps(self) -> bool:
        """Whether it makes the pipeline faster and may be used."""
        return self.attempt.outcome in ("proposed", "faster")

    @property
    def why_not(self) -> str:
        """Why it cannot be used, in a few words; empty where it can."""
        if self.attempt.outcome not in ("refused", "failed"):
            return ""
        status = self.attempt.equality.status if self.attempt.equality is not None else None
        return {"unequal": "other samples", "reordered": "another order"}.get(status or "", f"{DETAILS} shows why")

    @property
    def lead(self) -> str:
        """What came of it, behind its name: ``faster 3.12× (3.04 to 3.20×)``."""
        between = ", " if self.outcome in _LACKS or self.outcome.endswith("%") else " "
        gain = f"{between}{self.gain}" if self.gain != units.NOT_MEASURED else ""
        return f"{self.outcome}{gain}{f' ({self.interval})' if self.interval else ''}"

    @property
    def text(self) -> str:
        """What it does, where its name is not all that is known, and the remark, in sentences."""
        title = "" if self.title == self.variant else self.title.rstrip(".")
        sentences = [part for part in (title, self.remark) if part]
        return f"{'. '.join(sentences)}." if sentences else ""


@dataclass(frozen=True)
class Section:
    """A part of a diagnosis' report: a format lays out what there is of these, in this order."""

    title: str
    more: str = ""
    """What stands beside the title in small letters."""
    code: Sequence[str] = ()
    """The lines of a diff or of a traceback."""
    lines: Sequence[str] = ()
    is_finding: bool = False
    """Whether the lines name the bottleneck."""
    rows: Sequence[pipeline_tree.StageRow] = ()
    """The tree of stages."""
    tries: Sequence[tuple[str, Sequence[Tried]]] = ()
    """Attempts, in groups with a head each."""
    left_out: Sequence[str] = ()
    limits: Sequence[LimitLine] = ()


def sections(session: Session, diagnosis: Diagnosis) -> Iterator[Section]:
    """Yield what every report says of a diagnosis behind its headline; what there is not is left out."""
    tries, rows = tried(session, diagnosis), pipeline_tree.rows(diagnosis)
    groups = _groups(tries)
    name, change = code(tries, diagnosis) or ("", CodeChange())
    noun, bound = element_noun(diagnosis), diagnosis.bottleneck
    besides = one_line(f"Also: {change.text}" if change.diff and change.text else change.text)
    notes = diagnosis.inspection.notes if diagnosis.inspection is not None else ()
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
            lines=[line for line in (besides, _alike(change)) if line],
        ),
        Section("How far it can go", f"the shortest possible time of a {noun}", limits=limits(session, diagnosis)),
        Section("Notes on the pipeline", lines=notes),
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
    # A narrow screen cuts the end.
    return f"{takes}; input wait {wait}, the model alone {ceiling}{_of_few(result)}"


def _of_few(result: Result | None) -> str:
    """Return of how few steps a mean is, of which one that was disturbed makes up much; "" of one of enough steps."""
    if result is None or not 0 < result.steps < FEWEST_STEPS or result.step_ms.median is None:
        return ""
    return f" (a mean of {units.count(result.steps, 'step')}, median {units.milliseconds(result.step_ms.median)})"


def _of_what(diagnosis: Diagnosis) -> str:
    if diagnosis.model is not None:
        return "A training step"
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
    return [
        *lines,
        f"Input wait {units.share(result.input_wait_share.value)}, "
        f"host slowdown {units.share(result.host_slowdown_share.value)}, "
        f"ceiling (the model alone) {units.milliseconds(step_times.ceiling_ms(session))}, "
        f"accelerator utilization (AU) {units.fraction(result.accelerator_utilization.value)}.",
        *_why_missing(result),
        sentence(one_line(result.verdict.text, TEXT)),
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


def tried(session: Session, diagnosis: Diagnosis) -> list[Tried]:
    """Return every attempt: those that help first, the best of them first, then the others, each with its reason.

    Of those not proven the one comes first that the conclusion calls the most promising.
    """
    speedups = {result.variant: result.speedup for result in session.results}
    every = attempt_statistics.of(session, diagnosis)
    found = {each.name: each for each in every}
    labels, notes = _labels(diagnosis), _notes(session)

    def rank(each: Tried) -> tuple[int, float]:
        name, outcome = each.attempt.fix.variant, each.attempt.outcome
        gain = found[name].likely_gain if outcome == "no-gain" else speedups.get(name, Speedup()).value or 0.0
        return list(_OUTCOMES).index(outcome), -gain

    made = []
    for attempt in diagnosis.attempts:
        fix = attempt.fix
        speedup = speedups.get(fix.variant, Speedup())
        maybe = attempt.outcome == "no-gain" and may_gain(speedup)  # what was measured too little is not without gain
        if maybe and (beyond := beyond_ceiling(speedup, session)):
            speedup, notes[fix.variant] = Speedup(), beyond
        ci95 = speedup.ci95
        remark = "; ".join(_remarks(attempt, speedup, maybe, notes.get(fix.variant, "")))
        made.append(
            Tried(
                attempt,
                one_line(fix.variant, NAME),
                one_line(fix.variant if fix.combines else fix.title, REASON),
                _outcome(found[fix.variant], every, speedup, maybe),
                units.ratio(speedup.value),
                "interval too wide" if ci95 is not None and too_wide(ci95) else units.ends(units.ratio, ci95, "{}"),
                _opening(remark, labels),
            )
        )
    return sorted(made, key=rank)


def _outcome(each: AttemptStatistics, every: list[AttemptStatistics], speedup: Speedup, maybe: bool) -> str:
    """Return the outcome in words: the level that would prove a gain, and of a proven one what else it lacks."""
    if each.attempt.outcome != "no-gain":
        return _OUTCOMES[each.attempt.outcome]
    if speedup.difference == "faster":
        hardly, part_alone, too_few, not_compared = _LACKS
        if not each.contends or beaten(each, best_part(each, every)):
            return part_alone if each.contends else hardly
        return too_few if each.trials < CONFIRMED_TRIALS else not_compared
    if speedup.ci95 is not None and speedup.ci95[0] > 1:
        return f"not proven at {units.confidence(PROBABLE_CLAIM)}"
    if is_open(speedup):
        return "not decided"
    return "not proven" if maybe else _OUTCOMES["no-gain"]


def _remarks(attempt: Attempt, speedup: Speedup, maybe: bool, note: str) -> Iterator[str]:
    """Yield what is to be said of an attempt, in its order, in clauses without a full stop."""
    fix = attempt.fix
    helps = attempt.outcome in ("proposed", "faster")
    texts = [attempt.reason]
    if attempt.equality is not None and helps:
        texts.append(attempt.equality.text or _EQUALITY[attempt.equality.status])
    least = speedup.smallest or _TOO_WIDE
    if attempt.outcome == "no-gain" and not maybe and speedup.value is not None and least < _TOO_WIDE:
        texts.append(smallest(speedup))
    if helps or maybe or attempt.outcome in ("not-tried", "pending"):
        texts.append(fix.because)
    if helps and not fix.because:
        texts += ["may change the order"] * fix.reorders
        texts += ["runs a function on several threads at once"] * fix.threads
    yield from (one_line(text, TEXT).rstrip(".") for text in (*texts, note) if text)


def left_out(tries: Sequence[Tried], diagnosis: Diagnosis) -> list[str]:
    """Return the fixes that were never tried, a line for those of one reason: ``Reason: fix, fix``."""
    groups: dict[str, list[str]] = {}
    for each in tries:
        if each.attempt.outcome == "not-tried":
            reason = one_line(each.attempt.reason, TEXT).rstrip(".") or "no reason is known"
            groups.setdefault(reason, []).append(each.variant)
    labels = _labels(diagnosis)
    return [f"{_opening(reason, labels)}: {', '.join(fixes)}" for reason, fixes in groups.items()]


def _notes(session: Session) -> dict[str, str]:
    """Return what the first trial of each variant that says anything says of how it was measured."""
    found: dict[str, str] = {}
    for trial in session.trials:
        if trial.inspection is not None and trial.inspection.notes:
            text = trial.inspection.notes[0]
            found.setdefault(trial.variant, text[:1].lower() + text[1:])
    return found


def _labels(diagnosis: Diagnosis) -> tuple[str, ...]:
    stages = diagnosis.inspection.stages if diagnosis.inspection is not None else ()
    names = [each for s in stages for each in (s.label, s.function.name if s.function is not None else s.method)]
    return tuple(f"{each}{end}" for each in names for end in (" ", ", "))


def _opening(text: str, labels: tuple[str, ...]) -> str:
    """Return the text as a sentence begins; but the name of a stage or of a function is code, and stays as it is."""
    return text if text.startswith(labels) else sentence(text)


def too_wide(interval: tuple[float, float]) -> bool:
    """Return whether the ends of a ratio's interval are so far apart that it is of no use."""
    low, high = interval
    return low <= 0 or high / low > _TOO_WIDE


def code(tries: Sequence[Tried], diagnosis: Diagnosis) -> tuple[str, CodeChange] | None:
    """Return the code that is shown and the attempt that it is of: the proposed one, else the best that has any."""
    able = [(each, each.attempt.code) for each in tries if each.helps and each.attempt.code is not None]
    able.sort(key=lambda pair: pair[0].attempt.fix.variant != diagnosis.proposal)
    return (able[0][0].variant, able[0][1]) if able else None


def traceback_lines(text: str, most: int = 40) -> list[str]:
    """Return the last lines of the user's own traceback, harmless."""
    return [code_line(line, _CODE) for line in text.splitlines()][-most:]
