"""The one sentence that a session comes down to: who is fastest, by how much, and what limits the baseline. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline_bench.analysis import thresholds
from pipeline_bench.analysis.speedups import able_to_compare, comparable, fastest, may_gain, no_claim, tie
from pipeline_bench.analysis.verdicts import label, probably
from pipeline_bench.model.hosts import Hosts
from pipeline_bench.model.result import DeviceCopy, Result, Speedup, VerdictKind
from pipeline_bench.model.selftest import PartStatus, Selftest
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, grouped, joined, one_line, units


def of_hosts(hosts: Hosts) -> str:
    """Return what several hosts come to, variant by variant: of equal verdicts that of the most hosts."""
    many = len({found.variant for found in hosts.results}) > 1
    last = {(found.variant, found.kind, found.named): found for found in hosts.results}
    said = [
        f"{found.variant}: {found.text}." if many else f"{found.text[:1].upper()}{found.text[1:]}."
        for found in last.values()
    ]
    missing = len(hosts.missing)
    left = f": {units.count(missing, 'rank')} of {hosts.hosts[0].size} {'is' if missing == 1 else 'are'} missing"
    return " ".join(said) or f"No hosts ran a trial at the same time{left if missing else ''}."


def conclude(session: Session, *, with_limit: bool = True) -> str:
    """Return who is fastest, by how much, whether it differs from the next ones, and what limits the baseline.

    `with_limit`: False where a line of the baseline's own says what limits it; it is said where nothing else is.
    """
    if session.selftest is not None:
        return _checked(session.selftest)
    found = _found(session, with_limit) if session.hosts is None else of_hosts(session.hosts)
    if was_interrupted(session):
        return f"Interrupted; until then: {found}"
    ended, planned = len(session.trials), planned_trials(session)
    return f"After {ended} of {planned} trials: {found}" if 0 < ended < planned else found


def was_interrupted(session: Session) -> bool:
    """Return whether the user ended it, in a trial or between two of them, and it has kept that."""
    between = session.precision is not None and session.precision.ended_by == "interrupted"
    attempts = session.diagnosis.attempts if session.diagnosis is not None else ()
    left = any(attempt.cause == "interrupted" for attempt in attempts)
    return between or left or any(trial.status == "interrupted" for trial in session.trials)


def planned_trials(session: Session) -> int:
    """Return how many trials there are to be; 0 where no plan says it, because rounds are added or fixes tried."""
    if session.precision is not None or session.diagnosis is not None:
        return 0
    return sum(variant.run.repeats for variant in session.scenario.variants)


def _checked(selftest: Selftest) -> str:
    """Return what a selftest found: the parts that failed, or that none did."""
    ran = [part for part in selftest.parts if part.status not in ("shown", "not-run")]
    if not ran:
        return "Nothing could be checked on this machine."
    passed = sum(part.status == "passed" for part in ran)
    others: dict[str, PartStatus] = {
        "failed": "failed",
        "not decided": "disturbed",
        "measured, not judged": "shown",
        "not run": "not-run",
    }
    exceptions = [
        f"{word}: {', '.join(names)}"
        for word, status in others.items()
        if (names := [part.name for part in selftest.parts if part.status == status])
    ]
    head = "The planted delays were measured correctly: " if passed == len(ran) else ""
    return "; ".join([f"{head}{passed} of {units.count(len(ran), 'part')} passed", *exceptions]) + "."


def _found(session: Session, with_limit: bool) -> str:
    if session.watched and session.results:
        return f"{_limit(session.results[0], begins=True)}."
    best, baseline, ceilings = fastest(session), session.scenario.baseline.name, session.scenario.ceilings
    able = comparable(session.scenario, session.results)
    if best is None or (len(able) == 1 and best.variant in ceilings):  # which has no input that could limit it
        return "No variant was measured that can be compared."
    base = session.find_result(baseline)
    if base is None or not base.trials:
        return f"{_name(best)} was measured, but the baseline {one_line(baseline, NAME)} was not."
    if base.work.status == "unequal":
        return f"Nothing is compared, because {_limit(base)}: {base.work.text}."
    emulating = [result for result in able_to_compare(session.scenario, session.results) if result.emulated]
    if base.emulated is not None and len({result.emulated for result in emulating}) > 1 and baseline not in ceilings:
        return _kept_busy(emulating)
    says_limit = baseline not in ceilings and (with_limit or base.verdict.kind in _NO_LIMIT)
    limit = f"; {_limit(base)}." if says_limit else "."
    return _compared(able, best, base, limit) + _overlaps(session)


def _compared(able: Sequence[Result], best: Result, base: Result, limit: str) -> str:
    """Return what the best one gains over the baseline, and behind it what limits that."""
    if len(able) == 1:
        return (
            f"{_limit(base, begins=True)}."
            if best is base
            else f"{_name(best)} was measured, without another variant to compare with{limit}"
        )
    apart = [_name(result) for result in able if result is not base and result.speedup.value is None]
    proven = [result for result in able if _is(result.speedup, "faster")]
    leader = max(proven, key=lambda result: result.speedup.value or 0.0, default=None)
    others = [result for result in able if result not in (base, leader) and result.speedup.value is not None]
    if leader is not None:
        said = _gain(others, leader, _name(base), of_all=not apart)
    else:
        said = _none_faster(others, best, base) if others else ""
    if apart:
        said = f"{said}; no" if said else "No"
        said += f" round has a good trial of both {_name(base)} and {joined(apart, 'or')}"
    return f"{said}{limit}"


def _none_faster(others: Sequence[Result], best: Result, base: Result) -> str:
    """Return how the others compare with a baseline that none was found to be faster than."""
    baseline = _name(base)
    single = [result for result in others if result.speedup.value is not None and result.speedup.ci95 is None]
    if best is not base and best in single:
        times = units.ratio(best.speedup.value)
        return f"{_name(best)} had {times} the throughput of {baseline} in one trial each, which may be chance"
    tied = [result for result in others if tie(result.speedup)]
    ties = [_name(result) for result in tied]
    slower = [result for result in others if _is(result.speedup, "slower")]
    unsure = [result for result in others if result not in tied and result not in slower]
    if not ties and not unsure:
        return f"No variant is faster than {baseline}"
    said = [f"{joined([baseline, *ties], 'and')} tie"] if ties else []
    # A high figure alone is no hint: its 95 % interval has to leave out 1. "Faster" needs more than that.
    if best in unsure and may_gain(best.speedup) and best.speedup.ci95 is not None and best.speedup.ci95[0] > 1:
        times = units.ratio(best.speedup.value)
        said.append(f"{_name(best)} may be faster than {baseline}: {times}{units.ends(units.ratio, best.speedup.ci95)}")
        unsure.remove(best)
    if unsure:
        shown = units.ends(units.ratio, unsure[0].speedup.ci95) if len(unsure) == 1 else ""
        named = joined([_name(each) for each in unsure], "or")
        it = "it" if said else "It"
        said.append(f"{it} is not decided whether {named} is faster or slower than {baseline}{shown}")
    if slower:
        probably = "probably " if any(each.speedup.certainty == "probable" for each in slower) else ""
        verb = "is" if len(slower) == 1 else "are"
        said.append(f"{joined([_name(each) for each in slower], 'and')} {verb} {probably}slower")
    return "; ".join(said)


def _name(result: Result) -> str:
    """Return the variant's name as a sentence has it."""
    return one_line(result.variant, NAME)


