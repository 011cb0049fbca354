"""Gives a session that has ended to its user: saved, as reports, on the screen; and what to do where it cannot be."""

from __future__ import annotations

import dataclasses
import errno
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from pipeline_bench.cli import stdout
from pipeline_bench.errors import SessionError
from pipeline_bench.model.diagnosis import CodeChange
from pipeline_bench.model.session import Session, save
from pipeline_bench.report import diagnosis_words, html, markdown, screen, terminal
from pipeline_bench.run.comparison import Outcome
from pipeline_bench.system.files import write_atomically
from pipeline_bench.text import safe

STDOUT = "-"
_NOBODY_READS = (errno.EPIPE, errno.EIO)
"""The pipe's reader has left, or the terminal is gone: that is no reason to fail once the session is saved."""


PAGE, PATCH = "report.html", "fix.patch"


def deliver(
    outcome: Outcome, console: Console, json_to: str | None, *, open_page: bool = False, details: bool = False
) -> tuple[Outcome, list[str]]:
    """Write the reports, the patch and what ``--json`` asks for, show the report, and say where the page and patch are.

    Args:
        outcome: of the measuring.
        console: where the report is shown.
        json_to: the option ``--json``, checked.
        open_page: show the page in the browser as well.
        details: show all that the page says, in place of one screen.

    Returns:
        The outcome, saved where it now could be, and a message for each file that could not be written.
    """
    outcome = _saved_after_all(outcome)
    written, problems = _write(outcome)
    problems += _export(outcome.session, json_to)
    if outcome.unsaved is not None and not _can_ask():
        console = Console(stderr=True, highlight=False)  # stdout is for the session alone
    try:
        folder = None if outcome.unsaved else outcome.folder
        whole = terminal.render(outcome.session, folder, console.width) if details else None
        console.print(whole or screen.render(outcome.session, console.width))
        for line in _places(outcome, written):
            console.print(line, soft_wrap=True)  # what is to be copied has no line ends of ours
    except OSError as error:
        if error.errno not in _NOBODY_READS:
            stdout.silence()
            problems.append(f"The report cannot be shown: {error.strerror}.")
    for problem in problems:
        typer.echo(problem, err=True)
    if open_page and PAGE in written and not webbrowser.open((outcome.folder / PAGE).absolute().as_uri()):
        typer.echo("--open: no browser was found here.", err=True)
    return outcome, problems


def rescue(outcome: Outcome, json_to: str | None) -> None:
    """Give out a session that cannot be saved: to stdout where nobody can be asked, else as the user chooses.

    Args:
        outcome: with the reason why it is not saved.
        json_to: the option ``--json``: what has gone to stdout already is not written there again.
    """
    if not _can_ask():
        typer.echo(f"{outcome.unsaved} The session is written to stdout instead.", err=True)
        if json_to != STDOUT:
            _write_to_stdout(outcome.session)
        return
    while outcome.unsaved is not None:
        question = "Enter tries again, p prints the session here, q gives it up: "
        typer.echo(f"{outcome.unsaved} {question}", err=True, nl=False)
        match sys.stdin.readline():
            case "p\n":
                _write_to_stdout(outcome.session)
                return
            case "q\n" | "":
                return
        outcome = _saved_after_all(outcome)
    typer.echo(f"Session saved in {outcome.folder}", err=True)


def _saved_after_all(outcome: Outcome) -> Outcome:
    """Try once more to save a session that could not be: the disk may have room by now."""
    if outcome.unsaved is None:
        return outcome
    try:
        save(outcome.session, outcome.folder)
    except SessionError as error:
        return dataclasses.replace(outcome, unsaved=error.message)
    return dataclasses.replace(outcome, unsaved=None)


def _files(session: Session) -> dict[str, Callable[[], str]]:
    """What stands beside a session's file, and how it is made; a patch only of a diagnosis that has one."""
    files: dict[str, Callable[[], str]] = {
        "report.md": partial(markdown.render, session),
        PAGE: partial(html.render, session),
    }
    if (code := _code(session)) is not None and code.diff and code.root:
        files[PATCH] = partial(str, code.diff)
    return files


def _write(outcome: Outcome) -> tuple[set[str], list[str]]:
    """Write the files beside the session; return the names of those that are there, and a message for each other."""
    written, problems = set(), []
    for name, made in _files(outcome.session).items():
        path = outcome.folder / name
        try:
            write_atomically(path, made())
            written.add(name)
        except (OSError, MemoryError) as error:
            reason = error.strerror if isinstance(error, OSError) else "there is not enough memory"
            folder = shlex.quote(str(outcome.folder))
            command = f" `pipeline-bench report {folder} -o {name}` makes it again."
            problems.append(f"{path} was not written: {reason}.{'' if outcome.unsaved or name == PATCH else command}")
    return written, problems


def _code(session: Session) -> CodeChange | None:
    """The code to write that the report shows."""
    if session.diagnosis is None:
        return None
    shown = diagnosis_words.code(diagnosis_words.tried(session, session.diagnosis), session.diagnosis)
    return shown.attempt.code if shown is not None else None


def _places(outcome: Outcome, written: set[str]) -> Iterator[Text]:
    """Where the page is, and the command that applies the patch from where the user stands."""
    if PAGE not in written and outcome.unsaved is None:
        yield Text.assemble("Session saved in ", (safe(str(outcome.folder)), "bold"))
    if PAGE in written:
        yield Text.assemble("Page: ", ((outcome.folder / PAGE).absolute().as_uri(), "bold"))
    code = _code(outcome.session)
    if PATCH in written and code is not None and code.root is not None:
        here = Path(code.root) == Path.cwd()
        patch = outcome.folder / PATCH
        command = ["git", "apply", str(patch)] if here else ["git", "-C", code.root, "apply", str(patch.absolute())]
        yield Text.assemble("Patch: ", (safe(shlex.join(command)), "bold"))


def _export(session: Session, json_to: str | None) -> Iterator[str]:
    """Write the session where ``--json`` asks for it; yield a message where that cannot be."""
    if json_to is None:
        return
    try:
        if json_to == STDOUT:
            _write_to_stdout(session)
        else:
            write_atomically(Path(json_to), session.to_json())
    except BrokenPipeError:
        raise
    except OSError as error:
        if isinstance(error, stdout.StdoutError):
            stdout.silence()
        yield f"--json {json_to} was not written: {error.strerror}."


def _write_to_stdout(session: Session) -> None:
    sys.stdout.write(session.to_json())
    sys.stdout.flush()


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
