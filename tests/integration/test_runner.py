"""The runner, the follower and real processes that follow a script; no TensorFlow."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

import psutil
import pytest

from pipeline_bench.errors import PipelineBenchError, SessionError
from pipeline_bench.model.edits import InsertAfter
from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.result import Precision
from pipeline_bench.model.session import Session, load
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.model.trial import Trial, TrialRecord
from pipeline_bench.run import follower
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.run.runner import ByPrecision, Planner, Runner
from pipeline_bench.samplers.nvml import STOPPED, NvmlSampler, Timeouts
from pipeline_bench.samplers.nvml_metrics import METRICS
from pipeline_bench.scenario import Component, Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.integration.program import scripted_launcher, started
from tests.integration.scripted_child import STEPS
from tests.processes import wait_for, wait_until_gone
from tests.stubs.nvml import nvml_stub, use
from tests.trials import alone, new_session

__all__ = ["nvml_stub"]


Run = Callable[..., Outcome]


@pytest.fixture(scope="module", autouse=True)
def short_grace() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "STALL_GRACE_S", 0.2)
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialServer]:
    """A server of scripted children that the tests share; those that kill one have their own."""
    with closing(scripted_launcher(tmp_path_factory.mktemp("server") / "server.stderr")) as found:
        yield found


@pytest.fixture
def run(server: TrialServer, tmp_path: Path) -> Run:
    """Run a scenario's trials beside the NVML that is given, if any."""

    def run(
        scenario: Scenario,
        observer: Observer | None = None,
        precision: Precision | None = None,
        planner: Planner | None = None,
        gpu: NvmlSampler | None = None,
    ) -> Outcome:
        runner = Runner(tmp_path, server, gpu or NvmlSampler(), observer or Observer(), planner=planner)
        return runner.run(new_session(scenario, precision))

    return run


def scripted(*scripts: str, stall_timeout_s: float = 30) -> Scenario:
    """One variant a script, without ceilings."""
    variants = [{"name": script, "backend": "feed_dict"} for script in scripts]
    return alone(*variants, run={"stall_timeout_s": stall_timeout_s})


class Ran(NamedTuple):
    """What came of a trial of each script, and where."""

    records: dict[str, TrialRecord]
    folder: Path


