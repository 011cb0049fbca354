"""The machine's CPU, from stand-ins for the system's counters: what others took, what was stolen, what is unknown."""

from __future__ import annotations

import time
from collections import namedtuple
from typing import Any

import psutil
import pytest

from pipeline_bench.samplers.host import MachineCpu

Times = namedtuple("Times", "user system idle iowait steal guest")
Unstolen = namedtuple("Unstolen", "user system idle")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The system's CPU times, and the profiler's own CPU seconds, as a test sets them."""
    now: dict[str, Any] = {"times": Times(0, 0, 0, 0, 0, 0), "own": 0.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: now["times"])
    monkeypatch.setattr(time, "process_time", lambda: now["own"])
    return now


def test_others_are_what_is_busy_without_the_trial_the_profiler_and_the_hypervisor(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters.update(times=Times(1, 0, 1, 0, 0, 0), own=0.5)
    assert "other_cpu_percent" not in cpu.poll(0.5), "what the trial used before the first poll is not known"
    counters.update(times=Times(5, 1, 3, 1, 2, 0), own=0.75)
    found = cpu.poll(2.25)
    # Of 10 s, 7 were busy, 2 of them stolen, 1.75 the trial's and 0.25 the profiler's.
    assert found == {
        "machine_cpu_percent": pytest.approx(70),
        "steal_percent": pytest.approx(20),
        "other_cpu_percent": pytest.approx(30),
    }


def test_ticks_that_come_late_do_not_add_up_to_other_processes(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters["times"] = Times(1, 0, 1, 0, 0, 0)
    cpu.poll(1.0)
    # The trial ran 1 s in each interval; the kernel's ticks lag by half a second and catch up.
    seen: list[float | str] = []
    for busy, idle in ((1.5, 2.5), (3.0, 3.0), (4.0, 4.0)):
        counters["times"] = Times(busy, 0, idle, 0, 0, 0)
        seen.append(cpu.poll(2.0 + len(seen))["other_cpu_percent"])
    assert seen == [0, 0, 0]


def test_a_poll_within_a_tick_is_no_reading_and_loses_nothing(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters["times"] = Times(1, 0, 1, 0, 0, 0)
    cpu.poll(1.0)
    assert cpu.poll(1.5) == {}
    counters["times"] = Times(3, 0, 3, 0, 0, 0)
    assert cpu.poll(2.0)["other_cpu_percent"] == pytest.approx(25)


def test_a_trial_whose_cpu_time_is_not_known_is_a_reason_and_no_zero(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters["times"] = Times(1, 0, 1, 0, 0, 0)
    assert "cannot be read" in str(cpu.poll(None)["other_cpu_percent"])
    counters["times"] = Times(2, 0, 2, 0, 0, 0)
    found = cpu.poll(1.0)
    assert "other_cpu_percent" not in found, "the interval began with the trial's time unknown"
    assert found["machine_cpu_percent"] == pytest.approx(50)


def test_a_system_that_counts_no_stolen_time_is_a_reason(counters: dict[str, Any]) -> None:
    counters["times"] = Unstolen(0, 0, 0)
    cpu = MachineCpu(time.process_time)
    counters["times"] = Unstolen(1, 0, 1)
    assert "hypervisor" in str(cpu.poll(0.0)["steal_percent"])


def test_stolen_time_that_runs_backwards_is_none_stolen(counters: dict[str, Any]) -> None:
    counters["times"] = Times(0, 0, 0, 0, 5, 0)
    cpu = MachineCpu(time.process_time)
    counters["times"] = Times(2, 0, 4, 0, 4, 0)
    assert cpu.poll(0.0)["steal_percent"] == 0


@pytest.mark.parametrize("error", [PermissionError(), RuntimeError("no /proc"), psutil.Error()])
def test_cpu_times_that_cannot_be_read_are_a_reason_for_every_metric(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert set(MachineCpu(time.process_time).poll(1.0).values()) == {"the system's CPU times cannot be read"}
