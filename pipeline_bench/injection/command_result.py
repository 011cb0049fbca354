"""What is known of a command that has ended: the records of its processes, and what the device and the host did."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from pipeline_bench import environment
from pipeline_bench.model.job import WallTime
from pipeline_bench.monitoring.sampling import Readings, SamplerThread
from pipeline_bench.run import watched_jobs
from pipeline_bench.samplers.host import HostSampler
from pipeline_bench.samplers.nvml import NvmlSampler
from pipeline_bench.text import Text


class WatchedTraining(BaseModel):
    """One training that was seen: a call of `fit`, or a loop over a dataset."""

    of: Text
    """The program's name; of a loop its line, with the library's that has it: ``train.py:31, by loop.py:7``."""
    steps: int
    input_wait_share: float | None
    verdict: Text
    cause: Text | None = None
    """Of the verdict, as `model.result.Verdict` has it."""
    line: Text
    folder: Path | None
    unsaved: Text | None = None
    """Why its session could not be saved."""
    diagnosable: bool = True
    """Whether `pipeline-bench diagnose` knows its kind of input."""
    trains: bool = True
    """False of a loop that only reads, beside something that trains."""
    trains_on: bool = False
    """Whether a loop goes on with batches that the program keeps, when nothing is measured any more."""
    time: WallTime | None = None
    remarks: tuple[Text, ...] = ()
    number: int | None = None
    """Of a `fit`: which of the process it is, from 1."""
    line_number: int | None = None
    """Of a loop: where it stands in its file."""
    data_number: int = 1
    """Of a loop: which it is of those of its line, by what they iterate over."""
    seconds: float = 0.0
    """How long its steps took in all."""
    device_percent: float | None = None
    """The device's utilization meanwhile, 0 to 100: without a GPU, its process' CPU time of the usable cores."""

    @property
    def waited_s(self) -> float:
        """How long they waited for their input in all; 0 where that is not known."""
        return self.seconds * (self.input_wait_share or 0.0)

    @property
    def is_of_later_data(self) -> bool:
        """Whether its line iterated over other data before, which a diagnosis of the line measures."""
        return self.data_number > 1

    @property
    def selector(self) -> str:
        """What ``diagnose --training`` takes for it: the number of a `fit`, the line of a loop."""
        return str(self.line_number if self.number is None else self.number)


class TimeBetweenFits(BaseModel):
    """What a process did between its calls of `fit`, apart from what models computed for it."""

    seconds: float
    fits_s: float
    """How long the calls themselves took."""
    line: Text | None = None
    """The one that took most of it, ``train.py:12``; None where none stands out."""
    line_share: float = 0.0


class TracedAnew(BaseModel):
    """A `tf.function` of the program's that was traced again and again."""

    function: Text
    line: Text
    """Where it is written, ``train.py:12``; empty where that is not known."""
    calls: int
    """That traced it, without the first."""
    seconds: float
    """That these calls took, of which their tracing is by far the most."""


class Adapted(BaseModel):
    """What the calls of a line came to that have a layer of Keras adapt to data."""

    layer: Text
    line: Text
    single_values: bool
    """Whether each element was one value, and so no batch."""
    may_batch: bool = True
    """Whether the layer may be given several elements at once without becoming another one."""
    calls: int
    elements: int
    """That all calls took from datasets; 0 where they took none, or these could not be counted."""
    seconds: float


class ProcessRecord(BaseModel):
    """What one Python process of the command leaves, and replaces while it trains."""

    pid: int
    program: Text
    executable: Text
    trainings: tuple[WatchedTraining, ...]
    more: int
    problem: Text | None
    between_fits: TimeBetweenFits | None = None
    unwatched_loops: tuple[Text, ...] = ()
    """The lines of loops that came when as many as a process measures were measured: ``train.py:31``."""
    traced_anew: tuple[TracedAnew, ...] = ()
    adapted: tuple[Adapted, ...] = ()
    ended: bool = True
    """Whether its last word: else it was killed, or left by `os._exit`."""
    saved_s: float = 0.0
    """When it was written, in seconds since 1970, as it is with each saving of a training."""
    command: tuple[Text, ...] = ()
    """What started it, as `sys.orig_argv` has it; empty where a diagnosis could not start it so."""
    folder: Path | None = None
    """Where it was started."""
    variables: tuple[Text, ...] = ()
    """The names of those that it was started with."""


