"""How much an input can give, from the rates of one, two, … hosts or workers, and what an accelerator does with it.

With n hosts each of which can give `own` samples a second, and a storage that gives `total` to all of them, a step
takes the longer of what the host takes by itself and of its turn at the storage: the bounds of a closed queueing
network, which are met where nothing waits by chance. By itself a host takes max(s + h, i) where the next batch of i ms
is made during the step of s ms, and s + h + i where it is not; h ms are the host's own part of a step. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Literal

from pipeline_bench.analysis import stats, thresholds
from pipeline_bench.model.hosts import Limit, Range, Unit

Trend = Literal["flat", "rising", "falling"]
_ONE_FIGURE = 0.98
"""Two utilizations are one figure from this ratio on."""


@dataclass(frozen=True)
class Point:
    """What so many hosts, or workers, gave.

    Attributes:
        count: of them.
        rates: samples a second of all together, by round.
        wait: the share of their step that they waited for it; the low end of its interval.
        more_wait: by how much that share is above the one of a host alone; 1 of workers.
        doubt: what else than something shared may have held them up, if they were held up; None: nothing.
        alone: samples a second of one of them alone, by round; None: of the fewest that were measured.
    """

    count: int
    rates: Mapping[int, float]
    wait: float
    more_wait: float = 1.0
    doubt: str | None = None
    alone: Mapping[int, float] | None = None

    @property
    def starved(self) -> bool:
        """Whether the accelerator took all that there was; else the input could have given more."""
        return self.wait >= thresholds.BOUND_SHARE

    @property
    def rate(self) -> float:
        """The typical rate of all together."""
        return geometric_mean(self.rates.values())


@dataclass(frozen=True)
class HostStep:
    """What a host does in a step beside its input, in ms.

    Attributes:
        step_ms: of the accelerator that computes.
        host_ms: the host's own part: feeding, launching.
        works_ahead: whether the next batch is made meanwhile.
    """

    step_ms: float
    host_ms: Range
    works_ahead: bool

    def takes_ms(self, input_ms: float, host_ms: float) -> float:
        """Return how long a step takes whose input takes so long by itself."""
        busy_ms = self.step_ms + host_ms
        return max(busy_ms, input_ms) if self.works_ahead else busy_ms + input_ms

    @property
    def affords_ms(self) -> float:
        """How long its input may take for a utilization of 0.90, of a host that does nothing else."""
        longest_ms = self.step_ms / thresholds.COMPUTE_BOUND_AU
        return longest_ms if self.works_ahead else longest_ms - self.step_ms


@dataclass(frozen=True)
class Supply:
    """What inputs can give.

    Attributes:
        unit: whether each accelerator has a host's input, or all of them the workers'.
        own: samples a second of one.
        total: samples a second of all.
        trend: of `total` over the numbers at which it was reached.
        shared: whether there is anything that all of them share.
        beside: samples a second of one host by how many hosts ran, of those numbers at which the storage was not
            saturated. Chance has some of them ask it at once, and each then waits before it is saturated.
        doubt: what else may have held up those that reached less, where no end of `total` was seen.
    """

    unit: Unit
    own: Range
    total: Range
    trend: Trend | None
    shared: bool = True
    beside: Mapping[int, float] = field(default_factory=dict)
    doubt: str | None = None

    def own_at_least(self, count: int) -> float:
        """Return the samples a second that each of so many gives by itself at least."""
        most = min((number for number in self.beside if number >= count), default=math.inf)
        return min([self.own.low, *(rate for number, rate in self.beside.items() if number <= most)])

    def longest_ms(self, count: int, samples: float, own: float, total: float) -> tuple[float, float]:
        """Return how long the samples of a host's step take from its own input, and from what all share, in ms."""
        if self.unit == "host":
            return 1000 * samples / own, 1000 * count * samples / total if self.shared else 0.0
        return 1000 * samples / (count * own), 1000 * samples / total