@pytest.fixture(scope="module")
def ran(server: TrialServer, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("ran")
    scenario = scripted("ok", *FAILS, "daemon", *STALLS, "ok too", stall_timeout_s=3)
    finished = Runner(folder, server, NvmlSampler(), Observer()).run(new_session(scenario))
    assert not finished.interrupted
    return Ran({record.variant: record for record in finished.session.trials}, folder)


FAILS = {
    "crash": "SIGSEGV",
    "exit": "exit code 3",
    "raise": "ValueError: planted",
    "garbage": "this is no event",
    "orphan": "SIGKILL",  # although its descendant holds the pipe
}
STALLS = {
    "stall": ("input_queue held 0 of 5 elements", "MainThread was at a.py:1 in main"),
    "family": ("feed_dict made no step for 3 s after step 5",),
}
"""The scripts that end so, with words of the reason."""


def test_a_trial_that_goes_through_is_recorded_whole(ran: Ran) -> None:
    record = ran.records["ok"]
    assert record.status == "ok"
    assert record.steps is not None
    assert record.steps.count == STEPS
    assert (record.accuracy.before, record.accuracy.after) == (0.5, 0.9)
    assert record.device is not None
    assert {track.metric for track in record.samples} >= {"cpu_seconds", "memory_bytes"}


def test_what_a_trial_prints_goes_to_its_file_and_not_into_its_results(ran: Ran) -> None:
    file = ran.records["ok"].stderr_file
    assert file is not None
    assert "a library's noise" in (ran.folder / file).read_text()


def test_a_trial_that_fails_or_stalls_says_how_and_the_others_go_on(ran: Ran) -> None:
    expected = dict.fromkeys(FAILS, "failed") | dict.fromkeys(STALLS, "stalled")
    found = {name: record.status for name, record in ran.records.items()}
    assert found == {**expected, "ok": "ok", "daemon": "ok", "ok too": "ok"}
    for script, words in (FAILS | STALLS).items():
        for each in (words,) if isinstance(words, str) else words:
            assert each in (ran.records[script].reason or ""), script


def test_the_steps_and_last_words_of_a_failed_trial_are_kept(ran: Ran) -> None:
    assert "these are my last words" in ran.records["exit"].stderr_tail
    steps = ran.records["raise"].steps
    assert steps is not None
    assert steps.count == 5


@pytest.mark.parametrize("word", ["grandchild", "daemon"])
def test_what_a_trial_started_does_not_outlive_it_even_from_another_session(ran: Ran, word: str) -> None:
    wait_until_gone(started(ran.folder, word))


class KillsServer(Observer):
    """Kills the trials' server, either as a trial is about to start or while it trains."""

    def __init__(self, server: TrialServer, before: int | None = None) -> None:
        self._server = server
        self._before = before

    def trial_started(self, trial: Trial) -> None:
        if trial.index == self._before:
            os.kill(self._server.pid, signal.SIGKILL)

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps and self._before is None:
            os.kill(self._server.pid, signal.SIGKILL)


@pytest.mark.parametrize("script", ["daemon silent", "held"])
def test_a_trial_that_ends_with_its_server_says_what_ended_that_and_leaves_no_daemon(
    tmp_path: Path, script: str
) -> None:
    """Also where a process that it started holds its pipe open."""
    with closing(scripted_launcher(tmp_path / "server.stderr")) as server:
        runner = Runner(tmp_path, server, NvmlSampler(), KillsServer(server))
        (trial,) = runner.run(new_session(scripted(script))).session.trials
    assert trial.status == "failed"
    assert trial.reason == (
        "its process was ended with the server that starts the trials, "
        "which was killed by SIGKILL (by hand, or because memory ran out)"
    )
    if script == "daemon silent":
        wait_until_gone(started(tmp_path, "daemon"))


def test_what_keeps_one_trial_from_its_start_is_no_loss_of_the_server(
    server: TrialServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FillsDisk(Observer):
        noted: ClassVar[list[str]] = []

        def trial_started(self, trial: Trial) -> None:
            monkeypatch.undo()
            if trial.index == 0:
                monkeypatch.setattr(tempfile, "TemporaryFile", full)

        def note(self, text: str) -> None:
            self.noted.append(text)

    def full() -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def another() -> NoReturn:
        raise AssertionError("the server is well")

    runner = Runner(tmp_path, server, NvmlSampler(), FillsDisk(), replacement=another)
    first, second = runner.run(new_session(scripted("ok", "ok too"))).session.trials
    assert (first.status, second.status) == ("failed", "ok")
    assert "its process could not be started: [Errno 28] No space left on device" in (first.reason or "")
    assert not FillsDisk.noted


def test_when_the_server_is_lost_the_next_trial_has_another_one(tmp_path: Path) -> None:
    others: list[TrialServer] = []

    def another() -> TrialServer:
        others.append(scripted_launcher(tmp_path / "server.stderr"))
        return others[-1]

    with closing(scripted_launcher(tmp_path / "server.stderr")) as server:
        runner = Runner(tmp_path, server, NvmlSampler(), KillsServer(server, before=1), replacement=another)
        session = runner.run(new_session(scripted("ok", "ok too", "third"))).session
    assert [record.status for record in session.trials] == ["ok", "ok", "ok"]
    (other,) = others
    assert not psutil.pid_exists(other.pid)


def test_the_file_is_there_before_the_first_trial_and_after_each(run: Run, tmp_path: Path) -> None:
    seen: list[int] = []

    class Reader(Observer):
        def session_started(self, session: Session, plan: Sequence[Trial]) -> None:
            seen.append(len(load(tmp_path).trials))

        def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
            seen.append(len(load(tmp_path).trials))

    run(scripted("ok", "raise"), Reader())
    assert seen == [0, 1, 2]


def test_rounds_are_added_until_the_speedup_is_known_well_enough(run: Run, tmp_path: Path) -> None:
    """The scripted steps take 1 ms each: two rounds are known to ±20 %, and the precision counts from 8 on."""
    outcome = run(scripted("ok", "ok too"), precision=Precision(goal=0.2, budget_s=600))
    session = outcome.session
    assert not outcome.interrupted
    assert [(record.variant, record.repeat) for record in session.trials] == [
        (name, repeat) for repeat in range(8) for name in ("ok", "ok too")[:: -1 if repeat % 2 else 1]
    ]
    assert session.precision is not None
    assert session.precision.ended_by == "precision"
    assert load(tmp_path) == session


@pytest.mark.parametrize("device", ["on gpu", "ok"])
def test_the_copy_to_a_gpu_is_measured_where_a_trial_says_that_it_has_one(run: Run, device: str) -> None:
    ceiling = {"name": f"{device}, ceiling", "backend": "ceiling"}
    variants = [{"name": device, "backend": "feed_dict"}, ceiling]
    session = run(resolve({"name": "copy", "run": {"repeats": 2}, "variants": variants})).session
    own = [device, f"{device}, ceiling", *([f"{device}, ceiling, copied"] if device == "on gpu" else [])]
    assert [trial.variant for trial in session.trials] == own + own[::-1]
    assert [result.variant for result in session.results] == own
    copy = session.results[0].device_copy
    assert (copy.ms.value is not None) == (device == "on gpu"), copy.ms.reason


def test_among_several_hosts_no_trial_joins_the_plan_that_they_agreed_on(server: TrialServer, tmp_path: Path) -> None:
    class Agreed:
        entered: ClassVar[list[int]] = []

        def enter(self, index: int) -> None:
            self.entered.append(index)

        def leave(self, index: int) -> None:
            pass

    variants = [{"name": "on gpu", "backend": "feed_dict"}, {"name": "on gpu, ceiling", "backend": "ceiling"}]
    scenario = resolve({"name": "copy", "run": {"repeats": 2}, "variants": variants})
    gate = Agreed()
    Runner(tmp_path, server, NvmlSampler(), Observer(), gate=gate).run(new_session(scenario))
    assert gate.entered == [0, 1, 2, 3]


def test_a_trial_that_another_rank_was_needed_for_says_so_and_nothing_else(server: TrialServer, tmp_path: Path) -> None:
    class Refusing:
        def enter(self, index: int) -> None:
            raise PipelineBenchError("rank 1 is lost: it did not start within 120 s")

        def leave(self, index: int) -> None:
            pass

    gate, session = Refusing(), new_session(scripted("ok"))
    (trial,) = Runner(tmp_path, server, NvmlSampler(), Observer(), gate=gate).run(session).session.trials
    assert (trial.status, trial.reason) == ("failed", "rank 1 is lost: it did not start within 120 s")


def test_a_budget_that_is_too_small_still_gives_an_interval(run: Run) -> None:
    session = run(scripted("ok", "ok too"), precision=Precision(goal=0.02, budget_s=0.01)).session
    assert len(session.trials) == 4
    assert session.precision is not None
    assert session.precision.ended_by == "budget"
    assert session.result("ok too").speedup.ci95 is not None


def test_a_variant_that_never_works_does_not_keep_the_others_going(run: Run) -> None:
    session = run(scripted("ok", "raise"), precision=Precision(goal=0.02, budget_s=600)).session
    assert len(session.trials) == 4
    assert session.precision is not None
    assert session.precision.ended_by is None
    assert "raise is left out: it has no good trial" in session.precision.text


def test_an_interrupted_session_keeps_what_was_measured_and_says_what_ended_it(run: Run, tmp_path: Path) -> None:
    goal = Precision(goal=0.02, budget_s=600)
    outcome = run(scripted("ok", "silent", "never"), Impatient(), goal)
    session = outcome.session
    assert outcome.interrupted
    assert [record.status for record in session.trials] == ["ok", "interrupted"]
    assert session.trials[1].steps is not None
    assert session.precision is not None
    assert (session.precision.ended_by, session.precision.repeats) == ("interrupted", 0)
    assert load(tmp_path) == session


class Impatient(Observer):
    """Interrupts as a user does, at the first sign of progress of the second trial."""

    def progress(self, trial: Trial, progress: Progress) -> None:
        if trial.index == 1 and progress.steps:
            raise KeyboardInterrupt


class InterruptsItself(ByPrecision, Observer):
    """Sends the program SIGINT at a moment of its second trial: whatever it does just then."""

    def __init__(self, moment: str) -> None:
        self._moment = moment
        self.ended: list[int] = []

    def _at(self, moment: str, trial: int) -> None:
        if moment == self._moment and trial == 1:
            os.kill(os.getpid(), signal.SIGINT)

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        self._at("planning", len(session.trials))
        return super().next(session)

    def updated(self, session: Session, interrupted: bool) -> Session:
        self._at("results", len(session.trials) - 1)
        return super().updated(session, interrupted)

    def trial_started(self, trial: Trial) -> None:
        self._at("start", trial.index)

    def progress(self, trial: Trial, progress: Progress) -> None:
        self._at("training", trial.index)

    def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
        self.ended.append(trial.index)
        self._at("report", trial.index)


@pytest.mark.parametrize("moment", ["planning", "start", "training", "results", "report"])
def test_an_interrupt_at_any_moment_loses_no_trial_that_has_ended(run: Run, tmp_path: Path, moment: str) -> None:
    watcher = InterruptsItself(moment)
    outcome = run(scripted("ok", "ok too", "never"), watcher, planner=watcher)
    session = outcome.session
    assert outcome.interrupted
    assert outcome.unsaved is None
    assert [record.index for record in session.trials] == watcher.ended
    assert len(session.trials) == 2
    assert load(tmp_path) == session


def test_a_fault_in_the_results_does_not_cost_the_trial(run: Run, tmp_path: Path) -> None:
    class Faulty(ByPrecision):
        def updated(self, session: Session, interrupted: bool) -> Session:
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        run(scripted("ok"), planner=Faulty())
    assert [record.status for record in load(tmp_path).trials] == ["ok"]


def test_a_child_that_cannot_be_started_is_a_failed_trial(tmp_path: Path) -> None:
    with closing(TrialServer(tmp_path / "server.stderr", ("/no/such/interpreter",))) as launcher:
        done = Runner(tmp_path, launcher, NvmlSampler(), Observer()).run(new_session(scripted("ok"))).session
    assert done.trials[0].status == "failed"
    assert "could not start" in (done.trials[0].reason or "")
    assert "No such file or directory" in done.trials[0].stderr_tail


def test_a_disk_that_fills_ends_the_session_with_what_was_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []

    def full_from_the_second_trial_on(session: Session, folder: Path) -> Path:
        if len(session.trials) > 1:
            raise SessionError("planted: no space left on device")
        saved.append(session)
        return folder

    monkeypatch.setattr("pipeline_bench.run.runner.sessions.save", full_from_the_second_trial_on)
    outcome = run(scripted("ok", "ok too", "never"))
    session = outcome.session
    assert not outcome.interrupted
    assert [record.status for record in session.trials] == ["ok", "ok"]
    assert outcome.unsaved == "planted: no space left on device"


# --- beside an NVML that hangs or crashes ----------------------------------------------------------------------------

PATIENT = Timeouts(opening_s=60, answer_s=60, end_s=0.2)
SOON = Timeouts(opening_s=30, answer_s=1, end_s=0.2)


@pytest.fixture
def nvml(nvml_stub: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Timeouts], NvmlSampler]]:
    """Opens the stub of NVIDIA's library in the mode that is named (tests/stubs/nvml_stub.c)."""
    with ExitStack() as stack:

        def opened(mode: str, limits: Timeouts) -> NvmlSampler:
            use(monkeypatch, nvml_stub, NVML_STUB_MODE=mode)
            return stack.enter_context(closing(NvmlSampler.open(limits)))

        yield opened


