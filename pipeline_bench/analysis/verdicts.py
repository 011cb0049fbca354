"""What limits a variant: one verdict, its probability and the doubt that remains; its sentence is made here, last.

A verdict follows from two figures and how well they are known: input wait and host slowdown, shares of the step, whose
rest is the accelerator utilization. Of all pairs of values that are plausible, a verdict holds for so many; that share
is its probability.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.model.result import (
    Doubt,
    Estimate,
    InconclusiveCause,
    Interval,
    ShareName,
    Verdict,
    VerdictKind,
)
from pipeline_bench.text import joined, units

_LIMITS: tuple[VerdictKind, ...] = ("input-bound", "host-bound", "compute-bound", "mixed")

# The middles of so many equal parts of the normal distribution: enough for a probability of two digits.
_PARTS = 201


class StepSplit(NamedTuple):
    """The parts of a variant's mean step, as shares of it and in ms, over so many rounds.

    A part that came out beyond what can be has no value; it has an interval where that reaches to what can be.
    """

    input_wait_share: Estimate = Estimate()
    host_slowdown_share: Estimate = Estimate()
    accelerator_utilization: Estimate = Estimate()
    input_wait_ms: Estimate = Estimate()
    host_slowdown_ms: Estimate = Estimate()
    ceiling_ms: Estimate = Estimate()
    mean_ms: float | None = None
    rounds: int = 1
    copy_share: Estimate = Estimate()
    """The part of the host slowdown that is the copy of the batch to the device."""

    @classmethod
    def without(cls, reason: str) -> StepSplit:
        """Return the parts of a step that were not measured."""
        parts: dict[str, Any] = dict.fromkeys(PARTS, Estimate(reason=reason))
        return cls(**parts)

    @property
    def parts(self) -> dict[str, Estimate]:
        """The parts by name, which are fields of a `Result`; of one that cannot be there is the reason alone."""
        found: dict[str, Estimate] = {name: getattr(self, name) for name in PARTS}
        return {
            name: part.model_copy(update={"ci95": None}) if part.impossible else part for name, part in found.items()
        }


PARTS = StepSplit._fields[:6]
"""The names of the parts that a result shows."""


def judge(split: StepSplit, steps: int, taken: float = 0.0, *, budget_only: bool = False) -> Verdict:
    """Return the verdict on the figures of a variant that is no ceiling, or none with the reason.

    Args:
        split: the variant's figures.
        steps: measured steps of all its trials, or of its ceiling's where these are fewer.
        taken: what others took of the CPU during those steps, 0 to 1.
        budget_only: whether only a larger budget gives more steps, as in a diagnosis.
    """
    if steps < thresholds.NEEDED_STEPS:
        return too_few_steps(steps, budget_only=budget_only)
    wait, utilization = split.input_wait_share, split.accelerator_utilization
    if wait.value is None:
        return inconclusive(wait.reason or "its input wait was not measured", "no-wait")
    chances = probabilities(split)
    kind = max(chances, key=lambda each: chances[each])
    is_certain = chances[kind] >= thresholds.CERTAIN
    if not _is_known(utilization) and not (kind == "input-bound" and is_certain):
        cause: InconclusiveCause = "impossible" if utilization.impossible else "no-ceiling"
        return inconclusive(utilization.reason or "there is no ceiling to compare with", cause)
    if is_certain and wait.ci95 is not None:
        return _limit(kind, split, None)
    doubt = _doubt(split, kind, chances, taken)
    return _limit(kind, split, doubt) if chances[kind] >= thresholds.PROBABLE else _undecided(doubt, budget_only)


def probabilities(split: StepSplit) -> dict[VerdictKind, float]:
    """Return how probable each limit is by the input wait, the host slowdown and their intervals.

    The errors of the two are taken as normal; the accelerator utilization is what they leave, and how well that is
    known says how they go together: a wait that scatters beside a steady ceiling leaves so much less to the host.
    Where there is no host slowdown, all from none to what the wait leaves is taken as plausible.
    """
    normal, together = stats.equally_plausible(_PARTS), _correlation(split)
    wait = np.clip(_value(split.input_wait_share) + _error(split.input_wait_share) * normal, 0.0, 1.0)[:, None]
    apart = np.sqrt(1 - together**2)
    host_error = _error(split.host_slowdown_share)
    host = _value(split.host_slowdown_share) + host_error * (together * normal[:, None] + apart * normal[None, :])
    if not _is_known(split.host_slowdown_share):
        host = np.linspace(0.0, max(0.0, 1 - _value(split.input_wait_share)), _PARTS)[None, :]
    bound = np.maximum(wait, host) >= thresholds.BOUND_SHARE
    holds: dict[VerdictKind, npt.NDArray[np.bool_]] = {
        "input-bound": bound & (wait >= host),
        "host-bound": bound & (wait < host),
        "compute-bound": ~bound & (1 - wait - host >= thresholds.COMPUTE_BOUND_AU),
        "mixed": ~bound & (1 - wait - host < thresholds.COMPUTE_BOUND_AU),
    }
    return {kind: float(where.mean()) for kind, where in holds.items()}


def _doubt(split: StepSplit, kind: VerdictKind, chances: dict[VerdictKind, float], taken: float) -> Doubt:
    """Return what speaks against the most probable kind: the figure between it and the next one, and its interval."""
    others = sorted((each for each in _LIMITS if each != kind), key=lambda each: -chances[each])
    figure, line = _between({kind, others[0]}, split)
    estimates: dict[ShareName, Estimate] = {
        "input wait": split.input_wait_share,
        "host slowdown": split.host_slowdown_share,
        "accelerator utilization": split.accelerator_utilization,
    }
    estimate = estimates[figure]
    low, high = _ends(estimate)
    return Doubt(
        figure=figure,
        likeliest=kind,
        low=max(0.0, low),
        high=min(1.0, high),
        line=line,
        instead=tuple(each for each in others if chances[each] >= thresholds.PLAUSIBLE),
        rounds=split.rounds if estimate.ci95 else 1,
        taken_share=taken,
    )


def _between(pair: set[VerdictKind], split: StepSplit) -> tuple[ShareName, float | None]:
    """Return the figure that decides between two kinds, and its threshold; None: the share of the other part."""
    if pair == {"input-bound", "host-bound"}:
        is_wait = _width(split.input_wait_share) >= _width(split.host_slowdown_share)
        return ("input wait" if is_wait else "host slowdown"), None
    if pair == {"compute-bound", "mixed"}:
        return "accelerator utilization", thresholds.COMPUTE_BOUND_AU
    return ("input wait" if "input-bound" in pair else "host slowdown"), thresholds.BOUND_SHARE


def _correlation(split: StepSplit) -> float:
    """Return that of the errors of input wait and host slowdown; 0 where one of the three parts is not known.

    The three are 1, so that the variance of the utilization is those of the two and twice their covariance.
    """
    wait, host, rest = (_error(each) for each in split[:3])
    if not all(map(_is_known, split[:3])) or not wait * host:
        return 0.0
    return float(np.clip((rest**2 - wait**2 - host**2) / (2 * wait * host), -1.0, 1.0))


def _error(estimate: Estimate) -> float:
    """Return one standard deviation of a figure's error; of one round, the usual scatter's."""
    return _width(estimate) / stats.NORMAL_REACH


def _ends(estimate: Estimate) -> Interval:
    value = _value(estimate)
    return estimate.ci95 or (value - _width(estimate), value + _width(estimate))


def _width(estimate: Estimate) -> float:
    """Return how far the figure may be off to one side."""
    if estimate.ci95 is not None:
        return max(estimate.ci95[1] - _value(estimate), _value(estimate) - estimate.ci95[0])
    return stats.believe([0.0], thresholds.SHARE_SCATTER).interval()[1]


def _is_known(estimate: Estimate) -> bool:
    """Return whether there is anything to judge by: a figure, or how far the rounds of an impossible one reach."""
    return estimate.value is not None or estimate.ci95 is not None


def _value(estimate: Estimate) -> float:
    if estimate.value is None and estimate.ci95 is not None:
        return sum(estimate.ci95) / 2
    return estimate.value or 0.0


def _limit(kind: VerdictKind, split: StepSplit, doubt: Doubt | None) -> Verdict:
    """Return the verdict of that kind; a probable one where there is a doubt, which its sentence names first."""
    bound = {"input-bound": split.input_wait_share, "host-bound": split.host_slowdown_share}.get(kind)
    # The whole interval has to be severe; one trial has none.
    severe = bound is not None and bound.ci95 is not None and bound.ci95[0] >= thresholds.SEVERE_SHARE
    return stated(kind, _WORDS[kind](split), severe=severe, doubt=doubt)


def stated(kind: VerdictKind, reason: str, *, severe: bool, doubt: Doubt | None = None, sure: bool = True) -> Verdict:
    """Return the verdict of a bound with its sentence: how sure and how severe it is, what is in doubt, and why."""
    certainty = "certain" if doubt is None and sure else "probable"
    verdict = Verdict(kind=kind, certainty=certainty, severe=severe, doubt=doubt, reason=reason, text="")
    aside = f" ({doubt_text(doubt)})" if doubt is not None else ""
    return verdict.model_copy(update={"text": f"{label(verdict)}{aside}: {reason}."})


# --- no verdict on a limit -------------------------------------------------------------------------------------------


def inconclusive(
    reason: str, cause: InconclusiveCause | None = None, doubt: Doubt | None = None, *, sure: bool = True
) -> Verdict:
    """Return no verdict on a limit, and why, in a clause without a full stop.

    Args:
        reason: the clause.
        cause: its kind, where it is not the doubt alone.
        doubt: what keeps a verdict from being given, or, where it is not `sure`, that the input is no limit.
        sure: whether it is certain that the input is no limit, where the cause says so.
    """
    reason, certainty = reason.rstrip("."), "certain" if sure else "probable"
    verdict = Verdict(kind="inconclusive", certainty=certainty, doubt=doubt, cause=cause, reason=reason, text="")
    aside = f" ({doubt_text(doubt)})" if doubt is not None and not sure else ""
    return verdict.model_copy(update={"text": f"{first_words(verdict)}{aside}: {reason}."})


def too_few_steps(steps: int, *, budget_only: bool) -> Verdict:
    """Return no verdict for want of steps, and what to do for more."""
    for_more = "raise --budget" if budget_only else "raise --steps or --repeats"
    count = units.count(steps, "step")
    reason = f"only {count} after warm-up, {thresholds.NEEDED_STEPS} are needed; {for_more}"
    return inconclusive(reason, "too-few-steps")


def not_measured(reason: str) -> Verdict:
    """Return no verdict of a variant without a good trial."""
    reason = reason.removesuffix(".")
    return Verdict(kind="not-measured", reason=reason, text=f"was not measured: {reason}.")


def unequal_work(found: str) -> Verdict:
    """Return the verdict on a variant that did other work: its figures are of another job, and it is never fastest."""
    return unjudged("unequal-work", f"not comparable, its work was not equal: {found}")


def reference(mean_ms: float | None, *, on_host: bool = False) -> Verdict:
    """Return the verdict on a ceiling: the reference is not judged. `on_host`: its batch lies in host memory."""
    step = units.milliseconds(mean_ms)
    copied = ", its batch copied from host memory at every step" if on_host else ""
    return unjudged("ceiling", f"{step} a step on average without any input{copied}: the reference")


def unjudged(kind: VerdictKind, reason: str) -> Verdict:
    """Return the verdict of what has no limit, with its reason, a clause without a full stop."""
    return Verdict(kind=kind, reason=reason, text=f"{reason}.")


def _undecided(doubt: Doubt, budget_only: bool) -> Verdict:
    if doubt.rounds == 1 and not budget_only:
        will_tell = "use --repeats 3 or more"
    elif doubt.taken_share >= thresholds.BUSY_SHARE:
        will_tell = "use a quieter machine or a larger --budget"
    else:
        will_tell = "use a larger --budget" if budget_only else "use a larger --budget or more --repeats"
    return inconclusive(f"{plausible_kinds(doubt)}; {doubt_text(doubt)}; {will_tell}", doubt=doubt)


# --- words -----------------------------------------------------------------------------------------------------------


def probably(certainty: Literal["certain", "probable"] | None) -> str:
    """Return the word before what is only probable, with a space behind it; empty before what is certain."""
    return "probably " if certainty == "probable" else ""


def label(verdict: Verdict) -> str:
    """Return the verdict in two words or three: ``probably severely input-bound``."""
    return f"{probably(verdict.certainty)}{'severely ' if verdict.severe else ''}{verdict.kind}"


def in_brief(verdict: Verdict) -> str:
    """Return the verdict for a narrow column: its kind, or that the input is no limit, with a ``?`` where probable."""
    words = first_words(verdict.model_copy(update={"certainty": "certain", "severe": False}))
    return f"{words}{'?' if verdict.certainty == 'probable' else ''}"


def first_words(verdict: Verdict) -> str:
    """Return what a verdict's sentence begins with: its label, or of a watched job that its input is not the limit."""
    if verdict.cause not in ("only-not-input", "gpu-idle"):
        return label(verdict)
    idles = ", but the GPU idles" if verdict.cause == "gpu-idle" else ""
    return f"{probably(verdict.certainty)}not input-bound{idles}"


