"""What each stage costs by itself, fed from memory with nothing after it, and how many elements the sink takes of it.

The stages are measured from source to sink. What a stage gives is kept, a few elements of it, and feeds the next one
again and again, so that no stage waits for another. Its options are the user's own, with tf.data's default
optimizations on where the user has them on, but nothing is prefetched behind it: a stateless map that tf.data makes
parallel by itself in the whole pipeline is as parallel here, and its elapsed time is that of the stage as it runs.

What the feeding and the counting (`throughput`) cost is measured on the input alone, and subtracted.
A source reads files as they lie, from the page cache where they are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.inspection import counting
from pipeline_bench.model.calls import KEEPING, OPENING, POOLED
from pipeline_bench.model.element_flow import applied, inputs_per_output, per_sink_element, shares
from pipeline_bench.model.pipeline import Stage, StageCost
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.text import line_of, units
from pipeline_bench.tfdata import throughput
from pipeline_bench.tfdata.public_api import ASSERT_CARDINALITY
from pipeline_bench.tfdata.throughput import Deadline, FlatIterator, KeptElements, Rate

STAGE_S = 0.7
"""About how long a stage is measured, where the time suffices: the median of three slices settled within 5 % here."""
_LEAST_STAGE_S = 0.06
_CACHED_WEIGHT = 0.25
_FIRST_ELEMENT_S = 5.0
"""A stage that gives nothing for so long is given up, and what stands behind it has nothing to be fed with."""
_LATE_FIRST, _LATE_MOST_S = 2.0, 30.0
"""A stage is waited for so many times the pipeline's own first element, which a generator may fill a buffer for; at
most for as long as a trial's first step is not counted."""
_LATE_SHARE = 0.25
"""A first element that takes so much of the time that a stage has for it must not come a second time."""
_ONCE = frozenset({"cache", "repeat", "snapshot", "unique", "take_while", "take", "save"})
"""Methods that never end, or give nothing more, on an input without end."""
_POSITIONAL = frozenset({"skip", "shard", "enumerate"})
"""Methods that go by the positions of the elements: what they give to the next stage is of one pass."""
_NO_TIME = "no time was left for it"
_ENDED = "the trial ended before it was measured"
_NOT_FED = "the stages before it gave no element to feed it with"
_CACHED = "it runs in the first pass only: a cache after it gives the elements from then on"


@dataclass
class _StageRate:
    """What a stage by itself showed, for one of its own elements."""

    inputs: float | None
    """How many elements of each input it takes."""
    reason: str | None = None
    rate: Rate | None = None
    element_bytes: float | None = None
    first_ns: float | None = None
    calls: float = 1.0
    """How many of its calls could run at the same time."""
    late: bool = True
    """Whether it is for want of time that it has no rate."""


