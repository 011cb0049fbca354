"""A command's console: whether it can be drawn on, and when, and what becomes of a pipe that nobody reads any more."""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
from contextlib import suppress
from typing import IO, TextIO

from rich.console import Console
from rich.live import Live

from pipeline_bench.model.trial import Trial
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.system import job_control


class PipedConsole(Console):
    """Raises the error of a pipe whose reader has left, as for any other file, where rich would end the program."""

    def on_broken_pipe(self) -> None:
        """Raise it: what was measured is still to be saved and told.

        Raises:
            BrokenPipeError: always.
        """
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class ForegroundLive(Live):
    """Draws in the foreground only, and after Ctrl-Z and `fg` below what the shell has written, not over it."""

    def refresh(self) -> None:
        """Draw, unless the terminal is another program's."""
        if job_control.may_draw(self._afresh):
            super().refresh()

    def stop(self) -> None:
        """Take what is drawn away, and let the cursor show again."""
        if not job_control.may_draw(self._afresh):
            self._forget()
        with suppress(OSError):  # the terminal was closed: there is nothing to restore
            super().stop()

    def _afresh(self) -> None:
        self.console.show_cursor(False)
        self._forget()

    def _forget(self) -> None:
        """Take what is drawn for gone: it is not to be drawn over, or erased."""
        self._live_render._shape = None


def on_terminal(console: Console) -> bool:
    """Return whether a terminal shows what is printed. rich also says so of a pipe, under ``FORCE_COLOR``."""
    return console.is_terminal and console.file.isatty()


def can_draw(console: Console) -> bool:
    """Return whether a live screen may be drawn: on a terminal that can, and not in the background (``compare &``)."""
    return on_terminal(console) and not console.is_dumb_terminal and not job_control.in_background()


def nobody_reads(stream: IO[str]) -> bool:
    """Return whether the stream is a pipe or a socket whose other end is closed, without writing to it.

    A terminal that is gone is no reason to end: what is to end with it gets a SIGHUP, and what was disowned goes on.
    """
    asked = select.poll()
    try:
        mode = os.fstat(stream.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        asked.register(stream.fileno(), 0)  # errors are reported whatever is asked for
        return any(event & select.POLLERR for _, event in asked.poll(0))
    except (OSError, ValueError):  # it is no file at all
        return False


class UntilUnread(Observer):
    """Ends the run, as SIGTERM does, once nobody is left to read stdout."""

    unread = False

    def progress(self, trial: Trial, progress: Progress) -> None:
        if not self.unread and any(map(nobody_reads, self._streams())):
            self._end()
        if not self.unread:
            super().progress(trial, progress)

    def _streams(self) -> tuple[TextIO, ...]:
        return (sys.stdout,)  # where the session may go, with the lines on stderr

    def _end(self) -> None:
        if not self.unread:
            self.unread = True
            os.kill(os.getpid(), signal.SIGTERM)
