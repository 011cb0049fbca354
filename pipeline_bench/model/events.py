"""What a child reports to its parent while it runs: JSON lines on a pipe of their own, never on stdout.

TensorFlow and C libraries write to stdout and stderr, so neither carries results. Every time stamp is
``time.monotonic_ns()``, a clock that parent and child share.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from pipeline_bench.errors import ProtocolError
from pipeline_bench.model import Data, Series
from pipeline_bench.model.element import Element
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.job import Eager
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.text import Line, Text, to_json

EVENTS_VERSION = 6


class Hello(Data):
    """The first event: who speaks, and which version of this protocol."""

    event: Literal["hello"] = "hello"
    version: int = EVENTS_VERSION
    pid: int
    at_ns: int


PhaseName = Literal[
    "start", "import", "build", "storage", "evaluate", "trace", "train", "inspect", "fill", "fingerprint", "keep"
]
"""The parts of a trial: ``storage`` prepares the page cache, ``trace`` is a model's first step, ``fill`` passes over a
cache, ``fingerprint`` tells which samples arrive, ``keep`` takes steps with kept memory. A training that failed is
followed by ``inspect``."""
IMPORT: Final = "import"
TRACE: Final = "trace"
TRAIN: Final = "train"
KEEP: Final = "keep"
LONGEST_IMPORT_S = 120.0
"""TensorFlow's import, in a fresh interpreter, takes some seconds, and a minute beside other work: until then it is no
stall."""


class Phase(Data):
    """A part of the trial begins, a `PhaseName`; of another version's trial perhaps one that is not known here."""

    event: Literal["phase"] = "phase"
    name: Line
    at_ns: int


class Device(Data):
    """The device that the model was put on, as TensorFlow names it, or the one that it emulates."""

    event: Literal["device"] = "device"
    kind: Literal["cpu", "gpu", "emulated"]
    name: Line
    pci_bus_id: Line | None = None


class Steps(Data):
    """Steps that ended since the last such event, in order; `first` is the index of the first one.

    `start_ns` is when a step asked for its batch, `end_ns` when it had its loss. `wait_ns` is how long the consumer
    was blocked for the batch, None where the backend has no input to wait for. `busy_ns` is how long an emulated
    device was busy with the step, None where the model computes.
    """

    event: Literal["steps"] = "steps"
    first: int
    start_ns: Series
    end_ns: Series
    wait_ns: Series | None
    busy_ns: Series | None = None
    loss: Series


class QueueState(Data):
    """How full a queue of the input is. `size` is None when the queue did not answer."""

    event: Literal["queue"] = "queue"
    name: Line
    size: int | None
    capacity: int

    @property
    def filling(self) -> str | None:
        """How full it was, in words; None when it did not answer."""
        return None if self.size is None else f"{self.size} of {self.capacity} elements"


class QueueDepths(Data):
    """How full the input's queues were at one time, while the model trained."""

    event: Literal["depths"] = "depths"
    at_ns: int
    queues: tuple[QueueState, ...]


STOPPED_NS = 5_000_000_000
"""Who looks several times a second, and did not for so long, was stopped: no load of a machine takes that long."""


class Stopped(Data):
    """No thread of the trial ran Python from then to then: its process was stopped, or something held Python's lock."""

    event: Literal["stopped"] = "stopped"
    from_ns: int
    to_ns: int


class EpochSamples(Data):
    """One pass over a source's samples, as far as the model has seen it.

    `digest` is the sum, modulo 2**64, of a hash of each sample's place in the epoch, as 16 hexadecimal digits: the same
    samples have the same digest in any order.
    """

    index: int
    samples: int
    repeated: int
    digest: Line


class NumberedSamples(Data):
    """What became of the samples of a source that numbers them.

    `in_flight` were made before others that reached the model, and may still have been on their way when the trial
    ended: held by another thread of the input, for one. `lost` are those that this cannot explain; where only some
    steps were checked, at least so many.
    """

    epoch_samples: int
    repeated: int
    invented: int
    """Their number was none that the source gives, or what came with it was not that sample."""
    lost: int
    in_flight: int
    epoch_count: int = 0
    whole_epochs: int = 0
    """Those that the model has seen every sample of, each once."""
    epochs: tuple[EpochSamples, ...] = ()
    """The first ones of them all."""


class RandomSamples(Data):
    """The samples of a source of random numbers: mean and standard deviation of all features that were checked."""

    values: int
    mean: float
    std: float
    expected_mean: float | None = None
    expected_std: float | None = None
    repeated_batches: int = 0
    """Batches with exactly the moments of an earlier one: no new samples."""


class Work(Data):
    """Which samples reached the model in a trial, from the steps that were checked; `reason` where none was."""

    event: Literal["work"] = "work"
    checked_steps: int = 0
    steps: int = 0
    """All of the trial's."""
    every: int = 1
    """After the first ones, one step in so many was checked."""
    samples: int = 0
    """In the checked steps."""
    batch_size: int = 0
    """What a step should bring."""
    skipped: int = 0
    """The records of an epoch that cannot be decoded and were left out, as far as the model's samples reached."""
    skipped_records: tuple[Line, ...] = ()
    """The first of them, after the damaged files, each with its file, which record of it, and why."""
    damaged_files: int = 0
    """Files that were read up to some damage; how many records lay behind it is not known."""
    silent: tuple[Line, ...] = ()
    """Which processes of the input died, or did not answer for a while: what they held may be lost."""
    numbered: NumberedSamples | None = None
    random: RandomSamples | None = None
    reason: Line | None = None