def fit(
    points: Sequence[Point], unit: Unit, samples: int, busy_ms: float | None, *, reads_storage: bool = True
) -> Supply:
    """Return what one can give, and all of them, from what was measured; a lower limit where it was never saturated.

    Args:
        points: by count, at least one; those that are starved and reach less than the fewest have reached the total,
            unless something else may have held them up.
        unit: of what they are.
        samples: of a step.
        busy_ms: how long a step takes beside its input, where that is not made meanwhile; None where it is.
        reads_storage: whether hosts may share what the input reads; what they were seen to share, they do.
    """
    first = points[0]
    held_up = [point for point in points[1:] if _is_held_up(point, first)]
    slower = [point for point in held_up if point.doubt is None]
    free = [point for point in points if point not in slower]
    # What more of them exceed without an end was not the end: those few were disturbed, or are slow themselves.
    ended = [point for point in slower if not any(_exceeds(more, point) for more in free)]
    free = [point for point in points if point not in ended]
    flat, trend = _flat(ended, max(point.rate for point in free))

    def own_rate(total: float, count: int) -> float:
        """Return the rate of one if a step took nothing but its input; 0 where the input took no measurable time."""
        hosts, inputs = (count, 1) if unit == "host" else (1, count)
        input_ms = 1000 * samples * hosts / total - (busy_ms or 0.0)
        return 1000 * samples / input_ms / inputs if input_ms > 0 else 0.0

    # An input that is not made ahead takes its time in every step. One without a wait alone is not at its end beside
    # others either: what these do to it is not its own.
    own_pace = [point for point in free if point not in held_up or point.doubt is None]
    telling = own_pace if busy_ms is not None else [point for point in own_pace if point.starved and first.starved]
    rates = [[own_rate(rate, point.count) for rate in point.rates.values()] for point in telling]
    most = Range(low=max(point.rate / point.count for point in points))
    own = _pooled(rates) if rates and all(map(all, rates)) else most
    slowed = free if unit == "host" else []
    beside = {point.count: rate for point in slowed if (rate := own_rate(point.rate, point.count))}
    seen = Range(low=max(point.rate for point in points))
    total = _pooled([list(point.rates.values()) for point in flat]) if flat else seen
    shared = reads_storage or unit != "host" or bool(ended)
    doubt = None if flat else next((point.doubt for point in reversed(held_up)), None)
    return Supply(unit, own, total, trend, shared, beside, doubt)


def _is_held_up(point: Point, first: Point) -> bool:
    """Return whether so many together wait, and each reaches clearly less than alone, or than the fewest do."""
    alone = point.alone or {each: rate / first.count for each, rate in first.rates.items()}
    shared = [each for each in point.rates if each in alone]
    # Who waited alone already cannot wait for a much larger share of a longer step.
    is_wait = point.starved and (first.starved or point.more_wait >= thresholds.BOUND_SHARE)
    if not shared or not is_wait:
        return False
    ratios = [(point.rates[each] / point.count) / alone[each] for each in shared]
    return _end(_believed(ratios)) < thresholds.HOSTS_SCALE


def _exceeds(more: Point, point: Point) -> bool:
    return more.count > point.count and more.rate > thresholds.TIE * point.rate


def _flat(ended: Sequence[Point], free_rate: float) -> tuple[Sequence[Point], Trend | None]:
    """Return the points that speak of the total: all of them where it stayed the same, else the last.

    Args:
        ended: those that have reached it.
        free_rate: the most that fewer got, which have not.
    """
    if not ended:
        return ended, None
    if free_rate > thresholds.TIE * ended[-1].rate:
        return ended[-1:], "falling"
    if len(ended) == 1:
        return ended, None
    change = ended[-1].rate / ended[0].rate
    if abs(math.log(change)) <= math.log(thresholds.TIE):
        return ended, "flat"
    return ended[-1:], "rising" if change > 1 else "falling"


def _pooled(rates: Sequence[Sequence[float]]) -> Range:
    """Return what is believed of a rate, by count and round: counts differ by more than the rounds of one show."""
    return _believed([geometric_mean(each) for each in rates] if len(rates) > 1 else rates[0])


def _believed(rates: Sequence[float]) -> Range:
    """Return the typical value of positive ones with the interval that scatter between rounds leaves."""
    value, (low, high) = stats.believe_ratio(rates, thresholds.RATIO_SCATTER)
    return Range(value=value, low=low, high=high)


# --- what an accelerator does with it --------------------------------------------------------------------------------


def utilization(supply: Supply, step: HostStep, count: int, samples: float) -> Range:
    """Return the accelerator utilization to expect of so many.

    Its ends are those of the rates and of the host's part, all at their worst and at their best; the low one has hosts
    wait for their turn by chance, where a step does not hide that. Its value takes a total that was never reached to go
    on; it has none where one's own rate is only known to be at least so much, and that decides.

    Args:
        supply: of the inputs.
        step: of the accelerator.
        count: hosts, or workers.
        samples: that the accelerators of a host take in a step, all of them together.
    """

    def of(own: float, total: float, host_ms: float) -> float:
        by_host_ms, by_all_ms = supply.longest_ms(count, samples, own, total)
        return step.step_ms / max(step.takes_ms(by_host_ms, host_ms), by_all_ms)

    host = step.host_ms
    low = of(supply.own_at_least(count), supply.total.low, host.high or 0.0)
    if supply.unit == "host" and supply.shared and supply.total.is_known and not step.works_ahead:
        input_ms, turns_ms = supply.longest_ms(count, samples, supply.own.low, supply.total.low)
        alone_ms = step.takes_ms(input_ms, host.high or 0.0)
        low = min(low, step.step_ms / _queued_ms(count, alone_ms, turns_ms / count))
    high = of(_end(supply.own), _end(supply.total), host.low)
    typical_ms = host.value or 0.0
    value: float | None = of(supply.own.value or supply.own.low, supply.total.value or math.inf, typical_ms)
    if supply.own.value is None:
        most = of(math.inf, supply.total.value or math.inf, typical_ms)
        value = value if value is not None and value >= _ONE_FIGURE * most else None
    return Range(value=value, low=low, high=high)


