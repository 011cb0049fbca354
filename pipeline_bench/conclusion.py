"""What a session comes down to: the fastest variant, and one sentence that every report begins with."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_bench import units
from pipeline_bench.session import Result, Session


def fastest(session: Session) -> Result | None:
    """The variant with the highest throughput among those that did the work they should; None where none is known.

    A ceiling has no input and is none to compare; what did other work than it should is not faster.
    """
    return max(_able(session), key=lambda result: result.samples_per_second or 0.0, default=None)


def conclude(session: Session) -> str:
    """Who is fastest, by how much, whether that can be told from the next ones, and what limits the baseline."""
    best, baseline = fastest(session), session.scenario.baseline.name
    if best is None:
        return "Nothing was measured that could be compared."
    base = next((result for result in session.results if result.variant == baseline and result.trials), None)
    if base is None:
        return f"{best.variant} was measured, but {baseline}, which the others are compared with, was not."
    limit = _limit(base)
    if best is base:
        return f"No variant is faster than {baseline}, {limit}."
    speedup = best.speedup
    if speedup.difference == "none":
        smallest = f"smallest this run could have seen: {units.precision(speedup.smallest)}"
        return f"No difference found between {best.variant} and {baseline} ({smallest}); {baseline}, {limit}."
    interval = "from one trial"
    if speedup.ci95 is not None:
        interval = f"{units.ratio(speedup.ci95[0])} to {units.ratio(speedup.ci95[1])}"
    gain = f"{units.ratio(speedup.value)} the throughput of {baseline} ({interval}), {limit}"
    rivals = _rivals(session, best)
    told = f", though not told from {' or '.join(rivals)}" if rivals else ""
    return f"{best.variant} is fastest{told}: {gain}."


def _able(session: Session) -> Sequence[Result]:
    ceilings = {variant.name for variant in session.scenario.variants if variant.ceiling is None}
    return [
        result
        for result in session.results
        if result.samples_per_second is not None and result.work.status != "unequal" and result.variant not in ceilings
    ]


def _rivals(session: Session, best: Result) -> list[str]:
    """Those whose speed-up over the same baseline may be as high: the intervals overlap."""
    if best.speedup.ci95 is None:
        return []
    low = best.speedup.ci95[0]
    others = [result for result in _able(session) if result is not best and result.speedup.ci95 is not None]
    return [result.variant for result in others if result.speedup.ci95 and result.speedup.ci95[1] >= low]


def _limit(baseline: Result) -> str:
    severely = "severely " if baseline.verdict.severe else ""
    known = {
        "inconclusive": "whose own limit stays open",
        "unequal-work": "whose own work was not equal",
        "not-measured": "which was not measured",
        "mixed": "which nothing limits alone",
    }
    return known.get(baseline.verdict.kind, f"which is {severely}{baseline.verdict.kind}")
