"""What leaving Python bought, where a scenario compares loops: a sentence computed from its results. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_bench.analysis.conclusion import WORTH
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.text import one_line, units

_NAME_LIMIT = 40


def remarks(session: Session) -> list[tuple[str, str]]:
    """What the loops that are not the baseline's gained over it, of variants that are alike but for their loop.

    Returns:
        A name and sentences; nothing where the scenario compares no loops, or too little of it was measured.
    """
    compared = _compared(session.scenario)
    measured = {result.variant: result for result in session.results if result.step_ms.mean is not None}
    base = measured.get(session.scenario.baseline.name)
    others = [measured[variant.name] for variant in compared if variant.name in measured]
    if base is None or not others:
        return []
    return [("leaving Python", _sentence(base, min(others, key=_mean_ms), others))]


def _compared(scenario: Scenario) -> Sequence[Variant]:
    """The variants that differ from the baseline in their loop, and in nothing else that costs time."""
    over = scenario.baseline
    return [
        variant
        for variant in scenario.variants
        if not variant.is_ceiling and variant.loop != over.loop and _but_for_loop(variant) == _but_for_loop(over)
    ]


def _but_for_loop(variant: Variant) -> Variant:
    """The variant without its name, its loop, its ceiling, and its length."""
    return variant.model_copy(update={"name": "-", "loop": None, "ceiling": None, "run": None})


def _sentence(base: Result, best: Result, others: Sequence[Result]) -> str:
    step_ms, name = _mean_ms(base), _name(base)
    whose = f"a step of {units.milliseconds(step_ms)} under {name}"
    gainers = [result for result in others if result.speedup.difference == "faster"]
    if not gainers:
        if all(result.speedup.difference is None for result in others):
            saved = f"{_saved(base, best)} less under {_name(best)}"
            return f"{whose}, {saved} in one trial each, which proves nothing: use --repeats 3 or more."
        limit = max((result.speedup.ci95 or (0.0, 0.0))[1] for result in others)
        if limit > WORTH:
            return (
                f"{whose}: no other loop is faster beyond doubt, but the intervals are too wide to exclude a gain of "
                f"{units.ratio(limit)}; --repeats narrows them."
            )
        return f"{whose}: no other loop is faster beyond doubt. It is not worth it here."
    best = min(gainers, key=_mean_ms)
    saved_ms = step_ms - _mean_ms(best)
    share = saved_ms / step_ms
    found = f"{whose}, and {_name(best)} saves {_saved(base, best)} of it. The loop's share of the step is that much"
    if 1 / (1 - share) < WORTH:
        return f"{found}, or a little more: leaving Python is not worth it here."
    tenfold = units.share(saved_ms / (10 * step_ms))
    return (
        f"{found}, or a little more: worth it for steps as short as these. Of a step of "
        f"{units.milliseconds(10 * step_ms)} the same would be {tenfold}, and not worth it."
    )


def _saved(base: Result, best: Result) -> str:
    saved_ms = _mean_ms(base) - _mean_ms(best)
    return f"{units.milliseconds(saved_ms)} ({units.share(saved_ms / _mean_ms(base))})"


def _mean_ms(result: Result) -> float:
    assert result.step_ms.mean is not None
    return result.step_ms.mean


def _name(result: Result) -> str:
    return one_line(result.variant, _NAME_LIMIT)
