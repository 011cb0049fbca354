"""Ratios of throughput, who is fastest, and the one sentence that a session comes down to. Pure.

A ratio is taken round by round: the trials of a round lie beside each other, so that what slows both cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.analysis.measured import ByVariant, Rounds, systematic_error
from pipeline_bench.model.hosts import Hosts
from pipeline_bench.model.result import DeviceCopy, Estimate, Result, Speedup, VerdictKind
from pipeline_bench.model.selftest import PartStatus, Selftest
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import NAME, one_line, units

TOO_FEW_TRIALS = "an interval needs at least 2 trials"


def over_baseline(scenario: Scenario, variant: Variant, measured: ByVariant) -> Speedup:
    """Return the throughput of a variant over that of the scenario's baseline."""
    over = scenario.baseline
    if variant.name == over.name:
        return Speedup(over=over.name, reason="this is the variant that the others are compared with")
    return throughput_over(variant, over, measured)


def against_fastest(scenario: Scenario, results: Sequence[Result], measured: ByVariant) -> tuple[Result, ...]:
    """Return the results with their throughput over that of the fastest variant."""
    baseline = scenario.baseline.name
    able = [
        each for each in _comparable(scenario, results) if each.variant == baseline or each.speedup.value is not None
    ]
    best = _fastest(scenario, able)
    if best is None:
        return tuple(results)
    over = scenario.variant(best.variant)
    found = []
    for result in results:
        if result is best:
            against = Speedup(over=over.name, reason="this is the fastest variant")
        elif result in able:
            against = throughput_over(scenario.variant(result.variant), over, measured)
        else:
            against = Speedup(over=over.name, reason="it is not compared with the others")
        found.append(result.model_copy(update={"against_fastest": against}))
    return tuple(found)


def tie(speedup: Speedup) -> bool:
    """Return whether the two variants are known to be about as fast."""
    if speedup.ci95 is None or speedup.difference not in ("none", None):
        return False
    return speedup.ci95[0] >= 1 / thresholds.TIE and speedup.ci95[1] <= thresholds.TIE


def is_settled(speedup: Speedup) -> bool:
    """Return whether more rounds would change nothing: the difference is certain, or the two tie."""
    return tie(speedup) or (speedup.difference in ("faster", "slower") and speedup.certainty == "certain")


def may_gain(speedup: Speedup) -> bool:
    """Return whether it came to a gain worth having that may be chance as well: neither proven nor excluded."""
    is_open = speedup.ci95 is None or speedup.ci95[1] > thresholds.WORTH
    return is_open and (speedup.value or 0.0) > thresholds.WORTH


def smallest(speedup: Speedup) -> str:
    """Return what a run that found no difference could have found, in the words of every report."""
    return f"smallest detectable: {units.precision(speedup.smallest)}"


def no_claim(speedup: Speedup) -> str:
    """Return what is said of two variants of which neither was found to be faster; empty where one was."""
    if speedup.difference != "none":
        return ""
    return "tie" if tie(speedup) else f"not decided ({smallest(speedup)})"


def batch_size(variant: Variant) -> int:
    """Return the samples of a step, by the option of that name; a step of a source without it counts as one.

    A source that wraps another has that one's options in a table among its own.
    """
    options = variant.source.options
    tables = [options, *(value for value in options.values() if isinstance(value, dict))]
    return int(next((table["batch_size"] for table in tables if "batch_size" in table), 1))


def estimate_of(known: stats.Belief) -> Estimate:
    """Return a figure with its interval; of one round without, and the reason."""
    if known.rounds == 1:
        return Estimate(value=known.value, reason=TOO_FEW_TRIALS)
    return Estimate(value=known.value, ci95=known.interval())


