"""The command line as a whole: help, versions, exit codes, and what becomes of an exception."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

from pipeline_bench import __version__, cli
from pipeline_bench.cli import output, running
from pipeline_bench.cli.options import Presentation
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.model import session as saved
from pipeline_bench.run.comparison import Outcome
from tests.unit import sessions


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command line whose only command raises what the test puts into the list."""
    app = typer.Typer(pretty_exceptions_enable=False)
    to_raise: list[BaseException] = []

    @app.command()
    def command() -> None:
        raise to_raise[0]

    monkeypatch.setattr(cli, "app", app)
    return to_raise


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 0
    out = capsys.readouterr().out
    for command in ("compare", "diagnose", "report", "diff", "sessions", "scenarios", "backends", "doctor", "lesson"):
        assert command in out
    assert "StarvationMonitor" in out
    assert "pipeline_bench.monitor" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"pipeline-bench {__version__}\n"


def test_an_unknown_command_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["comapre"]) == 2
    assert "comapre" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [UsageError("It is full.", "Empty it."), PipelineBenchError("It is full.", "Empty it.")]
)
def test_an_error_is_its_message_its_hint_and_its_code(
    error: PipelineBenchError, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(error)
    assert cli.run([]) == error.exit_code
    assert capsys.readouterr().err == "Error: It is full.\nEmpty it.\n"


def test_ctrl_c_is_exit_130_without_a_traceback(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(KeyboardInterrupt())
    assert cli.run([]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_commands_own_exit_code_is_kept(raising: list[BaseException]) -> None:
    raising.append(typer.Exit(1))
    assert cli.run([]) == 1


def test_a_bug_keeps_its_traceback_and_ends_with_what_to_send(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(ZeroDivisionError("of ours"))
    assert cli.run([]) == cli.BUG
    err = capsys.readouterr().err
    assert "ZeroDivisionError: of ours" in err
    assert "bug of pipeline-bench" in err.splitlines()[-2]
    assert "doctor --json" in err.splitlines()[-1]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline_bench", "scenarios", "--schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("-X utf8", ["--version"]),
        ("-X utf8", ["report", "SESSION", "-f", "html"]),
        ("-u", ["report", "SESSION", "-f", "html"]),
        ("-u", []),
    ],
)
def test_a_full_disk_behind_stdout_is_one_message(option: str, arguments: list[str], tmp_path: Path) -> None:
    saved.save(sessions.normal(), tmp_path)
    given = [str(tmp_path) if argument == "SESSION" else argument for argument in arguments]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, *option.split(), "-m", "pipeline_bench", *given],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.stderr == b"Error: stdout cannot be written: No space left on device.\n"
    assert ended.returncode == 1


def test_a_session_for_a_full_stdout_is_one_message_and_the_reports_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = Outcome(sessions.normal(), tmp_path, interrupted=False)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", output.named(full))
        monkeypatch.setattr(output, "silence", lambda: None)
        _, problems = running.deliver(outcome, Console(file=io.StringIO()), Presentation(False, False, False, "-"))
    assert problems == ["--json - was not written: No space left on device."]
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "report.html"}


def test_with_stderr_full_as_well_the_exit_code_is_all_that_there_is() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pipeline_bench", "scenarios"], stdout=full, stderr=full, check=False
        )
    assert ended.returncode == 1


def test_a_terminal_without_utf8_gets_a_mark_and_no_traceback() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pipeline_bench", "backends"],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii"},
    )
    assert ended.returncode == 0
    assert b"integer ? 1" in ended.stdout


def test_help_imports_nothing_heavy() -> None:
    """What makes --help quick: no array, model or device library is imported for it."""
    code = (
        "import sys, pipeline_bench.cli as cli; cli.run(['--help']);"
        "heavy = {'numpy', 'pydantic', 'scipy', 'tensorflow', 'psutil', 'pynvml'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert ended.stderr.strip() == "[]"


def test_too_little_memory_is_one_message_and_no_bug(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(MemoryError())
    assert cli.run([]) == 1
    assert capsys.readouterr().err.startswith("Error: there is not enough memory.")