def device_reasons(record: TrialRecord) -> dict[str, str | None]:
    return {track.metric: track.reason for track in record.samples if track.metric in METRICS}


@pytest.mark.parametrize(
    ("mode", "reason"), [("hang_after_2", STOPPED), ("crash_after_2", "NVML's process was killed by SIGSEGV")]
)
def test_trials_go_on_beside_an_nvml_that_stops(run: Run, tmp_path: Path, nvml: Any, mode: str, reason: str) -> None:
    gpu, ended = nvml(mode, SOON), tmp_path / "ended"

    def tell() -> None:
        wait_for(lambda: gpu.pid is None)
        ended.touch()

    trials = scripted(f"until {ended}", "ok", stall_timeout_s=200)
    with ThreadPoolExecutor() as pool:
        pool.submit(tell)
        outcome = run(trials, gpu=gpu)
    session = outcome.session
    assert not outcome.interrupted
    assert [record.status for record in session.trials] == ["ok", "ok"]
    assert [device_reasons(record) for record in session.trials] == [dict.fromkeys(METRICS, reason)] * 2
    clock = next(track for track in session.trials[0].samples if track.metric == "device_sm_clock_mhz")
    assert clock.values is not None
    assert clock.values.unpack().tolist() == [1500, 1500]
    assert load(tmp_path) == session


