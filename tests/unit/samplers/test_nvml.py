"""The sampler beside NVML's process: an NVML that hangs or crashes is a reason, and no process outlives its parent.

The stub proves the plumbing and the error paths, and nothing about what the figures mean on a GPU.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from pipeline_bench.environment import Accelerator
from pipeline_bench.samplers import Reading
from pipeline_bench.samplers.nvml import STOPPED, NvmlSampler, Timeouts
from pipeline_bench.samplers.nvml_metrics import ACTIVITY, METRICS, SAMPLES_SOURCE, UTILIZATION
from pipeline_bench.system.processes import adopt_orphans
from tests.processes import wait_until_gone
from tests.stubs.nvml import use

QUICK = Timeouts(opening_s=30, answer_s=1, end_s=0.2)
"""Patient with a slow machine while NVML opens, not with what the stub never answers."""

NO_PATIENCE = Timeouts(opening_s=0.5, end_s=0.2)
DEADLINE_S = 60.0

Open = Callable[..., NvmlSampler]


@pytest.fixture
def opened(nvml_stub: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens samplers whose process finds the stub, with its variables; closes them."""
    with ExitStack() as stack:

        def open_one(limits: Timeouts = QUICK, **variables: str) -> NvmlSampler:
            use(monkeypatch, nvml_stub, **{"NVML_STUB_MODE": "ok", **variables})
            return stack.enter_context(closing(NvmlSampler.open(limits)))

        yield open_one


def test_files_that_have_the_numbers_of_closed_ones_are_left_alone(opened: Open, tmp_path: Path) -> None:
    """A daemon closes all files that it has not opened; what it opens then has their numbers."""
    sampler = opened()
    assert sampler.wait_until_open(DEADLINE_S)
    assert sampler._connection is not None
    assert sampler._told is not None
    numbers = [each.fileno() for each in (sampler._connection, sampler._told)]
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_WRONLY)
    for number in numbers:
        os.dup2(other, number)
    sampler.begin()
    assert {reading.reason for reading in sampler.poll()} == {"the program closed what NVML's process answers through"}
    sampler.close()
    for number in (*numbers, other):
        os.write(number, b"all ")
        os.close(number)
    assert (tmp_path / "other").read_bytes() == b"all all all "


def polled(sampler: NvmlSampler, enough: Callable[[list[Reading]], bool]) -> list[Reading]:
    """What the polls give until it is enough."""
    readings: list[Reading] = []
    deadline = time.monotonic() + DEADLINE_S
    while not enough(readings):
        assert time.monotonic() < deadline, readings
        readings += [each for each in sampler.poll() if each.metric not in ACTIVITY]  # see test_gpm.py
    return readings


def values(readings: list[Reading], metric: str) -> list[float | None]:
    return [reading.value for reading in readings if reading.metric == metric and reading.value is not None]


def reasons(readings: list[Reading]) -> dict[str, str]:
    return {reading.metric: reading.reason for reading in readings if reading.reason is not None}


def all_explained(readings: list[Reading]) -> bool:
    return len([reading for reading in readings if reading.reason is not None]) >= len(METRICS)


def some_power(readings: list[Reading]) -> bool:
    return bool(values(readings, "device_power_watts"))


def pid_of(sampler: NvmlSampler) -> int:
    assert sampler.pid is not None
    return sampler.pid


# --- what is read ----------------------------------------------------------------------------------------------------


def test_readings_come_from_the_process_with_stamps_of_our_clock(opened: Open) -> None:
    before_ns = time.monotonic_ns()
    sampler = opened()
    readings = polled(sampler, some_power)  # of one time, or of several where this process had to wait
    assert set(values(readings, "device_power_watts")) == {250.5}
    assert reasons(readings) == {}
    assert 0 < sampler.cpu_s < DEADLINE_S
    stamps_ns = [reading.at_ns for reading in readings if reading.metric == "device_power_watts"]
    assert stamps_ns == sorted(stamps_ns)
    assert before_ns <= stamps_ns[0] <= stamps_ns[-1] <= time.monotonic_ns()


def test_the_gpus_are_listed_and_the_first_visible_one_is_selected(opened: Open) -> None:
    sampler = opened(NVML_STUB_DEVICES="3", CUDA_VISIBLE_DEVICES="2,0")
    assert sampler.accelerator == Accelerator("NVIDIA Stub", "999.99", None)
    assert set(values(polled(sampler, some_power), "device_memory_bytes")) == {3 << 30}


def test_a_gpu_that_is_not_there_is_a_reason_once_a_trial(opened: Open) -> None:
    sampler = opened()
    sampler.select("0000:7f:00.0")
    expected = dict.fromkeys(METRICS, "NVML lists no GPU at PCI address 0000:7f:00.0")
    assert reasons(polled(sampler, all_explained)) == expected
    assert sampler.poll() == []
    sampler.begin()
    assert reasons(polled(sampler, all_explained)) == expected


