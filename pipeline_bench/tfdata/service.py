"""Runs a pipeline in tf.data service workers: processes of their own on this machine, ended with this one.

The dispatcher is a server inside this process. A worker that is killed leaves the client waiting for ever, without an
error; what watches this process for progress has to end it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.graph_ops import PYTHON_OPS
from pipeline_bench.system.processes import module_command
from pipeline_bench.text import message_of, units

_READY_S = 60.0
"""Each worker imports TensorFlow first."""
_running: list[Any] = []
"""The dispatchers and workers of this process: they run as long as somebody holds them."""


def offload(dataset: Any, workers: int) -> Any:
    """The dataset, run by so many worker processes; each sample arrives once.

    One worker runs the pipeline as it is. Several divide its source among them as they go, so that the order changes.

    Raises:
        PipelineBenchError: it runs Python, which other processes do not have, or the workers did not start.
    """
    import tensorflow as tf

    _check(dataset)
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    _running.append(dispatcher)
    processes = [_start(address) for _ in range(workers)]
    _running.extend(processes)
    _wait(dispatcher, processes)
    policy = service.ShardingPolicy.OFF if workers == 1 else service.ShardingPolicy.DYNAMIC
    try:
        return dataset.apply(service.distribute(policy, dispatcher.target, compression=None))
    except (tf.errors.OpError, ValueError) as error:
        raise PipelineBenchError(f"The pipeline cannot go to tf.data service workers: {_first_line(error)}") from error


def _check(dataset: Any) -> None:
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


def _start(address: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(module_command(__name__, address), stdin=subprocess.DEVNULL, env=environment)


def _wait(dispatcher: Any, processes: list[subprocess.Popen[bytes]]) -> None:
    end_s = time.monotonic() + _READY_S
    while dispatcher._num_workers() < len(processes):
        ended = [process for process in processes if process.poll() is not None]
        if ended:
            raise PipelineBenchError(f"A tf.data service worker ended at its start (status {ended[0].returncode}).")
        if time.monotonic() > end_s:
            raise PipelineBenchError(f"The tf.data service workers did not start within {units.seconds(_READY_S)}.")
        time.sleep(0.05)


def stop() -> None:
    """End the workers that were started here, where the process goes on without them."""
    for one in _running:
        if isinstance(one, subprocess.Popen):
            one.kill()
            one.wait()
        else:
            one._stop()
    _running.clear()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in message_of(error).splitlines() if line.strip()), type(error).__name__)[:300]


def main() -> None:
    """Be a worker of the dispatcher whose address is the argument, until the process that started this one ends."""
    import tensorflow as tf

    service = tf.data.experimental.service
    service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[1], heartbeat_interval_ms=200)).join()


if __name__ == "__main__":
    main()
