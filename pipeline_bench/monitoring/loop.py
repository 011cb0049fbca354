"""Watches one loop of a job: what all of them have in common, and one over tf.data, distributed or not."""

from __future__ import annotations

import functools
import itertools
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType
from typing import Any

from pipeline_bench.analysis import wall_time
from pipeline_bench.analysis.thresholds import NEEDED_STEPS
from pipeline_bench.model.events import Device
from pipeline_bench.monitoring import collectives
from pipeline_bench.monitoring.record import LEAST_STEPS, JobRecord, SavedJob
from pipeline_bench.monitoring.sampling import device_of_tf_data
from pipeline_bench.monitoring.steps import AGAIN, LEFT, LoopSteps
from pipeline_bench.monitoring.summary import JobSummary
from pipeline_bench.monitoring.wait_lines import WaitLines
from pipeline_bench.system.forks import ForkedLock
from pipeline_bench.text import units
from pipeline_bench.user_code import source_loops

_BESIDE = (
    "a thread beside the main one takes the batches, in which nothing was seen to train: what that waits for need not "
    "be what the training waits for"
)
_HANDED_ON = (
    "its batches go through a generator of the program's, {name}: its work on each, {mean} on average, is {where}"
)
_MIXED = (
    "in some passes over its data it trains and in others not, as in a validation, and neither its line nor what it "
    "iterates over tells these apart"
)
_WORTH = 0.1
"""Of a loop's time, from which on what a generator does to its batches is told."""
_LEAST_FED = 0.1
"""Of the times that something trains on a new batch, the share from which on a loop is a training."""
_GRAPH = 0
"""The number of a graph's loop; an eager one has its thread's."""


