"""One trial of a user's own pipeline: inspect it, take from it, or train on it."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_bench import user_code
from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.inspection import keras_stages, pipeline_benchmark, pipeline_stages
from pipeline_bench.model.calls import KEEPING
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.events import TRACE, TRAIN, Fingerprinted, Inspected
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import INFINITE, Inspection, ScriptTraining
from pipeline_bench.model.service_edits import DistributeToService, OffloadToService
from pipeline_bench.model.task import MODEL_STEP, REBUILDING, Task
from pipeline_bench.script import loading, training_data
from pipeline_bench.script.loop_step import LoopStep
from pipeline_bench.text import line_of, units
from pipeline_bench.tfdata import dataset_graph, rebuild, service, service_cluster, throughput, worker_places
from pipeline_bench.tfdata import fingerprint as fingerprints
from pipeline_bench.tfdata.keras_input import KerasInput
from pipeline_bench.tfdata.record import Recording
from pipeline_bench.tfdata.static_shapes import traceable_spec
from pipeline_bench.user_code import legacy_keras
from pipeline_bench.user_code.kept_results import Memos, stand_for_all
from pipeline_bench.user_code.source_loops import SourceLoop
from pipeline_bench.worker import consumers, kept_memory, model_ceiling, runtime
from pipeline_bench.worker.engine import Engine

_FIRST_FILL_SHARE = 0.3
"""Of the time for filling: what a whole pass may take. If it does not end in it, the rest is for a part of the pass."""
_KEPT_SHARE = 0.9
"""Of what the first pass gave in its time, so that the second one gives it surely."""
_NOT_ALL = "Not all batches were made within {}: measured on the first ones."
_NOT_WARM = "Not all batches were made within {}: where the steps come to the others, they are of a first epoch."
_LONGEST_SCRIPT_S = 3600.0
"""A script that does not train within an hour has hung: from then on the stall timeout counts."""


class PipelineEngine(Engine):
    """Records the user's pipeline, and does with it what the trial's task asks for."""

    _trained: ScriptTraining | None = None
    _within: SourceLoop | None = None
    """The loop of the script's that goes round once for each pass over what is measured."""
    _model: Any = None
    _does: training_data.Does = "train"
    _given: Mapping[str, Any] = MappingProxyType({})
    _told = Inspection()
    """What a measured trial has sent of its pipeline so far."""
    _memos: Memos
    """Of a tf.data pipeline; a `KerasInput` has its own."""
    _read: KerasInput | None = None
    """What a `fit` was given that is no tf.data pipeline; the recipe is then none."""

    @cached_property
    def _task(self) -> Task:
        """What is asked, with a model that is found even where the dataset's code changes the working folder."""
        task = Task.model_validate(self.variant.source.options)
        if task.model is not None and task.model.file is not None:
            model = task.model.model_copy(update={"file": str(Path(task.model.file).absolute())})
            task = task.model_copy(update={"model": model})
        return task

    @property
    def runs_script(self) -> bool:
        return self._task.target.is_script

    def start_processes(self) -> None:
        """Start the worker that an edit has run the pipeline, before the user's code is in use here."""
        for edit in self._task.edits:
            if isinstance(edit, OffloadToService):
                # No import for it: the user's script may first set what TensorFlow reads when it is imported.
                worker = service.start_worker(can_fork="tensorflow" in sys.modules)
                self.recorder.guard(worker.why_dead, worker.why_silent)

    def build(self) -> None:
        """Call the user's function, and record what it makes.

        Raises:
            UserCodeError: it failed, or gave nothing that can be measured.
        """
        self.channel.send(runtime.set_up_eagerly(self.variant.runtime))
        self.recorder.phase("build")
        for edit in self._task.edits:
            if isinstance(edit, DistributeToService):
                watch = service_cluster.Watch(edit.dispatcher)
                self.recorder.guard(watch.why_dead, watch.why_silent)
        start_ns = time.perf_counter_ns()
        user_code.seed(self.variant.run.seed)
        with Recording() as recording, worker_places.recorded():
            made = self._made(recording)
        self._make_ns = float(time.perf_counter_ns() - start_ns)
        if self._task.activity == "inspect" and self._trained is not None and self._trained.step:
            self._trained = self._tried(self._trained)
        kind = training_data.kind(made)
        if kind in ("PyDataset", "generator") or (kind == "arrays" and self._trained is not None):
            self._read = KerasInput(kind, made, self._given, legacy_keras.is_model(self._model))
            return
        training_data.require_eager()
        self._memos = Memos()
        self._recipe = recording.recipe(made, self._within)

    def _made(self, recording: Recording) -> Any:
        """Return what the user's function returned, or what the training of their script was about to use."""
        target = self._task.target
        if not target.is_script:
            return loading.call(target, "dataset")
        training = loading.reach_training(target, self._waiting(), again=self._task.activity != "inspect")
        self._trained, data = training_data.choose(training, target.dataset, recording.place, recording.is_made_in)
        self._model = training.model if self._trained.model else None
        self._within = training.within if data is training.data and training.epochs in (None, 1) else None
        self._does, self._given = training.does, training.given
        return data

    def _tried(self, trained: ScriptTraining) -> ScriptTraining:
        """Return what is trained, without a loop's step that fails or does more: the pipeline is then read."""
        step = self._watched_step(consumers.step_of(self._model), traces=False)
        try:
            step(self._model.batch)
        except UserCodeError:
            return trained.model_copy(update={"model": False, "step": ""})
        return trained

    def _waiting(self) -> Callable[[], None]:
        """Return what has the watches wait for a script, which may take its time until it trains."""
        end_s = time.monotonic() + _LONGEST_SCRIPT_S
        return lambda: self.recorder.heartbeat() if time.monotonic() < end_s else None

    def train(self) -> None:
        """Inspect the pipeline, or take from it and send which samples arrived.

        Raises:
            PipelineBenchError: an edit does not fit.
        """
        if self._task.activity == "inspect":
            self._inspect()
            return
        self._measure()
        if self._read is not None and (took_ns := self._read.batch_ns(*self.recorder.span_ns)) is not None:
            self._tell(beside_model_ns=took_ns)
        if self._task.fingerprint:
            found = self._fingerprint(self._task.edits)
            if self._task.fingerprint_as_written:
                found = found.model_copy(update={"as_written": self._fingerprint(())})
            self.channel.send(Fingerprinted(fingerprint=found))

    def _folder(self, name: str) -> Path:
        """Return a folder for files; the user's code may have cleared the folder for temporary files."""
        (folder := self.scratch.path / name).mkdir(parents=True, exist_ok=True)
        return folder

    def _send(self, inspection: Inspection) -> None:
        self.channel.send(Inspected(inspection=inspection))

    def _send_first(self, inspection: Inspection) -> None:
        """Send what is known before anything is measured, and refuse what is no model before the stages take time."""
        self._send(inspection)
        if (model := self._task.model) is not None:
            consumers.require_model(lambda: loading.call(model, "model"))

    def _tell(self, note: str | None = None, **found: object) -> None:
        """Send what a measured trial found of its pipeline, with what it has sent before."""
        notes = self._told.notes if note is None else (*self._told.notes, note)
        self._told = self._told.model_copy(update={**found, "notes": notes})
        self._send(self._told)

    def _inspect(self) -> None:
        """Send what is found as it is found: what is sent last holds everything."""
        if self._read is not None:
            self._inspect_read(self._read)
            return
        self.recorder.phase("inspect")
        looked = self._with_training(pipeline_benchmark.described(self._recipe, self._make_ns, self._folder("once")))
        self._send_first(looked)
        for found in pipeline_stages.inspect(
            self._recipe,
            looked,
            self._task.limit_s,
            self._folder,
            self.recorder.heartbeat,
            lambda: self.recorder.phase("inspect"),
        ):
            self._send(found)

    def _inspect_read(self, read: KerasInput) -> None:
        """Inspect what a `fit` was given that is no tf.data pipeline."""
        self.recorder.phase("inspect")
        inspection = self._with_training(read.described(self._make_ns))
        self._send_first(inspection)
        for found in keras_stages.inspect(read, inspection, self._task.limit_s, self.recorder.heartbeat):
            self._send(found)

    def _with_training(self, inspection: Inspection) -> Inspection:
        """Return the inspection with what is known of the script."""
        if self._trained is None:
            return inspection
        notes = (*training_data.notes(self._trained, self._make_ns, self._task.target.text), *inspection.notes)
        return inspection.model_copy(update={"training": self._trained, "notes": notes})

    def _measure(self) -> None:
        task, recorder = self._task, self.recorder
        is_ceiling = task.activity == "ceiling"
        if self._read is not None:
            dataset, held = self._kept(self._read), self._read.held_batches
        else:
            dataset, held = self._rebuilt().dataset if is_ceiling else self._filled(), 0
        if task.activity == "drain":
            recorder.train()
            self._take(partial(consumers.drain, dataset, warmup_s=task.warmup_s, may_end=self._read is not None))
            return
        if task.model is None:
            raise PipelineBenchError(f"The activity {task.activity} needs a model, and the task has none.")
        model = self._fitted() if task.model.is_script else loading.call(task.model, "model")
        by_fit = not task.model.is_script or bool(self._given)  # a loop with `train_on_batch` hands over batches
        spec = traceable_spec(dataset) if by_fit and consumers.is_traced(model, self._does) else None
        step = self._watched_step(consumers.step_of(model, self._does, spec), traces=True)
        recorder.train(waits=not is_ceiling)
        if is_ceiling:
            promised = spec if self._read is None else None
            other = model_ceiling.other_step(model, self._does, promised) if self.trial.repeat == 0 else None
            for found in model_ceiling.run(dataset, step, recorder, task.warmup_s, recorder.heartbeat, other):
                self.channel.send(found)
        else:
            self._take(partial(consumers.train, dataset, step, warmup_s=task.warmup_s, held=held, spec=spec))
        if isinstance(model, LoopStep) and model.traced_anew:
            self._tell(traced_anew=model.traced_anew, traced_anew_s=model.traced_anew_s)

    def _take(self, steps: Callable[..., int | None]) -> None:
        """Take the trial's steps, and in the first two of the pipeline as written some more; see `kept_memory`."""
        by_dataset = self._read is None or legacy_keras.backend_of(self._model) == "tensorflow"  # as `fit` reads it
        keeps, looks = self.trial.repeat == 0, by_dataset and not self._task.edits and self.trial.repeat <= 1
        limit_s = self._task.limit_s * looks
        if (ended := kept_memory.run(steps, self.recorder, self.channel.send, limit_s, keeps=keeps)) is not None:
            names = ("element", "elements") if self._task.activity == "drain" else ("batch", "batches")
            self._tell(f"The input ended after {units.count(ended, *names)}: those are all steps.")

    def _watched_step(self, step: consumers.StepFunction, *, traces: bool) -> consumers.StepFunction:
        """Return the step, which the watch then knows from a wait for a batch; the first is a phase if it traces."""
        firsts = iter([traces])

        def watched(batch: Any) -> float:
            if is_first := next(firsts, False):
                self.recorder.phase(TRACE)
            self.recorder.doing(MODEL_STEP)
            try:
                return step(batch)
            finally:
                self.recorder.doing()
                if is_first:
                    self.recorder.phase(TRAIN)

        return watched

    def _fitted(self) -> Any:
        """Return the model that the script trains.

        Raises:
            UserCodeError: it trains another way than when it was inspected.
        """
        if self._model is None:
            raise UserCodeError(
                f"{self._task.target.text} trained a model when it was looked at, and now does not",
                "does what it trains depend on chance, the time, or files that it writes itself?",
            )
        return self._model

    def _rebuilt(self) -> rebuild.Rebuilt:
        is_ceiling = self._task.activity == "ceiling"  # it takes one batch, and any will do
        left_out = [*KEEPING] * self._task.cold + ["shuffle"] * is_ceiling
        self.recorder.doing(REBUILDING)
        made = self._made_again(self.scratch.path, without=left_out)
        self.recorder.doing()
        return made

    def _made_again(self, folder: Path, **how: Any) -> rebuild.Rebuilt:
        return rebuild.rebuild(self._recipe, self._task.edits, folder, ahead_elements=self._task.ahead_elements, **how)

    def _kept(self, read: KerasInput) -> Any:
        """Return the dataset of a PyDataset, with what edits keep of it, or its own class does, made first."""
        edits, limit_s, keeps = self._task.edits, self._task.limit_s, any(edit.keeps for edit in self._task.edits)
        if self._task.warm or keeps:
            self.recorder.phase("fill")
            if not read.keep(edits, limit_s, self.recorder.heartbeat):
                self._tell((_NOT_ALL if keeps and stand_for_all(edits) else _NOT_WARM).format(units.seconds(limit_s)))
            elif any(edit.kept_stage is not None for edit in edits):
                self._tell(cached_elements=read.data.num_batches)
        return read.dataset(edits, timed=self._task.activity == "train" and not edits)

    def _filled(self) -> Any:
        """Return the pipeline with its edits, and what later epochs have of the first one: its caches filled.

        A pass that does not come to its end within its part of the time limit: the caches that the edits inserted then
        keep the elements that they got in it, and give those again and again.
        """
        task, recorder = self._task, self.recorder
        self._memos.use(task.edits)
        made = self._rebuilt()
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
            return self._made_again(self._folder("cold"), without=[*KEEPING]).dataset
        return made.dataset

    def _fill_memos(self) -> None:
        """Make a pass over the pipeline, for the calls that the edits memoize."""
        self.recorder.phase("fill")
        once = self._made_again(self._folder("memos"), without=("repeat", "shuffle"))
        limit_s = self._task.limit_s * _FIRST_FILL_SHARE
        (made,) = throughput.fill([once.dataset], limit_s, self.recorder.heartbeat)
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
            self.recorder.phase("fill")
            made = self._made_again(self._folder(f"part-{kept}"), cached_elements=kept)
            passes = throughput.fill(made.caches, end_s - time.monotonic(), self.recorder.heartbeat)
            if all(one.complete for one in passes):
                within = units.seconds(first_s)
                self._tell(f"A pass over the cache did not end within {within}: measured on its first {kept} elements.")
                return made.dataset
            if kept == 1 or time.monotonic() >= end_s:
                raise PipelineBenchError(
                    "The cache could not be filled in the time, not even with a part of the elements."
                )
            kept = max(1, kept // 2)

    def _fingerprint(self, edits: Sequence[Edit]) -> Fingerprint:
        """Return which samples arrive with the edits, or why that is not known; the steps count all the same."""
        task, recorder = self._task, self.recorder
        recorder.phase("fingerprint")
        numbers = itertools.count()

        def make(seed: int) -> Any:
            if self._read is not None:
                return self._read.subsampled(edits, seed, task.fingerprint_batches)
            self._memos.use(edits, afresh=True)
            folder = self._folder(f"fingerprint-{len(edits)}-{next(numbers)}")
            return rebuild.subsampled(self._recipe, edits, folder, seed, task.ahead_elements)

        if recorder.step_s > task.limit_s:
            took = units.seconds(recorder.step_s)
            reason = f"an element takes {took}, which leaves no time to look at its samples"
        else:
            try:
                through = any(isinstance(edit, DistributeToService) for edit in edits)  # each pass begins in 1 to 2 s
                limit_s = task.limit_s if through else fingerprints.most_s(task.limit_s)
                stages = () if self._read is not None else self._recipe.stages
                return fingerprints.of(make, stages, limit_s, recorder.heartbeat)
            except PipelineBenchError as error:
                reason = error.message
            except Exception as error:  # whatever it is, it must not cost the steps
                reason = line_of(error)
        return Fingerprint(complete=False, elements=0, samples=0, reason=reason)
