"""What each stage of a pipeline costs by itself: fed from memory, with nothing after it.

The stages are measured from source to sink. What a stage gives is kept, a few elements of it, and feeds the next one
again and again, so that no stage waits for another. Its options are the user's own, with tf.data's default
optimizations on where the user has them on, but nothing is prefetched behind it: a stateless map that tf.data makes
parallel by itself in the whole pipeline is as parallel here, and its elapsed time is that of the stage as it runs.

What the feeding and the counting (`draining`) cost is measured on the input alone, and subtracted.

A source reads files as they lie, from the page cache where they are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.text import line_of, units
from pipeline_bench.user_pipeline import Stage, StageCost, caches, draining, ratios, taking, user_code
from pipeline_bench.user_pipeline.draining import Rate

STAGE_S = 0.7
"""About how long a stage is looked at, where the time suffices: the median of three slices settled within 5 % here."""
_LEAST_STAGE_S = 0.06
_FIRST_ELEMENT_S = 5.0
"""A stage that gives nothing for so long is told so, and what stands behind it has nothing to be fed with."""
_ONCE = frozenset({"cache", "repeat", "snapshot", "unique", "take_while", "take", "save"})
"""Methods that never end, or give nothing more, on an input without end."""
_PLACES = frozenset({"skip", "shard", "enumerate"})
"""Methods that go by the places of the elements: what they give to the next stage is of one pass over their input."""
_NO_TIME = "no time was left for it"
_CACHED = "it runs in the first pass only: a cache after it gives the elements from then on"


@dataclass(frozen=True)
class Pieces:
    """A pipeline whose stages can be made one by one.

    Attributes:
        stages: upstream first.
        sink: the id of the last one.
        on: makes a stage upon other inputs.
        upstream: the dataset of a source, or of a stage with all that comes before it.
        options: the `tf.data.Options` of the pipeline as written.
    """

    stages: tuple[Stage, ...]
    sink: int
    on: Callable[[int, Sequence[Any]], Any]
    upstream: Callable[[int], Any]
    options: Any


@dataclass
class _Found:
    """What a stage by itself showed, for one of its own elements."""

    rate: Rate | None = None
    inputs: float | None = None
    element_bytes: float | None = None
    first_ns: float | None = None
    reason: str | None = None


class Isolation:
    """Measures the stages of a pipeline one after another."""

    def __init__(self, pieces: Pieces, limit_s: float, alive: Callable[[], None] = lambda: None) -> None:
        """Prepare; nothing is run yet.

        Args:
            pieces: the pipeline.
            limit_s: the most time for all stages.
            alive: called between stages, as a sign of life.
        """
        self._pieces = pieces
        self._end_s = time.monotonic() + limit_s
        self._alive = alive
        self._found: dict[int, _Found] = {}
        self._held: dict[int, tuple[taking.Held, Rate]] = {}
        self._making_s = 0.0
        one_for_one = {stage.id: 1.0 for stage in pieces.stages}
        elements = ratios.per_sink_element(pieces.stages, pieces.sink, one_for_one)
        self._idle = {number for number, count in elements.items() if count == 0}
        """The stages before a cache: they only feed the next one, and are not measured."""

    def run(self) -> Iterator[tuple[StageCost, ...]]:
        """Measure; gives what is known after every stage, all stages in every tuple."""
        stages = self._pieces.stages
        for index, stage in enumerate(stages):
            self._alive()
            start_s = time.monotonic()
            left_s = self._end_s - start_s
            # Making a stage and its feed takes time too: as much as it took for the stages before.
            share_s = max(_LEAST_STAGE_S, min(STAGE_S, left_s / (len(stages) - index) - self._making_s))
            if left_s < _LEAST_STAGE_S:
                self._found[stage.id] = _Found(reason=_NO_TIME, inputs=ratios.told(stage))
            else:
                self._found[stage.id] = self._look_at(stage, share_s, left_s)
                took_s = max(0.0, time.monotonic() - start_s - share_s)
                self._making_s += (took_s - self._making_s) / (index + 1)
            self._forget(stages[index + 1 :])
            yield self.costs()

    def costs(self) -> tuple[StageCost, ...]:
        """The costs for one element of the sink, as far as they are known."""
        per_output = {
            stage.id: found.inputs if (found := self._found.get(stage.id)) else ratios.told(stage)
            for stage in self._pieces.stages
        }
        elements = ratios.per_sink_element(self._pieces.stages, self._pieces.sink, per_output)
        return tuple(self._cost(stage, elements.get(stage.id)) for stage in self._pieces.stages)

    def _cost(self, stage: Stage, elements: float | None) -> StageCost:
        found = self._found.get(stage.id, _Found(reason="the trial ended before it was measured"))
        known = StageCost(
            stage=stage.id,
            elements=elements,
            element_bytes=found.element_bytes,
            first_ns=found.first_ns,
            reason=found.reason,
        )
        if elements is None:
            reason = found.reason or "a stage after it did not tell how many elements it takes for one"
            return known.model_copy(update={"reason": reason})
        if elements == 0:
            return known.model_copy(update={"elapsed_ns": 0.0, "cpu_ns": 0.0, "reason": found.reason or _CACHED})
        if found.rate is None:
            return known
        costs = {name: value * elements for name, value in found.rate._asdict().items()}
        return known.model_copy(update=costs)

    def _forget(self, coming: Sequence[Stage]) -> None:
        needed = {number for stage in coming for number in stage.inputs}
        self._held = {number: held for number, held in self._held.items() if number in needed}

    def _look_at(self, stage: Stage, share_s: float, left_s: float) -> _Found:
        missing = [number for number in stage.inputs if number not in self._held]
        if missing:
            return _Found(reason="what comes before it gave no element to feed it with", inputs=ratios.told(stage))
        found = _Found(inputs=ratios.told(stage))
        try:
            with user_code.element_errors():
                if found.inputs is None:
                    found.inputs = self._count_inputs(stage, share_s / 3)
                self._measure(stage, found, share_s, left_s)
        except taking.OutOfTimeError:
            found.reason = f"it gave no element within {units.seconds(min(left_s / 2, _FIRST_ELEMENT_S))}"
        except StopIteration:
            found.reason = "it gave no element"
        except PipelineBenchError as error:
            found.reason = error.message
        except Exception as error:  # the user's function, called anew on the same kind of input
            found.reason = f"it could not be made by itself: {line_of(error)}"
        return found

    def _alone(self, stage: Stage, endless: bool) -> Any:
        if not stage.inputs:
            return self._as_in_pipeline(self._pieces.upstream(stage.id).repeat() if endless else None)
        feeds = [self._held[number][0].dataset() for number in stage.inputs]
        if endless and stage.method not in _ONCE:
            feeds = [feed.repeat() for feed in feeds]
        dataset = self._pieces.on(stage.id, feeds)
        if stage.method == "cache" and endless:  # one that is not full keeps its file locked against a second iterator
            caches.fill((dataset,), _FIRST_ELEMENT_S)
        return self._as_in_pipeline(dataset.repeat() if endless else dataset)

    def _as_in_pipeline(self, dataset: Any) -> Any:
        import tensorflow as tf

        own = tf.data.Options()
        own.experimental_optimization.inject_prefetch = False
        return dataset.with_options(self._pieces.options).with_options(own)

    def _measure(self, stage: Stage, found: _Found, share_s: float, left_s: float) -> None:
        dataset = self._alone(stage, endless=True)
        # A header that is skipped once must not come back with every pass over what feeds the next stage.
        taker = taking.Taker(self._alone(stage, endless=False) if stage.method in _PLACES else dataset)
        with taking.within(min(left_s / 2, _FIRST_ELEMENT_S)) as deadline:
            start_ns = time.perf_counter_ns()
            first = taker.take(deadline)
            found.first_ns = time.perf_counter_ns() - start_ns
            collect_s = _LEAST_STAGE_S if stage.id in self._idle else share_s / 3
            held, per_ns, found.element_bytes = draining.collect(taker, deadline, first, collect_s)
            drain_s = share_s / 2
            if stage.id in self._idle:
                gross = Rate(0.0, 0.0)
            elif per_ns is None or per_ns >= draining.WINDOW_FROM_NS:
                if stage.method in _PLACES:
                    taker = taking.Taker(dataset)
                gross = draining.drain_one_by_one(taker, deadline, drain_s)
            else:
                gross = draining.drain(dataset, deadline, per_ns, found.element_bytes, drain_s)
        found.rate = self._net(stage, gross, found.inputs)
        if any(stage.id in later.inputs for later in self._pieces.stages):
            elements = taking.Held(dataset.element_spec, held)
            feeding = Rate(0.0, 0.0) if stage.id in self._idle and not self._feeds_a_cache(stage) else None
            self._held[stage.id] = (elements, feeding or self._feeding(elements))

    def _feeds_a_cache(self, stage: Stage) -> bool:
        return any(later.method == "cache" and stage.id in later.inputs for later in self._pieces.stages)

    def _feeding(self, held: taking.Held) -> Rate:
        """What taking from memory costs by itself."""
        dataset = self._as_in_pipeline(held.dataset().repeat())
        with taking.within(_FIRST_ELEMENT_S) as deadline:
            return draining.drain(dataset, deadline, 1000.0, 0.0, _LEAST_STAGE_S / 2)

    def _net(self, stage: Stage, gross: Rate, inputs: float | None) -> Rate:
        """The cost without what the feeding cost."""
        fed = [self._held[number][1] for number in stage.inputs]
        # Feeds from memory cost about the same: which one is chosen how often hardly matters, where it is not known.
        shares = ratios.shares(stage) or (1 / max(1, len(fed)),) * len(fed)
        taken = [(inputs or 0.0) * share for share in shares]
        elapsed_ns = gross.elapsed_ns - sum(n * rate.elapsed_ns for n, rate in zip(taken, fed, strict=True))
        cpu_ns = gross.cpu_ns - sum(n * rate.cpu_ns for n, rate in zip(taken, fed, strict=True))
        return Rate(max(0.0, elapsed_ns), max(0.0, cpu_ns), gross.queued_ns)

    def _count_inputs(self, stage: Stage, seconds: float) -> float | None:
        """How many elements it takes for one that it gives; a lower bound of what it gives where that is very much."""
        count = min(self._held[number][0].count for number in stage.inputs)
        taker = taking.Taker(self._alone(stage, endless=False))
        given = 0
        end_s = time.monotonic() + seconds
        try:
            with taking.within(max(seconds, min(_FIRST_ELEMENT_S, (self._end_s - time.monotonic()) / 3))) as deadline:
                while not given or time.monotonic() < end_s:
                    taker.take(deadline)
                    given += 1
        except StopIteration:
            if not given:
                raise PipelineBenchError(f"it let none of the {count} elements through that it was fed with") from None
            return count / given
        return min(count, ratios.opened_at_once(stage)) / given
