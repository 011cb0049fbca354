"""What a between_graph trial and its processes, the parameter server and the workers, send each other.

In a module of its own: a process runs `cluster_worker` as ``__main__``, whose classes no other process could unpickle.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pipeline_bench.model.events import Device, QueueState, Stack
from pipeline_bench.scenario import Variant

Addresses = dict[str, list[str]]
"""Host and port of every process, by job: a `ClusterSpec`'s argument."""


class Assignment(NamedTuple):
    """What a process is sent first. `tickets`: the file descriptor of the steps still to be taken; -1: none."""

    job: str
    number: int
    variant: Variant
    tickets: int


class Order(NamedTuple):
    """What the trial asks of a worker: begin to train, take no further step, or give the accuracy."""

    order: Literal["go", "stop", "evaluate"]


class Listening(NamedTuple):
    """A process has TensorFlow, and a port for its server."""

    port: int


class Ready(NamedTuple):
    """A worker is built and, of worker 0, the variables are set; `accuracy` is then the one before training."""

    device: Device
    accuracy: float | None
    waits: bool
    """Whether there is an input to wait for."""
    shows_samples: bool
    values_per_sample: int


class ClusterStep(NamedTuple):
    """A step of one worker, or a group of them; times in ns of ``time.monotonic_ns``.

    `digest` is as `sample_audit.digest` has it, if any; of a group, those of its steps one after the other.
    """

    start_ns: int
    end_ns: int
    wait_ns: int
    loss: float
    digest: tuple[float, ...] = ()


class StepsTaken(NamedTuple):
    """Steps of a worker, all that ended by `until_ns`, and how full its queues were then."""

    steps: tuple[ClusterStep, ...]
    until_ns: float
    queues: tuple[QueueState, ...] = ()
    stacks: tuple[Stack, ...] = ()
    """Where its threads stand, once it has taken no step for long."""


class Trained(NamedTuple):
    """A worker takes no further step, and has ended its input."""


class Accuracy(NamedTuple):
    """The accuracy now; None of a model that has none."""

    value: float | None
