"""The steps that count: what others disturbed is left out, what is the input's own stays in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline_bench.analysis import measured
from pipeline_bench.analysis.difference import between
from pipeline_bench.analysis.results import summarise
from pipeline_bench.model import Series
from pipeline_bench.model.trial import Track, TrialRecord
from pipeline_bench.run.comparison import load_note
from tests.unit.records import NS_PER_MS, record, rounds, scenario, session, track
from tests.unit.sessions import CPU

WINDOW_MS = 100


def tracks(until_ms: float, disturbed: tuple[float, float] | None, others_percent: float = 60.0) -> tuple[Track, ...]:
    """Samples of a machine that others use from one time to another, and that is busy meanwhile."""
    at_ms = np.arange(WINDOW_MS, until_ms + WINDOW_MS, WINDOW_MS)
    low, high = disturbed or (np.inf, np.inf)
    inside = (at_ms > low) & (at_ms <= high)
    values = {"machine_cpu_percent": np.where(inside, 100.0, 60.0), "other_cpu_percent": inside * others_percent}
    return tuple(track(name, at_ms * NS_PER_MS, column, "psutil") for name, column in values.items())


def trials(disturbed: tuple[float, float] | None, wait_ms: float = 4.0, slowed_ms: float = 6.0) -> list[TrialRecord]:
    """Three rounds of steps of 10 ms, which others make longer for a while in each trial."""
    found = []
    for repeat in range(3):
        for name, usual_ms, wait in (("feed_dict", 10.0, wait_ms), ("ceiling", 5.0, None)):
            ends_ms = np.cumsum(np.full(100, usual_ms))
            inside = (ends_ms > disturbed[0]) & (ends_ms <= disturbed[1]) if disturbed else np.zeros(100, dtype=bool)
            steps_ms = np.where(inside, usual_ms + slowed_ms, usual_ms)
            samples = tracks(
                float(steps_ms.sum()), disturbed and (disturbed[0], disturbed[1] + slowed_ms * inside.sum())
            )
            found.append(record(name, repeat, steps_ms.tolist(), wait, samples=samples))
    return found


def test_steps_in_windows_that_others_took_are_left_out() -> None:
    of = scenario("feed_dict")
    found = measured.of(of, trials((200.0, 400.0)), cores=2)["feed_dict"][0]
    assert np.max(found.step_ms) == pytest.approx(10.0)
    assert found.taken < 0.05
    assert 50 < found.step_ms.size < 90


def test_a_difference_of_two_sessions_is_of_the_steps_that_their_figures_are_of() -> None:
    of = scenario("feed_dict")
    before, after = (session(of, trials(disturbed), environment=CPU) for disturbed in (None, (200.0, 400.0)))
    changed = between(before, after).variants[0]
    utilization = changed.accelerator_utilization
    assert utilization.change is not None
    assert utilization.ci95 is not None
    assert utilization.ci95[0] <= utilization.change <= utilization.ci95[1]
    assert changed.step_ms_after == pytest.approx(10.0)


def test_without_other_work_every_step_counts() -> None:
    of = scenario("feed_dict")
    ran = trials(None)
    found = measured.of(of, ran, cores=2)["feed_dict"][0]
    assert found.step_ms.size == 100 - ran[0].warmup_steps


def test_bursts_of_the_input_itself_stay_in_beside_other_work() -> None:
    """Every tenth batch takes 40 ms more, also while others use the machine for a part of the time."""
    of = scenario("feed_dict")
    bursty = [4.0] * 9 + [44.0]
    ran = []
    for repeat in range(3):
        ran.append(record("feed_dict", repeat, bursty * 20, 4.0, samples=tracks(1600, (400.0, 800.0))))
        ran.append(record("ceiling", repeat, [4.0] * 200, None, samples=tracks(800, None)))
    found = summarise(of, ran, cores=2)[0]
    assert found.accelerator_utilization.value == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("computes", ["the model", "the input"])
def test_steps_count_whatever_they_do_to_a_machine_that_others_use_now_and_then(computes: str) -> None:
    """The others take a core of two for 2 of 5 s, and slow nothing; the machine is full while the trial computes."""
    waiting_ms, computing_ms, burst = np.full(20, 25.0), np.full(100, 5.0), (20.0, 0.5)
    steps_ms = np.tile(np.concatenate([waiting_ms, computing_ms]), 10)
    waits_ms = np.tile(np.repeat(burst, (20, 100)), 10)
    truth = waits_ms.sum() / steps_ms.sum()
    at_ms = np.arange(WINDOW_MS, steps_ms.sum() + WINDOW_MS, WINDOW_MS)
    is_waiting = (at_ms - 1) % 1000 < 500
    ran = []
    for repeat in range(8):
        others = ((at_ms - 1 + 700 * repeat) % 5000 < 2000) * 50.0
        own = np.where(is_waiting == (computes == "the input"), 50.0, 15.0)
        values = {"machine_cpu_percent": own + others, "other_cpu_percent": others}
        samples = tuple(track(name, at_ms * NS_PER_MS, column, "psutil") for name, column in values.items())
        trial = record("feed_dict", repeat, steps_ms.tolist(), 1.0, samples=samples)
        ran.append(with_steps(trial, wait_ns=(waits_ms * NS_PER_MS).astype(np.int64).tolist()))
    found = summarise(scenario("feed_dict", repeats=8), ran, cores=2)[0]
    assert found.steps < 0.9 * 8 * steps_ms.size, "those beside the others are left out"
    assert found.input_wait_share.value == pytest.approx(truth, abs=0.03)


def test_where_nothing_is_quiet_all_of_it_counts_and_the_doubt_is_wider() -> None:
    of = scenario("feed_dict")
    quiet = summarise(of, trials(None), cores=2)[0]
    busy = summarise(of, trials((0.0, 1e9)), cores=2)[0]
    assert busy.steps == quiet.steps
    assert quiet.accelerator_utilization.ci95 is not None
    assert busy.accelerator_utilization.ci95 is not None
    assert np.ptp(busy.accelerator_utilization.ci95) > 2 * np.ptp(quiet.accelerator_utilization.ci95)


def test_a_trial_that_is_spoilt_whole_leaves_the_others_theirs() -> None:
    ran = trials(None)
    spoilt = trials((0.0, 1e9))
    mixed = [*ran[:4], *spoilt[4:]]
    found = measured.of(scenario("feed_dict"), mixed, cores=2)["feed_dict"]
    assert set(found) in ({0, 1}, {0, 1, 2})
    assert all(each.level == found[0].level for each in found.values())


def with_steps(trial: TrialRecord, **columns: Sequence[int]) -> TrialRecord:
    """The trial with other columns of its steps."""
    assert trial.steps is not None
    packed = {name: Series.pack(np.asarray(column, dtype=np.int64)) for name, column in columns.items()}
    return trial.model_copy(update={"steps": trial.steps.model_copy(update=packed)})


@pytest.mark.parametrize("set_by_s", [-60.0, 0.5])
def test_a_clock_that_is_set_during_a_step_spoils_that_step_alone(set_by_s: float) -> None:
    waits_ms = np.full(100, 1.0)
    waits_ms[70] += set_by_s * 1e3
    ran = rounds({"feed_dict": (10.0, 1.0), "ceiling": (8.9, None)})
    ran[2] = with_steps(ran[2], wait_ns=(waits_ms * NS_PER_MS).astype(np.int64).tolist())
    share = summarise(scenario("feed_dict"), ran, cores=2)[0].input_wait_share.value
    assert share == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("set_by_s", [-60.0, 60.0])
def test_a_clock_that_is_set_while_an_emulated_device_is_busy_spoils_that_step_alone(set_by_s: float) -> None:
    busy_ms = np.full(100, 5.0)
    busy_ms[70] += set_by_s * 1e3
    trial = with_steps(record("feed_dict", 0, 10.0), busy_ns=(busy_ms * NS_PER_MS).astype(np.int64).tolist())
    assert measured.Measured(measured.AllSteps(trial)).busy_share == pytest.approx(0.5, abs=0.02)


def test_steps_to_which_a_clock_that_was_set_leaves_no_time_are_measured_all_the_same() -> None:
    """Of the steps of one call those before the clock was set end, by its stamps, when the call begins."""
    ran = rounds({"feed_dict": (10.0, 1.0), "ceiling": (8.9, None)})
    ran[2] = record("feed_dict", 1, [0.0] * 70 + [200.0] + [10.0] * 29, 1.0)
    found = summarise(scenario("feed_dict"), ran, cores=2)[0]
    assert found.step_ms.median == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize(("busy", "said"), [(0.05, False), (0.5, True), (1.0, True)])
def test_a_busy_machine_is_told_of_before_anything_is_measured(busy: float, said: bool) -> None:
    assert (load_note(busy) is not None) == said


def test_a_level_at_which_too_few_steps_are_left_for_a_verdict_is_not_chosen() -> None:
    of = scenario("feed_dict")
    ran = [
        record("feed_dict", 0, [10.0] * 100, 4.0, samples=tracks(1000, None)),
        record("ceiling", 0, [5.0] * 100, None, samples=tracks(500, (100.0, 500.0))),
    ]
    found = summarise(of, ran, cores=2)[0]
    assert "came after warm-up" not in found.verdict.text


def test_a_round_is_not_left_out_where_one_would_remain() -> None:
    """Of two rounds the second is spoilt whole, but for the baseline's trial: an interval needs both."""
    of = scenario("feed_dict", "tf_data")
    spoilt = {("tf_data", 1), ("ceiling", 1)}
    ran = []
    for repeat in range(2):
        for name, step_ms, wait_ms in (("feed_dict", 10.0, 4.0), ("tf_data", 8.0, 2.0), ("ceiling", 5.0, None)):
            disturbed = (0.0, 1e9) if (name, repeat) in spoilt else None
            samples = tracks(1000, disturbed, others_percent=95.0)
            ran.append(record(name, repeat, [step_ms] * 100, wait_ms, samples=samples))
    found = {result.variant: result for result in summarise(of, ran, cores=2)}
    assert found["tf_data"].speedup.ci95 is not None
    assert found["tf_data"].input_wait_share.ci95 is not None


def test_a_variant_without_a_ceiling_in_its_rounds_leaves_the_others_their_quiet_steps() -> None:
    """A fix that is tried when the ceiling is known well enough has none beside it."""
    of = scenario("feed_dict", "fifo_queue", "tf_data")
    quiet, disturbed = tracks(3000.0, None), tracks(2000.0, (0.0, 500.0))
    steps_ms = [30.0] * 17 + [10.0] * 150
    trials = [record("feed_dict", repeat, steps_ms, 5.0, samples=disturbed) for repeat in range(4)]
    for name, wait in (("fifo_queue", 5.0), ("ceiling", None)):
        trials += [record(name, repeat, 9.5, wait, samples=quiet) for repeat in range(2)]
    late = [record("tf_data", repeat, 9.5, 5.0, samples=quiet) for repeat in (2, 3)]
    without, beside = (
        {result.variant: result for result in summarise(of, some, cores=2)} for some in (trials, [*trials, *late])
    )
    assert without["feed_dict"].step_ms.mean == pytest.approx(10.0, rel=0.05)
    assert beside["feed_dict"].step_ms.mean == without["feed_dict"].step_ms.mean
    assert beside["fifo_queue"].speedup.difference == "none"
