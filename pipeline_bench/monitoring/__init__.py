"""Watching a training job from within: how long its steps wait for input, shown while it runs, saved as a session.

Errors of the monitoring stay out of the job: they are written to stderr, and the job goes on without it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec

from pipeline_bench.system.interrupts import raised_by_handler
from pipeline_bench.text import line_of

_Given = ParamSpec("_Given")


def harmless(method: Callable[Concatenate[Any, _Given], None]) -> Callable[Concatenate[Any, _Given], None]:
    """Return a monitor's method that raises nothing: the error is passed to `give_up` of the same object."""

    @functools.wraps(method)
    def guarded(self: Any, /, *arguments: _Given.args, **named: _Given.kwargs) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.give_up(error)

    return guarded


def tell_unwatched(name: str, error: Exception) -> None:
    """Say on stderr that a job is not watched, and why."""
    with suppress(Exception):  # a full disk, a closed stream: likewise
        sys.stderr.write(f"{name} is not watched: {line_of(error)}\n")
