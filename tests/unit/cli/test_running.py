"""Signals while a command measures, and a session that cannot be written where it belongs."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline_bench.cli import output, run
from pipeline_bench.cli.options import INTERRUPTED, STDOUT, UNREAD, Presentation
from pipeline_bench.cli.running import TRIAL_FAILED, PlainUntilUnread, interruptible, run_and_show, view
from pipeline_bench.injection import command_summary
from pipeline_bench.model.session import load
from pipeline_bench.model.trial import plan
from pipeline_bench.run import comparison
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.system import interrupts
from pipeline_bench.system.job_control import SHOW_CURSOR
from tests.unit import sessions
from tests.unit.console import Terminal, unread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_process_interrupts_a_command(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)


def test_under_nohup_a_closed_terminal_is_none_of_its_business() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_quit_shows_the_cursor_again_and_is_one() -> None:
    program = (
        "import os, signal; from pipeline_bench.cli.running import interruptible\n"
        "with interruptible(): os.kill(os.getpid(), signal.SIGQUIT)\n"
    )
    in_a_terminal = "import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', sys.argv[1]]))"
    ended = subprocess.run(
        [sys.executable, "-c", in_a_terminal, program], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert SHOW_CURSOR in ended.stdout
    assert ended.returncode & 0x7F == signal.SIGQUIT, "the status of wait(2): the number of the signal"


def test_a_long_trial_says_how_far_it_is_where_somebody_reads() -> None:
    session = sessions.normal()
    trials = plan(session.scenario)
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as read, os.fdopen(writer, "w", encoding="utf-8") as stream:
        view = PlainUntilUnread(stream)
        view.session_started(session, trials)
        view.progress(trials[0], Progress("train", steps=40, elapsed_s=25, training_s=20))
        stream.close()
        assert read.read().splitlines()[1:] == ["[ 1/12] feed_dict, repeat 1/3: step 40/300, 0:25 so far"]


def begun(run: Callable[[Path, Observer], Outcome], out: Path, json_to: str | None = None) -> int:
    """The exit code of a run that begins with a line, as `compare` without a GPU does."""
    shown = Presentation(live=True, details=False, open_page=False, json_to=json_to)
    return run_and_show(run, sessions.normal().scenario, out, shown, first="There is no GPU.")


def test_a_full_stdout_does_not_keep_a_comparison_from_measuring(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", output.named(full))
        assert begun(lambda folder, _: Outcome(sessions.normal(), folder, interrupted=False), tmp_path) == TRIAL_FAILED
        monkeypatch.undo()
    (folder,) = tmp_path.iterdir()
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("json_to", [None, STDOUT])
@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1", "TERM": "xterm"}], ids=["", "forced colours"])
def test_a_comparison_whose_reader_has_left_ends_as_by_sigpipe_and_leaves_no_empty_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, json_to: str | None, environment: dict[str, str]
) -> None:
    def run(folder: Path, observer: Observer) -> Outcome:
        trial = plan(sessions.normal().scenario)[0]
        observer.progress(trial, Progress("train", steps=1, elapsed_s=1, training_s=1))
        interrupts.check()
        return Outcome(sessions.normal(), folder, interrupted=False)

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with unread() as stdout, redirect_stdout(stdout):
        assert begun(run, tmp_path, json_to) == UNREAD
    assert list(tmp_path.iterdir()) == []


def test_colours_that_are_forced_put_no_live_screen_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with view(Console(file=io.StringIO()), tmp_path, live=True) as shown:
        assert isinstance(shown, PlainUntilUnread)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """In place of measuring: a session whose folder is as the test makes it."""
    monkeypatch.chdir(tmp_path)
    told: dict[str, Any] = {"before": lambda folder: None, "unsaved": None}

    def compare(scenario: Any, folder: Path, observer: Any, **options: Any) -> Outcome:
        session = sessions.normal()
        told["before"](folder)
        return Outcome(session, folder, interrupted=False, unsaved=told["unsaved"])

    monkeypatch.setattr(comparison, "compare", compare)
    return told


def test_a_session_that_cannot_be_saved_is_written_to_stdout(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    measured.update(before=shutil.rmtree, unsaved="session.json cannot be written: No space left on device.")
    assert run(["compare", "two_layer", "--no-live"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["scenario"]["name"] == sessions.normal().scenario.name
    assert "session.json cannot be written" in captured.err
    assert "report.html was not written: No such file or directory" in captured.err
    assert "Session saved in" not in captured.out + captured.err


@pytest.mark.parametrize("is_full", [True, False])
def test_the_session_of_a_rank_that_cannot_be_saved_is_written_to_stdout_too(
    is_full: bool,
    measured: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Or saved once there is room; either way it says where it is."""
    monkeypatch.setattr(comparison, "without_unavailable", lambda scenario, **_: scenario)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    measured.update(unsaved="session.json cannot be written: No space left on device.")
    if is_full:
        measured.update(before=shutil.rmtree)
    assert run(["compare", "two_layer", "--no-live", "--out", "out"]) == (1 if is_full else 0)
    captured = capsys.readouterr()
    said = " ".join(captured.err.split())
    assert ("session in out/rank-001" in said) is not is_full
    assert ("to merge it, save it as out/rank-001/session.json" in said) is is_full
    text = captured.out if is_full else Path("out/rank-001/session.json").read_text(encoding="utf-8")
    assert json.loads(text)["scenario"]["name"] == sessions.normal().scenario.name


