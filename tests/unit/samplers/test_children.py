"""What a trial's own processes use, against real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from pipeline_bench.samplers.host import Children, HostSampler

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's list of children is Linux' own")


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


def test_what_a_child_used_is_kept_when_it_has_ended_but_not_what_it_held(family: subprocess.Popen[bytes]) -> None:
    (grandchild,) = psutil.Process(family.pid).children()
    children = Children(family.pid)
    children.find()
    assert children.sum("used", lambda _: 3.0, cumulative=True) == 3
    assert children.sum("held", lambda _: 3.0, cumulative=False) == 3
    grandchild.kill()
    family.kill()
    family.wait()
    children.find()
    assert children.sum("used", lambda _: 3.0, cumulative=True) == 3
    assert children.sum("held", lambda _: 3.0, cumulative=False) == 0


def test_a_process_that_has_ended_has_no_children() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    children = Children(ended.pid)
    children.find()
    assert children.sum("count", lambda _: 1.0, cumulative=False) == 0


def test_the_host_sampler_counts_them_as_the_trials(family: subprocess.Popen[bytes]) -> None:
    (grandchild,) = psutil.Process(family.pid).children()
    readings = {reading.metric: reading.value or 0 for reading in HostSampler(family.pid).poll()}
    own, other = psutil.Process(family.pid), grandchild
    assert readings["threads"] == own.num_threads() + other.num_threads()
    assert readings["memory_bytes"] > own.memory_info().rss
