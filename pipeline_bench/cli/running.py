"""What the commands that measure have in common: the view, signals, exit codes, and the session given to its user."""

from __future__ import annotations

import dataclasses
import errno
import os
import shlex
import shutil
import signal
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console

from pipeline_bench.cli import output
from pipeline_bench.cli.options import INTERRUPTED, STDOUT, UNREAD, Presentation
from pipeline_bench.cli.output import PATCH, terminal_lines, where_to_find
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.model.diagnosis import CodeChange
from pipeline_bench.model.session import PAGE, Session, make_folder, save
from pipeline_bench.report import diagnosis, html, markdown, screen, terminal
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.outcome import Outcome
from pipeline_bench.scenario import Scenario
from pipeline_bench.system import interrupts, job_control
from pipeline_bench.system.files import remove_own, write_atomically
from pipeline_bench.system.interrupts import Handler
from pipeline_bench.ui.console import PipedConsole, UntilUnread, can_draw
from pipeline_bench.ui.live import LiveView
from pipeline_bench.ui.plain import PlainView

TRIAL_FAILED = 1
_NOBODY_READS = (errno.EPIPE, errno.EIO)
"""The pipe's reader has left, or the terminal is gone: that is no reason to fail once the session is saved."""


def run_and_show(
    run: Callable[[Path, Observer], Outcome],
    scenario: Scenario,
    out: Path,
    shown: Presentation,
    first: str | None = None,
) -> int:
    """Run, show, export; return the exit code: 0 only where all went through and all of it could be written.

    Args:
        run: measures into a folder, telling the view how it goes.
        scenario: names the session's folder.
        out: where that folder is made; it is removed where nothing was measured.
        shown: how the session is shown, and where it is written.
        first: a line to begin with.

    Raises:
        UsageError: the folder or the file for the session cannot be written.
    """
    check_export(shown.json_to)
    # With the session on stdout, everything that is for a reader goes to stderr.
    console = PipedConsole(stderr=shown.json_to == STDOUT, highlight=False)
    folder = make_folder(out, scenario.name)
    outcome: Outcome | None = None
    with interruptible():
        try:
            with interrupts.deferred():  # a second signal does not cost the reports either
                if first is not None:
                    with suppress(OSError):  # the view sees for itself whether somebody reads
                        console.print(first)
                with view(console, folder, shown.live) as observer:
                    try:
                        outcome = run(folder, observer)
                    except KeyboardInterrupt:
                        if any(folder.iterdir()):
                            raise
                unread = isinstance(observer, UntilUnread) and observer.unread
                if unread:
                    output.silence()
                if outcome is None or (outcome.interrupted and not outcome.measured):
                    shutil.rmtree(folder, ignore_errors=True)
                    console.print("Interrupted before the first trial; nothing was measured.")
                    return UNREAD if unread else INTERRUPTED
                outcome, problems = deliver(outcome, console, shown, told=first)
                if not _can_ask():
                    outcome = rescue(outcome, shown.json_to)
        finally:  # a signal that came during the reports takes effect before this, and is no answer to the question
            if outcome is not None and outcome.measured:
                rescue(outcome, shown.json_to)
            if outcome is None:
                with suppress(OSError):
                    folder.rmdir()  # an empty folder says nothing
    if outcome.interrupted:
        return UNREAD if unread else INTERRUPTED
    return 0 if outcome.all_ok and not problems else TRIAL_FAILED


def view(console: Console, folder: Path, live: bool) -> AbstractContextManager[Observer]:
    """Return the live screen where one can be drawn, plain lines elsewhere."""
    if live and can_draw(console):
        return _LiveUntilUnread(console)
    return nullcontext(PlainUntilUnread(sys.stderr if console.stderr else sys.stdout, folder))


class _LiveUntilUnread(UntilUnread, LiveView):
    """The live screen, which may be on stderr."""


class PlainUntilUnread(UntilUnread, PlainView):
    """Plain lines, which may be on stderr: also without their reader the run ends."""

    def _streams(self) -> tuple[TextIO, ...]:
        return (self.stream, sys.stdout)

    def _line(self, text: str) -> None:
        try:
            super()._line(text)
        except BrokenPipeError:
            self._end()


def check_export(json_to: str | None) -> None:
    """See that the file for the session can be written before anything is measured, without touching what it holds.

    Raises:
        UsageError: it cannot.
    """
    if json_to is None or json_to == STDOUT:
        return
    path = Path(json_to)
    existed = path.exists()
    if existed and not path.is_file() and not path.is_dir():
        return  # to open a pipe and to close it again is to end it for who reads there
    try:
        path.open("a", encoding="utf-8").close()
        if not existed:
            path.resolve().unlink()  # not the link that leads there
    except OSError as error:
        raise UsageError(
            f"--json {json_to}: the file cannot be written: {error.strerror}.", "Choose another file, or - for stdout."
        ) from None