@pytest.mark.parametrize("asked", [False, True], ids=["stdout", "a terminal"])
def test_an_interrupt_during_the_reports_does_not_cost_a_session_that_cannot_be_saved(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    def interrupted(folder: Path) -> None:
        shutil.rmtree(folder)
        os.kill(os.getpid(), signal.SIGINT)  # kept back until the reports are through

    if asked:
        monkeypatch.setattr(sys, "stdin", Terminal("p\n"))
        monkeypatch.setattr(sys, "stderr", Terminal())
    measured.update(before=interrupted, unsaved="session.json cannot be written: No space left on device.")
    assert run(["compare", "two_layer", "--no-live"]) == INTERRUPTED
    out = capsys.readouterr().out
    assert json.loads(out[out.index('{\n "schema_version') :])["scenario"]["name"] == sessions.normal().scenario.name


def test_a_signal_behind_the_end_of_a_command_costs_neither_its_lines_nor_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = command_summary.lines

    def impatient(*given: Any) -> list[str]:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        return lines(*given)

    monkeypatch.setattr(command_summary, "lines", impatient)
    with interruptible():  # which turns TERM into an exception, as pytest does not
        assert run(["run", "--out", str(tmp_path), "--", "sh", "-c", "exit 7"]) == 7
    assert "pipeline-bench: whole command: " in capsys.readouterr().err


def test_a_session_that_could_not_be_saved_is_once_there_is_room(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    measured.update(unsaved="session.json cannot be written: No space left on device.")
    assert run(["compare", "two_layer", "--no-live"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert load(next(Path("reports").iterdir())).scenario.name == sessions.normal().scenario.name


def test_a_pipe_for_the_session_is_opened_once(measured: dict[str, Any], tmp_path: Path) -> None:
    """To open it beforehand, to see whether one can, would end it for its reader."""
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert run(["compare", "two_layer", "--no-live", "--json", str(tmp_path / "pipe")]) == 0
        assert reader.stdout is not None
        assert json.load(reader.stdout)["scenario"]["name"] == sessions.normal().scenario.name


def test_a_report_that_cannot_be_written_is_named_and_the_session_stays(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    measured.update(before=lambda folder: (folder / "report.html").mkdir())
    assert run(["compare", "two_layer", "--no-live"]) == 1
    captured = capsys.readouterr()
    assert "report.html was not written: Is a directory. `pipeline-bench report" in captured.err
    assert "Session saved in" in captured.out
    folder = next(Path("reports").iterdir())
    assert (folder / "report.md").read_text().startswith("#")


def test_a_page_that_does_not_fit_into_memory_costs_neither_session_nor_report(
    measured: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(_: object) -> str:
        raise MemoryError

    monkeypatch.setattr("pipeline_bench.report.html.render", too_large)
    assert run(["compare", "two_layer", "--no-live"]) == 1
    captured = capsys.readouterr()
    assert "report.html was not written: there is not enough memory." in captured.err
    assert "Session saved in" in captured.out
