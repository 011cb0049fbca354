"""One trial of a user's own pipeline: inspect it, take from it, or train on it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.events import Done, Fingerprinted, Inspected
from pipeline_bench.trial import Trial
from pipeline_bench.user_pipeline import Fingerprint, Inspection, Task, caches, consumers, rewriting, target
from pipeline_bench.user_pipeline import fingerprint as fingerprints
from pipeline_bench.user_pipeline.recording import Recipe, Recording
from pipeline_bench.worker import eager, inspecting
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.recorder import Recorder

_SCRATCH_PREFIX = "pipeline-bench-scratch-"


def run(trial: Trial, channel: Channel, recorder: Recorder) -> None:
    """Do what the trial's task says, and tell the parent.

    Raises:
        UserCodeError: the user's functions failed, or gave nothing that can be measured.
        PipelineBenchError: an edit does not fit.
    """
    task = Task.model_validate(trial.variant.source.options)
    recorder.phase("import")
    import tensorflow as tf

    channel.send(eager.set_up(trial.variant.runtime))
    recorder.phase("build")
    tf.random.set_seed(trial.variant.run.seed)
    with _scratch() as scratch:
        start_ns = time.perf_counter_ns()
        with Recording() as recording:
            made = target.call(task.target, "dataset")
        make_ns = float(time.perf_counter_ns() - start_ns)
        recipe = recording.recipe(made)
        if task.activity == "inspect":
            inspecting.inspect(recipe, make_ns, task.limit_s, scratch, channel, recorder)
        else:
            _measure(task, recipe, scratch, channel, recorder)
            if task.fingerprint:
                _fingerprint(task, recipe, scratch, channel, recorder)
        recorder.finish()
        channel.send(Done(at_ns=time.monotonic_ns()))


def _measure(task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder) -> None:
    if task.activity == "ceiling":
        dataset = rewriting.rebuild(recipe, task.edits, scratch)
    else:
        dataset = _filled(task, recipe, scratch, channel, recorder)
    if task.activity == "drain":
        recorder.phase("train")
        consumers.drain(dataset, recorder, task.warmup_s)
        return
    if task.model is None:
        raise PipelineBenchError(f"The activity {task.activity} needs a model, and the task has none.")
    step = consumers.step_of(target.call(task.model, "model"))
    recorder.has_wait = task.activity == "train"
    recorder.phase("train")
    consume = consumers.train if task.activity == "train" else consumers.ceiling
    consume(dataset, step, recorder, task.warmup_s)


def _filled(task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder) -> Any:
    """The pipeline with its edits and its caches filled.

    A pass that does not come to its end within half of the time limit: the caches that the edits inserted then keep
    the elements that they got in it, and give those again and again.
    """
    made = rewriting.rebuilt(recipe, task.edits, scratch)
    filling = caches.of(made.dataset)
    if not filling:
        return made.dataset
    recorder.phase("fill")
    passes = caches.fill(filling, task.limit_s / 2, recorder.still_at_it)
    if all(one.whole for one in passes):
        return made.dataset
    inserted = {id(cache) for cache in made.caches}
    short = [one for cache, one in zip(filling, passes, strict=True) if id(cache) in inserted and not one.whole]
    if not short:
        _note(channel, f"A pass over the pipeline's own cache did not end within {task.limit_s / 2:.0f} s: not filled.")
        return made.dataset
    kept = max(1, short[0].elements)
    _note(
        channel,
        f"A pass over the cache did not end within {task.limit_s / 2:.0f} s: measured on its first {kept} elements.",
    )
    recorder.phase("fill")
    part = scratch / "part"
    part.mkdir()
    made = rewriting.rebuilt(recipe, task.edits, part, cached_elements=kept)
    caches.fill(made.caches, task.limit_s / 2, recorder.still_at_it)
    return made.dataset


def _note(channel: Channel, text: str) -> None:
    channel.send(Inspected(inspection=Inspection(notes=(text,))))


def _fingerprint(task: Task, recipe: Recipe, scratch: Path, channel: Channel, recorder: Recorder) -> None:
    """Tell which samples arrive; why not, where that fails: the steps are none the worse for it."""
    recorder.phase("fingerprint")
    part = scratch / "fingerprint"
    part.mkdir()
    made = iter(range(len(fingerprints.SEEDS)))

    def make(seed: int) -> Any:
        own = part / str(next(made))
        own.mkdir()
        return rewriting.small(recipe, task.edits, own, seed)

    limit_s = min(fingerprints.MOST_S, task.limit_s)
    try:
        found = fingerprints.of(make, recipe.stages, limit_s, recorder.still_at_it)
    except PipelineBenchError as error:
        found = _none_because(error.message)
    except Exception as error:  # whatever it is, it must not cost the steps
        found = _none_because(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    channel.send(Fingerprinted(fingerprint=found))


def _none_because(reason: str) -> Fingerprint:
    return Fingerprint(complete=False, elements=0, samples=0, reason=reason)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for this trial's cache files; what trials left that were killed is removed too."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"{_SCRATCH_PREFIX}*"):
        owner = left.name.removeprefix(_SCRATCH_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)
