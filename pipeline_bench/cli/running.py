"""What the commands that measure have in common: their options' checks, the view, exports, signals, exit codes."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline_bench.model.trial import Trial
    from pipeline_bench.run.comparison import Outcome
    from pipeline_bench.run.observer import Observer, Progress
    from pipeline_bench.system.interrupts import Handler

STDOUT = "-"
TRIAL_FAILED = 1
INTERRUPTED = 130
UNREAD = 128 + signal.SIGPIPE
"""What a shell says of a program that SIGPIPE ended: its lines have no reader any more."""
SHOW_CURSOR = b"\x1b[?25h"
"""DECTCEM, "set": what a live screen has hidden (ECMA-48 private mode 25)."""


ExposeServers = Annotated[
    bool,
    typer.Option(
        "--expose-servers",
        help="Run trials that need TensorFlow's servers (between_graph, tf.data service) in the machine's own network, "
        "where other machines reach these without a password; by default such a trial has a network of its own.",
    ),
]
"""The option of the commands whose trials may start servers."""

OpenPage = Annotated[bool, typer.Option("--open", help="Show the page, report.html, in the browser at the end.")]
"""The option of the commands that leave a page."""

Details = Annotated[
    bool, typer.Option("--details", help="Show all that the page says, in place of one screen of 80 × 24.")
]
"""The option of the commands that show a session in the terminal."""


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
    open_page: bool = False,
    details: bool = False,
) -> int:
    """Run, show, export; return the exit code: 0 only where all went through and all of it could be written.

    Args:
        run: measures, telling the view how it goes.
        folder: the session's own, which exists; it is removed where nothing was measured.
        console: where the report goes; of stderr where the session itself goes to stdout.
        json_to: the option ``--json``, checked.
        live: whether a screen is wanted in place of lines.
        open_page: whether the page is to be shown in the browser at the end.
        details: whether more than one screen is to be shown.
    """
    from pipeline_bench.cli import delivery, stdout
    from pipeline_bench.system import interrupts

    with interruptible():
        with interrupts.deferred():  # a second signal does not cost the reports either
            outcome = None
            with view(console, folder, live) as observer:
                try:
                    outcome = run(observer)
                except KeyboardInterrupt:
                    if any(folder.iterdir()):
                        raise
            unread = getattr(observer, "unread", False)
            if unread:
                stdout.silence()
            if outcome is None or (outcome.interrupted and not outcome.session.trials):
                shutil.rmtree(folder, ignore_errors=True)
                console.print("Interrupted before the first trial; nothing was measured.")
                return UNREAD if unread else INTERRUPTED
            outcome, problems = delivery.deliver(outcome, console, json_to, open_page=open_page, details=details)
        if outcome.unsaved is not None:
            delivery.rescue(outcome, json_to)
    if outcome.interrupted:
        return UNREAD if unread else INTERRUPTED
    return 0 if outcome.all_ok and not problems else TRIAL_FAILED


def view(console: Console, folder: Path, live: bool) -> AbstractContextManager[Observer]:
    """The live screen on a terminal, plain lines elsewhere."""
    from pipeline_bench.ui.live import LiveView

    if live and console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return nullcontext(lines(sys.stderr if console.stderr else sys.stdout, folder))


def lines(stream: TextIO, folder: Path) -> Observer:
    """Plain lines that end the run, as SIGTERM does, once nobody is left to read them: `| head` has seen enough."""
    from pipeline_bench.ui.plain import PlainView

    class UntilUnread(PlainView):
        unread = False

        def progress(self, trial: Trial, progress: Progress) -> None:
            if not self.unread and _nobody_reads(stream):
                self._end()

        def _line(self, text: str) -> None:
            try:
                super()._line(text)
            except BrokenPipeError:
                self._end()

        def _end(self) -> None:
            if not self.unread:
                self.unread = True
                os.kill(os.getpid(), signal.SIGTERM)

    return UntilUnread(stream, folder)


def _nobody_reads(stream: TextIO) -> bool:
    """Whether the stream is a pipe or a socket whose other end is closed, without writing to it."""
    asked = select.poll()
    try:
        asked.register(stream.fileno(), 0)  # errors are told whatever is asked for
        return any(event & select.POLLERR for _, event in asked.poll(0))
    except (OSError, ValueError):  # it is no file at all
        return False


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


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end a session as Ctrl-C does, with what was measured saved.

    A signal that is ignored, as SIGHUP is under ``nohup``, stays ignored. SIGQUIT ends the program at once, after it
    has shown the terminal's cursor again.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def leave_at_once(number: int, _: object) -> None:
        with suppress(OSError), Path("/dev/tty").open("wb", buffering=0) as terminal:
            terminal.write(SHOW_CURSOR)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handlers: dict[signal.Signals, Handler] = {
        signal.SIGTERM: interrupt,
        signal.SIGHUP: interrupt,
        signal.SIGQUIT: leave_at_once,
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
