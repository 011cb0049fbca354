"""Gives a session that has ended to its user: saved, as reports, on the screen; and what to do where it cannot be."""

from __future__ import annotations

import dataclasses
import errno
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console

from pipeline_bench.cli import stdout
from pipeline_bench.comparison import Outcome
from pipeline_bench.errors import SessionError
from pipeline_bench.files import write_atomically
from pipeline_bench.report import html, markdown
from pipeline_bench.report.terminal import render
from pipeline_bench.session import Session, save

STDOUT = "-"
_NOBODY_READS = (errno.EPIPE, errno.EIO)
"""The pipe's reader has left, or the terminal is gone: that is no reason to fail once the session is saved."""


def deliver(outcome: Outcome, console: Console, json_to: str | None) -> tuple[Outcome, list[str]]:
    """Write the reports and what ``--json`` asks for, and show the report.

    Args:
        outcome: of the measuring.
        console: where the report is shown.
        json_to: the option ``--json``, checked.

    Returns:
        The outcome, saved where it now could be, and a message for each file that could not be written.
    """
    outcome = _saved_after_all(outcome)
    problems = [*_write_reports(outcome), *_export(outcome.session, json_to)]
    if outcome.unsaved is not None and not _can_ask():
        console = Console(stderr=True, highlight=False)  # stdout is for the session alone
    try:
        console.print(render(outcome.session, None if outcome.unsaved else outcome.folder, console.width))
    except OSError as error:
        if error.errno not in _NOBODY_READS:
            stdout.silence()
            problems.append(f"The report cannot be shown: {error.strerror}.")
    for problem in problems:
        typer.echo(problem, err=True)
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


def _write_reports(outcome: Outcome) -> Iterator[str]:
    """Write the reports beside the session; yield a message for each that cannot be written."""
    for name, render_file in (("report.md", markdown.render), ("report.html", html.render)):
        path = outcome.folder / name
        try:
            write_atomically(path, render_file(outcome.session))
        except (OSError, MemoryError) as error:
            reason = error.strerror if isinstance(error, OSError) else "there is not enough memory"
            folder = shlex.quote(str(outcome.folder))
            again = "" if outcome.unsaved else f" `pipeline-bench report {folder} -o {name}` makes it again."
            yield f"{path} was not written: {reason}.{again}"


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
