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
    fetches = [graph.train, graph.loss]
    more = True
    while more:
        start_ns = monotonic_ns()
        feed = source.fetch(session)
        wait_ns = monotonic_ns() - start_ns
        _, loss = session.run(fetches, feed)
        more = record(start_ns, monotonic_ns(), wait_ns, loss)


def _run_probing(session: Any, graph: TrainingGraph, source: Input, record: StepRecorder) -> None:
    fetches = [graph.train, loss_and_wait(graph.loss, source.wait_s)]
    more = True
    while more:
        start_ns = monotonic_ns()
        _, (loss, wait_s) = session.run(fetches)
        more = record(start_ns, monotonic_ns(), int(wait_s * 1e9), loss)


def loss_and_wait(loss: Any, wait_s: Any) -> Any:
    """Both in one tensor, float64 [2]: a fetch of its own would cost a step 10 to 20 µs, ten times the probe itself."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        return tf.stack([tf.cast(loss, tf.float64), wait_s])


def _run_without_input(session: Any, graph: TrainingGraph, record: StepRecorder) -> None:
    fetches = [graph.train, graph.loss]
    more = True
    while more:
        start_ns = monotonic_ns()
        _, loss = session.run(fetches)
        more = record(start_ns, monotonic_ns(), 0, loss)
