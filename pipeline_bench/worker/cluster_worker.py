"""One process of a between_graph trial: ``python -m pipeline_bench.worker.cluster_worker FD``, where not forked.

The parameter server keeps the variables. Each worker builds the model once more, with an input of its own, which gives
its part of each batch, and trains it with the loop `session`.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.loops import Step, StepRecorder, Training
from pipeline_bench.loops.session import SessionLoop
from pipeline_bench.model.events import QueueState, Stack
from pipeline_bench.system.children import Broke
from pipeline_bench.system.processes import leave, quick_imports
from pipeline_bench.worker import bad_record, cluster_graph, sample_audit
from pipeline_bench.worker import cluster_messages as messages
from pipeline_bench.worker.cluster_graph import WorkerGraph
from pipeline_bench.worker.engine import stop_after_training
from pipeline_bench.worker.recorder import thread_stacks
from pipeline_bench.worker.sample_audit import StepSampling
from pipeline_bench.worker.training_engines import queue_states

HOST = "127.0.0.1"
REPORT_EVERY_S = 0.25
# The port was ours until the moment before: whoever took it is about to give it back.
_SERVER_ATTEMPTS, _ATTEMPT_EVERY_S = 20, 0.1

# A message takes some 20 µs of both processes' time: several steps travel in one.
_SEND_EVERY_NS = 50_000_000
# Of the stall timeout: a worker without a step for so long reports where it is, before the trial's watch asks.
_STUCK_SHARE = 0.5


def run(connection: Any) -> None:
    """Run the task that the first message names; does not return."""
    assignment: messages.Assignment = connection.recv()
    try:
        with quick_imports():
            import tensorflow as tf  # noqa: F401
        if assignment.job == "ps":
            _serve(connection)
        else:
            _work(assignment, connection)
    except (EOFError, BrokenPipeError):  # the trial is gone
        leave(False)
    except BaseException as error:
        if not isinstance(error, PipelineBenchError):
            traceback.print_exc()
        connection.send(Broke(bad_record.explained(error)))
        leave(False)
    leave(True)


def _serve(connection: Any) -> None:
    """Keep the variables until the trial ends this process."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    server, _ = _server(connection, "ps", 0, config)
    server.join()


def _server(connection: Any, job: str, index: int, config: Any) -> tuple[Any, Any]:
    """TensorFlow's server of this task, and the cluster; it sends its port first, and then receives every task's."""
    import tensorflow as tf

    train = tf.compat.v1.train
    with socket.socket() as held:  # until the server takes it, nobody else is given this port
        held.bind((HOST, 0))
        connection.send(messages.Listening(held.getsockname()[1]))
        addresses: messages.Addresses = connection.recv()
    cluster = train.ClusterSpec(addresses)
    for attempt in range(_SERVER_ATTEMPTS):
        try:
            return train.Server(cluster, job_name=job, task_index=index, config=config), cluster
        except tf.errors.UnknownError:
            if attempt == _SERVER_ATTEMPTS - 1:
                raise
            time.sleep(_ATTEMPT_EVERY_S)
    raise AssertionError


def _work(assignment: messages.Assignment, connection: Any) -> None:
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    variant, index = assignment.variant, assignment.number
    settings = cluster_graph.settings(variant, index)
    server, cluster = _server(connection, "worker", index, settings.config)
    built = cluster_graph.build(variant, index, cluster, settings)
    with tf.compat.v1.Session(server.target, config=settings.config) as session:
        session.run(built.init)
        connection.send(_ready(session, built))
        _await(connection, "go")
        _train(assignment, session, built, connection)
        if index == 0:
            _await(connection, "evaluate")
            connection.send(messages.Accuracy(_accuracy(session, built)))


def _await(connection: Any, order: str) -> None:
    while connection.recv() != messages.Order(order):  # type: ignore[arg-type]
        pass


def _ready(session: Any, built: WorkerGraph) -> messages.Ready:
    feeding = built.feeding
    values = sample_audit.values_per_sample(feeding.batch.features.shape)
    return messages.Ready(
        built.device, _accuracy(session, built), feeding.wait != "none", feeding.digest is not None, values
    )


def _accuracy(session: Any, built: WorkerGraph) -> float | None:
    return None if built.graph.accuracy is None else float(session.run(built.graph.accuracy))


