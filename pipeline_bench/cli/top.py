"""``pipeline-bench top``: the watched jobs of this user, live, until q is pressed."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

_PERIOD_S = 1.0
"""Jobs report as often."""


def top(
    once: Annotated[bool, typer.Option("--once", help="A line a job as they stand, and end.")] = False,
) -> None:
    """Show every watched job of yours, in whichever terminal it runs: steps, waits, device, host, memory."""
    from rich.console import Console

    from pipeline_bench.run import jobs
    from pipeline_bench.ui.jobs import listing

    console = Console(highlight=False)
    if once or not console.is_terminal or console.is_dumb_terminal:
        for line in listing(*jobs.found()):
            typer.echo(line)
        return
    _watch(console)


def _watch(console: Console) -> None:
    """Draw the screen anew each second, in a screen of its own, until q or Ctrl-C."""
    from rich.live import Live

    from pipeline_bench.cli.running import interruptible
    from pipeline_bench.run import jobs
    from pipeline_bench.ui.jobs import screen

    def draw() -> None:
        found, problems = jobs.found()
        clock = f"{datetime.now():%H:%M:%S}"
        live.update(screen(found, problems, console.width, console.height, clock), refresh=True)

    live = Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop")
    with suppress(KeyboardInterrupt), interruptible(), _keys_at_once(), live:
        draw()
        while not _quit_within(_PERIOD_S):
            draw()


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have the terminal hand on each key as it is pressed, unshown; where stdin is no terminal, nothing is done."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Return whether q was pressed, or the terminal went away, within that time."""
    if sys.stdin is None or not sys.stdin.isatty():
        time.sleep(seconds)
        return not sys.stdout.isatty()  # as of a terminal that is gone
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and os.read(sys.stdin.fileno(), 64).lower()[:1] in (b"q", b"")
