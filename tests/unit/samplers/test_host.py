"""The host sampler against real processes, made-up control groups, and stand-ins for what a system may refuse."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.host import (
    MACHINE_METRICS,
    NO_COUNTER,
    THROTTLED,
    Children,
    HostSampler,
    MachineCpu,
    Throttling,
)
from tests.processes import wait_for, wait_until_gone

S = 1_000_000_000
PROCESS_METRICS = {"cpu_seconds", "memory_bytes", "threads", "read_bytes", "write_bytes"}


def reasons(readings: list[Reading]) -> dict[str, str]:
    assert all((reading.value is None) == (reading.reason is not None) for reading in readings)
    return {reading.metric: reading.reason for reading in readings if reading.reason is not None}


def of_process(readings: list[Reading]) -> list[Reading]:
    """Without those of the machine, which come and go with the ticks of its counters."""
    return [reading for reading in readings if reading.metric in PROCESS_METRICS]


def values(readings: list[Reading]) -> dict[str, float]:
    return {reading.metric: reading.value for reading in readings if reading.value is not None}


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits on its stdin."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


# --- the process -----------------------------------------------------------------------------------------------------


def test_this_process_is_read_with_its_source_and_stamp() -> None:
    readings = [reading for reading in HostSampler(os.getpid(), lambda: 7).poll() if reading.metric in PROCESS_METRICS]
    assert {reading.source for reading in readings} == {"psutil"}
    assert {reading.at_ns for reading in readings} == {7}
    assert {"cpu_seconds", "memory_bytes"} <= set(values(readings))


def test_memory_is_bytes_and_cpu_is_seconds_as_psutil_gives_them(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = namedtuple("cpu", "user system children_user children_system")
    memory = namedtuple("memory", "rss vms")
    # oneshot() reaches into the methods it caches, which the stand-ins have not got.
    monkeypatch.setattr(psutil.Process, "oneshot", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _: cpu(1.5, 0.25, 100.0, 100.0))
    monkeypatch.setattr(psutil.Process, "memory_info", lambda _: memory(4096, 9_999_999))
    read = values(HostSampler(child.pid).poll())
    assert (read["cpu_seconds"], read["memory_bytes"]) == (1.75, 4096)


def test_read_and_written_bytes_are_not_swapped(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = namedtuple("counters", "read_count write_count read_bytes write_bytes")
    monkeypatch.setattr(psutil.Process, "io_counters", lambda _: counters(1, 2, 3, 4), raising=False)
    read = values(HostSampler(child.pid).poll())
    assert (read["read_bytes"], read["write_bytes"]) == (3, 4)


class Writer:
    """A process that has written so many bytes."""

    def __init__(self, written: int) -> None:
        self.written = written

    def io_counters(self) -> Any:
        return SimpleNamespace(read_bytes=0, write_bytes=self.written)


def test_what_a_child_wrote_is_counted_once_when_its_parent_has_waited_for_it() -> None:
    """The kernel then adds it to the parent's; from the child's end until then it is nobody's."""
    sampler, parent, child = HostSampler(os.getpid()), Writer(5), Writer(40)
    seen = []
    for running, of_parent in (({child}, 5), (set(), 5), (set(), 45)):
        sampler._children._running = running  # type: ignore[assignment]
        parent.written = of_parent
        seen.append(sampler._poll_metric("write_bytes", parent))  # type: ignore[arg-type]
    assert seen == [45, 45, 45]


def test_a_process_that_has_ended_is_a_reason_once(child: subprocess.Popen[bytes]) -> None:
    sampler = HostSampler(child.pid)
    alive = sampler.poll()
    child.kill()
    child.wait()
    ended, after = sampler.poll(), sampler.poll()
    assert {"cpu_seconds", "memory_bytes"} <= set(values(alive))
    assert {metric: reason for metric, reason in reasons(ended).items() if metric in PROCESS_METRICS} == dict.fromkeys(
        PROCESS_METRICS - set(reasons(alive)), "the process has ended"
    )
    assert not PROCESS_METRICS & {reading.metric for reading in after}


def test_a_process_that_ended_and_is_not_reaped_has_no_memory_of_zero(child: subprocess.Popen[bytes]) -> None:
    sampler = HostSampler(child.pid)
    child.kill()
    # Waits for the end and leaves the zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    readings = sampler.poll()
    assert reasons(readings)["memory_bytes"] == "the process has ended"
    assert not PROCESS_METRICS & set(values(readings))


