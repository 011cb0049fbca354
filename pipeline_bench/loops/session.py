"""session: one `Session.run` a step, as TensorFlow 1 programs are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Any

from pipeline_bench.backends import Input
from pipeline_bench.loops import Loop, StepRecorder, Training
from pipeline_bench.models import TrainingGraph

Call = Callable[[dict[Any, Any] | None], Any]
"""Runs the fetches that it was made for, with what is fed; gives their values."""


class SessionLoop(Loop):
    """Fetches the train op and the loss; an input's probe rides along in the same call."""

    name = "session"
    summary = "one session.run([train, loss]) a step, from Python"

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; the step time runs from asking for the batch to having the loss."""
        graph, source = training.graph, training.feeding
        if source.wait == "fetch":
            self._run_fetching(session, graph, source, record)
        elif source.wait == "probe":
            self._run_probing(session, graph, source, record)
        else:
            self._run_without_input(session, graph, record)

    def calling(self, session: Any, fetches: list[Any], feed: dict[Any, Any] | None = None) -> Call:
        """What runs a step.

        Args:
            session: the trial's.
            fetches: what each call gives.
            feed: a step's, for the placeholders that are fed; None where nothing is.
        """
        return partial(session.run, fetches)

    def _run_fetching(self, session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
        plain: list[Any] = [graph.train, _loss_and_busy(graph)]
        fetches = {False: plain, True: [*plain, source.evidence]}
        calls: dict[bool, Call] = {}
        more = True
        while more:
            start_ns = monotonic_ns()
            feed = source.fetch(session)
            wait_ns = monotonic_ns() - start_ns
            due = record.should_sample
            if due not in calls:  # only now is it known what is fed
                calls[due] = self.calling(session, fetches[due], feed)
            _, shown, *evidence = calls[due](feed)
            end_ns = monotonic_ns()
            loss, busy_ns = _apart(graph, shown)
            more = record(start_ns, end_ns, wait_ns, loss, evidence[0] if evidence else None, busy_ns)

    def _run_probing(self, session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
        shown = in_one_tensor(graph.loss, source.wait_s, busy_s=graph.busy_s)
        checked = in_one_tensor(graph.loss, source.wait_s, source.evidence, graph.busy_s)
        calls = {due: self.calling(session, [graph.train, each]) for due, each in ((False, shown), (True, checked))}
        rest = 2 if graph.busy_s is None else 3
        more = True
        while more:
            start_ns = monotonic_ns()
            _, fetched = calls[record.should_sample](None)
            end_ns = monotonic_ns()
            busy_ns = 0 if graph.busy_s is None else int(fetched[2] * 1e9)
            more = record(start_ns, end_ns, int(fetched[1] * 1e9), fetched[0], fetched[rest:], busy_ns)

    def _run_without_input(self, session: Any, graph: TrainingGraph, record: StepRecorder) -> None:
        call = self.calling(session, [graph.train, _loss_and_busy(graph)])
        more = True
        while more:
            start_ns = monotonic_ns()
            _, shown = call(None)
            end_ns = monotonic_ns()
            loss, busy_ns = _apart(graph, shown)
            more = record(start_ns, end_ns, 0, loss, busy_ns=busy_ns)


def in_one_tensor(loss: Any, wait_s: Any, evidence: Any = None, busy_s: Any = None) -> Any:
    """Loss, wait, busy time if any, and evidence as float64 [2 + n].

    A fetch of its own costs a step 10 to 20 µs, ten times the probe.
    """
    import tensorflow as tf

    with tf.device("/cpu:0"):
        scalars = [scalar for scalar in (tf.cast(loss, tf.float64), wait_s, busy_s) if scalar is not None]
        first = tf.stack(scalars)
        return first if evidence is None else tf.concat([first, evidence], axis=0)


def _loss_and_busy(graph: TrainingGraph) -> Any:
    """What a step without a probe shows: its loss, and the busy time of an emulated device in one tensor with it."""
    return graph.loss if graph.busy_s is None else in_one_tensor(graph.loss, graph.busy_s)


def _apart(graph: TrainingGraph, shown: Any) -> tuple[float, int]:
    """Loss, and nanoseconds of busy time, from what `_loss_and_busy` gave."""
    return (shown, 0) if graph.busy_s is None else (shown[0], int(shown[1] * 1e9))
