"""From the trials of a session to one `Result` a variant. Pure: the same trials give the same results.

A repeat's figures are taken against the ceiling trial of the same repeat, its neighbour in the interleaved order, so
that a drift of the machine cancels. Shares and accelerator utilization are of mean step times, because an input that
comes in bursts is invisible to a median; `step_ms` shows the median and the percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline_bench import plugins, user_pipeline
from pipeline_bench.analysis import (
    belief,
    cache_state,
    device_utilization,
    effects,
    equal_work,
    measured,
    speedups,
    stats,
    verdicts,
)
from pipeline_bench.analysis.measured import Measured, Pair
from pipeline_bench.model.result import (
    DeviceUtilization,
    Estimate,
    PublishedComparison,
    Result,
    ResultStatus,
    Speedup,
    StepTime,
    Verdict,
)
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Published, Scenario, Variant
from pipeline_bench.text import units

_TOO_FEW_TRIALS = "an interval needs at least 2 trials"


def summarise(scenario: Scenario, trials: Sequence[TrialRecord], cores: int) -> tuple[Result, ...]:
    """Return one result a variant, in the scenario's order; a variant without a good trial says why.

    Args:
        scenario: as resolved.
        trials: those that have ended, in any order.
        cores: the cores that this process may use.
    """
    found = measured.of(scenario, trials, cores)
    results = tuple(_result(scenario, variant, trials, found, cores) for variant in scenario.variants)
    return speedups.against_fastest(scenario, results, found)


def _result(
    scenario: Scenario, variant: Variant, trials: Sequence[TrialRecord], found: measured.ByVariant, cores: int
) -> Result:
    own = found[variant.name]
    status, reason = _status(variant, [t for t in trials if t.variant == variant.name], len(own))
    if not own:
        result = _unmeasured(variant, status, reason)
        return result.model_copy(update={"verdict": verdicts.judge(result, variant.is_ceiling, 0)})
    runs = [own[repeat] for repeat in sorted(own)]
    pairs = measured.pairs(found, variant)
    used = device_utilization.of(runs, cores)
    loss = _finite(_last_loss(runs[-1]))
    accuracy = runs[-1].record.accuracy
    result = Result(
        variant=variant.name,
        backend=variant.backend,
        emulated=runs[0].emulated,
        status=status,
        reason=reason,
        trials=len(runs),
        steps=sum(len(run.step_ms) for run in runs),
        warmup_steps=tuple(run.record.warmup_steps for run in runs),
        step_ms=step_time(runs),
        **_rate(variant, runs),
        **_split(variant, runs, pairs),
        device_utilization=used,
        speedup=speedups.over_baseline(scenario, variant, found),
        work=equal_work.check(variant, _records(own), scenario.baseline, _records(found[scenario.baseline.name])),
        loss=loss,
        accuracy=accuracy,
        missing=_missing(variant, loss is None, accuracy.before is None and accuracy.after is None),
        published=_published(scenario.published, variant, runs, used),
        verdict=Verdict(kind="not-measured", text=""),
    )
    return result.model_copy(update={"verdict": _verdict(scenario, variant, result, runs, pairs)})


def _verdict(
    scenario: Scenario, variant: Variant, result: Result, runs: Sequence[Measured], pairs: Sequence[Pair]
) -> Verdict:
    if result.work.status == "unequal":
        return equal_work.refusal(result.work)
    if (reason := cache_state.doubt(variant, [run.record for run in runs])) is not None:
        return cache_state.refusal(reason)
    steps = min(sum(len(run.step_ms) for run in some) for some in (runs, [top for _, top in pairs]) if some)
    for_more = "raise --budget" if variant.source.kind == user_pipeline.KIND else "raise --steps or --repeats"
    return verdicts.judge(result, variant.is_ceiling, steps, measured.taken_of(pairs), for_more)


def _missing(variant: Variant, no_loss: bool, no_accuracy: bool) -> dict[str, str]:
    """Why there is no loss or no accuracy, where there is none."""
    nothing = _trains_nothing(variant) if no_loss or no_accuracy else None
    reasons = {}
    if no_loss:
        reasons["loss"] = nothing or "the last step's loss was not a finite number"
    if no_accuracy:
        reasons["accuracy"] = nothing or "the model has no accuracy to measure"
    return reasons


def _trains_nothing(variant: Variant) -> str | None:
    """Why a model without loss and accuracy is as it should be; None where it trains, or is no plug-in of ours."""
    kind = variant.model.kind
    model: Any = plugins.find("models", kind) if kind in plugins.names("models") else None
    return None if model is None or model.trains else f"the model {kind} trains nothing"


def _records(own: dict[int, Measured]) -> list[TrialRecord]:
    return [own[repeat].record for repeat in sorted(own)]


def _status(variant: Variant, trials: Sequence[TrialRecord], good: int) -> tuple[ResultStatus, str | None]:
    bad = [trial for trial in trials if trial.status != "ok"]
    if not trials:
        return "pending", "none of its trials has run"
    wanted = max(variant.run.repeats, len(trials))  # a goal of precision adds to the scenario's repeats
    if good and (bad or good < wanted):
        reason = f"{good} of {wanted} trials are in these figures"
        return "partial", f"{reason}; {bad[0].status}: {bad[0].reason}" if bad else reason
    if bad:
        return bad[0].status, bad[0].reason
    return ("ok", None) if good else ("failed", "no step was measured after warm-up")


def _unmeasured(variant: Variant, status: ResultStatus, reason: str | None) -> Result:
    why = reason or "not measured"
    return Result(
        variant=variant.name,
        backend=variant.backend,
        status=status,
        reason=why,
        step_ms=StepTime(reason=why),
        input_wait_ms=Estimate(reason=why),
        input_wait_share=Estimate(reason=why),
        host_slowdown_ms=Estimate(reason=why),
        host_slowdown_share=Estimate(reason=why),
        ceiling_ms=Estimate(reason=why),
        accelerator_utilization=Estimate(reason=why),
        device_utilization=DeviceUtilization(reason=why),
        speedup=Speedup(reason=why),
        missing=dict.fromkeys(("loss", "samples_per_second", "accuracy"), why),
        verdict=Verdict(kind="not-measured", text=""),
    )


def step_time(runs: Sequence[Measured]) -> StepTime:
    """Return the median, the mean and the percentiles of the steps of some trials."""
    medians = [float(np.median(run.step_ms)) for run in runs]
    p05, p95 = (float(value) for value in np.percentile(np.concatenate([run.step_ms for run in runs]), [5, 95]))
    ci95 = stats.median_interval(medians)
    mean = float(np.mean([run.mean_ms for run in runs]))
    return StepTime(
        median=float(np.median(medians)),
        mean=mean,
        p05=p05,
        p95=p95,
        ci95=ci95,
        reason=None if ci95 else _TOO_FEW_TRIALS,
    )


def _rate(variant: Variant, runs: Sequence[Measured]) -> dict[str, Any]:
    """Samples a second, by the mean step time, whose interval it has."""
    means = [run.mean_ms for run in runs]
    samples_ms = speedups.batch_size(variant) * 1e3
    interval = stats.ratio_interval([samples_ms / mean for mean in means])
    return {"samples_per_second": samples_ms / float(np.mean(means)), "samples_per_second_ci95": interval}


def _split(variant: Variant, runs: Sequence[Measured], pairs: Sequence[Pair]) -> dict[str, Estimate]:
    """Return input wait, ceiling and host slowdown, each in ms and as a share of the step."""
    if variant.is_ceiling:
        itself = Estimate(reason="this is the ceiling: it has no input")
        names = ("input_wait_ms", "input_wait_share", "host_slowdown_ms", "host_slowdown_share")
        means = [run.mean_ms for run in runs]
        ceiling = Estimate(value=float(np.mean(means)), ci95=stats.mean_interval(means))
        ceiling = ceiling if ceiling.ci95 else ceiling.model_copy(update={"reason": _TOO_FEW_TRIALS})
        return {**dict.fromkeys(names, itself), "ceiling_ms": ceiling, "accelerator_utilization": itself}
    # Only repeats that have a ceiling beside them, where any has: the three parts are then of the same steps.
    used = [run for run, _ in pairs] or list(runs)
    step_ms = float(np.mean([run.mean_ms for run in used]))
    wait, host, utilization = _shares(variant, used, pairs)
    return {
        "input_wait_ms": _of_step(wait, step_ms),
        "input_wait_share": wait,
        "host_slowdown_ms": _of_step(host, step_ms),
        "host_slowdown_share": host,
        "ceiling_ms": _of_step(utilization, step_ms),
        "accelerator_utilization": utilization,
    }


def _shares(variant: Variant, used: Sequence[Measured], pairs: Sequence[Pair]) -> tuple[Estimate, Estimate, Estimate]:
    """Return input wait, host slowdown and accelerator utilization; what cannot be is none, and says why."""
    device, taken = used[0].device_kind, measured.taken_of(pairs)

    def share(name: effects.Figure, values: Sequence[float]) -> Estimate:
        return _estimate(belief.of(values, belief.SHARE_SCATTER).widened(effects.of(name, device) * taken))

    waits = [min(1.0, (run.mean_wait_ms or 0.0) / run.mean_ms) for run in used]
    tops = [top.mean_ms / run.mean_ms for run, top in pairs]
    no_wait = used[0].mean_wait_ms is None
    untold = Estimate(reason=f"the backend {variant.backend} does not say how long a step waits for its batch")
    wait = untold if no_wait else share("wait", waits)
    if not pairs:
        missing = Estimate(reason=f"its ceiling, {variant.ceiling!r}, was not measured beside it")
        return wait, (untold if no_wait else missing), missing
    utilization = share("utilization", tops)
    host = untold if no_wait else share("host", [1 - own - top for own, top in zip(waits, tops, strict=True)])
    beyond = max(_lowest(utilization) - 1, 0.0 if no_wait else -_highest(host))
    if beyond > verdicts.CEILING_TOLERANCE:
        impossible = Estimate(
            impossible=True,
            reason=f"beside its wait it beats its ceiling by {units.share(beyond)} or more, which cannot be: "
            "the ceiling was disturbed, or this variant does less work",
        )
        return _within(wait, 0.0, 1.0), (untold if no_wait else impossible), impossible
    most = 1.0 if wait.value is None else 1 - wait.value
    return _within(wait, 0.0, 1.0), _within(host, 0.0, 1.0), _within(utilization, 0.0, most)


def _estimate(found: belief.Belief) -> Estimate:
    """Return a share and its interval."""
    if found.rounds == 1:
        return Estimate(value=found.value, reason=_TOO_FEW_TRIALS)
    return Estimate(value=found.value, ci95=found.interval())


def _within(estimate: Estimate, lowest: float, highest: float) -> Estimate:
    """Return the estimate and its interval moved to where they can be, where noise has brought them beyond."""
    if estimate.value is None:
        return estimate
    ci95 = estimate.ci95 and (
        min(max(estimate.ci95[0], lowest), highest),
        max(min(estimate.ci95[1], 1.0), lowest),
    )
    return estimate.model_copy(update={"value": min(max(estimate.value, lowest), highest), "ci95": ci95})


def _lowest(estimate: Estimate) -> float:
    return estimate.ci95[0] if estimate.ci95 else estimate.value or 0.0


def _highest(estimate: Estimate) -> float:
    return estimate.ci95[1] if estimate.ci95 else estimate.value or 0.0


def _of_step(share: Estimate, step_ms: float) -> Estimate:
    """A share of the mean step in ms, so that the parts in ms and in percent say the same."""
    if share.value is None:
        return share
    ci95 = share.ci95 and (share.ci95[0] * step_ms, share.ci95[1] * step_ms)
    return Estimate(value=share.value * step_ms, ci95=ci95, reason=share.reason)


def _last_loss(run: Measured) -> float:
    assert run.record.steps is not None
    return float(run.record.steps.loss.unpack()[-1])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _published(
    published: Published | None, variant: Variant, runs: Sequence[Measured], utilization: DeviceUtilization
) -> PublishedComparison | None:
    figure = next((f for f in published.figures if f.variant == variant.name), None) if published else None
    if published is None or figure is None:
        return None
    assert runs[0].record.steps is not None
    steps = runs[0].record.steps.count
    # A shorter run is scaled by its mean measured step; warm-up would weigh more in it than in the author's run.
    same_length = all(run.record.steps and run.record.steps.count == published.steps for run in runs)
    our_seconds = float(np.mean([run.total_s if same_length else run.mean_ms / 1e3 * published.steps for run in runs]))
    ours = utilization.mean_percent
    theirs = figure.device_utilization_percent
    return PublishedComparison(
        seconds=figure.seconds,
        our_seconds=our_seconds,
        seconds_ratio=our_seconds / figure.seconds if figure.seconds else None,
        device_utilization_percent=theirs,
        our_device_utilization_percent=ours,
        device_utilization_ratio=ours / theirs if ours is not None and theirs else None,
        scaled_from_steps=None if same_length else steps,
    )