def test_a_process_that_never_was_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: psutil.Process, pid: int, **__: object) -> None:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil.Process, "_init", absent)
    readings = HostSampler(12345).poll()
    assert set(reasons(of_process(readings))) == PROCESS_METRICS


def test_no_permission_for_one_metric_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "io_counters", refuse, raising=False)
    sampler = HostSampler(os.getpid())
    first, second = sampler.poll(), sampler.poll()
    said = "the system refused: no permission to read the process"
    assert reasons(of_process(first)) == {"read_bytes": said, "write_bytes": said}
    assert reasons(of_process(second)) == {}
    assert {"cpu_seconds", "memory_bytes"} <= set(values(second))


def test_a_system_without_io_counters_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil.Process, "io_counters", raising=False)
    said = "this system keeps no such counter of a process"
    assert reasons(of_process(HostSampler(os.getpid()).poll())) == {"read_bytes": said, "write_bytes": said}


def test_a_process_that_cannot_be_read_at_all_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "status", refuse)
    sampler = HostSampler(os.getpid())
    assert set(reasons(of_process(sampler.poll()))) == PROCESS_METRICS
    assert of_process(sampler.poll()) == []


@dataclass
class Helper:
    """A process of the profiler's own."""

    cpu_s: float = 0.0
    pid: int | None = None


@pytest.mark.parametrize("itself", [True, False])
def test_the_profiler_and_its_helper_are_taken_off_the_others_once(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, itself: bool
) -> None:
    times = namedtuple("times", "user system idle steal")
    helper, busy_s, own_s = Helper(), 0.0, 0.0
    monkeypatch.setattr(psutil, "cpu_times", lambda: times(busy_s, 0, busy_s, 0))
    monkeypatch.setattr(psutil.Process, "oneshot", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _: times(own_s, 0, 0, 0))
    monkeypatch.setattr(time, "process_time", lambda: own_s)
    monkeypatch.setattr(Children, "_started_by", lambda *_: [])
    sampler = HostSampler(os.getpid() if itself else child.pid, helper=helper)
    busy_s = 1
    sampler.poll()
    busy_s, own_s, helper.cpu_s = 11, 2, 1
    # Of 20 s, 10 were busy: 1 the helper's, 2 the process', and 2 the profiler's where that is another one.
    assert values(sampler.poll())["other_cpu_percent"] == pytest.approx(100 * (7 if itself else 5) / 20)


def test_a_poll_never_lists_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(*_: object, **__: object) -> None:
        raise AssertionError("a poll listed all processes")

    for name in ("pids", "process_iter", "pid_exists"):
        monkeypatch.setattr(psutil, name, scan)
    assert values(HostSampler(os.getpid()).poll())


# --- the machine -----------------------------------------------------------------------------------------------------

Times = namedtuple("Times", "user nice system idle iowait steal guest guest_nice")


def machine_percent(monkeypatch: pytest.MonkeyPatch, *times: Times) -> list[float | None]:
    """What each poll says of the machine, the first of `times` being when the sampler was made."""
    series = iter(times)
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(series))
    sampler = HostSampler(os.getpid())
    polls = [sampler.poll() for _ in times[1:]]
    return [next((r.value for r in readings if r.metric == "machine_cpu_percent"), None) for readings in polls]


def test_waiting_for_the_disk_is_idle_and_a_guest_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Times(0, 0, 0, 0, 0, 0, 0, 0)
    assert machine_percent(monkeypatch, before, Times(2, 0, 0, 1, 1, 0, 2, 0)) == [50]


def test_every_metric_of_the_machine_has_a_value_or_a_reason_after_a_few_ticks() -> None:
    sampler = HostSampler(os.getpid())
    told: set[str] = set()
    for _ in range(4):
        readings = sampler.poll()
        told |= set(values(readings)) | set(reasons(readings))
        time.sleep(0.05)
    assert {*MACHINE_METRICS, THROTTLED} <= told


