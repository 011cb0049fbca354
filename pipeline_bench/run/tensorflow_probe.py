"""Asks TensorFlow what it finds here, in a process of its own: its import can crash, hang, or fill the screen."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pipeline_bench.run.child import AnsweringProcess
from pipeline_bench.system.processes import module_command
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
    line: bytes | None = None
    with suppress(TimeoutError), AnsweringProcess(module_command("pipeline_bench.worker.probe")) as child:
        line = next(child.lines(limit_s), b"")
    if line is None:
        return Probed(reason=f"it did not answer within {limit_s:g} s", stderr=child.words)
    if child.exit_code != 0:
        return Probed(reason=_cause(child), stderr=child.words)
    try:
        return Probed(ProbeReport.model_validate_json(line))
    except ValidationError as error:
        return Probed(reason=f"its answer is no report: {error.errors()[0]['msg']}", stderr=child.words)


def _cause(child: AnsweringProcess) -> str:
    """The last line that a process wrote says why it ended; one that a signal ended wrote none."""
    lines = [line for line in child.words.splitlines() if line.strip()]
    return lines[-1].strip() if lines and child.exit_code > 0 else f"its process {child.ending}"
