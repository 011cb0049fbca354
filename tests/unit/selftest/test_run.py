"""The order of a selftest's steps, and what one that raises leaves; no trial is run, as if TensorFlow were missing."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_bench import environment
from pipeline_bench.environment import Accelerator
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model import session as sessions
from pipeline_bench.model.selftest import Part, Selftest, last_file
from pipeline_bench.report import selftest as report
from pipeline_bench.run.comparison import Outcome
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.selftest import cases, gpu, judge, run
from pipeline_bench.system import interrupts


def passes(selftest: Selftest) -> Selftest:
    part = Part(name=cases.UTILIZATION, status="passed", meaning=cases.MEANING[cases.UTILIZATION])
    return judge.with_parts(selftest, [part])


def breaks(selftest: Selftest) -> Selftest:
    raise ZeroDivisionError("a GPU\nwithout SMs")


def cannot_begin(selftest: Selftest) -> Selftest:
    raise PipelineBenchError("A process cannot be started.")


def is_interrupted(selftest: Selftest) -> Selftest:
    signal.raise_signal(signal.SIGINT)
    interrupts.check()
    raise AssertionError("an interrupt was lost")


Change = Callable[[Selftest], Selftest]


@pytest.fixture
def selftest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a quick selftest with these parts on a GPU, as of a machine that has one and no TensorFlow."""

    def run_with(*parts: tuple[str, Change]) -> Outcome:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(environment, "tensorflow_version", lambda: None)
        monkeypatch.setattr(NvmlSampler, "accelerator", Accelerator("NVIDIA Stub", "580.1"))
        monkeypatch.setattr(gpu, "parts", lambda *_: iter(parts))
        folder = tmp_path / "session"
        folder.mkdir()
        with run.planned(quick=True) as plan:
            return run.run(plan, folder, Observer())

    return run_with


def parts_of(outcome: Outcome) -> dict[str, Part]:
    assert outcome.session.selftest is not None
    return {part.name: part for part in outcome.session.selftest.parts}


def test_a_part_that_raises_fails_with_a_line_and_stops_no_other(selftest: Callable[..., Outcome]) -> None:
    outcome = selftest((cases.ACTIVITY, breaks), (cases.UTILIZATION, passes))
    found = parts_of(outcome)
    assert found[cases.ACTIVITY].status == "failed"
    assert found[cases.ACTIVITY].reason == "ZeroDivisionError: a GPU without SMs"
    assert found[cases.UTILIZATION].status == "passed"
    assert found[cases.SOURCE].reason == "TensorFlow is not installed"
    assert sessions.load(outcome.folder) == outcome.session
    assert not outcome.all_ok
    assert last_file().exists()
    assert "ZeroDivisionError" in dict(report.facts(outcome.session))[cases.ACTIVITY]


def test_a_part_that_cannot_begin_is_not_run_and_one_that_ends_early_failed(selftest: Callable[..., Outcome]) -> None:
    found = parts_of(
        selftest((cases.ACTIVITY, cannot_begin), (cases.UTILIZATION, passes), (cases.UTILIZATION, cannot_begin))
    )
    assert (found[cases.ACTIVITY].status, found[cases.UTILIZATION].status) == ("not-run", "failed")
    assert {each.reason for each in (found[cases.ACTIVITY], found[cases.UTILIZATION])} == {
        "A process cannot be started."
    }


def test_an_interrupt_ends_all_of_it_and_keeps_the_parts_before(selftest: Callable[..., Outcome]) -> None:
    outcome = selftest((cases.UTILIZATION, passes), (cases.ACTIVITY, is_interrupted), (cases.COPY, breaks))
    assert outcome.interrupted
    kept = sessions.load(outcome.folder).selftest
    assert kept is not None
    assert [part.name for part in kept.parts] == [cases.UTILIZATION]
    assert not last_file().exists()
