"""Loops drive the steps of a trial. One file, one class, one name; open through ``pipeline_bench.loops``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from pipeline_bench.backends import Input
from pipeline_bench.models import TrainingGraph
from pipeline_bench.plugins import Plugin


class StepRecorder(Protocol):
    """Takes one finished step; times in ns of ``time.monotonic_ns``. False when the trial has run its length.

    Where `due`, the next step is looked at: it is to bring its input's evidence, float64 [n]. `busy_ns` is how long
    an emulated device was busy with the step.
    """

    due: bool

    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        evidence: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool: ...


class Loop(Plugin):
    """Runs training steps until the recorder says that the trial is over."""

    @abstractmethod
    def run(self, session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
        """Train; give every step to `record` as soon as its loss is there."""
