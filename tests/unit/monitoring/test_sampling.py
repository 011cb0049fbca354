"""The samplers' thread: what goes wrong in it does not end it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.model.events import Device
from pipeline_bench.monitoring import sampling
from pipeline_bench.monitoring.sampling import Readings, SamplerThread, device_of, device_of_tf_data, was_stopped
from pipeline_bench.planted import cuda
from pipeline_bench.samplers import Reading, Sampler
from tests.stubs.nvml import gpu_stub

__all__ = ["gpu_stub"]


class Failing(Sampler):
    """One that cannot be asked."""

    def poll(self) -> list[Reading]:
        raise OSError("too many open files")


class Held(Sampler):
    """One whose answer is waited for."""

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def poll(self) -> list[Reading]:
        self.asked.set()
        self.let_go.wait(60)
        return []


def test_what_a_sampler_raises_reaches_no_thread_of_the_job() -> None:
    thread = SamplerThread([Failing()], Readings())
    thread.poll()
    thread.close()
    assert str(thread.problem) == "too many open files"


def test_a_job_that_joins_all_its_threads_ends() -> None:
    held, before = Held(), set(threading.enumerate())
    asked_for: list[object] = []
    thread = SamplerThread([held], Readings(), lambda: asked_for.append(threading.current_thread()))
    assert held.asked.wait(60)
    held.let_go.set()
    others = set(threading.enumerate()) - before
    assert all(isinstance(each, threading._DummyThread) for each in others)
    thread.close()


def test_a_fork_that_is_made_while_the_thread_polls_ends() -> None:
    held = Held()
    thread = SamplerThread([held], Readings())
    held.asked.wait(60)
    child = os.fork()
    if not child:
        held.let_go.set()
        signal.alarm(20)
        try:
            thread.close()
        finally:
            os._exit(int(sys.exc_info()[0] is not None))
    assert os.waitpid(child, 0)[1] == 0
    held.let_go.set()
    thread.close()


def test_the_thread_goes_on_after_what_is_done_after_a_poll_raised_and_keeps_what() -> None:
    again = threading.Event()
    calls = []

    def fails_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("the graph's rows cannot be read")
        again.set()

    thread = SamplerThread([], Readings(), fails_once)
    assert again.wait(timeout=60)
    thread.close()
    assert str(thread.problem) == "the graph's rows cannot be read"


@pytest.mark.parametrize(
    ("took_s", "used_s", "usual_s", "stopped"),
    [(30, 0.1, 0.0, True), (30, 3.0, 2.0, True), (30, 7.0, 0.2, False), (30, 17.0, 9.0, False), (2, 0.0, 0.2, False)],
)
def test_a_process_that_used_no_more_than_until_then_was_stopped(
    took_s: float, used_s: float, usual_s: float, stopped: bool
) -> None:
    assert was_stopped(*(round(1e9 * each) for each in (took_s, used_s, usual_s))) is stopped


def test_the_thread_notes_when_the_process_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns, polled, readings = [0], threading.Event(), Readings()
    monkeypatch.setattr(sampling, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(sampling, "process_time_ns", lambda: 0)
    thread = SamplerThread([], readings, polled.set)
    assert polled.wait(timeout=60)
    now_ns[0] = 3600 * 10**9
    for _ in range(2):
        polled.clear()
        assert polled.wait(timeout=60)
    thread.close()
    assert readings.stops == [(0, now_ns[0])]


def ranks_second_gpu() -> dict[str, Any]:
    """The frameworks in the job of a rank that works on the second GPU of its machine, as they say it."""
    first, second = (SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in range(2))
    details = {first.name: {"device_name": "GPU one"}, second.name: {"device_name": "GPU two"}}
    config = SimpleNamespace(
        list_logical_devices=lambda kind: [SimpleNamespace(name="/device:GPU:0")],
        list_physical_devices=lambda kind: [first, second],
        get_visible_devices=lambda kind: [second],
        experimental=SimpleNamespace(get_device_details=lambda device: details[device.name]),
    )
    named = {0: "GPU one", 1: "GPU two"}
    of_torch = SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 1, get_device_name=lambda number=None: named[number or 1]
    )
    of_jax = [SimpleNamespace(platform="gpu", device_kind=named[each], local_hardware_id=each) for each in named]
    return {
        "tensorflow": SimpleNamespace(config=config),
        "torch": SimpleNamespace(cuda=of_torch),
        "jax": SimpleNamespace(devices=lambda: of_jax, local_devices=lambda: of_jax[1:]),
        "jax._src.xla_bridge": SimpleNamespace(backends_are_initialized=lambda: True),
    }


@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_the_gpu_of_a_rank_is_the_one_that_it_works_on(
    gpu_stub: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    for name, module in ranks_second_gpu().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda, "LIBRARY", str(gpu_stub / "libcuda.so.1"))
    assert device_of(framework) == Device(kind="gpu", name="GPU two", pci_bus_id="0000:02:00.0")
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda_that_is_not_there.so")
    assert device_of(framework) == Device(kind="gpu", name="GPU two")


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_batches_of_tf_data_may_go_to_another_frameworks_gpu(monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    config = SimpleNamespace(list_logical_devices=lambda _: [])
    found = {"tensorflow": SimpleNamespace(config=config)}
    others = {name: module for name, module in ranks_second_gpu().items() if name.startswith(framework)}
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    for name, module in {**found, **others}.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert device_of_tf_data().name == "GPU two"
