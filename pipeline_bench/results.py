"""From the trials of a session to one `Result` a variant. Pure: the same trials give the same results.

A repeat's figures are taken against the ceiling trial of the same repeat, its neighbour in the interleaved order, so
that a drift of the machine cancels. Shares and accelerator utilization are of mean step times, because an input that
comes in bursts is invisible to a median; `step_ms` shows the median and the percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pipeline_bench import (
    cache_state,
    device_utilization,
    disturbances,
    equal_work,
    findings,
    plugins,
    stats,
    user_pipeline,
)
from pipeline_bench.measured import Measured
from pipeline_bench.scenario import Published, Scenario, Variant
from pipeline_bench.session import (
    DeviceUtilization,
    Disturbance,
    Estimate,
    PublishedComparison,
    Result,
    ResultStatus,
    Speedup,
    StepTime,
    TrialRecord,
    Verdict,
)

_TOO_FEW_TRIALS = "an interval needs at least 2 trials"


def summarise(
    scenario: Scenario, trials: Sequence[TrialRecord], cores: int, disturbed: Sequence[Disturbance] | None = None
) -> tuple[Result, ...]:
    """One result a variant, in the scenario's order; a variant without a good trial says why.

    Args:
        scenario: as resolved.
        trials: those that have ended, in any order.
        cores: the cores that this process may use, for the utilization of a CPU.
        disturbed: what disturbed the trials, where it has been found already.
    """
    measured = {
        variant.name: {t.repeat: Measured(t) for t in trials if t.variant == variant.name and t.measured}
        for variant in scenario.variants
    }
    disturbed = disturbances.find(trials, cores) if disturbed is None else disturbed
    return tuple(_result(scenario, variant, trials, measured, disturbed, cores) for variant in scenario.variants)


def _result(
    scenario: Scenario,
    variant: Variant,
    trials: Sequence[TrialRecord],
    measured: dict[str, dict[int, Measured]],
    disturbed: Sequence[Disturbance],
    cores: int,
) -> Result:
    own = measured[variant.name]
    status, reason = _status(variant, [t for t in trials if t.variant == variant.name], len(own))
    if not own:
        result = _unmeasured(variant, status, reason)
        return result.model_copy(update={"verdict": findings.judge(result, variant.ceiling is None, None, 0)})
    runs = [own[repeat] for repeat in sorted(own)]
    ceilings = measured.get(variant.ceiling, {}) if variant.ceiling else {}
    pairs = [(own[repeat], ceilings[repeat]) for repeat in sorted(own) if repeat in ceilings]
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
        step_ms=_step_time(runs),
        **_rate(variant, runs),
        **_split(variant, runs, pairs),
        device_utilization=used,
        speedup=_speedup(scenario, variant, own, measured),
        work=equal_work.check(variant, _records(own), scenario.baseline, _records(measured[scenario.baseline.name])),
        loss=loss,
        accuracy=accuracy,
        missing=_missing(variant, loss is None, accuracy.before is None and accuracy.after is None),
        published=_published(scenario.published, variant, runs, used),
        verdict=Verdict(kind="not-measured", text=""),
    )
    fewest, for_more = _fewest_steps(variant, runs, [top for _, top in pairs])
    beside = {(run.record.variant, run.record.repeat) for run in [*runs, *(top for _, top in pairs)]}
    relevant = [each for each in disturbed if (each.variant, each.repeat) in beside]
    verdict = findings.judge(result, variant.ceiling is None, _spread(pairs), fewest, relevant, for_more)
    if (reason := cache_state.doubt(variant, _records(own))) is not None:
        verdict = cache_state.refusal(reason)
    if result.work.status == "unequal":
        verdict = equal_work.refusal(result.work)
    return result.model_copy(update={"verdict": verdict})


def _fewest_steps(variant: Variant, runs: Sequence[Measured], ceilings: Sequence[Measured]) -> tuple[int, str]:
    """How many steps a verdict rests on, and what would make them more.

    The trials of a diagnosis are short and many, and their steps were warmed up before they were told: there all trials
    of a variant count together.
    """
    if variant.source.kind == user_pipeline.KIND:
        counts = [sum(len(run.step_ms) for run in some) for some in (runs, ceilings) if some]
        return min(counts), "raise --budget"
    return min(len(run.step_ms) for run in [*runs, *ceilings]), "raise --steps or --time"


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


def _records(measured: dict[int, Measured]) -> list[TrialRecord]:
    return [measured[repeat].record for repeat in sorted(measured)]


def _batch_size(variant: Variant) -> int:
    """The samples of a step, by the option of that name; a step of a source without it counts as one.

    A source that wraps another has that one's options in a table among its own.
    """
    options = variant.source.options
    tables = [options, *(value for value in options.values() if isinstance(value, dict))]
    return int(next((table["batch_size"] for table in tables if "batch_size" in table), 1))


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


def _step_time(runs: Sequence[Measured]) -> StepTime:
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
    samples_ms = _batch_size(variant) * 1e3
    interval = stats.ratio_interval([samples_ms / mean for mean in means])
    return {"samples_per_second": samples_ms / float(np.mean(means)), "samples_per_second_ci95": interval}


def _split(
    variant: Variant, runs: Sequence[Measured], pairs: Sequence[tuple[Measured, Measured]]
) -> dict[str, Estimate]:
    """Input wait, ceiling and host slowdown, each in ms and as a share of the step."""
    if variant.ceiling is None:
        itself = Estimate(reason="this is the ceiling: it has no input")
        names = ("input_wait_ms", "input_wait_share", "host_slowdown_ms", "host_slowdown_share")
        return {
            **dict.fromkeys(names, itself),
            "ceiling_ms": _share([run.mean_ms for run in runs]),
            "accelerator_utilization": itself,
        }
    # Only repeats that have a ceiling beside them, where any has: the three parts are then of the same steps.
    used = [run for run, _ in pairs] or runs
    step_ms = float(np.mean([run.mean_ms for run in used]))
    if runs[0].mean_wait_ms is None:
        wait = host = Estimate(reason=f"the backend {variant.backend} does not say how long a step waits for its batch")
    else:
        wait = _share([(run.mean_wait_ms or 0.0) / run.mean_ms for run in used], lowest=0.0, highest=1.0)
        host = _share([1 - (run.mean_wait_ms or 0.0) / run.mean_ms - top.mean_ms / run.mean_ms for run, top in pairs])
    utilization = _share([top.mean_ms / run.mean_ms for run, top in pairs], lowest=0.0)
    if not pairs:
        missing = Estimate(reason=f"its ceiling, {variant.ceiling!r}, was not measured beside it")
        host, utilization = missing, missing
    return {
        "input_wait_ms": _of_step(wait, step_ms),
        "input_wait_share": wait,
        "host_slowdown_ms": _of_step(host, step_ms),
        "host_slowdown_share": host,
        "ceiling_ms": _of_step(utilization, step_ms),
        "accelerator_utilization": utilization,
    }


def _share(values: Sequence[float], lowest: float = -math.inf, highest: float = math.inf) -> Estimate:
    """The mean of a share over trials; its interval ends where the share itself has to."""
    if not values:
        return Estimate(reason="it was not measured")
    interval = stats.mean_interval(values)
    if interval is None:
        return Estimate(value=float(np.mean(values)), reason=_TOO_FEW_TRIALS)
    return Estimate(value=float(np.mean(values)), ci95=(max(lowest, interval[0]), min(highest, interval[1])))


def _of_step(share: Estimate, step_ms: float) -> Estimate:
    """A share of the mean step in ms, so that the parts in ms and in percent say the same."""
    if share.value is None:
        return share
    ci95 = share.ci95 and (share.ci95[0] * step_ms, share.ci95[1] * step_ms)
    return Estimate(value=share.value * step_ms, ci95=ci95, reason=share.reason)


def _spread(pairs: Sequence[tuple[Measured, Measured]]) -> findings.Spread | None:
    """How far apart the trials lie, the outermost tenth of many left out: of many, some always lie far out."""
    if not pairs:
        return None
    ranges = [np.percentile(run.step_ms, [5, 95]) / top.mean_ms for run, top in pairs]
    shares = {
        "input wait": [(run.mean_wait_ms or 0.0) / run.mean_ms for run, _ in pairs],
        "accelerator utilization": [top.mean_ms / run.mean_ms for run, top in pairs],
    }
    ends = {name: _inner_ends(values) for name, values in shares.items()}
    widest = max(ends, key=lambda name: ends[name][1] - ends[name][0])
    highest_low, lowest_high = _inner_ends([low for low, _ in ranges])[1], _inner_ends([high for _, high in ranges])[0]
    return findings.Spread(highest_low > lowest_high, widest, *ends[widest])


def _inner_ends(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value; from 10 values on without a tenth of them at each end."""
    inner = sorted(values)
    left_out = len(inner) // 10
    return float(inner[left_out]), float(inner[-1 - left_out])


