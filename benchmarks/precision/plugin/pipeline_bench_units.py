"""A loop whose step is a number of equal units, so that one of 103 takes 3 % longer than one of 100 by construction."""

from __future__ import annotations

from time import monotonic_ns
from typing import Annotated, Any

from pydantic import Field

from pipeline_bench.loops import Loop, StepRecorder, Training
from pipeline_bench.plugins import Options

Count = Annotated[int, Field(ge=1, le=10**6)]


class UnitsOptions(Options):
    """How much work a step is."""

    units: Annotated[Count, Field(description="runs of the model a step")] = 100
    by_turns_with: Annotated[Count | None, Field(description="runs of every second step, if not as many")] = None


class Units(Loop):
    """Trains that many times a step, for backends that have no input to wait for."""

    name = "units"
    summary = "a number of session.run([train, loss]) a step"
    Options = UnitsOptions

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; the step time runs from the start of its first unit to having the loss of its last."""
        fetches = [training.graph.train, training.graph.loss]
        now, after = self.options.units, self.options.by_turns_with or self.options.units
        more = True
        while more:
            start_ns = monotonic_ns()
            for _ in range(now):
                _, loss = session.run(fetches)
            more = record(start_ns, monotonic_ns(), 0, loss)
            now, after = after, now
