"""grain: Google's loader in Python, with threads and worker processes of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Annotated

from pydantic import Field

from pipeline_bench.backends.loaders import Arrays, LoaderBackend, LoaderOptions, Samples, begin_worker


class GrainOptions(LoaderOptions):
    """Grain's own, under their own names; a worker's threads and buffers are its own."""

    worker_count: Annotated[int, Field(ge=0, le=256, description="worker processes; 0: threads of the trial's own")] = 0
    worker_buffer_size: Annotated[int, Field(ge=1, le=4096, description="batches that each worker has ready")] = 1
    num_threads: Annotated[
        int, Field(ge=0, le=1024, description="threads that load batches, in each process; 0: no threads")
    ] = 16
    prefetch_buffer_size: Annotated[
        int, Field(ge=0, le=2**16, description="batches that these threads have ready or in hand; 0: no threads")
    ] = 16


class Grain(LoaderBackend):
    """``MapDataset``: samples by number, in batches, read by threads, in worker processes where there are any."""

    name = "grain"
    summary = "grain, Google's loader in Python: threads and worker processes; where grain is installed"
    Options = GrainOptions
    package = "grain"
    install = 'python -m pip install ".[grain]" in the checkout'
    workers_are = "grain worker"

    def _ahead_of_tensorflow(self) -> int:
        options: GrainOptions = self.options
        in_process = options.prefetch_buffer_size if options.num_threads else 0
        return max(1, options.worker_count) * in_process + options.worker_count * options.worker_buffer_size

    def open(self, samples: Samples, batch_size: int, *, can_fork: bool) -> Iterator[Arrays]:
        import grain
        from absl import flags

        flags.FLAGS.mark_as_parsed()  # as absl's own main function does; grain asks for its flags
        options: GrainOptions = self.options
        reading = grain.ReadOptions(num_threads=options.num_threads, prefetch_buffer_size=options.prefetch_buffer_size)
        # In batches first: then each worker has every nth batch, and they come in the order of their numbers.
        dataset = grain.MapDataset.source(samples).batch(batch_size).to_iter_dataset(reading)
        if options.worker_count:
            workers = grain.MultiprocessingOptions(
                num_workers=options.worker_count, per_worker_buffer_size=options.worker_buffer_size
            )
            dataset = dataset.mp_prefetch(workers, worker_init_fn=partial(begin_worker, os.getpid()))
        batches: Iterator[Arrays] = iter(dataset)
        return batches