Counters = namedtuple("Counters", "user system idle iowait steal guest")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The system's CPU times, and the profiler's own CPU seconds, as a test sets them."""
    now: dict[str, Any] = {"times": Counters(0, 0, 0, 0, 0, 0), "own": 0.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: now["times"])
    monkeypatch.setattr(time, "process_time", lambda: now["own"])
    return now


def test_others_are_what_is_busy_without_the_trial_the_profiler_and_the_hypervisor(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters.update(times=Counters(1, 0, 1, 0, 0, 0), own=0.5)
    assert "other_cpu_percent" not in cpu.poll(0.5), "what the trial used before the first poll is not known"
    counters.update(times=Counters(5, 1, 3, 1, 2, 0), own=0.75)
    found = cpu.poll(2.25)
    # Of 10 s, 7 were busy, 2 of them stolen, 1.75 the trial's and 0.25 the profiler's.
    assert found == {
        "machine_cpu_percent": pytest.approx(70),
        "steal_percent": pytest.approx(20),
        "other_cpu_percent": pytest.approx(30),
    }


def test_ticks_that_come_late_do_not_add_up_to_other_processes(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters["times"] = Counters(1, 0, 1, 0, 0, 0)
    cpu.poll(1.0)
    # The trial ran 1 s in each interval; the kernel's ticks lag by half a second and catch up.
    seen: list[float | str] = []
    for busy, idle in ((1.5, 2.5), (3.0, 3.0), (4.0, 4.0)):
        counters["times"] = Counters(busy, 0, idle, 0, 0, 0)
        seen.append(cpu.poll(2.0 + len(seen))["other_cpu_percent"])
    assert seen == [0, 0, 0]


def test_a_poll_within_a_tick_is_no_reading_and_loses_nothing(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters["times"] = Counters(1, 0, 1, 0, 0, 0)
    cpu.poll(1.0)
    assert cpu.poll(1.5) == {}
    counters["times"] = Counters(3, 0, 3, 0, 0, 0)
    assert cpu.poll(2.0)["other_cpu_percent"] == pytest.approx(25)


def test_counters_that_begin_anew_are_read_from_there(counters: dict[str, Any]) -> None:
    """As of a machine that lost a CPU, or was moved."""
    cpu = MachineCpu(time.process_time)
    counters["times"] = Counters(500, 0, 500, 0, 0, 0)
    cpu.poll(1.0)
    counters["times"] = Counters(100, 0, 100, 0, 0, 0)
    assert cpu.poll(2.0) == {}
    counters["times"] = Counters(103, 0, 101, 0, 0, 0)
    found = cpu.poll(3.0)
    assert found["machine_cpu_percent"] == pytest.approx(75)
    assert "other_cpu_percent" not in found, "what the trial used since the counters began is not known"
    counters["times"] = Counters(106, 0, 102, 0, 0, 0)
    assert cpu.poll(4.0)["other_cpu_percent"] == pytest.approx(50)


def test_a_trial_whose_cpu_time_is_not_known_is_a_reason_and_no_zero(counters: dict[str, Any]) -> None:
    cpu = MachineCpu(time.process_time)
    counters["times"] = Counters(1, 0, 1, 0, 0, 0)
    assert "cannot be read" in str(cpu.poll(None)["other_cpu_percent"])
    counters["times"] = Counters(2, 0, 2, 0, 0, 0)
    found = cpu.poll(1.0)
    assert "other_cpu_percent" not in found, "the interval began with the trial's time unknown"
    assert found["machine_cpu_percent"] == pytest.approx(50)


def test_stolen_time_that_runs_backwards_is_none_stolen(counters: dict[str, Any]) -> None:
    counters["times"] = Counters(0, 0, 0, 0, 5, 0)
    cpu = MachineCpu(time.process_time)
    counters["times"] = Counters(2, 0, 4, 0, 4, 0)
    assert cpu.poll(0.0)["steal_percent"] == 0


@pytest.fixture
def of_each_cpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The CPU times of a machine of four CPUs as a test sets them, for a process that may use the second and third."""
    each: list[Any] = [Counters(0, 0, 0, 0, 0, 0)] * 4
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: list(each) if percpu else Counters(0, 0, 9, 0, 0, 0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2})
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_NPROCESSORS_CONF": 4}[name])
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    return each