def throughput_over(variant: Variant, over: Variant, measured: ByVariant) -> Speedup:
    """Return the throughput of a variant over that of another one, or why there is none."""
    own, base = measured[variant.name], measured[over.name]
    shared = _shared(own, base)
    if not shared:
        return Speedup(over=over.name, reason=f"{over.name!r} was not measured")
    emulated = {own[shared[0]].emulated, base[shared[0]].emulated}
    if len(emulated) > 1:
        which = "one of the two is emulated" if None in emulated else "the two emulate different devices"
        return Speedup(over=over.name, reason=f"{which}: {over.name!r} is not comparable with it")
    ratios = {name: _logs(each, base) for name, each in measured.items() if name != over.name}
    scale = math.log(batch_size(variant) / batch_size(over))
    logs = [scale + log for log in ratios[variant.name]]
    if len(logs) == 1:
        return Speedup(over=over.name, value=math.exp(logs[0]), reason=TOO_FEW_TRIALS)
    taken = sum(own[repeat].taken + base[repeat].taken for repeat in shared) / (2 * len(shared))
    scatter = stats.usual_scatter(list(ratios.values()), thresholds.RATIO_SCATTER)
    known = stats.believe(logs, scatter, trimmed=True)
    # More rounds narrow the interval of what was measured here; a claim is of the variants, on any machine and any day.
    error = math.hypot(thresholds.SAME_JOB_SCATTER, systematic_error("ratio", own[shared[0]].device_kind, taken))
    certain, probable = (
        known.widened(error).interval(claim) for claim in (thresholds.CERTAIN_CLAIM, thresholds.PROBABLE_CLAIM)
    )
    difference: Literal["faster", "slower", "none"] = "none"
    if not probable[0] <= 0 <= probable[1]:
        difference = "faster" if known.value > 0 else "slower"
    surely = difference == "none" or not certain[0] <= 0 <= certain[1]
    low, high = (math.exp(end) for end in known.interval())
    return Speedup(
        over=over.name,
        value=math.exp(known.value),
        ci95=(low, high),
        difference=difference,
        certainty="certain" if surely else "probable",
        smallest=stats.half_width((math.exp(probable[0]), math.exp(probable[1]))),
    )


def _shared(own: Rounds, base: Rounds) -> list[int]:
    return [repeat for repeat in sorted(own) if repeat in base]


def _logs(own: Rounds, base: Rounds) -> list[float]:
    """Return the logarithm of the ratio of two variants' steps a second, one for each round that has both."""
    return [math.log(base[repeat].mean_ms / own[repeat].mean_ms) for repeat in _shared(own, base)]


# --- who is fastest --------------------------------------------------------------------------------------------------


def fastest(session: Session) -> Result | None:
    """Return the variant with the highest speed-up among those that did the work they should; None where none is known.

    A ceiling has no input and is none to compare; what did other work than it should is not faster, nor is what trained
    on another emulated device than the baseline. Where the baseline was not measured there are no speed-ups, and the
    throughput decides.
    """
    return _fastest(session.scenario, _comparable(session.scenario, session.results))


def _fastest(scenario: Scenario, able: Sequence[Result]) -> Result | None:
    baseline = scenario.baseline.name
    if all(result.speedup.value is None for result in able):
        return max(
            able, key=lambda result: (result.samples_per_second or 0.0, result.variant == baseline), default=None
        )
    return max(able, key=lambda result: 1.0 if result.variant == baseline else result.speedup.value or 0.0)


def _able(scenario: Scenario, results: Sequence[Result]) -> list[Result]:
    """Return the results that can be held against others: measured, of the work they should do, and no ceilings."""
    ceilings = scenario.ceilings
    return [
        result
        for result in results
        if result.samples_per_second is not None and result.work.status != "unequal" and result.variant not in ceilings
    ]


def _comparable(scenario: Scenario, results: Sequence[Result]) -> list[Result]:
    """Return those that can be held against the baseline: they trained on the same device, emulated or not."""
    able = _able(scenario, results)
    base = next((result for result in able if result.variant == scenario.baseline.name), None)
    return [result for result in able if base is None or result.emulated == base.emulated]


# --- the conclusion, in words ---------------------------------------------------------------------------------------


def of_hosts(hosts: Hosts) -> str:
    """Return what several hosts come to, variant by variant, in a sentence each."""
    many = len({found.variant for found in hosts.results}) > 1
    said = []
    for found in hosts.results:
        rate = "" if found.samples_per_second is None else f", {units.rate(found.samples_per_second)} samples/s in all"
        said.append(f"{found.variant}: {found.text}{rate}" if many else f"{found.text}{rate}")
    return ". ".join(said) + "." if said else "No hosts ran a trial at the same time."


def conclude(session: Session, *, with_limit: bool = True) -> str:
    """Return who is fastest, by how much, whether it differs from the next ones, and what limits the baseline.

    `with_limit`: False where a line of the baseline's own says what limits it; it is said where nothing else is.
    """
    if session.selftest is not None:
        return _checked(session.selftest)
    found = _found(session, with_limit) if session.hosts is None else of_hosts(session.hosts)
    cut_short = any(trial.status == "interrupted" for trial in session.trials)
    return f"Interrupted; until then: {found}" if cut_short else found


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
        return f"{_limit(session.results[0])}."
    best, baseline = fastest(session), session.scenario.baseline.name
    if best is None:
        return "No variant was measured that can be compared."
    base = next((result for result in session.results if result.variant == baseline and result.trials), None)
    if base is None:
        return f"{best.variant} was measured, but the baseline {baseline} was not."
    emulating = [result for result in _able(session.scenario, session.results) if result.emulated]
    if base.emulated is not None and len({result.emulated for result in emulating}) > 1:
        return _kept_busy(emulating)
    return _compared(_comparable(session.scenario, session.results), best, base, with_limit) + _overlaps(session)


