"""What every edit to a pipeline can do; `edits` has a class for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

from pipeline_bench.model.calls import CannotPatchError, Patch

if TYPE_CHECKING:
    from pipeline_bench.model.pipeline import Stage
    from pipeline_bench.tfdata.plan import Plan

WHOLE = "*"
"""The claim to all of a stage: no other edit of it fits."""


class EditOfCalls(BaseModel, ABC):
    """A change to a pipeline's calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: ClassVar[int] = 1
    """Of edits that are made together: what changes a call (0), what moves it (1), what stands behind others (2) and
    behind the sink (3 to 5)."""

    @abstractmethod
    def apply(self, plan: Plan) -> None:
        """Change the plan of a pipeline.

        Raises:
            PipelineBenchError: the edit does not fit the pipeline.
        """

    @abstractmethod
    def claims(self) -> list[tuple[int | str, str]]:
        """Return what no other edit may touch: stages or options, and what of them; see `WHOLE`."""

    def write(self, patch: Patch) -> None:
        """Write the edit as a change of the user's source.

        Raises:
            CannotPatchError: it is no such change.
        """
        raise CannotPatchError("")

    @abstractmethod
    def describe(self, stage: Callable[[int], str]) -> str:
        """Return what to write and where, as a sentence without its full stop; `stage` names one with its place."""

    def words(self, stages: Mapping[int, Stage], reason: str = "") -> str:
        """Return what to write and where, in one or two sentences.

        Args:
            stages: of the pipeline as it is written, by id.
            reason: why there is no patch, as the end of a sentence; empty where that needs no saying.
        """
        why = f" (no diff: {reason})" if reason else ""
        return f"{self.describe(lambda number: _named(stages.get(number)))}{why}."


def _named(stage: Stage | None) -> str:
    if stage is None:
        return "a stage that is not known"
    if stage.place is None:
        return f"`{stage.label}`"
    return f"`{stage.label}` ({PurePath(stage.place.file).name}:{stage.place.line})"
