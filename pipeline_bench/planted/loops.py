"""planted_host: a loop whose Python takes a known time in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench.loops import StepRecorder, Training
from pipeline_bench.loops.session import SessionLoop
from pipeline_bench.planted.sleeper import Sleeper
from pipeline_bench.planted.sources import Milliseconds
from pipeline_bench.plugins import Options


class PlantedHostOptions(Options):
    """How long the host takes in each step beside the model."""

    host_ms: Annotated[Milliseconds, Field(description="slept in Python after the batch was asked for")] = 0.0


class PlantedHost(SessionLoop):
    """The session loop of a program whose Python takes its time before each step; with no input, it takes none."""

    name = "planted_host"
    listed = False
    summary = "session.run a step, after a sleep"
    Options = PlantedHostOptions

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; the fetch of a batch goes by without the sleep."""
        source = training.feeding
        if source.wait == "none" or not self.options.host_ms:
            super().run(session, training, record)
            return
        fetch = source.fetch
        source.fetch = lambda _: fetch(session)  # type: ignore[method-assign,assignment]
        super().run(_Slow(session, self.options.host_ms / 1e3), training, record)


class _Slow:
    """A session whose every run is preceded by a sleep."""

    def __init__(self, session: Any, host_s: float) -> None:
        self._run: Callable[..., Any] = session.run
        self._sleep = Sleeper(host_s)

    def run(self, *arguments: Any, **named: Any) -> Any:
        self._sleep()
        return self._run(*arguments, **named)
