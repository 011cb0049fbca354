"""A live view on a terminal of a given size, a plain one with what it writes, and a clock that the test sets."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import plan
from pipeline_bench.ui.live import LiveView
from pipeline_bench.ui.plain import PlainView


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(session: Session, folder: Path | None = None, clock: Clock | None = None) -> tuple[PlainView, io.StringIO]:
    """A view line by line to which the session has begun, and what it writes."""
    stream = io.StringIO()
    view = PlainView(stream, folder, clock or Clock())
    view.session_started(session, plan(session.scenario))
    return view, stream


class Terminal:
    """The view, and its lines."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.clock = Clock()
        self.stream = io.StringIO()
        self.console = Console(
            file=self.stream, width=width, height=height, force_terminal=True, color_system=None, _environ={}
        )
        self.view = LiveView(self.console, clock=self.clock)

    def lines(self) -> list[str]:
        with self.console.capture() as capture:
            self.console.print(self.view.render())
        return capture.get().splitlines()
