"""One trial, from request to last event: ``python -m pipeline_bench.worker.main EVENTS_FD``, the trial on stdin."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pipeline_bench import plugins, replication
from pipeline_bench.errors import PipelineBenchError, UserCodeError
from pipeline_bench.model import task
from pipeline_bench.model.events import IMPORT, Failed, Hello
from pipeline_bench.model.trial import Trial
from pipeline_bench.system import main_thread
from pipeline_bench.system.processes import leave
from pipeline_bench.worker import bad_record
from pipeline_bench.worker.cluster import ClusterEngine
from pipeline_bench.worker.engine import Engine
from pipeline_bench.worker.pipeline_trial import PipelineEngine
from pipeline_bench.worker.recorder import Channel, Recorder
from pipeline_bench.worker.training_engines import EagerEngine, GraphEngine


def run_trial(trial: Trial, channel: Channel) -> NoReturn:
    """Run the trial, send the parent everything, and end the process: with 1 where it raised (see its stderr)."""
    # The parent's last resort against a trial that hangs with the GIL held: it asks for the stacks by signal.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    channel.send(Hello(pid=os.getpid(), at_ns=time.monotonic_ns()))
    recorder = Recorder(channel, trial.variant.run, warmed_up=_is_of_pipeline(trial))
    with _failures_sent(channel, lambda: recorder):
        engine = _engine(trial, channel, recorder)
        recorder.phase(IMPORT)
        engine.start_processes()  # before the process has another thread
        recorder.start()

    def run() -> NoReturn:
        with _failures_sent(channel, lambda: engine.recorder):
            engine.run()
        leave(True)

    if engine.runs_script:
        main_thread.lend(run)
    run()


@contextlib.contextmanager
def _failures_sent(channel: Channel, recorder: Callable[[], Recorder]) -> Iterator[None]:
    """Tell the parent what is raised in the block, and end the process; the recorder is the trial's of that moment."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, PipelineBenchError):  # those say all there is to say
            with contextlib.suppress(Exception):  # a user's code may have put something else in the place of stderr
                traceback.print_exc()
        dead = recorder().fail()
        users = error.traceback if isinstance(error, UserCodeError) else ""
        channel.send(Failed(error=dead or bad_record.explained(error), traceback=users))
        leave(False)


def _is_of_pipeline(trial: Trial) -> bool:
    return trial.variant.source.kind == task.KIND


def _engine(trial: Trial, channel: Channel, recorder: Recorder) -> Engine:
    """Return the engine that runs the trial."""
    if _is_of_pipeline(trial):
        return PipelineEngine(trial, channel, recorder)
    if replication.in_processes(trial.variant.runtime):
        return ClusterEngine(trial, channel, recorder)
    loop: Any = plugins.find("loops", trial.variant.loop.kind)
    return (EagerEngine if loop.execution == "eager" else GraphEngine)(trial, channel, recorder)


def main() -> None:
    """Run the trial that is given on stdin; the event pipe is the file descriptor given as the argument."""
    trial = Trial.model_validate_json(sys.stdin.read())
    run_trial(trial, Channel(int(sys.argv[1])))


if __name__ == "__main__":
    main()
