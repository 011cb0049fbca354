"""The edits that have the workers of a tf.data service run a pipeline; see `pipeline_bench.model.edits`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pipeline_bench.model.calls import EditOfCalls, value_text
from pipeline_bench.text import Text

if TYPE_CHECKING:
    from pipeline_bench.diagnosis.patching.patch import Patch
    from pipeline_bench.tfdata.plan import CallPlan


class OffloadToService(EditOfCalls):
    """Have the whole pipeline run by a tf.data service worker in a process of its own on this machine."""

    order = 5
    edit: Literal["offload-to-service"] = "offload-to-service"
    workers: Literal[1] = 1
    """Several would divide the source among them as they go, so that the order changes."""

    def apply(self, plan: CallPlan) -> None:
        plan.is_offloaded = True

    def claims(self) -> list[tuple[int | str, str]]:  # as of `DistributeToService`
        return [("sink", self.edit), ("cache", "place")]

    def describe(self, stage: Callable[[int], str]) -> str:
        # Without a policy every worker reads everything; with one worker that is each sample once.
        return (
            "Start a dispatcher and 1 tf.data service worker, and "
            f"end the pipeline with `{_distribution('OFF', 'dispatcher.target')}`"
        )


class DistributeToService(EditOfCalls):
    """Have the workers of a tf.data service that is there run a stage and all in front of it."""

    order = 2
    edit: Literal["distribute-to-service"] = "distribute-to-service"
    stage: int
    dispatcher: Text
    """``grpc://HOST:PORT``."""
    processing_mode: Literal["OFF", "DYNAMIC"]
    """A `ShardingPolicy`: ``OFF`` has each worker give everything, ``DYNAMIC`` each sample by whoever is free."""

    def apply(self, plan: CallPlan) -> None:
        plan.distribute(self.stage, self.dispatcher, self.processing_mode)

    def claims(self) -> list[tuple[int | str, str]]:  # a cache in front of it would be filled anew by each job
        return [(self.stage, "service"), ("sink", "offload-to-service"), ("cache", "place")]

    def write(self, patch: Patch) -> None:
        patch.insert_after(self.stage, self._call())

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Write `{self._call()}` behind {stage(self.stage)}"

    def _call(self) -> str:
        return _distribution(self.processing_mode, value_text("service", self.dispatcher))


def _distribution(policy: str, service: str) -> str:
    """Return the call that has a tf.data service run what is in front of it."""
    mode = f"processing_mode=tf.data.experimental.service.ShardingPolicy.{policy}"
    return f".apply(tf.data.experimental.service.distribute({mode}, service={service}))"
