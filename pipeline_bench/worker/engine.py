"""The course of a trial, which every engine follows: build, evaluate, train, evaluate, stop.

A graph, eager TensorFlow, the processes of between_graph replication and a user's pipeline are an engine each.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from pipeline_bench import plugins
from pipeline_bench.backends import Backend, EagerInput, Input
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.events import Done, Evaluated, Placement, Work
from pipeline_bench.model.trial import FurtherTrial, Trial
from pipeline_bench.sources import Source
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.system.processes import quick_imports, threads, why_not_forkable
from pipeline_bench.worker import bad_record, runtime, sample_audit
from pipeline_bench.worker.page_cache_controller import PageCacheController, open_controller
from pipeline_bench.worker.recorder import Channel, Recorder

When = Literal["before", "after"]


class Engine(ABC):
    """Runs one trial and sends its events.

    Args:
        trial: what to run.
        channel: takes the events.
        recorder: takes the phases and the steps.

    Attributes:
        scratch: the folder of the temporary files that this process, its forks and the libraries in them make.
    """

    def __init__(self, trial: Trial, channel: Channel, recorder: Recorder) -> None:
        self.trial, self.variant = trial, trial.variant
        self.channel, self.recorder = channel, recorder
        self.scratch = ScratchFolder()
        self.scratch.take_temporary_files()

    @property
    def runs_script(self) -> bool:
        """Whether it runs a script of the user's, which has to have the main thread."""
        return False

    @property
    def reusable(self) -> bool:
        """Whether what was built serves a further trial, in which it is what it would be in a process of its own."""
        return False

    def run(self) -> None:
        """Run the trial to its end, and further ones on what was built for as long as they are asked for.

        Raises:
            PipelineBenchError: it cannot be run, or failed; other exceptions are TensorFlow's or the source's.
        """
        try:
            self.build()
            self.evaluate("before")
            self.train()
            self.evaluate("after")
            self.finish()
            while self.reusable and (request := self.channel.receive()) is not None:
                self.begin(FurtherTrial.model_validate_json(request))
                self.train()
                self.finish()
        except BaseException:
            self.recorder.fail()  # it watches processes that `stop` kills
            raise
        finally:
            self.stop()
            self.scratch.remove()

    def start_processes(self) -> None:  # noqa: B027 - most engines have none
        """Start processes that this one has to fork while it has a single thread; most engines have none."""

    @abstractmethod
    def build(self) -> None:
        """Import TensorFlow, make all that is trained, and send the device."""

    def begin(self, further: FurtherTrial) -> None:
        """Take on a further trial, with a recorder of its own; what the process writes goes to that trial's file."""
        log = os.open(further.stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a user's code may have put something else in its place
                stream.flush()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self.trial, self.variant = further.trial, further.trial.variant
        self.recorder = Recorder(self.channel, self.variant.run, warmed_up=True)
        self.recorder.start()

    def evaluate(self, when: When) -> None:  # noqa: B027 - not every engine has a model of ours
        """Send the accuracy, if the engine trains a model that has one."""

    @abstractmethod
    def train(self) -> None:
        """Train, giving every step to the recorder; when it returns, the input has ended."""

    def finish(self) -> None:
        """Send what is left, and that the trial is done."""
        self.recorder.finish()
        self.channel.send(Done(at_ns=time.monotonic_ns(), reusable=self.reusable))

    def stop(self) -> None:  # noqa: B027 - not every engine opens something
        """Free what `build` opened; also called after a failure."""


def can_fork() -> bool:
    """Return whether this process can fork others with TensorFlow in them: imported, here if need be, and not used."""
    if "tensorflow" in sys.modules:  # then the fork server has looked
        return True
    import numpy as np  # noqa: F401 - its BLAS may start threads, which survive a fork; only later ones count

    before = threads()
    with quick_imports():
        import tensorflow as tf  # noqa: F401 - one import for all processes

    return why_not_forkable(before) is None


def stop_after_training(stop: Callable[[], None]) -> None:
    """End an input whose steps all had their batches: what a producer raised is of what was only read ahead."""
    try:
        stop()
    except Exception:
        traceback.print_exc()


class TrainingEngine(Engine):
    """Trains a model of this program's in this process, from a source and an input that a backend made of it.

    Attributes:
        source: what gives the samples.
        backend: what carries them to the model.
        feeding: the input.
        config: the ConfigProto of a session beside the training's own.
        waits: whether the steps say how long they wait for their batch.
        busy: whether the steps bring the busy time of an emulated device.
        features: the shape of a batch's features, a ``tf.TensorShape``.
        shows_samples: whether a sampled step brings a digest.
    """

    source: Source
    feeding: Input | EagerInput
    config: Any
    waits: bool
    busy: bool
    features: Any
    shows_samples: bool
    backend: Backend
    _evaluated: frozenset[When] = frozenset()

    def start_processes(self) -> None:
        """Start those that the backend has beside the trial's own; the trial fails when one of them does."""
        self.backend = plugins.make("backends", self.variant.backend, self.variant.options)
        self.source = plugins.make("sources", self.variant.source.kind, self.variant.source.options)
        if self.backend.has_processes:
            self.backend.start_processes(self.source, can_fork=can_fork())
            self.recorder.guard(self.backend.why_dead, self.backend.why_silent, self.backend.was_silent)

    @abstractmethod
    def accuracy(self) -> float | None:
        """Return the accuracy now; None of a model that has none."""

    @abstractmethod
    def drive(self) -> None:
        """Start the input, and run the loop."""

    @abstractmethod
    def placement(self) -> Placement:
        """Train one step more and return which device each of its ops ran on."""

    @abstractmethod
    def stop_input(self) -> None:
        """End the input; raises what a producer raised."""

    def evaluate(self, when: When) -> None:
        """Send the accuracy, once for each time."""
        if when in self._evaluated:
            return
        self._evaluated |= {when}
        self.recorder.phase("evaluate")
        if (accuracy := self.accuracy()) is not None:
            self.channel.send(Evaluated(when=when, accuracy=accuracy))

    def train(self) -> None:
        """Train with the samples audited, the files kept cold or warm, and a bad record found."""
        controller = None
        if not self.variant.is_ceiling:
            self._audit_samples()
            controller = self._prepare_page_cache()
        self.recorder.train(waits=self.waits, busy=self.busy)
        if controller is not None:
            controller.start()
        timeout_s = self.variant.run.stall_timeout_s
        with bad_record.named(self.source, self.config, self._first_suspect, bad_record.search_limit_s(timeout_s)):
            try:
                self.drive()
                if runtime.wants_placement(self.trial):  # its step trains once more
                    self.evaluate("after")
                    self.channel.send(self.placement())
            except BaseException:
                self.stop_input()  # a producer's own exception replaces the 'queue is closed' that it causes in a step
                raise
            stop_after_training(self.stop_input)
        if controller is not None:
            self.channel.send(controller.close())

    def _audit_samples(self) -> None:
        """Audit the samples that reach the model; send the reason if they cannot be identified."""
        source = self.source
        if not self.shows_samples:
            reason = f"the source {source.name} neither numbers its samples nor says how they are distributed"
            if source.identity is not None:
                reason = f"the backend drops the numbers that the source {source.name} gives its samples"
            self.channel.send(Work(batch_size=source.batch_size, reason=reason))
            return
        values = sample_audit.values_per_sample(self.features)
        audit = sample_audit.open_audit(source, values, self.feeding.reorder_window)
        if audit is not None:
            self.recorder.audit_samples(audit, sample_audit.cost_us(source, values))

    def _prepare_page_cache(self) -> PageCacheController | None:
        """Make the source's files cold or warm in the page cache; return None if it reads none."""
        if isinstance(self.source, RecordSource):
            self.source.forget()  # the fingerprints have read files
        controller = open_controller(self.source, lambda: self.recorder.steps)
        if controller is not None:
            self.recorder.phase("storage")
            try:
                controller.prepare(self.recorder.heartbeat)
            except OSError as error:
                raise PipelineBenchError(f"{error.filename} cannot be read: {error.strerror}.") from error
        return controller

    def stop(self) -> None:
        """End the backend's processes."""
        self.backend.end_processes()

    def _first_suspect(self) -> int:
        """Return the record to begin the search with: the last trained on, less what may have overtaken it."""
        self.recorder.phase("inspect")  # progress, for the parent's watch
        reordered = self.feeding.reorder_window
        back = self.source.batch_size if reordered is None else reordered
        return max(0, self.recorder.steps * self.source.batch_size - back)
