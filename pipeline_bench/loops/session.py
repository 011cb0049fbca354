"""session: one `Session.run` a step, as TensorFlow 1 programs are written."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from pipeline_bench.backends import Input
from pipeline_bench.loops import Loop, StepRecorder
from pipeline_bench.models import TrainingGraph


class SessionLoop(Loop):
    """Fetches the train op and the loss; an input's probe rides along in the same call."""

    name = "session"
    summary = "one session.run([train, loss]) a step, from Python"

    def run(self, session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
        """Train; the step time runs from asking for the batch to having the loss."""
        if source.wait == "fetch":
            _run_fetching(session, graph, source, record)
        elif source.wait == "probe":
            _run_probing(session, graph, source, record)
        else:
            _run_without_input(session, graph, record)


def _run_fetching(session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
    plain: list[Any] = [graph.train, graph.loss]
    checked = [*plain, source.evidence]
    more = True
    while more:
        start_ns = monotonic_ns()
        feed = source.fetch(session)
        wait_ns = monotonic_ns() - start_ns
        _, loss, *evidence = session.run(checked if record.due else plain, feed)
        more = record(start_ns, monotonic_ns(), wait_ns, loss, *evidence)


def _run_probing(session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
    plain = [graph.train, in_one_tensor(graph.loss, source.wait_s)]
    checked = [graph.train, in_one_tensor(graph.loss, source.wait_s, source.evidence)]
    more = True
    while more:
        start_ns = monotonic_ns()
        _, fetched = session.run(checked if record.due else plain)
        more = record(start_ns, monotonic_ns(), int(fetched[1] * 1e9), fetched[0], fetched[2:])


def in_one_tensor(loss: Any, wait_s: Any, evidence: Any = None) -> Any:
    """Loss, wait and evidence as float64 [2 + n]: a fetch of its own costs a step 10 to 20 µs, ten times the probe."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        pair = tf.stack([tf.cast(loss, tf.float64), wait_s])
        return pair if evidence is None else tf.concat([pair, evidence], axis=0)


def _run_without_input(session: Any, graph: TrainingGraph, record: StepRecorder) -> None:
    fetches = [graph.train, graph.loss]
    more = True
    while more:
        start_ns = monotonic_ns()
        _, loss = session.run(fetches)
        more = record(start_ns, monotonic_ns(), 0, loss)
