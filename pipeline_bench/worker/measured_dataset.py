"""The pipeline that a trial measures: made again with its edits, and filled with what later epochs have of the first.

That is what its caches hold, and what calls gave that are kept.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Protocol

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.pipeline import INFINITE
from pipeline_bench.model.task import REBUILDING, Task
from pipeline_bench.text import units
from pipeline_bench.tfdata import dataset_graph, rebuild, throughput
from pipeline_bench.tfdata.keras_input import KerasInput
from pipeline_bench.tfdata.recipe import Recipe
from pipeline_bench.user_code.kept_results import Memos, stand_for_all
from pipeline_bench.worker.recorder import Recorder

_FIRST_FILL_SHARE = 0.3
"""Of the time for filling: what a whole pass may take. If it does not end in it, the rest is for a part of the pass."""
_KEPT_SHARE = 0.9
"""Of what the first pass gave in its time, so that the second one gives it surely."""
_NOT_ALL = "Not all batches were made within {}: measured on the first ones."
_NOT_WARM = "Not all batches were made within {}: where the steps come to the others, they are of a first epoch."


class _Tell(Protocol):
    """Sends what a trial found of its pipeline: a note, or fields of the `Inspection`."""

    def __call__(self, note: str | None = None, **found: object) -> None:
        """Send it."""


def of_fit(read: KerasInput, task: Task, recorder: Recorder, tell: _Tell) -> Any:
    """Return the dataset of what a `fit` was given, with what edits keep of it, or its own class does, made first."""
    keeps = any(edit.keeps for edit in task.edits)
    if task.warm or keeps:
        recorder.phase("fill")
        if not read.keep(task.edits, task.limit_s, recorder.heartbeat):
            stand_in = keeps and stand_for_all(task.edits)
            tell((_NOT_ALL if stand_in else _NOT_WARM).format(units.seconds(task.limit_s)))
        elif any(edit.kept_stage is not None for edit in task.edits):
            tell(cached_elements=read.data.num_batches)
    return read.dataset(task.edits, timed=task.activity == "train" and not task.edits)


class MeasuredDataset:
    """Makes the pipeline of one trial."""

    def __init__(self, recipe: Recipe, task: Task, memos: Memos, folder: Path, recorder: Recorder, tell: _Tell) -> None:
        """Hold what it is made of.

        Args:
            recipe: how the user made it.
            task: the trial's.
            memos: of the calls that its edits memoize.
            folder: for the files of its caches, in folders below.
            recorder: hears of the phases.
            tell: takes what is found.
        """
        self._recipe, self._task, self._memos, self._folder = recipe, task, memos, folder
        self._recorder, self._tell = recorder, tell

    def rebuilt(self) -> rebuild.Rebuilt:
        """Return the pipeline with its edits; for a ceiling, which takes any batch, without what fills a buffer."""
        is_ceiling = self._task.activity == "ceiling"
        left_out = [*KEEPING] * self._task.cold + ["shuffle"] * is_ceiling
        self._recorder.doing(REBUILDING)
        made = self._made_again("measured", without=left_out)
        self._recorder.doing()
        return made

    def _made_again(self, name: str, **how: Any) -> rebuild.Rebuilt:
        """Return the pipeline made again as `rebuild` does, with files in a folder of this name."""
        task, folder = self._task, self._folder / name
        return rebuild.rebuild(self._recipe, task.edits, folder, ahead_elements=task.ahead_elements, **how)

    def filled(self) -> Any:
        """Return the pipeline with its edits, and what later epochs have of the first one: its caches filled.

        A pass that does not come to its end within its part of the time limit: the caches that the edits inserted then
        keep the elements that they got in it, and give those again and again.
        """
        task, recorder = self._task, self._recorder
        self._memos.use(task.edits)
        made = self.rebuilt()
        if any(edit.keeps and edit.kept_stage is None for edit in task.edits):
            self._fill_memos()
        inserted = {id(cache) for cache in made.caches}
        # One of the user's behind an endless repeat, or that a take or a zip leaves early, is never full.
        left, full = dataset_graph.left_early(made.dataset), {id(cache) for cache in made.filled}
        filling = [
            cache
            for cache in dataset_graph.caches_in(made.dataset)
            if id(cache) in inserted
            or not (left.get(id(cache)) or id(cache) in full or int(cache.cardinality()) == INFINITE)
        ]
        if not filling:
            return made.dataset
        recorder.phase("fill")
        limit_s = task.limit_s * _FIRST_FILL_SHARE
        passes = throughput.fill(filling, limit_s, recorder.heartbeat)
        for cache, one in zip(filling, passes, strict=True):
            if one.complete and id(cache) in inserted:
                self._tell(cached_elements=math.ceil(one.elements / max(edit.kept_parts for edit in task.edits)))
        short = [(id(cache) in inserted, one) for cache, one in zip(filling, passes, strict=True) if not one.complete]
        for is_inserted, one in short:
            if is_inserted:
                return self._partly_filled(one.elements, limit_s)
        if short:
            self._tell(
                f"A pass over the pipeline's own cache did not end within {units.seconds(limit_s)}: what is measured "
                "is a first epoch.",
                cold=True,
            )
            return self._made_again("cold", without=[*KEEPING]).dataset
        return made.dataset

    def _fill_memos(self) -> None:
        """Make a pass over the pipeline, for the calls that the edits memoize."""
        self._recorder.phase("fill")
        once = self._made_again("memos", without=("repeat", "shuffle"))
        limit_s = self._task.limit_s * _FIRST_FILL_SHARE
        (made,) = throughput.fill([once.dataset], limit_s, self._recorder.heartbeat)
        if made.complete:
            self._tell(cached_elements=made.elements)
        else:
            self._memos.stand_in()
            self._tell((_NOT_ALL if stand_for_all(self._task.edits) else _NOT_WARM).format(units.seconds(limit_s)))

    def _partly_filled(self, elements: int, first_s: float) -> Any:
        """Return the pipeline with only so many elements in its inserted caches as a short pass gave.

        Raises:
            PipelineBenchError: not even a few elements can be kept in the time.
        """
        end_s = time.monotonic() + self._task.limit_s - first_s
        kept = max(1, round(elements * _KEPT_SHARE))
        while True:
            self._recorder.phase("fill")
            made = self._made_again(f"part-{kept}", cached_elements=kept)
            passes = throughput.fill(made.caches, end_s - time.monotonic(), self._recorder.heartbeat)
            if all(one.complete for one in passes):
                within = units.seconds(first_s)
                self._tell(f"A pass over the cache did not end within {within}: measured on its first {kept} elements.")
                return made.dataset
            if kept == 1 or time.monotonic() >= end_s:
                raise PipelineBenchError(
                    "The cache could not be filled in the time, not even with a part of the elements."
                )
            kept = max(1, kept // 2)
