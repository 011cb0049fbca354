"""The course of a trial."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from pipeline_bench.model.events import Failed, decode
from pipeline_bench.model.trial import plan
from pipeline_bench.scenario import Run
from pipeline_bench.worker import main as mains
from pipeline_bench.worker import recorder as recorders
from pipeline_bench.worker.engine import Engine
from pipeline_bench.worker.recorder import Channel, Recorder
from tests.unit.records import scenario


class Littering(Engine):
    """Makes a file as AutoGraph does, to be removed when the interpreter ends: the process of a trial ends first."""

    def build(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="__autograph_generated_file", delete=False) as file:
            self.made = Path(file.name)
        assert self.made.exists()

    def train(self) -> None:
        raise ZeroDivisionError


def test_a_trial_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "_sanitize_params", tempfile._sanitize_params)  # type: ignore[attr-defined]
    with (tmp_path / "events").open("wb") as events:
        channel = Channel(events.fileno())
        engine = Littering(plan(scenario("feed_dict", repeats=1))[0], channel, Recorder(channel, Run()))
        with pytest.raises(ZeroDivisionError):
            engine.run()
    assert not engine.made.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["events"]


class WithWorker(Engine):
    """Has a process beside itself, which is watched, and fails."""

    def start_processes(self) -> None:
        self.worker: BaseProcess = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
        self.worker.start()
        self.recorder.guard(lambda _: "worker 0 was killed by SIGKILL" if self.worker.exitcode else None)

    def build(self) -> None:
        raise ValueError("no such file")

    def train(self) -> None:
        """Is not reached."""

    def stop(self) -> None:
        self.worker.kill()
        self.worker.join()
        time.sleep(20 * recorders.SHIP_EVERY_S)  # a recorder that still watches sees it


@pytest.mark.parametrize("killed", [False, True])
def test_a_failure_is_told_and_not_the_end_of_the_processes_that_it_ends(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was dead before is the reason."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "_sanitize_params", tempfile._sanitize_params)  # type: ignore[attr-defined]
    monkeypatch.setattr(recorders, "SHIP_EVERY_S", 0.005)
    for module in (mains, recorders):
        monkeypatch.setattr(module, "leave", lambda _: None)
    with (tmp_path / "events").open("wb") as events:
        channel = Channel(events.fileno())
        recorder = Recorder(channel, Run())
        engine = WithWorker(plan(scenario("feed_dict", repeats=1))[0], channel, recorder)
        engine.start_processes()
        if killed:
            engine.worker.kill()
            engine.worker.join()
        with mains._failures_sent(channel, lambda: recorder):
            recorder.start()
            engine.run()
    told = [decode(line) for line in (tmp_path / "events").read_bytes().splitlines()]
    reasons = {event.error for event in told if isinstance(event, Failed)}
    assert reasons == {"worker 0 was killed by SIGKILL" if killed else "ValueError: no such file"}
