"""From trials to results: figures that are known by how the trials were built."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_bench.analysis import stats
from pipeline_bench.analysis.results import summarise
from pipeline_bench.model import Series, task
from pipeline_bench.model.result import Result
from pipeline_bench.model.trial import AccuracyPair, Track, TrialRecord
from pipeline_bench.report import facts
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from tests.unit.records import NS_PER_MS, record, rounds, scenario, session, track


def results(trials: list[TrialRecord], *backends: str, repeats: int = 3) -> dict[str, Result]:
    return {result.variant: result for result in summarise(scenario(*backends, repeats=repeats), trials, cores=2)}


def test_a_step_splits_into_wait_compute_and_host_slowdown() -> None:
    found = results(rounds({"feed_dict": (10.0, 4.0), "ceiling": (5.0, None)}), "feed_dict")["feed_dict"]
    assert found.input_wait_share.value == pytest.approx(0.4, rel=0.02)
    assert found.accelerator_utilization.value == pytest.approx(0.5, rel=0.02)
    assert found.host_slowdown_share.value == pytest.approx(0.1, abs=0.01)
    assert found.host_slowdown_ms.value == pytest.approx(1.0, abs=0.1)
    parts = [found.input_wait_share.value, found.accelerator_utilization.value, found.host_slowdown_share.value]
    assert sum(part for part in parts if part is not None) == pytest.approx(1.0)


def test_no_interval_reaches_below_nothing() -> None:
    """Of a wait without a ceiling beside it, and of the step of a ceiling whose two trials differ much."""
    found = results(rounds({"feed_dict": (10.0, 0.1)}, 2), "feed_dict", repeats=2)["feed_dict"]
    assert found.input_wait_share.ci95 is not None
    assert found.input_wait_share.ci95[0] == 0
    tops = [record("ceiling", repeat, step_ms, None) for repeat, step_ms in enumerate((5.0, 6.5))]
    top = results(tops, "feed_dict", repeats=2)["ceiling"].ceiling_ms
    assert top.value == pytest.approx(5.75, rel=0.02)
    assert top.ci95 is not None
    assert top.ci95[0] == 0


def test_other_work_makes_a_wait_and_a_speedup_less_known() -> None:
    at_ns = [100 * NS_PER_MS * tick for tick in range(1, 12)]
    busy = [
        track(metric, at_ns, percent, "psutil")
        for metric, percent in (("machine_cpu_percent", 100.0), ("other_cpu_percent", 50.0))
    ]
    widths = []
    for samples in ((), busy):
        of_ms = {"feed_dict": (10.0, 4.0), "tf_data": (6.0, 0.1)}
        trials = [record(name, repeat, *ms, samples=samples) for repeat in range(3) for name, ms in of_ms.items()]
        found = results(trials, "feed_dict", "tf_data")
        wait, speedup = found["feed_dict"].input_wait_share.ci95, found["tf_data"].speedup.ci95
        assert wait is not None
        assert speedup is not None
        widths.append((wait[1] - wait[0], speedup[1] - speedup[0]))
    assert widths[1][0] > 1.5 * widths[0][0]
    assert widths[1][1] > 1.02 * widths[0][1]


def test_rounds_that_agree_by_chance_are_doubted_where_those_of_the_other_variants_do_not() -> None:
    def wait_interval(of_others_ms: list[float]) -> tuple[float, float]:
        waits_ms = {"tf_data": [3.0, 3.0, 3.0], "feed_dict": of_others_ms, "fifo_queue": of_others_ms}
        trials = [record(name, repeat, 10.0, ms[repeat]) for repeat in range(3) for name, ms in waits_ms.items()]
        interval = results(trials, *waits_ms)["tf_data"].input_wait_share.ci95
        assert interval is not None
        return interval

    steady, scattered = wait_interval([5.0, 5.0, 5.0]), wait_interval([4.0, 6.0, 4.5])
    assert scattered[0] < steady[0] < 0.3 < steady[1] < scattered[1]


def test_each_repeat_is_taken_against_its_own_ceiling_so_that_a_drift_cancels() -> None:
    drifting = [
        record(variant, repeat, step * speed, wait * speed, noise=0.0)
        for repeat, speed in enumerate((1.0, 1.5, 2.0))
        for variant, step, wait in (("feed_dict", 10.0, 4.0), ("ceiling", 5.0, 0.0))
    ]
    found = results(drifting, "feed_dict")["feed_dict"]
    assert found.accelerator_utilization.value == pytest.approx(0.5)
    steady = results(rounds({"feed_dict": (10.0, 4.0), "ceiling": (5.0, 0.0)}), "feed_dict")["feed_dict"]
    assert found.accelerator_utilization.ci95 == pytest.approx(steady.accelerator_utilization.ci95, abs=0.01)


def test_an_input_that_comes_in_bursts_counts_with_its_total_not_its_median() -> None:
    bursty = [4.0] * 9 + [44.0]
    trials = [record("feed_dict", repeat, bursty * 10, 4.0) for repeat in range(3)]
    trials += [record("ceiling", repeat, 4.0, None) for repeat in range(3)]
    found = results(trials, "feed_dict")["feed_dict"]
    assert found.step_ms.median == pytest.approx(4.0)
    assert found.accelerator_utilization.value == pytest.approx(0.5, rel=0.05)


def test_speedup_is_of_throughput_over_the_first_variant() -> None:
    found = results(
        rounds({"feed_dict": (10.0, 4.0), "fifo_queue": (5.0, 0.0), "ceiling": (4.0, None)}), "feed_dict", "fifo_queue"
    )
    assert found["fifo_queue"].speedup.over == "feed_dict"
    assert found["fifo_queue"].speedup.value == pytest.approx(2.0, rel=0.02)
    assert found["feed_dict"].speedup.value is None
    assert found["feed_dict"].speedup.reason


def test_a_slow_trial_among_many_leaves_the_throughput_within_its_interval() -> None:
    """The throughput is of the mean step, and its interval of the trials' own throughputs, most of which are higher."""
    of = scenario("feed_dict", repeats=30)
    trials = [record("feed_dict", repeat, 10.0 if repeat == 29 else 1.0, noise=0.001) for repeat in range(30)]
    found = summarise(of, trials, cores=2)[0]
    assert found.samples_per_second is not None
    assert found.samples_per_second_ci95 is not None
    assert found.samples_per_second_ci95[0] <= found.samples_per_second <= found.samples_per_second_ci95[1]


