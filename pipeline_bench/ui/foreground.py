"""A live display that leaves the terminal alone while the program is in the background."""

from __future__ import annotations

from contextlib import suppress

from rich.live import Live

from pipeline_bench.system import job_control


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
