"""The library's `monitor`: a block in which a loop over tf.data is watched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pipeline_bench.errors import UsageError
from pipeline_bench.model.session import Session
from pipeline_bench.monitoring import tell_unwatched
from pipeline_bench.monitoring.loop import DatasetMonitor
from pipeline_bench.monitoring.record import write_line
from pipeline_bench.monitoring.steps import Totals
from pipeline_bench.monitoring.summary import JobSummary, summarise
from pipeline_bench.system import interrupts

_NOTHING_TAKEN = (
    "the loop took no batch from the monitored dataset itself; what is built upon it (a map, a prefetch, a distributed "
    "dataset) is not measured: monitor the last dataset before the loop"
)


class Monitor:
    """Watches what a loop takes from a dataset; see `monitor`.

    Attributes:
        session: the session, once the block has ended.
        folder: where it was saved; None where it was not.
    """

    def __init__(self, dataset: Any, out: Path | None, quiet: bool, name: str) -> None:
        import tensorflow as tf

        if not isinstance(dataset, tf.data.Dataset):
            raise UsageError(
                f"pipeline_bench.monitor was given a {type(dataset).__name__}.",
                "Give the tf.data.Dataset that the loop takes its batches from; of a strategy, the dataset before "
                "experimental_distribute_dataset.",
            )
        if not tf.executing_eagerly():
            raise UsageError(
                "pipeline_bench.monitor was entered where TensorFlow does not execute eagerly.",
                "Enter it around the loop, outside of any tf.function and with eager execution on.",
            )
        self.session: Session | None = None
        self.folder: Path | None = None
        self._dataset, self._out = dataset, out
        self._quiet = quiet
        self._name = name
        self._watch: DatasetMonitor | None = None
        self._failed = False

    def __enter__(self) -> Any:
        """Begin; return the dataset to loop over, a `tf.data.Dataset` with the same elements."""
        if self._watch is not None:
            raise UsageError("This monitor was entered before.", "Make one with pipeline_bench.monitor for each block.")
        try:
            self._watch = DatasetMonitor(self._name, self._out, _NOTHING_TAKEN)
            return self._watch.probed(self._dataset)
        except Exception as error:  # that is no reason to end a job
            tell_unwatched(self._name, error)
            watch, self._watch, self._failed = self._watch, None, True
            with suppress(Exception):
                if watch is not None:
                    watch.record.drop()
            return self._dataset

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; what the block raised passes through."""
        if self._watch is None:
            return
        try:
            with interrupts.to_the_end():
                kept = self._watch.close(None if kind is None else f"the job was ended by {kind.__name__}")
        except Exception as failed:  # likewise
            tell_unwatched(self._name, failed)
            self._watch.record.drop()
            return
        if not self._quiet and self.session is None:
            write_line(kept.figures, self._name, kept.folder, self._watch.record.problem)
        self.session, self.folder = kept.session, kept.folder

    @property
    def summary(self) -> JobSummary:
        """The figures so far, of whole steps; while the block runs they grow."""
        if self._failed:
            return summarise(Totals(), (None, None), "its monitor failed")
        if self._watch is None:
            raise UsageError("The monitor was not entered yet.", "Use it as `with pipeline_bench.monitor(...)`.")
        return self._watch.summary


def monitor(
    dataset: Any, *, out: Path | str | None = "reports", quiet: bool = False, name: str = "training job"
) -> Monitor:
    """Watch how long a training loop of one's own waits for its batches.

    Args:
        dataset: a `tf.data.Dataset`, the last one before the loop.
        out: the folder in which the session's own folder is made; None keeps no file.
        quiet: write no line at the end.
        name: of the job, for the report.

    Returns:
        A context manager that gives the dataset to loop over: in eager code, inside a `tf.function`, or by an iterator
        that is passed to one. Its `summary` can be read at any time, its `session` when the block has ended.

    Raises:
        UsageError: `dataset` is no `tf.data.Dataset`, or TensorFlow does not execute eagerly.
    """
    return Monitor(dataset, None if out is None else Path(out), quiet, name)
