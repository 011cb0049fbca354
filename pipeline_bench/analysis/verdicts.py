"""What a variant's figures mean: one verdict and one plain sentence. The thresholds of the verdicts are here.

A verdict follows from two figures and how well they are known: input wait and host slowdown, shares of the step, whose
rest is the accelerator utilization. Of all pairs of values that are plausible, a verdict holds for so many; that share
is its probability.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import belief
from pipeline_bench.analysis.measured import NEEDED_STEPS
from pipeline_bench.model.result import Doubt, Estimate, Result, ShareName, Verdict, VerdictKind
from pipeline_bench.text import units

# A step that waits a tenth of its time for input is worth mending; MLPerf Storage and DLIO pass a system at an
# accelerator utilization of 0.90, the same line seen from the other side.
BOUND_SHARE = 0.10
SEVERE_SHARE = 0.20
COMPUTE_BOUND_AU = 0.90

CERTAIN = 0.975
"""A verdict is given plainly from this probability on: its 95 % interval lies on one side of the line."""
PROBABLE = 0.85
"""From this one on it is given as probable. Below, what else is plausible is named, and no verdict."""
PLAUSIBLE = 0.05
"""A verdict of less than this probability is not named among what is plausible."""

# A backend may beat its ceiling by this much before the ceiling itself is in doubt.
CEILING_TOLERANCE = 0.02

BUSY_SHARE = 0.05
"""What others took of the CPU is named as a reason for doubt from here on."""

_LIMITS: tuple[VerdictKind, ...] = ("input-bound", "host-bound", "compute-bound", "mixed")

# The middles of so many equal parts of the normal distribution: enough for a probability of two digits.
_PARTS = 201
_NORMAL_REACH = 1.96
"""How many standard deviations a 95 % interval reaches to each side."""


def judge(result: Result, is_ceiling: bool, steps: int, taken: float = 0.0, for_more: str = "raise --steps") -> Verdict:
    """Return the verdict on one variant's figures, or the reason why there is none.

    Args:
        result: the variant's figures.
        is_ceiling: whether the variant is a ceiling, the reference itself.
        steps: measured steps of all its trials, or of its ceiling's where these are fewer.
        taken: what others took of the CPU during those steps, 0 to 1.
        for_more: what to do for more steps.
    """
    refusal = _too_little(result, steps, for_more)
    if refusal is not None:
        return refusal
    if is_ceiling:
        return Verdict(kind="ceiling", text=f"steps in {_ms(result)} on average, with no input at all: the reference.")
    return _limit(result, taken)


def _limit(result: Result, taken: float) -> Verdict:
    if result.input_wait_share.value is None:
        return inconclusive(result.input_wait_share.reason or "its input wait was not measured")
    chances = probabilities(result)
    kind = max(chances, key=lambda each: chances[each])
    if result.accelerator_utilization.value is None and not (kind == "input-bound" and chances[kind] >= CERTAIN):
        return inconclusive(result.accelerator_utilization.reason or "there is no ceiling to compare with")
    if chances[kind] >= CERTAIN and result.accelerator_utilization.ci95 is not None:
        return _found(kind, result, None)
    doubt = _doubt(result, kind, chances, taken)
    # That it waits and is slowed is certain then, and which is more is the doubt.
    is_both = chances["input-bound"] + chances["host-bound"] >= CERTAIN
    if chances[kind] >= PROBABLE or is_both:
        return _found(kind, result, doubt)
    return _open(result, kind, doubt)


def inconclusive(reason: str, doubt: Doubt | None = None) -> Verdict:
    """Return no verdict, and why, in a clause without a full stop."""
    return Verdict(kind="inconclusive", doubt=doubt, text=f"inconclusive: {reason.rstrip('.')}.")


def label(verdict: Verdict) -> str:
    """Return the verdict in two words or three: ``probably severely input-bound``."""
    probably = "probably " if verdict.certainty == "probable" else ""
    return f"{probably}{'severely ' if verdict.severe else ''}{verdict.kind}"


def probabilities(result: Result) -> dict[VerdictKind, float]:
    """Return how probable each limit is by the result's input wait, host slowdown and their intervals.

    The errors of the two are taken as normal and independent of each other; the accelerator utilization is what they
    leave. Where there is no host slowdown, all from none to what the wait leaves is taken as plausible.
    """
    wait = np.clip(_values(result.input_wait_share), 0.0, 1.0)[:, None]
    host = _values(result.host_slowdown_share)[None, :]
    if result.host_slowdown_share.value is None:
        host = np.linspace(0.0, max(0.0, 1 - _value(result.input_wait_share)), _PARTS)[None, :]
    larger = np.maximum(wait, host)
    bound = larger >= BOUND_SHARE
    holds: dict[VerdictKind, npt.NDArray[np.bool_]] = {
        "input-bound": bound & (wait >= host),
        "host-bound": bound & (wait < host),
        "compute-bound": ~bound & (1 - wait - host >= COMPUTE_BOUND_AU),
        "mixed": ~bound & (1 - wait - host < COMPUTE_BOUND_AU),
    }
    return {kind: float(where.mean()) for kind, where in holds.items()}


def judge_watched(
    step_ms: float | None,
    wait_ms: float | None,
    wait_share: float | None,
    steps: int,
    reason: str | None = None,
    device_waits: bool = True,
) -> Verdict:
    """Return the verdict on a job that was watched from within, without a ceiling beside it: input-bound, or not told.

    Args:
        step_ms: milliseconds a step on average.
        wait_ms: milliseconds that a step waited for its batch on average.
        wait_share: the same as a share of the step, 0 to 1; None where it was not measured.
        steps: how many steps that is over.
        reason: why the wait was not measured.
        device_waits: whether the device is idle while the loop waits; the verdict is not a severe one otherwise.
    """
    if wait_share is None:
        why = (reason or "no step has ended").removesuffix(".")
        return Verdict(kind="not-measured", text=f"its input wait was not measured: {why}.")
    if steps < NEEDED_STEPS:
        return inconclusive(f"only {units.count(steps, 'step')} ended, {NEEDED_STEPS} are needed")
    waits = f"waits {units.milliseconds(wait_ms)} of its mean step of {units.milliseconds(step_ms)} for the batch"
    if wait_share < BOUND_SHARE:
        return inconclusive(
            f"not input-bound: {waits} ({units.share(wait_share)}); whether the host or the model takes the rest "
            "cannot be told without a ceiling, which `pipeline-bench diagnose` measures with --model"
        )
    severe = device_waits and wait_share >= SEVERE_SHARE
    faster = units.ratio(1 / max(1 - wait_share, 1e-9))
    doubt = "" if device_waits else " The GPU may have been busy meanwhile, so it can be much less."
    text = (
        f"{'severely ' if severe else ''}input-bound: {waits} ({units.share(wait_share)}); without the wait it would "
        f"step at most {faster} as fast; `pipeline-bench diagnose` finds the stage and tries what helps.{doubt}"
    )
    return Verdict(kind="input-bound", severe=severe, text=text)


def _found(kind: VerdictKind, result: Result, doubt: Doubt | None) -> Verdict:
    """Return the verdict of that kind; a probable one where there is a doubt, which its sentence names first."""
    says = {"input-bound": _input_bound, "host-bound": _host_bound, "compute-bound": _compute_bound, "mixed": _mixed}
    bound = {"input-bound": result.input_wait_share, "host-bound": result.host_slowdown_share}.get(kind)
    verdict = Verdict(
        kind=kind,
        certainty="certain" if doubt is None else "probable",
        severe=bound is not None and _severe(bound),
        doubt=doubt,
        text="",
    )
    aside = f" ({doubt_text(doubt)})" if doubt is not None else ""
    return verdict.model_copy(update={"text": f"{label(verdict)}{aside}: {says[kind](result)}."})


def _open(result: Result, kind: VerdictKind, doubt: Doubt) -> Verdict:
    kinds = [kind, *doubt.instead]
    named = f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kind
    if doubt.rounds == 1:
        will_tell = "use --repeats 3 or more"
    elif doubt.taken_share >= BUSY_SHARE:
        will_tell = "a quieter machine will tell, or a larger --budget"
    else:
        will_tell = "a larger --budget or more --repeats will tell"
    return inconclusive(f"{named}; {doubt_text(doubt)}; {will_tell}", doubt)


def _doubt(result: Result, kind: VerdictKind, chances: dict[VerdictKind, float], taken: float) -> Doubt:
    """Return what speaks against the most probable kind: the figure between it and the next one, and its interval."""
    others = sorted((each for each in _LIMITS if each != kind), key=lambda each: -chances[each])
    instead = tuple(each for each in others if chances[each] >= PLAUSIBLE)
    figure, line = _between(kind, others[0], result)
    estimate = _estimates(result)[figure]
    low, high = _ends(estimate)
    return Doubt(
        figure=figure,
        low=low,
        high=high,
        line=line,
        instead=instead,
        rounds=result.trials if estimate.ci95 else 1,
        taken_share=taken,
    )


def _between(kind: VerdictKind, other: VerdictKind, result: Result) -> tuple[ShareName, float | None]:
    """Return which figure decides between two kinds, and the line that it decides at; None: the other part's share."""
    pair = {kind, other}
    if pair == {"input-bound", "host-bound"}:
        wait, host = (_width(each) for each in (result.input_wait_share, result.host_slowdown_share))
        return ("input wait" if wait >= host else "host slowdown"), None
    if pair == {"compute-bound", "mixed"}:
        return "accelerator utilization", COMPUTE_BOUND_AU
    figure: ShareName = "input wait" if "input-bound" in pair else "host slowdown"
    return figure, BOUND_SHARE


