"""data_loader: PyTorch's DataLoader, with worker processes of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from pydantic import Field, model_validator

from pipeline_bench.backends.loaders import Arrays, LoaderBackend, LoaderOptions, Samples, begin_worker
from pipeline_bench.sources import RecordError
from pipeline_bench.system.processes import threads, why_not_forkable


class DataLoaderOptions(LoaderOptions):
    """PyTorch's own, under their own names."""

    num_workers: Annotated[int, Field(ge=0, le=256, description="worker processes; 0: the trial's own")] = 0
    prefetch_factor: Annotated[
        int | None, Field(ge=1, le=4096, description="batches that each worker has ready or in hand; unset: 2")
    ] = None
    persistent_workers: Annotated[
        bool, Field(description="keep the workers from epoch to epoch; false: start them anew for each, not as forks")
    ] = True

    @model_validator(mode="after")
    def _for_workers(self) -> DataLoaderOptions:
        if self.prefetch_factor is not None and not self.num_workers:
            raise ValueError("prefetch_factor is of workers, and num_workers is 0: set both, or neither")
        return self


class DataLoader(LoaderBackend):
    """A ``DataLoader`` over samples by number; its tensors become NumPy arrays, which copies nothing.

    Workers that are kept are forks, PyTorch's default on Linux, made before TensorFlow has threads. Others are
    fresh interpreters: a fork of a process in which TensorFlow runs may hang.
    """

    name = "data_loader"
    summary = "PyTorch's DataLoader: worker processes; where PyTorch is installed"
    Options = DataLoaderOptions
    package = "torch"
    install = "pip install torch"
    workers_are = "DataLoader worker"

    def _ahead_of_tensorflow(self) -> int:
        return int(self.options.num_workers) * (self.options.prefetch_factor or 2)

    def open(self, samples: Samples, batch_size: int, *, can_fork: bool) -> Iterator[Arrays]:
        before = threads()
        from torch.utils import data

        options: DataLoaderOptions = self.options
        of_workers: dict[str, Any] = {}
        if options.num_workers:
            forks = can_fork and options.persistent_workers and why_not_forkable(before) is None
            of_workers = {
                "prefetch_factor": options.prefetch_factor,
                "persistent_workers": options.persistent_workers,
                "multiprocessing_context": "fork" if forks else "spawn",
                "worker_init_fn": partial(begin_worker, os.getpid()),
            }
        loader = data.DataLoader(
            _Caught(samples),
            collate_fn=_collated,
            batch_sampler=_Epochs(samples, batch_size),
            num_workers=options.num_workers,
            **of_workers,
        )
        return _batches(loader, iter(loader))


class _Caught:
    """Samples of which one that cannot be read is its error: raised in a worker, PyTorch makes a traceback of it."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, number: int) -> Arrays | RecordError:
        try:
            return self._samples[number]
        except RecordError as error:
            return error


def _collated(samples: list[Any]) -> Any:
    """Return a batch as PyTorch makes it, or the first error among its samples."""
    if errors := [sample for sample in samples if isinstance(sample, RecordError)]:
        return errors[0]
    from torch.utils import data

    return data.default_collate(samples)


class _Epochs:
    """The numbers of each batch, an epoch whenever it is iterated; a batch is of the epoch that it begins in."""

    def __init__(self, samples: Samples, batch_size: int) -> None:
        self._samples, self._batch_size = samples, batch_size
        self._begin = 0

    def __iter__(self) -> Iterator[list[int]]:
        # Looked up here, so after the workers were forked: what the source opens for it is this process' alone.
        of_epoch = self._samples.of_epoch
        epoch = self._begin // of_epoch + 1
        while self._begin < epoch * of_epoch:
            begin, self._begin = self._begin, self._begin + self._batch_size
            yield list(range(begin, self._begin))


def _batches(loader: Any, epoch: Iterator[Any]) -> Iterator[Arrays]:
    while True:
        for batch in epoch:
            if isinstance(batch, RecordError):
                raise batch
            yield tuple(part.numpy() for part in batch)
        epoch = iter(loader)
