"""The edits of what the user's own functions do, where others change the calls; see `pipeline_bench.model.edits`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import WHOLE, EditOfCalls, MemoizableCall
from pipeline_bench.text import Line, units

if TYPE_CHECKING:
    from pipeline_bench.diagnosis.patching.patch import Patch
    from pipeline_bench.tfdata.plan import CallPlan

_KEEPS = "functools.lru_cache(maxsize=None)"


class ParseBatch(EditOfCalls):
    """Have a map's function parse a batch of serialized examples where it parsed one: `tf.io.parse_example`."""

    order = 0
    edit: Literal["parse-batch"] = "parse-batch"
    stage: int

    def apply(self, plan: CallPlan) -> None:
        plan.parse_batch(self.stage)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, "map_func")]

    def write(self, patch: Patch) -> None:
        patch.parse_batch(self.stage)

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"In the function of {stage(self.stage)} write `tf.io.parse_example` for `tf.io.parse_single_example`"


class Vectorize(EditOfCalls):
    """Have a map run its function, which takes a sample, on a whole batch at once: `tf.vectorized_map`."""

    order = 0
    edit: Literal["vectorize"] = "vectorize"
    stage: int

    def apply(self, plan: CallPlan) -> None:
        plan.vectorize(self.stage)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, "map_func")]

    def write(self, patch: Patch) -> None:
        patch.vectorize(self.stage)

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Run the function of {stage(self.stage)} on whole batches with `tf.vectorized_map`"


class DivideMap(EditOfCalls):
    """Have a map of its own, behind an earlier stage, run the first statements of a map's function.

    Only what does the same whatever the elements are stands between the two, such as shuffles, repeats and prefetches.
    """

    order = 2
    edit: Literal["divide-map"] = "divide-map"
    stage: int
    after: int
    statements: int
    """Of the function's body without its docstring; see `UserFunction.fixed_statements`."""
    within: Line = ""
    """See `UserFunction.fixed_within`."""
    up_to: Line = ""
    """See `UserFunction.fixed_up_to`."""

    def apply(self, plan: CallPlan) -> None:
        plan.divide(self.stage, self.after, self.statements, self.within)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, "map_func"), (self.after, "map")]

    def write(self, patch: Patch) -> None:
        patch.divide(self.stage, self.after, self.statements, self.within)

    def describe(self, stage: Callable[[int], str]) -> str:
        whole = f"the function of {stage(self.stage)}"
        divided = f"{self.within}, which {whole} calls," if self.within else whole
        return (
            f"Divide {divided} behind {self.up_to or units.count(self.statements, 'statement')}, before it "
            f"draws random numbers, and map the first part behind {stage(self.after)}"
        )


class KeepBatches(EditOfCalls):
    """Have a PyDataset keep each batch that its `__getitem__` made: `functools.lru_cache` on that method."""

    edit: Literal["keep-batches"] = "keep-batches"
    stage: int
    workers: int
    """The stage of its workers."""

    @property
    def kept_stage(self) -> int | None:
        return self.stage

    def apply(self, plan: CallPlan) -> None:
        raise PipelineBenchError("only the batches of a PyDataset are kept by its own method")

    def claims(self) -> list[tuple[int | str, str]]:  # a process would keep its own, and ends with the epoch
        return [(self.stage, WHOLE), (self.workers, "use_multiprocessing")]

    def write(self, patch: Patch) -> None:
        patch.decorate(self.stage, self.workers, _KEEPS)

    def describe(self, stage: Callable[[int], str]) -> str:
        return (
            f"Write `@{_KEEPS}` above {stage(self.stage)}; for a library's class write "
            f"`Class.__getitem__ = {_KEEPS}(Class.__getitem__)` before the call that makes it"
        )


class Memoize(EditOfCalls):
    """Have a call in the Python of a stage give again what it gave for the same arguments: `lru_cache`."""

    edit: Literal["memoize"] = "memoize"
    stage: int
    workers: int | None = None
    """The stage of a PyDataset's workers; no other input has any."""
    call: MemoizableCall

    @property
    def keeps(self) -> bool:
        return True

    def apply(self, plan: CallPlan) -> None:
        """Leave the calls of tf.data as they are: `kept_results.Memos` changes the user's functions."""

    def claims(self) -> list[tuple[int | str, str]]:
        if self.workers is None:  # with a cache, which keeps more, it would gain nothing
            return [("cache", "place")]
        return [(self.stage, "memoize"), (self.workers, "use_multiprocessing")]  # a process would keep its own

    def write(self, patch: Patch) -> None:
        patch.memoize(self.call, _KEEPS)

    def describe(self, stage: Callable[[int], str]) -> str:
        where = f"{self.call.lines} of {PurePath(self.call.file).name}"
        return f"Move `{self.call.text}` ({where}) into a function under `@{_KEEPS}`, and copy what that gives"
