"""Which op ran on which device: one more step, of which TensorFlow is asked for the graphs that it made of it.

It is run after the measured steps and the accuracy, and before the input is ended, so that it costs no figure. What
TensorFlow runs is not the graph that was built: it is pruned, optimised, and cut into one part for each device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pipeline_bench.loops import EagerTraining, Training
from pipeline_bench.model.events import PlacedOp, Placement
from pipeline_bench.model.trial import Trial
from pipeline_bench.text import line_of

MOST_OPS = 5000
"""More ops than these are only counted: all are kept in the session's file."""

_TIMEOUT_MS = 20_000
_DEVICE = re.compile(r"(?P<process>/job:[^/]+(?:/replica:\d+)?/task:\d+)/device:(?P<device>\w+:\d+)")


def is_wanted(trial: Trial) -> bool:
    """Return whether the trial is to report it: the first repeat of a variant that asks for it."""
    return trial.variant.runtime.log_placement and trial.repeat == 0


def of_session(session: Any, training: Training) -> Placement:
    """Return the placement of one more step of the training graph; of a failure, the reason."""
    return _attempted(lambda: _graphs_of_session(session, training))


def of_function(training: EagerTraining) -> Placement:
    """Return the placement of one more step in a ``tf.function``; its dataset must not have ended."""
    return _attempted(lambda: _graphs_of_function(training))


def _attempted(find: Callable[[], Iterable[Any]]) -> Placement:
    try:
        return of_graphs(find())
    except Exception as error:
        return Placement(reason=f"the step that was to tell it failed: {line_of(error)}")


def _graphs_of_session(session: Any, training: Training) -> Iterable[Any]:
    import tensorflow as tf

    v1 = tf.compat.v1
    graph, feeding = training.graph, training.feeding
    feed = feeding.fetch(session) if feeding.wait == "fetch" else None
    options = v1.RunOptions(output_partition_graphs=True, timeout_in_ms=_TIMEOUT_MS)
    metadata = v1.RunMetadata()
    session.run([graph.train, graph.loss], feed, options=options, run_metadata=metadata)
    graphs: Iterable[Any] = metadata.partition_graphs
    return graphs


def _graphs_of_function(training: EagerTraining) -> Iterable[Any]:
    import tensorflow as tf
    from tensorflow.python.eager import context

    running = context.context()
    running.enable_graph_collection()  # a function's graph is collected when it is set up, at its first call
    try:
        tf.function(lambda: training.train_on(training.take()[0]), autograph=False)()
        metadata = running.export_run_metadata()
    finally:
        running.disable_graph_collection()
    return [part for function in metadata.function_graphs for part in function.partition_graphs]


def of_graphs(graphs: Iterable[Any]) -> Placement:
    """Return the placement that GraphDefs hold: each node with its device, by device and name; at most `MOST_OPS`."""
    nodes = sorted((str(node.device), str(node.name), str(node.op)) for graph in graphs for node in graph.node)
    if not nodes:
        return Placement(reason="TensorFlow told of no graph that it ran")
    found = [_DEVICE.search(device) for device, _, _ in nodes]
    alone = len({match["process"] for match in found if match}) <= 1
    ops = [
        PlacedOp(name=name, type=kind, device=_short(device, match, alone))
        for (device, name, kind), match in zip(nodes[:MOST_OPS], found, strict=False)
    ]
    return Placement(ops=tuple(ops), op_count=len(nodes))


def _short(device: str, match: re.Match[str] | None, alone: bool) -> str:
    """``CPU:0``, or ``/job:worker/task:1/CPU:0`` where there are several processes."""
    if match is None:
        return device or "no device"
    if alone:
        return match["device"]
    process = re.sub(r"/replica:\d+", "", match["process"])
    return f"{process}/{match['device']}"
