"""The child's recorder: what it ships, when it ends a trial, and what it says of a stall."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline_bench.model.events import (
    Event,
    Failed,
    Phase,
    QueueDepths,
    QueueState,
    Stalled,
    Steps,
    Stopped,
    Work,
    decode,
)
from pipeline_bench.model.task import MODEL_STEP
from pipeline_bench.scenario import Run
from pipeline_bench.sources import Identity
from pipeline_bench.system import main_thread
from pipeline_bench.worker import recorder as recorders
from pipeline_bench.worker.recorder import Channel, Recorder, thread_stacks
from pipeline_bench.worker.sample_audit import NumberedAudit

MS = 1_000_000


class Pipe:
    """A channel into a file, which unlike a pipe needs no reader, and the events that went into it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.channel = Channel(self._write)

    def events(self) -> list[Event]:
        os.close(self._write)
        return [decode(line) for line in self._path.read_bytes().splitlines()]


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    return Pipe(tmp_path / "events")


def record_steps(recorder: Recorder, count: int) -> int:
    """Record up to `count` steps of 1 ms; return how many it took."""
    for i in range(count):
        if not recorder(i * MS, (i + 1) * MS, 7, 1.0 / (i + 1)):
            return i + 1
    return count


def test_every_step_is_shipped_once_and_in_order(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "SHIP_EVERY_S", 0.001)
    recorder = Recorder(pipe.channel, Run(steps=20_000))
    recorder.start()
    assert record_steps(recorder, 20_000) == 20_000
    recorder.finish()
    steps = [event for event in pipe.events() if isinstance(event, Steps)]
    assert [event.first for event in steps] == list(np.cumsum([0] + [event.loss.count for event in steps[:-1]]))
    ends = np.concatenate([event.end_ns.unpack() for event in steps])
    np.testing.assert_array_equal(ends, np.arange(1, 20_001) * MS)


@pytest.mark.parametrize(
    ("run", "expected"), [(Run(steps=7), 7), (Run(time_s=0.0105), 12), (Run(steps=1), 1), (Run(time_s=1e-9), 2)]
)
def test_a_trial_ends_with_its_length(pipe: Pipe, run: Run, expected: int) -> None:
    assert record_steps(Recorder(pipe.channel, run), 100) == expected


def test_a_trial_of_some_seconds_is_not_over_with_a_first_step_that_takes_longer(pipe: Pipe) -> None:
    recorder = Recorder(pipe.channel, Run(time_s=2.0))
    assert recorder(0, 2100 * MS, 0, 0.5)  # an H100's, which loads its kernels then
    ends = [recorder(2100 * MS + step * MS, 2101 * MS + step * MS, 0, 0.5) for step in range(2000)]
    assert ends.index(False) == 1999


def test_a_loop_that_has_warmed_up_counts_its_first_step(pipe: Pipe) -> None:
    recorder = Recorder(pipe.channel, Run(time_s=2.0), warmed_up=True)
    assert not recorder(0, 2100 * MS, 0, 0.5)


def test_an_input_without_a_wait_ships_none_and_not_zero(pipe: Pipe) -> None:
    recorder = Recorder(pipe.channel, Run(steps=5))
    recorder.train(waits=False)
    recorder.start()
    record_steps(recorder, 5)
    recorder.finish()
    (steps,) = [event for event in pipe.events() if isinstance(event, Steps)]
    assert steps.wait_ns is None


def test_a_process_that_is_dead_ends_the_trial_with_its_name_and_what_was_taken(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "SHIP_EVERY_S", 0.001)
    left, released = threading.Event(), threading.Event()

    def leave(ok: bool) -> None:
        assert not ok
        left.set()
        released.wait()  # it does not return

    monkeypatch.setattr(recorders, "leave", leave)
    recorder = Recorder(pipe.channel, Run(steps=20))
    recorder.guard(lambda stalled_s: "worker 1 was killed by SIGKILL" if recorder.steps and stalled_s is None else None)
    recorder.train()
    recorder.start()
    record_steps(recorder, 3)
    assert left.wait(20)
    phase, steps, failed = pipe.events()
    assert isinstance(phase, Phase)
    assert isinstance(steps, Steps)
    assert failed == Failed(error="worker 1 was killed by SIGKILL")
    recorder.guard(lambda stalled_s: None)
    released.set()
    recorder.finish()


