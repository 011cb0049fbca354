"""Watches one trial from the parent: its events, its samples, and whether it still moves."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Sequence

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model import pipeline, task
from pipeline_bench.model.events import (
    IMPORT,
    LONGEST_IMPORT_S,
    TRACE,
    TRAIN,
    Device,
    Done,
    Event,
    Failed,
    Phase,
    QueueDepths,
    QueueState,
    Stack,
    Stalled,
    Stopped,
)
from pipeline_bench.model.trial import TrialStatus
from pipeline_bench.run.launcher import Child
from pipeline_bench.run.observer import Observer
from pipeline_bench.run.trial_log import TrialLog
from pipeline_bench.samplers import Sampler
from pipeline_bench.system import interrupts
from pipeline_bench.system.processes import queued_s
from pipeline_bench.text import units

SAMPLE_EVERY_S = 0.1
"""How often a trial's samplers are polled; the selftest of a GPU polls as often."""
EXIT_WITHIN_S = 5.0

# The child's own watch speaks first, and needs up to a second for a queue that does not answer.
STALL_GRACE_S = 3.0

_STACKS_WITHIN_S = 0.5
_START = "start"
"""What a trial does before its first phase."""

# As `worker.recorder` writes them: a file inside its installation, or the last three parts of its path.
_OTHERS_FRAME = re.compile(r"tensorflow/|(lib/)?python3\.\d+/")

_MAIN_HINT = "what trains when the file is imported belongs under `if __name__ == '__main__':`"

ClockNs = Callable[[], int]
DeviceFound = Callable[[Device], None]


def watch(
    log: TrialLog,
    child: Child,
    samplers: Sequence[Sampler],
    observer: Observer,
    cores: int,
    on_device: DeviceFound = lambda _: None,
    clock_ns: ClockNs = time.monotonic_ns,
) -> TrialStatus:
    """Follow a trial to its end and leave its process gone; what it said and what was sampled is then in `log`.

    Of a trial that went through it is left where it waits for a further one.

    Raises:
        KeyboardInterrupt: the user interrupted; the process is gone and `log` holds what came before.
    """
    try:
        _follow(log, child, samplers, observer, cores, on_device, clock_ns)
        if not (log.over or child.ended or child.dead):
            _ask_for_stacks(child)
            return "stalled"
        if log.latest(Stalled) is not None:
            return "stalled"
        done = log.latest(Done)
        child.waits = done is not None and done.reusable and not log.frozen_s
        if child.waits:
            return "ok"
        child.wait(EXIT_WITHIN_S)
        if done is not None:
            if not log.frozen_s:
                return "ok"
            log.apply(Failed(error=_frozen(log.frozen_s)))
        if log.latest(Failed) is None:
            log.apply(Failed(error=f"its process {child.explain_end()}"))
        return "failed"
    except PipelineBenchError as error:
        log.apply(Failed(error=error.message))
        return "failed"
    finally:
        if not child.waits:
            child.close()


def _follow(
    log: TrialLog,
    child: Child,
    samplers: Sequence[Sampler],
    observer: Observer,
    cores: int,
    on_device: DeviceFound,
    clock_ns: ClockNs,
) -> None:
    next_ns = clock_ns()
    # While it starts, on a busy machine perhaps; later a loop without end that has to share its core is a stall, too.
    silent = interrupts.Waited(
        lambda: clock_ns() / 1e9, lambda: queued_s(child.pid) if _phase(log) in (_START, IMPORT) else 0.0
    )
    while not (child.ended or log.over):
        interrupts.check()
        events = child.read((next_ns - clock_ns()) / 1e9)
        log.look(clock_ns())
        for event in events:
            log.apply(event)
            if isinstance(event, Device):
                on_device(event)
        if _moves(events, child.heard):
            silent.restart()
        now_ns = clock_ns()
        # At a phase's edge as well: CPU time is interpolated between samples, and must not reach across it.
        if now_ns >= next_ns or any(isinstance(event, Phase) for event in events):
            for sampler in samplers:
                log.take(sampler.poll())
        if now_ns >= next_ns:
            observer.progress(log.trial, log.progress(now_ns, cores))
            next_ns = clock_ns() + round(SAMPLE_EVERY_S * 1e9)
            if not events and child.dead:
                _drain(log, child)
                return  # it has ended, and a process that it started holds its pipe open
        if silent.seconds() > _patience_s(log) + STALL_GRACE_S:
            return


def _frozen(seconds: float) -> str:
    return (
        f"it was stopped for {units.seconds(seconds)}, and this program with it, as by a paused container: what it "
        "measured is no figure"
    )


