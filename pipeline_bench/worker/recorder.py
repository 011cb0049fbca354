"""Keeps a trial's steps in preallocated arrays and ships them now and then from a thread of its own.

The training thread only appends numbers. The shipping thread wakes a few times a second and sends what is new. It also
asks for the queues' depths, gives the digests of sampled steps to the audit, and is the trial's own watch: when neither
a step nor a phase has come for the stall timeout, it reports where the threads are.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePath
from time import monotonic_ns, process_time_ns  # by themselves: a user's code may replace the module's
from typing import Any

import numpy as np

from pipeline_bench import user_code
from pipeline_bench.loops import SamplingRule, StepRecorder
from pipeline_bench.model import Series
from pipeline_bench.model.events import (
    IMPORT,
    LONGEST_IMPORT_S,
    STOPPED_NS,
    TRAIN,
    Event,
    Failed,
    Phase,
    PhaseName,
    QueueDepths,
    QueueState,
    Stack,
    Stalled,
    Steps,
    Stopped,
    Work,
    encode,
)
from pipeline_bench.model.task import MODEL_STEP
from pipeline_bench.scenario import Run
from pipeline_bench.system import main_thread
from pipeline_bench.system.files import identity
from pipeline_bench.system.processes import leave, queued_s
from pipeline_bench.text import line_of
from pipeline_bench.user_code import installed
from pipeline_bench.worker.sample_audit import SampleAudit, StepSampling

SHIP_EVERY_S = 0.25
_BLOCK_STEPS = 4096
_READ_BYTES = 1 << 16
_FRAMES_KEPT = 12
# How many times in a stall timeout a long phase says that it goes on.
_SIGNS_OF_LIFE = 4
_LONGEST_STEP_S = 300.0
"""A model's step that computes is no stall until then: the first one compiles, and a large model on a CPU takes half a
minute for every one."""
_COMPUTES = 0.1
"""CPU time over wall time: a process that uses as much is at work, also where it has to share its cores."""
CLOSED_EXIT_CODE = 71
"""Of a process whose own code has closed the event pipe."""

QueueStates = Callable[[], Sequence[QueueState]]
Stacks = Callable[[], tuple[Stack, ...]]
WhyDead = Callable[[float | None], str | None]
WhySilent = Callable[[float], str | None]
WasSilent = Callable[[], Sequence[str]]


class Channel:
    """Writes events to a file descriptor, and reads what is asked for next; events may come from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pipe = identity(descriptor)
        self._lock = threading.Lock()

    def receive(self) -> bytes | None:
        """Wait for the parent's next request, one line of JSON, and return it; None when there will be none."""
        line = bytearray()
        while identity(self._descriptor) == self._pipe:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            line += data
            if line.endswith(b"\n"):
                return bytes(line)
        return None

    def send(self, event: Event) -> None:
        """Write one event whole. When the parent is gone the trial has no reader left, and the process ends.

        It also ends where the user's code has closed the pipe, as recipes for daemons do with every file that is open:
        its number may be a file of theirs by now.
        """
        data = memoryview(encode(event))
        with self._lock:
            if identity(self._descriptor) != self._pipe:
                os._exit(CLOSED_EXIT_CODE)
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except ConnectionError:
                    os._exit(1)