@contextmanager
def interruptible(leave: bytes = b"") -> Iterator[None]:
    """Let SIGTERM and a closed terminal end a session as Ctrl-C does, with what was measured saved.

    A signal that is ignored, as SIGHUP is under ``nohup``, stays ignored. SIGQUIT ends the program at once and SIGTSTP
    stops it, after it has shown the terminal's cursor again and given the terminal the modes that it has now.

    Args:
        leave: what these two write to the terminal besides: `job_control.LEAVE_SCREEN` of a program with a screen of
            its own.
    """
    modes = job_control.modes()

    def leave_at_once(number: int, _: object) -> None:
        job_control.give_back(leave, modes)
        remove_own()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def stop(*_: object) -> None:
        job_control.give_back(leave, modes)
        job_control.stop()

    handlers: dict[signal.Signals, Handler] = {
        signal.SIGTERM: signal.default_int_handler,
        signal.SIGHUP: signal.default_int_handler,
        signal.SIGQUIT: leave_at_once,
        signal.SIGTSTP: stop,
    }
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def deliver(
    outcome: Outcome, console: Console, shown: Presentation, told: str | None = None
) -> tuple[Outcome, list[str]]:
    """Write the reports, the patch and what ``--json`` asks for, show the report, and say where the page and patch are.

    Args:
        outcome: with the session.
        console: that it is shown on.
        shown: how.
        told: a note of the session that this run began with: the end does not repeat it.

    Returns:
        The outcome, saved where it now could be, and a message for each file that could not be written.
    """
    outcome, code = save_again(outcome), diagnosis.code(outcome.session)
    written, problems = _write_reports(outcome, code)
    problems += _export_json(outcome.session, shown.json_to)
    if outcome.unsaved is not None and not _can_ask():
        console = Console(stderr=True, highlight=False)  # stdout is for the session alone
    try:
        folder = None if outcome.unsaved else outcome.folder
        places = list(where_to_find(outcome.folder, code, written, saved=outcome.unsaved is None))
        if shown.details:
            console.print(terminal.render(outcome.session, folder, console.width))
        else:
            below = sum(-(-line.cell_len // console.width) for line in places)
            notes = tuple(note for note in outcome.session.notes if note != told)
            session = outcome.session.model_copy(update={"notes": notes})
            console.print(screen.render(session, console.width, below, terminal_lines()))
        for line in places:
            console.print(line, soft_wrap=True)  # what is to be copied has no line ends of ours
    except OSError as error:
        if error.errno not in _NOBODY_READS:
            output.silence()
            problems.append(f"The report cannot be shown: {error.strerror}.")
    for problem in problems:
        typer.echo(problem, err=True)
    if shown.open_page and PAGE in written and not webbrowser.open((outcome.folder / PAGE).absolute().as_uri()):
        typer.echo("--open: no browser was found here.", err=True)
    return outcome, problems


def rescue(outcome: Outcome, json_to: str | None) -> Outcome:
    """Write a session that cannot be saved: to stdout if nobody can be asked, else as the user chooses.

    Args:
        outcome: with the reason why it is not saved; without one there is nothing to do.
        json_to: the option ``--json``: what has gone to stdout already is not written there again.

    Returns:
        The outcome without that reason.
    """
    if outcome.unsaved is None:
        return outcome
    done = dataclasses.replace(outcome, unsaved=None)
    if not _can_ask():
        give(outcome, json_to)
        return done
    while outcome.unsaved is not None:
        question = "Enter tries again, p prints the session here, q gives it up: "
        typer.echo(f"{outcome.unsaved} {question}", err=True, nl=False)
        match sys.stdin.readline():
            case "p\n":
                _write_to_stdout(outcome.session)
                return done
            case "q\n" | "":
                return done
        outcome = save_again(outcome)
    typer.echo(f"Session saved in {outcome.folder}", err=True)
    return done


def give(outcome: Outcome, json_to: str | None = None) -> None:
    """Write a session that cannot be saved to stdout, unless ``--json`` did, and say why."""
    typer.echo(f"{outcome.unsaved} The session is written to stdout instead.", err=True)
    if json_to != STDOUT:
        _write_to_stdout(outcome.session)


def save_again(outcome: Outcome) -> Outcome:
    """Try once more to save a session that could not be: the disk may have room by now."""
    if outcome.unsaved is None:
        return outcome
    try:
        save(outcome.session, outcome.folder)
    except SessionError as error:
        return dataclasses.replace(outcome, unsaved=error.message)
    return dataclasses.replace(outcome, unsaved=None)


def _write_reports(outcome: Outcome, code: CodeChange | None) -> tuple[set[str], list[str]]:
    """Write the files beside the session; return the names of those that are there, and a message for each other."""
    files: dict[str, Callable[[Session], str]] = {"report.md": markdown.render, PAGE: html.render}
    if code is not None and (diff := code.diff) and code.root:
        files[PATCH] = lambda _: diff
    written, problems = set(), []
    for name, render in files.items():
        path = outcome.folder / name
        try:
            write_atomically(path, render(outcome.session))
            written.add(name)
        except (OSError, MemoryError) as error:
            reason = error.strerror if isinstance(error, OSError) else "there is not enough memory"
            folder = shlex.quote(str(outcome.folder))
            command = f" `pipeline-bench report {folder} -o {name}` makes it again."
            problems.append(f"{path} was not written: {reason}.{'' if outcome.unsaved or name == PATCH else command}")
    return written, problems


def _export_json(session: Session, json_to: str | None) -> Iterator[str]:
    """Write the session where ``--json`` asks for it; yield a message where that cannot be."""
    if json_to is None:
        return
    try:
        if json_to == STDOUT:
            _write_to_stdout(session)
        else:
            write_atomically(Path(json_to), session.to_json())
    except OSError as error:
        if json_to == STDOUT and isinstance(error, BrokenPipeError):
            raise
        if isinstance(error, output.StdoutError):
            output.silence()
        yield f"--json {json_to} was not written: {error.strerror}."


def _write_to_stdout(session: Session) -> None:
    sys.stdout.write(session.to_json())
    sys.stdout.flush()


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
