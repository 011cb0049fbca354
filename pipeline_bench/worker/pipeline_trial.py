"""One trial of a user's own pipeline: inspect it, take from it, or train on it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.model.events import Fingerprinted, Inspected
from pipeline_bench.system.scratch import ScratchFolder
from pipeline_bench.text import line_of, units
from pipeline_bench.user_pipeline import INFINITE, Fingerprint, Inspection, Task, caches, consumers, loading, rewriting
from pipeline_bench.user_pipeline import fingerprint as fingerprints
from pipeline_bench.user_pipeline.recording import Recipe, Recording
from pipeline_bench.worker import eager, inspecting
from pipeline_bench.worker.engine import Engine
from pipeline_bench.worker.recorder import Channel, Recorder

_FIRST_FILL_SHARE = 0.3
"""Of the time for filling: what a whole pass may take. If it does not end in it, the rest is for a part of the pass."""
_KEPT_SHARE = 0.9
"""Of what the first pass gave in its time, so that the second one gives it surely."""


class PipelineEngine(Engine):
    """Records the user's pipeline, and does with it what the trial's task says."""

    def build(self) -> None:
        """Call the user's function, and record what it makes.

        Raises:
            UserCodeError: it failed, or gave nothing that can be measured.
        """
        self._task = _settled(Task.model_validate(self.variant.source.options))
        import tensorflow as tf

        self.channel.send(eager.set_up(self.variant.runtime))
        self.recorder.phase("build")
        tf.random.set_seed(self.variant.run.seed)
        self._folder = ScratchFolder()
        start_ns = time.perf_counter_ns()
        with Recording() as recording:
            made = loading.call(self._task.target, "dataset")
        self._make_ns = float(time.perf_counter_ns() - start_ns)
        self._recipe = recording.recipe(made)
        _see_that_it_is_eager(self._recipe)

    def train(self) -> None:
        """Inspect the pipeline, or take from it and tell which samples arrived.

        Raises:
            PipelineBenchError: an edit does not fit.
        """
        task, recipe, scratch = self._task, self._recipe, self._folder.path
        if task.activity == "inspect":
            inspecting.inspect(recipe, self._make_ns, task.limit_s, scratch, self.channel, self.recorder)
            return
        _measure(task, recipe, scratch, self.channel, self.recorder)
        if task.fingerprint:
            _fingerprint(task, recipe, scratch, self.channel, self.recorder)

    def stop(self) -> None:
        """Remove the temporary files."""
        if hasattr(self, "_folder"):
            self._folder.remove()


def _settled(task: Task) -> Task:
    """The task whose model is found even where the dataset's code changes the working folder."""
    if task.model is None or task.model.file is None:
        return task
    model = task.model.model_copy(update={"file": str(Path(task.model.file).absolute())})
    return task.model_copy(update={"model": model})


def _see_that_it_is_eager(recipe: Recipe) -> None:
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise UserCodeError(
            "Your code switched eager execution off (tf.compat.v1.disable_eager_execution or disable_v2_behavior), "
            "without which a dataset cannot be taken from.",
            "Leave it on where the dataset is made, or move what switches it off out of that file.",
        )
    if tf.is_symbolic_tensor(recipe.dataset(recipe.sink)._variant_tensor):
        raise UserCodeError(
            "The dataset belongs to a graph of its own, from which it cannot be taken.",
            "Make it outside of tf.Graph().as_default() and of any tf.function.",
        )


def _measure(task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder) -> None:
    if task.activity == "ceiling":
        dataset = rewriting.rebuild(recipe, task.edits, scratch)
    else:
        dataset = _filled(task, recipe, scratch, channel, recorder)
    if task.activity == "drain":
        recorder.train()
        consumers.drain(dataset, recorder, task.warmup_s, recorder.heartbeat)
        return
    if task.model is None:
        raise PipelineBenchError(f"The activity {task.activity} needs a model, and the task has none.")
    step = consumers.step_of(loading.call(task.model, "model"))
    recorder.train(waits=task.activity == "train")
    consume = consumers.train if task.activity == "train" else consumers.ceiling
    consume(dataset, step, recorder, task.warmup_s, recorder.heartbeat)