def test_without_a_driver_the_reason_is_given_and_no_process_stays(opened: Open) -> None:
    sampler = opened(NVML_STUB_MODE="absent_driver")
    pid = pid_of(sampler)
    expected = "the NVIDIA driver is installed, but not loaded"
    assert sampler.accelerator.reason == expected
    assert reasons(sampler.poll()) == dict.fromkeys(METRICS, expected)
    assert sampler.poll() == []
    wait_until_gone(pid)


def test_an_answer_that_comes_late_is_taken_up_by_a_later_poll(opened: Open) -> None:
    sampler = opened(NVML_STUB_DELAY_MS="300")
    assert sampler.accelerator.reason is None
    assert sampler.poll() == [], "the poll waited for what takes ten times as long as it may wait"
    assert some_power(polled(sampler, some_power))


def test_what_nvml_owes_a_trial_that_ends_has_a_reason_and_what_came_late_is_kept(opened: Open) -> None:
    sampler = opened(NVML_STUB_DELAY_MS="300", NVML_STUB_SAMPLES="")
    polled(sampler, some_power)
    late = sampler.poll()
    while not late:
        late = sampler.end()
    assert some_power(late)
    assert reasons(late) == {}
    sampler.begin()
    sampler.poll()
    assert set(reasons(sampler.end())) == set(METRICS)


def test_the_wait_for_the_opening_can_be_limited(opened: Open) -> None:
    sampler = opened(Timeouts(opening_s=DEADLINE_S, end_s=0.2), NVML_STUB_MODE="hang_in_init")
    assert not sampler.wait_until_open(0.1)
    assert opened().wait_until_open(DEADLINE_S)


def test_what_was_asked_for_before_the_trial_is_no_reading_of_it(opened: Open) -> None:
    sampler = opened(NVML_STUB_DELAY_MS="300", NVML_STUB_SAMPLES="")
    assert sampler.accelerator.reason is None
    sampler.poll()
    sampler.begin()
    begun_ns = time.monotonic_ns()
    assert all(reading.at_ns >= begun_ns for reading in polled(sampler, some_power))


def test_files_of_the_working_directory_shadow_no_module(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "pynvml", "pipeline_bench"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert opened().accelerator.reason is None


# --- an NVML that hangs ----------------------------------------------------------------------------------------------


def test_an_nvml_that_does_not_open_in_time_is_a_reason_and_its_process_is_ended(opened: Open) -> None:
    sampler = opened(NO_PATIENCE, NVML_STUB_MODE="hang_in_init")
    pid = pid_of(sampler)
    accelerator = sampler.accelerator
    assert (accelerator.name, accelerator.reason) == (None, STOPPED)
    assert reasons(sampler.poll()) == dict.fromkeys(METRICS, STOPPED)
    wait_until_gone(pid)


def test_an_nvml_that_hangs_later_is_a_reason_for_every_metric_once_a_trial(opened: Open) -> None:
    sampler = opened(NVML_STUB_MODE="hang_after_2")
    pid = pid_of(sampler)
    readings = polled(sampler, all_explained)
    assert len(values(readings, "device_power_watts")) == 2
    assert reasons(readings) == dict.fromkeys(METRICS, STOPPED)
    assert sampler.poll() == []
    sampler.begin()
    assert reasons(sampler.poll()) == dict.fromkeys(METRICS, STOPPED)
    assert sampler.accelerator.reason == STOPPED
    wait_until_gone(pid)


def test_the_reason_belongs_to_the_instrument_that_was_read(opened: Open) -> None:
    sampler = opened(NVML_STUB_MODE="hang_after_20", NVML_STUB_DELAY_MS="20")
    readings = [reading for reading in polled(sampler, all_explained) if reading.metric == UTILIZATION]
    assert {reading.source for reading in readings} == {SAMPLES_SOURCE}
    assert (readings[-1].value, readings[-1].reason) == (None, STOPPED)


def test_ctrl_c_ends_the_wait_for_an_nvml_that_hangs(opened: Open) -> None:
    sampler = opened(Timeouts(opening_s=DEADLINE_S), NVML_STUB_MODE="hang_in_init")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _ = sampler.accelerator.reason
    timer.join()


# --- a process that ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "signal_name"),
    [("crash_in_init", "SIGSEGV"), ("abort_after_1", "SIGABRT")],
)
def test_an_nvml_that_crashes_is_a_reason(opened: Open, mode: str, signal_name: str) -> None:
    sampler = opened(NVML_STUB_MODE=mode)
    expected = f"NVML's process was killed by {signal_name}"
    assert reasons(polled(sampler, all_explained)) == dict.fromkeys(METRICS, expected)
    assert sampler.poll() == []
    assert sampler.accelerator.reason == expected
    assert sampler.pid is None


def test_a_process_that_is_killed_between_two_polls_is_a_reason(opened: Open) -> None:
    sampler = opened()
    polled(sampler, some_power)
    os.kill(pid_of(sampler), signal.SIGKILL)
    assert reasons(polled(sampler, all_explained)) == dict.fromkeys(METRICS, "NVML's process was killed by SIGKILL")


