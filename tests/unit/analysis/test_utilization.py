"""What a GPU says of itself over the measured steps: its utilization, and what GPM tells beneath it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline_bench.analysis import measured, utilization
from pipeline_bench.analysis.results import summarise
from pipeline_bench.analysis.utilization import with_longer_trials
from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.model import Series
from pipeline_bench.model.result import Precision, Result
from pipeline_bench.model.selftest import Window
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Track
from pipeline_bench.report import step_parts
from pipeline_bench.samplers.nvml_metrics import ACTIVITY, RATES_SOURCE, SAMPLES_SOURCE
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records

UTILIZATION, SMS = "device_utilization_percent", "device_sm_active_percent"
S = 10**9


def track(
    metric: str, source: str, at_s: npt.ArrayLike, values: npt.ArrayLike, from_s: npt.ArrayLike | None = None
) -> Track:
    def ns(seconds: npt.ArrayLike) -> Series:
        return Series.pack(np.round(np.asarray(seconds) * S).astype(np.int64))

    column = Series.pack(np.asarray(values, dtype=np.float64))
    spans = None if from_s is None else ns(from_s)
    return Track(metric=metric, source=source, at_ns=ns(at_s), values=column, from_ns=spans)


def session(
    *samples: Track, steps: int = 200, repeats: int = 1, known: Sequence[Window] = (), wait_ms: float = 0.0
) -> Session:
    """Trials of `steps` steps of 10 ms on a GPU, beside ceilings of as much less as they wait."""
    scenario = records.scenario("fifo_queue", repeats=repeats)
    trials = [
        records.record(name, repeat, step_ms, wait, steps=steps, gpu=True, samples=samples, noise=1e-4)
        for repeat in range(repeats)
        for name, step_ms, wait in (("fifo_queue", 10.0, wait_ms), ("ceiling", 10.0 - wait_ms, None))
    ]
    results = summarise(scenario, trials, 2, known)
    machine = describe(Accelerator())
    return Session(started_at="x", scenario=scenario, environment=machine, trials=tuple(trials), results=results)


def result(*samples: Track, steps: int = 200, repeats: int = 1, known: Sequence[Window] = ()) -> Result:
    return session(*samples, steps=steps, repeats=repeats, known=known).results[0]


def test_rates_of_a_trial_that_is_shorter_than_their_second_are_no_figure() -> None:
    at_s = np.arange(0.1, 0.9, 0.1)
    used = result(track(UTILIZATION, RATES_SOURCE, at_s, at_s * 0 + 40), steps=80).device_utilization
    assert used.mean_percent is None
    assert "run more steps" in (used.reason or "")


def validated(*samples: Track, again_s: float, between_ms: float = 0.0) -> dict[bool, float | None]:
    """Percent of 200 steps of 10 ms, of which the second half begins so much later, as after an evaluation.

    By whether they are of the steps alone. `between_ms`: of each step, what lies behind it.
    """
    found = session(*samples)
    trial = found.trials[0]
    assert trial.steps is not None
    later_ns = np.where(np.arange(200) < 100, 0, int(again_s * S))
    moved = {name: getattr(trial.steps, name).unpack() + later_ns for name in ("start_ns", "end_ns")}
    moved["end_ns"] = moved["end_ns"] - int(between_ms * 1e6)
    packed = {name: Series.pack(at_ns) for name, at_ns in moved.items()}
    trial = trial.model_copy(update={"steps": trial.steps.model_copy(update=packed)})
    (run,) = measured.of(found.scenario, [trial], 2)[trial.variant].values()
    return {alone: utilization.of([run], 2, steps_alone=alone).mean_percent for alone in (True, False)}


def test_what_a_gpu_did_between_the_steps_is_no_part_of_their_utilization() -> None:
    """It is busy in the steps, until 1 s and from 6 s on, and idle in the evaluation between them."""
    at_s = np.arange(0.25, 7.0, 0.2)
    busy = np.where((at_s < 1.0) | (at_s > 6.2), 90.0, 5.0)
    for between_ms in (0.0, 2.0):  # what a loop does between any two steps is a part of it
        found = validated(track(UTILIZATION, SAMPLES_SOURCE, at_s, busy), again_s=5.0, between_ms=between_ms)
        assert found[True] == 90.0
        assert 0.0 < (found[False] or 0.0) < 50.0, "of a trial it is all of its time"
    between = at_s[(at_s > 1.0) & (at_s < 6.0)]
    found = validated(track(UTILIZATION, SAMPLES_SOURCE, between, np.full(between.size, 5.0)), again_s=5.0)
    assert found[True] is None


def test_a_window_that_the_selftest_found_counts_in_place_of_the_longest() -> None:
    at_s = np.arange(0.1, 0.9, 0.1)
    known = [Window(source=RATES_SOURCE, window_ms=200, latency_ms=100)]
    used = result(track(UTILIZATION, RATES_SOURCE, at_s, at_s * 100), steps=80, known=known).device_utilization
    assert used.mean_percent == pytest.approx(60, abs=6)  # of 0.3 (or 0.4) s to 0.8 s


def test_the_instruments_own_error_is_in_the_interval() -> None:
    at_s = np.arange(0.2, 2.0, 0.1)
    one = track(UTILIZATION, SAMPLES_SOURCE, at_s, at_s * 0 + 40)
    known = [Window(source=SAMPLES_SOURCE, window_ms=100, latency_ms=0, error_points=3.0)]
    assert result(one, repeats=3).device_utilization.ci95 == pytest.approx((40, 40))
    assert result(one, repeats=3, known=known).device_utilization.ci95 == pytest.approx((37, 43))
    assert result(one).device_utilization.ci95 is None
    assert result(one, known=known).device_utilization.ci95 == pytest.approx((37, 43))


@pytest.mark.parametrize(("steps", "points"), [(100, 4.24), (400, 1.95), (6400, 1.0)])
def test_the_interval_of_one_trial_is_as_wide_as_so_few_figures_make_it(steps: int, points: float) -> None:
    """A single figure is within 12 points; of a trial's steps of 10 ms there are 8, 38 and 638 windows of 100 ms."""
    at_s = np.arange(0.1, 100.0, 0.1)
    one = track(UTILIZATION, RATES_SOURCE, at_s, at_s * 0 + 40)
    known = [Window(source=RATES_SOURCE, window_ms=100, latency_ms=0, error_points=1.0, figure_points=12.0)]
    low, high = result(one, steps=steps, known=known).device_utilization.ci95 or (0.0, 0.0)
    assert (40 - low, high - 40) == pytest.approx((points, points), rel=0.02)


