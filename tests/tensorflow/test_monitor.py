"""`pipeline_bench.monitor` around real loops: each way to loop, a slow producer and a slow consumer."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline_bench
from pipeline_bench.analysis import wall_time
from pipeline_bench.errors import UsageError
from pipeline_bench.injection.loop_locations import Line
from pipeline_bench.injection.watched_loops import WatchedLoops
from pipeline_bench.system.clocks import wall_minus_monotonic_ns

tf = pytest.importorskip("tensorflow")

from pipeline_bench.monitoring import ring, strategies  # noqa: E402
from pipeline_bench.monitoring.loop import DatasetMonitor  # noqa: E402

BATCHES = 24
DELAY_S = 0.01
LEAST_NS = 0.98e9 * DELAY_S
"""What so long a sleep takes at the least, whatever else the machine does: two clocks tell it."""
Loop = Callable[[Any], int]


def produced(delay_s: float, at_once: int = 0) -> Any:
    """A dataset of 0, 1 … whose `BATCHES` take so long to make, when asked for and never ahead; then some at once."""

    def numbers() -> Iterator[int]:
        for number in range(BATCHES + at_once):
            time.sleep(delay_s if number < BATCHES else 0)
            yield number

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
    return dataset.with_options(options)


def nap(number: Any) -> int:
    """What a step does: nothing while the batches are slow to come, and as long as they took behind them."""
    time.sleep(DELAY_S if int(number) >= BATCHES else 0)
    return 0


def consumed(number: Any) -> Any:
    return number + tf.ensure_shape(tf.py_function(nap, [number], tf.int64), [])


def eagerly(batches: Any) -> int:
    total = 0
    for number in batches:
        nap(number)
        total += int(number)
    return total


def as_an_argument(batches: Any) -> int:
    @tf.function  # type: ignore[untyped-decorator]
    def loop(given: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for number in given:
            total += consumed(number)
        return total

    return int(loop(batches))


def by_closure(batches: Any) -> int:
    @tf.function  # type: ignore[untyped-decorator]
    def loop() -> Any:
        total = tf.constant(0, tf.int64)
        for number in batches:
            total += consumed(number)
        return total

    return int(loop())


def by_an_iterator(batches: Any) -> int:
    @tf.function  # type: ignore[untyped-decorator]
    def loop(given: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for number in given:
            total += consumed(number)
        return total

    return int(loop(iter(batches)))


def step_by_step(batches: Any) -> int:
    @tf.function  # type: ignore[untyped-decorator]
    def step(given: Any) -> Any:
        return consumed(next(given))

    iterator, total = iter(batches), 0
    try:
        while True:
            total += int(step(iterator))
    except tf.errors.OutOfRangeError:
        return total


def into_a_variable(batches: Any) -> int:
    """A loop that carries nothing from step to step, as one of training steps: what it does is a side effect."""
    total = tf.Variable(0, dtype=tf.int64)

    @tf.function  # type: ignore[untyped-decorator]
    def loop(given: Any) -> None:
        for number in given:
            total.assign_add(consumed(number))

    loop(batches)
    return int(total)


def until_the_last(batches: Any) -> int:
    @tf.function  # type: ignore[untyped-decorator]
    def loop(given: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for number in given:
            total += consumed(number)
            if number == 2 * BATCHES - 1:
                break
        return total

    return int(loop(batches))


LOOPS = [eagerly, as_an_argument, by_closure, by_an_iterator, step_by_step, into_a_variable, until_the_last]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_slow_producer_is_waited_for_and_a_slow_consumer_does_not_wait(loop: Loop) -> None:
    watch = pipeline_bench.monitor(produced(DELAY_S, at_once=BATCHES), out=None, quiet=True)
    with watch as batches:
        assert loop(batches) == sum(range(2 * BATCHES))
    assert watch.session is not None
    steps = watch.session.trials[0].steps
    assert steps is not None
    assert steps.wait_ns is not None
    assert 2 * BATCHES - 3 <= steps.count <= 2 * BATCHES
    waits = steps.wait_ns.unpack()
    assert waits[: BATCHES - 3].mean() >= LEAST_NS
    spent = steps.end_ns.unpack() - steps.start_ns.unpack() - waits
    assert spent[3 - BATCHES :].mean() >= LEAST_NS  # what the step spends itself is none of its wait


def test_a_function_that_was_traced_before_is_measured_as_well() -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def counted(given: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for number in given:
            total += number
        return total

    counted(produced(0.0))
    for _ in range(2):  # and by another monitor after that
        watch = pipeline_bench.monitor(produced(0.002), out=None, quiet=True)
        with watch as batches:
            assert int(counted(batches)) == sum(range(BATCHES))
        assert watch.summary.steps >= BATCHES - 3 - 4  # without the warm-up
    assert int(counted(produced(0.0))) == sum(range(BATCHES))


def test_a_function_may_take_from_one_of_two_iterators() -> None:
    data = tf.data.Dataset.range(20)

    @tf.function  # type: ignore[untyped-decorator]
    def chosen(second: Any, one: Any, other: Any) -> Any:
        taken = one
        if second:
            taken = other
        return next(taken)

    with pipeline_bench.monitor(data, out=None) as first, pipeline_bench.monitor(data.skip(10), out=None) as second:
        one, other = iter(first), iter(second)
        tf.nest.assert_same_structure(one, other, expand_composites=True)
        taken = [int(chosen(tf.constant(each), one, other)) for each in (False, True, True, False)]
    assert taken == [0, 10, 11, 1]


@pytest.mark.parametrize("how", ["a list", "by closure", "a loop", "distributed", "distributed, eagerly"])
def test_a_step_that_takes_from_several_iterators_by_itself_is_one_step(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.python.distribute import input_lib

    watch, data = DatasetMonitor("loop"), tf.data.Dataset.range(100)
    watch.drop()  # nothing reads the rows but this
    if how.startswith("distributed"):
        strategies.patch(input_lib)
        monkeypatch.setattr(strategies, "_of_loop", lambda _: watch.probe)
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        its = [iter(strategy.experimental_distribute_dataset(data)) for _ in range(2)]
    else:
        its = [iter(watch.probed(data)) for _ in range(2)]

    def step(given: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for _ in tf.range(10 if how == "a loop" else 1):
            total += tf.add_n([next(each) for each in (its if how == "by closure" else given)])
        return total

    called = step if how.endswith("eagerly") else tf.function(step)
    for _ in range(2 if how == "a loop" else 20):
        called(its)
    watch.read(settled=True)
    rows = watch.record.log.rows()
    assert rows.count.sum() == 20 - 1  # the last has no end
    assert rows.wait_ns is not None


def test_an_iterator_that_is_asked_twice_in_a_traced_step_gives_two_steps() -> None:
    watch = DatasetMonitor("loop")
    watch.drop()
    iterator = iter(watch.probed(tf.data.Dataset.range(100)))

    @tf.function  # type: ignore[untyped-decorator]
    def step(given: Any) -> Any:
        return next(given) + next(given)

    for _ in range(10):
        step(iterator)
    watch.read(settled=True)
    assert watch.record.log.rows().count.sum() == 20 - 1


def test_several_epochs_leave_the_pauses_between_them_out() -> None:
    watch = pipeline_bench.monitor(tf.data.Dataset.range(20).prefetch(2), out=None, quiet=True)
    with watch as batches:
        for _ in range(3):
            for _ in batches:
                pass
            time.sleep(0.5)
    assert watch.summary.steps == 54  # of 60, without the warm-up
    assert watch.summary.step_ms is not None
    assert watch.summary.step_ms * 54 < 500  # with a pause among them it would be more


def test_elements_of_any_structure_pass_through() -> None:
    ragged = tf.ragged.constant([[1, 2], [3]])
    data = tf.data.Dataset.from_tensors({"a": (tf.constant(["x"]), ragged), "b": tf.sparse.from_dense([0, 7])})

    @tf.function  # type: ignore[untyped-decorator]
    def loop(given: Any) -> Any:
        total = tf.constant(0)
        for element in given.repeat(0).concatenate(given):
            total += tf.reduce_sum(element["a"][1]) + tf.sparse.reduce_sum(element["b"])
        for element in given:
            total += tf.reduce_sum(element["a"][1]) + tf.sparse.reduce_sum(element["b"])
        return total

    with pipeline_bench.monitor(data, out=None, quiet=True) as batches:
        assert batches.element_spec == data.element_spec
        assert int(loop(batches)) == 26
        (element,) = list(batches)
        assert element["a"][0].numpy().tolist() == [b"x"]


def test_what_runs_ahead_of_the_loop_is_not_taken_for_the_loop() -> None:
    watch = pipeline_bench.monitor(produced(0.001), out=None, quiet=True)
    with watch as batches:
        for _ in batches.map(lambda number: number + 1).prefetch(2):
            pass
    assert watch.summary.input_wait_share is None
    assert "built upon it" in str(watch.summary.reason)
    assert watch.session is not None
    assert watch.session.results[0].input_wait_share.value is None


def test_a_distributed_dataset_says_that_it_is_not_measured() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    watch = pipeline_bench.monitor(tf.data.Dataset.range(8).batch(2), out=None, quiet=True)
    with watch as batches:
        assert len(list(strategy.experimental_distribute_dataset(batches))) == 4
    assert "distributed" in str(watch.summary.reason)


def test_loops_of_one_line_are_told_apart_by_the_distributed_datasets_that_they_take_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tensorflow.python.distribute import input_lib

    strategies.patch(input_lib)
    asked: list[Any] = []
    monkeypatch.setattr(strategies, "_of_loop", asked.append)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    training, validation = (strategy.experimental_distribute_dataset(tf.data.Dataset.range(2)) for _ in range(2))
    for data in (training, validation, training):
        for _ in data:
            pass
    assert [(each is training, each is validation) for each in asked] == [(True, False), (False, True), (True, False)]


def test_an_exception_passes_and_the_session_is_written(tmp_path: Path) -> None:
    watch = pipeline_bench.monitor(produced(0.001), out=tmp_path, quiet=True, name="mine")

    def failing() -> None:
        with watch as batches:
            for number in batches:
                _ = 1 // (20 - int(number))

    with pytest.raises(ZeroDivisionError):
        failing()
    assert watch.folder is not None
    session = pipeline_bench.load(watch.folder)
    assert session.watched
    assert session.scenario.name == "mine"
    assert any("ZeroDivisionError" in note for note in session.notes)
    assert session.trials[0].steps is not None
    assert session.trials[0].steps.count == 20


def test_the_line_at_the_end_and_the_summary_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    watch = pipeline_bench.monitor(produced(0.001), out=None, name="my job")
    with watch as batches:
        for number in batches:
            if int(number) == 20:
                assert watch.summary.steps == 19
    out = capsys.readouterr().out
    # Of 24, as the session has it: a tenth is warm-up. Beside other work their number goes on.
    assert out.startswith(("my job: 21 steps of ", "my job: 21 steps, "))
    assert watch.summary.steps == 21
    assert "AU at most" in out
    assert out.count("\n") == 1


def test_autograph_is_as_it_was_afterwards() -> None:
    from tensorflow.python.data.ops import dataset_autograph

    before = dataset_autograph._general_purpose_scan
    with pipeline_bench.monitor(produced(0.0), out=None, quiet=True):
        assert dataset_autograph._general_purpose_scan is not before
        with pipeline_bench.monitor(produced(0.0), out=None, quiet=True):
            pass
        assert dataset_autograph._general_purpose_scan is not before
    assert dataset_autograph._general_purpose_scan is before


def test_what_is_no_dataset_is_refused_with_what_to_give() -> None:
    with pytest.raises(UsageError, match="given a list") as refused:
        pipeline_bench.monitor([1, 2])
    assert "tf.data.Dataset" in refused.value.hint


def test_the_dataset_outlives_its_monitor() -> None:
    with pipeline_bench.monitor(produced(0.0), out=None, quiet=True) as batches:
        pass
    assert len(list(batches)) == BATCHES
    assert by_closure(batches) == sum(range(BATCHES))


def test_what_goes_wrong_in_the_watching_is_told_and_the_job_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    name: Any = 3  # no session can have that name
    taken = []
    watch = pipeline_bench.monitor(produced(0.0), out=None, name=name)
    with watch as batches:
        taken += list(batches)
        assert watch.summary.steps == 0
    assert len(taken) == BATCHES
    assert "failed" in str(watch.summary.reason)
    assert capsys.readouterr().err.startswith("3 is not watched: ")


def test_who_takes_an_example_has_not_taken_all_of_the_data() -> None:
    data = tf.data.Dataset.range(4).batch(2)
    takes_all = []
    for dataset in (data, data.take(1), data.take(1).map(lambda numbers: -numbers), data.take(9)):
        watch = DatasetMonitor("loop")
        for _ in watch.probed(dataset):
            pass
        takes_all.append(watch.takes_all)
        watch.drop()
    assert takes_all == [True, False, False, True]


def test_a_loop_that_is_left_by_break_is_over_and_one_that_goes_on_is_not() -> None:
    data = tf.data.Dataset.range(8)
    watch = DatasetMonitor("loop")
    iterator = iter(watch.probed(data))
    for _ in range(3):
        next(iterator)
    watch.see_training()
    assert (watch.is_over, watch.saw_training) == (False, True)
    watch.drop()
    watch = DatasetMonitor("loop")
    for number in watch.probed(data):
        if number == 3:
            break
    watch.see_training()  # of another loop, which comes behind
    assert (watch.is_over, watch.saw_training) == (True, False)
    watch.drop()
    watch = DatasetMonitor("loop")
    for _ in range(3):
        next(iter(watch.probed(data)))
        watch.see_training()
    assert watch.saw_training  # on the batch that it took
    watch.drop()


class SlowEnd:
    """What takes a while to be let go of."""

    def __del__(self) -> None:
        time.sleep(0.2)


def test_rows_that_were_lost_are_no_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "ROWS", 100)
    watch = DatasetMonitor("loop")
    watch.drop()  # nothing reads the rows but this
    begun_s = time.time()

    @tf.function  # type: ignore[untyped-decorator]
    def run(first: Any, end: Any) -> None:
        for number in tf.range(first, end):
            watch.probe.ring.write(begun_s + tf.cast(number, tf.float64) / 1000, tf.constant(0.0005, tf.float64))

    for first, end in ((0, 100), (100, 300)):
        run(tf.constant(first), tf.constant(end))
        watch.read(settled=True)
    assert watch.record.notes == ["100 steps came too fast to be kept"]
    figures = watch.summary
    assert figures.step_ms == pytest.approx(1, rel=0.02)
    assert figures.input_wait_share == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("moved_s", [3600, -3600])
@pytest.mark.parametrize("read", ["at the end", "between", "after each"])
def test_a_machine_that_was_suspended_or_whose_clock_was_set_has_no_step_of_an_hour(
    moved_s: int, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = DatasetMonitor("loop")
    watch.drop()  # nothing reads the rows but this
    begun_s, offset_ns = time.time(), wall_minus_monotonic_ns()

    @tf.function  # type: ignore[untyped-decorator]
    def run(first: Any, end: Any, moved: Any) -> None:
        for number in tf.range(first, end):
            at_s = begun_s + moved + tf.cast(number, tf.float64) / 1000
            watch.probe.ring.write(at_s, tf.constant(0.0005, tf.float64))

    size = 1 if read == "after each" else 100  # the newest two are then of before the clock moved
    for first in range(0, 200, size):
        moved = moved_s if first >= 100 else 0
        if first == 100:
            monkeypatch.setattr(ring, "wall_minus_monotonic_ns", lambda: offset_ns + moved_s * 10**9)
        if read == "after each":
            watch.read(settled=False)
        run(tf.constant(first), tf.constant(first + size), tf.constant(moved, tf.float64))
        if read == "between":
            watch.read(settled=True)
    watch.read(settled=True)
    steps = watch.record.log.rows()
    assert steps.count.sum() == 199 - 1  # that which was under way as the clock moved
    assert np.max(steps.end_ns - steps.start_ns) < 2e6
    assert np.max(steps.end_ns) - np.min(steps.start_ns) < 1e9


def test_what_the_ends_of_its_iterators_took_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_time, "_LEAST_S", 0.3)
    job = pipeline_bench.monitor(tf.data.Dataset.range(3), out=None, quiet=True)
    with job as watched:
        for _ in range(3):
            iterator = iter(watched)
            assert len(list(iterator)) == 3
            iterator._components = SlowEnd()
            del iterator
    assert job.session is not None
    (note,) = [note for note in job.session.notes if "to end an iterator" in note]
    (waited_s,) = re.findall(r"the later epochs waited ([\d.]+) s in all", note)
    assert float(waited_s) >= 0.4, "before the second and the third"


def test_the_ends_of_a_loops_iterators_are_of_no_other_loop_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_time, "_LEAST_S", 0.3)
    trains, validates = DatasetMonitor("train"), DatasetMonitor("validate")
    for _ in range(3):
        iterator = iter(trains.probed(tf.data.Dataset.range(3)))
        assert len(list(iterator)) == 3
        iterator._components = SlowEnd()
        del iterator
        assert len(list(validates.probed(tf.data.Dataset.range(3)))) == 3
    for watch in (trains, validates):
        watch.close()
    told = [["to end an iterator" in remark for remark in watch.record.remarks] for watch in (trains, validates)]
    assert told == [[True], []]


def handed_on(data: Any, step: Callable[[], object]) -> None:
    def worked_on() -> Iterator[int]:
        for number in data:
            time.sleep(DELAY_S)
            yield int(number)

    for _ in worked_on():
        step()


def by_an_expression(data: Any, step: Callable[[], object]) -> None:
    for _ in (nap(BATCHES) for _ in data):
        step()


def trained_within(data: Any, step: Callable[[], object]) -> None:
    def losses() -> Iterator[int]:
        for number in data:
            step()
            time.sleep(DELAY_S)
            yield int(number)

    list(losses())


def passed_on(data: Any, step: Callable[[], object]) -> None:
    def same() -> Iterator[Any]:
        yield from data

    for _ in same():
        step()
        time.sleep(DELAY_S)


def test_a_generators_work_on_the_batches_of_two_iterators_is_waited_for_once(tmp_path: Path) -> None:
    loops = WatchedLoops()
    monitors, its = [], []
    for line in (3, 4):
        data = produced(DELAY_S)
        begin = functools.partial(DatasetMonitor, out=tmp_path, lasting=True)
        monitors.append(loops.of(Line("train.py", line), begin, data=data))
        its.append(monitors[-1].probed(data))

    def both() -> Iterator[Any]:
        other = iter(its[1])
        for batch in its[0]:
            yield batch, next(other)

    for _ in both():
        loops.feed_a_call()
        time.sleep(4 * DELAY_S)
    loops.end(False, lambda work: work())
    for monitor in monitors:
        rows = monitor.record.log.rows()
        assert rows.wait_ns is not None
        waited_ns = (rows.end_ns - rows.start_ns).sum() - 4 * LEAST_NS * len(rows.count)
        assert rows.wait_ns.sum() <= waited_ns


@pytest.mark.parametrize(
    ("loop", "waits", "name"),
    [
        (handed_on, True, "worked_on, test_monitor.py:"),
        (by_an_expression, True, "<genexpr>, test_monitor.py:"),
        (trained_within, False, ""),
        (passed_on, False, ""),
    ],
)
def test_what_a_generator_does_to_a_batch_before_it_is_trained_on_is_waited_for(
    loop: Callable[..., None], waits: bool, name: str, tmp_path: Path
) -> None:
    """A public script's `run` told a wait of 0.2 % where one of 46 % was made in a generator around the dataset."""
    loops, data = WatchedLoops(), tf.data.Dataset.range(BATCHES)

    def begin(where: str) -> DatasetMonitor:
        return DatasetMonitor(where, tmp_path, lasting=True)

    monitor = loops.of(Line("train.py", 3), begin, data=data)
    loop(monitor.probed(data), loops.feed_a_call)
    saved = monitor.close()
    share = saved.session.results[0].input_wait_share.value
    assert (share > 0.5) == waits
    told = [each for each in saved.remarks if "go through a generator" in each]
    assert [f"program's, {name}" in each and each.endswith("is part of the wait") for each in told] == [True] * waits
    assert monitor.record.diagnosable != waits
