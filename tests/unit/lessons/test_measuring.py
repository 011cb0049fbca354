"""Exercises in a child: its answer, its failures, and that nothing of it is left."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.errors import PipelineBenchError, ScenarioError
from pipeline_bench.lessons import play
from pipeline_bench.lessons.reading import Compare, Exercise
from pipeline_bench.run import child as run_child
from pipeline_bench.run.observer import Observer
from pipeline_bench.worker.call import Request, perform
from tests.processes import wait_until_gone


def counted(times: int = 3) -> dict[str, int]:
    return {"times": times}


def failing() -> dict[str, object]:
    raise ValueError("no\nqueue")


def refusing() -> dict[str, object]:
    raise PipelineBenchError("This machine has no second core.")


def uncarried() -> dict[str, object]:
    return {"object": object()}


def performed(request: Request) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    perform(request, sent.append)
    return sent


def part(deadline_s: float = 30.0) -> Exercise:
    return Exercise("key", counted, "counting", deadline_s)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the child do this in place of the exercise; ``answer`` writes a line to the pipe."""
    begin = "import os, sys, time\ndef answer(text): os.write(int(sys.argv[1]), text.encode())\nsys.stdin.read()\n"

    def replaced(code: str) -> None:
        command = [sys.executable, "-c", begin + code]
        monkeypatch.setattr(run_child, "module_command", lambda _, *arguments: [*command, *map(str, arguments)])

    return replaced


def test_an_exercise_is_executed_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # where the child finds this file's exercise
    assert play.exercise(part()) == {"times": 3}


def test_a_child_that_hangs_is_ended_with_what_it_started(tmp_path: Path, child: Callable[[str], None]) -> None:
    pids = tmp_path / "pids"
    code = (
        "import subprocess\n"
        "inner = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{inner.pid}}')\n"
        "time.sleep(600)"
    )
    child(code)
    with pytest.raises(PipelineBenchError, match=r"counted was ended: it took longer than 2.00 s"):
        play.exercise(part(deadline_s=2.0))
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    wait_until_gone(*started)


def test_what_a_child_leaves_running_in_its_group_is_ended(tmp_path: Path, child: Callable[[str], None]) -> None:
    pids = tmp_path / "pids"
    code = (
        "import subprocess\n"
        "inner = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(str(inner.pid))\n"
        """answer('{"result": {"a": 1}}\\n')"""
    )
    child(code)
    assert play.exercise(part()) == {"a": 1}
    wait_until_gone(int(pids.read_text()))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("""answer('{"failed": "no room is left"}\\n')""", r"counted failed: no room is left"),
        ("print('last words', flush=True); sys.exit(3)", r"counted ended with exit code 3 and no answer: last words"),
        ("""answer('{"result": {"a"'); sys.exit(0)""", r"counted ended with exit code 0 and no answer\."),
        ("os.abort()", r"counted was killed by SIGABRT"),
    ],
    ids=["failed", "without a word", "half a word", "crashed"],
)
def test_a_child_that_fails_is_one_line(code: str, said: str, child: Callable[[str], None]) -> None:
    child(code)
    with pytest.raises(PipelineBenchError, match=said) as caught:
        play.exercise(part())
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("failing", "ValueError: no queue"),
        ("refusing", "This machine has no second core."),
        ("uncarried", "TypeError: Object of type object is not JSON serializable"),
        ("missing", "AttributeError"),
    ],
)
def test_the_child_says_why_an_exercise_gave_nothing(function: str, said: str) -> None:
    (answer,) = performed(Request(module=__name__, function=function))
    assert set(answer) == {"failed"}
    assert said in answer["failed"]


def test_the_child_answers_with_the_result() -> None:
    assert performed(Request(module=__name__, function="counted", arguments={"times": 2})) == [{"result": {"times": 2}}]


def test_a_comparison_that_is_not_valid_says_which_key() -> None:
    with pytest.raises(ScenarioError, match="the lesson's scenario, key sorce"):
        play.compared(Compare("key", {"sorce": {}}, "training"), Observer())