def _train(assignment: messages.Assignment, session: Any, built: WorkerGraph, connection: Any) -> None:
    """Train until this worker has taken its last step, and report every step; then end the input."""
    import tensorflow as tf

    feeding = built.feeding
    reporter = Reporter(connection, assignment, built.digest_cost_us)
    training = Training(built.graph, feeding, built.init, _not_again)
    ended = threading.Event()

    def keep_reporting() -> None:
        while not ended.wait(REPORT_EVERY_S):
            reporter.report(time.monotonic_ns(), tuple(queue_states(session, feeding)))

    feeding.start(session)
    threading.Thread(target=keep_reporting, name="pipeline-bench reporter", daemon=True).start()
    try:
        if reporter.may_go_on():
            SessionLoop({}).run(session, training, reporter)
    except tf.errors.OutOfRangeError:
        if built.ends_by_closing is None or assignment.number == 0 or not connection.poll():
            feeding.stop(session)  # a producer's own exception comes first
            raise
    except Exception:
        feeding.stop(session)
        raise
    finally:
        ended.set()
    if built.ends_by_closing is not None and assignment.number == 0:
        session.run(built.ends_by_closing)
    stop_after_training(lambda: feeding.stop(session))
    reporter.report(math.inf)
    connection.send(messages.Trained())


def _not_again(sampled: Any) -> Step:
    raise PipelineBenchError("A worker of between_graph builds its step once.")


class Reporter(StepRecorder):
    """A recorder whose steps go to the trial's process.

    Asynchronous workers share the steps that are to be taken: each takes a ticket for one. Synchronous ones take as
    many as each other. Of a trial whose length is a time, the trial's process says when it is over. The trial's own
    watch hears of this worker's steps.

    Args:
        connection: to that process.
        assignment: of this worker.
        cost_us: about what a step takes longer when it is sampled; None: none can be.
    """

    def __init__(self, connection: Any, assignment: messages.Assignment, cost_us: float | None) -> None:
        self._connection = connection
        self._tickets = assignment.tickets
        self._last = assignment.variant.run.steps
        runtime = assignment.variant.runtime
        self._synchronous = runtime.synchronous
        self._asks = self._last is None and (assignment.number == 0 or not runtime.synchronous)
        self._sampling = None if cost_us is None else StepSampling(cost_us)
        self.should_sample = cost_us is not None
        self._taken = 0
        self._unsent: list[messages.ClusterStep] = []
        self._sent_ns = 0
        self._newest_ns = time.monotonic_ns()
        self._stuck_ns = assignment.variant.run.stall_timeout_s * 1e9 * _STUCK_SHARE
        self._lock = threading.Lock()

    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        digest: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool:
        """Take in a step; False when it was this worker's last one."""
        shown = () if digest is None else tuple(float(value) for value in digest)
        self._newest_ns = end_ns
        with self._lock:
            self._unsent.append(messages.ClusterStep(start_ns, end_ns, wait_ns, float(loss), shown))
        if end_ns - self._sent_ns > _SEND_EVERY_NS:
            self.report(end_ns)
        self._taken += 1
        if self._sampling is not None:
            self.should_sample = self._sampling.samples(self._taken, end_ns - start_ns)
        return self.may_go_on()

    @property
    def steps_left(self) -> int | None:
        """How many steps are still to be taken, of a synchronous trial that has a number of them."""
        return None if self._last is None or not self._synchronous else self._last - self._taken

    def report(self, until_ns: float, queues: tuple[QueueState, ...] = ()) -> None:
        """Send what was not sent yet.

        Args:
            until_ns: a time before which no further step has ended.
            queues: how full they are.
        """
        stacks: tuple[Stack, ...] = ()
        if time.monotonic_ns() - self._newest_ns > self._stuck_ns:
            stacks = thread_stacks()
        with self._lock:
            steps, self._unsent = tuple(self._unsent), []
            self._sent_ns = steps[-1].end_ns if steps else self._sent_ns
            with contextlib.suppress(BrokenPipeError):  # the trial is gone, and the kernel ends this process
                self._connection.send(messages.StepsTaken(steps, until_ns, queues, stacks))

    def may_go_on(self) -> bool:
        """Return whether there is another step for this worker, which it takes by asking."""
        if self._asks:
            return not self._connection.poll()
        if self._last is None:
            return True
        if self._synchronous:
            return self._taken < self._last
        try:
            return bool(os.eventfd_read(self._tickets))
        except BlockingIOError:
            return False


def main() -> None:
    """Run the task in a fresh interpreter: the pipe's file descriptor is the argument."""
    run(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