def test_gpm_counts_where_its_window_lies_within_the_measured_steps() -> None:
    from_s, at_s = [-0.5, 0.5, 1.0, 1.5], [0.5, 1.0, 1.5, 3.0]
    (found,) = result(track(SMS, "NVML GPM", at_s, [90, 10, 20, 90], from_s)).device_utilization.activity
    assert found.mean == pytest.approx(15)
    assert found.samples == 2
    assert found.window_ms == pytest.approx(500)
    assert found.coverage == pytest.approx(0.5, abs=0.06)


def test_gpm_counts_from_where_a_late_figure_speaks_of_the_measured_steps() -> None:
    at_s = np.arange(0.1, 1.9, 0.1)
    late = np.where(at_s < 0.25, 0.0, 100.0)  # an H100's are up to 177 ms late
    (found,) = result(track(SMS, "NVML GPM", at_s, late, at_s - 0.1)).device_utilization.activity
    assert found.mean == pytest.approx(100)


def test_gpm_figures_weigh_as_long_as_their_own_window_whatever_time_passed_between_them() -> None:
    one = track(SMS, "NVML GPM", [0.6, 1.6], [10, 40], from_s=[0.4, 1.2])
    (found,) = result(one).device_utilization.activity
    assert found.mean == pytest.approx(30)  # 200 ms of 10 %, 400 ms of 40 %
    assert found.coverage == pytest.approx(0.3, abs=0.04)


def test_a_gpu_without_gpm_says_why() -> None:
    (found,) = result(Track(metric=SMS, source="NVML GPM", reason="older than Hopper")).device_utilization.activity
    assert (found.mean, found.reason) == (None, "older than Hopper")


@pytest.mark.parametrize(("percent", "wait_ms", "said"), [(12.0, 0.2, True), (80.0, 0.2, False), (12.0, 4.0, False)])
def test_a_fed_gpu_with_idle_sms_has_small_kernels(percent: float, wait_ms: float, said: bool) -> None:
    at_s = np.arange(0.2, 2.0, 0.2)
    shown = step_parts.of_gpu(session(track(SMS, "NVML GPM", at_s, at_s * 0 + percent, at_s - 0.2), wait_ms=wait_ms))
    assert ("small kernels, not data" in shown[0][1]) is said