def plausible_kinds(doubt: Doubt) -> str:
    """Return what a variant may be limited by, the most probable first: ``mixed, host-bound or input-bound``."""
    kinds = [kind for kind in (doubt.likeliest, *doubt.instead) if kind is not None]
    return joined(kinds, "or")


def doubt_text(doubt: Doubt) -> str:
    """Return the doubt in one clause: ``input wait is 8 to 14 %, the threshold is 10 %``."""
    if doubt.rounds == 1:
        return "one trial beside its ceiling, so there is no interval"
    against = "either of the two parts may be the larger one"
    if doubt.line is not None:
        against = f"the threshold is {_show(doubt)(doubt.line)}"
    beside = f", while other work took {units.share(doubt.taken_share)} of the CPU"
    return f"{doubt_interval(doubt)}, {against}{beside if doubt.taken_share >= thresholds.BUSY_SHARE else ''}"


def doubt_interval(doubt: Doubt) -> str:
    """Return the figure in doubt with its interval: ``input wait is 8 to 14 %``."""
    return doubt.figure + units.ends(_show(doubt), (doubt.low, doubt.high), " is {}")


def _show(doubt: Doubt) -> Callable[[float], str]:
    return units.fraction if doubt.figure == "accelerator utilization" else units.share


def _input_bound(split: StepSplit) -> str:
    wait, host = split.input_wait_share, split.host_slowdown_share
    too = f"; host slowdown takes another {units.share(host.value)}" if _ends(host)[0] >= thresholds.BOUND_SHARE else ""
    return (
        f"waits {units.milliseconds(split.input_wait_ms.value)} of its mean step of "
        f"{units.milliseconds(split.mean_ms)} for "
        f"the batch ({units.share(wait.value)}); without the wait it would be {without_wait(_value(wait))} as fast"
        f"{too}"
    )


