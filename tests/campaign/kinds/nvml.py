"""An NVML that hangs, crashes and lies: the stub of tests/stubs in place of NVIDIA's library."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from shutil import rmtree

from pipeline_bench.errors import PipelineBenchError
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome, saved
from tests.campaign.processes import SCRIPTED, Program
from tests.campaign.words import lines
from tests.stubs.nvml import build, stub_environment

COUNT = 30
WAITS = True
_MODES = lines("nvml_modes.txt")
"""See tests/stubs/nvml_stub.c. An nvmlInit that hangs is given two minutes, which no try has."""
_VARIABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NVML_STUB_DEVICES", ("0", "3", "8", "1000")),
    ("NVML_STUB_UTILIZATION", ("-1", "101", "4294967295", "nan", "1e300")),
    ("NVML_STUB_SAMPLES", ("", "0:0", "1:99999,1:99999", "18446744073709551615:5", "5:1,4:1,3:1")),
    ("NVML_STUB_SAMPLE_TYPE", ("0", "1", "7", "-1")),
    ("NVML_STUB_DELAY_MS", ("30", "700")),
    ("NVML_STUB_PROCESSES", ("0", "100", "5000")),
    ("NVML_STUB_THROTTLE_REASONS", ("-1", "2147483647")),
)


def plan(random: Random, number: int) -> Case:
    """Draw a mode, and what the stub says of its device."""
    variables = {name: random.choice(values) for name, values in random.sample(_VARIABLES, random.choice((0, 1, 3)))}
    return {"variables": {"NVML_STUB_MODE": _MODES[number % len(_MODES)], **variables}}


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Measure beside it: the trials go through, and what is shown of the device can be true."""
    (bench.folder / "scripted.toml").write_text('[[variants]]\nname = "long"\nbackend = "feed_dict"\n', "utf-8")
    arguments = ["compare", "scripted.toml", "--no-live", "--repeats", "1", "--out", "reports"]
    environment = stub_environment(_stub(), **case["variables"])
    variables = {name: environment[name] for name in ("LD_LIBRARY_PATH", *case["variables"])}
    program = Program(bench.folder, arguments, SCRIPTED, variables)
    found = program.outcome(folder=bench.folder / "reports")
    found.more += _lies(bench.folder / "reports")
    return [found]


def _lies(reports: Path) -> list[str]:
    """What the session says of the device that cannot be."""
    try:
        session = saved(reports)
    except PipelineBenchError:
        return []  # as the checks say
    if session is None:
        return ["there is no session"]
    said = [f"a trial is {trial.status}: {trial.reason}" for trial in session.trials if trial.status != "ok"]
    for result in session.results:
        share = result.device_utilization.mean_percent
        if share is not None and not 0 <= share <= 100:
            said.append(f"the device was {share} % busy")
    for track in (track for trial in session.trials for track in trial.samples):
        if track.values is None and track.reason is None:
            said.append(f"{track.metric} has neither values nor a reason")
        if track.values is not None and track.metric.startswith("device_") and (track.values.unpack() < 0).any():
            said.append(f"{track.metric} is negative")
    return said


@cache
def _stub() -> Path:
    folder = tempfile.mkdtemp(prefix="campaign-nvml-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return build(Path(folder))
