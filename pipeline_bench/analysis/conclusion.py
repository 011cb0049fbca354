"""What a session comes down to: the fastest variant, and one sentence that every report begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline_bench.analysis import speedups
from pipeline_bench.model.result import Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.text import units

WORTH = 1.1
"""A gain that a reader would want to know of even where it is not proven."""


def fastest(session: Session) -> Result | None:
    """The variant with the highest speed-up among those that did the work they should; None where none is known.

    A ceiling has no input and is none to compare; what did other work than it should is not faster, nor is what trained
    on another emulated device than the baseline. Where the baseline was not measured there are no speed-ups, and the
    throughput decides.
    """
    able, baseline = _comparable(session), session.scenario.baseline.name
    if all(result.speedup.value is None for result in able):
        return max(
            able, key=lambda result: (result.samples_per_second or 0.0, result.variant == baseline), default=None
        )
    return max(able, key=lambda result: 1.0 if result.variant == baseline else result.speedup.value or 0.0)


def conclude(session: Session) -> str:
    """Who is fastest, by how much, whether that can be told from the next ones, and what limits the baseline."""
    found = _found(session)
    return f"As far as it was measured: {found}" if _cut_short(session) else found


def _found(session: Session) -> str:
    if session.watched and session.results:
        return f"{_limit(session.results[0])}."
    best, baseline = fastest(session), session.scenario.baseline.name
    if best is None:
        return "Nothing was measured that could be compared."
    base = next((result for result in session.results if result.variant == baseline and result.trials), None)
    if base is None:
        return f"{best.variant} was measured, but {baseline}, which the others are compared with, was not."
    return _kept_busy(session) if _several_emulated(session, base) else _compared(session, best, base)


def _compared(session: Session, best: Result, base: Result) -> str:
    """Return what the best one gains over the baseline, and what limits that."""
    limit = _limit(base)
    if len(_comparable(session)) == 1:
        return (
            f"{limit}." if best is base else f"{best.variant} was measured, with nothing to compare it with; {limit}."
        )
    told = [result for result in _comparable(session) if _is(result.speedup, "faster")]
    leader = max(told, key=lambda result: result.speedup.value or 0.0, default=None)
    if leader is None:
        return f"{_none_faster(session, best, base)}; {limit}."
    return f"{_gain(session, leader, base.variant)}; {limit}."


def _none_faster(session: Session, best: Result, base: Result) -> str:
    """Return how the others stand to a baseline that none was found to be faster than."""
    baseline = base.variant
    others = [result for result in _comparable(session) if result is not base]
    single = [result for result in others if result.speedup.value is not None and result.speedup.ci95 is None]
    if best is not base and best in single:
        times = units.ratio(best.speedup.value)
        return f"{best.variant} had {times} the throughput of {baseline} in one trial each, which proves no difference"
    ties = [result.variant for result in others if speedups.tie(result.speedup)]
    slower = [result.variant for result in others if _is(result.speedup, "slower")]
    unsure = [result for result in others if result.variant not in (*ties, *slower)]
    said = [f"{_joined([baseline, *ties], 'and')} tie"] if ties else []
    if best in unsure and (best.speedup.value or 0.0) > WORTH:
        low, high = (units.ratio(end) for end in best.speedup.ci95 or ())
        said.append(
            f"{best.variant} may be faster than {baseline}: {units.ratio(best.speedup.value)} ({low} to {high})"
        )
        unsure.remove(best)
    if unsure:
        names = _joined([result.variant for result in unsure], "and")
        said.append(f"{names} {'are' if len(unsure) > 1 else 'is'} not told from {baseline}")
    return "; ".join(said) or f"No variant is faster than {baseline}"


def _is(speedup: Speedup, difference: Literal["faster", "slower"]) -> bool:
    """Return whether that is said of it; the sessions of the first version say it by their interval alone."""
    if speedup.difference is None and speedup.ci95 is not None:
        return speedup.ci95[0] > 1 if difference == "faster" else speedup.ci95[1] < 1
    return speedup.difference == difference


def _gain(session: Session, leader: Result, baseline: str) -> str:
    """Return by how much the fastest one is faster than the baseline, and who may be as fast."""
    speedup = leader.speedup
    ties, unsure = _rivals(session, leader)
    low, high = (units.ratio(end) for end in speedup.ci95 or (speedup.value, speedup.value))
    times = f"{units.ratio(speedup.value)} the throughput of {baseline} ({low} to {high})"
    probably = "probably " if speedup.certainty == "probable" else ""
    if ties:
        said = f"{_joined([leader.variant, *ties], 'and')} tie: {probably}about {times}"
    elif unsure or probably:
        said = f"{leader.variant} is {probably}faster: {times}"
    else:
        said = f"{leader.variant} is fastest: {times}"
    return f"{said}; {_joined(unsure, 'and')} may be as fast" if unsure else said


def _cut_short(session: Session) -> bool:
    return any(trial.status == "interrupted" for trial in session.trials)


def smallest(speedup: Speedup) -> str:
    """What a run that found no difference could have told, in the words of every report."""
    return f"smallest this run could have seen: {units.precision(speedup.smallest)}"


def may_gain(speedup: Speedup) -> bool:
    """Whether it came to a gain worth having that may be chance as well: it is neither proven nor excluded."""
    is_open = speedup.ci95 is None or speedup.ci95[1] > WORTH
    return is_open and (speedup.value or 0.0) > WORTH


def _able(session: Session) -> Sequence[Result]:
    ceilings = {variant.name for variant in session.scenario.variants if variant.is_ceiling}
    return [
        result
        for result in session.results
        if result.samples_per_second is not None and result.work.status != "unequal" and result.variant not in ceilings
    ]


def _comparable(session: Session) -> Sequence[Result]:
    """Those that can be held against the baseline: they trained on the same device, emulated or not."""
    able = _able(session)
    base = next((result for result in able if result.variant == session.scenario.baseline.name), None)
    return [result for result in able if base is None or result.emulated == base.emulated]


def _several_emulated(session: Session, base: Result) -> bool:
    """Whether the baseline emulates one of several devices: who is fastest is then no question."""
    return base.emulated is not None and len({result.emulated for result in _able(session)} - {None}) > 1


def _kept_busy(session: Session) -> str:
    """Of several emulated devices, which ones the host kept busy: what a scenario of them asks."""
    able = [result for result in _able(session) if result.emulated]
    said: dict[str, list[str]] = {"kept busy": [], "not kept busy": [], "not told": []}
    devices = list(dict.fromkeys(str(result.emulated) for result in able))
    for device, name in zip(devices, units.without_shared_start(devices), strict=True):
        own = sorted((result for result in able if result.emulated == device), key=_utilization, reverse=True)
        enough = next((result for result in own if result.verdict.kind == "compute-bound"), None)
        unknown = any(result.verdict.kind == "inconclusive" for result in own)
        best = enough or own[0]
        answer = "kept busy" if enough else "not told" if unknown else "not kept busy"
        reached = units.fraction(best.accelerator_utilization.value)
        said[answer].append(f"{name} ({best.variant}, AU {reached})")
    told = [f"{answer}: {_joined(names, 'and')}" for answer, names in said.items() if names]
    return f"Of the emulated accelerators, {'; '.join(told)}."


def _utilization(result: Result) -> float:
    return result.accelerator_utilization.value or 0.0


def _rivals(session: Session, leader: Result) -> tuple[list[str], list[str]]:
    """Return those that tie with the leader, and those that are not told from it."""
    low = leader.speedup.ci95[0] if leader.speedup.ci95 else 0.0
    ties: list[str] = []
    unsure: list[str] = []
    for result in _comparable(session):
        if result is leader or result.variant == session.scenario.baseline.name:
            continue
        against = result.against_fastest
        if against.over == leader.variant and against.ci95 is not None:
            if speedups.tie(against):
                ties.append(result.variant)
            elif not _is(against, "slower"):
                unsure.append(result.variant)
        elif result.speedup.value is not None and (result.speedup.ci95 is None or result.speedup.ci95[1] >= low):
            unsure.append(result.variant)
    return ties, unsure


def _joined(names: Sequence[str], word: str) -> str:
    """``a, b or c``; ``a, 1; a, 2; or b, 1`` where names have commas of their own."""
    if len(names) > 2 and any("," in name for name in names):  # noqa: PLR2004 - two need no comma between them
        return f"{'; '.join(names[:-1])}; {word} {names[-1]}"
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _limit(baseline: Result) -> str:
    name, severely = baseline.variant, "severely " if baseline.verdict.severe else ""
    known = {
        "inconclusive": f"what limits {name} stays open",
        "unequal-work": f"the work of {name} itself was not equal",
        "not-measured": f"{name} was not measured",
        "mixed": f"nothing limits {name} alone",
    }
    probably = "probably " if baseline.verdict.certainty == "probable" else ""
    return known.get(baseline.verdict.kind, f"{name} is {probably}{severely}{baseline.verdict.kind}")