def test_speedup_counts_samples_where_batches_differ_in_size() -> None:
    sizes = resolve(
        {
            "name": "sizes",
            "variants": [
                {"name": "small", "backend": "feed_dict", "source": {"batch_size": 32}},
                {"name": "large", "backend": "feed_dict", "source": {"batch_size": 64}},
            ],
        }
    )
    trials = [record(name, repeat, step) for repeat in range(3) for name, step in (("small", 5.0), ("large", 5.0))]
    found = {result.variant: result for result in summarise(sizes, trials, cores=2)}
    assert found["large"].speedup.value == pytest.approx(2.0, rel=0.02)


def test_what_was_not_measured_is_none_with_a_reason() -> None:
    found = results([], "feed_dict")["feed_dict"]
    assert found.status == "pending"
    assert found.verdict.kind == "not-measured"
    for estimate in (found.input_wait_share, found.host_slowdown_share, found.accelerator_utilization):
        assert estimate.value is None
        assert estimate.reason
    assert found.step_ms.median is None
    assert found.step_ms.reason


def test_a_failed_trial_leaves_the_others_figures_and_is_named() -> None:
    trials = rounds({"feed_dict": (10.0, 4.0), "ceiling": (5.0, None)}, 2)
    trials.append(record("feed_dict", 2, 99.0, status="failed"))
    found = results(trials, "feed_dict")["feed_dict"]
    assert found.status == "partial"
    assert found.trials == 2
    assert "planted" in (found.reason or "")
    assert found.step_ms.median == pytest.approx(10.0, rel=0.05)


def test_a_variant_that_only_failed_says_so() -> None:
    found = results([record("feed_dict", 0, 9.0, status="stalled")], "feed_dict")["feed_dict"]
    assert found.status == "stalled"
    assert found.verdict.kind == "not-measured"
    assert "planted" in found.verdict.text


def test_without_its_ceiling_a_variant_keeps_its_wait_and_has_no_utilization() -> None:
    found = results(rounds({"feed_dict": (10.0, 4.0)}), "feed_dict")["feed_dict"]
    assert found.input_wait_share.value == pytest.approx(0.4, rel=0.02)
    assert found.accelerator_utilization.value is None
    assert "ceiling" in (found.accelerator_utilization.reason or "")
    assert found.verdict.kind == "inconclusive"


def test_a_single_trial_has_figures_without_intervals() -> None:
    found = results(rounds({"feed_dict": (10.0, 4.0), "ceiling": (5.0, None)}, 1), "feed_dict")["feed_dict"]
    assert found.input_wait_share.ci95 is None
    assert found.input_wait_share.reason
    assert "no interval" in found.verdict.text