def _host_bound(split: StepSplit) -> str:
    wait, host = split.input_wait_share, split.host_slowdown_share
    too = f"; it also waits {units.share(wait.value)} for input" if _ends(wait)[0] >= thresholds.BOUND_SHARE else ""
    copy = split.copy_share.value
    copy = copy if copy is None or host.value is None else min(copy, host.value)  # it is a part of it
    copied = "copies" if copy is None else f"the copy of the batch to the device ({units.share(copy)})"
    return (
        f"the batch is there, but the host takes {units.milliseconds(split.host_slowdown_ms.value)} of the mean step "
        f"of {units.milliseconds(split.mean_ms)} ({units.share(host.value)}) beside the model: {copied}, Python, cores "
        f"that the input threads use{too}"
    )


def _compute_bound(split: StepSplit) -> str:
    au = split.accelerator_utilization
    known = au.value is not None
    runs = f"runs at {units.share(au.value)} of the ceiling" if known else "as fast as its ceiling, within noise"
    gain = max(0.0, 1 / max(_ends(au)[0], 1e-9) - 1)
    return f"{runs}; a faster input would gain at most {units.share(gain)}"


def _mixed(split: StepSplit) -> str:
    wait, host, au = split.input_wait_share, split.host_slowdown_share, split.accelerator_utilization
    return (
        f"runs at {units.share(au.value)} of the ceiling; input wait ({units.share(wait.value)}) and host slowdown "
        f"({units.share(host.value)}) are each too small to be the cause alone"
    )


def without_wait(wait_share: float) -> str:
    """Return how many times as fast a step would be that does not wait: ``1.5×``."""
    most = 1 / max(1 - wait_share, 1e-9)
    return units.ratio(most) if most <= thresholds.MOST_GAIN else f"more than {thresholds.MOST_GAIN:.0f}×"


_WORDS = {"input-bound": _input_bound, "host-bound": _host_bound, "compute-bound": _compute_bound, "mixed": _mixed}