class StageBenchmark:
    """Measures the stages of a pipeline one after another."""

    def __init__(
        self,
        stages: Sequence[Stage],
        sink: int,
        make: Callable[[int, Sequence[Any]], Any],
        options: Any,
        limit_s: float,
        alive: Callable[[], None] = lambda: None,
        first_s: float = 0.0,
        in_a_pass: Mapping[int, int] | None = None,
    ) -> None:
        """Prepare; nothing is run yet.

        Args:
            stages: upstream first.
            sink: the id of the last one.
            make: makes the dataset of a stage upon others as its inputs.
            options: the `tf.data.Options` of the pipeline as written.
            limit_s: the most time for all stages, beside the one whose first element is as late as the pipeline's.
            alive: called between stages, as a sign of life.
            first_s: how long the pipeline's first element took; one stage may need as much of it again.
            in_a_pass: how many elements each stage gives in a pass, of those for which it is known and has an end.
        """
        failing: set[int] = set()  # in front of an `ignore_errors`
        for stage in reversed(stages):
            failing.update(stage.inputs if stage.method == "ignore_errors" or stage.id in failing else ())

        def made(number: int, inputs: Sequence[Any]) -> Any:
            dataset = make(number, inputs)
            return dataset.ignore_errors() if number in failing else dataset

        self._stages, self._sink, self._make, self._options = stages, sink, made, options
        late_s = min(_LATE_FIRST * first_s, _LATE_MOST_S)
        self._end_s = time.monotonic() + limit_s + late_s
        self._first_s = max(_FIRST_ELEMENT_S, limit_s / 3, late_s)
        self._results = {stage.id: _StageRate(inputs_per_output(stage), _ENDED) for stage in stages}
        self._kept: dict[int, tuple[KeptElements, Rate]] = {}
        self._in_a_pass = in_a_pass or {}
        self._alive, self._making_s = alive, 0.0

    def run(self) -> Iterator[tuple[StageCost, ...]]:
        """Measure; after every stage gives the costs of all stages as far as they are known."""
        weights = self._weights()
        for index, stage in enumerate(self._stages):
            self._alive()
            start_s = time.monotonic()
            left_s = self._end_s - start_s
            # Making a stage and its feed takes time too: as much as it took for the stages before.
            all_s = left_s - (len(self._stages) - index) * self._making_s
            share_s = max(_LEAST_STAGE_S, weights[index] * min(STAGE_S, all_s / sum(weights[index:])))
            if left_s < _LEAST_STAGE_S:
                self._results[stage.id].reason = _NO_TIME
            else:
                self._try(stage, share_s, left_s)
                took_s = max(0.0, time.monotonic() - start_s - share_s)
                self._making_s += (took_s - self._making_s) / (index + 1)
            needed = {number for later in self._stages[index + 1 :] for number in later.inputs}
            self._kept = {number: kept for number, kept in self._kept.items() if number in needed}
            yield self.costs()

    def _weights(self) -> list[float]:
        """Return the part of `STAGE_S` that each stage gets: less before a cache, run in the first epoch alone."""
        elements = per_sink_element(self._stages, self._sink, dict.fromkeys(self._results, 1.0))
        return [_CACHED_WEIGHT if elements.get(stage.id) == 0 else 1.0 for stage in self._stages]

    def costs(self) -> tuple[StageCost, ...]:
        """Return the costs for one element of the sink, as far as they are known."""
        taken = {number: result.inputs for number, result in self._results.items()}
        usual = per_sink_element(self._stages, self._sink, taken)
        first = per_sink_element(self._stages, self._sink, taken, first_epoch=True)
        return tuple(
            _cost(stage, self._results[stage.id], usual.get(stage.id), first.get(stage.id)) for stage in self._stages
        )

    def _try(self, stage: Stage, share_s: float, left_s: float) -> None:
        result = self._results[stage.id]
        result.reason = None
        missing = [number for number in stage.inputs if number not in self._kept]
        if missing:
            result.reason, result.late = _NOT_FED, any(self._results[number].late for number in missing)
            return
        if stage.label == ASSERT_CARDINALITY:  # it would fail, for it counts what it is fed with again and again
            (number,) = stage.inputs
            self._kept[stage.id] = self._kept[number]
            result.rate, result.element_bytes = Rate(0.0, 0.0), self._results[number].element_bytes
            return
        first_s = min(left_s / 2, self._first_s)
        try:
            with user_code.element_errors():
                if result.inputs is None:
                    result.inputs = self._count_inputs(stage, share_s / 3)
                self._measure(stage, result, share_s, first_s)
        except throughput.OutOfTimeError as error:
            result.reason = f"it gave no element within {units.seconds(error.seconds)}"
        except StopIteration:
            result.reason, result.late = "it gave no element", False
        except PipelineBenchError as error:
            result.reason, result.late = error.message, False
            self._keep_as_written(stage)
        except Exception as error:  # the user's function, called anew on the same kind of input
            result.late = False
            result.reason = f"it could not be built alone: {line_of(error)}"
            self._keep_as_written(stage)

    def _alone(self, stage: Stage, endless: bool) -> Any:
        feeds = [self._kept[number][0].dataset() for number in stage.inputs]
        if endless and stage.method not in _ONCE and not self._opens_all(stage):
            feeds = [feed.repeat() for feed in feeds]
        dataset = self._make(stage.id, feeds)
        if stage.method in KEEPING and endless:  # one that is not full keeps its file locked against a second iterator
            throughput.fill((dataset,), _FIRST_ELEMENT_S)
        return self._as_in_pipeline(dataset.repeat() if endless else dataset)

    def _opens_all(self, stage: Stage) -> bool:
        """Return whether a stage opens a dataset for each of a few elements, all of which are kept.

        Where there is one file, an interleave reads one. Fed with it again and again, it would read as many copies as
        it takes in turn, and would begin with opening twice as many.
        """
        counts = [(self._kept[number][0].count, self._in_a_pass.get(number)) for number in stage.inputs]
        return applied(stage) in OPENING and all(kept == in_a_pass for kept, in_a_pass in counts)

    def _as_in_pipeline(self, dataset: Any) -> Any:
        import tensorflow as tf

        own = tf.data.Options()
        own.experimental_optimization.inject_prefetch = False
        return dataset.with_options(self._options).with_options(own)

    def _measure(self, stage: Stage, result: _StageRate, share_s: float, limit_s: float) -> None:
        dataset = self._alone(stage, endless=True)
        positional = stage.method in _POSITIONAL
        # A header that is skipped once must not come back with every pass over what feeds the next stage.
        iterator = FlatIterator(self._alone(stage, endless=False) if positional else dataset)
        with Deadline(limit_s) as deadline:
            start_ns = time.perf_counter_ns()
            try:
                first = iterator.take(deadline)
            except StopIteration:
                if not positional:
                    raise
                iterator = FlatIterator(dataset)  # it leaves out more elements than were kept
                first = iterator.take(deadline)
            result.first_ns = time.perf_counter_ns() - start_ns
            kept = throughput.sample(iterator, deadline, first, share_s / 3)
            result.element_bytes = kept.element_bytes
            begins_late = result.first_ns > _LATE_SHARE * limit_s * 1e9  # and so would another iterator
            if kept.each_ns is None or kept.each_ns >= throughput.SLOW_NS or begins_late:
                iterator = FlatIterator(dataset) if positional else iterator
                gross = throughput.rate(lambda: iterator.take(deadline), share_s / 2)
            else:
                gross = _by_windows(dataset, deadline, kept.each_ns, kept.element_bytes, share_s / 2)
        result.rate = self._net(stage, gross, result.inputs or 0.0)
        result.calls = self._calls_at_once(stage, iterator)
        self._keep(stage, dataset.element_spec, kept.elements)

    def _calls_at_once(self, stage: Stage, iterator: FlatIterator) -> float:
        """Return how many calls of a stage could run at the same time; Python's lock lets one call run Python."""
        import tensorflow as tf

        if stage.runs_python_within:
            return 1.0
        # Readers, and what runs without AUTOTUNE, are not in TensorFlow's model.
        asked = [stage.arguments.get(name) for name in ("num_parallel_calls", "num_parallel_reads")]
        found = max([throughput.calls_at_once(iterator), *(each for each in asked if isinstance(each, int))])
        if stage.method in OPENING:  # one for each input, as many as there are
            return min([found, *(self._in_a_pass[number] for number in stage.inputs if number in self._in_a_pass)])
        if stage.method not in POOLED or stage.arguments.get("use_unbounded_threadpool") is True:
            return found
        own, shared = self._options.threading.private_threadpool_size, tf.config.threading
        return min(found, own or shared.get_inter_op_parallelism_threads() or allowed_cpus())

    def _keep(self, stage: Stage, spec: Any, taken: Sequence[list[Any]]) -> None:
        """Keep the elements of a stage if a later one is fed with them."""
        if any(stage.id in later.inputs for later in self._stages):
            elements = KeptElements(spec, taken[: self._in_a_pass.get(stage.id)])
            self._kept[stage.id] = (elements, self._feeding(elements))

    def _keep_as_written(self, stage: Stage) -> None:
        """Keep elements that the pipeline itself gives up to a stage that failed alone; none if it fails there too."""
        made: dict[int, Any] = {}
        with suppress(Exception), Deadline(min(self._first_s, self._end_s - time.monotonic())) as deadline:
            for each in self._stages:  # upstream first
                if each.id <= stage.id:
                    made[each.id] = self._make(each.id, [made[number] for number in each.inputs])
            iterator = FlatIterator(made[stage.id])
            kept = throughput.sample(iterator, deadline, iterator.take(deadline), STAGE_S / 3)
            self._keep(stage, made[stage.id].element_spec, kept.elements)

    def _feeding(self, elements: KeptElements) -> Rate:
        """Return what taking from memory costs by itself."""
        dataset = self._as_in_pipeline(elements.dataset().repeat())
        with Deadline(_FIRST_ELEMENT_S) as deadline:
            return _by_windows(dataset, deadline, 1000.0, 0.0, _LEAST_STAGE_S / 2)

    def _net(self, stage: Stage, gross: Rate, inputs: float) -> Rate:
        """Return the cost without what the feeding cost."""
        elapsed_ns, cpu_ns, queued_ns = gross
        # Feeds from memory cost about the same: which one is chosen how often hardly matters, where it is not known.
        each = shares(stage) or (1 / max(1, len(stage.inputs)),) * len(stage.inputs)
        for number, share in zip(stage.inputs, each, strict=True):
            feeding = self._kept[number][1]
            elapsed_ns -= inputs * share * feeding.elapsed_ns
            cpu_ns -= inputs * share * feeding.cpu_ns
        return Rate(max(0.0, elapsed_ns), max(0.0, cpu_ns), queued_ns)

    def _count_inputs(self, stage: Stage, seconds: float) -> float:
        return counting.inputs_per_output(
            lambda feeds: self._as_in_pipeline(self._make(stage.id, feeds)),
            [self._kept[number][0] for number in stage.inputs],
            seconds,
            max(seconds, min(_FIRST_ELEMENT_S, (self._end_s - time.monotonic()) / 3)),
            repeats=stage.method not in _ONCE,
        )