def _queued_ms(count: int, alone_ms: float, turn_ms: float) -> float:
    """Return how long a step takes of so many hosts that come to a queue at random, each with turns of random length.

    That is longer than with even turns. Mean value analysis (Reiser and Lavenberg, "Mean-value analysis of closed
    multichain queuing networks", JACM 27, 1980) of one queue and a delay, in the form of Schweitzer (1979): who comes
    finds (n - 1) / n of the mean queue of n. With the turn's time r in the queue, r = t (1 + (n - 1) r / (z + r)).

    Args:
        count: of hosts.
        alone_ms: a step of one that never waits; its turn is part of it.
        turn_ms: of one.
    """
    delay_ms = max(0.0, alone_ms - turn_ms)
    excess_ms = count * turn_ms - delay_ms
    return delay_ms + (excess_ms + math.sqrt(excess_ms**2 + 4 * turn_ms * delay_ms)) / 2


def limit(supply: Supply, step: HostStep, count: int, samples: float) -> Limit:
    """Return what keeps the accelerator from more than it reaches."""
    found = utilization(supply, step, count, samples)
    own, total = supply.own.value or supply.own.low, supply.total.value or math.inf
    by_host_ms, by_all_ms = supply.longest_ms(count, samples, own, total)
    host_ms = step.host_ms.value or 0.0
    if found.value is None:
        return "not-known"
    if found.value >= thresholds.COMPUTE_BOUND_AU:
        return "accelerator"
    if by_all_ms > step.takes_ms(by_host_ms, host_ms):
        return "storage"
    return "input" if step.takes_ms(by_host_ms, host_ms) - step.step_ms - host_ms > host_ms else "host"


def rate(supply: Supply, step: HostStep, count: int, samples: float) -> Range:
    """Return the samples a second that the accelerators of all take together at their `utilization`."""
    scale = 1000 * samples / step.step_ms * (count if supply.unit == "host" else 1)
    found = utilization(supply, step, count, samples)
    value = None if found.value is None else scale * found.value
    return Range(value=value, low=scale * found.low, high=scale * _end(found))


def feeds(given: Range, step: HostStep, samples: float) -> Range:
    """Return how many accelerators a rate feeds, each of so many samples a step: as many as reach 0.90 by it."""

    def of(samples_per_second: float) -> float:
        return samples_per_second * step.affords_ms / 1000 / samples

    high = None if given.high is None else of(given.high)
    return Range(value=None if given.value is None else of(given.value), low=of(given.low), high=high)


def total_from(supply: Supply, step: HostStep, samples: float) -> Range | None:
    """Return the smallest count at which the total is the limit; None where it never is."""
    total = supply.total
    if total.value is None:
        return None

    def first(total_rate: float, own: float, host_ms: float) -> int:
        """Return the fewest for which waiting for one's turn at the total takes longer than one's own step."""
        if supply.unit != "host":
            return max(1, math.ceil(total_rate / own + 1e-9))
        alone_ms = step.takes_ms(1000 * samples / own, host_ms)
        return math.floor(total_rate * alone_ms / 1000 / samples) + 1

    host = step.host_ms
    typical_ms = host.value or 0.0
    earliest, latest = (first(total.value, end, typical_ms) for end in (_end(supply.own), supply.own.low))
    value = first(total.value, supply.own.value, typical_ms) if supply.own.value else earliest
    return Range(
        value=value if supply.own.value or earliest == latest else None,
        low=first(total.low, _end(supply.own), host.low),
        high=first(_end(total), supply.own.low, host.high or 0.0),
    )


def _end(rate: Range) -> float:
    return math.inf if rate.high is None else rate.high


def works_ahead(waits_and_busy: Sequence[tuple[float, float]]) -> bool | None:
    """Return whether a longer step hides more of the input, seen of one input beside models of several lengths.

    What is made during the step makes the wait shorter by what the step is longer; what is not leaves it as it is.

    Args:
        waits_and_busy: by model the wait and the rest of the step in ms, of inputs that are waited for.

    Returns:
        None where the models are alike, or fewer than two.
    """
    if not waits_and_busy:
        return None
    by_busy = sorted(waits_and_busy, key=lambda each: each[1])
    (short_wait, short_busy), (long_wait, long_busy) = by_busy[0], by_busy[-1]
    if long_busy <= thresholds.TIE * short_busy:
        return None
    hidden = (short_wait - long_wait) / (long_busy - short_busy)
    return hidden >= 0.5  # noqa: PLR2004 - the middle between hiding all of it and nothing
