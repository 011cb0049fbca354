"""The command line as a whole: help, versions, exit codes, and what becomes of an exception."""

import io
import os
import resource
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer
from rich.console import Console

from pipeline_bench import __version__, cli
from pipeline_bench.cli import output, running
from pipeline_bench.cli.options import INTERRUPTED, UNREAD, Presentation
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.model import session as saved
from pipeline_bench.run.outcome import Outcome
from tests.unit import diagnoses, sessions
from tests.unit.console import unread


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


@pytest.mark.parametrize("group", [[], ["data"]])
def test_without_a_command_the_help_is_shown(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What it says is held by the golden texts."""
    shown = []
    for arguments in ([], ["--help"], ["-h"]):
        assert cli.run([*group, *arguments]) == 0
        shown.append(capsys.readouterr().out)
    assert "compare" in shown[0]
    assert shown[0] == shown[1] == shown[2]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"pipeline-bench {__version__}\n"


def test_an_unknown_command_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["comapre"]) == 2
    assert "comapre" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("It is full.", "Empty it."), 2, "Error: It is full.\nEmpty it.\n"),
        (PipelineBenchError("It is full.", "Empty it."), 1, "Error: It is full.\nEmpty it.\n"),
        (MemoryError(), 1, "Error: there is not enough memory."),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(1), 1, ""),
    ],
    ids=repr,
)
def test_what_ends_a_command_is_a_message_and_a_code(
    error: BaseException, code: int, said: str, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(error)
    assert cli.run([]) == code
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert bool(told) == bool(said)
    assert "Traceback" not in told


@pytest.mark.parametrize("limited", [False, True])
def test_a_library_that_has_no_room_is_no_bug(
    limited: bool, raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    error = ImportError("Unable to import required dependencies: numpy")
    error.__cause__ = ImportError("libopenblas.so: failed to map segment from shared object")
    raising.append(error)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46 if limited else resource.RLIM_INFINITY, before[1]))
    try:
        assert cli.run([]) == (1 if limited else cli.BUG)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert capsys.readouterr().err.startswith("Error: there is not enough memory.") == limited


def test_an_interrupt_that_a_library_puts_in_other_words_is_one(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    wrapped = ImportError("numpy could not be loaded")
    wrapped.__cause__ = KeyboardInterrupt()
    for each in (ValueError("Error building `literal` serializer:\n  KeyboardInterrupt: "), wrapped):
        raising[:] = [each]
        assert cli.run([]) == INTERRUPTED
    assert not capsys.readouterr().err


def test_a_command_line_that_names_an_interrupt_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["KeyboardInterrupt"], ["report", "last", "--format", "KeyboardInterrupt"]):
        assert cli.run(arguments) == 2
        assert "KeyboardInterrupt" in capsys.readouterr().err


def test_a_bug_keeps_its_traceback_and_ends_with_what_to_send(
    raising: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(ZeroDivisionError("of ours"))
    assert cli.run([]) == cli.BUG
    err = capsys.readouterr().err
    assert "ZeroDivisionError: of ours" in err
    assert "bug of pipeline-bench" in err.splitlines()[-2]
    assert "doctor --json" in err.splitlines()[-1]


@pytest.mark.parametrize(
    "command",
    [["sessions"], ["merge"], ["compare", "two_layer", "--json"], ["data", "make", "csv", "--size", "20kB", "--out"]],
    ids=" ".join,
)
def test_what_lies_in_a_folder_of_another_user_is_one_message(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There, to ask whether a file exists is an error already."""
    theirs = tmp_path / "theirs"
    (theirs / "reports").mkdir(parents=True)
    cli.run([*command, "/dev/null/reports"])  # what is imported first may not be readable below
    theirs.chmod(0o700 if os.geteuid() == 0 else 0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        capsys.readouterr()
        code = cli.run([*command, str(theirs / "reports")])
    finally:
        os.seteuid(user)
        theirs.chmod(0o700)
    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith(f"Error: {theirs}/reports: Permission denied.")


@pytest.mark.parametrize(
    "command",
    [
        ["merge", ".", "--json"],
        ["compare", "two_layer", "--json"],
        ["diagnose"],
        ["data", "make", "csv", "--size", "20kB", "--out"],
    ],
    ids=" ".join,
)
def test_a_name_that_is_too_long_is_one_message(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "a" * 5000]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: aaa")
    assert error.count(": File name too long.\n") == 1
    assert len(error) < 500


def test_a_folder_in_which_a_link_leads_to_itself_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    source = ["--set", "source.kind=csv", "--set", f"source.path={tmp_path}"]
    assert cli.run(["compare", "two_layer", "--no-live", "--out", str(tmp_path / "out"), *source]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"Error: path {tmp_path} of the source csv: no file in it is called *.csv.")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_report_that_is_ended_while_it_is_written_leaves_no_part_of_a_file(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "session.json").write_text(sessions.normal().to_json())
    child = os.fork()  # which imports nothing again
    if not child:
        try:
            for each in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, signal.SIG_DFL)
            monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), number))
            cli.main(["report", str(tmp_path / "session.json"), "-o", str(tmp_path / "report.md")])
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        finally:
            os._exit(cli.BUG)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == INTERRUPTED
    assert capfd.readouterr().err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"]


