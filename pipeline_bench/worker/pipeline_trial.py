"""One trial of a user's own pipeline: inspect it, take from it, or train on it."""

from __future__ import annotations

import gc
import itertools
import shutil
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
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.events import TRACE, TRAIN, Device, Fingerprinted, Inspected
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Inspection, ScriptTraining, Target
from pipeline_bench.model.service_edits import DistributeToService, OffloadToService
from pipeline_bench.model.task import MODEL_STEP, Task
from pipeline_bench.model.trial import FurtherTrial
from pipeline_bench.script import loading, training_data
from pipeline_bench.script.loop_step import LoopStep
from pipeline_bench.system import freed_memory
from pipeline_bench.text import line_of, units
from pipeline_bench.tfdata import fingerprint as fingerprints
from pipeline_bench.tfdata import rebuild, service, service_cluster, worker_places
from pipeline_bench.tfdata.keras_input import KerasInput
from pipeline_bench.tfdata.record import Recording
from pipeline_bench.tfdata.static_shapes import traceable_spec
from pipeline_bench.user_code import legacy_keras
from pipeline_bench.user_code.kept_results import Memos
from pipeline_bench.user_code.source_loops import SourceLoop
from pipeline_bench.worker import consumers, kept_memory, measured_dataset, model_ceiling, runtime
from pipeline_bench.worker.engine import Engine
from pipeline_bench.worker.measured_dataset import MeasuredDataset

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
    _is_first = True
    """Whether it is the first trial of its process."""
    _device: Device
    _steps: dict[str, consumers.StepFunction]
    """The model's, by what the dataset promises of its elements."""

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

    @property
    def reusable(self) -> bool:
        """Whether a further trial would run here as in a process of its own: see `Engine.reusable`.

        A step that is traced anew for a shape is not for the next batch of it; and malloc keeps what it was told to.
        """
        can_begin_again = self._read is None or self._read.reusable
        is_as_new = not self._told.traced_anew and not freed_memory.is_kept()
        return self._task.reuses_process and can_begin_again and is_as_new

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
        self._device = runtime.set_up_eagerly(self.variant.runtime)
        self.channel.send(self._device)
        self.recorder.phase("build")
        for edit in self._task.edits:
            if isinstance(edit, DistributeToService):
                watch = service_cluster.Watch(edit.dispatcher)
                self.recorder.guard(watch.why_dead, watch.why_silent)
        start_ns = time.perf_counter_ns()
        user_code.seed(self.variant.run.seed)
        with Recording() as recording, worker_places.recorded():
            made = self._made(recording)
        self._make_ns, self._steps = float(time.perf_counter_ns() - start_ns), {}
        if self._task.activity == "inspect" and self._trained is not None and self._trained.step:
            self._trained = self._tried(self._trained)
        kind = training_data.kind(made)
        if kind in ("PyDataset", "generator") or (kind == "arrays" and self._trained is not None):
            self._read = KerasInput(kind, made, self._given, legacy_keras.is_model(self._model))
            return
        training_data.require_eager()
        self._memos = Memos()
        self._recipe = recording.recipe(made, self._within)

    def begin(self, further: FurtherTrial) -> None:
        """Take on a further trial of the pipeline and the model that were made."""
        super().begin(further)
        self.recorder.phase("build")
        del self._task
        self._is_first, self._told = False, Inspection()
        if self._read is None:
            self._memos.use(())
            self._memos = Memos()
        else:
            self._read.begin_again()
        gc.collect()  # what the trial before has left: its iterators have threads, and its caches memory
        freed_memory.give_back()
        shutil.rmtree(self._files, ignore_errors=True)
        user_code.seed(self.variant.run.seed)
        self.channel.send(self._device)

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

    @property
    def _files(self) -> Path:
        """The folder for what this program writes in a trial."""
        return self.scratch.path / "trial"

    def _folder(self, name: str) -> Path:
        """Return a folder for files; the user's code may have cleared the folder for temporary files."""
        (folder := self._files / name).mkdir(parents=True, exist_ok=True)
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
            dataset, held = measured_dataset.of_fit(self._read, task, recorder, self._tell), self._read.held_batches
        else:
            making = MeasuredDataset(self._recipe, task, self._memos, self._files, recorder, self._tell)
            dataset, held = making.rebuilt().dataset if is_ceiling else making.filled(), 0
        warmup_s = task.warmup_s
        if self._is_first and self.reusable:  # what only the first steps of a process take is to be in no trial
            warmup_s += self.variant.run.time_s or 0.0
        if task.activity == "drain":
            recorder.train()
            self._take(partial(consumers.drain, dataset, warmup_s=warmup_s, may_end=self._read is not None))
            return
        if task.model is None:
            raise PipelineBenchError(f"The activity {task.activity} needs a model, and the task has none.")
        model = self._trained_model(task.model)
        by_fit = not task.model.is_script or bool(self._given)  # a loop with `train_on_batch` hands over batches
        spec = traceable_spec(dataset) if by_fit and consumers.is_traced(model, self._does) else None
        step = self._watched_step(self._step(model, spec), traces=True)
        recorder.train(waits=not is_ceiling)
        if is_ceiling:
            promised = spec if self._read is None else None
            other = model_ceiling.other_step(model, self._does, promised) if self.trial.repeat == 0 else None
            for found in model_ceiling.run(dataset, step, recorder, warmup_s, recorder.heartbeat, other):
                self.channel.send(found)
        else:
            self._take(partial(consumers.train, dataset, step, warmup_s=warmup_s, held=held, spec=spec))
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

    def _step(self, model: Any, spec: Any) -> consumers.StepFunction:
        """Return a step of the model, traced once in this process for all datasets that promise the same."""
        promised = repr(spec)
        if promised not in self._steps:
            self._steps[promised] = consumers.step_of(model, self._does, spec)
        return self._steps[promised]

    def _trained_model(self, target: Target) -> Any:
        """Return the model that the script trains, or that the user's function returned in this process.

        Raises:
            UserCodeError: it trains another way than when it was inspected.
        """
        if not target.is_script:
            if self._model is None:
                self._model = loading.call(target, "model")
            return self._model
        if self._model is None:
            raise UserCodeError(
                f"{self._task.target.text} trained a model when it was looked at, and now does not",
                "does what it trains depend on chance, the time, or files that it writes itself?",
            )
        return self._model

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
