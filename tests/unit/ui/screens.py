"""A live view on a terminal of a given size, with what it shows as plain lines, and a clock that the test sets."""

from __future__ import annotations

import io

from rich.console import Console

from pipeline_bench.ui.live import LiveView


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


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
