"""planted_device: a small network behind a wait of known length, which a loop of the graph can build again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pipeline_bench.models.mlp import Mlp, MlpOptions
from pipeline_bench.planted.sources import held
from pipeline_bench.sources import Batch


class PlantedDeviceOptions(MlpOptions):
    """How long a step takes."""

    step_ms: Annotated[float, Field(ge=0.2, le=10_000, description="waited before each step's training")] = 10.0


class PlantedDevice(Mlp):
    """Waits once the batch is there, then trains a network that costs next to nothing."""

    name = "planted_device"
    summary = "mlp, behind a wait"
    Options = PlantedDeviceOptions
    listed = False

    def loss(self, batch: Batch) -> Any:
        waited = held([tensor for tensor in batch if tensor is not None], 1000 * self.options.step_ms, "planted_device")
        return super().loss(Batch(*waited))