ANSWERING = """
import os, sys, time

def answer(line):
    os.write(int(sys.argv[-2]), line + b"\\n")
"""


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sys.exit(3)", "NVML's process ended with exit code 3"),
        ("answer(b'nonsense')", "NVML's process gave an answer that cannot be read"),
        ("answer(b'7')", "NVML's process gave an answer that cannot be read"),
    ],
)
def test_a_process_that_is_not_ours_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!{sys.executable}\n{ANSWERING}\n{script}\ntime.sleep(1000)\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    with closing(NvmlSampler.open(QUICK)) as sampler:
        assert sampler.accelerator.reason == reason


def test_a_process_that_cannot_be_started_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/interpreter")
    with closing(NvmlSampler.open()) as sampler:
        assert sampler.accelerator.reason == "NVML's process ended with exit code 127"
        assert set(reasons(sampler.poll())) == set(METRICS)


# --- how long the process lives --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ok", "hang_after_1"])
def test_a_closed_sampler_leaves_no_process_and_reads_nothing(opened: Open, mode: str) -> None:
    sampler = opened(NVML_STUB_MODE=mode)
    pid = pid_of(sampler)
    for _ in range(3):
        sampler.poll()
    sampler.close()
    wait_until_gone(pid)
    assert sampler.pid is None
    assert sampler.poll() == []
    sampler.begin()
    sampler.close()
    assert sampler.poll() == []


def test_a_sampler_that_is_closed_before_nvml_answers_says_so_and_does_not_wait(opened: Open) -> None:
    sampler = opened(Timeouts(opening_s=DEADLINE_S, end_s=0.2), NVML_STUB_MODE="hang_in_init")
    sampler.close()
    assert sampler.accelerator.reason == "NVML had not answered when it was closed"


def test_a_closed_sampler_still_knows_the_gpu(opened: Open) -> None:
    sampler = opened(NVML_STUB_DEVICES="2", CUDA_VISIBLE_DEVICES="1")
    assert sampler.accelerator.reason is None
    sampler.close()
    assert sampler.accelerator.name == "NVIDIA Stub"


def test_ctrl_c_in_the_terminal_is_not_for_the_process(opened: Open) -> None:
    sampler = opened()
    polled(sampler, some_power)
    assert os.getsid(pid_of(sampler)) != os.getsid(0)
    os.kill(pid_of(sampler), signal.SIGINT)
    assert polled(sampler, some_power)
    assert sampler.accelerator.reason is None


def test_the_process_outlives_the_thread_that_opened_it(opened: Open) -> None:
    samplers: list[NvmlSampler] = []

    def open_one() -> None:
        samplers.append(opened())
        samplers[0].wait_until_open(DEADLINE_S)  # by then the process has asked the kernel to end with its parent

    thread = threading.Thread(target=open_one)
    thread.start()
    thread.join()
    for _ in range(2):
        assert polled(samplers[0], some_power)
    assert samplers[0].accelerator.reason is None


def pids_of_killed_fork(work: Callable[[], list[int]]) -> list[int]:
    """The numbers of processes that the work gives in a fork of this process, which is killed behind it."""
    read, write = os.pipe()
    if (fork := os.fork()) == 0:
        try:
            os.write(write, " ".join(map(str, work())).encode())
            signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    pids = [int(word) for word in os.read(read, 100).split()]
    os.close(read)
    os.kill(fork, signal.SIGKILL)
    os.waitpid(fork, 0)
    return pids


@pytest.mark.parametrize("mode", ["hang_in_init", "hang_after_1"])
def test_no_process_is_left_when_the_parent_is_killed(opened: Open, mode: str) -> None:
    def watch() -> list[int]:
        sampler = opened(NVML_STUB_MODE=mode)
        for _ in range(3):
            sampler.poll()
        return [pid_of(sampler)]

    wait_until_gone(*pids_of_killed_fork(watch))


def test_a_fork_of_the_parent_leaves_the_process_alone_and_does_not_keep_it_alive(opened: Open) -> None:
    def work() -> list[int]:
        sampler = opened()
        assert sampler.accelerator.reason is None
        if os.fork() == 0:
            assert sampler.poll() == []
            sampler.begin()
            sampler.close()
            os._exit(0)
        assert os.wait()[1] == 0
        assert some_power(polled(sampler, some_power))
        if (fork := os.fork()) == 0:
            signal.pause()
        return [fork, pid_of(sampler)]

    fork, pid = pids_of_killed_fork(work)
    try:
        wait_until_gone(pid)
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_job_that_waits_for_all_of_its_children_also_for_orphans_has_none_of_the_process(opened: Open) -> None:
    def work() -> list[int]:
        for adopts in (False, True):
            if adopts:
                adopt_orphans()
            sampler = opened()
            assert sampler.accelerator.reason is None
            if adopts:
                sampler.close()
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
        return [os.getpid()]

    assert pids_of_killed_fork(work)


# --- what the process itself uses ------------------------------------------------------------------------------------


def test_the_process_is_none_of_the_jobs_that_is_watched_from_within(opened: Open) -> None:
    sampler = opened()
    assert sampler.accelerator.reason is None
    assert pid_of(sampler) not in {child.pid for child in psutil.Process().children(recursive=True)}
