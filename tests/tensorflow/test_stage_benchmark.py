"""The costs of stages by themselves, against stages whose costs are known."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf  # noqa: TID253

from pipeline_bench.inspection import counting, stage_benchmark
from pipeline_bench.inspection.stage_benchmark import StageBenchmark
from pipeline_bench.model.pipeline import Stage, StageCost
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.system.processes import allowed_cpus
from pipeline_bench.tfdata import throughput

Call = Callable[..., Any]


class Chain:
    """A pipeline of calls, as a recording would know it."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.calls: list[Call] = []

    def add(self, method: str, call: Call, *inputs: int, **arguments: int) -> Chain:
        number = len(self.stages)
        before = inputs or ((number - 1,) if number else ())
        self.stages.append(Stage(id=number, method=method, inputs=before, arguments=dict(arguments)))
        self.calls.append(call)
        return self

    def source(self, method: str, call: Call) -> Chain:
        self.stages.append(Stage(id=len(self.stages), method=method))
        self.calls.append(call)
        return self

    def measured(self, limit_s: float = 60.0, options: Any = None, **more: Any) -> tuple[StageCost, ...]:
        options = options or tf.data.Options()
        benchmark = StageBenchmark(self.stages, self.stages[-1].id, self._make, options, limit_s, **more)
        return list(benchmark.run())[-1]

    def _make(self, number: int, inputs: Sequence[Any]) -> Any:
        return self.calls[number](*inputs)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what needs no figure that has settled."""
    monkeypatch.setattr(stage_benchmark, "STAGE_S", 0.1)


def slow(value: Any) -> Any:
    time.sleep(0.004)
    return value


def in_python(value: Any) -> Any:
    return tf.py_function(slow, [value], value.dtype)


def numbers() -> Any:
    return tf.data.Dataset.range(1000)


def batched(dataset: Any) -> Any:
    return dataset.batch(8)


def of_odd(value: Any) -> Any:
    return value % 4 == 1


def late(value: Any) -> Any:
    return value > 900


def doubled(dataset: Any) -> Any:
    return dataset.map(lambda value: value * 2)


def rooted(value: Any) -> Any:
    return tf.sqrt(tf.cast(tf.range(value, value + 10_000), tf.float32))


def each(value: Any) -> Any:
    return tf.data.Dataset.from_tensors(value).repeat(3)


def none(value: Any) -> Any:
    return value < 0


def raising(value: Any) -> Any:
    tf.debugging.assert_less(value, tf.constant(-1, tf.int64), message="too large for this")
    return value


def costliest(costs: Sequence[StageCost]) -> int:
    return max(costs, key=lambda cost: cost.elapsed_ns or 0.0).stage


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    ("call", "python", "threads", "calls"),
    [
        (lambda data: data.map(rooted, num_parallel_calls=8), False, 0, min(8, allowed_cpus())),
        (lambda data: data.map(rooted, num_parallel_calls=8), False, 3, 3),
        (lambda data: data.map(in_python, num_parallel_calls=8), True, 0, 1),
        (lambda data: data.map(rooted), False, 0, 1),
        (lambda data: data.interleave(each, cycle_length=50, num_parallel_calls=50), False, 3, 50),
    ],
)
def test_how_many_calls_a_stage_has_at_the_same_time_is_known(
    call: Call, python: bool, threads: int, calls: int
) -> None:
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    if threads:
        options.threading.private_threadpool_size = threads
    chain = Chain().source("range", numbers).add("interleave" if calls == 50 else "map", call)
    chain.stages[1] = chain.stages[1].model_copy(
        update={"function": UserFunction(name="f", file="train.py", line=1, python=python)}
    )
    assert chain.measured(options=options)[1].calls == calls


@pytest.mark.usefixtures("briefly")
def test_the_slow_stage_costs_the_most_for_one_element_of_the_sink() -> None:
    chain = Chain().source("range", numbers).add("map", lambda data: data.map(in_python))
    costs = chain.add("shuffle", lambda data: data.shuffle(100)).add("batch", batched, batch_size=8).measured()
    assert costliest(costs) == 1
    assert costs[1].elements == 8
    assert costs[1].elapsed_ns is not None
    assert costs[1].elapsed_ns > 8 * 4e6
    assert costs[1].cpu_ns is not None
    assert costs[1].cpu_ns < costs[1].elapsed_ns / 2, "a sleep is no CPU time"
    assert costs[3].elapsed_ns is not None
    assert costs[3].elapsed_ns < costs[1].elapsed_ns / 2, "the batch does not wait for the slow map"


@pytest.mark.usefixtures("briefly")
def test_the_users_own_options_hold_for_each_stage() -> None:
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    theirs = numbers().with_options(options).options()  # as a dataset gives them: not to be changed any more
    chain = Chain().source("range", numbers).add("map", lambda data: data.map(lambda value: value + 1))
    assert [cost.reason for cost in chain.measured(options=theirs)] == [None, None]


@pytest.mark.usefixtures("briefly")
def test_a_filter_needs_more_elements_than_it_gives() -> None:
    costs = Chain().source("range", numbers).add("filter", lambda data: data.filter(of_odd)).measured()
    # Of the 2nd of every four: what was kept of the source may end anywhere, and be short on a busy machine.
    assert costs[0].elements is not None
    assert 2 <= costs[0].elements <= 5


@pytest.mark.parametrize(
    ("call", "taken"),
    [
        pytest.param(lambda data: data.batch(50, drop_remainder=True).unbatch(), 1.0, marks=pytest.mark.slow),
        pytest.param(lambda data: data.flat_map(lambda _: tf.data.Dataset.range(40)), 1 / 40, marks=pytest.mark.slow),
        (lambda data: data.interleave(lambda _: tf.data.Dataset.range(40), cycle_length=4), 1 / 40),
        pytest.param(
            lambda data: data.window(20, shift=2).flat_map(lambda part: part.batch(20)), 2.0, marks=pytest.mark.slow
        ),
        (lambda data: data.group_by_window(lambda _: 0 * _, lambda _, part: part.batch(60), window_size=60), 60.0),
    ],
    ids=["unbatch", "flat_map", "interleave", "window", "group_by_window"],
)
def test_what_a_stage_takes_is_counted_also_where_it_gives_more_than_time_allows(call: Call, taken: float) -> None:
    costs = Chain().source("range", numbers).add("apply", call).measured()
    assert costs[1].reason is None
    assert costs[0].elements is not None
    # One that is opened in part counts in full; on a busy machine there is time for one and a part of another.
    assert taken / 2 <= costs[0].elements <= 2 * taken


@pytest.mark.parametrize(
    "call",
    [
        lambda data: data.bucket_by_sequence_length(lambda n: tf.cast(n % 9, tf.int32), [*range(1, 9)], [32] * 9),
        lambda data: data.group_by_window(lambda n: n % 9, lambda _, part: part.batch(32), window_size=32),
    ],
    ids=["bucket_by_sequence_length", "group_by_window"],
)
def test_what_a_stage_gives_at_the_end_of_few_elements_does_not_tell_what_it_takes(call: Call) -> None:
    kept = throughput.KeptElements(tf.TensorSpec([], tf.int64), [[tf.constant(n, tf.int64)] for n in range(40)])
    found = counting.inputs_per_output(lambda feeds: call(*feeds), [kept], 0.3, 5.0)
    assert 16 < found < 64, "about 32, and not the 40 elements over 9 buckets"
    assert counting.inputs_per_output(lambda feeds: call(*feeds), [kept], 0.3, 5.0, repeats=False) == 40 / 9


@pytest.mark.parametrize(
    ("taken", "found"),
    [
        ([1], 1.0),
        ([3, 6], 3.0),
        ([*range(1, 17), *[16] * 34], 1 / 24),  # opens 16 files, of which none ends
        ([1] * 50, 1 / 50),
        ([n // 4 for n in range(100)], 12 / 49),
        ([32 * n for n in range(1, 9)], 32.0),
        ([100 + 2 * n for n in range(50)], 2.0),  # fills a buffer first
    ],
)
def test_what_a_stage_opens_at_first_is_not_what_it_takes_for_each_that_it_gives(
    taken: list[int], found: float
) -> None:
    assert counting.for_one(taken) == pytest.approx(found)


def test_of_elements_with_many_tensors_few_are_kept() -> None:
    """An iterator that is fed with 20,000 tensors takes seconds to make."""
    columns = tf.data.Dataset.range(1000).map(lambda n: dict.fromkeys([f"c{k}" for k in range(40)], n))
    iterator = throughput.FlatIterator(columns)
    with throughput.Deadline(60) as deadline:
        kept = throughput.sample(iterator, deadline, iterator.take(), 60)
    assert len(kept.elements) == 2048 // 40


def test_of_large_elements_64_mib_at_most_are_kept_or_in_a_window() -> None:
    mib = tf.data.Dataset.from_tensors(tf.zeros([2**20], tf.uint8)).repeat()
    iterator = throughput.FlatIterator(mib)
    with throughput.Deadline(60) as deadline:
        kept = throughput.sample(iterator, deadline, iterator.take(), 60)
    assert len(kept.elements) == 63
    assert throughput.window_size(100.0, 2**20) == 64
    assert throughput.beyond_caches(2**25) == 8


def test_what_a_shuffle_is_filled_with_is_no_part_of_an_element_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stage whose windows do not come in time, too."""

    def too_slow(*_: object) -> throughput.Rate:
        raise throughput.OutOfTimeError(1.0)

    read: list[int] = []
    monkeypatch.setattr(throughput, "windowed_rate", too_slow)
    monkeypatch.setattr(throughput, "rate", lambda take, seconds: throughput.Rate(float(len(read)), 0.0))

    def noted(number: Any) -> Any:
        read.append(int(number))
        return number

    numbered = tf.data.Dataset.range(10**6).map(lambda n: tf.numpy_function(noted, [n], tf.int64)).shuffle(100)
    read_before = stage_benchmark._by_windows(numbered, throughput.Deadline(1), 1.0, 8.0, 0.02).elapsed_ns
    assert read_before >= 100


