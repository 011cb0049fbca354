"""Sentences computed from a session's figures: what leaving Python gained, and what more threads than cores did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pipeline_bench.analysis import measured
from pipeline_bench.analysis.speedups import throughput_over
from pipeline_bench.analysis.thresholds import WORTH
from pipeline_bench.model.result import Result, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import NAME, one_line, units

Remark = tuple[str, str]
"""Who or what it is about, and sentences."""
Kind = Literal["intra", "inter"]

_THREADS_DO: dict[Kind, str] = {
    "intra": "Intra-op threads share the work of one op, such as a matmul",
    "inter": "Inter-op threads run ops side by side that do not need each other's results",
}


# --- loops -----------------------------------------------------------------------------------------------------------


def loop_remarks(session: Session) -> list[Remark]:
    """Return what the loops that are not the baseline's gained over it, of variants that are alike but for their loop.

    Nothing where the scenario compares no loops, or too little of it was measured.
    """
    over = session.scenario.baseline
    alike = {
        variant.name
        for variant in session.scenario.variants
        if not variant.is_ceiling
        and variant.loop != over.loop
        and _but_for(variant, loop=None) == _but_for(over, loop=None)
    }
    equal = [each for each in session.results if each.step_ms.mean is not None and each.work.status != "unequal"]
    base = next((result for result in equal if result.variant == over.name), None)
    others = [result for result in equal if result.variant in alike]
    return [("leaving Python", _leaving_python(base, others))] if base is not None and others else []


def _leaving_python(base: Result, others: Sequence[Result]) -> str:
    step_ms = _mean_ms(base)
    whose = f"a step of {units.milliseconds(step_ms)} under {_name(base.variant)}"
    gainers = [result for result in others if result.speedup.difference == "faster"]
    best = min(gainers or others, key=_mean_ms)
    saved_ms = step_ms - _mean_ms(best)
    saved = f"{units.milliseconds(saved_ms)} ({units.share(saved_ms / step_ms)})"
    if not gainers:
        if all(result.speedup.difference is None for result in others):
            if saved_ms <= 0:
                return f"{whose}: no other loop was faster, in one trial each."
            return (
                f"{whose}, {saved} less under {_name(best.variant)}, but in one trial each, which may be chance: "
                "use --repeats 3 or more."
            )
        limit = max((result.speedup.ci95 or (0.0, 0.0))[1] for result in others)
        if limit > WORTH:
            return (
                f"{whose}: no other loop is certainly faster, but the intervals are too wide to exclude a gain of "
                f"{units.ratio(limit)}; more --repeats make them narrower."
            )
        return f"{whose}: no other loop is certainly faster: leaving Python is not worth it here."
    found = f"{whose}, of which {_name(best.variant)} saves {saved}: the loop costs that much of the step"
    if 1 / (1 - saved_ms / step_ms) < WORTH:
        return f"{found}, or a little more: leaving Python is not worth it here."
    return (
        f"{found}, or a little more. That is worth it for steps this short; in a step of "
        f"{units.milliseconds(10 * step_ms)} the same time is {units.share(saved_ms / (10 * step_ms))}, which is not "
        "worth it."
    )


def _mean_ms(result: Result) -> float:
    assert result.step_ms.mean is not None
    return result.step_ms.mean


# --- threads ---------------------------------------------------------------------------------------------------------


class _Excess(NamedTuple):
    """A variant that asks for more threads of a kind than there are cores."""

    variant: Variant
    kind: Kind
    threads: int

    def __str__(self) -> str:
        return units.count(self.threads, f"{self.kind}-op thread")


def thread_warning(scenario: Scenario, cores: int) -> str | None:
    """Return what to know before a scenario with more threads than cores is run; None of any other."""
    found = _excesses(scenario, cores)
    if not found:
        return None
    asked = "; ".join(f"{_name(excess.variant.name)} for {excess}" for excess in found)
    return (
        f"There are more threads than cores ({cores}) on this machine: {asked}. "
        "They take turns on the cores; the report shows the effect."
    )


def thread_remarks(session: Session) -> list[Remark]:
    """Return what was seen of each variant with more threads than cores, beside one alike with no more, in order."""
    cores = session.environment.cores
    return [
        (_name(excess.variant.name), f"asks for {excess} on {units.count(cores, 'core')}: {_seen(session, excess)}")
        for excess in _excesses(session.scenario, cores)
    ]


def _excesses(scenario: Scenario, cores: int) -> list[_Excess]:
    """Return every such variant, ceilings left out: a ceiling has the threads of the variants that it belongs to."""
    kinds: tuple[Kind, ...] = ("intra", "inter")
    return [
        _Excess(variant, kind, _asked(variant, kind, cores))
        for variant in scenario.variants
        for kind in kinds
        if not variant.is_ceiling and _asked(variant, kind, cores) > cores
    ]


def _seen(session: Session, excess: _Excess) -> str:
    cores, kind = session.environment.cores, excess.kind
    # What TensorFlow chooses: it does not know of a CPU quota, by which there may be fewer cores.
    chosen = max((trial.allowed_cpus or cores for trial in session.trials), default=cores)
    reference = _reference(session.scenario, excess, cores, chosen)
    if reference is None:
        return (
            "their effect is not known: no variant differs from it only in having at most as many threads as cores; "
            f"add one with runtime.{_key(kind)} = {cores}."
        )
    gain = throughput_over(excess.variant, reference, measured.of(session.scenario, session.trials, cores))
    if gain.value is None:
        return f"their effect is not known: no repeat has a measured trial of both it and {_name(reference.name)}."
    shown = f"{units.ratio(gain.value)} the speed of {_name(reference.name)}"
    if gain.ci95 is None:
        return f"{shown} in one trial each, which may be chance: use --repeats 3 or more."
    threads = _asked(reference, kind, chosen)
    said = _claimed(gain, kind) if threads == cores else _claimed_over_fewer(gain, kind, threads, cores)
    return f"{shown}{units.ends(units.ratio, gain.ci95)}. {said}"


def _found(gain: Speedup) -> str:
    """Return what is claimed: ``They gain``, ``They probably lose``; empty where no difference was found."""
    word = {"faster": "gain", "slower": "lose"}.get(gain.difference or "none")
    return f"They {'probably ' if gain.certainty == 'probable' else ''}{word}" if word else ""


def _claimed_over_fewer(gain: Speedup, kind: Kind, threads: int, cores: int) -> str:
    """Return the claim over a variant with fewer threads than cores: part of a gain may be that of the other cores."""
    found = _found(gain) or "No difference was found"
    return (
        f"{found}, but compared with {units.count(threads, 'thread')}: the effect of more threads than cores is not "
        f"known; add a variant with runtime.{_key(kind)} = {cores}. {_THREADS_DO[kind]}."
    )


def _claimed(gain: Speedup, kind: Kind) -> str:
    """Return what is found over a variant with as many threads as cores, as the speed-ups say it, and why."""
    if gain.difference == "faster":
        return (
            f"{_found(gain)} here. {_THREADS_DO[kind]}; more threads than cores help if the threads also wait, and "
            "leave their core to others meanwhile."
        )
    if gain.difference == "slower":
        return f"{_found(gain)}. {_THREADS_DO[kind]}; more threads than cores take turns, which costs time."
    if gain.ci95 is not None and gain.ci95[1] <= WORTH:
        return f"No gain was found. {_THREADS_DO[kind]}; if every core has its thread, one more has no core to run on."
    return (
        "Whether they gain is not known: the intervals are too wide; more --repeats make them narrower. "
        f"{_THREADS_DO[kind]}; more threads than cores take turns."
    )


def _reference(scenario: Scenario, excess: _Excess, cores: int, chosen: int) -> Variant | None:
    """Return the variant alike but for the threads of that kind, with the most that are no more than the cores.

    Args:
        scenario: that was measured.
        excess: whose reference it is.
        cores: the cores that this process may use.
        chosen: the threads of who leaves it to TensorFlow.
    """

    def alike(variant: Variant) -> tuple[bool, Variant]:
        runtime = variant.runtime.model_copy(update={_key(excess.kind): 0})
        return variant.is_ceiling, _but_for(variant, runtime=runtime)

    found = [
        variant
        for variant in scenario.variants
        if _asked(variant, excess.kind, chosen) <= cores and alike(variant) == alike(excess.variant)
    ]
    return max(found, key=lambda variant: _asked(variant, excess.kind, chosen), default=None)


def _asked(variant: Variant, kind: Kind, chosen: int) -> int:
    """Return the threads of that kind that a variant has; 0 in the runtime leaves it to TensorFlow."""
    asked: int = getattr(variant.runtime, _key(kind))
    return asked or chosen


def _but_for(variant: Variant, **fields: object) -> Variant:
    """Return the variant without its name, its length and its ceiling, and with these fields."""
    return variant.model_copy(update={"name": "-", "run": None, "ceiling": None, **fields})


def _key(kind: Kind) -> str:
    return f"{kind}_op_threads"


def _name(variant: str) -> str:
    return one_line(variant, NAME)
