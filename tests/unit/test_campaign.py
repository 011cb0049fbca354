"""Every check of the campaign can fail, each kind draws the same case from the same seed, and a failure replays."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline_bench.model.session import SESSION_FILE
from tests.campaign import tries
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case, kinds
from tests.campaign.outcome import Outcome, complaints
from tests.campaign.processes import MARK, survivors
from tests.campaign.terminal import Terminal
from tests.unit import sessions

FAULTY: dict[str, tuple[dict[str, Any], str]] = {
    "it hangs": ({"code": None}, "it hung"),
    "it ends with a code that is not documented": ({"code": 70}, "exit code 70"),
    "it is killed by a signal": ({"code": -11}, "exit code -11"),
    "it shows a traceback": ({"stderr": "Traceback (most recent call last):\n  x"}, "a traceback of ours"),
    "it shows its frames among the user's": (
        {"stdout": '  File "/x/pipeline_bench/runner.py", line 3, in run', "shows_tracebacks": True},
        "a traceback of ours",
    ),
    "it fails without a message": ({"code": 2, "allowed": (2,), "stderr": "no\n"}, "0 error messages"),
    "it fails with two messages": ({"code": 2, "allowed": (2,), "stderr": "Error: a\nError: b\n"}, "2 error messages"),
    "it fails in silence": ({"code": 1, "allowed": (1,)}, "without a word"),
    "it succeeds with an error": ({"stderr": "Error: no\n"}, "with exit code 0"),
    "it steers the terminal": ({"stdout": "\x1b[2J"}, "stdout holds"),
    "it leaves a process": ({"processes": ("sleeping sleep 1000",)}, "a process is left: sleeping sleep 1000"),
    "it leaves a folder": ({"leftovers": ("pipeline-bench-scratch-x",)}, "is left: pipeline-bench-scratch-x"),
    "it takes the machine's memory": ({"memory_kb": 9 * 2**20}, "9.0 GiB of memory"),
    "the kind's own check": ({"more": ["the device was 140 % busy"]}, "140 % busy"),
}
TOLD = "".join(f"[{index + 1:>2}/12] feed_dict, repeat 1/3: ok\n" for index in range(12))


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_outcome_is_reported(name: str) -> None:
    fields, words = FAULTY[name]
    (found,) = complaints(Outcome("a command", **fields))
    assert words in found


@pytest.mark.parametrize(
    "good",
    [
        Outcome("a command"),
        Outcome("a command", 2, (0, 2), stderr="Error: no such file.\nGive another.\n"),
        Outcome("a command", 2, (2,), tells_all=False),
        Outcome("a command", 1, (1,), stdout="a gate failed\n"),
        Outcome("theirs", stderr='Traceback (most recent call last):\n  File "mine.py", line 1', shows_tracebacks=True),
    ],
)
def test_an_outcome_as_documented_is_not_reported(good: Outcome) -> None:
    assert complaints(good) == []


@pytest.fixture
def measured(tmp_path: Path) -> Outcome:
    """A comparison that was interrupted after its twelve trials, of which each was told."""
    folder = tmp_path / "reports" / "1"
    folder.mkdir(parents=True)
    (folder / SESSION_FILE).write_text(sessions.normal().to_json())
    (folder / "report.html").write_text("")
    return Outcome("compare", 130, (130,), TOLD, folder=tmp_path / "reports", asked_to_end=True)


def told_by(outcome: Outcome) -> str:
    return "; ".join(complaints(outcome))


def test_a_whole_session_is_not_reported(measured: Outcome) -> None:
    assert told_by(measured) == ""


@pytest.mark.parametrize(
    "line",
    [
        "[13/13] tf_data, repeat 1/3: ok",
        "[13] tf_data, repeat 5: ok, 1.2 ms a step, 300 steps",
        "[13] trying prefetch: 2.0 ms, 1.9x so far; 0:20 left",
    ],
    ids=["of a number", "until decided", "of a diagnosis"],
)
def test_a_trial_that_was_told_and_is_not_saved_is_reported(measured: Outcome, line: str) -> None:
    more = dataclasses.replace(measured, stdout=f"{TOLD}{line}\n")
    assert "trials [12] were told and are not in the session" in told_by(more)


def test_a_trial_that_was_said_to_run_need_not_be_saved(measured: Outcome) -> None:
    line = "[13] tf_data, repeat 5: step 40/300, 0:25 so far"
    assert told_by(dataclasses.replace(measured, stdout=f"{TOLD}{line}\n")) == ""


def test_a_session_that_does_not_load_is_reported(measured: Outcome) -> None:
    assert measured.folder is not None
    (measured.folder / "1" / SESSION_FILE).write_text("{")
    assert "the session does not load" in told_by(measured)


def test_a_session_that_is_missing_is_reported_unless_it_was_printed(measured: Outcome) -> None:
    assert measured.folder is not None
    (measured.folder / "1" / SESSION_FILE).unlink()
    assert "12 trials were told, and there is no session" in told_by(measured)
    assert told_by(dataclasses.replace(measured, stdout=TOLD + sessions.normal().to_json())) == ""


def test_an_interrupt_without_a_report_is_reported(measured: Outcome) -> None:
    assert measured.folder is not None
    (measured.folder / "1" / "report.html").unlink()
    assert "left no report" in told_by(measured)


def test_a_trial_in_flight_that_is_not_saved_as_such_is_reported(measured: Outcome) -> None:
    assert "not in the session as interrupted" in told_by(dataclasses.replace(measured, in_flight=True))


def test_a_process_that_carries_the_mark_is_found_and_ended() -> None:
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(command, env={MARK: "a test's"}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert survivors("another's", within_s=0) == []
        (found,) = survivors("a test's", within_s=0)
        assert "time.sleep(600)" in found
        assert process.wait(60) == -9


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("pass", []),
        ("import sys; sys.stdout.write('\\x1b[?25l\\x1b[?1049h\\x1b[?1049l')", ["the terminal: the cursor is hidden"]),
        ("import sys; sys.stdout.write('\\x1b[?1049h')", ["the terminal: its own screen is left"]),
        (
            "import sys; sys.stdout.write('\\x1b[?25l(stopped)\\x1b[?25h')",
            ["the terminal while it was stopped: the cursor is hidden"],
        ),
        ("import tty; tty.setcbreak(0)", ["the terminal's modes are others than before"]),
    ],
)
def test_a_terminal_that_is_left_otherwise_is_reported(code: str, wrong: list[str]) -> None:
    terminal = Terminal()
    subprocess.run([sys.executable, "-S", "-c", code], check=True, **terminal.options)
    assert terminal.close() == wrong


@pytest.mark.parametrize("name", kinds())
def test_a_case_follows_from_the_seed_and_is_json(name: str) -> None:
    one, same, other = (kinds()[name].plan(Random(seed), 1) for seed in ("a", "a", "b"))
    assert json.loads(json.dumps(one)) == json.loads(json.dumps(same))
    assert one != other


class Planned:
    """A kind whose cases with an odd number fail."""

    COUNT = 4
    WAITS = False

    def plan(self, random: Random, number: int) -> Case:
        return {"number": number}

    def attempt(self, case: Case, bench: Bench) -> list[Outcome]:
        if case["number"] == 3:
            raise RuntimeError("planted")
        return [Outcome("a try", case["number"] % 2 * 7)]


def test_failures_are_kept_and_a_resumed_campaign_repeats_nothing(tmp_path: Path) -> None:
    log = tries.Log(7, tmp_path)
    kept = [path for _, path in tries.run("planned", Planned(), 7, 2, 1, log)]
    assert kept == [None, tmp_path / "7-planned-1.json"]
    document = json.loads((tmp_path / "7-planned-1.json").read_text())
    _, wrong = replayed(document["case"])
    assert wrong == document["complaints"] == ["a try: exit code 7, and not one of (0,)"]
    rest = list(tries.run("planned", Planned(), 7, 4, 2, tries.Log(7, tmp_path, resume=True)))
    assert [tried.number for tried, _ in rest] == [2, 3]
    assert "RuntimeError: planted" in rest[1][0].complaints[0]
    assert len(tries.Log(7, tmp_path, resume=True).done()) == 4


def replayed(case: Case) -> tuple[list[Outcome], list[str]]:
    bench = Bench()
    try:
        return tries.carry_out(Planned(), case, bench)
    finally:
        bench.close()


@pytest.mark.slow
def test_a_warm_interpreter_answers_with_what_the_program_would(tmp_path: Path) -> None:
    bench = Bench()
    bench.next_folder()
    try:
        found = bench.warm.run(bench.folder, ["report", "nowhere"], (2,))
        again = bench.warm.run(bench.folder, ["--version"], (0,))
    finally:
        bench.close()
    assert complaints(found) == []
    assert "nowhere cannot be read" in found.stderr
    assert again.stdout.startswith("pipeline-bench ")