def doubt_text(doubt: Doubt) -> str:
    """Return the doubt in one clause: ``input wait is 8 % to 14 %, and the line is at 10 %``."""
    if doubt.rounds == 1:
        return "in one trial beside its ceiling, which has no interval"
    show = units.fraction if doubt.figure == "accelerator utilization" else units.share
    interval = f"{doubt.figure} is {show(doubt.low)} to {show(doubt.high)}"
    against = "it may be the smaller part" if doubt.line is None else f"the line is at {show(doubt.line)}"
    beside = f", beside work that took {units.share(doubt.taken_share)} of the CPU"
    return f"{interval}, {against}{beside if doubt.taken_share >= BUSY_SHARE else ''}"


def _too_little(result: Result, steps: int, for_more: str) -> Verdict | None:
    if result.trials == 0:
        reason = (result.reason or "no trial has ended yet").removesuffix(".")
        return Verdict(kind="not-measured", text=f"was not measured: {reason}.")
    if steps < NEEDED_STEPS:
        return inconclusive(
            f"only {units.count(steps, 'step')} came after warm-up, {NEEDED_STEPS} are needed; {for_more}"
        )
    return None


def _input_bound(result: Result) -> str:
    wait = result.input_wait_share
    return (
        f"waits {units.milliseconds(result.input_wait_ms.value)} of its mean step of {_ms(result)} for the batch "
        f"({units.share(wait.value)}); without the wait it would step "
        f"{units.ratio(1 / max(1 - _value(wait), 1e-9))} as fast{_also_slow(result)}"
    )


