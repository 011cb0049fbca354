"""``with pipeline_bench.monitor(dataset) as batches:``, for training loops of one's own."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from pipeline_bench.errors import UsageError
from pipeline_bench.model.session import Session
from pipeline_bench.monitoring.device import device_of
from pipeline_bench.monitoring.record import JobRecord, write_line
from pipeline_bench.monitoring.steps import JobSummary, LoopSteps

_NOTHING_TAKEN = (
    "the loop took no batch from the monitored dataset itself; what is built upon it (a map, a prefetch, a distributed "
    "dataset) is not measured: monitor the last dataset before the loop"
)


class LoopWatch:
    """Watches what one loop of a job takes from tf.data, in eager code and in graphs; begins as it is made.

    Attributes:
        probe: takes the waits.
        session: the session, once the watch has ended.
        folder: where it was saved; None where it was not.
    """

    on_tf_data = True

    def __init__(self, name: str, reason: str | None = None, lasting: bool = False) -> None:
        """Begin.

        Args:
            name: of the job, for a reader.
            reason: why nothing was measured, should that be so at the end.
            lasting: whether what takes a graph's waits stays until the process ends (`ring.Ring`).
        """
        import tensorflow as tf

        from pipeline_bench.monitoring import probe, ring

        self.session: Session | None = None
        self.folder: Path | None = None
        with tf.init_scope():  # a loop may first be seen as its function is traced
            self._ring = ring.Ring(lasting)
            device = device_of("tensorflow")
        self._lock = threading.Lock()
        # The eager loop and the graph's rows come in turns of their own; both end in the same log.
        self._record = JobRecord(name, device, after_poll=_reader(self))
        self._record.reason = reason
        self._eager_steps, self._graph_steps = LoopSteps(self._record.log), LoopSteps(self._record.log)
        self.probe = probe.Probe(self._eager_steps.receive, self._ring, a_row_a_call=False)
        self._patch = probe.autograph_loops_timed()
        self._patch.__enter__()

    def probed(self, dataset: Any) -> Any:
        """Return a dataset with the same elements, timed where a loop takes from it; each epoch may have another."""
        from pipeline_bench.monitoring import probe

        return probe.ProbedDataset(dataset, self.probe.number)

    def close(self, reason: str | None = None, out: Path | None = None) -> None:
        """End, and keep the session.

        Args:
            reason: what ended the job, where it did not end by itself.
            out: the folder in which the session's own folder is made; None keeps no file.
        """
        self._patch.__exit__(None, None, None)
        self._read(settled=True)
        self.session, self.folder = self._record.finish(reason, out)

    def drop(self) -> None:
        """End, and leave nothing: the loop was no training."""
        self._patch.__exit__(None, None, None)
        self._record.drop()

    @property
    def problem(self) -> str | None:
        """Why the session could not be saved, where it could not."""
        return self._record.problem

    @property
    def summary(self) -> JobSummary:
        """The figures so far, of whole steps; until it ends they grow."""
        if self.session is None:
            self._read(settled=False)
        return self._record.summary()

    def _read(self, settled: bool) -> None:
        """Bring what a graph has measured into the log."""
        with self._lock:
            if self._ring.traced:
                rows = self._ring.read(settled)
                for at_ns, wait_ns in zip(rows.at_ns.tolist(), rows.wait_ns.tolist(), strict=True):
                    self._graph_steps.receive(at_ns, wait_ns)
                if rows.lost:
                    self._record.notes.append(f"{rows.lost} steps came too fast to be kept")
            self._graph_steps.flush()
            self._eager_steps.flush()


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
        self._dataset = dataset
        self._out = out
        self._quiet = quiet
        self._name = name
        self._watch: LoopWatch | None = None

    def __enter__(self) -> Any:
        """Begin; return the dataset to loop over, a `tf.data.Dataset` with the same elements."""
        if self._watch is not None:
            raise UsageError("This monitor was entered before.", "Make one with pipeline_bench.monitor for each block.")
        self._watch = LoopWatch(self._name, _NOTHING_TAKEN)
        return self._watch.probed(self._dataset)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; what the block raised passes through."""
        if self._watch is None:
            return
        self._watch.close(None if kind is None else f"the job was ended by {kind.__name__}", self._out)
        if not self._quiet and self.session is None:
            write_line(self._watch.summary, self._name, self._watch.folder, self._watch.problem)
        self.session, self.folder = self._watch.session, self._watch.folder

    @property
    def summary(self) -> JobSummary:
        """The figures so far, of whole steps; while the block runs they grow."""
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


def _reader(watch: LoopWatch) -> Any:
    """Return a function that reads what the graph has measured, until the watch is gone."""
    reference = weakref.ref(watch)

    def read() -> None:
        alive = reference()
        if alive is not None and alive.session is None:
            alive._read(settled=False)

    return read
