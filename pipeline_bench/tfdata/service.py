"""A tf.data service of the trial's own: a dispatcher and workers, processes that end with it; and whether one answers.

A client of the service waits for ever for a process that is gone. Whoever waits asks `why_dead`, or watches the trial
for progress and ends it.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.graph_ops import PYTHON_OPS
from pipeline_bench.system import children
from pipeline_bench.system.children import Broke, Process
from pipeline_bench.system.processes import leave, quick_imports
from pipeline_bench.text import line_of, message_of, units

HOST = "localhost"
SCHEME = "grpc://"
LAST_PORT = 65535
WORKER = "tf.data service worker"
_READY_S = 60.0
"""A fresh interpreter imports TensorFlow first."""
_STOPPED_S = 5.0
"""For how long one may be stopped before all of them serve."""
_ANSWER_S = 2.0
_HEARTBEAT_MS = 200
# RFC 9113: the preface of a client and an empty SETTINGS frame; a server answers with its own, whose type is 4.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS = 4


class _Assignment(NamedTuple):
    """What a process is sent first: the port of its server, and whom it belongs to."""

    port: int
    dispatcher: str | None
    """Host and port that a worker registers with; None of the dispatcher."""
    workers: Sequence[str]
    """Host and port of every worker: a policy that gives each a fixed part has to know them."""


class ServiceProcesses:
    """A dispatcher and so many workers on loopback: processes, started when it is made.

    Args:
        workers: how many.
        can_fork: whether they may be forks of this process.
        dispatch_here: whether the dispatcher is a server inside this process, which then has TensorFlow in use. The
            workers, which may be forked before that, wait for `start_servers`.

    Raises:
        PipelineBenchError: one did not start.
    """

    address = ""
    """Of the dispatcher, with its scheme; once it serves."""

    def __init__(self, workers: int, *, can_fork: bool, dispatch_here: bool = False) -> None:
        run = serve if can_fork else __name__
        self._workers = workers
        self._processes: list[Process] = []
        self._addresses: Sequence[str] = ()
        self._dispatcher: Any = None
        jobs = [*([] if dispatch_here else [("dispatcher", 0)]), *((WORKER, index) for index in range(workers))]
        try:
            for job, index in jobs:
                self._processes.append(children.start(job, index, self._processes, run))
            if not dispatch_here:
                self.start_servers()
        except BaseException:
            self.end()
            raise

    def start_servers(self) -> None:
        """Start the server of the dispatcher, and then those of the workers, which look for it at once.

        Raises:
            PipelineBenchError: one did not start.
        """
        port, *ports = _free_ports(self._workers + 1)
        dispatcher, *addresses = [f"{HOST}:{each}" for each in (port, *ports)]
        self.address = SCHEME + dispatcher
        workers = self._processes[-self._workers :]
        dispatches = _Assignment(port, None, addresses)
        if len(self._processes) > len(workers):
            self._addresses = [dispatcher, *addresses]
            self._assign(self._processes[:1], [dispatches])
        else:
            self._addresses = addresses
            self._dispatcher = _server(dispatches)
        self._assign(workers, [_Assignment(each, dispatcher, ()) for each in ports])

    def _assign(self, processes: Sequence[Process], assignments: Sequence[_Assignment]) -> None:
        """Send each process what it is to be, and wait until all of them are."""
        for process, assignment in zip(processes, assignments, strict=True):
            process.connection.send(assignment)
        self._wait_for(processes)

    def _wait_for(self, processes: Sequence[Process]) -> None:
        end_s = time.monotonic() + _READY_S
        waiting = set(processes)
        while waiting:
            if (silent := self.why_silent(_STOPPED_S)) is not None:  # the workers wait for a dispatcher that is stopped
                raise PipelineBenchError(silent)
            if not any(process.connection.poll(0.05) for process in waiting) and time.monotonic() > end_s:
                raise PipelineBenchError(f"{min(p.label for p in waiting)} did not start in {units.seconds(_READY_S)}.")
            if any(process.connection.poll() for process in self._processes):
                waiting -= {process for process, _ in children.hear(self._processes)}

    def why_dead(self, stalled_s: float | None) -> str | None:
        """See `Backend.why_dead`."""
        ended = next((process for process in self._processes if process.look() is not None), None)
        if ended is not None:
            return children.why_ended(self._processes, ended)
        if stalled_s is None:
            return None
        for process, address in zip(self._processes, self._addresses, strict=False):  # none before they serve
            state = "is stopped" if process.stopped_s is not None else "does not answer"
            if process.stopped_s is not None or not answers(address):
                return f"{process.label} {state}, and no step came for {stalled_s:g} s"
        return None

    def why_silent(self, limit_s: float) -> str | None:
        """See `Backend.why_silent`."""
        for process in self._processes:
            process.look()
            if process.stopped_s is not None and time.monotonic() - process.stopped_s >= limit_s:
                return f"{process.label} has been stopped for {limit_s:g} s"
        return None

    def was_silent(self) -> list[str]:
        """Return a sentence on each process that is stopped: what it holds is not on its way."""
        return [f"{process.label} was stopped" for process in self._processes if process.stopped_s is not None]

    @property
    def pids(self) -> list[int]:
        """The process ids, the dispatcher's first."""
        return [process.pid for process in self._processes]

    def end(self) -> None:
        """End every process; safe to call twice."""
        for process in reversed(self._processes):
            process.end()
        self._processes = []
        if self._dispatcher is not None:
            self._dispatcher._stop()
            self._dispatcher = None


