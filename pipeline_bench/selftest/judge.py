"""From what was measured to parts that passed or failed. Pure: the same session gives the same parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pipeline_bench.analysis import thresholds
from pipeline_bench.analysis.measured import Figure, systematic_error, taken_by_others
from pipeline_bench.model.result import Result
from pipeline_bench.model.selftest import Check, Checked, Part, PartStatus, Selftest, Unit
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.selftest import cases
from pipeline_bench.selftest.cases import PlantedVariant
from pipeline_bench.selftest.truth import Truth
from pipeline_bench.worker.model_ceiling import ERROR_OF_MEDIAN

_FIGURES: dict[Literal["wait", "utilization", "host"], tuple[str, str]] = {
    "wait": ("input wait", "input_wait_share"),
    "utilization": ("AU", "accelerator_utilization"),
    "host": ("host slowdown", "host_slowdown_share"),
}
_CERTAIN_DEVIATIONS = 2.0
"""How many standard deviations of what other work does to a figure are granted it."""


def of_comparison(
    session: Session, planted: Sequence[PlantedVariant], bare_ms: Mapping[str, float]
) -> tuple[Part, ...]:
    """Return the parts of the comparison, as far as it has come.

    Args:
        session: with the results so far.
        planted: what its variants must come to.
        bare_ms: what a bare step takes, by the device's ms.
    """
    results = {result.variant: result for result in session.results}
    checks: dict[str, list[Check]] = {}
    names: dict[str, set[str]] = {}
    for each in planted:
        result = results.get(each.name)
        if result is None or result.status == "pending":
            continue
        taken = taken_during(session, {each.name})
        checks.setdefault(each.part, []).extend(_of_variant(each, result, bare_ms, taken))
        names.setdefault(each.part, set()).add(each.name)
        if not each.cheats:
            checks.setdefault(cases.WORK, []).append(_work(result, "equal"))
            names.setdefault(cases.WORK, set()).add(each.name)
    checks[cases.CEILING] = list(_ceilings(session, results, bare_ms))
    checks[cases.DIFFERENCE] = list(_differences(session, results))
    names[cases.CEILING] = {variant.name for variant in session.scenario.variants if variant.is_ceiling}
    names[cases.DIFFERENCE] = {each.name for each in planted[:3]}
    ordered = [name for name in cases.MEANING if checks.get(name)]
    return tuple(part(name, checks[name], taken_during(session, names[name])) for name in ordered)


def part(name: str, checks: Sequence[Check], taken: float | None = None, seconds: float | None = None) -> Part:
    """Return a part: failed where one of its checks is, shown where none is judged."""
    failed = [check for check in checks if check.passed is False]
    judged = any(check.passed is not None for check in checks)
    measured = judged or any(check.measured is not None for check in checks)
    # What is no figure, as whose work was equal, no load makes wrong.
    excused = (taken or 0.0) >= thresholds.SELFTEST_DISTURBED and all(check.unit != "word" for check in failed)
    status: PartStatus = "passed" if judged else "shown" if measured else "not-run"
    if failed:
        status = "disturbed" if excused else "failed"
    return Part(
        name=name,
        status=status,
        meaning=cases.MEANING[name],
        checks=tuple(checks),
        taken_share=taken,
        seconds=seconds,
        reason=None if measured else next((check.reason for check in checks if check.reason), "nothing was measured"),
    )


def with_parts(selftest: Selftest, parts: Sequence[Part]) -> Selftest:
    """Return the selftest with these parts in the place of those of the same names, or behind all others."""
    new = {part.name: part for part in parts}
    kept = [new.pop(part.name, part) for part in selftest.parts]
    return selftest.model_copy(update={"parts": (*kept, *new.values())})


def judged(
    what: str, figure: str, unit: Unit, planted: float, measured: float | None, limit: float, reason: str | None = None
) -> Check:
    """Return a check of a number; one that was not measured fails, with its reason."""
    asked: dict[str, Any] = {"what": what, "figure": figure, "unit": unit, "planted": planted, "limit": limit}
    if measured is None:
        return Check(**asked, passed=False, reason=reason or "not measured")
    relative = unit in ("ratio", "ms")
    error = measured / planted - 1 if relative and planted else measured - planted
    return Check(**asked, measured=measured, error=error, passed=abs(error) <= limit)


def word(what: str, figure: str, planted: str, measured: str, reason: str | None = None) -> Check:
    """Return a check of a word, which passes where it is the planted one."""
    words = {"planted_word": planted, "measured_word": measured}
    return Check(what=what, figure=figure, unit="word", **words, passed=planted == measured, reason=reason)


def not_run(name: str, reason: str | None) -> Part:
    """Return a part that was not run, with the reason."""
    return Part(name=name, status="not-run", meaning=cases.MEANING[name], reason=reason)


def largest_error(parts: Sequence[Part], figure: str) -> float | None:
    """Return the largest error of a figure over all parts; None where none was measured."""
    errors = [
        abs(check.error)
        for each in parts
        for check in each.checks
        if check.figure == figure and check.unit == "share" and check.error is not None
    ]
    return max(errors, default=None)


# --- the comparison --------------------------------------------------------------------------------------------------


def _of_variant(each: PlantedVariant, result: Result, bare_ms: Mapping[str, float], taken: float) -> Iterator[Check]:
    if each.cheats:
        yield _work(result, "unequal")
        return
    truth = _truth(each, result, bare_ms)
    if truth is None:
        reason = result.reason or "its ceiling was not measured"
        yield Check(what=each.name, figure="input wait", unit="share", passed=False, reason=reason)
        return
    figures: Sequence[Literal["wait", "utilization", "host"]] = ("wait", "utilization")
    for figure in ("host",) if each.part == cases.HOST or not truth.wait_ms else figures:
        name, field = _FIGURES[figure]
        estimate = getattr(result, field)
        planted, limit = getattr(truth, figure), _share_limit(figure, taken)
        yield judged(each.name, name, "share", planted, estimate.value, limit, estimate.reason)


def _truth(each: PlantedVariant, result: Result, bare_ms: Mapping[str, float]) -> Truth | None:
    ceiling_ms = result.ceiling_ms.value if each.device_ms is None else bare_ms.get(f"{each.device_ms:g}")
    return each.truth(ceiling_ms) if each.truth is not None and ceiling_ms is not None else None


def _share_limit(figure: Figure, taken: float) -> float:
    return thresholds.SELFTEST_SHARE + _CERTAIN_DEVIATIONS * systematic_error(figure, "emulated", taken)


def _work(result: Result, planted: str) -> Check:
    return word(result.variant, "work", planted, result.work.status, result.work.text or result.reason)


def _ceilings(session: Session, results: Mapping[str, Result], bare_ms: Mapping[str, float]) -> Iterator[Check]:
    for variant in session.scenario.variants:
        step_ms = variant.model.options.get("step_ms")
        bare = bare_ms.get(f"{step_ms:g}") if step_ms is not None and variant.model.kind == "emulated" else None
        host = variant.loop.options.get("host_ms", 0.0)
        result = results.get(variant.name)
        if not variant.is_ceiling or bare is None or host or result is None or result.status == "pending":
            continue
        taken = taken_during(session, {variant.name})
        limit = thresholds.SELFTEST_RATIO + _CERTAIN_DEVIATIONS * systematic_error("ratio", "emulated", taken)
        what = f"{variant.name}, of {variant.source.kind}"
        yield judged(what, "step", "ms", bare, result.step_ms.median, limit, result.reason)


def _differences(session: Session, results: Mapping[str, Result]) -> Iterator[Check]:
    """Yield the checks of the twin and of the slower one against the baseline."""
    for name, planted in (("its twin", 1.0), ("a slower one", 1 / cases.SLOWER)):
        result = results.get(name)
        if result is None or result.status == "pending":
            continue
        speedup = result.speedup
        taken = taken_during(session, {name, session.scenario.baseline.name})
        limit = thresholds.SELFTEST_RATIO + _CERTAIN_DEVIATIONS * systematic_error("ratio", "emulated", taken)
        yield judged(name, "speed-up", "ratio", planted, speedup.value, limit, speedup.reason)
        if speedup.difference is not None:
            wrong = {"faster"} if planted < 1 else {"faster", "slower"}
            check = word(name, "difference said", "none" if planted == 1 else "slower", speedup.difference)
            yield check.model_copy(update={"passed": speedup.difference not in wrong})


def taken_during(session: Session, names: set[str]) -> float:
    """Return what other work took of the CPU during the trials of these variants, 0 to 1, on average."""
    shares = [taken_by_others(trial) for trial in session.trials if trial.variant in names]
    return float(np.mean(shares)) if shares else 0.0


# --- the program's own cost ------------------------------------------------------------------------------------------


def of_cost(bare_us: Sequence[float], probed_us: Sequence[float], seconds: float) -> Part:
    """Return the part of what measuring costs a step.

    Args:
        bare_us: mean µs a step of each block without what measures.
        probed_us: of the block beside each, with it.
        seconds: how long the part took.
    """
    ratio = float(np.median(np.divide(probed_us, bare_us))) - 1
    step_us = float(np.median(bare_us))
    limit = max(thresholds.SELFTEST_COST_SHARE, thresholds.SELFTEST_COST_US / step_us)
    scatter = ERROR_OF_MEDIAN * float(np.std(np.divide(probed_us, bare_us))) / len(bare_us) ** 0.5
    check = Check(
        what=f"a step of {step_us:.0f} µs, {len(bare_us)} blocks by turns",
        figure="added",
        unit="share",
        planted=0.0,
        measured=ratio,
        error=ratio,
        limit=limit,
        # Fails where it is above the limit beyond its own scatter: two standard errors of a median.
        passed=ratio - _CERTAIN_DEVIATIONS * scatter <= limit,
    )
    return part(cases.COST, [check], seconds=seconds)


def of_beside(cpu_s: float, wall_s: float) -> Part:
    """Return the part of what the program itself took of the CPU while the comparison ran."""
    check = judged(
        "sampling, following and saving",
        "CPU",
        "cores",
        0.0,
        cpu_s / wall_s if wall_s > 0 else None,
        thresholds.SELFTEST_BESIDE_CORES,
    )
    return part(cases.BESIDE, [check], seconds=wall_s)


# --- what later sessions cite ----------------------------------------------------------------------------------------


def cited(session: Session, machine: Environment) -> Checked:
    """Return what later sessions say of a selftest, as far as it has come.

    Args:
        session: the selftest's.
        machine: as it was described before any trial; the trials' accelerators are emulated.
    """
    selftest = session.selftest
    assert selftest is not None
    cost = next((each.checks[0].measured for each in selftest.parts if each.name == cases.COST and each.checks), None)
    return Checked(
        at=session.started_at,
        quick=selftest.quick,
        package=machine.package,
        cpu=machine.cpu,
        gpu=machine.gpu,
        driver=machine.driver,
        wait_error=largest_error(selftest.parts, "input wait"),
        utilization_error=largest_error(selftest.parts, "AU"),
        cost_share=cost,
        failed=tuple(each.name for each in selftest.failed),
        disturbed=tuple(each.name for each in selftest.parts if each.status == "disturbed"),
        windows=selftest.windows,
    )
