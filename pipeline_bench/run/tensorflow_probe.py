"""Asks TensorFlow what it finds here, in a process of its own: its import can crash, hang, or fill the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline_bench.run.child import call
from pipeline_bench.worker import probe
from pipeline_bench.worker.probe import ProbeReport

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_S = 120


@dataclass(frozen=True)
class Probed:
    """How the probe's process ended: with a report, or with the reason for none and what it wrote to stderr."""

    report: ProbeReport | None = None
    reason: str = ""
    stderr: str = ""

    @property
    def gpus(self) -> Sequence[str]:
        """The GPUs that TensorFlow uses, by name, with what they can compute."""
        devices = [device for device in self.report.devices if device.kind == "gpu"] if self.report else []
        return [
            device.name + (f" (compute capability {device.compute_capability})" if device.compute_capability else "")
            for device in devices
        ]


def run_probe(limit_s: float = LIMIT_S) -> Probed:
    """Import TensorFlow in a process of its own and take its report, or the reason for none."""
    answer = call(probe.probe, limit_s=limit_s)
    if answer.result is not None:
        return Probed(ProbeReport.model_validate(answer.result))
    if answer.timed_out:
        return Probed(reason=f"it did not answer within {limit_s:g} s", stderr=answer.words)
    # The last line that a process wrote says why it ended; one that a signal ended wrote none.
    lines = [line for line in answer.words.splitlines() if line.strip()]
    last = lines[-1].strip() if lines and answer.exit_code > 0 else f"its process {answer.ending}"
    return Probed(reason=answer.failed or last, stderr=answer.words)