@pytest.mark.parametrize(
    "command",
    [
        ["scenarios", "--schema"],
        *(
            pytest.param(each, marks=pytest.mark.slow, id=each[0])
            for each in (
                ["report", "SESSION"],
                ["diff", "SESSION", "SESSION"],
                ["sessions"],
                ["backends"],
                ["--help"],
                ["lesson"],
            )
        ),
    ],
    ids=lambda command: command[0],
)
def test_every_command_whose_reader_leaves_ends_as_by_sigpipe_without_a_word(
    command: list[str], tmp_path: Path
) -> None:
    saved.save(sessions.normal(), tmp_path)
    arguments = [str(tmp_path) if argument == "SESSION" else argument for argument in command]
    with unread() as stdout:
        ended = subprocess.run(
            [sys.executable, "-m", "pipeline_bench", *arguments], stdout=stdout, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (UNREAD, b"")


FULL = "Error: stdout cannot be written: No space left on device.\n"


def test_a_full_disk_behind_the_end_of_stdout_is_one_message() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-X", "utf8", "-m", "pipeline_bench", "--version"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (ended.returncode, ended.stderr) == (1, FULL)


@pytest.mark.parametrize(
    ("buffering", "arguments"), [(-1, ["report", ".", "-f", "html"]), (0, ["report", ".", "-f", "html"]), (0, [])]
)
def test_a_full_disk_behind_stdout_is_one_message(
    buffering: int,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also unbuffered, as with `python -u`."""
    monkeypatch.chdir(tmp_path)
    saved.save(sessions.normal(), tmp_path)
    with (
        Path("/dev/full").open("wb", buffering) as full,
        io.TextIOWrapper(full, "utf-8", write_through=not buffering) as stdout,
        output.named(stdout) as named,
        redirect_stdout(named),
    ):
        assert cli.run(arguments) == 1
    assert capsys.readouterr().err == FULL


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


def test_a_page_with_a_long_name_is_on_the_screen_with_all_that_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "a" / ("long" * 50)
    folder.mkdir(parents=True)
    shown = io.StringIO()
    outcome = Outcome(diagnoses.thirty(), folder, interrupted=False)
    running.deliver(outcome, Console(file=shown, width=80, _environ={}), Presentation(False, False, False, None))
    lines = shown.getvalue().splitlines()
    assert "Page: file://" in shown.getvalue()
    assert sum(-(-max(1, len(line)) // 80) for line in lines) <= 22


def test_the_note_that_a_run_began_with_is_in_its_reports_and_not_again_at_its_end(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    begun, other = "No NVIDIA GPU was found.", "something else."
    session = sessions.normal().model_copy(update={"notes": (begun, other)})
    shown = io.StringIO()
    console = Console(file=shown, width=80, _environ={})
    outcome = Outcome(session, tmp_path, interrupted=False)
    running.deliver(outcome, console, Presentation(False, False, False, None), told=begun)
    assert begun not in shown.getvalue()
    assert other in shown.getvalue()
    assert begun in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 1), (["comapre"], 2)])
def test_with_stderr_full_as_well_the_exit_code_is_all_that_there_is(
    arguments: list[str], code: int, unbuffered: str
) -> None:
    """A Python that could not write its buffer to stderr would end with 120."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pipeline_bench", *arguments],
            stdout=full,
            stderr=full,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert ended.returncode == code


def test_a_terminal_without_utf8_gets_a_mark_and_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with (tmp_path / "out").open("w", encoding="ascii") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with running.interruptible(), pytest.raises(SystemExit) as ended:  # which sets the signals back
            cli.main(["backends"])
    assert ended.value.code == 0
    assert "integer ? 1" in (tmp_path / "out").read_text()


def test_nothing_is_imported_before_an_interrupt_is_silent() -> None:
    """Ctrl-C shows a traceback of whatever Python imports until `main` begins."""
    code = (
        "import sys; before = {*sys.modules}; import pipeline_bench.__main__; print(*sorted({*sys.modules} - before))"
    )
    root = Path(cli.__file__).parents[2]
    # Without `site`, which has imported other modules already, other ones in each environment.
    ended = subprocess.run([sys.executable, "-S", "-c", code], cwd=root, capture_output=True, check=True, text=True)
    assert ended.stdout.split() == ["pipeline_bench", "pipeline_bench.__main__"]


def test_help_imports_nothing_heavy() -> None:
    """What makes --help quick: no array, model or device library is imported for it."""
    code = (
        "import sys, pipeline_bench.cli as cli; cli.run(['--help']);"
        "heavy = {'numpy', 'pydantic', 'scipy', 'tensorflow', 'psutil', 'pynvml'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert ended.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["diagnose", "train.py", "--epochs", "3"], ": --epochs. If it is the script's own, it follows --"),
        (["compare", "--budget", "30s"], "a plain number is needed"),
        (["report", "last", "-f", "pdf"], "'--format' / '-f': 'pdf' is not one of"),
        (["compare", "--repeats", "1", "--budget", "20"], "--budget was given beside --repeats"),
    ],
)
def test_what_is_wrong_with_an_option_is_said_in_words_of_the_command_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert expected in " ".join(capsys.readouterr().err.split())