def _by_windows(dataset: Any, deadline: Deadline, each_ns: float, element_bytes: float, seconds: float) -> Rate:
    """Return the rate by windows (`throughput.windowed_rate`); of single elements where a window does not come in time.

    Beside much other work each element may wait for a core, and a window of a thousand elements a thousand times.
    """
    try:
        return throughput.windowed_rate(dataset, deadline, each_ns, element_bytes, seconds)
    except throughput.OutOfTimeError:
        iterator = FlatIterator(dataset)
        with Deadline(_FIRST_ELEMENT_S) as anew:
            iterator.take(anew)  # which a shuffle fills its buffer for
            return throughput.rate(lambda: iterator.take(anew), seconds)


def _cost(stage: Stage, result: _StageRate, usual: float | None, first_epoch: float | None) -> StageCost:
    """Return what a stage costs for so many of its elements, usually and while a cache behind it is filled."""
    costs: dict[str, float] = {}
    reason = result.reason
    if usual is None:
        reason = reason or "it is not known how many elements the stage after it takes for one"
    elif usual == 0:
        costs, reason = {"elapsed_ns": 0.0, "cpu_ns": 0.0}, reason or _CACHED
        if result.rate is not None and first_epoch is not None:
            costs["first_epoch_ns"] = result.rate.elapsed_ns * first_epoch
            costs["first_epoch_cpu_ns"] = result.rate.cpu_ns * first_epoch
    elif result.rate is not None:
        costs = {name: value * usual for name, value in result.rate._asdict().items() if value is not None}
    return StageCost(
        stage=stage.id,
        elements=usual,
        element_bytes=result.element_bytes,
        first_ns=result.first_ns,
        calls=result.calls,
        reason=reason,
        late=result.rate is None and result.late,
        **costs,
    )
