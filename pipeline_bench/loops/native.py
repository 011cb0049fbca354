"""native: a program in C runs the graph's steps, and Python only reads what it writes down of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_bench import native
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.graph_ops import PYTHON_OPS
from pipeline_bench.loops import Job, Loop, StepFigures, StepRecorder, Training
from pipeline_bench.model.events import QueueState
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.system.files import ScratchFolder
from pipeline_bench.system.processes import readable
from pipeline_bench.text import NAME, REASON, one_line, units

_ASK_EVERY_S = 0.25
_MOST_START_S = 300.0
# Sizes come four times a second; of a program that has sent none for so long nothing is known.
_SIZES_HOLD_S = 2.0


class _Fetched(NamedTuple):
    """What the program fetches; `save` and `restore` move the variables, None where there are none."""

    figures: StepFigures
    plain: Any
    sampled: Any
    save: str | None
    restore: str | None


class NativeLoop(Loop):
    """Exports the graph, runs it by TensorFlow's C interface, and takes the trained variables back."""

    name = "native"
    summary = "a compiled C program runs the graph, with TensorFlow's C API; no Python between the steps"
    starts_input = True
    device_processes = 2  # Python's session stays open beside the program

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._folder: ScratchFolder | None = None
        self._fetched: _Fetched | None = None
        self._queues: Sequence[tuple[str, int]] = ()
        self._sizes: tuple[float, Sequence[int]] | None = None

    def unavailable(self) -> str | None:
        found = native.find()
        return found if isinstance(found, str) else None

    def check(self, job: Job) -> None:
        part = job.backend.python_part(job.source)
        if part is None and isinstance(job.source, RecordSource):
            part = job.source.python_part
        if part is not None:
            raise UsageError(
                f"The loop native runs no Python, and Python {part} under {job.backend.name} of {job.source.name}.",
                'Use a backend and a source that are in the graph, tf_data for one, or loop.kind = "session".',
            )
        if job.runtime.replicas > 1 and job.runtime.replication == "between_graph":
            raise UsageError(
                "The loop native runs one graph in one process, and between_graph replicas have one each.",
                'Set runtime.replication = "in_graph", or loop.kind = "session".',
            )

    def build(self, training: Training) -> None:
        """Add what the program fetches, and the ops that write the variables to a file and read them back."""
        import tensorflow as tf

        v1 = tf.compat.v1
        _check_all_in_graph(v1.get_default_graph().as_graph_def(), training)
        variables = v1.global_variables()
        size_bytes = sum(variable.shape.num_elements() * variable.dtype.base_dtype.size for variable in variables)
        self._folder = ScratchFolder(size_bytes, "The variables that are read back")
        figures = StepFigures(training)
        plain = figures.tensor(sampled=False)
        if not plain.shape.rank:
            with tf.device("/cpu:0"):
                plain = tf.stack([tf.cast(plain, tf.float64)])
        sampled = None if training.feeding.digest is None else figures.tensor(sampled=True)
        save = restore = None
        if variables:
            with tf.device("/cpu:0"):
                saver = v1.train.Saver(variables, filename=str(self._folder.path / "variables")).as_saver_def()
            save, restore = saver.save_tensor_name, saver.restore_op_name
        self._fetched = _Fetched(figures, plain, sampled, save, restore)

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Run the program, which trains; give its steps to `record` a few times a second.

        The Python session stays open beside it, for the accuracy before and after. Of a GPU's memory it keeps what
        the evaluation took, and no more, as long as `runtime.memory_growth` is on.

        Raises:
            PipelineBenchError: the program cannot be compiled or started, or was killed.
            tf.errors.OpError: the training failed, as `Session.run` would have said it.
        """
        assert self._folder is not None
        assert self._fetched is not None
        toolchain = native.find()
        if isinstance(toolchain, str):
            raise PipelineBenchError(f"The loop native cannot run: {toolchain}")
        try:
            program = native.program(toolchain, record.heartbeat)
            self._queues = [(queue.name, queue.capacity) for queue in training.feeding.queues()]
            self._write(self._folder.path, session, training, record)
            self._follow(program, self._folder.path, record)
            if self._fetched.restore is not None:
                session.run(session.graph.get_operation_by_name(self._fetched.restore))
        finally:
            self._folder.remove()

    def queue_states(self) -> Sequence[QueueState]:
        received_s, sizes = self._sizes or (0.0, ())
        known = len(sizes) == len(self._queues) and time.monotonic() - received_s < _SIZES_HOLD_S
        return [
            QueueState(name=name, size=sizes[i] if known else None, capacity=capacity)
            for i, (name, capacity) in enumerate(self._queues)
        ]

    def _write(self, folder: Path, session: Any, training: Training, record: StepRecorder) -> None:
        """Write the graph, the session's configuration and the plan."""
        assert self._fetched is not None
        lines = [*_plan_of_input(training), *_plan_of_steps(training, self._fetched, record)]
        try:
            (folder / "graph").write_bytes(session.graph.as_graph_def().SerializeToString())
            (folder / "config").write_bytes(session._config.SerializeToString())
            (folder / "plan").write_text("".join(f"{key} {value}\n" for key, value in lines), encoding="utf-8")
        except OSError as error:
            raise PipelineBenchError(
                f"The graph cannot be written to {folder}: {error.strerror}.",
                "Set TMPDIR to a folder that can be written to.",
            ) from error

    def _follow(self, program: Path, folder: Path, record: StepRecorder) -> None:
        """Run the program and read its messages until it ends; it is gone when this returns."""
        read, write = os.pipe()
        try:
            command = [str(program), str(folder), str(write), str(os.getpid())]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[write])
        except OSError as error:
            os.close(read)
            raise PipelineBenchError(f"The native program {program} cannot be started: {error.strerror}.") from error
        finally:
            os.close(write)
        try:
            _wait_for_start(read, record)
            done = self._take(read, record)
        finally:
            os.close(read)
            if process.poll() is None and not _ended(process):
                process.kill()
            code = process.wait()
        if not done:
            raise PipelineBenchError(f"the native program {units.ending(code)}")

    def _take(self, read: int, record: StepRecorder) -> bool:
        """Give every step to `record`; whether the program came to its end."""
        assert self._fetched is not None
        more = True
        done = False
        for message in native.messages(read):
            if isinstance(message, native.StepMessage) and more:
                wait_ns, *others = self._fetched.figures.split(message.values, message.sampled)
                more = record(message.start_ns, message.end_ns, wait_ns, *others)
            elif isinstance(message, native.Sizes):
                self._sizes = time.monotonic(), message.each
            elif isinstance(message, native.Failure):
                _raise(message)
            elif isinstance(message, native.EndMessage):
                done = True  # the thread that sends sizes may still have added some behind it
        return done