def test_how_long_was_waited_for_an_element_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts the inputs gives up earlier than what takes elements: the other's limit was told."""
    monkeypatch.setattr(stage_benchmark, "_FIRST_ELEMENT_S", 0.3)

    def late(value: Any) -> Any:
        time.sleep(1)
        return value > 0

    chain = Chain().source("range", numbers)
    chain.add("filter", lambda data: data.filter(lambda n: tf.numpy_function(late, [n], tf.bool)))
    assert chain.measured(30)[1].reason == "it gave no element within 300 ms"


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(("shuffled", "applied"), [(False, False), (True, False), (False, True)])
def test_an_interleave_of_one_file_opens_one_at_a_time(tmp_path: Path, shuffled: bool, applied: bool) -> None:
    """As TensorFlow Datasets reads a small dataset: fed with the file again and again it opened 32 copies first."""
    opened = tmp_path / "opened"

    def note(name: bytes) -> bytes:
        with opened.open("a", encoding="utf-8") as file:
            file.write("1")
        return name

    def records(name: Any) -> Any:
        noted = tf.numpy_function(note, [name], tf.string)
        return tf.data.Dataset.from_tensors(noted).repeat(100_000)

    chain = Chain().source("from_tensor_slices", lambda: tf.data.Dataset.from_tensor_slices(["a file"]))
    if shuffled:
        chain.add("shuffle", lambda data: data.shuffle(1))
    chain.add("interleave", lambda data: data.interleave(records, cycle_length=16, num_parallel_calls=16))
    if applied:
        update = {"method": "apply", "function": UserFunction(name="parallel_interleave")}
        chain.stages[-1] = chain.stages[-1].model_copy(update=update)
        opening = tf.data.experimental.parallel_interleave(records, cycle_length=16)
        chain.calls[-1] = lambda data: data.apply(opening)
    costs = chain.measured(in_a_pass=dict.fromkeys(range(len(chain.stages) - 1), 1))
    assert costs[-1].elapsed_ns is not None, costs[-1].reason
    assert len(opened.read_text()) <= 6  # one for each iterator that looks at it


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(("first_s", "measured"), [(0.0, False), (0.8, True)])
def test_a_stage_is_waited_for_as_long_as_the_pipelines_own_first_element_took(
    monkeypatch: pytest.MonkeyPatch, first_s: float, measured: bool
) -> None:
    """As a generator that fills a buffer of its own first."""
    monkeypatch.setattr(stage_benchmark, "_FIRST_ELEMENT_S", 0.1)

    def fills_first() -> Iterator[int]:
        time.sleep(0.8)
        while True:
            yield 1

    spec = tf.TensorSpec((), tf.int64)
    chain = Chain().source("generator", lambda: tf.data.Dataset.from_generator(fills_first, output_signature=spec))
    costs = chain.add("batch", batched, batch_size=8).measured(0.6, first_s=first_s)
    assert [cost.elapsed_ns is not None for cost in costs] == [measured] * 2
    assert costs[0].late is not measured


