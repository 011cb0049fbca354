"""When a process is not forked: whatever an import leaves behind that a fork would break."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from pipeline_bench.system import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


def test_a_quiet_import_may_be_forked() -> None:
    assert processes.why_not_forkable(processes.thread_count()) is None


def test_a_thread_that_the_import_started_forbids_forking() -> None:
    before = processes.thread_count()
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert processes.why_not_forkable(before) == "importing TensorFlow started 1 threads"
    finally:
        release.set()
        thread.join()


def test_an_open_accelerator_forbids_forking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_open_files", lambda: ["/dev/null", "/dev/nvidia0"])
    assert processes.why_not_forkable(processes.thread_count()) == "importing TensorFlow opened /dev/nvidia0"


def test_the_open_files_are_this_processes(tmp_path: Path) -> None:
    with (tmp_path / "opened").open("w"):
        assert str(tmp_path / "opened") in processes._open_files()
