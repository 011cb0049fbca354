"""The course of a trial."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pipeline_bench.model.trial import plan
from pipeline_bench.scenario import Run
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
