"""What this machine has and allows: TensorFlow's devices, the job that suits them, and servers out of others' reach.

TensorFlow is asked in a process of its own: its import can crash, hang, or fill the screen. Its servers listen on every
network interface, without a password: a trial that starts one gets a network of its own (`system.private_network`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from pipeline_bench import plugins, replication
from pipeline_bench.errors import UsageError
from pipeline_bench.model import task
from pipeline_bench.model.service_edits import OffloadToService
from pipeline_bench.model.task import Task
from pipeline_bench.run.child import call
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.scenario.files import DEFAULT_SCENARIO
from pipeline_bench.system import private_network
from pipeline_bench.text import NAME, one_line
from pipeline_bench.worker.devices import TensorFlowReport, report_of_tensorflow

EMULATED_SCENARIO = "tutorial"
LIMIT_S = 120


@dataclass(frozen=True)
class TensorFlowAnswer:
    """How the process that asks TensorFlow ended: with a report, or with the reason for none, and its stderr."""

    report: TensorFlowReport | None = None
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


def check_gpu(scenario: Scenario, observer: Observer) -> None:
    """Refuse a scenario all of whose variants ask for a GPU, where TensorFlow says that it uses none.

    Raises:
        UsageError: it uses none; each trial would fail.
    """
    if not all(variant.runtime.device.startswith("gpu") for variant in scenario.variants):
        return
    observer.preparing("asking TensorFlow for a GPU")
    tensorflow = ask_tensorflow()
    if tensorflow.report is not None and not tensorflow.gpus:
        raise UsageError(
            f"{one_line(scenario.name, NAME)} needs a GPU, and TensorFlow uses none here.",
            "Run it on a machine with one; `pipeline-bench doctor` says why a GPU is not used.",
        )


def ask_tensorflow(limit_s: float = LIMIT_S) -> TensorFlowAnswer:
    """Import TensorFlow in a process of its own and take its report, or the reason for none."""
    answer = call(report_of_tensorflow, limit_s=limit_s)
    if answer.result is not None:
        return TensorFlowAnswer(TensorFlowReport.model_validate(answer.result))
    if answer.timed_out:
        return TensorFlowAnswer(reason=f"it did not answer within {limit_s:g} s", stderr=answer.words)
    # The last line that a process wrote says why it ended; one that a signal ended wrote none.
    lines = [line for line in answer.words.splitlines() if line.strip()]
    last = lines[-1].strip() if lines and answer.exit_code > 0 else f"its process {answer.ending}"
    return TensorFlowAnswer(reason=answer.failed or last, stderr=answer.words)


class MainJob(NamedTuple):
    """The scenario that is run, and a note on the choice; None where none is needed."""

    scenario: str
    note: str | None = None

    def noted(self, scenario: Scenario) -> Scenario:
        """Return the scenario, loaded, with the note before its own: every report shows it."""
        return scenario.model_copy(update={"notes": (self.note, *scenario.notes)}) if self.note else scenario


def choose() -> MainJob:
    """Return the job for this machine: on a CPU, input and model share the cores, and little can overlap.

    Only where the driver lists a GPU TensorFlow is asked, in a process of its own, whether it uses one.
    """
    with closing(NvmlSampler.open()) as gpu:
        name = gpu.accelerator.name
    if name is not None and ask_tensorflow().gpus:
        return MainJob(DEFAULT_SCENARIO)
    reason = (
        "No NVIDIA GPU was found"
        if name is None
        else f"{name} is here, but TensorFlow does not use it (`pipeline-bench doctor` says why)"
    )
    return MainJob(
        EMULATED_SCENARIO,
        f"{reason}: this is the tutorial's job on an emulated accelerator, which is busy in each step as long as the "
        f"GPU of 2017. `pipeline-bench compare {DEFAULT_SCENARIO}` trains on this machine's own hardware.",
    )


EXPOSE_OPTION = "--expose-servers"
EXPOSED_FIXES = f"{EXPOSE_OPTION}: other machines can reach the servers of a fix that starts some while it is tried"
"""The note of a diagnosis, which does not know beforehand what it tries."""
_LIMIT_S = 20.0


def starts_servers(variant: Variant) -> bool:
    """Return whether a trial of the variant starts servers."""
    if variant.source.kind == task.KIND:
        edits = Task.model_validate(variant.source.options).edits
        return any(isinstance(edit, OffloadToService) for edit in edits)
    backend = plugins.make("backends", variant.backend, variant.options)
    return bool(backend.starts_servers) or replication.in_processes(variant.runtime)


@cache
def refuse_servers() -> str | None:
    """Return why trials that start servers are refused on this system; None where they get a network of their own."""
    answer = call(private_network.attempt, limit_s=_LIMIT_S)
    if answer.result is not None:
        return None
    return (
        "TensorFlow's servers would listen on every network interface of this machine, without a password, and this "
        f"system allows no network of their own ({one_line(answer.why, NAME)}); {EXPOSE_OPTION} of compare and of "
        "diagnose runs them all the same"
    )


def exposed_note(scenario: Scenario) -> str | None:
    """Return the note for a scenario whose servers other machines could reach; None where it starts none."""
    names = [variant.name for variant in scenario.variants if starts_servers(variant)]
    if not names:
        return None
    return f"{EXPOSE_OPTION}: other machines could reach the servers of {', '.join(names)} while its trials ran"
