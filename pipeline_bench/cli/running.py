"""What the commands that measure have in common: their options' checks, the view, exports, signals, exit codes."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline_bench.comparison import Outcome
    from pipeline_bench.observer import Observer
    from pipeline_bench.session import Session

STDOUT = "-"
TRIAL_FAILED = 1
INTERRUPTED = 130


def positive(value: float | None) -> float | None:
    """Check an option that is a number of seconds.

    Raises:
        typer.BadParameter: it is none.
    """
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value} is no positive number of seconds.")
    return value


def run_and_show(
    run: Callable[[Observer], Outcome],
    folder: Path,
    console: Console,
    json_to: str | None,
    *,
    live: bool,
) -> int:
    """Run, show, export; the exit code says whether it went through.

    Args:
        run: measures, telling the view how it goes.
        folder: the session's own, which exists; it is removed where nothing was measured.
        console: where the report goes; of stderr where the session itself goes to stdout.
        json_to: the option ``--json``, checked.
        live: whether a screen is wanted in place of lines.
    """
    from pipeline_bench.report import html, markdown
    from pipeline_bench.report.terminal import render

    with interruptible(), view(console, folder, live) as observer:
        outcome = run(observer)
    if outcome.interrupted and not outcome.session.trials:
        shutil.rmtree(folder)
        console.print("Interrupted before the first trial; nothing was measured.")
        return INTERRUPTED
    for name, render_file in (("report.md", markdown.render), ("report.html", html.render)):
        with suppress(OSError):  # a rendering can be made again; see `pipeline-bench report`
            (folder / name).write_text(render_file(outcome.session), encoding="utf-8")
    export(outcome.session, json_to)
    with suppress(OSError):  # the terminal may be gone; the session is saved
        console.print(render(outcome.session, folder, console.width))
    if outcome.interrupted:
        return INTERRUPTED
    return 0 if outcome.all_ok else TRIAL_FAILED


def view(console: Console, folder: Path, live: bool) -> AbstractContextManager[Observer]:
    """The live screen on a terminal, plain lines elsewhere."""
    from pipeline_bench.ui.live import LiveView
    from pipeline_bench.ui.plain import PlainView

    if live and console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return nullcontext(PlainView(sys.stderr if console.stderr else sys.stdout, folder))


def check_export(json_to: str | None) -> None:
    """See that the file for the session can be written before anything is measured, without touching what it holds.

    Raises:
        UsageError: it cannot.
    """
    from pipeline_bench.errors import UsageError

    if json_to is None or json_to == STDOUT:
        return
    path = Path(json_to)
    existed = path.exists()
    try:
        path.open("a", encoding="utf-8").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise UsageError(
            f"--json {json_to}: the file cannot be written: {error.strerror}.", "Choose another file, or - for stdout."
        ) from None


def export(session: Session, json_to: str | None) -> None:
    """Write the session where ``--json`` asks for it.

    Raises:
        SessionError: the file cannot be written.
    """
    from pipeline_bench.errors import SessionError

    if json_to is None:
        return
    try:
        if json_to == STDOUT:
            sys.stdout.write(session.to_json())
            sys.stdout.flush()
        else:
            Path(json_to).write_text(session.to_json(), encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SessionError(
            f"--json {json_to} cannot be written: {error.strerror}.", "The session itself is saved in its folder."
        ) from None


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end a session as Ctrl-C does: with what was measured saved."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