def test_every_metric_has_its_own_source_window_and_coverage_or_reason() -> None:
    at_s = np.arange(0.2, 2.0, 0.2)
    found = session(
        track(UTILIZATION, SAMPLES_SOURCE, np.arange(0.1, 2.0, 0.1), np.full(19, 40.0)),
        track(SMS, "NVML GPM", at_s, at_s * 0 + 80, at_s - 0.2),
        track("device_dram_percent", "NVML GPM", at_s[4:], at_s[4:] * 0 + 3, at_s[4:] - 0.2),
        track("device_pcie_rx_mib_per_s", "NVML GPM", at_s, at_s * 0 + 900, at_s - 0.2),
        Track(metric="device_tensor_percent", source="NVML GPM", reason="no permission"),
    )
    ((names, said),) = step_parts.of_gpu(found)
    assert names == "fifo_queue; ceiling"
    assert said == (
        "kernels ran 40 % (NVML samples, windows of 167 ms, 94 % of the measured time); "
        "SMs busy 80 %, PCIe in 900 MiB/s (NVML GPM, windows of 200 ms, 70 % of the measured time); "
        "tensor cores (not measured: no permission); "
        "DRAM 3 % (NVML GPM, windows of 200 ms, 50 % of the measured time)"
    )


def test_a_gpu_without_gpm_has_a_line_that_says_why() -> None:
    lost = Track(metric=UTILIZATION, source=SAMPLES_SOURCE, reason="the GPU was lost")
    gone = [Track(metric=metric, source="NVML GPM", reason="no GPM") for metric in ACTIVITY[:2]]
    ((_, said),) = step_parts.of_gpu(session(lost, *gone))
    assert said == "kernels ran (not measured: the GPU was lost); SMs busy, warps (not measured: no GPM)"


# --- trials that are long enough for it -------------------------------------------------------------------------------


def rounds_of(step_ms: dict[str, float], rounds: int = 1, *, gpu: bool = True, **changes: Any) -> Session:
    """A session that runs rounds of 60 steps until all is decided, after so many of them."""
    variants = [{"name": name, "backend": "ceiling" if name == "ceiling" else "feed_dict"} for name in step_ms]
    scenario = resolve({"name": "short", "run": {"steps": 60}, "variants": variants})
    trials = [
        records.record(name, number, ms, gpu=gpu, steps=60) for number in range(rounds) for name, ms in step_ms.items()
    ]
    return records.session(scenario, trials, precision=Precision(goal=None, budget_s=60), **changes)


def lengths(session: Session) -> dict[str, int | None]:
    return {variant.name: variant.run.steps for variant in with_longer_trials(session).scenario.variants}


def test_on_a_gpu_trials_are_as_long_from_the_second_round_on_as_nvml_needs() -> None:
    short = rounds_of({"feed_dict": 1.0, "other": 2.0, "ceiling": 0.5})
    assert lengths(short) == dict.fromkeys(("feed_dict", "other", "ceiling"), 1020)  # 17 times 60: 1 s of the fastest
    longer = with_longer_trials(short)
    assert with_longer_trials(longer).scenario == longer.scenario


def test_the_slowest_variant_does_not_take_the_budget() -> None:
    assert lengths(rounds_of({"feed_dict": 1.0, "other": 20.0, "ceiling": 0.5})) == dict.fromkeys(
        ("feed_dict", "other", "ceiling"), 240
    )  # 4.8 s


def test_slow_steps_and_those_of_a_cpu_stay_as_many() -> None:
    assert lengths(rounds_of({"feed_dict": 50.0, "ceiling": 9.0})) == {"feed_dict": 60, "ceiling": 60}
    assert lengths(rounds_of({"feed_dict": 1.0, "ceiling": 0.5}, gpu=False)) == {"feed_dict": 60, "ceiling": 60}


def test_within_a_round_and_in_a_plan_of_the_users_nothing_changes() -> None:
    begun = rounds_of({"feed_dict": 1.0, "ceiling": 0.5})
    half = begun.model_copy(update={"trials": begun.trials[:1]})
    planned = begun.model_copy(update={"precision": None})
    narrowed = begun.model_copy(update={"precision": Precision(goal=0.02, budget_s=60)})
    for session in (half, planned, narrowed, rounds_of({"feed_dict": 1.0, "ceiling": 0.5}, 2)):
        assert set(lengths(session).values()) == {60}