def _patience_s(log: TrialLog) -> float:
    """Return how long a trial may be silent. While it loads TensorFlow's library no thread of it may run."""
    stall_timeout_s = log.trial.variant.run.stall_timeout_s
    return max(stall_timeout_s, LONGEST_IMPORT_S) if _phase(log) == IMPORT else stall_timeout_s


def _phase(log: TrialLog) -> str:
    return log.phases[-1].name if log.phases else _START


def _moves(events: Sequence[Event], heard: bool) -> bool:
    """Return whether what came shows that the trial makes progress: events, or a part of one.

    Depths of queues and silences do not: the child's recorder sends them as long as it lives, whether or not a step
    ends, and its own watch may be kept from telling of a stall by what the user's code does.
    """
    return any(not isinstance(event, QueueDepths | Stopped) for event in events) or (heard and not events)


def _drain(log: TrialLog, child: Child) -> None:
    """Take in what a child that has ended still said."""
    while events := child.read(0):
        for event in events:
            log.apply(event)


def _ask_for_stacks(child: Child) -> None:
    """Ask the child's faulthandler for every thread's stack, on its stderr: that works with the GIL held, too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(child.pid, signal.SIGUSR1)
        time.sleep(_STACKS_WITHIN_S)


def reason(log: TrialLog, status: TrialStatus) -> str | None:
    """Return why a trial did not end well; None of one that did."""
    if status == "failed":
        failed = log.latest(Failed)
        return failed.error if failed else "failed"
    if status == "interrupted":
        return f"after {units.count(log.count, 'step')}"
    return _stall_reason(log) if status == "stalled" else None


def _stall_reason(log: TrialLog) -> str:
    """Return which backend made no step, how full its queues were, and where its threads stood."""
    variant, stalled = log.trial.variant, log.latest(Stalled)
    phase = _phase(log)
    doing = f"in its phase {phase!r}" if phase not in (TRACE, TRAIN) else f"after step {log.count}"
    own = variant.source.kind == task.KIND
    who = "your pipeline gave no element" if own else f"the backend {variant.backend} made no step"
    longer = " (elements that take longer need a larger --stall-timeout)" * own
    parts = [f"{who} for {variant.run.stall_timeout_s:g} s {doing}{longer}"]
    if stalled is not None and stalled.phase == task.MODEL_STEP:
        parts = [
            f"a step of your model did not end within {variant.run.stall_timeout_s:g} s, {doing}; its batch was there "
            "(slower steps need a larger --stall-timeout)"
        ]
    if stalled is not None and stalled.phase == task.REBUILDING:
        parts = [f"with this change the pipeline was not made within {variant.run.stall_timeout_s:g} s"]
    elif phase == IMPORT:
        parts = [f"TensorFlow, or a process that the trial needs, did not start within {_patience_s(log):g} s"]
    elif own and phase == "build":
        target = pipeline.Target.model_validate(variant.source.options["target"])
        what = "your script did not reach its training" if target.is_script else "your function did not return"
        parts = [f"{what} within {variant.run.stall_timeout_s:g} s"]
        is_first = variant.source.options.get("activity") == "inspect"
        parts += [_MAIN_HINT] if is_first and not target.is_script else []
    if phase == TRAIN and (steps := variant.steps_in_a_call) > 1:
        parts[0] += f" (the loop reports {steps} at a time, so they must end within the stall timeout)"
    if stalled is None:
        return f"{parts[0]}; the trial could not report it; the stacks of its Python threads are in its stderr"
    parts += [_queue_text(queue) for queue in stalled.queues]
    stood: dict[str, list[str]] = {}
    for stack in stalled.stacks:
        if not own or _is_theirs(innermost(stack)):
            stood.setdefault(innermost(stack), []).append(stack.thread)
    parts += [f"{_threads_text(threads)} at {place}" for place, threads in stood.items()]
    return "; ".join(parts)


def _threads_text(threads: Sequence[str]) -> str:
    first, *others = threads
    return f"{first} and {units.count(len(others), 'other thread')} were" if others else f"{first} was"


def _is_theirs(frame: str) -> bool:
    """Return whether a frame is the user's own code: neither a library's nor this program's."""
    return not _OTHERS_FRAME.match(frame) and not frame.startswith("pipeline_bench/")


def _queue_text(queue: QueueState) -> str:
    return f"its queue {queue.name} {'did not answer' if queue.filling is None else f'held {queue.filling}'}"


def innermost(stack: Stack) -> str:
    """Return the innermost frame that is neither TensorFlow's nor the standard library's, else the innermost."""
    own = [frame for frame in stack.frames if not _OTHERS_FRAME.match(frame)]
    return (own or list(stack.frames) or ["an unknown place"])[-1]