def test_trials_end_and_stall_in_time_while_nvml_hangs(run: Run, nvml: Any) -> None:
    session = run(scripted("ok", "silent", stall_timeout_s=3), gpu=nvml("hang_in_init", PATIENT)).session
    assert [record.status for record in session.trials] == ["ok", "stalled"]
    reason = "NVML had not answered when the trial ended"
    assert device_reasons(session.trials[0]) == dict.fromkeys(METRICS, reason)


class SendsSigint(Observer):
    """Presses Ctrl-C at the first sign of progress."""

    def progress(self, trial: Trial, progress: Progress) -> None:
        if progress.steps:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_the_session_while_nvml_hangs(run: Run, nvml: Any) -> None:
    outcome = run(scripted("silent", "ok"), SendsSigint(), gpu=nvml("hang_after_2", PATIENT))
    session = outcome.session
    assert outcome.interrupted
    assert [record.status for record in session.trials] == ["interrupted"]


class InTurn(ByPrecision):
    """Trials of a user's pipeline: a round of each list of scripts, the first of it as written."""

    def __init__(self, *rounds: Sequence[str]) -> None:
        self._due = [(number, script, place) for number, each in enumerate(rounds) for place, script in enumerate(each)]

    def next(self, session: Session) -> tuple[Session, Trial | None]:
        index = len(session.trials)
        if index == len(self._due):
            return session, None
        number, script, place = self._due[index]
        edits = (InsertAfter(stage=0, method="prefetch"),) if place else ()
        task = Task(target=Target(file="train.py", name="make"), activity="drain", edits=edits)
        source = Component(kind=KIND, options=task.model_dump(mode="json"))
        variant = session.scenario.variants[0].model_copy(update={"name": script, "source": source})
        return session, Trial(index=index, repeat=number, variant=variant)


