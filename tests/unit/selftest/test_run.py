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
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.selftest import cases, gpu, judge, run
from pipeline_bench.selftest.training import SelftestStep, attempt
from pipeline_bench.system import interrupts
from tests.trials import new_session, parts_of


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
    """Run a selftest with these parts, of a machine with a GPU or without; by default without TensorFlow."""

    def run_with(
        *parts: tuple[str, Change],
        quick: bool = True,
        name: str | None = "NVIDIA Stub",
        tensorflow: str | None = None,
    ) -> Outcome:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(environment, "tensorflow_version", lambda: tensorflow)
        monkeypatch.setattr(NvmlSampler, "accelerator", Accelerator(name, "580.1"))
        monkeypatch.setattr(gpu, "parts", lambda *_: iter(parts))
        folder = tmp_path / "session"
        folder.mkdir()
        with run.planned(quick) as plan:
            return run.run(plan, folder, Observer())

    return run_with


def remembered() -> list[Path]:
    """The files of the last selftest, of whatever machine."""
    return list(last_file("", None).parent.glob("*.json"))


def test_a_part_that_raises_fails_with_a_line_and_stops_no_other(selftest: Callable[..., Outcome]) -> None:
    outcome = selftest((cases.ACTIVITY, breaks), (cases.UTILIZATION, passes))
    found = parts_of(outcome)
    assert found[cases.ACTIVITY].status == "failed"
    assert found[cases.ACTIVITY].reason == "ZeroDivisionError: a GPU without SMs"
    assert found[cases.UTILIZATION].status == "passed"
    assert found[cases.SOURCE].reason == "TensorFlow is not installed"
    assert sessions.load(outcome.folder) == outcome.session
    assert not outcome.all_ok
    assert remembered()
    assert "ZeroDivisionError" in dict(report.facts(outcome.session))[cases.ACTIVITY]


def test_where_nothing_could_be_checked_that_is_no_success_and_replaces_no_last_one(
    selftest: Callable[..., Outcome],
) -> None:
    outcome = selftest()
    assert {part.status for part in parts_of(outcome).values()} == {"not-run"}
    assert not outcome.all_ok
    assert not remembered()


def test_what_takes_too_long_is_said_to_and_not_that_the_program_killed_it(
    selftest: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_LIMIT_S", 0.0)
    found = parts_of(selftest(tensorflow="2.16.0"))
    assert found[cases.SOURCE].reason == "a bare step could not be timed: it took longer than 0 s"
    assert found[cases.COST].reason == "the steps could not be timed: it took longer than 0 s"


@pytest.mark.parametrize(("quick", "name"), [(False, "NVIDIA Stub"), (True, "NVIDIA Stub"), (False, None)])
def test_trainings_on_a_gpu_have_one_reason_in_all_and_no_row_where_none_was_asked_for(
    selftest: Callable[..., Outcome], quick: bool, name: str | None
) -> None:
    found = parts_of(selftest(quick=quick, name=name))
    of_gpus = [part.reason for part in found.values() if "GPU" in part.name]
    assert of_gpus == (["TensorFlow is not installed"] if name and not quick else [])


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
    assert not remembered()


def test_what_a_step_saved_before_it_raised_is_kept(tmp_path: Path) -> None:
    session = new_session(cases.scenario(cases.all_of(True, tmp_path), True)).model_copy(
        update={"selftest": Selftest()}
    )
    sessions.save(session, tmp_path)

    def saves_and_raises(outcome: Outcome) -> Outcome:
        sessions.save(outcome.session.model_copy(update={"notes": ("a trial",)}), outcome.folder)
        raise KeyError("planted")

    outcome = attempt(SelftestStep((cases.SOURCE,), saves_and_raises), Outcome(session, tmp_path, interrupted=False))
    assert outcome.session.notes == ("a trial",)
    assert parts_of(outcome)[cases.SOURCE].reason == "KeyError: 'planted'"
