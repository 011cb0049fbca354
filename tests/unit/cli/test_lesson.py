"""The command `lesson`."""

import io
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NoReturn

import pytest

from pipeline_bench.cli import run
from pipeline_bench.cli.options import INTERRUPTED
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.lessons import play
from pipeline_bench.lessons.reading import find, lessons
from tests.unit.console import unread
from tests.unit.lessons import results


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured: the results are recorded ones."""
    monkeypatch.setattr(play, "measure", results.measured)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A terminal whose reader types the lines that the test gives, and then closes it."""

    def types(*lines: str) -> None:
        stdin = io.StringIO("".join(f"{line}\n" for line in lines))
        monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", stdin)

    return types


def test_the_list_is_a_name_and_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lesson", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{lesson.name}: {lesson.summary}" for lesson in lessons()]


def test_the_list_is_broken_between_words_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["lesson", "--list"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    assert " ".join(out.split()) == " ".join(f"{lesson.name}: {lesson.summary}" for lesson in lessons())


@pytest.mark.parametrize("arguments", [["lesson"], ["lesson", "--no-input"]])
def test_without_a_name_and_a_reader_the_lessons_are_listed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "queue_that_blocks   (begin here)" in out
    assert "pipeline-bench lesson NAME" in out


def test_an_unknown_lesson_is_exit_2_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lesson", "queue_runer"]) == 2
    said = capsys.readouterr().err
    assert "There is no lesson 'queue_runer'." in said
    assert "Did you mean 'queue_runner'?" in said


def test_a_lesson_is_also_found_by_its_number_in_the_list() -> None:
    assert [find("1"), find("2")] == [*lessons()[:2]]


@pytest.mark.usefixtures("measured")
def test_no_input_runs_through_also_on_a_terminal(reader: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reader()
    assert run(["lesson", "queue-runner", "--no-input"]) == 0
    out = capsys.readouterr().out
    assert "It was: 3 times." in out
    assert "Enter" not in out


@pytest.mark.usefixtures("measured")
def test_a_reader_begins_with_the_first_lesson_and_is_offered_the_next(
    reader: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reader("", "b", "", "", "", "q")
    assert run(["lesson"]) == 0
    out = capsys.readouterr().out
    assert "as you predicted" in out
    assert "Enter goes on with queue_runner" in out
    assert "How often is the data op evaluated" in out


@pytest.mark.usefixtures("measured")
def test_a_reader_who_mistypes_a_name_is_asked_again(reader: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reader("queue_runer", "queue_runner", "q")
    assert run(["lesson"]) == 0
    out = capsys.readouterr().out
    assert "Did you mean 'queue_runner'?" in out
    assert "How often is the data op evaluated" in out


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """What fails whatever it is given."""

    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def test_an_interrupt_is_exit_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(play, "measure", raising(KeyboardInterrupt()))
    assert run(["lesson", "queue_that_blocks", "--no-input"]) == 130
    assert capsys.readouterr().err == ""


def test_a_lesson_that_fails_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = PipelineBenchError("many_runs was ended: it took longer than 120 s.")
    monkeypatch.setattr(play, "measure", raising(error))
    assert run(["lesson", "queue_runner", "--no-input"]) == 1
    assert capsys.readouterr().err == "Error: many_runs was ended: it took longer than 120 s.\n"


def test_a_reader_of_a_lesson_that_fails_is_offered_the_next(
    monkeypatch: pytest.MonkeyPatch, reader: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(play, "measure", raising(PipelineBenchError("no room is left.")))
    reader("", "q")
    assert run(["lesson", "queue_that_blocks"]) == 0
    out = capsys.readouterr().out
    assert "The lesson ends here. no room is left." in out
    assert "Enter goes on with queue_runner" in out


@pytest.mark.parametrize("left", [KeyboardInterrupt(), BrokenPipeError()], ids=["while it measures", "at a line"])
def test_without_a_reader_a_lesson_ends_as_by_sigpipe(left: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play.Player, "play", raising(left))
    with unread() as stdout, redirect_stdout(stdout):
        assert run(["lesson", "queue_that_blocks"]) == 128 + signal.SIGPIPE


def test_a_lesson_that_is_interrupted_while_it_is_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play.Player, "play", raising(KeyboardInterrupt()))
    assert run(["lesson", "queue_that_blocks"]) == INTERRUPTED