class LoopMonitor:
    """Watches what one loop takes; begins as it is made.

    Attributes:
        record: of the loop.
        passes: those over its data.
        trained_on: how many of its batches a call trained on, as far as that is known.
        trained_eagerly: how many steps of eager code did, as far as that is known.
        in_training: whether it is in a `tf.function` that trains.
        called: False and None, where functions were called meanwhile that train nothing, or perhaps: `see_call`.
        trains_in: the threads in which anything was seen to train so far; None where nobody looks for that.
    """

    on_tf_data = False
    by_calls = False
    """Whether what trains identifies it, and not what gives the batches."""
    of_a_take = False
    """Whether it is given a `take` of a batch or two."""
    trains_in: Collection[int] | None = None

    def __init__(
        self, name: str, device: Device, out: Path | None = None, *, waits_for_device: bool | None = None
    ) -> None:
        """Begin.

        Args:
            name: of the loop, for a reader.
            device: that the loop works on.
            out: the folder in which the session's own folder is made; None keeps no file.
            waits_for_device: as of `JobRecord`.
        """
        self._closed = self.in_training = False
        self.trained_on = self.trained_eagerly = 0
        self.called: set[bool | None] = set()
        self._seen = self._fed = self._last_fed = 0
        """How often anything was seen to train on a new batch while it went on, how often of that it had taken one, and
        the number of the last one."""
        self._in_pass, self._before_pass = False, 0
        """Whether anything trained when it had taken a batch of its last pass, and how many steps began before that."""
        self._kinds: set[bool] = set()
        """The same, of the passes before."""
        self.record = JobRecord(name, device, out, after_poll=_poller(self), waits_for_device=waits_for_device)
        self.record.diagnosable = self.on_tf_data
        self._steps = LoopSteps(self.record.log)
        self._is_on_cpu = device.kind == "cpu"
        self.record.course = self.passes = self._steps.passes

    @property
    def summary(self) -> JobSummary:
        """The figures so far, of whole steps; until it ends they grow."""
        if not self._closed:
            self.read(settled=False)
        return self.record.summary()

    @property
    def is_training(self) -> bool:
        """Whether it has taken more batches than one who looks at an example."""
        return self.summary.steps >= LEAST_STEPS

    @property
    def only_looks(self) -> bool:
        """Whether it has never taken three batches in a row, or alone, as one who shows an example after each epoch.

        An epoch may also be that short: not of those that train on what the loop takes.
        """
        trains = self.by_calls or self.in_training
        return not trains and max(self._steps.most_in_a_row, self._steps.single, self.trained_on) < LEAST_STEPS

    @property
    def is_over(self) -> bool:
        """Whether its data have ended, or none were taken yet."""
        return self._steps.is_over

    @property
    def took_few(self) -> bool:
        """Whether it ended after too few batches for a verdict, on which nothing trains, as far as that is known."""
        trains = self.by_calls or self.in_training or self.trained_on or self.takes_in_graphs
        return not trains and self.is_over and self.summary.steps < NEEDED_STEPS

    @property
    def takes_all(self) -> bool:
        """Whether it has taken its data to the end, and not an example of it by `next`, `break` or `take`."""
        return self._steps.ends > 0 and not self.of_a_take

    @property
    def takes_in_graphs(self) -> bool:
        """Whether a graph takes its batches, of which this process knows late."""
        return False

    @property
    def is_beside(self) -> bool:
        """Whether only threads beside the main one take its batches, in which nothing was seen to train."""
        if self.trains_in is None or not self._steps.takers:
            return False
        return self._steps.takers.isdisjoint((_GRAPH, threading.main_thread().ident, *self.trains_in))

    @property
    def last_taken(self) -> int:
        """The number of its last batch among those of all loops, as far as that was read; 0: it has taken none."""
        return self._steps.last

    def interrupt(self) -> None:
        """Take in that something else trains: the next batch is not in a row with those before."""
        self._steps.interrupt()

    def begins_step(self) -> None:
        """Take in that what trains begins: perhaps on a batch of this loop that was worked on until now."""

    def see_training(self) -> None:
        """Take in that something trains on a new batch: of this loop, of another, or of both."""
        if self.is_over:
            return
        self._seen += 1
        if self._may_have_new_batch:
            self._fed, self._last_fed, self._in_pass = self._fed + 1, self._steps.last, True

    def see_other_training(self) -> None:
        """Take in that something trains on what no loop gives."""
        self._seen += not self.is_over

    def is_partner(self, other: LoopMonitor) -> bool:
        """Return whether nearly every step of either loop takes one batch of both."""
        return self._steps.is_partner(other._steps)

    @property
    def own_wait_ns(self) -> int:
        """How long its steps waited for its own batches, without those of its partners."""
        return self._steps.partners.own_ns

    @property
    def has_new_batch(self) -> bool:
        """Whether it goes on, and took a batch since it was last seen to train, as far as that is known."""
        return self._may_have_new_batch and not self.is_over

    @property
    def _may_have_new_batch(self) -> bool:
        return self._steps.last != self._last_fed or self.takes_in_graphs

    @property
    def saw_training(self) -> bool:
        """Whether anything trained on its batches.

        What trains next after a validation whose iterator is kept seems to train on its last batch. But that is seldom
        beside all that trains, and one of several batches.
        """
        return self._fed > 0 and (self._fed >= _LEAST_FED * self._seen or 2 * self._fed > self._steps.begun)

    def see_eager_step(self, in_function: bool) -> None:
        """Take in that a step ran as eager code, if `in_function` though a `tf.function` makes it."""
        self.trained_eagerly += 1
        self.record.eager = "functions" if in_function else "no-function"

    def see_call(self, trains: bool | None) -> None:
        """Take in a call of a function, perhaps on what this loop took; None: it is not known whether that trains."""
        if trains:
            self.see_training()
        elif not self.is_over:
            self.called.add(trains)

    def begin_pass(self) -> None:
        """Take in that it begins to iterate again: what it took since the last time was trained on, or not."""
        known = not (self.by_calls or self.takes_in_graphs)
        if known and self._steps.begun - self._before_pass >= LEAST_STEPS:
            self._kinds.add(self._in_pass)
        self._in_pass, self._before_pass = False, self._steps.begun

    def read(self, settled: bool) -> None:
        """Bring what was measured into the record; `settled` where no graph is running any more."""
        self._steps.flush()
        self.record.withheld = _BESIDE if self.is_beside else _MIXED if len(self._kinds) > 1 else None
        if self.trained_eagerly < max(LEAST_STEPS, self._steps.begun / 2):  # a few of its steps are no word on all
            self.record.eager = None

    def poll(self) -> None:
        """Read what was measured; called five times a second, in the sampler's thread."""
        self.read(settled=False)

    def close(self, reason: str | None = None) -> SavedJob:
        """End, and keep the session; return what was kept.

        Args:
            reason: what ended the job, where it did not end by itself.
        """
        self.read(settled=True)
        self._closed = True
        return self.record.finish(reason)

    def drop(self) -> None:
        """End, and leave nothing: the loop was no training."""
        self.record.drop()
        if self.record.kept is not None and self.record.kept.folder is not None:  # saved while it went on
            shutil.rmtree(self.record.kept.folder, ignore_errors=True)
        self.record.kept = None

    def end(self) -> None:
        """Close; drop what took too few steps to be a training."""
        if self.is_training:
            self.close()
        else:
            self.drop()


