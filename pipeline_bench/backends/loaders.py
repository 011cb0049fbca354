"""What backends share whose library reads in Python: samples by number, processes of the library's own, an iterator.

The library gives batches to an iterator in the trial's process, and ``Dataset.from_generator`` takes them to the step,
as Keras does with such a loader in ``model.fit``.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pipeline_bench import plugins
from pipeline_bench.backends import DatasetBackend, require_numbers
from pipeline_bench.sources import SampleSource, Source
from pipeline_bench.sources.datasets import Resources, built, prefetched
from pipeline_bench.system.processes import end_soon_after_parent
from pipeline_bench.text import units

# A loader wants a length, and an epoch need not be a whole number of batches.
ENDLESS_SAMPLES = 2**40

Arrays = tuple[Any, ...]
"""A batch as `Source.finish` takes it, in NumPy."""


class LoaderOptions(plugins.Options):
    """What every loader has behind it."""

    prefetch: Annotated[
        int, Field(ge=0, description="batches that are ready in TensorFlow, behind the loader; 0: none, as in Keras")
    ] = 1


class LoaderBackend(DatasetBackend):
    """Batches that another library loads.

    A subclass names the library, and opens it in `open`; what ends with the trial, who died, the samples' proof and
    every loop come with this class.
    """

    package: ClassVar[str]
    """The library, as Python imports it."""
    install: ClassVar[str]
    """What brings it."""
    workers_are: ClassVar[str]
    """What its processes are called in a message: ``grain worker``."""

    has_processes = True

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._opened: Iterator[Arrays] | None = None
        self._workers: dict[int, Any] = {}

    @abstractmethod
    def open(self, samples: Samples, batch_size: int, *, can_fork: bool) -> Iterator[Arrays]:
        """Return the batches, without end, and start the processes that load them, or have the first batch do it.

        Args:
            samples: by their number, in whose order they are to come.
            batch_size: samples in a batch.
            can_fork: whether the processes may be forks of this one, with TensorFlow imported.
        """

    def ahead_batches(self, batch_size: int) -> int:
        return int(self.options.prefetch) + self._ahead_of_tensorflow()

    def _ahead_of_tensorflow(self) -> int:
        """Return how many batches the library may have ready."""
        return 0

    @property
    def works_ahead(self) -> bool | None:
        return True if self.options.prefetch else None

    def unavailable(self) -> str | None:
        if importlib.util.find_spec(self.package) is not None:
            return None
        return f"{self.name} needs the package {self.package}, which is not installed: {self.install}"

    def check(self, source: Source) -> None:
        require_numbers(self, source)

    def python_part(self, source: Source) -> str:
        return "reads and decodes the samples"

    def start_processes(self, source: Source, *, can_fork: bool) -> None:
        self._opened = self.open(Samples(source), source.batch_size, can_fork=can_fork)

    def why_dead(self, stalled_s: float | None) -> str | None:
        self._see()
        codes = [worker.exitcode for worker in list(self._workers.values())]
        failed = [place for place, code in enumerate(codes) if code]
        # One that has ended well did its work, unless nothing comes and no other is left to bring it.
        if not failed and stalled_s is not None and codes and None not in codes:
            failed = [0]
        return f"{self.workers_are} {failed[0]} {units.ending(codes[failed[0]])}" if failed else None

    def end_processes(self) -> None:
        self._see()
        for worker in list(self._workers.values()):
            if worker.exitcode is None:
                worker.kill()
        self._workers.clear()

    def endless(self, source: Source, resources: Resources, finished: bool) -> Any:
        import tensorflow as tf

        def batches() -> Iterator[Arrays]:
            if self._opened is None:  # in a process that is no trial's own
                self._opened = self.open(Samples(source), source.batch_size, can_fork=False)
            yield next(self._opened)
            self._see()  # before one could die and be forgotten by who started it
            yield from self._opened

        def make() -> Any:
            specs = [
                tf.TensorSpec((source.batch_size, *spec.shape), spec.dtype) for spec in source.numbered_specs or ()
            ]
            made = tf.data.Dataset.from_generator(batches, output_signature=tuple(specs))
            # What `finish` makes of single samples is made later, by the one who takes them.
            if isinstance(source, SampleSource):
                return made
            return made.map(lambda *parts: source.finish(parts).tensors)

        return built(make, source, finished)

    def batches(self, made: Any, source: Source) -> Any:
        return prefetched(made, self.options.prefetch)

    def _see(self) -> None:
        """Note processes that have been started since, in whose place others ended well; two threads do so."""
        running = {worker.pid or 0: worker for worker in multiprocessing.active_children()}
        if new := sorted(running.keys() - self._workers.keys()):
            for pid, worker in list(self._workers.items()):
                if worker.exitcode == 0:
                    self._workers.pop(pid, None)
        for pid in new:
            self._workers.setdefault(pid, running[pid])


class Samples:
    """A source as a loader's library asks for it: a length, and samples by their number."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return ENDLESS_SAMPLES

    @property
    def of_epoch(self) -> int:
        """The samples of an epoch."""
        identity = self.source.identity
        assert identity is not None  # whoever numbers its samples has one
        return identity.epoch_samples

    def __getitem__(self, number: Any) -> Arrays:
        return self.source.numbered(int(number))


def begin_worker(parent: int, *_: int) -> None:
    """Set up a loader's process: it ends with the trial, and takes no GPU's memory."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    end_soon_after_parent(parent)
