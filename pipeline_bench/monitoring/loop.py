"""``with pipeline_bench.monitor(dataset) as batches:``, for training loops of one's own."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipeline_bench.errors import UsageError
from pipeline_bench.model.session import Session
from pipeline_bench.monitoring.device import device_of
from pipeline_bench.monitoring.record import JobRecord, write_line
from pipeline_bench.monitoring.steps import JobSummary, LoopSteps

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

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

    on_tf_data = True

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
        self._dataset = dataset
        self._out = out
        self._quiet = quiet
        self._name = name
        self._record: JobRecord | None = None
        self._patch: AbstractContextManager[None] | None = None

    def __enter__(self) -> Any:
        """Begin; return the dataset to loop over, a `tf.data.Dataset` with the same elements."""
        from pipeline_bench.monitoring import probe

        if self._record is not None:
            raise UsageError("This monitor was entered before.", "Make one with pipeline_bench.monitor for each block.")
        self._ring = probe.Ring()
        self._lock = threading.Lock()
        # The eager loop and the graph's rows come in turns of their own; both end in the same log.
        record = self._record = JobRecord(self._name, device_of("tensorflow"), after_poll=_reader(self))
        record.reason = _NOTHING_TAKEN
        self._eager_steps, self._graph_steps = LoopSteps(record.log), LoopSteps(record.log)
        self._probe = probe.Probe(self._eager_steps.receive, self._ring, a_row_a_call=False)
        self._patch = probe.autograph_loops_timed()
        self._patch.__enter__()
        return probe.ProbedDataset(self._dataset, self._probe.number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; what the block raised passes through."""
        if self._record is None or self._patch is None:
            return
        self._patch.__exit__(None, None, None)
        self._read(settled=True)
        figures = self.summary
        reason = None if kind is None else f"the job was ended by {kind.__name__}"
        self.session, self.folder = self._record.finish(reason, self._out)
        if not self._quiet:
            write_line(figures, self._name, self.folder, self._record.problem)

    def close(self) -> None:
        """End, as at the end of the block."""
        self.__exit__(None, None, None)

    def drop(self) -> None:
        """End, and leave nothing: the loop was no training."""
        if self._record is not None and self._patch is not None:
            self._patch.__exit__(None, None, None)
            self._record.drop()

    def iterator(self, dataset: Any) -> Any:
        """Return a timed iterator of a dataset that the same loop takes from: in each epoch it may be a new one."""
        from pipeline_bench.monitoring import probe

        return iter(probe.ProbedDataset(dataset, self._probe.number))

    @property
    def summary(self) -> JobSummary:
        """The figures so far, of whole steps; while the block runs they grow."""
        if self._record is None:
            raise UsageError("The monitor was not entered yet.", "Use it as `with pipeline_bench.monitor(...)`.")
        if self.session is None:
            self._read(settled=False)
        return self._record.summary()

    def _read(self, settled: bool) -> None:
        """Bring what a graph has measured into the log."""
        assert self._record is not None
        with self._lock:
            if self._ring.traced:
                rows = self._ring.read(settled)
                for at_ns, wait_ns in zip(rows.at_ns.tolist(), rows.wait_ns.tolist(), strict=True):
                    self._graph_steps.receive(at_ns, wait_ns)
                if rows.lost:
                    self._record.notes.append(f"{rows.lost} steps came too fast to be kept")
            self._graph_steps.flush()
            self._eager_steps.flush()


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


def _reader(monitor: Monitor) -> Any:
    """Return a function that reads what the graph has measured, until the monitor is gone."""
    reference = weakref.ref(monitor)

    def read() -> None:
        alive = reference()
        if alive is not None and alive.session is None:
            alive._read(settled=False)

    return read