def _check_all_in_graph(definition: Any, training: Training) -> None:
    """Refuse what a program without Python cannot run, by name."""
    hint = 'Use a backend and a source that are in the graph, or loop.kind = "session".'
    functions = ((f"{function.signature.name}/", function.node_def) for function in definition.library.function)
    for prefix, nodes in (("", definition.node), *functions):
        for node in nodes:
            if node.op in PYTHON_OPS:
                name = one_line(prefix + node.name, NAME)
                raise PipelineBenchError(f"The loop native runs no Python, and the graph's op {name} calls it.", hint)
    if training.feeding.in_graph is None:
        raise PipelineBenchError(
            "The loop native cannot start this input: its backend does not say by which ops (Input.in_graph).", hint
        )


def _plan_of_input(training: Training) -> Iterator[tuple[str, Any]]:
    """Yield keys and values for native/plan.c: the ops that start, fill and close the input, and its queues' sizes."""
    in_graph = training.feeding.in_graph
    assert in_graph is not None
    yield "init", _op_name(training.init)
    for key, ops in (("start", in_graph.start), ("produce", in_graph.produce)):
        for op in ops:
            yield key, _op_name(op)
    if in_graph.close is not None:
        yield "close", _op_name(in_graph.close)
    for queue in training.feeding.queues():
        yield "size", queue.size.name


def _plan_of_steps(training: Training, fetched: _Fetched, record: StepRecorder) -> Iterator[tuple[str, Any]]:
    """Yield the program's arguments about the steps: what is fetched, for how long, and which steps are sampled."""
    yield "train", _op_name(training.graph.train)
    yield "plain", fetched.plain.name
    if fetched.save is not None:
        yield "save", fetched.save.partition(":")[0]
    if record.steps_left is not None:
        yield "steps", record.steps_left
    if record.length_ns is not None:
        yield "length_ns", record.length_ns
    if fetched.sampled is not None and (sampling_rule := record.sampling_rule) is not None:
        yield "sampled", fetched.sampled.name
        # Seventeen digits are the number itself, so that both sides count with the same one.
        yield from ((key, repr(value)) for key, value in sampling_rule._asdict().items())


def _op_name(op: Any) -> str:
    """Return the name of an op, also of one that is given by its output."""
    return str(getattr(op, "op", op).name)


def _wait_for_start(read: int, record: StepRecorder) -> None:
    """Wait until the program says something, which it does when its session has the variables."""
    end_s = time.monotonic() + _MOST_START_S
    while not readable(read, _ASK_EVERY_S):
        record.heartbeat()
        if time.monotonic() > end_s:
            raise PipelineBenchError(f"the native program was not ready to train within {_MOST_START_S:.0f} s")


def _raise(failure: native.Failure) -> None:
    """Raise what the program ended with: an error in a step as TensorFlow raises it, another as one of ours."""
    import tensorflow as tf

    if failure.in_training and failure.code:
        kind = tf.compat.v1.errors.exception_type_from_error_code(failure.code)
        raise kind(None, None, f"the native program ended: {failure.text}")
    raise PipelineBenchError(f"the native program ended: {one_line(failure.text, REASON)}")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the program, which has closed its pipe or reported its end, is gone within a moment."""
    try:
        process.wait(_ASK_EVERY_S)
    except subprocess.TimeoutExpired:
        return False
    return True