def _speedup(
    scenario: Scenario, variant: Variant, own: dict[int, Measured], measured: dict[str, dict[int, Measured]]
) -> Speedup:
    """The throughput over that of the baseline in the same repeat."""
    over = scenario.baseline
    if variant.name == over.name:
        return Speedup(over=over.name, reason="this is the variant that the others are compared with")
    base = measured[over.name]
    shared = [repeat for repeat in sorted(own) if repeat in base]
    if not shared:
        return Speedup(over=over.name, reason=f"{over.name!r} was not measured")
    emulated = {own[shared[0]].emulated, base[shared[0]].emulated}
    if len(emulated) > 1:
        which = "one of the two is emulated" if None in emulated else "the two emulate different devices"
        return Speedup(over=over.name, reason=f"{which}: {over.name!r} is no measure for it")
    scale = _batch_size(variant) / _batch_size(over)
    ratios = [scale * base[repeat].mean_ms / own[repeat].mean_ms for repeat in shared]
    value, ci95 = stats.typical_ratio(ratios), stats.typical_ratio_interval(ratios)
    claim = stats.typical_ratio_interval(ratios, stats.CLAIM_CONFIDENCE)
    if ci95 is None or claim is None:
        return Speedup(over=over.name, value=value, reason=_TOO_FEW_TRIALS)
    difference: Literal["faster", "slower", "none"] = "none"
    if not claim[0] <= 1 <= claim[1]:
        difference = "faster" if value > 1 else "slower"
    return Speedup(over=over.name, value=value, ci95=ci95, difference=difference, smallest=stats.half_width(claim))


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
