"""The job of a comparison that names no scenario: the tutorial's, on a GPU, or on an emulated one without one."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from pipeline_bench.run.tensorflow_probe import run_probe
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.files import DEFAULT_SCENARIO

EMULATED_SCENARIO = "tutorial"


class MainJob(NamedTuple):
    """The scenario that is run, and what a reader is told of the choice; None where there is nothing to tell."""

    scenario: str
    note: str | None = None

    def noted(self, scenario: Scenario) -> Scenario:
        """The scenario, loaded, with the note before its own: every report shows it."""
        return scenario.model_copy(update={"notes": (self.note, *scenario.notes)}) if self.note else scenario


def choose() -> MainJob:
    """The job for this machine: on the CPU the input and the model share their cores, and there is little to overlap.

    Only where the driver lists a GPU TensorFlow is asked, in a process of its own, whether it uses one.
    """
    with closing(NvmlSampler.open()) as gpu:
        name = gpu.accelerator.name
    if name is not None and run_probe().gpus:
        return MainJob(DEFAULT_SCENARIO)
    reason = (
        "No NVIDIA GPU is found here"
        if name is None
        else f"{name} is here, but TensorFlow does not use it (`pipeline-bench doctor` says why)"
    )
    return MainJob(
        EMULATED_SCENARIO,
        f"{reason}: this is the tutorial's job on an emulated accelerator, as long busy with a step as the GPU of 2017 "
        f"was. `pipeline-bench compare {DEFAULT_SCENARIO}` trains on what there is.",
    )
