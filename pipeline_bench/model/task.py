"""What a child is to do with a user's own pipeline."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline_bench.model import Data
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.service_edits import DistributeToService, OffloadToService

KIND = "your_pipeline"
"""The kind of the source component of a variant whose input is the user's own pipeline."""
MODEL_STEP, REBUILDING = "model step", "rebuilding"
"""What a trial's watch reports that it does: a step of the model, or the pipeline's calls again, with the edits."""
FINGERPRINT_BATCHES = 16

Activity = Literal["inspect", "drain", "train", "ceiling"]


class Task(Data):
    """What a child is to do with a user's pipeline. It is the options of a variant's source, see `KIND`.

    inspect: send the stages, then measure each alone. drain: take elements as fast as they come, with no model.
    train: the user's model steps on them. ceiling: the model steps on one batch that stays on the device.
    A "step" of a drained pipeline is one element of the sink, all of it input wait.
    """

    target: Target
    model: Target | None = None
    activity: Activity
    batch_size: Annotated[int, Field(ge=1)] = 1
    """The samples of one element of the sink, as the inspection found, for the rates; 1 where they are no batches."""
    edits: tuple[Edit, ...] = ()
    warmup_s: float = 0.5
    """Steps that begin within it are not shipped; a cache that an edit inserted is filled before it begins."""
    fingerprint: bool = False
    """After the steps, send which samples arrive, on a small part of the input; see `Fingerprint`."""
    fingerprint_as_written: bool = False
    """Send those of the pipeline as written along: of the same run of the user's code, whose runs may differ."""
    fingerprint_batches: int = FINGERPRINT_BATCHES  # of what is no tf.data pipeline, the first ones
    cold: bool = False
    """Leave the pipeline's own caches out, which is what a first epoch costs; where they cannot be filled in time."""
    warm: bool = False
    """Make a pass over a PyDataset before the steps, for its class keeps what it makes."""
    ahead_elements: int | None = None
    """The most that a shuffle holds, or a skip leaves out; None: as written. The input costs the same."""
    limit_s: float = 20.0
    """The most time for inspecting, for filling a cache, or for a fingerprint; what was found by then is sent."""

    @property
    def reuses_process(self) -> bool:
        """Whether its trial may run in the process of another one of the same pipeline and model, and hand that on.

        Not an inspection, which leaves more behind than steps do. A tf.data service starts processes of its own.
        """
        of_service = any(isinstance(edit, OffloadToService | DistributeToService) for edit in self.edits)
        return self.activity != "inspect" and not of_service

    def may_follow(self, other: Task) -> bool:
        """Return whether its trial may run in the process of another task's trial."""
        is_same = (self.target, self.model) == (other.target, other.model)
        return is_same and self.reuses_process and other.reuses_process