def _compared(able: Sequence[Result], best: Result, base: Result, with_limit: bool) -> str:
    """Return what the best one gains over the baseline, and what limits that."""
    limit = f"; {_limit(base)}." if with_limit or base.verdict.kind in _NO_LIMIT else "."
    if len(able) == 1:
        return (
            f"{_limit(base)}."
            if best is base
            else f"{best.variant} was measured, without another variant to compare with{limit}"
        )
    proven = [result for result in able if _is(result.speedup, "faster")]
    leader = max(proven, key=lambda result: result.speedup.value or 0.0, default=None)
    others = [result for result in able if result not in (base, leader)]
    if leader is None:
        return f"{_none_faster(others, best, base)}{limit}"
    return f"{_gain(others, leader, base.variant)}{limit}"


def _none_faster(others: Sequence[Result], best: Result, base: Result) -> str:
    """Return how the others stand to a baseline that none was found to be faster than."""
    baseline = base.variant
    single = [result for result in others if result.speedup.value is not None and result.speedup.ci95 is None]
    if best is not base and best in single:
        times = units.ratio(best.speedup.value)
        return f"{best.variant} had {times} the throughput of {baseline} in one trial each, which may be chance"
    ties = [result.variant for result in others if tie(result.speedup)]
    slower = [result for result in others if _is(result.speedup, "slower")]
    unsure = [result for result in others if result.variant not in ties and result not in slower]
    if not ties and not unsure:
        return f"No variant is faster than {baseline}"
    said = [f"{joined([baseline, *ties], 'and')} tie"] if ties else []
    # A high figure alone is no hint: its 95 % interval has to leave out 1. "Faster" needs more than that.
    if best in unsure and may_gain(best.speedup) and best.speedup.ci95 is not None and best.speedup.ci95[0] > 1:
        times = units.ratio(best.speedup.value)
        said.append(f"{best.variant} may be faster than {baseline}: {times}{_between(best.speedup)}")
        unsure.remove(best)
    if unsure:
        shown = _between(unsure[0].speedup) if len(unsure) == 1 else ""
        named = joined([each.variant for each in unsure], "or")
        said.append(f"it is not decided whether {named} is faster or slower than {baseline}{shown}")
    if slower:
        probably = "probably " if any(each.speedup.certainty == "probable" for each in slower) else ""
        verb = "is" if len(slower) == 1 else "are"
        said.append(f"{joined([each.variant for each in slower], 'and')} {verb} {probably}slower")
    text = "; ".join(said)
    return text.replace("it is", "It is", 1) if text.startswith("it is") else text  # a variant's name stays as it is


def _between(speedup: Speedup) -> str:
    """Return the interval in brackets behind a space, `` (1.73× to 2.00×)``; nothing of one trial."""
    return f" ({units.ratio(speedup.ci95[0])} to {units.ratio(speedup.ci95[1])})" if speedup.ci95 else ""


def _is(speedup: Speedup, difference: Literal["faster", "slower"]) -> bool:
    """Return whether that is said of it; the sessions of the first version say it by their interval alone."""
    if speedup.difference is None and speedup.ci95 is not None:
        return speedup.ci95[0] > 1 if difference == "faster" else speedup.ci95[1] < 1
    return speedup.difference == difference


def _gain(others: Sequence[Result], leader: Result, baseline: str) -> str:
    """Return by how much the fastest one is faster than the baseline, and who may be as fast."""
    speedup = leader.speedup
    ties, unsure = _rivals(others, leader)
    times = f"{units.ratio(speedup.value)} the throughput of {baseline}{_between(speedup)}"
    probably = "probably " if speedup.certainty == "probable" else ""
    if ties:
        said = f"{joined([leader.variant, *ties], 'and')} tie: {probably}about {times}"
    elif unsure or probably:
        said = f"{leader.variant} is {probably}faster: {times}"
    else:
        said = f"{leader.variant} is fastest: {times}"
    return f"{said}; {joined(unsure, 'and')} may be as fast as {leader.variant}" if unsure else said


