"""What the parent makes of events and samples, with a clock and a child that are made up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from pipeline_bench.errors import ProtocolError
from pipeline_bench.model import Series
from pipeline_bench.model.events import (
    IMPORT,
    Device,
    Done,
    Evaluated,
    Event,
    Failed,
    Phase,
    QueueDepths,
    QueueState,
    Stack,
    Stalled,
    Steps,
    Stopped,
    Storage,
    Work,
)
from pipeline_bench.model.task import KIND, MODEL_STEP, REBUILDING
from pipeline_bench.model.trial import Trial, plan
from pipeline_bench.run import follower, trial_log
from pipeline_bench.run.follower import reason, watch
from pipeline_bench.run.launcher import Child
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.run.trial_log import TrialLog
from pipeline_bench.samplers import Reading, Sampler
from pipeline_bench.scenario import Component, Run, Variant
from pipeline_bench.scenario.resolve import resolve
from tests.unit.records import scenario

NS_PER_S = 1_000_000_000


class Clock:
    """Time that passes only when someone waits."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class MadeUpChild(Child):
    """Gives out events at planned times of the fake clock, None for a part of one, then ends."""

    def __init__(
        self, clock: Clock, script: Sequence[tuple[float, Event | Exception | None]], exit_code: int = 0
    ) -> None:
        self.pid = -1
        self.launcher = "fresh"
        self._clock = clock
        self._script = list(script)
        self._exit_code = exit_code
        self._hangs = False
        self.closed = False

    @classmethod
    def hanging(cls, clock: Clock, script: Sequence[tuple[float, Event | Exception | None]]) -> MadeUpChild:
        child = cls(clock, script)
        child._hangs = True
        return child

    def read(self, timeout_s: float) -> list[Event]:
        until_ns = self._clock.now_ns + max(1, round(timeout_s * NS_PER_S))
        self.heard = False
        if self._script and self._script[0][0] * NS_PER_S <= until_ns:
            at_s, event = self._script.pop(0)
            self._clock.now_ns = max(self._clock.now_ns, round(at_s * NS_PER_S))
            if isinstance(event, Exception):
                raise event
            self.heard = True
            return [] if event is None else [event]
        self._clock.now_ns = until_ns
        return []

    @property
    def ended(self) -> bool:
        return not self._script and not self._hangs

    def wait(self, timeout_s: float) -> int | None:
        return self._exit_code if self.ended else None

    @property
    def dead(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.closed = True


class Counter(Sampler):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def poll(self) -> list[Reading]:
        return [Reading("cpu_seconds", "psutil", self._clock(), value=self._clock() / NS_PER_S)]


@pytest.fixture
def trial() -> Trial:
    return plan(scenario("fifo_queue", repeats=1))[0]


def steps(first: int, end_s: Sequence[float], step_s: float = 0.01, wait_s: float | None = 0.004) -> Steps:
    end_ns = np.array([round(end * NS_PER_S) for end in end_s], dtype=np.int64)
    wait = None if wait_s is None else Series.pack(np.full(len(end_ns), round(wait_s * NS_PER_S), dtype=np.int64))
    return Steps(
        first=first,
        start_ns=Series.pack(end_ns - round(step_s * NS_PER_S)),
        end_ns=Series.pack(end_ns),
        wait_ns=wait,
        loss=Series.pack(np.ones(len(end_ns))),
    )


def follow(log: TrialLog, child: MadeUpChild, clock: Clock, observer: Observer | None = None) -> str:
    return watch(log, child, [Counter(clock)], observer or Observer(), cores=2, clock_ns=clock)


class CountedReadings(list[Reading]):
    passes = 0

    def __iter__(self) -> Iterator[Reading]:
        self.passes += 1
        return super().__iter__()


def test_the_readings_are_grouped_by_one_pass() -> None:
    """It runs within a user's job, which may have a hundred thousand."""
    readings = CountedReadings(Reading(f"m{at % 3}", "s", at, float(at)) for at in range(9))
    found = trial_log.tracks(readings)
    assert {track.metric: track.values and track.values.unpack().tolist() for track in found} == {
        "m0": [0.0, 3.0, 6.0],
        "m1": [1.0, 4.0, 7.0],
        "m2": [2.0, 5.0, 8.0],
    }
    assert readings.passes == 1


def test_a_trial_that_says_done_is_ok_and_its_process_is_closed(trial: Trial) -> None:
    clock = Clock()
    child = MadeUpChild(clock, [(0.1, Phase(name="train", at_ns=1)), (0.5, steps(0, [0.2, 0.4])), (0.6, Done(at_ns=6))])
    log = TrialLog(trial, 0)
    assert follow(log, child, clock) == "ok"
    assert child.closed
    assert log.count == 2


def test_a_process_that_ends_without_a_word_has_failed_with_its_exit_code(trial: Trial) -> None:
    clock = Clock()
    child = MadeUpChild(clock, [(0.1, steps(0, [0.1]))], exit_code=-9)
    log = TrialLog(trial, 0)
    assert follow(log, child, clock) == "failed"
    failed = log.latest(Failed)
    assert failed is not None
    assert "SIGKILL" in failed.error


def test_a_broken_protocol_is_a_failed_trial(trial: Trial) -> None:
    clock = Clock()
    child = MadeUpChild.hanging(clock, [(0.1, ProtocolError("no event"))])
    log = TrialLog(trial, 0)
    assert follow(log, child, clock) == "failed"
    assert child.closed


def test_silence_for_longer_than_the_stall_timeout_is_a_stall(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_ask_for_stacks", lambda child: None)
    clock = Clock()
    child = MadeUpChild.hanging(clock, [(0.1, Phase(name="train", at_ns=0)), (50.0, steps(0, [50.0]))])
    log = TrialLog(trial, 0)
    assert follow(log, child, clock) == "stalled"
    # The step at 50 s counts: the stall timeout of 60 s and its grace run from there.
    assert clock.now_ns / NS_PER_S == pytest.approx(50 + 60 + follower.STALL_GRACE_S, abs=2 * follower.SAMPLE_EVERY_S)


def test_an_import_that_lets_no_thread_speak_has_its_own_time(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_ask_for_stacks", lambda child: None)
    clock = Clock()
    imports: list[tuple[float, Event | Exception | None]] = [(0.0, Phase(name=IMPORT, at_ns=0))]
    log = TrialLog(trial, 0)
    in_time = [*imports, (100.0, Phase(name="train", at_ns=1)), (101.0, steps(0, [101.0])), (102.0, Done(at_ns=2))]
    assert follow(log, MadeUpChild(clock, in_time), clock) == "ok"
    clock, log = Clock(), TrialLog(trial, 0)
    assert follow(log, MadeUpChild.hanging(clock, imports), clock) == "stalled"
    assert "or a process that the trial needs, did not start within 120 s" in str(reason(log, "stalled"))


def test_an_import_may_take_longer_where_it_has_to_wait_for_a_core(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one for half of the time; once it trains, a loop without end that shares its core is a stall."""
    clock, log = Clock(), TrialLog(trial, 0)
    monkeypatch.setattr(follower, "_ask_for_stacks", lambda child: None)
    monkeypatch.setattr(follower, "queued_s", lambda pid: clock.now_ns / NS_PER_S / 2)
    train: tuple[float, Event] = (200.0, Phase(name="train", at_ns=1))
    child = MadeUpChild.hanging(clock, [(0.0, Phase(name=IMPORT, at_ns=0)), train])
    assert follow(log, child, clock) == "stalled"
    assert log.phases[-1].name == "train"
    assert clock.now_ns / NS_PER_S == pytest.approx(200 + 60 + follower.STALL_GRACE_S, abs=1)


def test_signs_of_life_without_a_step_are_a_stall(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder tells of its queues; its watch is held up, and the stamps of its steps are of a patched clock."""
    monkeypatch.setattr(follower, "_ask_for_stacks", lambda child: None)
    clock = Clock()
    depths = QueueDepths(at_ns=1, queues=(QueueState(name="input", size=0, capacity=4),))
    script: list[tuple[float, Event | Exception | None]] = [(0.1, Phase(name="train", at_ns=10**18))]
    script += [(5.0, steps(0, [10**9])), *((5 + 0.25 * n, depths) for n in range(1, 4000))]
    log = TrialLog(trial, 0)
    assert follow(log, MadeUpChild.hanging(clock, script), clock) == "stalled"
    assert clock.now_ns / NS_PER_S == pytest.approx(5 + 60 + follower.STALL_GRACE_S, abs=1)
    assert "made no step for 60 s after step 1" in str(reason(log, "stalled"))


def test_a_slow_but_moving_trial_is_no_stall(trial: Trial) -> None:
    clock = Clock()
    script: list[tuple[float, Event | Exception]] = [(50.0 * i, steps(i - 1, [50.0 * i])) for i in range(1, 6)]
    child = MadeUpChild(clock, [*script, (251.0, Done(at_ns=1))])
    assert follow(TrialLog(trial, 0), child, clock) == "ok"


def test_an_interrupt_leaves_the_process_closed(trial: Trial) -> None:
    class Interrupts(Observer):
        def progress(self, trial: Trial, progress: Progress) -> None:
            raise KeyboardInterrupt

    clock = Clock()
    child = MadeUpChild.hanging(clock, [])
    with pytest.raises(KeyboardInterrupt):
        follow(TrialLog(trial, 0), child, clock, Interrupts())
    assert child.closed


def test_samples_are_taken_at_a_steady_pace_whatever_the_child_says(trial: Trial) -> None:
    clock = Clock()
    busy: list[tuple[float, Event | Exception]] = [(i / 100, steps(i, [i / 100])) for i in range(1, 200)]
    log = TrialLog(trial, 0)
    follow(log, MadeUpChild(clock, [*busy, (2.0, Done(at_ns=1))]), clock)
    stamps = [reading.at_ns / NS_PER_S for reading in log.readings]
    gaps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    assert min(gaps) >= follower.SAMPLE_EVERY_S * 0.99
    assert len(stamps) >= 2 / follower.SAMPLE_EVERY_S * 0.8


def test_progress_tells_step_time_and_wait_of_the_latest_steps(trial: Trial) -> None:
    log = TrialLog(trial, 0)
    log.apply(Phase(name="train", at_ns=0))
    log.apply(steps(0, [i * 0.1 for i in range(1, 300)], step_s=0.1, wait_s=0.0))
    log.apply(steps(299, [30 + i * 0.01 for i in range(300)], step_s=0.01, wait_s=0.005))
    progress = log.progress(40 * NS_PER_S, cores=2)
    assert progress.steps == 599
    assert progress.step_ms == pytest.approx(10)
    assert progress.input_wait_share == pytest.approx(0.5)


def test_a_wait_that_is_longer_than_its_step_counts_as_all_of_it(trial: Trial) -> None:
    log = TrialLog(trial, 0)
    log.apply(steps(0, [0.01], step_s=0.01, wait_s=3.0))
    log.apply(steps(1, [0.04], step_s=0.03, wait_s=0.0))
    assert log.progress(NS_PER_S, cores=2).input_wait_share == pytest.approx(0.25)


def test_before_the_first_step_nothing_is_claimed(trial: Trial) -> None:
    progress = TrialLog(trial, 0).progress(NS_PER_S, cores=2)
    assert (progress.step_ms, progress.input_wait_share, progress.device_utilization_percent) == (None, None, None)


def readings() -> Iterator[Reading]:
    yield Reading("cpu_seconds", "psutil", 0, value=0.0)
    yield Reading("device_utilization_percent", "NVML samples", 0, value=31.0)
    yield Reading("cpu_seconds", "psutil", NS_PER_S, value=1.5)


def shown_utilization(log: TrialLog, device: Device) -> tuple[float | None, str | None]:
    log.apply(device)
    progress = log.progress(NS_PER_S, cores=2)
    return progress.device_utilization_percent, progress.device_utilization_source


def test_the_utilization_shown_is_the_cpus_on_a_cpu_and_the_gpus_on_a_gpu(trial: Trial) -> None:
    log, cpu, gpu = TrialLog(trial, 0), Device(kind="cpu", name="CPU:0"), Device(kind="gpu", name="GPU:0")
    assert shown_utilization(log, cpu) == shown_utilization(log, gpu) == (None, None)
    for one in readings():  # as several samplers give them
        log.take([one])
    assert shown_utilization(log, cpu) == (75.0, "CPU time")
    assert shown_utilization(log, gpu) == (31.0, "NVML samples")


class Unsearched(list[Reading]):
    def __iter__(self) -> NoReturn:
        raise AssertionError("they are searched")

    __reversed__ = __iter__


def test_what_is_shown_beside_a_trial_is_not_searched_for_among_all_readings(trial: Trial) -> None:
    """Of a GPU that tells no utilization, as under MIG, all of them would be looked at, ten times a second."""
    log = TrialLog(trial, 0, readings=Unsearched([Reading("cpu_seconds", "psutil", 0, value=0.0)]))
    assert shown_utilization(log, Device(kind="gpu", name="GPU:0")) == (None, None)


def test_a_record_joins_what_came_in_pieces(trial: Trial) -> None:
    log = TrialLog(trial, 0)
    log.apply(Evaluated(when="before", accuracy=0.5))
    log.apply(steps(0, [0.1, 0.2]))
    log.apply(steps(2, [0.3]))
    log.apply(Evaluated(when="after", accuracy=0.8))
    log.take(list(readings()))
    found = log.record("ok", None, "fresh", Path("trials/x.stderr"), NS_PER_S)
    assert found.steps is not None
    assert found.steps.end_ns.unpack().tolist() == [NS_PER_S // 10, NS_PER_S // 5, 3 * NS_PER_S // 10]
    assert (found.accuracy.before, found.accuracy.after) == (0.5, 0.8)
    assert found.first_step_s == pytest.approx(0.1)
    assert [track.metric for track in found.samples] == ["cpu_seconds", "device_utilization_percent"]


def test_a_metric_that_could_not_be_read_is_a_track_with_a_reason(trial: Trial) -> None:
    log = TrialLog(trial, 0)
    log.take([Reading("device_utilization_percent", "NVML", 5, reason="not supported under MIG")])
    track = log.tracks()[0]
    assert track.values is None
    assert track.reason == "not supported under MIG"


def test_a_model_whose_step_takes_long_is_not_called_a_pipeline_that_gives_nothing() -> None:
    source = {"kind": KIND, "target": {"file": "train.py", "name": "make"}, "activity": "train"}
    none, run = Component(kind="none"), Run(stall_timeout_s=60)
    own = Component(kind=KIND, options=source)
    variant = Variant(name="own", backend="tf_data", source=own, model=none, loop=none, run=run)
    log = TrialLog(Trial(index=0, repeat=0, variant=variant), 0)
    log.apply(Phase(name="train", at_ns=0))
    log.apply(Stalled(phase=MODEL_STEP, steps=0, queues=(), stacks=()))
    told = follower._stall_reason(log)
    assert told.startswith("a step of your model did not end within 60 s, after step 0; its batch was there")
    log.apply(Stalled(phase=REBUILDING, steps=0, queues=(), stacks=()))
    assert follower._stall_reason(log) == "with this change the pipeline was not made within 60 s"
    worker = (f"Thread-{number} (worker)" for number in range(3))
    stacks = tuple(Stack(thread=name, frames=("load.py:7 in load", "scipy/filters.py:61 in one")) for name in worker)
    log.apply(Stalled(phase="train", steps=0, queues=(), stacks=stacks))
    assert follower._stall_reason(log) == (
        "your pipeline gave no element for 60 s after step 0 (elements that take longer need a larger "
        "--stall-timeout); Thread-0 (worker) and 2 other threads were at scipy/filters.py:61 in one"
    )


def test_a_stall_of_a_loop_that_trains_many_steps_a_call_says_so() -> None:
    """None of them is seen before the last one has ended, which may well be slow and no stall."""
    variants = [{"name": "many", "backend": "tf_data", "loop": {"kind": "while_loop", "steps_per_call": 70}}]
    trial = plan(resolve({"name": "test", "run": {"steps": 100, "repeats": 1}, "variants": variants}))[0]
    log = TrialLog(trial, 0)
    log.apply(Phase(name="train", at_ns=0))
    assert "after step 0 (the loop reports 70 at a time, " in follower._stall_reason(log)


class StoppedOnce(MadeUpChild):
    """A child; while this process waits for the event at 2 s, it is stopped for an hour, and finds nothing at first."""

    def read(self, timeout_s: float) -> list[Event]:
        if NS_PER_S < self._clock.now_ns < 2 * NS_PER_S:
            self._clock.now_ns += 3600 * NS_PER_S
            return []
        return super().read(timeout_s)


def test_a_parent_that_was_stopped_catches_up_before_it_calls_a_trial_stalled(trial: Trial) -> None:
    clock = Clock()
    child = StoppedOnce(clock, [(0.5, Phase(name="train", at_ns=0)), (2.0, steps(0, [2.0])), (2.1, Done(at_ns=6))])
    assert follow(TrialLog(trial, 0), child, clock) == "ok"


@pytest.mark.parametrize(("silence_s", "status"), [((1, 3602), "failed"), ((3595, 3700), "ok")])
def test_a_trial_that_was_stopped_together_with_its_parent_is_no_figure(
    trial: Trial, silence_s: tuple[int, int], status: str
) -> None:
    """One in which something held Python's lock about when the parent was stopped is one."""
    clock = Clock()
    silence = Stopped(from_ns=silence_s[0] * NS_PER_S, to_ns=silence_s[1] * NS_PER_S)
    log = TrialLog(trial, 0)
    child = StoppedOnce(clock, [(0.5, Phase(name="train", at_ns=0)), (2.0, silence), (2.1, Done(at_ns=6))])
    assert follow(log, child, clock) == status
    assert ("and this program with it" in str(reason(log, "failed"))) is (status == "failed")


def test_an_event_that_takes_longer_to_arrive_than_a_stall_is_no_stall(trial: Trial) -> None:
    clock = Clock()
    patience_s = trial.variant.run.stall_timeout_s + follower.STALL_GRACE_S
    parts = [(0.6 * patience_s * part, None) for part in range(1, 6)]
    whole: tuple[float, Event] = (parts[-1][0] + 0.1, Failed(error="ValueError: a long one"))
    log = TrialLog(trial, 0)
    assert (
        follow(log, MadeUpChild.hanging(clock, [(0.1, Phase(name="train", at_ns=1)), *parts, whole]), clock) == "failed"
    )
    assert reason(log, "failed") == "ValueError: a long one"


def test_the_depth_of_each_queue_is_kept_for_the_times_it_answered(trial: Trial) -> None:
    log = TrialLog(trial, 0)
    for at_ns, first, second in ((10, 3, 1), (20, None, 2), (30, 5, 0)):
        states = (QueueState(name="a", size=first, capacity=5), QueueState(name="b", size=second, capacity=9))
        log.apply(QueueDepths(at_ns=at_ns, queues=states))
    log.apply(Work(checked_steps=3, samples=24, batch_size=8))
    left = log.record("ok", None, "fresh", Path("trials/x.stderr"), 100)
    assert [(d.name, d.capacity, d.at_ns.unpack().tolist(), d.size.unpack().tolist()) for d in left.queue_depths] == [
        ("a", 5, [10, 30], [3, 5]),
        ("b", 9, [10, 20, 30], [1, 2, 0]),
    ]
    assert left.work is not None
    assert left.work.samples == 24


def test_what_was_seen_of_the_files_is_in_the_record(tmp_path: Path) -> None:
    log = TrialLog(plan(scenario("feed_dict"))[0], started_ns=0)
    assert log.record("ok", None, "fresh", tmp_path / "trials" / "1.stderr", 1).storage is None
    found = Storage(asked="cold", size_bytes=7, resident_share=0.25)
    log.apply(found)
    assert log.record("ok", None, "fresh", tmp_path / "trials" / "1.stderr", 1).storage == found


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (("below/train.py:7 in make", "lib/python3.11/queue.py:171 in get"), "below/train.py:7 in make"),
        (("a/train.py:7 in make", "tensorflow/python/x.py:1 in run"), "a/train.py:7 in make"),
        (("a/train.py:7 in make", "python3.13/multiprocessing/queues.py:1 in get"), "a/train.py:7 in make"),
        (("lib/python3.11/threading.py:1 in run", "lib/python3.11/queue.py:171 in get"), "queue.py:171 in get"),
        (("main.py:1 in a", "user/python3.py:2 in b"), "user/python3.py:2 in b"),
        ((), "an unknown place"),
    ],
)
def test_a_thread_stands_at_the_line_that_its_owner_can_mend(frames: tuple[str, ...], found: str) -> None:
    assert follower.innermost(Stack(thread="t", frames=frames)).endswith(found)


@pytest.mark.parametrize(("ends_s", "values"), [([0.2, 0.9], None), ([0.2, 1.9], [250.0])])
def test_power_is_kept_of_trials_whose_steps_take_as_long_as_it_is_a_mean_over(
    trial: Trial, ends_s: list[float], values: list[float] | None
) -> None:
    log = TrialLog(trial, 0)
    log.apply(steps(0, ends_s))
    log.take([Reading("device_power_watts", "NVML power usage", NS_PER_S, 250.0)])
    (track,) = log.tracks()
    assert (track.values and track.values.unpack().tolist()) == values
    assert ("a mean over 1.00 s" in (track.reason or "")) == (values is None)
