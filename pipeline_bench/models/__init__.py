"""Models are what is trained. One file, one class, one name; open through ``pipeline_bench.models``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from pipeline_bench.plugins import Plugin
from pipeline_bench.sources import Batch


@dataclass(frozen=True)
class TrainingGraph:
    """The tensors and ops of a model, built into the default graph."""

    train: Any
    """The op that trains one step."""
    loss: Any
    """The loss of the step, a scalar."""
    accuracy: Any
    """The share of right answers on the evaluation batch, 0 to 1, a scalar."""


class Model(Plugin):
    """Trains on a batch. Its initial weights depend on the seed alone, so every backend starts from the same."""

    @abstractmethod
    def build(self, batch: Batch, evaluation: Batch) -> TrainingGraph:
        """Build the model once for training and, with the same variables, once for evaluation."""
