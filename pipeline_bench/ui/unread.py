"""The end of a run that nobody is left to read: `| head` has seen enough."""

from __future__ import annotations

import os
import signal
import sys
from typing import TextIO

from pipeline_bench.model.trial import Trial
from pipeline_bench.run.observer import Observer, Progress
from pipeline_bench.ui.console import nobody_reads


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