_started: list[ServiceProcesses] = []
"""The worker of this trial, once: it runs as long as somebody holds it."""


def start_worker(*, can_fork: bool) -> ServiceProcesses:
    """Start the process that `offload` will have run a dataset: it takes a fresh interpreter seconds until it can."""
    _started.append(ServiceProcesses(1, can_fork=can_fork, dispatch_here=True))
    return _started[-1]


def offload(dataset: Any) -> Any:
    """Return the dataset, run as it is by the worker that `start_worker` has started.

    Raises:
        PipelineBenchError: it runs Python, which other processes do not have, or the worker did not start.
    """
    check_serializable(dataset)
    (processes,) = _started
    if not processes.address:
        processes.start_servers()
    return distribute(dataset, "OFF", processes.address, None)


def distribute(dataset: Any, policy: str, dispatcher: str, compression: str | None = "AUTO") -> Any:
    """Return the dataset, run by the workers of a service.

    Args:
        dataset: runs no Python.
        policy: the name of a `ShardingPolicy`.
        dispatcher: its address.
        compression: of what crosses; None: none.

    Raises:
        PipelineBenchError: it cannot be.
    """
    import tensorflow as tf

    service = tf.data.experimental.service
    try:
        crossing = service.distribute(service.ShardingPolicy[policy], dispatcher, compression=compression)
        return dataset.apply(crossing)
    except (tf.errors.OpError, ValueError) as error:
        raise PipelineBenchError(f"The pipeline cannot go to tf.data service workers: {_first_line(error)}") from error


def check_serializable(dataset: Any) -> None:
    """Check that other processes can run a dataset.

    Raises:
        PipelineBenchError: it runs Python, or holds what cannot be sent.
    """
    import tensorflow as tf

    try:
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=dataset._variant_tensor, external_state_policy=1, strip_device_assignment=True
        )
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    except (tf.errors.OpError, ValueError) as error:
        reason = _first_line(error)
        raise PipelineBenchError(f"The pipeline cannot be sent to tf.data service workers: {reason}") from error
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    if any(node.op in PYTHON_OPS for node in nodes):
        raise PipelineBenchError("The pipeline runs Python functions, which tf.data service workers do not have.")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in message_of(error).splitlines() if line.strip()), type(error).__name__)[:300]


def answers(address: str) -> bool:
    """Return whether a gRPC server answers at host:port, which a stopped process does not, though it is connected."""
    host, _, given = address.removeprefix(SCHEME).rpartition(":")
    try:
        if not 1 <= (port := int(given)) <= LAST_PORT:  # a larger one would stand for another
            return False
        with socket.create_connection((host.strip("[]"), port), _ANSWER_S) as connection:
            connection.sendall(_HELLO)
            return connection.recv(4)[3:] == bytes([_SETTINGS])
    except (OSError, ValueError):
        return False


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; in a network of the trial's own they stay so."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def serve(connection: Any) -> None:
    """Run the dispatcher or the worker that the first message names; does not return."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        with quick_imports():
            import tensorflow as tf  # noqa: F401 - while it waits for what it is to be

        server = _server(connection.recv())
        connection.send("ready")
        server.join()
    except (EOFError, BrokenPipeError):  # the trial is gone
        leave(False)
    except BaseException as error:
        traceback.print_exc()
        connection.send(Broke(line_of(error)))
        leave(False)


def _server(assignment: _Assignment) -> Any:
    import tensorflow as tf

    service = tf.data.experimental.service
    if assignment.dispatcher is None:
        return service.DispatchServer(
            service.DispatcherConfig(port=assignment.port, worker_addresses=list(assignment.workers))
        )
    return service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=assignment.dispatcher,
            worker_address=f"{HOST}:{assignment.port}",
            port=assignment.port,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
    )


if __name__ == "__main__":
    import sys

    serve(Connection(int(sys.argv[1])))