def test_warmup_is_left_out_of_the_figures() -> None:
    slow_start = [30.0] * 20 + [10.0] * 180
    trials = [record("feed_dict", repeat, slow_start) for repeat in range(3)]
    found = results(trials, "feed_dict")["feed_dict"]
    assert found.warmup_steps == (20, 20, 20)
    assert found.step_ms.p95 == pytest.approx(10.0)
    assert found.steps == 3 * 180


def cpu_track(busy_cores: float, until_ms: int = 2000) -> Track:
    at_ns = np.arange(0, until_ms, 100) * NS_PER_MS
    return track("cpu_seconds", at_ns, at_ns / 1e9 * busy_cores, "psutil")


def test_a_cpus_utilization_is_its_cpu_time_over_wall_time_and_cores() -> None:
    trials = [record("feed_dict", 0, 10.0, samples=[cpu_track(busy_cores=1.0)])]
    found = results(trials, "feed_dict")["feed_dict"].device_utilization
    assert found.mean_percent == pytest.approx(50.0, rel=0.01)
    assert found.source == "CPU time"


def test_a_gpus_utilization_is_nvmls_over_the_measured_steps_only() -> None:
    # Every 200 ms, as an H100's: the sample at 190 ms speaks of the 10 ms before the steps as well.
    at_ns = np.array([-210, -10, 190, 390, 590, 790, 5000]) * NS_PER_MS
    percent = [100.0, 100.0, 100.0, 30.0, 40.0, 50.0, 100.0]
    of_gpu = track("device_utilization_percent", at_ns, percent, "NVML samples")
    trials = [record("feed_dict", 0, 10.0, gpu=True, samples=[of_gpu, cpu_track(1.0)])]
    found = results(trials, "feed_dict")["feed_dict"].device_utilization
    assert (found.source, found.samples) == ("NVML samples", 3)
    assert found.mean_percent == pytest.approx(40.0)


def test_a_gpu_that_cannot_be_read_has_a_reason_and_no_figure() -> None:
    of_gpu = Track(metric="device_utilization_percent", source="NVML", reason="not supported under MIG")
    trials = [record("feed_dict", 0, 10.0, gpu=True, samples=[of_gpu])]
    found = results(trials, "feed_dict")["feed_dict"].device_utilization
    assert found.mean_percent is None
    assert found.reason == "not supported under MIG"


def test_published_figures_are_compared_at_the_authors_number_of_steps() -> None:
    shipped = load("two_layer")
    trials = [record("feed_dict", 0, 4.0, steps=100, noise=0.0)]
    found = {result.variant: result for result in summarise(shipped, trials, cores=2)}["feed_dict"].published
    assert found is not None
    assert found.our_seconds == pytest.approx(20.0)
    assert found.seconds_ratio == pytest.approx(20 / 18)
    assert found.scaled_from_steps == 100


def test_a_published_time_is_scaled_from_every_length_that_trials_had() -> None:
    """On a GPU the first round is short, and those behind it are as long as NVML needs."""
    shipped = load("two_layer")
    trials = [record("feed_dict", repeat, 4.0, steps=steps) for repeat, steps in enumerate((60, 720, 720))]
    measured = session(shipped, trials)
    figures = measured.result("feed_dict").published
    assert figures is not None
    assert figures.scaled_from_steps == 500
    shown = facts.published(measured)
    assert shown is not None
    assert "* our time is scaled to 5000 steps from 60 to 720 a trial" in shown.captions


def test_the_original_length_is_not_scaled_and_counts_its_warmup() -> None:
    shipped = load("two_layer")
    trials = [record("feed_dict", 0, [100.0] * 5 + [2.0] * 4995)]
    found = {result.variant: result for result in summarise(shipped, trials, cores=2)}["feed_dict"].published
    assert found is not None
    assert found.our_seconds == pytest.approx(0.5 + 9.99)
    assert found.scaled_from_steps is None


def test_the_parts_in_ms_are_the_shares_of_one_mean_step_also_where_a_round_has_no_ceiling() -> None:
    trials = [record("feed_dict", repeat, step, step * 0.4) for repeat, step in enumerate((5.0, 10.0, 20.0))]
    trials += [record("ceiling", repeat, 4.0, None) for repeat in range(3)]
    trials += [record("feed_dict", 3, 30.0, 27.0), record("ceiling", 3, 4.0, None, status="failed")]
    found = results(trials, "feed_dict", repeats=4)["feed_dict"]
    whole = 0.0
    for in_ms, share in (
        (found.input_wait_ms, found.input_wait_share),
        (found.ceiling_ms, found.accelerator_utilization),
        (found.host_slowdown_ms, found.host_slowdown_share),
    ):
        assert in_ms.value is not None
        assert share.value is not None
        assert found.step_ms.mean is not None
        assert in_ms.value == pytest.approx(share.value * found.step_ms.mean)
        whole += share.value
    assert whole == pytest.approx(1)


