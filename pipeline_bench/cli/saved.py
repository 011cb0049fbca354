"""The commands on what is there: ``report``, ``diff`` and ``sessions`` of saved sessions, ``top`` of watched jobs."""

from __future__ import annotations

import itertools
import os
import select
import sys
import termios
import textwrap
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.options import FORMAT, Details, Output, SavedSession, session_words
from pipeline_bench.cli.output import (
    PATCH,
    Format,
    as_text,
    form_of,
    terminal_lines,
    where_to_find,
    write,
)
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.text import safe, units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pipeline_bench.model.session import SessionFolder

GATE_FAILED = 1
_SHOWN = 20
"""So many sessions are listed in a file or a pipe."""
_BLOCK_LINES, _LINES_BELOW = 4, 3
"""Of a session on a terminal: its head, two of its headline, its folder. Below: how many more, and the prompt."""
_LEAST_CELLS = 20


class SessionFormat(Format):
    """What a session can be rendered as: by the module of `report/` with that name, but for the JSON of the file."""

    TERMINAL = "terminal", ".txt"
    MARKDOWN = "markdown", ".md"
    HTML = "html", ".html", ".htm"
    CSV = "csv", ".csv"
    JSON = "json", ".json"
    TRACE = "trace"


def report(
    session: SavedSession = Path("last"),
    form: Annotated[SessionFormat | None, FORMAT] = None,
    output: Output = None,
    details: Details = False,
) -> None:
    """Render a saved session as the terminal's table, HTML, Markdown, CSV, JSON, or a trace for Perfetto."""
    chosen = form or form_of(output, SessionFormat)
    if chosen is SessionFormat.HTML and output is None and sys.stdout.isatty():
        raise UsageError("-f html: a page of 2 MB is not for a terminal.", "Give it a file: -o report.html.")
    write(_rendered(session, chosen, output, details or output is not None), output)


def _rendered(path: Path, form: SessionFormat, output: Path | None, details: bool) -> str:
    from pipeline_bench.model.session import PAGE, find, load
    from pipeline_bench.plugins import renderer

    session = load(path)
    if form is SessionFormat.JSON:
        return session.to_json()
    if form is not SessionFormat.TERMINAL:
        return renderer(form)(session)

    from pipeline_bench.report import diagnosis, screen, terminal

    if details:
        return as_text(lambda width: terminal.render(session, None, width), output)
    shown = as_text(lambda width: screen.render(session, width, lines=terminal_lines(output)), output)
    if output is not None:
        return shown
    found = find(path)
    folder = found if found.is_dir() else found.parent
    written = {name for name in (PAGE, PATCH) if (folder / name).is_file()}
    if not written:
        return shown
    code = diagnosis.code(session) if PATCH in written else None
    if code is not None and not _holds(folder / PATCH, code.diff or ""):
        code = None
    return shown + "".join(f"{line.plain}\n" for line in where_to_find(folder, code, written))


def _holds(patch: Path, diff: str) -> bool:
    """Return whether a patch beside a session is the session's own: whoever gave you the folder may have changed it."""
    own = diff.encode("utf-8", errors="replace")
    try:
        return patch.stat().st_size == len(own) and patch.read_bytes() == own
    except OSError:
        return False


class DiffFormat(Format):
    """What a difference can be rendered as."""

    TERMINAL = "terminal", ".txt"
    MARKDOWN = "markdown", ".md"
    JSON = "json", ".json"


def diff(
    before: Annotated[
        Path,
        typer.Argument(
            help="The older session, to compare with: a session.json, its folder, or last~1.",
            autocompletion=session_words,
        ),
    ],
    after: Annotated[
        Path,
        typer.Argument(
            help="The newer session, to judge: a session.json, its folder, or last.", autocompletion=session_words
        ),
    ],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(metavar="5%", help="Exit 1 if a variant's step time grew by more than this, beyond noise."),
    ] = None,
    fail_if_au_below: Annotated[
        str | None, typer.Option(metavar="0.9", help="Exit 1 if a variant of AFTER surely has a lower AU.")
    ] = None,
    fail_if_undecided: Annotated[
        bool, typer.Option("--fail-if-undecided", help="Exit 1 also if the trials cannot decide a gate.")
    ] = False,
    form: Annotated[DiffFormat | None, FORMAT] = None,
    output: Output = None,
) -> None:
    """Show what changed between two sessions. Exit 0: no gate failed. 1: one failed. 2: no comparison possible."""
    from pipeline_bench.analysis.difference import between
    from pipeline_bench.analysis.gates import Limits
    from pipeline_bench.analysis.goal import share
    from pipeline_bench.model.session import find, load
    from pipeline_bench.report import difference as reports

    chosen = form or form_of(output, DiffFormat)
    # The largest slowdown that can be asked about is arbitrary; ten times as slow is no gate but a wish.
    slower = None if fail_if_slower is None else share(fail_if_slower, "--fail-if-slower", highest=10.0)
    au_below = (
        None if fail_if_au_below is None else share(fail_if_au_below, "--fail-if-au-below", examples=("90%", "0.9"))
    )
    if fail_if_undecided and slower is None and au_below is None:
        raise UsageError(
            "--fail-if-undecided was given without a gate, so nothing is there to decide.",
            "Add --fail-if-slower 5% or --fail-if-au-below 0.9.",
        )
    difference = between(
        load(before),
        load(after),
        Limits(slower, au_below),
        strict=fail_if_undecided,
        paths=(str(find(before)), str(find(after))),
    )
    match chosen:
        case DiffFormat.JSON:
            text = difference.to_json()
        case DiffFormat.MARKDOWN:
            text = reports.markdown(difference)
        case DiffFormat.TERMINAL:
            text = as_text(lambda width: reports.terminal(difference, width), output)
    write(text, output)
    if difference.outcome == "failed":
        raise typer.Exit(GATE_FAILED)


