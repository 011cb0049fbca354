"""Disturbances on their way into the session file."""

from __future__ import annotations

from pathlib import Path

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.session import load
from pipeline_bench.model.trial import Trial
from pipeline_bench.run.launcher import Child, LauncherName, TrialServer
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.runner import Runner
from pipeline_bench.samplers.nvml import NvmlSampler
from tests.unit import records
from tests.unit.analysis.planted import steady, trial


class Refusing(TrialServer):
    """Starts nothing, so that the session keeps the trials it came with, and gets failed ones at most."""

    def __init__(self) -> None:
        self.name: LauncherName = "fresh"

    def start(self, trial: Trial, stderr: Path, *, private_network: bool = False) -> Child:
        raise PipelineBenchError("not in this test")


def test_the_runner_saves_what_disturbed_the_trials(tmp_path: Path) -> None:
    slow = steady(0)
    slow[600:800] *= 3
    trials = tuple(trial(repeat, slow if repeat == 0 else steady(repeat), variant="feed_dict") for repeat in range(3))
    session = records.session(records.scenario("feed_dict"), trials)
    returned = Runner(tmp_path, Refusing(), NvmlSampler(), Observer()).run(session).session
    assert [(each.kind, each.variant, each.repeat) for each in returned.disturbances] == [("burst", "feed_dict", 0)]
    assert load(tmp_path).disturbances == returned.disturbances
