"""Samples of a job's device and host in bounded memory."""

from itertools import pairwise

import pytest

from pipeline_bench.model.result import CPU_TIME
from pipeline_bench.monitoring.record import Readings, SamplerThread
from pipeline_bench.samplers import Reading, Sampler

SECOND = 10**9


def cpu(at_s: float, seconds: float) -> Reading:
    return Reading("cpu_seconds", "psutil", int(at_s * SECOND), seconds)


def gpu(at_s: float, percent: float) -> Reading:
    return Reading("device_utilization_percent", "NVML samples", int(at_s * SECOND), percent)


def test_a_cpus_utilization_is_cpu_time_over_wall_time_and_cores() -> None:
    readings = Readings()
    readings.add([cpu(0, 0.0)])
    readings.add([cpu(10, 5.0)])
    readings.add([cpu(20, 25.0)])
    percent, source = readings.utilization(0, cores=4, gpu=False)
    assert percent == pytest.approx(100 * 25 / 80)
    assert source == CPU_TIME
    percent, source = readings.utilization(10 * SECOND, cores=4, gpu=False)
    assert percent == pytest.approx(50.0)
    assert source == CPU_TIME


def test_a_gpus_utilization_is_what_it_said_since_then() -> None:
    readings = Readings()
    readings.add([gpu(1, 90.0), gpu(2, 20.0), gpu(3, 40.0), cpu(1, 0.0), cpu(3, 2.0)])
    assert readings.utilization(2 * SECOND, cores=4, gpu=True) == (30.0, "NVML samples")


def test_one_sample_makes_no_rate_and_no_sample_no_utilization() -> None:
    readings = Readings()
    readings.add([cpu(1, 3.0)])
    assert readings.utilization(0, cores=4, gpu=False) == (None, None)
    assert readings.utilization(0, cores=4, gpu=True) == (None, None)


def test_many_samples_are_thinned_evenly() -> None:
    readings = Readings(max_readings=100)
    for second in range(5000):
        readings.add([cpu(second, second / 2)])
    kept = [reading.at_ns // SECOND for reading in readings.all()]
    assert len(kept) <= 100
    gaps = {after - before for before, after in pairwise(kept)}
    assert len(gaps) == 1
    assert kept[0] == 0
    assert 5000 - kept[-1] <= 2 * max(gaps)


def test_a_reason_is_never_thinned_away() -> None:
    readings = Readings(max_readings=10)
    for second in range(40):
        readings.add([cpu(second, 0.0)])
    readings.add([Reading("cpu_seconds", "psutil", 41 * SECOND, reason="the process has ended")])
    assert readings.all()[-1].reason == "the process has ended"


class Once(Sampler):
    """Gives one reading a poll, and remembers being closed."""

    closed = False
    polls = 0

    def poll(self) -> list[Reading]:
        assert not self.closed
        self.polls += 1
        return [cpu(self.polls, self.polls)]

    def close(self) -> None:
        self.closed = True


def test_the_last_poll_is_at_the_end_and_none_after_it() -> None:
    sampler, readings = Once(), Readings()
    thread = SamplerThread([sampler], readings)
    thread.close()
    seen = len(readings.all())
    assert seen >= 1
    assert sampler.closed
    thread.poll()
    thread.close()
    assert len(readings.all()) == seen