def overlap(copy: DeviceCopy) -> str:
    """Return whether a copy that is made ahead of the step overlaps with it, and what that gains where it is known."""
    share, ci95, gain = copy.overlapped_share.value or 0.0, copy.overlapped_share.ci95, copy.gain
    word = "overlaps" if share >= thresholds.OVERLAPPED_SHARE else "overlaps in part"
    if share <= 1 - thresholds.OVERLAPPED_SHARE:
        word = "is not seen to overlap"
    ends = f", {units.share(ci95[0])} to {units.share(ci95[1])}" if ci95 is not None else ""
    said = f"it {word} (at least {units.share(share)}{ends})"
    if gain.value is None or gain.over is None:
        return said
    over = one_line(gain.over, NAME)
    if gain.difference == "none":
        return f"{said}, a tie with {over}" if tie(gain) else f"{said}; a gain over {over} is {no_claim(gain)}"
    times = f"{units.ratio(gain.value)} the throughput of {over}"
    if gain.difference is None:
        return f"{said}, {times} in one trial each, which may be chance"
    return f"{said}, {'probably ' if gain.certainty == 'probable' else ''}{times}"


def _overlaps(session: Session) -> str:
    """Return of each variant that was compared with one whose step copies whether its copy overlaps."""
    said = [
        f"{result.variant}: {overlap(result.device_copy)}"
        for result in session.results
        if result.device_copy.gain.value is not None and result.device_copy.overlapped_share.value is not None
    ]
    return f" Copy to the GPU: {'; '.join(said)}." if said else ""


def _kept_busy(able: Sequence[Result]) -> str:
    """Return of several emulated devices which ones the host kept busy: who is fastest is then no question."""
    said: dict[str, list[str]] = {"kept busy": [], "not kept busy": [], "not known": []}
    devices = list(dict.fromkeys(str(result.emulated) for result in able))
    for device, name in zip(devices, units.without_shared_start(devices), strict=True):
        own = [result for result in able if result.emulated == device]
        own.sort(key=lambda result: result.accelerator_utilization.value or 0.0, reverse=True)
        enough = next((result for result in own if result.verdict.kind == "compute-bound"), None)
        unknown = any(result.verdict.kind == "inconclusive" for result in own)
        best = enough or own[0]
        answer = "kept busy" if enough else "not known" if unknown else "not kept busy"
        au = best.accelerator_utilization.value
        reached = "" if au is None else f", AU {units.fraction(au)}"
        said[answer].append(f"{name} ({best.variant}{reached})")
    answers = [f"{answer}: {joined(names, 'and')}" for answer, names in said.items() if names]
    return f"Of the emulated accelerators, {'; '.join(answers)}."


def _rivals(others: Sequence[Result], leader: Result) -> tuple[list[str], list[str]]:
    """Return those that tie with the leader, and those that cannot be distinguished from it."""
    low = leader.speedup.ci95[0] if leader.speedup.ci95 else 0.0
    ties: list[str] = []
    unsure: list[str] = []
    for result in others:
        against = result.against_fastest
        if against.over == leader.variant and against.ci95 is not None:
            if tie(against):
                ties.append(result.variant)
            elif not _is(against, "slower"):
                unsure.append(result.variant)
        elif result.speedup.value is not None and (result.speedup.ci95 is None or result.speedup.ci95[1] >= low):
            unsure.append(result.variant)
    return ties, unsure


def joined(names: Sequence[str], word: str) -> str:
    """Return ``a, b or c``; ``a, 1; a, 2; or b, 1`` where names have commas of their own."""
    if len(names) > 2 and any("," in name for name in names):  # noqa: PLR2004 - two need no comma between them
        return f"{'; '.join(names[:-1])}; {word} {names[-1]}"
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


_NO_LIMIT: dict[VerdictKind, str] = {
    "inconclusive": "what limits {} is not decided",
    "unequal-work": "the work of {} itself was not equal",
    "not-measured": "{} was not measured",
    "mixed": "no single part limits {}",
}
"""What is said of a baseline of which no limit is known."""


def _limit(baseline: Result) -> str:
    name, severely = baseline.variant, "severely " if baseline.verdict.severe else ""
    probably = "probably " if baseline.verdict.certainty == "probable" else ""
    kind = baseline.verdict.kind
    return _NO_LIMIT[kind].format(name) if kind in _NO_LIMIT else f"{name} is {probably}{severely}{kind}"