@pytest.mark.usefixtures("briefly")
def test_a_filter_that_lets_nothing_through_is_told() -> None:
    chain = Chain().source("range", numbers).add("filter", lambda data: data.filter(none))
    costs = chain.add("batch", batched, batch_size=8).measured(6)
    assert costs[1].elapsed_ns is None
    assert "none of its" in (costs[1].reason or "")
    assert "no element to feed it with" in (costs[2].reason or "")


@pytest.mark.usefixtures("briefly")
def test_what_a_stage_raises_is_its_reason_and_no_failure() -> None:
    costs = Chain().source("range", numbers).add("map", lambda data: data.map(raising)).measured()
    assert "too large for this" in (costs[1].reason or "")
    assert costs[0].elapsed_ns is not None


@pytest.mark.usefixtures("briefly")
def test_what_comes_after_a_stage_that_failed_alone_is_fed_by_the_pipeline_itself() -> None:
    """`filter` gets none of the first elements through; the pipeline gives some later."""
    chain = Chain().source("range", numbers).add("filter", lambda dataset: dataset.filter(late)).add("map", doubled)
    of_filter, of_map = chain.measured()[1:]
    assert of_filter.elapsed_ns is None
    assert "let none of its" in (of_filter.reason or "")
    assert of_map.elapsed_ns is not None, of_map.reason