def test_a_stall_is_told_once_with_queues_and_threads(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "SHIP_EVERY_S", 0.005)
    recorder = Recorder(pipe.channel, Run(stall_timeout_s=0.02))
    recorder.watch(lambda: [QueueState(name="input_queue", size=0, capacity=5)])
    recorder.phase("train")
    recorder.start()
    time.sleep(0.2)
    recorder.finish()
    phase, stalled = pipe.events()
    assert isinstance(phase, Phase)
    assert isinstance(stalled, Stalled)
    assert stalled.queues[0].size == 0
    assert stalled.stacks[0].thread == "MainThread"
    assert any("test_recorder.py" in frame for frame in stalled.stacks[0].frames)


def test_a_process_that_was_stopped_says_so_and_calls_that_no_stall(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, slept_ns = time.monotonic_ns(), [0]
    monkeypatch.setattr(recorders, "SHIP_EVERY_S", 0.005)
    monkeypatch.setattr(recorders, "monotonic_ns", lambda: now_ns + slept_ns[0])
    recorder = Recorder(pipe.channel, Run(stall_timeout_s=60))
    recorder.phase("train")
    recorder.start()
    time.sleep(0.1)
    slept_ns[0] = 3600 * 1000 * MS
    time.sleep(0.1)
    recorder.finish()
    train, stopped = pipe.events()
    assert train == Phase(name="train", at_ns=now_ns)
    assert stopped == Stopped(from_ns=now_ns, to_ns=now_ns + slept_ns[0])


class Looks:
    """A clock that stands still but while a recorder looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self._now_s = monkeypatch, 0.0
        monkeypatch.setattr(recorders, "monotonic_ns", self.now_ns)

    def now_ns(self) -> int:
        return round(self._now_s * 1000 * MS)

    def of(self, recorder: Recorder, seconds: float) -> None:
        """Have it look for so long."""

        def wait(timeout_s: float) -> bool:
            self._now_s += timeout_s
            return self._now_s > seconds

        self._monkeypatch.setattr(recorder._ended, "wait", wait)
        recorder._keep_shipping()


@pytest.mark.parametrize(
    ("lasts_s", "is_queued", "expected"), [(100, False, {Phase}), (200, False, {Phase, Stalled}), (200, True, {Phase})]
)
def test_an_import_that_hangs_is_a_stall_and_not_one_that_takes_long_or_waits_for_a_core(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, lasts_s: float, is_queued: bool, expected: set[type[Event]]
) -> None:
    looks = Looks(monkeypatch)
    if is_queued:
        monkeypatch.setattr(recorders, "queued_s", lambda _: looks.now_ns() / 1e9)
    recorder = Recorder(pipe.channel, Run(stall_timeout_s=30))
    recorder.phase("import")
    looks.of(recorder, lasts_s)
    assert {type(event) for event in pipe.events()} == expected


@pytest.mark.parametrize(("computes", "lasts_s", "stalls"), [(True, 200, False), (False, 200, True), (True, 400, True)])
def test_a_models_step_that_computes_may_take_longer_than_an_element(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, computes: bool, lasts_s: float, stalls: bool
) -> None:
    looks = Looks(monkeypatch)
    monkeypatch.setattr(recorders, "process_time_ns", looks.now_ns if computes else lambda: 0)
    recorder = Recorder(pipe.channel, Run(stall_timeout_s=30))
    recorder.phase("train")
    recorder.doing(MODEL_STEP)
    looks.of(recorder, lasts_s)
    assert any(isinstance(event, Stalled) for event in pipe.events()) is stalls


def test_stacks_name_every_other_thread() -> None:
    release = threading.Event()

    def waits_here() -> None:
        release.wait()

    names = ("a producer", "a \udcff\x1b]0;title\x07 thread")
    threads = [threading.Thread(target=waits_here, name=name) for name in names]
    for thread in threads:
        thread.start()
    try:
        found = {stack.thread: stack.frames for stack in thread_stacks()}
    finally:
        release.set()
        for thread in threads:
            thread.join()
    for shown in ("a producer", "a \\xff thread"):
        assert any("in waits_here" in frame for frame in found[shown])
    assert threading.current_thread().name not in found


def test_a_thread_that_waits_where_its_script_trains_is_not_shown() -> None:
    thread = threading.Thread(target=main_thread.park, name="parked", daemon=True)
    thread.start()
    frames = sys._current_frames
    while frames()[thread.ident or 0].f_code.co_filename != main_thread.__file__:
        time.sleep(0.01)
    assert "parked" not in {stack.thread for stack in thread_stacks()}


class Numbers:
    """A loop's side of the audit: brings the numbers of a batch whenever they are due."""

    def __init__(self, batch_size: int) -> None:
        self.audit = NumberedAudit(
            batch_size, Identity(1000, lambda numbers: (numbers % 1000).astype(np.float32)), reorder_window=0
        )
        self.batch_size = batch_size

    def run(self, recorder: Recorder, steps: int, step_us: int, bring: bool = True) -> list[int]:
        """Run steps of so many microseconds; return which of them were due."""
        due = []
        for i in range(steps):
            digest = None
            if recorder.should_sample:
                due.append(i)
                numbers = np.arange(i * self.batch_size, (i + 1) * self.batch_size, dtype=np.float64)
                digest = np.concatenate([numbers, numbers % 1000]) if bring else None
            recorder(i * step_us * 1000, (i + 1) * step_us * 1000, 0, 0.5, digest)  # type: ignore[arg-type]
        return due


def audited(pipe: Pipe, steps: int = 100) -> tuple[Recorder, Numbers]:
    """A recorder that has begun and accounts for samples, and what brings them."""
    recorder, numbers = Recorder(pipe.channel, Run(steps=steps)), Numbers(4)
    recorder.start()
    recorder.audit_samples(numbers.audit, cost_us=10)
    return recorder, numbers


def account(pipe: Pipe) -> tuple[Work, tuple[int, int, int]]:
    """What was told of the samples, and how many were lost, repeated and invented."""
    (work,) = [event for event in pipe.events() if isinstance(event, Work)]
    assert work.numbered is not None
    return work, (work.numbered.lost, work.numbered.repeated, work.numbered.invented)


def test_every_step_of_a_slow_model_is_sampled_and_accounted_for(pipe: Pipe) -> None:
    recorder, numbers = audited(pipe)
    assert numbers.run(recorder, 100, step_us=4000) == list(range(100))
    recorder.finish()
    work, faults = account(pipe)
    assert (work.checked_steps, work.every, work.samples, faults) == (100, 1, 400, (0, 0, 0))


def test_who_fell_silent_is_told_with_the_account_of_the_samples(pipe: Pipe) -> None:
    recorder, numbers = audited(pipe)
    recorder.guard(
        lambda _: "worker 1 was killed by SIGKILL", was_silent=lambda: ["worker 2 did not answer for a while"]
    )
    numbers.run(recorder, 100, step_us=4000)
    recorder.fail()
    work, _ = account(pipe)
    assert work.silent == ("worker 1 was killed by SIGKILL", "worker 2 did not answer for a while")


def test_of_a_fast_model_one_step_in_some_is_sampled(pipe: Pipe) -> None:
    recorder, numbers = audited(pipe)
    due = numbers.run(recorder, 100, step_us=100)
    assert due == [0, 1, *range(3, 10), *range(10, 100, 10)]
    recorder.finish()
    work, faults = account(pipe)
    assert (work.checked_steps, work.every, faults) == (len(due), 10, (0, 0, 0))


def test_a_step_that_is_not_sampled_is_among_the_first_wherever_later_ones_may_not_be(pipe: Pipe) -> None:
    """What it fetches is prepared at its first run, which takes tens of milliseconds: that must be warm-up."""
    recorder, numbers = audited(pipe)
    assert numbers.run(recorder, 100, step_us=1000) == [i for i in range(100) if i != 2]
    recorder.finish()
    work, faults = account(pipe)
    assert (work.checked_steps, work.steps, faults) == (99, 100, (0, 0, 0))


def test_a_source_whose_account_raises_costs_the_account_and_not_the_trial(pipe: Pipe) -> None:
    recorder, numbers = Recorder(pipe.channel, Run(steps=50)), Numbers(4)

    def broken(_: object) -> None:
        raise IndexError("no such sample")

    numbers.audit.take = broken  # type: ignore[assignment, method-assign]
    recorder.start()
    recorder.audit_samples(numbers.audit, cost_us=10)
    numbers.run(recorder, 50, step_us=4000)
    recorder.finish()
    events = pipe.events()
    assert sum(event.loss.count for event in events if isinstance(event, Steps)) == 50
    (reason,) = [event.reason for event in events if isinstance(event, Work)]
    assert reason == "its samples could not be accounted for: IndexError: no such sample"


def test_a_loop_that_brings_no_evidence_leaves_a_reason(pipe: Pipe) -> None:
    recorder, numbers = audited(pipe, 5)
    numbers.run(recorder, 5, step_us=1000, bring=False)
    recorder.finish()
    (work,) = [event for event in pipe.events() if isinstance(event, Work)]
    assert work.reason


def test_the_depths_of_the_queues_are_shipped_once_there_are_steps(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "SHIP_EVERY_S", 0.001)
    recorder = Recorder(pipe.channel, Run(steps=10))
    asked = threading.Semaphore(0)

    def sizes() -> list[QueueState]:
        asked.release()
        return [QueueState(name="input", size=3, capacity=5)]

    recorder.watch(sizes)
    recorder.start()
    assert not asked.acquire(timeout=0.05)
    record_steps(recorder, 10)
    assert asked.acquire(timeout=10)
    recorder.finish()
    depths = [event for event in pipe.events() if isinstance(event, QueueDepths)]
    assert depths
    assert depths[0].queues == (QueueState(name="input", size=3, capacity=5),)


def test_the_busy_time_of_an_emulated_device_is_shipped_and_that_of_a_real_one_is_none_and_not_zero(pipe: Pipe) -> None:
    for has_busy in (True, False):
        recorder = Recorder(pipe.channel, Run(steps=5))
        recorder.train(busy=has_busy)
        recorder.start()
        for i in range(5):
            recorder(i * MS, (i + 1) * MS, 7, 1.0, None, 100 + i)
        recorder.finish()
    emulated, real = [event for event in pipe.events() if isinstance(event, Steps)]
    assert emulated.busy_ns is not None
    assert emulated.busy_ns.unpack().tolist() == [100, 101, 102, 103, 104]
    assert real.busy_ns is None


def test_a_long_phase_says_that_it_goes_on_now_and_then(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [0]
    monkeypatch.setattr(recorders, "monotonic_ns", lambda: now_ns[0])
    recorder = Recorder(pipe.channel, Run(steps=10, stall_timeout_s=60))
    recorder.phase("storage")
    for second in range(60):
        now_ns[0] = second * 1000 * MS
        recorder.heartbeat()
    phases = [event for event in pipe.events() if isinstance(event, Phase)]
    assert {phase.name for phase in phases} == {"storage"}
    assert [phase.at_ns // MS // 1000 for phase in phases] == [0, 16, 32, 48]
