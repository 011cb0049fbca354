"""What a watched training says of itself: once a second while it runs, and at its end where its wall time went."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from pipeline_bench.model import Record
from pipeline_bench.text import Text

Eager = Literal["functions", "model", "no-function"]
"""Why steps run as eager code, op by op from Python, and not as a graph."""
WHY_EAGER: dict[Eager, str] = {
    "functions": "tf.config.run_functions_eagerly(True) was called",
    "model": "the model's run_eagerly is True",
    "no-function": "their GradientTape is in no tf.function",
}


class Epoch(Record):
    """One epoch, or `count` of them in a row where a training had too many to keep each; times in ns.

    Attributes:
        begin_ns: on the monotonic clock, as is `end_ns`.
        first_step_ns: of the training's first epoch, until its first step had ended: tracing, the first batch; else 0.
        steps: how many others it has; None in an older session.
        steps_ns: these.
        wait_ns: of these, blocked for their batches; None where that was not measured.
        first_wait_ns: for its first batch, whether or not that is of `first_step_ns`; None where it was not measured.
        iterator_end_ns: until iterators had ended: before its first step that of the epoch before (in the training's
            first epoch that is of `first_step_ns`), and at its end others, as a validation's.
        validation_ns: evaluation within it.
        callbacks_ns: the program's own callbacks before, after and between its steps.
        step_callbacks_ns: those within its steps.
        memory_bytes: what the process held at its end, the pages of mapped files left out; None where the system does
            not report it.
    """

    begin_ns: int
    end_ns: int
    first_step_ns: int = 0
    steps: int | None = None
    steps_ns: int = 0
    wait_ns: int | None = None
    first_wait_ns: int | None = None
    iterator_end_ns: int = 0
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
    """A call of `fit`, or a loop of the program's own over its data, from its begin to its end on the monotonic clock.

    Attributes:
        before_s: what its process had run before that; None where that says nothing: of a later one, a notebook.
        initial_epoch: the number of its first epoch, from 0, as Keras has it: more where a training is resumed.
        last_callbacks_ns: the program's own callbacks after the last epoch.
        steps_a_call: how many steps one call of Keras' training function takes (`steps_per_execution`); None where that
            is no matter: of eager steps, or a Keras that runs on something else than TensorFlow.
        queue_of_keras_2: whether Keras 2 began a queue for it, as for a `Sequence` with `workers`.
    """

    before_s: float | None = None
    begin_ns: int
    end_ns: int
    initial_epoch: int = 0
    epochs: tuple[Epoch, ...] = ()
    last_callbacks_ns: int = 0
    steps_a_call: int | None = None
    queue_of_keras_2: bool = False

    @property
    def seconds(self) -> float:
        """From the process' start, where that is known, to the end of the training."""
        return (self.before_s or 0.0) + (self.end_ns - self.begin_ns) / 1e9


HISTORY = 120
"""Seconds of history: what a wide terminal has room for."""

_Percents = Annotated[tuple[float | None, ...], Field(max_length=HISTORY)]


class JobStatus(Record):
    """The current state of a training. Of each of its last seconds, the newest last, None where nothing was measured.

    A field that a newer version writes and this one does not know is left out.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    name: Text
    pid: int
    run: Text = ""
    """The call of `pipeline-bench run` that it is watched by."""
    started_s: float
    """Seconds since 1970."""
    device: Text
    """``CPU`` or ``GPU``."""
    steps: int = 0
    step_ms: float | None = None
    """Of the last second in which steps ended, as are the next three."""
    input_wait_share: float | None = None
    device_percent: float | None = None
    host_percent: float | None = None
    """Of the CPU that the job may use, 0 to 100."""
    memory_bytes: float | None = None
    """Of the job's processes together."""
    buffered: tuple[float, float] | None = None
    """How many batches were ready, and how many there can be."""
    idle_s: float = 0.0
    """Since a step was last seen to end."""
    verdict: Text = ""
    """Of all its steps so far, in two words."""
    severity: Literal["none", "bound", "severe"] = "none"
    """Whether that is input-bound, and how much."""
    line: Text = ""
    """All its steps so far, in a line."""
    step_history: _Percents = ()
    """Milliseconds a step."""
    wait_history: _Percents = ()
    """Percent of the steps' time."""
    device_history: _Percents = ()
    host_history: _Percents = ()
    ended: bool = False
    folder: Text | None = None
    """Of the session, once the job has ended."""
