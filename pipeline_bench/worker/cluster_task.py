"""One process of a between_graph trial: ``python -m pipeline_bench.worker.cluster_task FD``, where not forked.

The parameter server keeps the variables. Each worker builds the model once more, with an input of its own, which gives
its part of each batch, and trains it with the loop `session`.
"""

from __future__ import annotations

import math
import socket
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from time import monotonic_ns
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.loops import Step, Training
from pipeline_bench.loops.session import SessionLoop
from pipeline_bench.processes import leave
from pipeline_bench.worker import culprit, evidence, queues, worker_graph
from pipeline_bench.worker.reporter import Reporter
from pipeline_bench.worker.tasks import Accuracy, Addresses, Assignment, Broke, Listening, Order, Ready, Trained
from pipeline_bench.worker.worker_graph import WorkerGraph

HOST = "127.0.0.1"
TELL_EVERY_S = 0.25
# The port was ours until the moment before: whoever took it is about to give it back.
_SERVER_ATTEMPTS, _ATTEMPT_EVERY_S = 20, 0.1


def run(connection: Any) -> None:
    """Be the task that the first message says; does not return."""
    assignment: Assignment = connection.recv()
    try:
        if assignment.job == "ps":
            _serve(connection)
        else:
            _work(assignment, connection)
    except (EOFError, BrokenPipeError):  # the trial is gone
        leave(False)
    except BaseException as error:
        if not isinstance(error, PipelineBenchError):
            traceback.print_exc()
        connection.send(Broke(culprit.explained(error)))
        leave(False)
    leave(True)


def _serve(connection: Any) -> None:
    """Keep the variables until the trial ends this process."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    server, _ = _server(connection, "ps", 0, config)
    server.join()


def _server(connection: Any, job: str, index: int, config: Any) -> tuple[Any, Any]:
    """TensorFlow's server of this task, and the cluster; its port is told first, and every task's heard then."""
    import tensorflow as tf

    train = tf.compat.v1.train
    with socket.socket() as held:  # until the server takes it, nobody else is given this port
        held.bind((HOST, 0))
        connection.send(Listening(held.getsockname()[1]))
        addresses: Addresses = connection.recv()
    cluster = train.ClusterSpec(addresses)
    for attempt in range(_SERVER_ATTEMPTS):
        try:
            return train.Server(cluster, job_name=job, task_index=index, config=config), cluster
        except tf.errors.UnknownError:
            if attempt == _SERVER_ATTEMPTS - 1:
                raise
            time.sleep(_ATTEMPT_EVERY_S)
    raise AssertionError


def _work(assignment: Assignment, connection: Any) -> None:
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    variant, index = assignment.variant, assignment.number
    settings = worker_graph.settings(variant, index)
    server, cluster = _server(connection, "worker", index, settings.config)
    built = worker_graph.build(variant, index, cluster, settings)
    with tf.compat.v1.Session(server.target, config=settings.config) as session:
        session.run(built.init)
        connection.send(_ready(session, built))
        _await(connection, "go")
        _train(assignment, session, built, connection)
        if index == 0:
            _await(connection, "evaluate")
            connection.send(Accuracy(_accuracy(session, built)))


def _await(connection: Any, order: str) -> None:
    while connection.recv() != Order(order):  # type: ignore[arg-type]
        pass


def _ready(session: Any, built: WorkerGraph) -> Ready:
    feeding = built.feeding
    values = evidence.values_per_sample(feeding.batch.features.shape)
    return Ready(built.device, _accuracy(session, built), feeding.wait != "none", feeding.evidence is not None, values)


def _accuracy(session: Any, built: WorkerGraph) -> float | None:
    return None if built.graph.accuracy is None else float(session.run(built.graph.accuracy))


def _train(assignment: Assignment, session: Any, built: WorkerGraph, connection: Any) -> None:
    """Train until this worker has taken its last step, and tell of every step; then end the input."""
    import tensorflow as tf

    feeding = built.feeding
    reporter = Reporter(connection, assignment, built.evidence_cost_us)
    training = Training(built.graph, feeding, built.init, _not_again)
    ended = threading.Event()

    def keep_telling() -> None:
        while not ended.wait(TELL_EVERY_S):
            reporter.tell(monotonic_ns(), tuple(queues.states(session, feeding)))

    feeding.start(session)
    threading.Thread(target=keep_telling, name="pipeline-bench reporter", daemon=True).start()
    try:
        if reporter.may_begin():
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
    feeding.stop(session)
    reporter.tell(math.inf)
    connection.send(Trained())


def _not_again(sampled: Any) -> Step:
    raise PipelineBenchError("A worker of between_graph builds its step once.")


def main() -> None:
    """Run the task in a fresh interpreter: the pipe's file descriptor is the argument."""
    run(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
