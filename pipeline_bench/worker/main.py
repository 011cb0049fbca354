"""One trial, from request to last event: ``python -m pipeline_bench.worker.main EVENTS_FD``, the trial on stdin."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.backends import Input
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.events import Device, Done, Evaluated, Failed, Hello, QueueState
from pipeline_bench.models import TrainingGraph
from pipeline_bench.trial import Trial
from pipeline_bench.worker import runtime
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.recorder import Recorder

_QUEUE_ANSWER_MS = 1000
_SAYS_NOTHING = ("Graph execution error", "Detected at", "File ", "Node:")
_PR_SET_PDEATHSIG = 1


def run_trial(trial: Trial, channel: Channel) -> bool:
    """Run the trial and tell the parent everything; False when it raised (the traceback is then on stderr)."""
    # The parent's last resort against a trial that hangs with the GIL held: it asks for the stacks by signal.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    channel.send(Hello(pid=os.getpid(), at_ns=time.monotonic_ns()))
    recorder = Recorder(channel, trial.variant.run)
    recorder.start()
    try:
        _train(trial, channel, recorder)
    except BaseException as error:
        if not isinstance(error, PipelineBenchError):  # those say all there is to say
            traceback.print_exc()
        recorder.finish()
        channel.send(Failed(error=_one_line(error)))
        return False
    return True


def _train(trial: Trial, channel: Channel, recorder: Recorder) -> None:
    recorder.phase("import")
    import tensorflow as tf

    variant = trial.variant
    tf.compat.v1.disable_eager_execution()
    recorder.phase("build")
    config = runtime.session_config(variant.runtime)
    device = runtime.accelerator(variant.runtime)
    graph, source, init = _build(trial, device, config)
    loop: Any = plugins.find("loops", variant.loop.kind)(variant.loop.options)
    with tf.compat.v1.Session(config=config) as session:
        channel.send(runtime.describe(device, config) if device else Device(kind="cpu", name="CPU:0"))
        session.run(init)
        recorder.has_wait = source.wait != "none"
        recorder.queue_sizes = lambda: _queue_sizes(session, source)
        recorder.phase("evaluate")
        channel.send(Evaluated(when="before", accuracy=float(session.run(graph.accuracy))))
        recorder.phase("train")
        source.start(session)
        _drive(loop, session, graph, source, recorder)
        recorder.phase("evaluate")
        channel.send(Evaluated(when="after", accuracy=float(session.run(graph.accuracy))))
        recorder.finish()
        channel.send(Done(at_ns=time.monotonic_ns()))


def _drive(loop: Any, session: Any, graph: TrainingGraph, source: Input, recorder: Recorder) -> None:
    """Run the loop; a producer's own exception comes before the 'queue is closed' that it causes in the step."""
    try:
        loop.run(session, graph, source, recorder.record)
    except Exception:
        source.stop(session)
        raise
    source.stop(session)


def _build(trial: Trial, device: str | None, config: Any) -> tuple[TrainingGraph, Input, Any]:
    """The model's graph, its input, and the op that initialises the variables."""
    import tensorflow as tf

    v1 = tf.compat.v1
    variant = trial.variant
    source: Any = plugins.find("sources", variant.source.kind)(variant.source.options)
    backend: Any = plugins.find("backends", variant.backend)(variant.options)
    model: Any = plugins.find("models", variant.model.kind)(variant.model.options)
    source.prepare(config)
    v1.set_random_seed(variant.run.seed)
    feeding = backend.connect(source, device)
    with tf.device("/cpu:0"):
        evaluation = source.sample_batch("evaluation")
    with tf.device(device):
        graph = model.build(feeding.batch, evaluation)
    return graph, feeding, v1.global_variables_initializer()


def _queue_sizes(session: Any, source: Input) -> Sequence[QueueState]:
    """How full the input's queues are; a queue that does not answer in time has no size."""
    import tensorflow as tf

    options = tf.compat.v1.RunOptions(timeout_in_ms=_QUEUE_ANSWER_MS)
    states = []
    for queue in source.queues():
        try:
            size = int(session.run(queue.size, options=options))
        except tf.errors.OpError:
            size = None
        states.append(QueueState(name=queue.name, size=size, capacity=queue.capacity))
    return states


def _one_line(error: BaseException) -> str:
    """The exception as a reader wants it: its type and the first line of its message."""
    if isinstance(error, PipelineBenchError):
        return f"{error.message} {error.hint}".strip()
    lines = [line.strip() for line in str(getattr(error, "message", None) or error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_SAYS_NOTHING)]
    return f"{type(error).__name__}: {telling[0] if telling else ''}".removesuffix(": ")


def main() -> None:
    """Run the trial that is given on stdin; the event pipe is the file descriptor given as the argument."""
    die_with_parent()
    trial = Trial.model_validate_json(sys.stdin.read())
    ok = run_trial(trial, Channel(int(sys.argv[1])))
    leave(ok)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def leave(ok: bool) -> None:
    """End the process at once: TensorFlow's threads may be blocked for ever, and nothing is left to tear down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if ok else 1)


if __name__ == "__main__":
    main()