def test_the_trials_of_a_round_run_in_one_process_and_a_new_one_begins_with_a_round(run: Run) -> None:
    written = "reusable as written"
    rounds = [[written, "reusable 1", "reusable 2"], [written, "reusable 1"], [written, "reusable 1"], [written]]
    trials = run(scripted("ok"), planner=InTurn(*rounds)).session.trials
    assert [trial.status for trial in trials] == ["ok"] * 8
    new = [trial.launcher != "reused" for trial in trials]
    assert new == [True, False, False, True, False, False, False, True]


@pytest.mark.parametrize(("script", "status"), [("once raise", "ok"), ("raise", "failed")])
def test_what_fails_where_another_trial_ran_before_is_run_in_a_process_of_its_own(
    run: Run, script: str, status: str
) -> None:
    trials = run(scripted("ok"), planner=InTurn(["reusable", script, "reusable", "reusable"])).session.trials
    assert [trial.status for trial in trials] == ["ok", status, "ok", "ok"]
    assert trials[1].launcher == "forkserver"
    reuses_further = trials[3].launcher == "reused"
    assert reuses_further == (status == "failed"), "it was the process if the trial went through in one of its own"


def test_what_hangs_where_another_trial_ran_before_is_run_in_a_process_of_its_own(run: Run) -> None:
    trials = run(scripted("ok", stall_timeout_s=1), planner=InTurn(["reusable", "once stall"])).session.trials
    assert [(trial.status, trial.launcher) for trial in trials] == [("ok", "forkserver")] * 2


def test_a_process_that_ended_while_it_waited_is_replaced(run: Run, tmp_path: Path) -> None:
    class Killing(Observer):
        def trial_finished(self, trial: Trial, record: TrialRecord, session: Session) -> None:
            if trial.index == 0:
                os.kill(int((tmp_path / str(record.stderr_file)).read_text().split()[1]), signal.SIGKILL)

    trials = run(scripted("ok"), Killing(), planner=InTurn(["reusable", "reusable"])).session.trials
    assert [(trial.status, trial.launcher) for trial in trials] == [("ok", "forkserver")] * 2


def test_a_process_that_waits_is_ended_with_the_run(run: Run, tmp_path: Path) -> None:
    (trial,) = run(scripted("ok"), planner=InTurn(["reusable"])).session.trials
    wait_until_gone(int((tmp_path / str(trial.stderr_file)).read_text().split()[1]))
