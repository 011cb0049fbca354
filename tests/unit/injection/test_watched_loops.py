"""Which loops of a process are its trainings."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.injection import watched_loops
from pipeline_bench.injection.loop_locations import Line
from pipeline_bench.injection.watched_loops import WATCHED_LOOPS, WatchedLoops
from pipeline_bench.monitoring import loaders, record
from pipeline_bench.monitoring.loaders import LoaderMonitor
from tests.unit.monitoring.test_loaders import Batches


def passed(loop: Any, batches: int) -> None:
    """Have a loop take so many batches until the data ends."""
    list(loop.timed(Batches(batches)))


def looked(loop: Any) -> None:
    """Have a loop take one of many batches."""
    next(loop.timed(Batches(40)))


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    begun: list[LoaderMonitor] = []

    def begin(loops: WatchedLoops, where: str, data: Any = None, path: int = 0) -> Any:
        def make(name: str) -> LoaderMonitor:
            begun.append(LoaderMonitor(name, "torch", tmp_path))
            return begun[-1]

        file, _, line = where.rpartition(":")
        return loops.of(Line(file, int(line)), make, data=data, path=path)

    yield begin
    for each in begun:
        each.record.drop()


def ended(loops: WatchedLoops, fits: bool = False) -> list[str]:
    loops.end(fits, lambda work: work())
    return [str(where) for where, loop in loops.shown(fits) if loop.record.kept is not None]


def test_examples_that_are_shown_after_each_epoch_are_no_training(
    begin: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_KEEP_EVERY_NS", 0)
    loops = WatchedLoops()
    shows, training, kept = (begin(loops, f"train.py:{line}") for line in (3, 5, 7))
    samples = kept.timed(Batches(90))
    shows.of_a_take = True
    for _ in range(8):
        passed(training, 40)
        passed(shows, 1)
        next(samples)
    shows.read(settled=True)
    shows.record.keep()
    assert shows.record.kept is not None
    assert ended(loops) == ["train.py:5"]
    assert len(list(tmp_path.iterdir())) == 1


def test_what_takes_a_batch_or_two_at_a_time_is_the_training_where_there_is_no_other(
    begin: Callable[..., Any],
) -> None:
    for fits in (False, True):
        loops = WatchedLoops()
        whole = begin(loops, "train.py:3")
        for _ in range(8):
            passed(whole, 1)
        assert ended(loops, fits) == ([] if fits else ["train.py:3"])


def test_a_loop_that_ended_before_anything_trained_only_reads(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    counts, outer, inner = (begin(loops, f"train.py:{line}") for line in (3, 5, 6))
    for loop in (counts, outer, inner):
        loop.on_tf_data = True
    passed(counts, 90)
    assert not loops.only_reads(counts), "nothing else trains"
    other = inner.timed(Batches(90))
    for _ in outer.timed(Batches(90)):
        next(other)
        loops.feed_a_call()
    assert [loops.only_reads(loop) for loop in (counts, outer, inner)] == [True, False, False]
    counts.in_training = True
    assert not loops.only_reads(counts)


@pytest.mark.parametrize("anew", [False, True])
def test_a_validation_whose_iterator_is_kept_only_reads(anew: bool, begin: Callable[..., Any]) -> None:
    """Also where it makes one for each epoch, of which it takes as many batches as there are."""
    loops = WatchedLoops()
    training, validation = (begin(loops, f"train.py:{line}") for line in (3, 4))
    training.on_tf_data = validation.on_tf_data = True
    batches, held_out = training.timed(Batches(90)), validation.timed(Batches(27))
    for _ in range(3):
        for _ in range(30):
            next(batches)
            loops.feed_a_call()
        if anew:
            held_out = begin(loops, "train.py:4").timed(Batches(9))
        for _ in range(9):
            next(held_out)
    assert [loops.only_reads(loop) for loop in (training, validation)] == [False, True]


def test_a_training_whose_iterator_is_kept_while_another_one_goes_on_is_not_said_to_read(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()
    trainings = [begin(loops, f"train.py:{line}") for line in (3, 4)]
    kept = []
    for loop, batches in zip(trainings, (20, 400), strict=True):
        loop.on_tf_data = True
        kept.append(loop.timed(Batches(400)))
        for _ in range(batches):
            next(kept[-1])
            loops.feed_a_call()
    assert [loops.only_reads(loop) for loop in trainings] == [False, False]


def test_a_loop_that_collects_batches_before_it_trains_on_them_is_not_said_to_read(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    training = begin(loops, "train.py:3")
    training.on_tf_data = True
    for number, _ in enumerate(training.timed(Batches(90))):
        if number % 30 == 29:
            for _ in range(30):
                loops.feed_a_call()
    assert not loops.only_reads(training)


@pytest.mark.parametrize(
    ("calls", "by_fit", "by_call"),
    [((), True, True), ((False,), False, True), ((None,), False, False), ((False, None), False, False)],
)
def test_a_loop_whose_calls_may_train_unseen_is_not_said_to_read(
    calls: tuple[bool | None, ...], by_fit: bool, by_call: bool, begin: Callable[..., Any]
) -> None:
    loops = WatchedLoops()
    loop = begin(loops, "train.py:3")
    loop.on_tf_data = True
    for _ in loop.timed(Batches(9)):
        for trains in calls:
            loops.see_call(trains)
    loops.see_call(None)  # behind it
    loops.pass_fit(None)
    assert loops.only_reads(loop) is by_fit
    loops.feed_a_call()
    assert loops.only_reads(loop) is by_call


@pytest.mark.parametrize(("batches", "trains", "expected"), [(9, True, True), (2, True, False), (9, False, False)])
def test_the_start_up_of_a_fit_has_no_loop_in_it_that_trains(
    batches: int, trains: bool, expected: bool, begin: Callable[..., Any]
) -> None:
    loops = WatchedLoops()
    assert not loops.have_trained
    for _ in begin(loops, "train.py:3").timed(Batches(batches)):
        if trains:
            loops.feed_a_call()
    assert loops.have_trained is expected


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_where_calls_of_jax_or_pytorch_may_train_no_loop_is_said_to_read(
    name: str, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = WatchedLoops()
    loop = begin(loops, "train.py:3")
    loop.on_tf_data = True
    passed(loop, 9)
    loops.feed_a_call()
    assert loops.only_reads(loop)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # as TensorFlow imports JAX where it is installed
    assert loops.only_reads(loop)
    users = ModuleType("train")
    users.__file__ = "/home/user/train.py"
    monkeypatch.setitem(sys.modules, "train", users)
    assert loops.only_reads(loop)
    vars(users)["framework"] = sys.modules[name]
    assert not loops.only_reads(loop)


@pytest.mark.parametrize(
    ("users", "attacks", "reads"), [("torch", False, True), ("torch", True, False), ("jax", False, False)]
)
def test_where_backward_is_seen_a_data_loader_that_only_evaluates_is_said_to_read(
    users: str, attacks: bool, reads: bool, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = ModuleType(users)
    vars(framework)["cuda"] = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, users, framework)
    module = ModuleType("train")
    module.__file__ = "/home/user/train.py"
    vars(module)["framework"] = framework
    monkeypatch.setitem(sys.modules, "train", module)
    loops = WatchedLoops()
    training, validation = (begin(loops, f"train.py:{line}") for line in (3, 5))
    for _ in range(2):
        for _ in training.timed(Batches(20)):
            loops.see_backward()
        for _ in validation.timed(Batches(9)):
            if attacks:
                loops.see_gradient()
    assert [loops.only_reads(loop) for loop in (training, validation)] == [False, reads]
    assert ended(loops) == ["train.py:3", "train.py:5"]


def test_a_data_loader_is_not_said_to_read_where_no_loop_was_seen_to_train(begin: Callable[..., Any]) -> None:
    """As where a CUDA graph, whose `backward` was called as it was captured, trains in the loop."""
    loops = WatchedLoops()
    loops.see_backward()
    loop = begin(loops, "train.py:3")
    passed(loop, 20)
    assert not loops.only_reads(loop)


def test_a_data_loader_only_reads_where_backward_trains_again_and_again_on_what_no_loop_gives(
    begin: Callable[..., Any],
) -> None:
    """Also where it is left before its end, behind which the next call seems to train on its last batch."""
    for left in (False, True):
        loops = WatchedLoops()
        validation = begin(loops, "train.py:5")
        for _ in range(5):
            for _ in range(90):
                loops.see_backward()
            if left:
                for _, _ in zip(range(9), begin(loops, "train.py:5").timed(Batches(20)), strict=False):
                    pass
            else:
                passed(begin(loops, "train.py:5"), 9)
        for _ in range(90):
            loops.see_backward()
        assert loops.only_reads(validation)


@pytest.mark.parametrize(("every", "no_grad", "reads"), [(5, True, True), (5, False, False), (1, True, False)])
def test_a_batch_that_is_taken_without_gradients_now_and_then_is_no_training(
    every: int, no_grad: bool, reads: bool, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where each step takes one so, as of a critic's or of unlabelled data, it may be trained on."""
    records = [True]
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False), is_grad_enabled=lambda: records[0])
    monkeypatch.setitem(sys.modules, "torch", torch)
    loops = WatchedLoops()
    training, validation = (begin(loops, where) for where in ("train.py:3", "train.py:4"))
    batches, held_out = (loop.timed(Batches(200)) for loop in (training, validation))
    for step in range(100):
        next(batches)
        loops.see_backward()
        if step % every == 0:
            records[0] = not no_grad
            next(held_out)
            records[0] = True
    assert [loops.only_reads(loop) for loop in (training, validation)] == [False, reads]


