"""One trial, from request to last event: ``python -m pipeline_bench.worker.main EVENTS_FD``, the trial on stdin."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pipeline_bench import plugins, replication, user_pipeline
from pipeline_bench.backends import Input
from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.model.events import Device, Done, Evaluated, Failed, Hello, QueueState
from pipeline_bench.model.trial import Trial
from pipeline_bench.processes import leave
from pipeline_bench.worker import (
    accounting,
    between_graph,
    building,
    culprit,
    eager_training,
    pipeline_trial,
    placement,
    queues,
    runtime,
)
from pipeline_bench.worker.building import Built
from pipeline_bench.worker.channel import Channel
from pipeline_bench.worker.recorder import Recorder
from pipeline_bench.worker.tasks import Task


def run_trial(trial: Trial, channel: Channel) -> bool:
    """Run the trial and tell the parent everything; False when it raised (the traceback is then on stderr)."""
    # The parent's last resort against a trial that hangs with the GIL held: it asks for the stacks by signal.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    channel.send(Hello(pid=os.getpid(), at_ns=time.monotonic_ns()))
    recorder = Recorder(channel, trial.variant.run)
    try:
        replicas = _replicas(trial, recorder)
        if trial.variant.source.kind == user_pipeline.KIND:
            pipeline_trial.run(trial, channel, recorder)
        elif replicas is not None:
            between_graph.run(trial, replicas, channel, recorder)
        elif plugins.find("loops", trial.variant.loop.kind).execution == "eager":  # type: ignore[attr-defined]
            eager_training.run(trial, channel, recorder)
        else:
            _train(trial, channel, recorder)
    except BaseException as error:
        if not isinstance(error, PipelineBenchError):  # those say all there is to say
            traceback.print_exc()
        recorder.finish()
        users = error.traceback if isinstance(error, UserCodeError) else ""
        channel.send(Failed(error=culprit.explained(error), traceback=users))
        return False
    return True


def _replicas(trial: Trial, recorder: Recorder) -> Sequence[Task] | None:
    """Start the recorder, and before it has a thread, the processes of replicas that have some of their own."""
    try:
        return between_graph.start(trial.variant, recorder) if replication.in_processes(trial.variant.runtime) else None
    finally:
        recorder.start()


def _train(trial: Trial, channel: Channel, recorder: Recorder) -> None:
    recorder.phase("import")
    import tensorflow as tf

    variant = trial.variant
    tf.compat.v1.disable_eager_execution()
    recorder.phase("build")
    model: Any = plugins.find("models", variant.model.kind)(variant.model.options)
    settings = runtime.of_model(model, variant.runtime)
    config = runtime.session_config(settings)
    device = runtime.accelerator(settings)
    runtime.set_up(settings, device)
    built = building.build(variant, model, device, config)
    feeding = built.feeding
    loop: Any = plugins.find("loops", variant.loop.kind)(variant.loop.options)
    loop.build(built.training)
    init = tf.compat.v1.global_variables_initializer()  # a loop that builds the step again makes variables of its own
    with tf.compat.v1.Session(config=config) as session:
        emulated = Device(kind="emulated", name=model.emulated_device) if model.emulated_device else None
        channel.send(emulated or runtime.describe(device, config))
        session.run(init)
        recorder.has_wait = feeding.wait != "none"
        recorder.has_busy = built.graph.busy_s is not None
        recorder.queue_sizes = lambda: _queue_states(loop, session, feeding)
        _evaluate("before", session, built, channel, recorder)
        keeper = None
        if feeding.wait != "none":
            accounting.open_account(_accountable(built), channel, recorder)
            keeper = accounting.prepare_storage(built.source, recorder)
        recorder.phase("train")
        if keeper is not None:
            keeper.start()

        def before_end() -> None:
            if placement.is_wanted(trial):  # its step trains once more
                _evaluate("after", session, built, channel, recorder)
                placement.tell(trial, loop, session, built, channel)

        with culprit.named(built.source, config, lambda: _stand(trial, built, recorder)):
            if not loop.starts_input:
                feeding.start(session)
            _drive(loop, session, built, recorder, before_end)
        if keeper is not None:
            channel.send(keeper.close())
        if not placement.is_wanted(trial):
            _evaluate("after", session, built, channel, recorder)
        culprit.enter_skipped(built.source, session, config)
        recorder.finish()
        channel.send(Done(at_ns=time.monotonic_ns()))


def _evaluate(
    when: Literal["before", "after"], session: Any, built: Built, channel: Channel, recorder: Recorder
) -> None:
    """Tell the accuracy, of a model that has one."""
    recorder.phase("evaluate")
    if built.graph.accuracy is not None:
        channel.send(Evaluated(when=when, accuracy=float(session.run(built.graph.accuracy))))


def _drive(loop: Any, session: Any, built: Built, recorder: Recorder, before_end: Callable[[], None]) -> None:
    """Run the loop; a producer's own exception comes before the 'queue is closed' that it causes in the step.

    `before_end` is called when the last step has ended and the input still runs.
    """
    try:
        loop.run(session, built.training, recorder)
        before_end()
    except Exception:
        built.feeding.stop(session)
        raise
    built.feeding.stop(session)


def _accountable(built: Built) -> accounting.Accountable:
    feeding = built.feeding
    shape = feeding.batch.features.shape
    return accounting.Accountable(built.source, feeding.evidence is not None, shape, feeding.reorder_window)


def _stand(trial: Trial, built: Built, recorder: Recorder) -> culprit.Stand:
    return accounting.stand(trial, built.source, built.feeding.reorder_window, recorder)


def _queue_states(loop: Any, session: Any, feeding: Input) -> Sequence[QueueState]:
    states = loop.queue_states()
    return queues.states(session, feeding) if states is None else states


def main() -> None:
    """Run the trial that is given on stdin; the event pipe is the file descriptor given as the argument."""
    trial = Trial.model_validate_json(sys.stdin.read())
    ok = run_trial(trial, Channel(int(sys.argv[1])))
    leave(ok)


if __name__ == "__main__":
    main()