def test_a_process_that_may_use_some_cores_is_disturbed_by_what_runs_on_these(of_each_cpu: list[Any]) -> None:
    cpu = MachineCpu(time.process_time)
    of_each_cpu[1] = of_each_cpu[2] = Counters(0, 0, 1, 0, 0, 0)
    cpu.poll(0.0)
    of_each_cpu[:] = [Counters(0, 0, 9, 0, 0, 0), *[Counters(8, 0, 1, 0, 2, 0)] * 2, Counters(0, 0, 9, 0, 0, 0)]
    # Both cores were busy for 10 s, 2 of them stolen; of the other 16 s the trial had 12. Half of the machine idled.
    assert cpu.poll(12.0) == {
        "machine_cpu_percent": pytest.approx(100),
        "steal_percent": pytest.approx(20),
        "other_cpu_percent": pytest.approx(20),
    }


def test_work_on_cores_that_a_process_may_not_use_is_none_of_its_machine(of_each_cpu: list[Any]) -> None:
    cpu = MachineCpu(time.process_time)
    of_each_cpu[:] = [Counters(10, 0, 0, 0, 0, 0), *[Counters(1, 0, 9, 0, 0, 0)] * 2, Counters(10, 0, 0, 0, 0, 0)]
    assert cpu.poll(0.0)["machine_cpu_percent"] == pytest.approx(10)


def test_cores_of_a_list_that_lacks_some_are_not_told_apart(of_each_cpu: list[Any]) -> None:
    """The list has no place for a CPU that is off, so that the second of it may be the third of the machine."""
    del of_each_cpu[0]
    cpu = MachineCpu(time.process_time)
    assert cpu.poll(0.0) == {}, "the times of the whole machine, which stand still here"


def test_a_core_that_is_gone_leaves_a_reason(of_each_cpu: list[Any]) -> None:
    cpu = MachineCpu(time.process_time)
    del of_each_cpu[2:]
    assert set(cpu.poll(0.0).values()) == {"the system's CPU times cannot be read"}


