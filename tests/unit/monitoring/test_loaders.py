"""Timing an iterator of Python's: it stays what it is, and its waits become steps."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from pipeline_bench.analysis import wall_time
from pipeline_bench.injection import loader_iterators
from pipeline_bench.monitoring import loaders
from pipeline_bench.monitoring.loaders import LoaderMonitor


class Batches:
    def __init__(self, count: int) -> None:
        self.left = count

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class Fails(Batches):
    def __next__(self) -> int:
        raise ValueError("theirs")


def test_the_batches_of_several_passes_are_steps(tmp_path: Path) -> None:
    monitor = LoaderMonitor("loop", "torch", tmp_path)
    for _ in range(2):
        batches = monitor.timed(Batches(20))
        assert (type(batches).__name__, isinstance(batches, Batches)) == ("Batches", True)
        assert list(batches) == list(range(19, -1, -1))
    assert monitor.summary.steps == 39  # the first one is left out
    assert monitor.summary.input_wait_share is not None
    monitor.close()
    assert monitor.record.kept is not None
    assert monitor.record.kept.folder is not None


@pytest.mark.parametrize("wait_ms", [1.0, 30.0])
def test_the_verdict_on_a_loop_that_diagnose_refuses_does_not_send_there(wait_ms: float) -> None:
    monitor = LoaderMonitor("loop", "torch")
    starts = np.arange(100) * 40_000_000
    monitor.record.log.extend(starts, starts + 40_000_000, int(wait_ms * 1e6))
    for figures in (monitor.summary, monitor.close().figures):
        assert "of its mean step of 40.0 ms for the batch" in figures.verdict.reason
        assert "diagnose" not in figures.verdict.reason


def test_an_iterator_that_serves_every_pass_is_timed_once(tmp_path: Path) -> None:
    monitor = LoaderMonitor("loop", "torch")
    batches = Batches(20)
    for _ in range(3):
        batches = monitor.timed(batches)
        batches.left = 20
        list(batches)
    assert monitor.summary.steps == 59
    monitor.drop()


def test_what_the_iterator_raises_passes_through(tmp_path: Path) -> None:
    monitor = LoaderMonitor("loop", "torch")
    with pytest.raises(ValueError, match="theirs"):
        next(monitor.timed(Fails(1)))
    monitor.drop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("pinned", "ready"), [(None, 2.0), (3, 5.0)])
def test_what_a_data_loaders_workers_have_ready_is_told(pinned: int | None, ready: float) -> None:
    class Loader(Batches):
        _task_info: ClassVar[dict[int, tuple[Any, ...]]] = {1: (0,), 2: (0, "batch")}
        _num_workers, _prefetch_factor = 3, 2
        _worker_result_queue = SimpleNamespace(qsize=lambda: 1)
        _data_queue = _worker_result_queue if pinned is None else SimpleNamespace(qsize=lambda: pinned)

    monitor = LoaderMonitor("loop", "torch")
    monitor.timed(Batches(1))
    assert monitor._buffered() is None
    iterator = monitor.timed(Loader(1))
    assert monitor._buffered() == (ready, 6.0)
    del iterator  # as after a break: what it has started ends with it
    assert monitor._buffered() is None
    monitor.drop()


def test_iterators_that_threads_take_from_on_one_line_have_steps_of_their_own() -> None:
    monitor = LoaderMonitor("loop", "torch")
    both_ask = threading.Barrier(2)

    def take(end: Callable[[Any], object]) -> None:
        iterator = monitor.timed(Batches(20))
        for _ in range(20):
            both_ask.wait()
            next(iterator)
        end(iterator)

    with ThreadPoolExecutor(2) as pool:
        left = pool.submit(take, monitor.timed)  # the pass is left: its last step has no end
        ended = pool.submit(take, list)
    assert (left.result(), ended.result()) == (None, None)
    monitor.read(settled=True)
    rows = monitor.record.log.rows()
    assert len(rows.count) == 19 + 20
    # Each step of either lies beside a step of the other.
    assert (rows.end_ns[:-2] >= rows.start_ns[1:-1]).all()
    monitor.drop()


def test_iterators_that_one_loop_takes_from_in_turn_have_steps_in_common() -> None:
    monitor = LoaderMonitor("loop", "torch")
    for _ in zip(*(monitor.timed(Batches(20)) for _ in range(3)), strict=True):
        pass
    monitor.read(settled=True)
    assert len(monitor.record.log.rows().count) == 20
    monitor.drop()


@pytest.mark.parametrize(("trains_there", "judged"), [(False, False), (True, True), (None, True)])
def test_what_a_thread_beside_the_training_waits_for_is_no_input_wait(trains_there: bool | None, judged: bool) -> None:
    monitor, trains_in = LoaderMonitor("loop", "torch"), set[int]()
    monitor.trains_in = None if trains_there is None else trains_in

    def take() -> None:
        if trains_there:
            trains_in.add(threading.get_ident())
        list(monitor.timed(Batches(40)))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert (monitor.summary.input_wait_share is not None) is judged
    kept = monitor.close()
    assert (kept.session.results[0].input_wait_share.value is not None) is judged
    assert (kept.session.wall_time is not None) is judged
    assert ("a thread beside the main one takes the batches" in kept.figures.line) is not judged
    assert (kept.figures.verdict_name == "no verdict") is not judged


def test_what_the_main_thread_takes_is_judged_wherever_something_trains() -> None:
    monitor = LoaderMonitor("loop", "torch")
    monitor.trains_in = {threading.get_ident() + 1}
    list(monitor.timed(Batches(40)))
    assert monitor.close().figures.input_wait_share is not None


def test_a_loop_that_makes_an_iterator_for_each_batch_is_measured_and_told_so() -> None:
    monitor = LoaderMonitor("loop", "torch")
    for _ in range(40):
        next(monitor.timed(Batches(20)))
    assert not monitor.only_looks
    kept = monitor.close()
    assert monitor.summary.steps >= 30
    assert kept.figures.input_wait_share is not None
    assert [remark.startswith("it makes an iterator for every batch") for remark in monitor.record.remarks] == [True]


def test_who_shows_a_batch_after_each_epoch_of_another_loop_makes_no_steps() -> None:
    shows, trains = LoaderMonitor("shows", "torch"), LoaderMonitor("trains", "torch")
    for _ in range(10):
        list(trains.timed(Batches(4)))
        next(shows.timed(Batches(20)))
    assert shows.only_looks
    assert (shows.summary.steps, shows.is_training, trains.is_training) == (0, False, True)
    shows.drop()
    trains.drop()


@pytest.mark.parametrize("cycles", [True, False])
@pytest.mark.parametrize("around", [iter, lambda batches: (each for each in (each for each in batches))])
def test_batches_that_itertools_cycle_repeats_are_told(
    around: Callable[[Iterator[int]], Iterator[int]], cycles: bool
) -> None:
    """Also those of a generator, as of the `__iter__` of fastai's loader."""
    monitor = LoaderMonitor("loop", "torch")
    batches = around(monitor.timed(Batches(40)))
    taken = list(itertools.islice(itertools.cycle(batches), 90)) if cycles else list(batches)
    assert taken[:40] == list(range(39, -1, -1))
    assert _tells_cycle(monitor) == (cycles, cycles)


