"""The measured steps of a trial, as figures are taken of them: warm-up left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipeline_bench.session import TrialRecord

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Measured:
    """The measured steps of one trial, warm-up left out."""

    record: TrialRecord

    @cached_property
    def start_ns(self) -> npt.NDArray[np.int64]:
        assert self.record.steps is not None
        return self.record.steps.start_ns.unpack()[self.record.warmup_steps :]

    @cached_property
    def end_ns(self) -> npt.NDArray[np.int64]:
        assert self.record.steps is not None
        return self.record.steps.end_ns.unpack()[self.record.warmup_steps :]

    @cached_property
    def step_ms(self) -> npt.NDArray[np.float64]:
        return (self.end_ns - self.start_ns) / _NS_PER_MS

    @cached_property
    def mean_ms(self) -> float:
        return float(self.step_ms.mean())

    @cached_property
    def mean_wait_ms(self) -> float | None:
        assert self.record.steps is not None
        if self.record.steps.wait_ns is None:
            return None
        return float(self.record.steps.wait_ns.unpack()[self.record.warmup_steps :].mean()) / _NS_PER_MS

    @property
    def emulated(self) -> str | None:
        """The name of the device that its model emulated; None where it computed."""
        device = self.record.device
        return device.name if device is not None and device.kind == "emulated" else None

    @cached_property
    def busy_share(self) -> float | None:
        """How much of the measured time an emulated device was busy, 0 to 1; None of a model that computed."""
        assert self.record.steps is not None
        if self.record.steps.busy_ns is None:
            return None
        busy_ns = float(self.record.steps.busy_ns.unpack()[self.record.warmup_steps :].sum())
        return busy_ns / float(self.end_ns[-1] - self.start_ns[0])

    @cached_property
    def total_s(self) -> float:
        """From the first step's start to the last one's end, warm-up included."""
        assert self.record.steps is not None
        steps = self.record.steps
        return float(steps.end_ns.unpack()[-1] - steps.start_ns.unpack()[0]) / 1e9
