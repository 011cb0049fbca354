"""Makes a synthetic dataset; called in a child, since TensorFlow writes the TFRecord files."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.sources import synthetic_dataset

_REPORT_EVERY_S = 0.1


def make(
    data: Mapping[str, Any], folder: str, report: Callable[..., object], clock: Callable[[], float] = time.monotonic
) -> None:
    """Make what is not there yet.

    Args:
        data: the fields of a `SyntheticDataset`.
        folder: where; made if need be.
        report: called with ``made`` a few times a second, with ``waiting`` while another process makes the same data.
        clock: seconds.

    Raises:
        PipelineBenchError: the folder cannot be written, or holds something else.
    """
    dataset, path = synthetic_dataset.SyntheticDataset(**data), Path(folder)
    reported_s = float("-inf")

    def progress(count: int) -> None:
        nonlocal reported_s
        if clock() - reported_s >= _REPORT_EVERY_S or count == dataset.samples:
            reported_s = clock()
            report(made=count)

    try:
        path.mkdir(parents=True, exist_ok=True)
        with _only_one(path, lambda: report(waiting=True)):
            # What another process may have made there since the parent looked.
            manifest = synthetic_dataset.read_manifest(path)
            if manifest is not None and manifest.data != dataset:
                raise PipelineBenchError(f"it holds other made data, {manifest.data.name}")
            if not synthetic_dataset.is_complete(dataset, path):
                synthetic_dataset.make(dataset, path, progress)
    except OSError as error:
        raise PipelineBenchError(error.strerror or str(error)) from error


@contextmanager
def _only_one(folder: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the process ends, however it ends."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