def _is(speedup: Speedup, difference: Literal["faster", "slower"]) -> bool:
    """Return whether that is said of it; the sessions of the first version say it by their interval alone."""
    if speedup.difference is None and speedup.ci95 is not None:
        return speedup.ci95[0] > 1 if difference == "faster" else speedup.ci95[1] < 1
    return speedup.difference == difference


def _gain(others: Sequence[Result], leader: Result, baseline: str, *, of_all: bool) -> str:
    """Return by how much the fastest one is faster than the baseline, and who may be as fast.

    `of_all`: whether the leader and the `others` are all that there is beside the baseline.
    """
    speedup = leader.speedup
    ties, unsure = _rivals(others, leader)
    times = f"{units.ratio(speedup.value)} the throughput of {baseline}{units.ends(units.ratio, speedup.ci95)}"
    probably = "probably " if speedup.certainty == "probable" else ""
    if ties:
        said = f"{joined([_name(leader), *ties], 'and')} tie: {probably}about {times}"
    elif unsure or probably or not of_all:
        said = f"{_name(leader)} is {probably}faster: {times}"
    else:
        against = [each.against_fastest for each in others if each.against_fastest.over == leader.variant]
        surely = all(each.certainty == "certain" for each in against)
        said = f"{_name(leader)} is {'' if surely else 'probably '}fastest: {times}"
    return f"{said}; {joined(unsure, 'and')} may be as fast as {_name(leader)}" if unsure else said


def overlap(copy: DeviceCopy) -> str:
    """Return whether a copy that is made ahead of the step overlaps with it, and what that gains where it is known."""
    share, ci95, gain = copy.overlapped_share.value or 0.0, copy.overlapped_share.ci95, copy.gain
    said = f"it {_overlaps_how(copy)}"
    if share > 1 - thresholds.OVERLAPPED_SHARE:
        said += f" (at least {units.share(share)}{units.ends(units.share, ci95, ', {}')})"
    if gain.value is None or gain.over is None:
        return said
    over = one_line(gain.over, NAME)
    if gain.difference == "none":
        return f"{said}, a tie with {over}" if tie(gain) else f"{said}; a gain over {over} is {no_claim(gain)}"
    times = f"{units.ratio(gain.value)} the throughput of {over}"
    if gain.difference is None:
        return f"{said}, {times} in one trial each, which may be chance"
    return f"{said}, {probably(gain.certainty)}{times}"