@pytest.mark.parametrize("error", [PermissionError(), RuntimeError("no /proc"), psutil.Error()])
def test_cpu_times_that_cannot_be_read_are_a_reason_for_every_metric(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(percpu: bool = False) -> None:
        raise error

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert set(MachineCpu(time.process_time).poll(1.0).values()) == {"the system's CPU times cannot be read"}


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has started another one; both wait on the same stdin."""
    starting = "subprocess.Popen([sys.executable, '-c', 'input()'])"
    code = f"import subprocess, sys; {starting}; print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()  # the other one reads the end of its input


def test_children_and_theirs_are_found_and_others_are_not(family: subprocess.Popen[bytes]) -> None:
    children = Children(os.getpid())
    children.find()
    pids: list[int] = []

    def note(process: psutil.Process) -> float:
        pids.append(process.pid)
        return 0

    children.sum("pid", note, cumulative=False)
    (grandchild,) = psutil.Process(family.pid).children()
    assert {family.pid, grandchild.pid} <= set(pids)
    assert os.getpid() not in pids
    only = Children(family.pid)
    only.find()
    assert only.sum("count", lambda _: 1.0, cumulative=False) == 1


def test_a_child_of_another_thread_is_found_whenever_that_starts_it() -> None:
    """As Keras starts the pool of `use_multiprocessing`: in a thread that lives on."""
    started, over = threading.Semaphore(0), threading.Event()

    def start() -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            pids.append(process.pid)
            started.release()
            over.wait(60)
            process.kill()

    children, pids = Children(os.getpid()), list[int]()
    threads = [threading.Thread(target=start) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
            assert started.acquire(timeout=60)
            found: set[int] = set()
            for _ in range(5):
                children.find()
                children.sum("pid", lambda process: found.add(process.pid) or 0.0, cumulative=False)  # type: ignore[func-returns-value]  # noqa: B023
            assert set(pids) <= found
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_what_a_child_used_is_kept_when_it_has_ended_but_not_what_it_held(family: subprocess.Popen[bytes]) -> None:
    (grandchild,) = psutil.Process(family.pid).children()
    children = Children(family.pid)
    children.find()
    assert children.sum("used", lambda _: 3.0, cumulative=True) == 3
    assert children.sum("held", lambda _: 3.0, cumulative=False) == 3
    grandchild.kill()
    wait_until_gone(grandchild.pid)
    family.kill()
    family.wait()

    def hold_nothing() -> bool:
        children.find()
        return children.sum("held", lambda _: 3.0, cumulative=False) == 0

    wait_for(hold_nothing)
    assert children.sum("used", lambda _: 3.0, cumulative=True) == 3


def test_a_child_that_has_ended_is_forgotten_but_for_its_share_of_the_sum(family: subprocess.Popen[bytes]) -> None:
    children = Children(family.pid)
    held: list[weakref.ref[psutil.Process]] = []

    def used(process: psutil.Process) -> float:
        held.append(weakref.ref(process))
        return 3.0

    children.find()
    children.sum("used", used, cumulative=True)
    family.kill()
    family.wait()
    (grandchild,) = held
    psutil.Process(grandchild().pid).kill()  # type: ignore[union-attr]

    def forget() -> bool:
        children.find()
        assert children.sum("used", used, cumulative=True) == 3
        gc.collect()
        return all(each() is None for each in held)

    wait_for(forget)


def test_a_child_whose_parent_has_ended_is_still_the_trials(family: subprocess.Popen[bytes]) -> None:
    children = Children(os.getpid())
    children.find()
    (grandchild,) = psutil.Process(family.pid).children()
    family.kill()
    family.wait()
    children.find()
    read = set()
    children.sum("pid", lambda process: read.add(process.pid) or 0.0, cumulative=False)  # type: ignore[func-returns-value]
    assert grandchild.pid in read
    assert family.pid not in read


def test_a_number_that_another_child_has_now_ends_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives a number anew; what bears it then began at another time."""
    now = 1.0

    @dataclass(frozen=True)
    class Numbered:
        pid: int
        began: float = field(default_factory=lambda: now)

        def is_running(self) -> bool:
            return self.began == now

    monkeypatch.setattr(psutil, "Process", Numbered)
    monkeypatch.setattr(Children, "_started_by", lambda _, pid: [8] if pid == 7 else [])
    children = Children(7)
    children.find()
    assert children.sum("used", lambda _: 3.0, cumulative=True) == 3
    now = 2.0
    children.find()
    assert children.sum("used", lambda _: 5.0, cumulative=True) == 3 + 5
    assert children.sum("used", lambda _: 6.0, cumulative=True) == 3 + 6


def test_the_host_sampler_counts_them_as_the_trials(family: subprocess.Popen[bytes]) -> None:
    (grandchild,) = psutil.Process(family.pid).children()
    readings = {reading.metric: reading.value or 0 for reading in HostSampler(family.pid).poll()}
    own, other = psutil.Process(family.pid), grandchild
    assert readings["threads"] == own.num_threads() + other.num_threads()
    assert readings["memory_bytes"] > own.memory_info().rss


def group(folder: Path, stat: str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if stat is not None:
        (folder / "cpu.stat").write_text(stat)
    return folder


@pytest.mark.parametrize(
    ("stat", "seconds"),
    [
        ("usage_usec 99\nnr_periods 10\nnr_throttled 2\nthrottled_usec 2500000\n", 2.5),
        ("nr_periods 10\nnr_throttled 2\nthrottled_time 2500000000\n", 2.5),
        ("throttled_usec 0\n", 0.0),
    ],
)
def test_throttled_time_is_seconds_in_both_versions(tmp_path: Path, stat: str, seconds: float) -> None:
    assert Throttling([group(tmp_path, stat)]).poll() == seconds


def test_the_groups_above_count_as_well_and_each_once(tmp_path: Path) -> None:
    outer = group(tmp_path, "throttled_usec 1000000\n")
    inner = group(tmp_path / "inner", "throttled_usec 2000000\n")
    assert Throttling([inner, outer, inner]).poll() == 3.0


@pytest.mark.parametrize("stat", [None, "", "usage_usec 5\n", "throttled_usec many\n", "throttled_usec\n"])
def test_without_a_counter_there_is_a_reason(tmp_path: Path, stat: str | None) -> None:
    assert Throttling([group(tmp_path, stat)]).poll() == NO_COUNTER


def test_a_group_that_goes_away_is_a_reason_and_no_smaller_sum(tmp_path: Path) -> None:
    throttling = Throttling([group(tmp_path / name, "throttled_usec 1000000\n") for name in ("a", "b")])
    (tmp_path / "b" / "cpu.stat").unlink()
    assert throttling.poll() == NO_COUNTER