def _poller(monitor: LoopMonitor) -> Callable[[], None]:
    """Return a function that polls the monitor, until that has ended or is gone."""
    reference = weakref.ref(monitor)

    def poll() -> None:
        if (alive := reference()) is not None and not alive._closed:
            alive.poll()

    return poll


class DatasetMonitor(LoopMonitor):
    """Watches what one loop takes from tf.data, in eager code and in graphs.

    Attributes:
        probe: takes the waits.
    """

    on_tf_data = True

    def __init__(self, name: str, out: Path | None = None, reason: str | None = None, lasting: bool = False) -> None:
        """Begin.

        Args:
            name: of the job, for a reader.
            out: as of `LoopMonitor`.
            reason: why nothing was measured, should that be so at the end.
            lasting: whether what takes a graph's waits stays until the process ends (`ring.Ring`).
        """
        import tensorflow as tf

        from pipeline_bench.monitoring import iterator_ends, probe, ring

        self._lock = ForkedLock()
        with tf.init_scope():  # a loop may first be seen as its function is traced
            self._ring = ring.Ring(lasting)
            self._ahead = collectives.Ahead()
            super().__init__(name, device_of_tf_data(), out)
        self.record.reason = reason
        self.probe = probe.Probe(self._receive, self._ring)
        iterator_ends.time_ends()
        self._ends_ns = functools.partial(iterator_ends.ends_ns, iterator_ends.UNTIMED)  # as a distributed dataset's
        self._ended_s, self._longest_end_s = 0.0, 0.0
        """How long the ends of iterators took in eager code, before all passes but the first."""
        self._generator: CodeType | None = None
        """The program's own that takes the batches of the last pass; None: none does, or it is not known yet."""
        self._begins_pass = True
        self._handed_on, self._worked_ns, self._wait_lines = 0, 0, WaitLines()
        """How many batches generators handed on to what trains, how long they worked on them, and in which lines."""
        self._patch = probe.autograph_loops_timed()
        self._patch.__enter__()

    @property
    def takes_in_graphs(self) -> bool:
        return self._ring.traced

    @property
    def is_over(self) -> bool:
        # By a `break` its iterator is gone; who makes one for each batch trains behind that.
        is_left = self.probe.is_left and self._steps.most_in_a_row > 1 and not self.takes_in_graphs
        return super().is_over or is_left

    def probed(self, dataset: Any) -> Any:
        """Return a dataset with the same elements, timed where a loop takes from it; each epoch may have another."""
        from pipeline_bench.monitoring import iterator_ends, probe

        self._ends_ns = functools.partial(iterator_ends.ends_ns, self.probe.number)
        self.of_a_take = self.of_a_take or probe.is_short_take(dataset)
        return probe.ProbedDataset(dataset, self.probe.number)

    def begins_step(self) -> None:
        """See `LoopMonitor`; on a CPU, which idles until then, the step has waited for its generator's work too."""
        if self._generator is None or not self.has_new_batch:
            return
        thread, is_left = threading.get_ident(), source_loops.is_left(self._generator)
        self._wait_lines.end(thread, counts=is_left)
        asked = self._steps.asked.get(thread) if is_left else None
        # Not where it trained before, or another loop went on meanwhile, as a validation.
        if asked is not None and not asked.trained and asked.others_ns is None:
            worked_ns = time.monotonic_ns() - asked.at_ns - asked.wait_ns
            self._handed_on, self._worked_ns = self._handed_on + 1, self._worked_ns + worked_ns
            asked.wait_ns += worked_ns * self._is_on_cpu
            if self._is_on_cpu:  # what it took of other loops is in that
                asked.beside.clear()

    def poll(self) -> None:
        """See `LoopMonitor`; also note where a generator is that works on a batch."""
        if self._generator is not None:
            self._wait_lines.sample()
        super().poll()

    def close(self, reason: str | None = None) -> SavedJob:
        """End, and keep the session; see `LoopMonitor`."""
        self._patch.__exit__(None, None, None)
        self.read(settled=True)
        self._tell_handed_on()
        seconds = self._ended_s + self.record.log.totals.time_ns / 1e9
        if self._steps.single:
            self.record.remarks.append(f"it {source_loops.AN_ITERATOR_A_BATCH}; {source_loops.ONE_ITERATOR}")
        else:
            self.record.remarks += wall_time.iterator_ends(self._ended_s, self._longest_end_s, seconds)
        return super().close(reason)

    def _tell_handed_on(self) -> None:
        """Remark how long a generator worked on the batches, where that is worth a word: `diagnose` does not see it."""
        totals = self.record.log.totals
        if self._generator is None or self._worked_ns < _WORTH * totals.time_ns:
            return
        name = source_loops.listed(self._generator)
        where = "part of the wait" if self._is_on_cpu else "in no wait, but in the rest of the step"
        mean = units.milliseconds(self._worked_ns / self._handed_on / 1e6)
        lines = self._wait_lines.remarks("generator's work")
        self.record.remarks += (_HANDED_ON.format(name=name, mean=mean, where=where), *lines)
        self.record.diagnosable = False

    def drop(self) -> None:
        """End, and leave nothing: the loop was no training."""
        self._patch.__exit__(None, None, None)
        super().drop()

    def read(self, settled: bool) -> None:
        """Bring what a graph has measured, and the eager steps, into the record."""
        with self._lock:
            if self._ring.traced:
                rows = self._ring.read(settled).left_where_moved()
                if rows.lost:  # the step before them has no end that is known
                    self._steps.receive(0, LEFT, _GRAPH)
                    self.record.notes.append(f"{rows.lost} steps came too fast to be kept")
                if self.probe.asks_ahead:
                    collectives.read(settled)
                    rows = self._ahead.blocked(rows, collectives.account(), settled)
                iterators = itertools.repeat(0) if rows.iterators is None else rows.iterators.tolist()
                for at_ns, wait_ns, each in zip(rows.at_ns.tolist(), rows.wait_ns.tolist(), iterators, strict=False):
                    self._steps.receive(at_ns, wait_ns, _GRAPH, iterator=each)
            super().read(settled)

    def _receive(self, at_ns: int, wait_ns: int, iterator: int = 0) -> None:
        if wait_ns >= 0 and self._begins_pass:  # by its `for`, a generator expression begins where it is written
            self._generator = source_loops.generator()
        if wait_ns >= 0 and self._generator is not None:
            self._wait_lines.begin(threading.get_ident())
        self._begins_pass = wait_ns < 0
        if wait_ns == LEFT:
            ended_s = self._ends_ns() / 1e9 * (self._steps.begun > 0)
            self._ended_s, self._longest_end_s = self._ended_s + ended_s, max(self._longest_end_s, ended_s)
            if self._steps.most_in_a_row == 1 and self.trained_on >= LEAST_STEPS:
                wait_ns = AGAIN
        self._steps.receive(at_ns, wait_ns, threading.get_ident(), iterator)
