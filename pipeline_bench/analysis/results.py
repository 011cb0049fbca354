"""From the trials of a session to one `Result` a variant. Pure: the same trials give the same results.

A repeat's figures are taken against the ceiling trial of the same repeat, its neighbour in the interleaved order, so
that a drift of the machine cancels. Shares and accelerator utilization are of mean step times, because an input that
comes in bursts is invisible to a median; `step_ms` shows the median and the percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline_bench import plugins
from pipeline_bench.analysis import copies, measured, speedups, stats, utilization, validity, verdicts
from pipeline_bench.analysis.measured import Figure, Measured, Pair
from pipeline_bench.analysis.speedups import TOO_FEW_TRIALS
from pipeline_bench.analysis.thresholds import BOUND_SHARE, CEILING_TOLERANCE, NEEDED_STEPS, SHARE_SCATTER
from pipeline_bench.analysis.verdicts import StepSplit
from pipeline_bench.model import task
from pipeline_bench.model.result import (
    DeviceCopy,
    DeviceUtilization,
    Estimate,
    PublishedComparison,
    Result,
    ResultStatus,
    Speedup,
    StepTime,
    Verdict,
    WorkCheck,
)
from pipeline_bench.model.selftest import Window
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Published, Scenario, Variant
from pipeline_bench.text import units


def summarise(
    scenario: Scenario,
    trials: Sequence[TrialRecord],
    cores: int,
    known: Sequence[Window] = (),
    *,
    open_ended: bool = False,
) -> tuple[Result, ...]:
    """Return one result a variant, in the scenario's order; a variant without a good trial says why.

    Args:
        scenario: as resolved.
        trials: those that have ended, in any order.
        cores: the cores that this process may use.
        known: what the last selftest found of NVML's figures on this machine.
        open_ended: rounds are added until a goal is reached or a budget is spent, so that no trial is missing.
    """
    found = measured.of(scenario, trials, cores)
    scatter = _usual_scatter(scenario, found)
    results = tuple(
        _result(scenario, variant, trials, found, cores, known, 0 if open_ended else variant.run.repeats, scatter)
        for variant in scenario.variants
    )
    return speedups.against_fastest(scenario, speedups.unless_unequal(scenario, results), found)


def _result(
    scenario: Scenario,
    variant: Variant,
    trials: Sequence[TrialRecord],
    found: measured.ByVariant,
    cores: int,
    known: Sequence[Window],
    planned: int,
    scatter: Mapping[Figure, float],
) -> Result:
    runs = _by_round(found, variant)
    status, reason = _status(planned, [t for t in trials if t.variant == variant.name], len(runs))
    if not runs:
        return _unmeasured(variant, status, reason or "not measured")
    pairs = measured.pairs(found, variant)
    device_copy = copies.of(scenario, variant, found)
    split = _split(variant, runs, pairs, scatter)._replace(copy_share=device_copy.share)
    work = validity.check_work(
        variant,
        [run.record for run in runs],
        scenario.baseline,
        [r.record for r in _by_round(found, scenario.baseline)],
    )
    used = utilization.of(runs, cores, known)
    loss, accuracy = _last_loss(runs[-1]), runs[-1].record.accuracy
    batch_ms = speedups.batch_size(variant) * 1e3
    means = [run.mean_ms for run in runs]
    per_second = batch_ms / float(np.mean(means))
    return Result(
        variant=variant.name,
        backend=variant.backend,
        emulated=runs[0].emulated,
        status=status,
        reason=reason,
        trials=len(runs),
        steps=sum(run.steps for run in runs),
        warmup_steps=tuple(run.record.warmup_steps for run in runs),
        step_ms=step_time(runs),
        samples_per_second=per_second,
        samples_per_second_ci95=stats.ratio_interval([batch_ms / mean for mean in means], holding=per_second),
        **split.parts,
        device_copy=device_copy,
        device_utilization=used,
        speedup=speedups.over_baseline(scenario, variant, found),
        work=work,
        loss=loss,
        accuracy=accuracy,
        missing=_missing(variant, loss is None, accuracy.before is None and accuracy.after is None),
        published=_published(scenario.published, variant, runs, used),
        verdict=_verdict(variant, work, split, runs, pairs),
    )


def _by_round(found: measured.ByVariant, variant: Variant) -> list[Measured]:
    own = found[variant.name]
    return [own[repeat] for repeat in sorted(own)]


def _verdict(
    variant: Variant, work: WorkCheck, split: StepSplit, runs: Sequence[Measured], pairs: Sequence[Pair]
) -> Verdict:
    if work.status == "unequal":
        return verdicts.unequal_work(work.text)
    if (reason := validity.cache_doubt(variant, [run.record for run in runs])) is not None:
        return verdicts.inconclusive(reason, "page-cache")
    budget_only = variant.source.kind == task.KIND
    beside, tops = [run for run, _ in pairs], [top for _, top in pairs]
    steps = min(sum(run.steps for run in some) for some in (beside or runs, tops) if some)
    if variant.is_ceiling:
        enough = steps >= NEEDED_STEPS
        on_host = variant.backend == copies.HOST_CEILING
        return (
            verdicts.reference(split.ceiling_ms.value, on_host=on_host)
            if enough
            else verdicts.too_few_steps(steps, budget_only=budget_only)
        )
    return verdicts.judge(split, steps, measured.taken_of(pairs, runs), budget_only=budget_only)


def _missing(variant: Variant, no_loss: bool, no_accuracy: bool) -> dict[str, str]:
    """Return why there is no loss or no accuracy, where there is none."""
    kind = variant.model.kind
    model: Any = plugins.find_if_known("models", kind)
    nothing = None if model is None or model.trains else f"the model {kind} trains nothing"
    reasons = {}
    if no_loss:
        reasons["loss"] = nothing or "the last step's loss was not a finite number"
    if no_accuracy:
        reasons["accuracy"] = nothing or "the model has no accuracy to measure"
    return reasons


def _status(planned: int, trials: Sequence[TrialRecord], good: int) -> tuple[ResultStatus, str | None]:
    bad = [trial for trial in trials if trial.status != "ok"]
    if not trials:
        return "pending", "none of its trials ran"
    wanted = max(planned, len(trials))  # a goal of precision adds to the scenario's repeats
    if good and (bad or good < wanted):
        reason = f"{good} of {wanted} trials are in these figures"
        return "partial", f"{reason}; {bad[0].status}: {bad[0].reason}" if bad else reason
    if bad:
        return bad[0].status, bad[0].reason
    return ("ok", None) if good else ("failed", "no step was measured after warm-up")


def _unmeasured(variant: Variant, status: ResultStatus, reason: str) -> Result:
    return Result(
        variant=variant.name,
        backend=variant.backend,
        status=status,
        reason=reason,
        step_ms=StepTime(reason=reason),
        **StepSplit.without(reason).parts,
        device_copy=DeviceCopy.without(reason),
        device_utilization=DeviceUtilization(reason=reason),
        speedup=Speedup(reason=reason),
        missing=dict.fromkeys(("loss", "samples_per_second", "accuracy"), reason),
        verdict=verdicts.not_measured(reason),
    )


def step_time(runs: Sequence[Measured]) -> StepTime:
    """Return the median, the mean and the percentiles of the steps of some trials."""
    medians = [run.percentiles_ms(50)[0] for run in runs]
    every_ms = np.concatenate([run.step_ms for run in runs])
    weights = runs[0].weights if len(runs) == 1 else None  # a watched job is one trial
    p05, p95 = stats.percentiles(every_ms, weights, (5, 95))
    ci95 = stats.median_interval(medians)
    return StepTime(
        median=float(np.median(medians)),
        mean=float(np.mean([run.mean_ms for run in runs])),
        p05=p05,
        p95=p95,
        ci95=ci95,
        reason=None if ci95 else TOO_FEW_TRIALS,
    )


# --- the parts of a step ---------------------------------------------------------------------------------------------


def _usual_scatter(scenario: Scenario, found: measured.ByVariant) -> dict[Figure, float]:
    """Return by how much each share differs from round to round, as all variants show together; see `usual_scatter`."""
    rounds = [
        _by_figure(_by_round(found, variant), measured.pairs(found, variant))
        for variant in scenario.variants
        if not variant.is_ceiling
    ]
    figures: tuple[Figure, ...] = ("wait", "utilization", "host")
    return {
        figure: stats.usual_scatter([each[figure] for each in rounds if figure in each], SHARE_SCATTER)
        for figure in figures
    }


def _by_figure(runs: Sequence[Measured], pairs: Sequence[Pair]) -> dict[Figure, list[float]]:
    """Return the shares of a step, one a round, as far as its rounds have them: of those with a ceiling, if any."""
    shares: dict[Figure, list[float]] = {}
    used = [run for run, _ in pairs] or runs
    if all(run.mean_wait_ms is not None for run in used):
        shares["wait"] = [(run.mean_wait_ms or 0.0) / run.mean_ms for run in used]
    if pairs:
        shares["utilization"] = [top.mean_ms / run.mean_ms for run, top in pairs]
    if len(shares) > 1:
        shares["host"] = [1 - own - top for own, top in zip(shares["wait"], shares["utilization"], strict=True)]
    return shares


def _split(
    variant: Variant, runs: Sequence[Measured], pairs: Sequence[Pair], scatter: Mapping[Figure, float]
) -> StepSplit:
    """Return input wait, host slowdown and ceiling, each in ms and as a share of the step."""
    if variant.is_ceiling:
        means = [run.mean_ms for run in runs]
        ci95 = stats.mean_interval(means)
        ceiling = Estimate(value=float(np.mean(means)), ci95=ci95, reason=None if ci95 else TOO_FEW_TRIALS)
        ceiling = speedups.within(ceiling, math.inf, math.inf)
        return StepSplit.without("this is the ceiling: it has no input")._replace(ceiling_ms=ceiling)
    # Only repeats that have a ceiling beside them, where any has: the three shares are then of the same steps. In ms
    # they are of the mean step of all repeats, which is the one that is shown.
    wait, host, utilization = _shares(variant, [run for run, _ in pairs] or list(runs), pairs, scatter)
    step_ms = float(np.mean([run.mean_ms for run in runs]))
    return StepSplit(
        input_wait_share=wait,
        host_slowdown_share=host,
        accelerator_utilization=utilization,
        input_wait_ms=_of_step(wait, step_ms),
        host_slowdown_ms=_of_step(host, step_ms),
        ceiling_ms=_of_step(utilization, step_ms),
        mean_ms=step_ms,
        rounds=len(runs),
    )


def _shares(
    variant: Variant, used: Sequence[Measured], pairs: Sequence[Pair], scatter: Mapping[Figure, float]
) -> tuple[Estimate, Estimate, Estimate]:
    """Return input wait, host slowdown and accelerator utilization; what cannot be is none, and says why."""
    device, taken, rounds = used[0].device_kind, measured.taken_of(pairs, used), _by_figure(used, pairs)

    def believed(figure: Figure) -> stats.Belief:
        error = measured.systematic_error(figure, device, taken)
        return stats.believe(rounds[figure], scatter[figure]).widened(error)

    no_wait = "wait" not in rounds
    unknown = Estimate(reason=f"the backend {variant.backend} does not say how long a step waits for its batch")
    wait = unknown if no_wait else speedups.within(speedups.estimate_of(believed("wait")))
    if not pairs:
        missing = Estimate(reason=f"its ceiling, {variant.ceiling!r}, was not measured beside it")
        return wait, (unknown if no_wait else missing), missing
    known = [believed("utilization")]
    if not no_wait:
        known.append(believed("host"))
    utilization, host = speedups.estimate_of(known[0]), unknown if no_wait else speedups.estimate_of(known[1])
    # Wait and ceiling together cannot be more than the step.
    beyond = known[0].value - 1 if no_wait else -known[1].value
    least = [known[0].interval()[0] - 1, *(-each.interval()[1] for each in known[1:])]
    is_noise = max(least) <= CEILING_TOLERANCE
    if beyond <= CEILING_TOLERANCE or (is_noise and all(map(_is_known, known))):
        most = 1.0 if wait.value is None else 1 - wait.value
        return wait, speedups.within(host), speedups.within(utilization, most)
    why = "its rounds differ too much" if is_noise else "the ceiling was disturbed, or this variant does less work"
    longer = "its ceiling takes" if no_wait else "its wait and its ceiling together take"
    reason = f"{longer} {units.share(beyond)} more than its step, which cannot be: {why}"
    # Of noise there is no figure, but how far its rounds reach still decides a verdict.
    impossible, reaching = (
        Estimate(ci95=each.ci95 if is_noise else None, impossible=True, reason=reason) for each in (host, utilization)
    )
    return wait, (unknown if no_wait else impossible), reaching


def _is_known(figure: stats.Belief) -> bool:
    """Return whether its interval is at most `BOUND_SHARE` to either side."""
    low, high = figure.interval()
    return high - low <= 2 * BOUND_SHARE


def _of_step(share: Estimate, step_ms: float) -> Estimate:
    """Return a share of the mean step in ms, so that the parts in ms and in percent say the same."""
    if share.value is None:
        return share
    ci95 = share.ci95 and (share.ci95[0] * step_ms, share.ci95[1] * step_ms)
    return Estimate(value=share.value * step_ms, ci95=ci95, reason=share.reason)


def _last_loss(run: Measured) -> float | None:
    assert run.record.steps is not None
    loss = float(run.record.steps.loss.unpack()[-1])
    return loss if math.isfinite(loss) else None


def _published(
    published: Published | None, variant: Variant, runs: Sequence[Measured], utilization: DeviceUtilization
) -> PublishedComparison | None:
    figure = next((f for f in published.figures if f.variant == variant.name), None) if published else None
    if published is None or figure is None:
        return None
    counts = [run.record.steps.count for run in runs if run.record.steps is not None]
    # A shorter run is scaled by its mean measured step; warm-up would weigh more in it than in the author's run.
    same_length = all(count == published.steps for count in counts)
    our_seconds = float(np.mean([run.total_s if same_length else run.mean_ms / 1e3 * published.steps for run in runs]))
    ours, theirs = utilization.mean_percent, figure.device_utilization_percent
    return PublishedComparison(
        seconds=figure.seconds,
        our_seconds=our_seconds,
        seconds_ratio=our_seconds / figure.seconds if figure.seconds else None,
        device_utilization_percent=theirs,
        our_device_utilization_percent=ours,
        device_utilization_ratio=ours / theirs if ours is not None and theirs else None,
        scaled_from_steps=None if same_length else round(float(np.mean(counts))),
    )