def _tells_cycle(monitor: LoaderMonitor) -> tuple[bool, bool]:
    told = [remark for remark in monitor.close().remarks if "itertools.cycle keeps the batches" in remark]
    assert len(told) <= 1
    return bool(told), monitor.is_cycled


def _looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many objects each look goes over, which grows."""
    looked: list[int] = []
    plain = gc.get_objects

    def get_objects() -> list[Any]:
        looked.append(len(plain()))
        return plain()

    monkeypatch.setattr(gc, "get_objects", get_objects)
    return looked


def test_a_cycle_of_each_epochs_batches_is_told_after_a_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = _looks(monkeypatch)
    monitor = LoaderMonitor("loop", "torch")
    for _ in range(9):
        list(itertools.islice(itertools.cycle(monitor.timed(Batches(10))), 25))
    assert _tells_cycle(monitor) == (True, True)
    assert len(looked) == loaders._MOST_LOOKS


@pytest.mark.parametrize(
    ("others", "cycles_others", "expected"), [(60, False, False), (20, False, False), (20, True, True)]
)
def test_a_cycle_in_a_zip_is_told_only_where_all_of_it_is_cycled(
    others: int, cycles_others: bool, expected: bool
) -> None:
    monitor = LoaderMonitor("loop", "torch")
    for _ in range(2):
        cycled, other = monitor.timed(Batches(20)), monitor.timed(Batches(others))
        pairs = zip(itertools.cycle(cycled), itertools.cycle(other) if cycles_others else other, strict=False)
        assert len(list(itertools.islice(pairs, 90))) == (90 if cycles_others else others)
    assert _tells_cycle(monitor) == (expected, expected)


@pytest.mark.parametrize(("names_it", "looks"), [(True, 1), (False, 0)])
def test_who_names_no_cycle_does_not_wait_for_a_look_at_all_objects(
    names_it: bool, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = _looks(monkeypatch)
    monitor = LoaderMonitor("loop", "torch")

    def take() -> None:
        for _ in range(3):
            list(monitor.timed(Batches(20)))

    def take_though_it_names_it() -> None:
        assert itertools.cycle is not None
        take()

    with ThreadPoolExecutor(1) as pool:  # pytest itself is not among what calls it
        assert pool.submit(take_though_it_names_it if names_it else take).result() is None
    assert len(looked) == looks
    monitor.drop()


class _ReadsAhead:
    def __init__(self, batches: Iterator[int]) -> None:
        self.batches = batches

    def __next__(self) -> int:
        return next(self.batches)


class _Loader:
    def __iter__(self) -> Iterator[int]:
        return Batches(20)


def loaders_class(monitor: LoaderMonitor) -> Any:
    """A class of loaders whose batches the monitor times, those of its later subclasses too."""
    base = type("Loader", (_Loader,), {"__iter__": _Loader.__iter__})
    watched: Any = SimpleNamespace(
        inside_library=nullcontext, batches=lambda iterator, _, __, making_ns: monitor.timed(iterator, making_ns)
    )
    loader_iterators.time_iterators(base, watched, lambda: "torch")
    loader_iterators._time_later_subclasses(base, watched, lambda: "torch")
    return base


@pytest.mark.parametrize(
    "around", [_ReadsAhead, iter, lambda batches: (each for each in batches), lambda _: Batches(20)]
)
def test_what_the_iter_of_a_later_subclass_returns_is_timed_or_else_what_it_is_made_of(
    around: Callable[[Iterator[int]], Iterator[int]],
) -> None:
    monitor = LoaderMonitor("loop", "torch")

    class Own(loaders_class(monitor)):  # type: ignore[misc] # it is made here
        def __iter__(self) -> Iterator[int]:
            return around(super().__iter__())

    iterator = iter(Own())
    for _ in range(20):
        next(iterator)
    assert monitor.summary.steps == 18  # whole ones, without the first
    monitor.drop()


class _OwnIterator:
    left: Iterator[int]

    def __next__(self) -> int:
        return next(self.left)


def test_a_loader_that_is_its_own_iterator_stays_of_its_class_and_what_it_takes_from_is_timed() -> None:
    """Else it could neither be pickled nor copied."""
    monitor = LoaderMonitor("loop", "torch")

    class Own(_OwnIterator, loaders_class(monitor)):  # type: ignore[misc] # it is made here
        def __iter__(self) -> Iterator[int]:
            self.left = super().__iter__()
            return self

    loader = Own()
    for _ in range(2):
        assert len(list(loader)) == 20
    loader.left = iter(())
    assert type(loader) is Own
    assert type(copy.deepcopy(loader)) is Own
    assert monitor.summary.steps == 39
    monitor.drop()


def test_the_workers_that_an_iter_forks_keep_no_iterator_that_they_make() -> None:
    """As of a dataset whose every sample is made of another loader's batches."""

    class Loader:
        def __init__(self, forks: bool) -> None:
            self.forks, self.worker = forks, 0

        def __iter__(self) -> Iterator[int]:
            self.worker = os.fork() if self.forks else 0
            if self.forks and not self.worker:
                is_kept = True
                try:
                    is_kept = weakref.ref(iter(Loader(forks=False)))() is not None
                finally:
                    os._exit(int(is_kept))
            return Batches(20)

    watched: Any = SimpleNamespace(inside_library=nullcontext, batches=lambda iterator, *_: iterator)
    loader_iterators.time_iterators(Loader, watched, lambda: "torch")
    loader = Loader(forks=True)
    assert len(list(loader)) == 20
    assert os.waitpid(loader.worker, 0)[1] == 0