class StorageEpoch(Data):
    """What was seen of a source's files in one epoch, from 0, as far as the model consumed it."""

    index: int
    size_bytes: int
    """What the files hold of what the model consumed, in whole pages, as it is fetched."""
    read_bytes: int | None = None
    """What the kernel fetched from storage meanwhile, read ahead or not."""
    resident_share: float | None = None
    """How much of what was next to be read was in the page cache, 0 to 1."""


class Storage(Data):
    """Whether a source's files were in the page cache, before the training and in each of its epochs."""

    event: Literal["storage"] = "storage"
    asked: Literal["as-is", "cold", "warm"]
    size_bytes: int
    """Of all files."""
    resident_share: float | None = None
    """How much of them was in the page cache when the training began, 0 to 1."""
    epoch_count: int = 0
    epochs: tuple[StorageEpoch, ...] = ()
    """The first ones of them all."""
    reason: Line | None = None
    """Why it is not known what was in the page cache."""
    read_reason: Line | None = None
    """Why it is not known what was read from storage."""


class Stack(Data):
    """The stack of a Python thread: its frames, outermost first, each as ``file:line in function``."""

    event: Literal["stack"] = "stack"
    thread: Line
    frames: tuple[Line, ...]


class Stalled(Data):
    """No step and no phase for the stall timeout; sent by the child's own watch, while its training thread hangs."""

    event: Literal["stalled"] = "stalled"
    phase: Line
    steps: int
    queues: tuple[QueueState, ...]
    stacks: tuple[Stack, ...]


class Evaluated(Data):
    """The share of right answers on the evaluation batch, 0 to 1."""

    event: Literal["evaluated"] = "evaluated"
    when: Literal["before", "after"]
    accuracy: float


class PlacedOp(Data):
    """An op as it ran: its name in the graph, its type, and the device, as ``/job:worker/task:1/device:CPU:0``.

    The job and the task are left out where there is one process only: ``CPU:0``.
    """

    name: Line
    type: Line
    device: Line


class Placement(Data):
    """Which op of a training step ran on which device, after the graph was pruned and optimised.

    `op_count` is of all, also where only the first are kept; `reason` why it is not known.
    """

    event: Literal["placement"] = "placement"
    ops: tuple[PlacedOp, ...] = ()
    op_count: int = 0
    reason: Line | None = None


class Inspected(Data):
    """What is known of a user's pipeline by now; each one replaces the one before."""

    event: Literal["inspected"] = "inspected"
    inspection: Inspection


class Fingerprinted(Data):
    """Which samples a user's pipeline gives."""

    event: Literal["fingerprinted"] = "fingerprinted"
    fingerprint: Fingerprint


class Copied(Data):
    """What a step takes longer whose batch lies in host memory and not on the device: its copy, if nothing overlaps."""

    event: Literal["copied"] = "copied"
    size_bytes: int
    """Of the batch."""
    ms: float


class KnownShapes(Data):
    """What a step takes where the model is traced for the shapes of its batches, and not for those promised."""

    event: Literal["shapes"] = "shapes"
    element: Element
    """With these shapes."""
    batches: int
    """How many batches have them: the first ones."""
    ms: float
    promised_ms: float
    """Where it is traced for what the dataset promises, as `fit` traces it."""


class InGraph(Data):
    """What a step takes as a graph, of a model that runs as eager code, and why it does that."""

    event: Literal["graph"] = "graph"
    eager: Eager
    ms: float
    eager_ms: float
    """As it runs."""


class KeptMemory(Data):
    """What a step takes behind the measured ones, whose steps have many page faults, with the memory kept or not.

    With it kept, malloc gives none of what is freed back to the kernel. Sent by the first trials of a user's pipeline
    as written, which take steps at the same place of the input: the one with, the other one without.
    """

    event: Literal["memory"] = "memory"
    kept: bool
    ms: float
    before_ms: float
    """The same of the last steps before these, in which nothing is kept."""
    kernel_ms: float
    """CPU time in the kernel in such a step, of all threads."""
    page_faults: float
    more_bytes: int
    """By which the peak of memory was higher, at least."""


class Failed(Data):
    """The trial raised; the traceback is on stderr."""

    event: Literal["failed"] = "failed"
    error: Line
    traceback: Text = ""
    """Of an exception in the user's own code: its traceback from the user's first frame down."""


class Done(Data):
    """The last event of a trial that went through."""

    event: Literal["done"] = "done"
    at_ns: int
    reusable: bool = False
    """Whether the process waits for a further trial."""


Event = (
    Hello
    | Phase
    | Device
    | Steps
    | QueueDepths
    | Stopped
    | Work
    | Storage
    | Stalled
    | Evaluated
    | Placement
    | Inspected
    | Fingerprinted
    | Copied
    | KnownShapes
    | InGraph
    | KeptMemory
    | Failed
    | Done
)

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def encode(event: Event) -> bytes:
    """Return an event as a line of JSON."""
    return to_json(event).encode() + b"\n"


def decode(line: bytes) -> Event:
    """Return the event of a line.

    Raises:
        ProtocolError: the line is no event, or the child speaks another version.
    """
    try:
        event = _ADAPTER.validate_json(line)
    except ValidationError as error:
        shown = line[:120].decode(errors="replace")
        raise ProtocolError(f"A trial's process sent something that is no event: {shown!r}.", str(error)) from error
    if isinstance(event, Hello) and event.version != EVENTS_VERSION:
        raise ProtocolError(
            f"A trial's process speaks version {event.version} of the events; this program speaks {EVENTS_VERSION}.",
            "Two installations of pipeline-bench are mixed; reinstall it.",
        )
    return event