def test_a_data_loader_each_of_whose_batches_many_calls_train_on_is_a_training(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    training = begin(loops, "train.py:5")
    for _ in training.timed(Batches(9)):
        for _ in range(200):
            loops.see_backward()
    assert loops.unfed_backward > 1000
    assert not loops.only_reads(training)


@pytest.mark.parametrize(
    ("of_torch", "trained"),
    [
        ({"_C": SimpleNamespace(_current_graph_task_id=lambda: 7)}, 0),
        ({"_C": SimpleNamespace(_current_graph_task_id=lambda: -1)}, 20),
        ({"_C": SimpleNamespace()}, 20),
        ({}, 20),
    ],
)
def test_a_backward_within_another_is_a_part_of_that(
    of_torch: dict[str, Any], trained: int, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of each block of a reentrant checkpoint, of which a model may have more than calls train on a batch."""
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False), **of_torch)
    )
    loops = WatchedLoops()
    loop = begin(loops, "train.py:3")
    for _ in loop.timed(Batches(20)):
        loops.see_backward()
    assert loop.trained_on == trained


def test_a_data_loader_that_trains_in_some_of_its_passes_gets_no_wait(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    for trains in (True, False):
        loop = begin(loops, "train.py:3")
        for _ in loop.timed(Batches(40)):
            if trains:
                loops.see_backward()
    begin(loops, "train.py:3")
    assert loop.summary.input_wait_share is None


@pytest.mark.parametrize(("steps", "expected"), [(40, []), (1, ["train.py:3"])])
def test_between_long_calls_of_fit_a_kept_iterator_gives_examples_and_for_those_of_a_step_batches(
    steps: int, expected: list[str], begin: Callable[..., Any]
) -> None:
    loops = WatchedLoops()
    batches = begin(loops, "train.py:3").timed(Batches(9))
    fit = SimpleNamespace(kept=SimpleNamespace(figures=SimpleNamespace(steps=steps)))
    for number in range(8):
        next(batches)
        loops.pass_fit(fit if number < 2 else None)
    assert ended(loops, fits=True) == expected


class Clock:
    """What loops read the time of, in place of the module."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (loaders, watched_loops):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Slow(Batches):
    """Batches each of which takes some time to make."""

    def __init__(self, count: int, clock: Clock, wait_ns: int) -> None:
        super().__init__(count)
        self.clock, self.wait_ns = clock, wait_ns

    def __next__(self) -> Any:
        self.clock.now_ns += self.wait_ns
        return super().__next__()


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("by_turns", [True, False])
@pytest.mark.parametrize(("waits_ns", "told"), [((8, 8), "train.py:3"), ((1, 15), "train.py:4")])
def test_two_iterators_of_two_lines_that_a_step_takes_from_are_one_training_that_waits_for_both(
    waits_ns: tuple[int, int], told: str, by_turns: bool, heard: bool, begin: Callable[..., Any], clock: Clock
) -> None:
    """Also where it trains on one of them, and then on the other; and where nothing is seen to train, as with JAX."""
    loops = WatchedLoops()
    monitors = [begin(loops, where) for where in ("train.py:3", "train.py:4")]
    real, noise = (loop.timed(Slow(200, clock, wait_ns)) for loop, wait_ns in zip(monitors, waits_ns, strict=True))
    for _ in range(100):
        next(real)
        if by_turns and heard:
            loops.feed_a_call()
        next(noise)
        if heard:
            loops.feed_a_call()
        clock.now_ns += 84
    assert ended(loops) == [told]
    (shown,) = (loop for _, loop in loops.shown(False))
    assert shown.record.log.totals.wait_share == pytest.approx(0.16, abs=0.01)
    other = "train.py:4" if told == "train.py:3" else "train.py:3"
    assert any(f"takes a batch in {other}" in remark for remark in shown.record.kept.remarks)


@pytest.mark.parametrize("every", [2, 5])
def test_a_loop_that_only_some_steps_take_from_is_told_by_itself(
    every: int, begin: Callable[..., Any], clock: Clock
) -> None:
    loops = WatchedLoops()
    training, now_and_then = (begin(loops, where) for where in ("train.py:3", "train.py:4"))
    batches, other = (loop.timed(Slow(200, clock, 8)) for loop in (training, now_and_then))
    for number in range(100):
        next(batches)
        loops.feed_a_call()
        clock.now_ns += 84
        if number % every == 0:
            next(other)
    assert ended(loops) == ["train.py:3", "train.py:4"]
    assert training.record.log.totals.wait_ns == 8 * training.record.log.totals.steps


def test_a_loop_whose_batches_are_made_of_another_loops_waits_for_those_once(
    begin: Callable[..., Any], clock: Clock
) -> None:
    loops = WatchedLoops()
    outer, inner = (begin(loops, where) for where in ("train.py:3", "train.py:4"))
    source = inner.timed(Slow(200, clock, 8))

    class Outer(Batches):
        def __next__(self) -> Any:
            next(source)
            return super().__next__()

    batches = outer.timed(Outer(200))
    for _ in range(100):
        next(batches)
        loops.feed_a_call()
        clock.now_ns += 92
    ended(loops)
    assert outer.record.log.totals.wait_share == pytest.approx(0.08)
    assert inner.record.log.totals.wait_share == pytest.approx(0.08)


def test_two_loops_of_two_lines_that_only_read_are_no_training_where_another_trains(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()
    loops.feed_a_call()
    labels, guesses = (begin(loops, where).timed(Batches(40)) for where in ("train.py:3", "train.py:4"))
    for _ in range(20):
        next(labels)
        next(guesses)
    assert ended(loops) == ["train.py:3", "train.py:4"]


def test_calls_that_train_go_on_to_be_watched_after_a_look_at_a_dataset(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()
    assert not loops.feed_a_call()
    loop = begin(loops, "train.py:3")
    for _ in loop.timed(Batches(100)):
        assert all(loops.feed_a_call() for _ in range(5))  # a critic's
    assert not any(loops.feed_a_call() for _ in range(200))


def test_data_that_have_ended_feed_two_calls_at_most(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    validation = begin(loops, "train.py:5")
    for _ in range(3):
        passed(validation, 9)
        assert [loops.feed_a_call() for _ in range(40)] == [True, True] + 38 * [False]
    assert validation.trained_on == 0


@pytest.mark.parametrize("calls", [1, 2])
def test_a_loop_that_asks_for_its_next_batch_before_it_trains_on_the_last_one_trains_on_that_too(
    calls: int, begin: Callable[..., Any]
) -> None:
    loops = WatchedLoops()
    training = begin(loops, "train.py:3")
    for number in range(3):
        passed(training, 1)
        assert all(loops.feed_a_call() for _ in range(calls))
        assert training.trained_on == number + 1


def test_an_epoch_of_one_batch_is_a_training_also_beside_a_larger_validation(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()
    training, validation, shows = (begin(loops, f"train.py:{line}") for line in (3, 5, 7))
    for _ in range(8):
        for _ in training.timed(Batches(1)):
            loops.feed_a_call()
        passed(validation, 9)
        passed(shows, 1)
    assert ended(loops) == ["train.py:3", "train.py:5"]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_short_epoch_to_the_end_of_its_data_is_a_training_where_no_call_can_be_seen_to_train(
    batches: int, begin: Callable[..., Any]
) -> None:
    loops = WatchedLoops()
    training, validation, shows, take = (begin(loops, f"train.py:{line}") for line in (3, 5, 7, 9))
    take.of_a_take = True
    for _ in range(8):
        passed(training, batches)
        passed(validation, 9)
        looked(shows)
        passed(take, 1)
    assert ended(loops) == ["train.py:3", "train.py:5"]


def test_examples_before_each_epoch_over_arrays_are_no_training(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    shows, validation = (begin(loops, f"train.py:{line}") for line in (3, 5))
    for _ in range(8):
        passed(shows, 1)
        for _ in range(100):
            loops.feed_a_call()
        passed(validation, 9)
    assert ended(loops) == ["train.py:5"]


def test_what_only_looks_leaves_its_place_to_another_line(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    for line in range(WATCHED_LOOPS):
        loop = begin(loops, f"train.py:{line}")
        looked(loop) if line == 2 else passed(loop, 9)
    assert begin(loops, "train.py:8") is not None
    assert begin(loops, "train.py:2") is None
    assert begin(loops, "train.py:9") is not None


def test_examples_that_are_shown_before_the_training_leave_their_place_to_it(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()
    for line, batches in enumerate((9, 5, 90, 9)):
        loop = begin(loops, f"train.py:{line}")
        passed(loop, batches)
    training = begin(loops, "train.py:8")
    taken = training.timed(Batches(90))
    for _ in range(5):
        next(taken)
        loops.feed_a_call()
    validation = begin(loops, "train.py:10")
    passed(validation, 9)
    assert begin(loops, "train.py:1") is None
    assert ended(loops) == ["train.py:2", "train.py:3", "train.py:8", "train.py:10"]


def test_a_loop_that_has_trained_once_keeps_its_place_and_what_had_none_is_named(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()
    for line in range(WATCHED_LOOPS - 1):
        passed(begin(loops, f"train.py:{line}"), 90)
    training = begin(loops, "train.py:8").timed(Batches(1))
    next(training)
    loops.feed_a_call()
    assert next(training, None) is None
    assert begin(loops, "train.py:9") is None
    assert begin(loops, "train.py:9") is None
    assert loops.unwatched == ["train.py:9"]


def test_what_another_thread_takes_beside_a_call_that_trains_does_not_feed_it(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    producer = threading.Thread(target=passed, args=(begin(loops, "train.py:3"), 40))
    producer.start()
    producer.join()
    assert not loops.feed_a_call()
    passed(begin(loops, "train.py:5"), 40)
    assert loops.feed_a_call()


class Data:
    """What a loop iterates over."""


def test_a_training_and_its_validation_in_one_line_are_two_loops(begin: Callable[..., Any]) -> None:
    loops, data = WatchedLoops(), (Data(), Data())
    for _ in range(3):
        for each, batches in zip(data, (40, 9), strict=True):
            passed(begin(loops, "train.py:3", each), batches)
    training, validation = (begin(loops, "train.py:3", each) for each in data)
    assert (training.passes.taken, validation.passes.taken) == (120, 27)
    assert ended(loops) == ["train.py:3", "train.py:3, data 2"]


def test_what_is_made_anew_for_each_epoch_takes_the_place_of_what_is_gone(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    for _ in range(6):
        one = Data()
        passed(begin(loops, "train.py:3", one), 9)
    assert ended(loops) == ["train.py:3"]
    loops, held = WatchedLoops(), {}
    for _ in range(6):
        for phase, batches in (("train", 40), ("val", 9)):
            held[phase] = Data()  # the one of the epoch before is gone by that
            passed(begin(loops, "train.py:3", held[phase]), batches)
    training, validation = (begin(loops, "train.py:3", each) for each in held.values())
    assert (training.passes.taken, validation.passes.taken) == (240, 54)
    assert ended(loops) == ["train.py:3", "train.py:3, data 2"]


def test_what_is_made_anew_takes_the_place_of_what_only_a_reading_of_the_local_variables_holds(
    begin: Callable[..., Any],
) -> None:
    loops = WatchedLoops()

    def train() -> None:
        for _ in range(3):
            one = Data()
            passed(begin(loops, "train.py:3", one), 9)
            assert sys._getframe().f_locals["one"] is one  # as AutoGraph reads them, until Python 3.13 a copy

    train()
    assert ended(loops) == ["train.py:3"]


def test_a_loop_that_begins_anew_as_its_data_end_goes_on_in_another_line(begin: Callable[..., Any]) -> None:
    """But not in what that line calls, as an evaluation after each epoch."""
    loops, loader, other = WatchedLoops(), Batches(20), Batches(20)
    batches = begin(loops, "train.py:3", loader).timed(Batches(20))

    def evaluate() -> None:
        passed(begin(loops, "train.py:9", loader), 20)

    for step in range(50):
        if step == 30:
            passed(begin(loops, "train.py:5", other), 20)
        try:
            next(batches)
        except StopIteration:
            evaluate()
            batches = begin(loops, f"train.py:{sys._getframe().f_lineno}", loader).timed(Batches(20))
            next(batches)
    passed(begin(loops, "train.py:12", loader), 20)  # an evaluation
    assert {str(where): loop.summary.steps for where, loop in loops.shown(fits=False)} == {
        "train.py:3": 48,
        "train.py:5": 19,
        "train.py:9": 39,
        "train.py:12": 19,
    }


def test_a_loop_goes_on_though_the_end_of_its_data_has_other_data_passed_over_that_were_known_before(
    begin: Callable[..., Any],
) -> None:
    loops, loader, held_out = WatchedLoops(), Batches(20), Batches(20)
    passed(begin(loops, "train.py:2", held_out), 20)
    batches = begin(loops, "train.py:3", loader).timed(Batches(20))
    for _ in range(50):
        try:
            next(batches)
        except StopIteration:
            passed(begin(loops, "train.py:7", held_out), 20)
            batches = begin(loops, f"train.py:{sys._getframe().f_lineno}", loader).timed(Batches(20))
            next(batches)
    steps = {str(where): loop.summary.steps for where, loop in loops.shown(fits=False)}
    assert steps == {"train.py:2": 19, "train.py:3": 48, "train.py:7": 39}


def test_two_calls_of_one_function_with_data_of_their_own_are_two_loops(begin: Callable[..., Any]) -> None:
    loops = WatchedLoops()
    for _ in range(3):
        for path, batches in ((1, 40), (2, 9)):
            passed(begin(loops, "train.py:3", Data(), path), batches)
    assert ended(loops) == ["train.py:3", "train.py:3, data 2"]


def test_data_that_are_made_anew_while_something_keeps_the_old_ones_leave_room_for_other_loops(
    begin: Callable[..., Any],
) -> None:
    loops, kept = WatchedLoops(), [Data() for _ in range(8)]
    for each in kept:
        passed(begin(loops, "train.py:3", each), 9)
    passed(begin(loops, "train.py:5"), 9)
    assert ended(loops) == ["train.py:3", "train.py:3, data 2", "train.py:5"]


def test_data_that_one_line_takes_from_together_are_one_loop(begin: Callable[..., Any]) -> None:
    loops, data = WatchedLoops(), (Data(), Data())
    for _ in range(2):
        both = [begin(loops, "train.py:3", each).timed(Batches(40)) for each in data]
        for _ in zip(*both, strict=True):
            pass
    assert ended(loops) == ["train.py:3"]


def test_what_follows_a_look_that_left_its_place_is_watched(begin: Callable[..., Any]) -> None:
    loops, shown, data = WatchedLoops(), Data(), Data()
    looked(begin(loops, "train.py:3", shown))
    for line in range(4, 4 + WATCHED_LOOPS):
        passed(begin(loops, f"train.py:{line}"), 90)
    loops_of_line = [begin(loops, "train.py:3", each) for each in (shown, data)]
    assert loops_of_line[0] is None
    assert "train.py:3, data 2" in loops.unwatched


@pytest.mark.parametrize(("phases", "judged"), [("train", True), ("train val", False)])
def test_a_training_and_a_validation_that_nothing_tells_apart_have_no_verdict(
    phases: str, judged: bool, begin: Callable[..., Any]
) -> None:
    loops = WatchedLoops()
    for _ in range(3):
        for phase in phases.split():
            for _ in begin(loops, "train.py:3", Data()).timed(Batches(40)):
                if phase == "train":
                    loops.feed_a_call()
    ended(loops)
    ((_, loop),) = loops.shown(False)
    assert ("in some passes over its data it trains and in others not" in loop.record.kept.figures.line) is not judged
    assert (loop.record.kept.figures.input_wait_share is not None) is judged


def test_a_step_that_evaluates_before_it_trains_keeps_the_time_of_its_training(
    begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that looks at a batch of another loop before it trains, and evaluates behind that, ends there."""
    now_ns = [10**9]
    for module in (loaders, watched_loops):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: now_ns[0]))
    loops = WatchedLoops()
    loop = begin(loops, "train.py:3")
    for number, _ in enumerate(loop.timed(Batches(40))):
        if number % 10 == 2:
            loops.see_evaluation()
            now_ns[0] += 100
        if number % 10 == 7:
            looked(begin(loops, "train.py:5"))
        loops.feed_a_call()
        now_ns[0] += 10
        if number % 10 == 7:
            loops.see_evaluation()
            now_ns[0] += 1000
    ended(loops)
    rows = loop.record.log.rows()
    assert (rows.end_ns - rows.start_ns).tolist() == [110 if number % 10 == 2 else 10 for number in range(40)]