def sessions(
    folder: Annotated[
        Path, typer.Argument(help="The folder with the sessions (the --out of the other commands).")
    ] = Path("reports"),
    every: Annotated[bool, typer.Option("--all", help="List all sessions in full, not only the newest.")] = False,
) -> None:
    """List the newest sessions, as many as fit the terminal. `report` and `diff` accept `last`, `last~1` … as names."""
    from rich.console import Console

    from pipeline_bench.model.session import REPORTS, kept_sessions
    from pipeline_bench.ui.console import on_terminal

    if folder.is_file():
        raise UsageError(f"{folder} is not a folder.", f"One session is shown by: pipeline-bench report {folder}")
    if folder != REPORTS and not folder.exists():
        raise UsageError(f"There is no folder {folder}.", "Give the --out of the commands that saved the sessions.")
    found = kept_sessions(folder)
    console = Console(highlight=False)
    if not found:
        console.print(f"No session is kept in {safe(str(folder))}.", markup=False)
        return
    # Of what is there at once only the end would stay on the screen, and that is the oldest.
    fits = on_terminal(console) and not every
    most = len(found) if every else max(1, (console.height - _LINES_BELOW) // _BLOCK_LINES) if fits else _SHOWN
    shown = found[:most]
    console.print(_session_table(shown, words=folder == REPORTS, width=console.width if fits else None))
    if left := len(found) - len(shown):
        console.print(f"{units.count(left, 'older session')} not shown: --all shows every one.")


def _session_table(shown: list[SessionFolder], words: bool, width: int | None) -> Table:
    """Return a block of lines for each session, beside the word that names it, if one does.

    Args:
        shown: the sessions, the newest first.
        words: whether they have words.
        width: columns of the terminal that a block has `_BLOCK_LINES` of; None to leave out nothing.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    numbers = itertools.count()
    for each in shown:
        command, scenario, summary = _summary(each)
        if each.measuring:
            word, summary = "", f"still measuring; so far: {summary}"
        else:
            number = next(numbers)
            word = ("last" if number == 0 else f"last~{number}") if words else ""
        title = "" if scenario in command.split() else f"{scenario}  "
        head = Text.assemble((f"{each.began:%Y-%m-%d %H:%M}  ", "dim"), title, (command, "dim"))
        head.highlight_words([scenario], "not dim bold")
        if width is not None:
            room = max(_LEAST_CELLS, width - len("last~99  "))
            head.truncate(room, overflow="ellipsis")
            summary = textwrap.fill(summary, room, max_lines=_BLOCK_LINES - 2, placeholder=" …")
        table.add_row(Text(word), Text("\n").join([head, Text(summary), Text(safe(str(each.folder)), "dim")]))
    return table


def _summary(each: SessionFolder) -> tuple[str, str, str]:
    """Return the session's command, its scenario, and what it comes to; of a damaged one what is wrong with it."""
    from pipeline_bench.model.session import load
    from pipeline_bench.report import diagnosis

    try:
        session = load(each.folder, series=False)
    except SessionError as error:
        return "", "", error.message
    return session.command, session.scenario.name, diagnosis.headline(session)


_PERIOD_S = 1.0
"""Jobs report as often."""


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one line for each job, and exit.")] = False,
) -> None:
    """Show all your watched jobs, from every terminal: steps, waits, device, host, memory."""
    from rich.console import Console

    from pipeline_bench.run import watched_jobs
    from pipeline_bench.ui.console import on_terminal
    from pipeline_bench.ui.jobs import listing

    console = Console(highlight=False)
    if once or not on_terminal(console) or console.is_dumb_terminal:
        for line in listing(*watched_jobs.find_jobs()):
            typer.echo(line)
        return
    _watch(console)


def _watch(console: Console) -> None:
    """Draw the screen anew each second, in a screen of its own, until q or Ctrl-C."""
    from rich.live import Live

    from pipeline_bench.cli.running import interruptible
    from pipeline_bench.run import watched_jobs
    from pipeline_bench.system import job_control
    from pipeline_bench.ui.jobs import screen

    def again() -> None:
        if sys.stdin is not None and sys.stdin.isatty():
            tty.setcbreak(sys.stdin.fileno())
        live.console.set_alt_screen(True)
        live.console.show_cursor(False)

    def draw() -> None:
        if not job_control.may_draw(again):
            return
        found, problems = watched_jobs.find_jobs()
        clock = f"{datetime.now():%H:%M:%S}"
        live.update(screen(found, problems, console.width, console.height, clock), refresh=True)

    live = Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop")
    with suppress(KeyboardInterrupt), interruptible(job_control.LEAVE_SCREEN), _unbuffered_keys(), live:
        draw()
        while not _quit_within(_PERIOD_S):
            draw()


@contextmanager
def _unbuffered_keys() -> Iterator[None]:
    """Read each key as it is pressed, without showing it; do nothing if stdin is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    from pipeline_bench.system import job_control

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        if not job_control.in_background():  # else it was given back, and to change it would stop this process
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Return whether q was pressed, or the terminal went away, within that time."""
    if sys.stdin is None or not sys.stdin.isatty():
        time.sleep(seconds)
        return not sys.stdout.isatty()  # as of a terminal that is gone
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and os.read(sys.stdin.fileno(), 64).lower()[:1] in (b"q", b"")