class Recorder(StepRecorder):
    """The steps of one trial, its phase, and the thread that sends the parent both."""

    def __init__(self, channel: Channel, run: Run, *, warmed_up: bool = False) -> None:
        """Take the steps of a trial.

        Args:
            channel: to the parent.
            run: how long the trial trains.
            warmed_up: whether the loop warms up before its first step. Otherwise that one loads kernels and compiles,
                on a GPU for seconds (0.3 to 2.1 s on an H100), and a trial's seconds are counted from its end.
        """
        self._channel = channel
        self._run = run
        self._waits, self._busy = True, False
        self._start_ns, self._end_ns, self._wait_ns, self._busy_ns = (
            array("q", bytes(8 * _BLOCK_STEPS)) for _ in range(4)
        )
        self._counted_ns = self._start_ns if warmed_up else self._end_ns
        """The trial's seconds count from its first value on."""
        self._loss = array("d", bytes(8 * _BLOCK_STEPS))
        self._steps = 0
        self._shipped = 0
        self._last_steps = run.steps or sys.maxsize
        self._length_ns = sys.maxsize if run.time_s is None else round(run.time_s * 1e9)
        self._phase: PhaseName = "start"
        self._begun_ns = self._alive_ns = monotonic_ns()
        self._queued_s = 0.0
        """For how long this process had had no core when the phase began."""
        self._stall_sent = False
        self._ended = threading.Event()
        self._queue_states: QueueStates = tuple
        self._stacks: Stacks = thread_stacks
        self._why_dead: WhyDead = lambda _: None
        self._why_silent: WhySilent = lambda _: None
        self._was_silent: WasSilent = tuple
        self._doing, self._doing_since_ns = "", self._begun_ns
        self._looked_ns, self._cpu_ns = self._begun_ns, process_time_ns()
        self.should_sample = False
        """Whether the next step is sampled."""
        self._audit: SampleAudit | None = None
        self._sampling = StepSampling(0.0)
        self._digests: deque[tuple[int, Any]] = deque()
        self._thread = threading.Thread(target=self._keep_shipping, name="pipeline-bench recorder", daemon=True)

    def start(self) -> None:
        """Start the shipping thread."""
        self._looked_ns = monotonic_ns()
        self._thread.start()

    def phase(self, name: PhaseName) -> None:
        """Report that a phase of the trial begins."""
        if name != self._phase:
            self._begun_ns, self._queued_s = monotonic_ns(), queued_s(os.getpid()) or 0.0
        self._phase = name
        self._alive_ns = monotonic_ns()
        self._channel.send(Phase(name=name, at_ns=self._alive_ns))

    def heartbeat(self) -> None:
        """Report that the phase goes on, so that it is not taken for a stall; may be called often."""
        if monotonic_ns() - self._alive_ns > self._run.stall_timeout_s * 1e9 / _SIGNS_OF_LIFE:
            self.phase(self._phase)

    def doing(self, what: str = "") -> None:
        """Say what within the phase is under way, where a watch should know it; by default, nothing of that kind."""
        self._doing, self._doing_since_ns = what, monotonic_ns()

    def watch(self, queue_states: QueueStates, stacks: Stacks | None = None) -> None:
        """Say how the watch learns how full the queues are, and where the threads are that make the steps."""
        self._queue_states, self._stacks = queue_states, stacks or thread_stacks

    def guard(self, why_dead: WhyDead, why_silent: WhySilent = lambda _: None, was_silent: WasSilent = tuple) -> None:
        """Say how the watch learns that the trial cannot go on: it then fails with that.

        Args:
            why_dead: see `Backend.why_dead`.
            why_silent: see `Backend.why_silent`.
            was_silent: see `Backend.was_silent`.
        """
        self._why_dead, self._why_silent, self._was_silent = why_dead, why_silent, was_silent

    def audit_samples(self, audit: SampleAudit, cost_us: float) -> None:
        """Give the digests of the training steps to an audit, of as many steps as their cost allows.

        Args:
            audit: takes the digests.
            cost_us: about what a step takes longer when it is sampled.
        """
        self._audit, self._sampling, self.should_sample = audit, StepSampling(cost_us), True

    def train(self, *, waits: bool = True, busy: bool = False) -> None:
        """Begin the phase of the training steps.

        Args:
            waits: whether the steps wait for an input.
            busy: whether they bring the busy time of an emulated device.
        """
        self._waits, self._busy = waits, busy
        self.phase(TRAIN)

    def __call__(
        self,
        start_ns: int,
        end_ns: int,
        wait_ns: int,
        loss: float,
        digest: Sequence[float] | None = None,
        busy_ns: int = 0,
    ) -> bool:
        """Append a step; False when it was the last one. See `loops.StepRecorder`."""
        i = self._steps
        if digest is not None:
            self._digests.append((i, digest))
        if i == len(self._loss):
            self._grow()
        self._start_ns[i] = start_ns
        self._end_ns[i] = end_ns
        self._wait_ns[i] = wait_ns
        self._busy_ns[i] = busy_ns
        self._loss[i] = loss
        self._steps = i + 1
        if self._audit is not None:
            self.should_sample = self._sampling.samples(i + 1, end_ns - start_ns)
        return i + 1 < self._last_steps and end_ns - self._counted_ns[0] < self._length_ns

    def should_sample_any(self, steps: int) -> bool:
        """Return whether the next `steps` are sampled, which one call runs. See `loops.StepRecorder`."""
        # One call in as many as else one step: of a call that is sampled every step is.
        return self._audit is not None and self._steps // steps % self._sampling.every == 0

    @property
    def steps_left(self) -> int | None:
        """How many steps are still to be run; None where the trial's length is a time."""
        return None if self._run.steps is None else max(0, self._run.steps - self._steps)

    @property
    def length_ns(self) -> int | None:
        """How long the trial trains, from the end of its first step; None where its length is in steps."""
        return None if self._run.time_s is None else self._length_ns

    @property
    def sampling_rule(self) -> SamplingRule | None:
        """The rule behind `should_sample`. See `loops.StepRecorder`."""
        return None if self._audit is None else self._sampling.rule

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self._steps

    @property
    def span_ns(self) -> tuple[int, int]:
        """When the first step began, and the last one ended, of those that have ended."""
        return self._start_ns[0], self._end_ns[self._steps - 1]

    @property
    def step_s(self) -> float:
        """The mean length of the steps that have ended; 0 where there are none."""
        begun_ns, ended_ns = self.span_ns
        return (ended_ns - begun_ns) / 1e9 / self._steps if self._steps else 0.0

    def finish(self) -> None:
        """Ship what is left and end the thread."""
        self._end()
        self._settle()

    def fail(self) -> str | None:
        """As `finish`, after a failure; return which process of the trial is dead, and of what, where one is.

        Only the first call looks: what ends later was ended by the trial itself.
        """
        self._end()
        dead = self._why_dead(None)
        self._why_dead = lambda _: dead
        self._settle(dead)
        return dead

    def _end(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _settle(self, dead: str | None = None) -> None:
        """Ship what is left, and what the audit has found, with who fell silent: what that held is not in flight."""
        self._ship()
        self._audit_digests()
        if self._audit is not None:
            work = self._audit.close(self._sampling.every, self._steps)
            silent = tuple(dict.fromkeys([*([] if dead is None else [dead]), *self._was_silent()]))
            self._channel.send(work.model_copy(update={"silent": silent}))
            self._audit = None

    def _audit_digests(self) -> None:
        if self._audit is None:
            return
        taken = [self._digests.popleft() for _ in range(len(self._digests))]
        try:
            self._audit.take([(step, np.asarray(shown)) for step, shown in taken if shown is not None and len(shown)])
        except Exception as error:  # a source of another package: its audit fails, not its trial
            self.should_sample, self._audit = False, None
            self._channel.send(Work(reason=f"its samples could not be accounted for: {line_of(error)}"))

    def _grow(self) -> None:
        for column in (self._start_ns, self._end_ns, self._wait_ns, self._busy_ns, self._loss):
            column.frombytes(bytes(8 * len(column)))

    def _keep_shipping(self) -> None:
        while not self._ended.wait(SHIP_EVERY_S):
            if (now_ns := monotonic_ns()) - self._looked_ns > STOPPED_NS:
                self._channel.send(Stopped(from_ns=self._looked_ns, to_ns=now_ns))
                self._alive_ns = now_ns  # the steps were stopped as well; if not, the parent's watch sees to it
            self._ship()
            self._audit_digests()
            self._ship_depths()
            if self._takes_its_time():
                self.heartbeat()
            self._watch()

    def _takes_its_time(self) -> bool:
        """Return whether what is under way may take longer than the stall timeout: an import, a step that computes."""
        now_ns, cpu_ns = monotonic_ns(), process_time_ns()
        computes = cpu_ns - self._cpu_ns > _COMPUTES * (now_ns - self._looked_ns)
        self._looked_ns, self._cpu_ns = now_ns, cpu_ns
        if self._phase == IMPORT:
            queued_ns = ((queued_s(os.getpid()) or 0.0) - self._queued_s) * 1e9
            return now_ns - self._begun_ns - queued_ns < LONGEST_IMPORT_S * 1e9
        return self._doing == MODEL_STEP and computes and now_ns - self._doing_since_ns < _LONGEST_STEP_S * 1e9

    def _ship(self) -> None:
        first, end = self._shipped, self._steps
        if first == end:
            return
        start, stop, wait, busy = (
            Series.pack(np.array(column[first:end], dtype=np.int64))
            for column in (self._start_ns, self._end_ns, self._wait_ns, self._busy_ns)
        )
        loss = Series.pack(np.array(self._loss[first:end], dtype=np.float64))
        self._channel.send(
            Steps(
                first=first,
                start_ns=start,
                end_ns=stop,
                wait_ns=wait if self._waits else None,
                busy_ns=busy if self._busy else None,
                loss=loss,
            )
        )
        self._shipped = end

    def _ship_depths(self) -> None:
        if not self._steps:
            return
        at_ns = monotonic_ns()
        if queues := tuple(self._queue_states()):
            self._channel.send(QueueDepths(at_ns=at_ns, queues=queues))

    def _watch(self) -> None:
        newest_ns = max(self._alive_ns, self._end_ns[self._steps - 1] if self._steps else 0)
        stalled = monotonic_ns() - newest_ns >= self._run.stall_timeout_s * 1e9
        limit_s = self._run.stall_timeout_s
        reason = self._why_dead(limit_s if stalled else None) or self._why_silent(limit_s)
        if reason is not None:
            self._settle(reason)
            self._channel.send(Failed(error=reason))
            leave(False)  # the steps may wait for ever in TensorFlow
        if self._stall_sent or not stalled:
            return
        self._stall_sent = True
        stacks = self._stacks()
        self._channel.send(
            Stalled(
                phase=self._doing or self._phase, steps=self._steps, queues=tuple(self._queue_states()), stacks=stacks
            )
        )


def thread_stacks() -> tuple[Stack, ...]:
    """Return the stacks of all Python threads but the calling one, the main thread first.

    One that stands in `main_thread` only waits: for the user's script to train, or behind that for the process to end.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    with user_code.collection_held():
        frames = sys._current_frames()
        return tuple(
            Stack(
                # Python has no name for a thread that TensorFlow started, as for a py_function.
                thread=names.get(ident, "a thread of TensorFlow's"),
                frames=tuple(
                    f"{_short(frame.filename)}:{frame.lineno} in {frame.name}"
                    for frame in traceback.extract_stack(frames[ident])[-_FRAMES_KEPT:]
                ),
            )
            for ident in sorted(frames, key=lambda ident: ident != main)
            if ident != threading.get_ident() and frames[ident].f_code.co_filename != main_thread.__file__
        )


def _short(filename: str) -> str:
    """Return a file's path inside its installation, or its last three parts."""
    return installed.inside(filename) or "/".join(PurePath(filename).parts[-3:])