def test_an_iterator_of_a_timed_ones_class_is_what_it_would_be_without_that() -> None:
    monitor = LoaderMonitor("loop", "torch")
    other = type(monitor.timed(Batches(20)))(9)
    assert list(other) == list(range(8, -1, -1))
    assert monitor.summary.steps == 0
    monitor.drop()


def test_an_iterators_workers_start_within_the_wait_for_its_first_batch_and_end_within_its_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100]
    clock = SimpleNamespace(monotonic_ns=lambda: now_s[0] * 10**9)
    monkeypatch.setattr(loaders, "time", clock)
    monkeypatch.setattr(loader_iterators, "time", clock)

    class Slow(Batches):
        def __next__(self) -> int:
            now_s[0] += 1 if self.left else 4  # its workers end
            return super().__next__()

    class Loader:
        def __iter__(self) -> Iterator[int]:
            now_s[0] += 5  # its workers start
            return Slow(10)

    monitor = LoaderMonitor("loop", "torch")

    def batches(iterator: Any, _: str, __: Any, making_ns: int) -> Any:
        return monitor.timed(iterator, making_ns)

    watched: Any = SimpleNamespace(inside_library=nullcontext, batches=batches)
    loader_iterators.time_iterators(Loader, watched, lambda: "torch")
    for _ in range(3):
        for _ in Loader():
            now_s[0] += 2
    time = monitor.passes.wall_time()
    assert time is not None
    assert [(epoch.first_wait_ns or 0) // 10**9 for epoch in time.epochs] == [6, 6, 6]
    assert [(epoch.wait_ns or 0) // 10**9 for epoch in time.epochs[1:]] == [15, 15]
    parts = dict(wall_time.parts(time))
    assert (parts[wall_time.REST], parts.get(wall_time.BETWEEN)) == (3 * 4, None)
    monitor.drop()