def _overlaps_how(copy: DeviceCopy) -> str:
    share = copy.overlapped_share.value or 0.0
    if share <= 1 - thresholds.OVERLAPPED_SHARE:
        return "is not seen to overlap"
    return "overlaps" if share >= thresholds.OVERLAPPED_SHARE else "overlaps in part"


def _overlaps(session: Session) -> str:
    """Return whether the copy overlaps, for each variant that was compared with one whose step copies the batch."""
    found = [
        result
        for result in session.results
        if result.device_copy.gain.value is not None and result.device_copy.overlapped_share.value is not None
    ]
    if len(found) <= 1:
        return "".join(f" Copy to the GPU: {_name(result)}: {overlap(result.device_copy)}." for result in found)
    alike = grouped((_overlaps_how(result.device_copy), _name(result)) for result in found)
    said = [f"it {how} in {joined(names, 'and')}" for how, names in alike.items()]
    gains = [(_name(result), result.device_copy.gain) for result in found]
    faster = [(name, gain) for name, gain in gains if gain.difference == "faster"]
    said += [f"{name} gains {units.ratio(gain.value)} over {one_line(gain.over or '', NAME)}" for name, gain in faster]
    return f" Copy to the GPU: {'; '.join(said)}{'' if faster else '; no gain is proven'}."


def _kept_busy(able: Sequence[Result]) -> str:
    """Return which of several emulated devices the host kept busy; which one is fastest is then not asked."""
    answers = ("kept busy", "probably kept busy", "not kept busy", "probably not kept busy", "not known")
    said: dict[str, list[str]] = {answer: [] for answer in answers}
    devices = list(dict.fromkeys(str(result.emulated) for result in able))
    for device, name in zip(devices, units.without_shared_start(devices), strict=True):
        own = [result for result in able if result.emulated == device]
        own.sort(key=lambda result: result.accelerator_utilization.value or 0.0, reverse=True)
        doubted = [result for result in own if result.verdict.certainty == "probable"]
        enough = [result for result in own if result.verdict.kind == "compute-bound"]
        best = next((result for result in enough if result not in doubted), (enough or own)[0])
        unknown = not enough and any(result.verdict.kind == "inconclusive" for result in own)
        # That one keeps it busy needs that one alone; that none does needs all.
        probably = "probably " if best in doubted or (doubted and not enough) else ""
        answer = "not known" if unknown else f"{probably}{'kept busy' if enough else 'not kept busy'}"
        au = best.accelerator_utilization.value
        reached = "" if au is None else f", AU {units.fraction(au)}"
        said[answer].append(f"{name} ({_name(best)}{reached})")
    found = [f"{answer}: {joined(names, 'and')}" for answer, names in said.items() if names]
    return f"Of the emulated accelerators, {'; '.join(found)}."


def _rivals(others: Sequence[Result], leader: Result) -> tuple[list[str], list[str]]:
    """Return those that tie with the leader, and those that cannot be distinguished from it."""
    low = leader.speedup.ci95[0] if leader.speedup.ci95 else 0.0
    ties: list[str] = []
    unsure: list[str] = []
    for result in others:
        against = result.against_fastest
        if against.over == leader.variant and against.ci95 is not None:
            if tie(against):
                ties.append(_name(result))
            elif not _is(against, "slower"):
                unsure.append(_name(result))
        elif result.speedup.value is not None and (result.speedup.ci95 is None or result.speedup.ci95[1] >= low):
            unsure.append(_name(result))
    return ties, unsure


_NO_LIMIT: dict[VerdictKind, str] = {
    "inconclusive": "what limits {} is not decided",
    "unequal-work": "the work of {} itself was not equal",
    "not-measured": "{} was not measured",
    "mixed": "no single part limits {}",
}
"""What is said of a baseline of which no limit is known."""


def _limit(baseline: Result, *, begins: bool = False) -> str:
    """Return what limits the baseline, in words that may begin a sentence or stand within one."""
    name, kind = _name(baseline), baseline.verdict.kind
    maybe = probably(baseline.verdict.certainty)
    if baseline.verdict.cause == "gpu-idle":
        return f"{name} is {maybe}not input-bound, and its GPU idles for most of the time: it waits for the host"
    if baseline.verdict.cause == "only-not-input":
        return f"{name} is {maybe}not input-bound; what takes its time is not known without a ceiling"
    if kind not in _NO_LIMIT:
        return f"{name} is {label(baseline.verdict)}"
    said = _NO_LIMIT[kind]
    return f"{said[:1].upper() if begins else said[:1]}{said[1:]}".format(name)