def _filled(task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder) -> Any:
    """The pipeline with its edits and its caches filled.

    A pass that does not come to its end within its part of the time limit: the caches that the edits inserted then keep
    the elements that they got in it, and give those again and again.
    """
    made = rewriting.rebuilt(recipe, task.edits, scratch)
    inserted = {id(cache) for cache in made.caches}
    # One of the user's behind an endless repeat is never full.
    filling = [cache for cache in caches.of(made.dataset) if id(cache) in inserted or _ends(cache)]
    if not filling:
        return made.dataset
    recorder.phase("fill")
    limit_s = task.limit_s * _FIRST_FILL_SHARE
    passes = caches.fill(filling, limit_s, recorder.heartbeat)
    if all(one.whole for one in passes):
        return made.dataset
    short = [one for cache, one in zip(filling, passes, strict=True) if id(cache) in inserted and not one.whole]
    if not short:
        _note(channel, f"A pass over the pipeline's own cache did not end within {units.seconds(limit_s)}: not filled.")
        return made.dataset
    return _partly_filled(task, recipe, scratch, channel, recorder, short[0].elements)


def _ends(dataset: Any) -> bool:
    return int(dataset.cardinality()) != INFINITE


def _partly_filled(
    task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder, elements: int
) -> Any:
    """The pipeline with its inserted caches holding their first elements only: about those that a short pass gave.

    Raises:
        PipelineBenchError: not even a few elements can be kept in the time.
    """
    first_s = task.limit_s * _FIRST_FILL_SHARE
    end_s = time.monotonic() + task.limit_s - first_s
    kept = max(1, round(elements * _KEPT_SHARE))
    while True:
        recorder.phase("fill")
        part = scratch / f"part-{kept}"
        part.mkdir(parents=True)
        made = rewriting.rebuilt(recipe, task.edits, part, cached_elements=kept)
        passes = caches.fill(made.caches, max(0.0, end_s - time.monotonic()), recorder.heartbeat)
        if all(one.whole for one in passes):
            within = units.seconds(first_s)
            _note(channel, f"A pass over the cache did not end within {within}: measured on its first {kept} elements.")
            return made.dataset
        if kept == 1 or time.monotonic() >= end_s:
            raise PipelineBenchError("The cache could not be filled in the time, not even with a part of the elements.")
        kept = max(1, kept // 2)


def _note(channel: Channel, text: str) -> None:
    channel.send(Inspected(inspection=Inspection(notes=(text,))))


def _fingerprint(task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder) -> None:
    """Tell which samples arrive; why not, where that fails: the steps are none the worse for it."""
    recorder.phase("fingerprint")
    if recorder.step_s > task.limit_s:
        reason = f"an element takes {units.seconds(recorder.step_s)}, which leaves no time to look at its samples"
        channel.send(Fingerprinted(fingerprint=_none_because(reason)))
        return
    part = scratch / "fingerprint"
    part.mkdir(parents=True)  # the user's code may have cleared the folder for temporary files
    made = itertools.count()

    def make(seed: int) -> Any:
        own = part / str(next(made))
        own.mkdir()
        return rewriting.small(recipe, task.edits, own, seed)

    limit_s = min(fingerprints.MOST_S, task.limit_s)
    try:
        found = fingerprints.of(make, recipe.stages, limit_s, recorder.heartbeat)
    except PipelineBenchError as error:
        found = _none_because(error.message)
    except Exception as error:  # whatever it is, it must not cost the steps
        found = _none_because(line_of(error))
    channel.send(Fingerprinted(fingerprint=found))


def _none_because(reason: str) -> Fingerprint:
    return Fingerprint(complete=False, elements=0, samples=0, reason=reason)