def test_intervals_of_shares_stay_where_shares_can_be() -> None:
    trials = [record("feed_dict", repeat, 10.0, wait) for repeat, wait in enumerate((0.1, 5.0, 9.9))]
    trials += [record("ceiling", repeat, 0.05, None) for repeat in range(3)]
    found = results(trials, "feed_dict")["feed_dict"]
    assert found.input_wait_share.ci95 == (0.0, 1.0)
    assert found.accelerator_utilization.ci95 is not None
    assert found.accelerator_utilization.ci95[0] >= 0


def test_cpu_time_from_before_the_measured_steps_is_not_interpolated_into_them() -> None:
    """One sample half a second before a short trial and one after it: what lies between is mostly not the trial."""
    of_cpu = track("cpu_seconds", np.array([-500, 10_000]) * NS_PER_MS, [0.0, 21.0], "psutil")
    found = results([record("feed_dict", 0, 10.0, samples=[of_cpu])], "feed_dict")["feed_dict"].device_utilization
    assert found.mean_percent is None
    assert found.reason


def test_a_loss_that_is_no_number_is_null_with_its_reason() -> None:
    trial = record("feed_dict", 0, 10.0)
    assert trial.steps is not None
    diverged = trial.steps.model_copy(update={"loss": Series.pack(np.full(100, np.nan))})
    found = results([trial.model_copy(update={"steps": diverged})], "feed_dict")["feed_dict"]
    assert found.loss is None
    assert "not a finite number" in found.missing["loss"]


def test_a_model_that_trains_nothing_has_that_as_its_reason() -> None:
    trial = record("a", 0, 10.0)
    assert trial.steps is not None
    no_loss = trial.steps.model_copy(update={"loss": Series.pack(np.full(100, np.nan))})
    asked = resolve({"name": "t", "model": {"kind": "matpow"}, "variants": [{"name": "a", "backend": "tf_data"}]})
    bare = trial.model_copy(update={"steps": no_loss, "accuracy": AccuracyPair()})
    found = summarise(asked, [bare], cores=2)[0]
    assert found.missing == dict.fromkeys(("loss", "accuracy"), "the model matpow trains nothing")


@pytest.mark.parametrize(("queue_ms", "difference"), [(1.5, "faster"), (2.0, "none"), (3.0, "slower")])
def test_a_difference_is_claimed_where_it_is_beyond_doubt(queue_ms: float, difference: str) -> None:
    trials = [record("feed_dict", r, 2.0 + 0.02 * r) for r in range(3)]
    trials += [record("fifo_queue", r, queue_ms + 0.02 * (2 - r)) for r in range(3)]
    trials += [record("ceiling", r, 1.0) for r in range(3)]
    _, queue, _ = summarise(scenario("feed_dict", "fifo_queue"), trials, 2)
    assert queue.speedup.difference == difference
    assert queue.speedup.ci95 is not None
    assert queue.speedup.smallest is not None
    assert queue.speedup.smallest > stats.half_width(queue.speedup.ci95)


def test_the_steps_of_short_trials_count_together_for_a_verdict() -> None:
    asked = scenario("feed_dict", repeats=3)
    trials = [
        record(variant, repeat, [step] * 12, wait)
        for repeat in range(3)
        for variant, step, wait in (("feed_dict", 10.0, 6.0), ("ceiling", 4.0, None))
    ]
    assert summarise(asked, trials, cores=2)[0].verdict.kind == "input-bound"
    first = summarise(asked, trials[:2], cores=2)[0].verdict
    assert "only 11 steps" in first.text
    assert "raise --steps" in first.text
    own = tuple(
        variant.model_copy(update={"source": variant.source.model_copy(update={"kind": task.KIND})})
        for variant in asked.variants
    )
    diagnosed = asked.model_copy(update={"variants": own})
    assert "raise --budget" in summarise(diagnosed, trials[:2], cores=2)[0].verdict.text


def test_rounds_that_a_budget_ended_are_all_that_there_were_to_be() -> None:
    trials = rounds({"feed_dict": (10.0, 4.0), "ceiling": (5.0, None)}, 2)
    asked = scenario("feed_dict", repeats=3)
    assert {result.status for result in summarise(asked, trials, cores=2)} == {"partial"}
    assert {result.status for result in summarise(asked, trials, cores=2, open_ended=True)} == {"ok"}
