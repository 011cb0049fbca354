"""More threads asked for than the machine has cores: a note before, and afterwards what was seen of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.conclusion import WORTH
from pipeline_bench.analysis.measured import AllSteps, Measured
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import one_line, units

Kind = Literal["intra", "inter"]

_DO: dict[Kind, str] = {
    "intra": "Intra-op threads share the work of one op, such as a matmul",
    "inter": "Inter-op threads run ops side by side that do not need each other's results",
}
_NAME_LIMIT = 40


@dataclass(frozen=True)
class Excess:
    """A variant that asks for more threads of a kind than there are cores."""

    variant: Variant
    kind: Kind
    threads: int


def excesses(scenario: Scenario, cores: int) -> tuple[Excess, ...]:
    """Every such variant, ceilings left out: a ceiling has the threads of the variants that it belongs to."""
    found = []
    for variant in scenario.variants:
        asked: dict[Kind, int] = {
            "intra": variant.runtime.intra_op_threads,
            "inter": variant.runtime.inter_op_threads,
        }
        found += [
            Excess(variant, kind, threads)
            for kind, threads in asked.items()
            if threads > cores and not variant.is_ceiling
        ]
    return tuple(found)


def warning(scenario: Scenario, cores: int) -> str | None:
    """What to know before such a scenario is run; None of any other."""
    found = excesses(scenario, cores)
    if not found:
        return None
    asked = "; ".join(f"{_name(e.variant)} for {_threads(e)}" for e in found)
    return (
        f"More threads are asked for than this machine has cores ({cores}): {asked}. "
        "They take turns on the cores; the results say what became of that."
    )


def remarks(session: Session) -> list[tuple[str, str]]:
    """What was seen of each such variant, beside one that is alike but for having no more threads than cores.

    Returns:
        Name and sentences, in the scenario's order.
    """
    cores = session.environment.cores
    return [
        (
            _name(excess.variant),
            f"asks for {_threads(excess)} on {units.count(cores, 'core')}: {_seen(session, excess)}",
        )
        for excess in excesses(session.scenario, cores)
    ]


def _seen(session: Session, excess: Excess) -> str:
    reference = _reference(session.scenario, excess, session.environment.cores)
    if reference is None:
        return (
            "what they gain is not known, as no variant is alike but for having no more of them than cores; add one "
            f"with runtime.{_key(excess.kind)} = {session.environment.cores}."
        )
    ratios = _ratios(session, reference.name, excess.variant.name)
    if not ratios:
        return f"what they gain is not known, as no repeat has a measured trial of it and of {_name(reference)}."
    shown = f"{units.ratio(stats.typical_ratio(ratios))} the speed of {_name(reference)}"
    interval = stats.typical_ratio_interval(ratios)
    claim = stats.typical_ratio_interval(ratios, stats.CLAIM_CONFIDENCE)
    if interval is None or claim is None:
        return f"{shown} in one trial each, which does not tell whether they gain: use --repeats 3 or more."
    low, high = (units.ratio(end) for end in interval)
    cores = session.environment.cores
    threads = _asked(reference, excess.kind, cores)
    said = _said(claim, excess.kind) if threads == cores else _said_of_fewer(claim, excess.kind, threads, cores)
    return f"{shown} ({low} to {high}). {said}"


def _said_of_fewer(claim: stats.Interval, kind: Kind, threads: int, cores: int) -> str:
    """The same over a variant with fewer threads than cores: part of a gain may be that of using the other cores."""
    low, high = claim
    found = "They gain" if low > 1 else "They lose" if high < 1 else "No difference was found"
    return (
        f"{found}, but over {units.count(threads, 'thread')}: what those beyond the cores do is not known; add a "
        f"variant with runtime.{_key(kind)} = {cores}. {_DO[kind]}."
    )


def _said(claim: stats.Interval, kind: Kind) -> str:
    """What the interval at `stats.CLAIM_CONFIDENCE` says of one over as many threads as cores, and why."""
    low, high = claim
    if low > 1:
        return (
            f"They do gain here. {_DO[kind]}; more of them than cores help where threads also wait, and so leave "
            "their core to others."
        )
    if high < 1:
        return f"They lose. {_DO[kind]}; more of them than cores take turns, and taking turns has a cost."
    if high <= WORTH:
        return f"No gain was found. {_DO[kind]}; when every core has its thread, one more has no core to run on."
    return (
        "Whether they gain cannot be told: the intervals are too wide, and --repeats narrows them. "
        f"{_DO[kind]}; more of them than cores take turns."
    )


def _reference(scenario: Scenario, excess: Excess, cores: int) -> Variant | None:
    """Alike but for the threads of that kind, with the most that are no more than the cores."""
    alike = [
        variant
        for variant in scenario.variants
        if _asked(variant, excess.kind, cores) <= cores
        and _but_for(variant, excess.kind) == _but_for(excess.variant, excess.kind)
    ]
    return max(alike, key=lambda variant: _asked(variant, excess.kind, cores), default=None)


def _asked(variant: Variant, kind: Kind, cores: int) -> int:
    """The threads of that kind that a variant has; 0 in the runtime is TensorFlow's choice, one a core."""
    asked: int = getattr(variant.runtime, _key(kind))
    return asked or cores


def _but_for(variant: Variant, kind: Kind) -> Variant:
    """The variant without its name, its length, its ceiling, and its threads of that kind."""
    runtime = variant.runtime.model_copy(update={_key(kind): 0})
    has_ceiling = "yes" if not variant.is_ceiling else None
    return variant.model_copy(update={"name": "-", "run": None, "ceiling": has_ceiling, "runtime": runtime})


def _ratios(session: Session, over: str, of: str) -> Sequence[float]:
    """The speed of a variant over that of another, in every repeat that has both."""
    measured = {(t.variant, t.repeat): Measured(AllSteps(t)).mean_ms for t in session.trials if t.measured}

    def found() -> Iterator[float]:
        for (variant, repeat), mean_ms in sorted(measured.items()):
            if variant == of and (over, repeat) in measured:
                yield measured[over, repeat] / mean_ms

    return list(found())


def _key(kind: Kind) -> str:
    return f"{kind}_op_threads"


def _threads(excess: Excess) -> str:
    return units.count(excess.threads, f"{excess.kind}-op thread")


def _name(variant: Variant) -> str:
    return one_line(variant.name, _NAME_LIMIT)