@dataclass(frozen=True)
class EndedCommand:
    """A command that was run.

    Attributes:
        code: its exit code, 128 + the signal's number where a signal ended it, as a shell has it.
        seconds: how long it ran.
        records: of its Python processes that imported a framework, in the order of their numbers.
        problems: why others could not be watched.
        gpu_percent: the GPU's utilization meanwhile, 0 to 100, and the source of that; None without a GPU.
        unrecorded: the last report of each training whose process was killed, or trains still, and has no record of it;
            a line each.
        cpu_percent: CPU time of the command with all that it started, over wall time and cores, 0 to 100.
        running: the numbers of the processes that train still, as one that a script leaves in the background.
        by_interrupt: whether SIGINT ended it.
        after_s: how long it ran on after its last training; 0 if that is not known, as where one was not measured.
    """

    code: int
    seconds: float
    records: tuple[ProcessRecord, ...]
    problems: tuple[str, ...]
    unrecorded: tuple[str, ...]
    gpu_percent: tuple[float | None, str | None]
    cpu_percent: float | None
    running: frozenset[int] = frozenset()
    by_interrupt: bool = False
    after_s: float = 0.0


class Observation:
    """A running command under the samplers, from when it was started."""

    def __init__(self, pid: int, started_ns: int) -> None:
        """Start the samplers, while SIGCHLD is held back; see `job_control.keys_held`.

        Args:
            pid: the number of the command's process.
            started_ns: when it was started, on the monotonic clock.
        """
        self._started_ns = started_ns
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})  # a shell that holds it back may wait for ever
        try:
            self._gpu = NvmlSampler.open()
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        self._readings = Readings()
        self._sampler = SamplerThread([HostSampler(pid, helper=self._gpu), self._gpu], self._readings)

    def end(self, code: int, folder: Path) -> EndedCommand:
        """End the samplers and return what is known of the command.

        Args:
            code: how it ended, as `subprocess.Popen.wait` has it.
            folder: where its processes left their records.
        """
        ended_ns = time.monotonic_ns()
        self._sampler.close()
        cores = environment.usable_cores()
        records, seen = tuple(_records(folder)), watched_jobs.of_run(str(folder))
        return EndedCommand(
            code=code if code >= 0 else 128 - code,
            seconds=(ended_ns - self._started_ns) / 1e9,
            after_s=_after_s(records, ended_ns),
            records=records,
            problems=tuple(_problems(folder)),
            unrecorded=tuple(_unrecorded(seen, {each.pid for each in records if each.trainings})),
            gpu_percent=self._readings.utilization(self._started_ns, cores, gpu=True),
            cpu_percent=self._readings.utilization(self._started_ns, cores, gpu=False)[0],
            running=frozenset(job.status.pid for job in seen if job.state == "running"),
            by_interrupt=code == -signal.SIGINT,
        )


def _after_s(records: Sequence[ProcessRecord], ended_ns: int) -> float:
    """Return how long the command ran on behind the last training of its processes; 0 where one has no end known."""
    if any(each.more or each.unwatched_loops or each.problem or not each.ended for each in records):
        return 0.0  # what was not measured may have trained on
    trainings = [each for record in records for each in record.trainings]
    if any(each.trains_on for each in trainings):
        return 0.0
    ends_ns = [each.time.end_ns for each in trainings if each.time is not None]
    return (ended_ns - max(ends_ns)) / 1e9 if ends_ns and len(ends_ns) == len(trainings) else 0.0


def _problems(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        yield f"{folder} was removed, and with it what was recorded; `pipeline-bench sessions` lists what was saved"
    for path in sorted(folder.glob("*.problem")):
        with suppress(OSError):
            yield path.read_text(errors="replace")


def _unrecorded(seen: Sequence[watched_jobs.WatchedJob], recorded: Collection[int]) -> Iterator[str]:
    """Yield the last report of each training that did not end and of whose process no record has trainings."""
    for job in seen:
        if job.state != "ended" and job.status.steps and job.status.pid not in recorded:
            how = "was killed" if job.state == "gone" else "still trains"
            yield f"{job.status.name}, process {job.status.pid}, {how}; its last report: {job.status.line}"


def _records(folder: Path) -> Iterator[ProcessRecord]:
    found = []
    for path in folder.glob("*.json"):
        try:
            # Not by pydantic's own reader of JSON, which refuses a path that is no UTF-8.
            found.append((ProcessRecord.model_validate(json.loads(path.read_bytes())), path.name))
        except (OSError, ValueError):
            continue
    yield from (record for record, _ in sorted(found, key=lambda each: (each[0].pid, each[1])))