@pytest.mark.usefixtures("briefly")
def test_a_stage_whose_errors_are_ignored_is_measured_without_the_elements_that_fail() -> None:
    def fails_now_and_then(value: Any) -> Any:
        tf.debugging.assert_greater(value % 7, tf.constant(0, tf.int64))
        return value

    chain = Chain().source("range", numbers).add("map", lambda data: data.map(fails_now_and_then))
    chain.add("ignore_errors", lambda data: data.ignore_errors()).add("batch", batched, batch_size=8)
    costs = chain.measured()
    assert [cost.reason for cost in costs] == [None] * 4
    assert [cost.elements for cost in costs] == [8, 8, 8, 1]


@pytest.mark.usefixtures("briefly")
def test_an_asserted_cardinality_costs_nothing_and_hands_on_what_feeds_it() -> None:
    chain = Chain().source("range", numbers)
    chain.stages.append(Stage(id=1, method="apply", inputs=(0,), function=UserFunction(name="assert_cardinality")))
    chain.calls.append(lambda dataset: dataset.apply(tf.data.experimental.assert_cardinality(1000)))
    source, asserted, mapped = chain.add("map", doubled).measured()
    assert (asserted.elapsed_ns, asserted.elements, asserted.reason) == (0.0, 1.0, None)
    assert source.elements == 1.0
    assert mapped.elapsed_ns is not None, mapped.reason


