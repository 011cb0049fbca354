"""The runner, the follower and real processes that follow a script; no TensorFlow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from pipeline_bench import environment, follower
from pipeline_bench.errors import SessionError
from pipeline_bench.observer import Observer, Progress
from pipeline_bench.process import FreshLauncher
from pipeline_bench.runner import Runner
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.session import Precision, Session, TrialRecord, load
from pipeline_bench.trial import Trial
from tests.integration.scripted_child import STEPS

CHILD = Path(__file__).with_name("scripted_child.py")


@pytest.fixture(autouse=True)
def package_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted child runs as a file of its own; let it import what this test imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "STALL_GRACE_S", 0.2)


def scripted(*scripts: str, stall_timeout_s: float = 30) -> Scenario:
    """One variant a script, without ceilings."""
    resolved = resolve(
        {
            "name": "scripted",
            "run": {"repeats": 1, "stall_timeout_s": stall_timeout_s},
            "variants": [{"name": script, "backend": "feed_dict"} for script in scripts],
        }
    )
    alone = [v.model_copy(update={"ceiling": None}) for v in resolved.variants if v.backend != "ceiling"]
    return resolved.model_copy(update={"variants": tuple(alone)})


def run(
    folder: Path, scenario: Scenario, observer: Observer | None = None, precision: Precision | None = None
) -> tuple[Session, bool]:
    session = Session(
        started_at="2026-01-01T00:00:00+00:00",
        scenario=scenario,
        environment=environment.describe(environment.Accelerator()),
        precision=precision,
    )
    launcher = FreshLauncher((sys.executable, str(CHILD)))
    return Runner(folder, launcher, NvmlSampler.open(), observer or Observer()).run(session)


def trial(folder: Path, script: str, **kwargs: float) -> TrialRecord:
    session, _ = run(folder, scripted(script, **kwargs))
    return session.trials[0]


def test_a_trial_that_goes_through_is_recorded_whole(tmp_path: Path) -> None:
    record = trial(tmp_path, "ok")
    assert record.status == "ok"
    assert record.steps is not None
    assert record.steps.count == STEPS
    assert (record.accuracy.before, record.accuracy.after) == (0.5, 0.9)
    assert record.device is not None
    assert {track.metric for track in record.samples} >= {"cpu_seconds", "memory_bytes"}


def test_what_a_trial_prints_goes_to_its_file_and_not_into_its_results(tmp_path: Path) -> None:
    record = trial(tmp_path, "ok")
    assert record.stderr_file is not None
    assert "a library's noise" in (tmp_path / record.stderr_file).read_text()


@pytest.mark.parametrize(
    ("script", "words"),
    [("crash", "SIGSEGV"), ("exit", "exit code 3"), ("raise", "ValueError: planted"), ("garbage", "this is no event")],
)
def test_a_trial_that_fails_says_how_and_the_others_go_on(tmp_path: Path, script: str, words: str) -> None:
    session, interrupted = run(tmp_path, scripted("ok", script, "ok too"))
    assert [record.status for record in session.trials] == ["ok", "failed", "ok"]
    assert words in (session.trials[1].reason or "")
    assert not interrupted


def test_the_last_words_of_a_failed_trial_are_kept(tmp_path: Path) -> None:
    assert "these are my last words" in trial(tmp_path, "exit").stderr_tail


def test_steps_before_a_failure_are_not_lost(tmp_path: Path) -> None:
    record = trial(tmp_path, "raise")
    assert record.steps is not None
    assert record.steps.count == 5


def test_a_trial_that_falls_silent_is_stalled_with_its_stacks_asked_for(tmp_path: Path) -> None:
    record = trial(tmp_path, "silent", stall_timeout_s=0.5)
    assert record.status == "stalled"
    assert "feed_dict made no step for 0.5 s after step 5" in (record.reason or "")


def test_a_stall_that_the_child_explains_names_its_queue_and_its_threads(tmp_path: Path) -> None:
    record = trial(tmp_path, "stall")
    assert record.status == "stalled"
    assert "input_queue held 0 of 5 elements" in (record.reason or "")
    assert "MainThread stood at a.py:1 in main" in (record.reason or "")


def test_a_stalled_trials_descendants_are_gone_even_from_another_session(tmp_path: Path) -> None:
    record = trial(tmp_path, "family", stall_timeout_s=0.5)
    assert record.stderr_file is not None
    words = (tmp_path / record.stderr_file).read_text().split()
    pid = int(words[words.index("grandchild") + 1])
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    else:
        pytest.fail(f"the trial's grandchild {pid} still runs")


def test_the_file_is_there_before_the_first_trial_and_after_each(tmp_path: Path) -> None:
    seen: list[int] = []

    class Reader(Observer):
        def session_started(self, session: Session, plan: Sequence[Trial]) -> None:
            seen.append(len(load(tmp_path).trials))

        def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
            seen.append(len(load(tmp_path).trials))

    run(tmp_path, scripted("ok", "raise"), Reader())
    assert seen == [0, 1, 2]


def test_rounds_are_added_until_the_speedup_is_known_well_enough(tmp_path: Path) -> None:
    """The scripted steps take 1 ms each, so that the interval has no width once the precision counts."""
    session, interrupted = run(tmp_path, scripted("ok", "ok too"), precision=Precision(goal=0.02, budget_s=600))
    assert not interrupted
    assert [(record.variant, record.repeat) for record in session.trials] == [
        (name, repeat) for repeat in range(8) for name in ("ok", "ok too")
    ]
    assert session.precision is not None
    assert session.precision.ended_by == "precision"
    assert load(tmp_path) == session


def test_a_budget_that_is_too_small_still_gives_an_interval(tmp_path: Path) -> None:
    session, _ = run(tmp_path, scripted("ok", "ok too"), precision=Precision(goal=0.02, budget_s=0.01))
    assert len(session.trials) == 4
    assert session.precision is not None
    assert session.precision.ended_by == "budget"
    assert session.result("ok too").speedup.ci95 is not None


def test_a_variant_that_never_works_does_not_keep_the_others_going(tmp_path: Path) -> None:
    session, _ = run(tmp_path, scripted("ok", "raise"), precision=Precision(goal=0.02, budget_s=600))
    assert len(session.trials) == 4
    assert session.precision is not None
    assert session.precision.ended_by is None
    assert "raise is left out: it has no good trial" in session.precision.text


def test_an_interrupt_is_what_ended_it(tmp_path: Path) -> None:
    goal = Precision(goal=0.02, budget_s=600)
    session, interrupted = run(tmp_path, scripted("ok", "silent"), Impatient(), goal)
    assert interrupted
    assert session.precision is not None
    assert (session.precision.ended_by, session.precision.repeats) == ("interrupted", 0)
    assert load(tmp_path) == session


class Impatient(Observer):
    """Interrupts as a user does, at the first sign of progress of the second trial."""

    def progress(self, trial: Trial, progress: Progress) -> None:
        if trial.index == 1 and progress.steps:
            raise KeyboardInterrupt


def test_an_interrupted_session_keeps_what_was_measured(tmp_path: Path) -> None:
    session, interrupted = run(tmp_path, scripted("ok", "silent", "never"), Impatient())
    assert interrupted
    assert [record.status for record in session.trials] == ["ok", "interrupted"]
    assert load(tmp_path) == session
    assert session.trials[1].steps is not None


def test_a_child_that_cannot_be_started_is_a_failed_trial(tmp_path: Path) -> None:
    session = Session(
        started_at="2026-01-01T00:00:00+00:00",
        scenario=scripted("ok"),
        environment=environment.describe(environment.Accelerator()),
    )
    launcher = FreshLauncher(("/no/such/interpreter",))
    done, _ = Runner(tmp_path, launcher, NvmlSampler.open(), Observer()).run(session)
    assert done.trials[0].status == "failed"
    assert "could not be started" in (done.trials[0].reason or "")


def test_a_disk_that_fills_ends_the_session_with_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []

    def full_from_the_second_trial_on(session: Session, folder: Path) -> Path:
        if len(session.trials) > 1:
            raise SessionError("planted: no space left on device")
        saved.append(session)
        return folder

    monkeypatch.setattr("pipeline_bench.runner.sessions.save", full_from_the_second_trial_on)
    session, interrupted = run(tmp_path, scripted("ok", "ok too", "never"))
    assert not interrupted
    assert [record.status for record in session.trials] == ["ok", "ok"]
    assert "no space left" in session.notes[0]


def test_a_trial_that_died_has_failed_although_its_descendant_holds_the_pipe(tmp_path: Path) -> None:
    record = trial(tmp_path, "orphan", stall_timeout_s=20)
    assert record.status == "failed"
    assert "SIGKILL" in (record.reason or "")
