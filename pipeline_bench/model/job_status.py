"""What a watched job tells of itself while it runs: a small file, which it replaces once a second."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from pipeline_bench.model import Record
from pipeline_bench.text import Text

HISTORY = 120
"""Seconds of history: what a wide terminal has room for."""

_Percents = Annotated[tuple[float | None, ...], Field(max_length=HISTORY)]


class JobStatus(Record):
    """A training as it stands. Of each of its last seconds, the newest last, None where nothing was measured.

    A field that a newer version tells and this one does not know is left out.
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
    """Of the whole machine's CPU, 0 to 100."""
    memory_bytes: float | None = None
    """Of the job's processes together."""
    machine_memory_bytes: float | None = None
    buffered: tuple[float, float] | None = None
    """How many batches were ready, and how many there can be."""
    idle_s: float = 0.0
    """Since a step was last seen to end."""
    verdict: Text = ""
    """Of all its steps so far."""
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
