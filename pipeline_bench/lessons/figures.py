"""What the comparing lessons say of a session's figures: times, gains and published figures in plain sentences. Pure.

Nothing here says more than was measured: what has no interval is called unproven, and what is missing has its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pipeline_bench.scenario.shipped import read, shipped
from pipeline_bench.text import one_line, units

if TYPE_CHECKING:
    from pipeline_bench.model.result import Interval, Result
    from pipeline_bench.model.session import Session

Outcome = Literal["faster", "slower", "none", "unknown"]
"""What may be said of a variant beside the baseline.

``none`` says that there is no difference worth having, ``unknown`` that it was not measured well enough to say.
"""

_ALIKE = 1.25
"""Throughputs whose ratio lies within this and its inverse, interval included, count as no difference.

Lessons have three short trials a variant; on a quiet machine their intervals are well within it.
"""
_NAME_LIMIT = 40
_REASON_LIMIT = 200


def result(session: Session, variant: str) -> Result | None:
    """The result of a variant whose figures may be used: some trial went well, and it did the work that it should."""
    found = next((each for each in session.results if each.variant == variant), None)
    if found is None or found.step_ms.mean is None or found.work.status == "unequal":
        return None
    return found


def outcome(session: Session, variant: str) -> Outcome:
    """What may be claimed of a variant's throughput over the baseline's."""
    found = result(session, variant)
    if found is None or found.speedup.ci95 is None or found.speedup.difference is None:
        return "unknown"
    if found.speedup.difference != "none":
        return found.speedup.difference
    low, high = found.speedup.ci95
    return "none" if low >= 1 / _ALIKE and high <= _ALIKE else "unknown"


def with_interval(
    value: float | None, interval: Interval | None, write: Callable[[float | None], str] = units.milliseconds
) -> str:
    """A figure with its 95 % interval: ``3.42 ms (3.38 ms to 3.46 ms)``; without one, the figure alone."""
    if value is None or interval is None:
        return write(value)
    return f"{write(value)} ({write(interval[0])} to {write(interval[1])})"


def step(found: Result) -> str:
    """The mean step time with its interval, which is that of the throughput."""
    mean, rate, rates = found.step_ms.mean, found.samples_per_second, found.samples_per_second_ci95
    if mean is None or not rate or rates is None or rates[0] <= 0:
        return units.milliseconds(mean)
    return with_interval(mean, (mean * rate / rates[1], mean * rate / rates[0]))


def gain(session: Session, variant: str) -> str:
    """The throughput of a variant over the baseline's, in one sentence that claims no more than the interval does."""
    found = result(session, variant)
    if found is None or found.speedup.value is None:
        return f"{_name(variant)} could not be compared: {_why(session, variant)}."
    name, over, times = _name(variant), _name(found.speedup.over or "the first"), units.ratio(found.speedup.value)
    if found.speedup.ci95 is None:
        return f"{name} came to {times} the throughput of {over} in one trial each, which proves nothing yet."
    interval = with_interval(found.speedup.value, found.speedup.ci95, units.ratio)
    if found.speedup.difference in ("faster", "slower"):
        return f"{name} is {found.speedup.difference}: {interval} the throughput of {over}."
    if outcome(session, variant) == "none":
        return f"No difference between {name} and {over} can be told: {interval} its throughput."
    return f"Whether {name} is faster than {over} cannot be told: {interval}, from trials too far apart."


def measured(session: Session, variants: Sequence[str]) -> str:
    """A list item for each of the variants: its mean step time with its interval, or why there is none."""
    found = [each.trials for variant in variants if (each := result(session, variant)) is not None]
    trials = max(found, default=0)
    interval = ", in brackets the range that holds the true mean 95 times in 100" if trials > 1 else ""
    head = [f"Mean time of a step over {units.count(trials, 'trial')}{interval}:", ""] if found else []
    return "\n".join([*head, *(_measured(session, variant) for variant in variants)])


def _measured(session: Session, variant: str) -> str:
    found = result(session, variant)
    if found is None:
        return f"- {_name(variant)}: not measured ({_why(session, variant)})"
    some = f" ({one_line(found.reason, _REASON_LIMIT)})" if found.status == "partial" and found.reason else ""
    return f"- {_name(variant)}: {step(found)}{some}"


def published(session: Session) -> str:
    """The author's figures beside ours, an item a variant; empty where none were published or none were measured.

    A shorter run than the author's is scaled to as many steps, which the text says.
    """
    author = session.scenario.published
    both = [(each.variant, each.published) for each in session.results if each.published is not None]
    if author is None or not both:
        return ""
    scaled = any(figures.scaled_from_steps is not None for _, figures in both)
    head = f"Published ({one_line(author.source)}), for {author.steps} steps"
    here = {"cpu": "; the device was a GPU there and is the CPU here", "emulated": "; the device here is emulated"}
    device = here.get(session.environment.accelerator_kind, "")
    lines = [f"{head}{', to which our shorter run is scaled' if scaled else ''}{device}:", ""]
    for variant, figures in both:
        parts = []
        if figures.seconds is not None:
            parts.append(f"{units.seconds(figures.seconds)} there, {units.seconds(figures.our_seconds)} here")
        if figures.device_utilization_percent is not None:
            ours = units.percent(figures.our_device_utilization_percent)
            parts.append(f"device busy {units.percent(figures.device_utilization_percent)} there, {ours} here")
        lines.append(f"- {_name(variant)}: {'; '.join(parts)}")
    return "\n".join(lines)


def published_with(scenario: str) -> dict[str, Any]:
    """An author's figures as a shipped scenario has them, for a lesson that runs the same job with fewer steps."""
    figures: dict[str, Any] = read(shipped()[scenario])["published"]
    return figures


def disturbed(session: Session) -> str:
    """That something else used the machine meanwhile, in one sentence; empty where nothing was seen."""
    if not session.disturbances:
        return ""
    touched = {(each.variant, each.repeat) for each in session.disturbances}
    worst = max(session.disturbances, key=lambda each: each.cost_share or 0.0)
    return (
        f"Something else disturbed {units.count(len(touched), 'trial')} of {len(session.trials)}: in a trial of "
        f"{_name(worst.variant)} {one_line(worst.text, _REASON_LIMIT)}. Run the lesson again when the machine "
        "is quiet."
    )


def cores(session: Session) -> str:
    """How many cores there were: ``1 core``, ``2 cores``."""
    return units.count(session.environment.cores, "core")


def paragraphs(*parts: str) -> str:
    """The parts that are not empty, a blank line between."""
    return "\n\n".join(part for part in parts if part)


def _name(variant: str) -> str:
    return f"`{one_line(variant, _NAME_LIMIT)}`"


def _why(session: Session, variant: str) -> str:
    """Why a variant's figures, or its speed-up, are missing."""
    found = next((each for each in session.results if each.variant == variant), None)
    if found is None:
        noted = [note for note in session.notes if repr(variant) in note]
        return one_line(noted[0], _REASON_LIMIT).rstrip(".") if noted else "it was left out"
    reason = found.work.text if found.work.status == "unequal" else found.reason or found.speedup.reason
    return one_line(reason or "no trial of it ended well", _REASON_LIMIT).rstrip(".")
