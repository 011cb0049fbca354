"""Where the wall time of a training job went: what a session keeps of it, epoch by epoch."""

from __future__ import annotations

from pipeline_bench.model import Record


class Epoch(Record):
    """One epoch, or `count` of them in a row where a training had too many to keep each; times in ns.

    Attributes:
        begin_ns: on the monotonic clock, as is `end_ns`.
        first_step_ns: of the training's first epoch, until its first step had ended: tracing, the first batch; else 0.
        steps_ns: all its other steps.
        wait_ns: of these, blocked for their batches; None where that was not measured.
        first_wait_ns: for its first batch, whether or not that is of `first_step_ns`; None where it was not measured.
        validation_ns: evaluation within it.
        callbacks_ns: the program's own callbacks before, after and between its steps.
        step_callbacks_ns: those within its steps.
        memory_bytes: what the process held at its end; None where the system does not report it.
    """

    begin_ns: int
    end_ns: int
    first_step_ns: int = 0
    steps_ns: int = 0
    wait_ns: int | None = None
    first_wait_ns: int | None = None
    validation_ns: int = 0
    callbacks_ns: int = 0
    step_callbacks_ns: int = 0
    memory_bytes: int | None = None
    count: int = 1

    @property
    def seconds(self) -> float:
        """The time from its begin to its end, of one where it stands for several."""
        return (self.end_ns - self.begin_ns) / 1e9 / self.count


class WallTime(Record):
    """A call of `fit`, from its begin to its end on the monotonic clock.

    Attributes:
        before_s: what its process had run before that; None where that says nothing: of a later one, a notebook.
        last_callbacks_ns: the program's own callbacks after the last epoch.
    """

    before_s: float | None = None
    begin_ns: int
    end_ns: int
    epochs: tuple[Epoch, ...] = ()
    last_callbacks_ns: int = 0

    @property
    def seconds(self) -> float:
        """From the process' start, where that is known, to the end of the training."""
        return (self.before_s or 0.0) + (self.end_ns - self.begin_ns) / 1e9