@pytest.mark.slow
@pytest.mark.usefixtures("briefly")
def test_a_stage_whose_windows_do_not_come_in_time_is_measured_by_single_elements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throughput, "window_size", lambda each_ns, element_bytes: 3 * 10**6)
    monkeypatch.setattr(stage_benchmark, "_FIRST_ELEMENT_S", 0.5)
    (cost,) = Chain().source("range", numbers).measured(limit_s=3.0)
    assert cost.elapsed_ns is not None, cost.reason


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("method", ["skip", "shard"])
def test_what_comes_after_a_stage_that_leaves_out_more_than_is_kept_is_measured(method: str) -> None:
    most = throughput._KEPT_MOST
    leave_out: dict[str, Call] = {
        "skip": lambda numbers: numbers.skip(most + 100),
        "shard": lambda numbers: numbers.shard(most + 100, most + 50),
    }
    chain = (
        Chain()
        .source("range", lambda: tf.data.Dataset.range(10 * most))
        .add(method, leave_out[method], num_shards=most + 100)
    )
    costs = chain.add("map", lambda numbers: numbers.map(in_python)).measured()
    assert [cost.reason for cost in costs] == [None, None, None]
    assert costs[2].elapsed_ns is not None
    assert costs[2].elapsed_ns > 4e6


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize("method", ["cache", pytest.param("snapshot", marks=pytest.mark.slow)])
def test_before_a_cache_nothing_is_spent_once_it_is_full(method: str, tmp_path: Path) -> None:
    def kept(data: Any) -> Any:  # in files of its own each time, as a trial has it
        return data.cache() if method == "cache" else data.snapshot(tempfile.mkdtemp(dir=tmp_path))

    chain = Chain().source("range", numbers).add("map", lambda data: data.map(in_python))
    costs = chain.add(method, kept).add("batch", batched, batch_size=8).measured()
    assert costs[1].elapsed_ns == 0
    assert "cache" in (costs[1].reason or "")
    assert costs[1].first_epoch_ns is not None, "what fills the cache is measured all the same"
    assert costs[1].first_epoch_ns > 8 * 4e6
    assert costliest(costs) != 1


@pytest.mark.usefixtures("briefly")
def test_elements_of_any_kind_are_fed_from_memory() -> None:
    def kinds() -> Any:
        ragged = tf.ragged.constant([[1, 2], [3], []])
        sparse = tf.sparse.from_dense([[1, 0], [0, 1], [1, 1]])
        return tf.data.Dataset.from_tensor_slices({"r": ragged, "s": sparse, "t": ["a", "b", "c"]})

    chain = Chain().source("from_tensor_slices", kinds).add("map", lambda data: data.map(lambda element: element))
    costs = chain.add("ragged_batch", lambda data: data.ragged_batch(2), batch_size=2).measured()
    assert [cost.reason for cost in costs] == [None] * 3
    assert all(cost.elapsed_ns is not None for cost in costs)


@pytest.mark.usefixtures("briefly")
def test_ragged_and_sparse_tensors_weigh_what_they_hold_although_they_travel_as_variants() -> None:
    ragged = tf.RaggedTensor.from_row_lengths(tf.zeros([1000]), [400, 600])
    sparse = tf.sparse.from_dense(tf.ones([10, 10]))
    chain = Chain().source("from_tensors", lambda: tf.data.Dataset.from_tensors((ragged, sparse)))
    (cost,) = chain.measured()
    assert cost.element_bytes == 1000 * 4 + 3 * 8 + 100 * 4 + 100 * 2 * 8 + 2 * 8, "values, row splits, indices, shape"


@pytest.mark.usefixtures("briefly")
def test_several_inputs() -> None:
    chain = Chain().source("range", numbers).source("range", numbers)
    chain.add("zip", lambda one, other: tf.data.Dataset.zip((one, other)), 0, 1)
    chain.add("map", lambda data: data.map(lambda one, other: one + other))
    assert [cost.elements for cost in chain.measured()] == [1, 1, 1, 1]


@pytest.mark.usefixtures("briefly")
def test_windows_of_datasets_feed_the_next_stage() -> None:
    chain = Chain().source("range", numbers).add("window", lambda data: data.window(5), size=5)
    costs = chain.add("flat_map", lambda data: data.flat_map(lambda window: window.batch(5))).measured()
    assert costs[2].reason is None
    assert costs[0].elements == pytest.approx(5)


def test_stages_for_which_there_is_no_time_say_so() -> None:
    chain = Chain().source("range", numbers)
    for _ in range(30):
        chain.add("map", lambda data: data.map(lambda value: value + 1))
    costs = chain.measured(0.5)
    assert len(costs) == 31
    assert "no time" in (costs[-1].reason or "")
    assert costs[-1].elapsed_ns is None