def _host_bound(result: Result) -> str:
    host = result.host_slowdown_share
    return (
        f"the batch is there, but the host takes {units.milliseconds(result.host_slowdown_ms.value)} of the mean step "
        f"of {_ms(result)} ({units.share(host.value)}) beside the model: copies, Python, cores that the input threads "
        f"use{_also_waits(result)}"
    )


def _compute_bound(result: Result) -> str:
    au = result.accelerator_utilization
    gain = max(0.0, 1 / max(_value(au), 1e-9) - 1)
    return f"runs at {units.share(au.value)} of the ceiling; a faster input would gain at most {units.share(gain)}"


def _mixed(result: Result) -> str:
    wait, host, au = result.input_wait_share, result.host_slowdown_share, result.accelerator_utilization
    return (
        f"runs at {units.share(au.value)} of the ceiling; input wait ({units.share(wait.value)}) and host slowdown "
        f"({units.share(host.value)}) are each too small to be the cause alone"
    )


def _also_slow(result: Result) -> str:
    host = result.host_slowdown_share
    return f"; the host costs {units.share(host.value)} beside it" if _ends(host)[0] >= BOUND_SHARE else ""


def _also_waits(result: Result) -> str:
    wait = result.input_wait_share
    return f"; it also waits {units.share(wait.value)} for input" if _ends(wait)[0] >= BOUND_SHARE else ""


def _estimates(result: Result) -> dict[ShareName, Estimate]:
    return {
        "input wait": result.input_wait_share,
        "host slowdown": result.host_slowdown_share,
        "accelerator utilization": result.accelerator_utilization,
    }


def _values(estimate: Estimate) -> npt.NDArray[np.float64]:
    """Return equally plausible values of a figure; of one round, those that the usual scatter lets expect."""
    return _value(estimate) + _width(estimate) / _NORMAL_REACH * belief.equally_plausible(_PARTS)


def _ends(estimate: Estimate) -> tuple[float, float]:
    value = _value(estimate)
    return estimate.ci95 or (value - _width(estimate), value + _width(estimate))


def _width(estimate: Estimate) -> float:
    """Return how far the figure may be off to one side."""
    if estimate.ci95 is not None:
        return max(estimate.ci95[1] - _value(estimate), _value(estimate) - estimate.ci95[0])
    low, high = belief.of([0.0], belief.SHARE_SCATTER).interval()
    return (high - low) / 2


def _severe(estimate: Estimate) -> bool:
    """Return whether the whole interval is at or above the line; never so without an interval."""
    return estimate.ci95 is not None and estimate.ci95[0] >= SEVERE_SHARE


def _value(estimate: Estimate) -> float:
    return estimate.value if estimate.value is not None else 0.0


def _ms(result: Result) -> str:
    """Return the mean step time, which the shares are of, rather than the median that the table shows."""
    return units.milliseconds(result.step_ms.mean)
