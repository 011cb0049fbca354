"""Backends that go wrong in the way they are told to; and one that serves a tf.data service in place of training."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Literal

from pipeline_bench.backends import Backend, Input
from pipeline_bench.model.events import QueueDepths, QueueState
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Batch, Source
from pipeline_bench.tfdata.service import ServiceProcesses
from pipeline_bench.worker.recorder import Recorder

GOOD_STEPS = 5


class FaultyOptions(Options):
    """What happens."""

    fault: Literal["raise", "exit", "hang", "hold_gil", "flood", "fork", "deaf"] = "raise"


class Faulty(Backend):
    """feed_dict, until it goes wrong."""

    name = "faulty"
    summary = "goes wrong on purpose"
    Options = FaultyOptions

    def connect(self, source: Source, device: str | None) -> Input:
        return _FaultyInput(source, self.options.fault)


class _FaultyInput(Input):
    wait = "fetch"

    def __init__(self, source: Source, fault: str) -> None:
        import tensorflow as tf

        self._made = source.finish(source.produce(source.batch_size)).tensors
        self._fault = fault
        self._steps = 0
        super().__init__(Batch(*(tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in self._made)))

    def fetch(self, session: Any) -> dict[Any, Any]:
        self._steps += 1
        if self._steps > GOOD_STEPS:
            go_wrong(self._fault)
        return dict(zip(self.batch.tensors, session.run(self._made), strict=True))


def hang(deaf: bool) -> None:
    """Hang; where `deaf`, with the recorder's watch patched away, as what a user's code patches may do."""
    if deaf:
        depths = QueueDepths(at_ns=1, queues=(QueueState(name="planted", size=0, capacity=4),))
        Recorder._watch = lambda self: None  # type: ignore[method-assign]
        Recorder._ship_depths = lambda self: self._channel.send(depths)  # type: ignore[method-assign]
    time.sleep(1000)


def go_wrong(fault: str) -> None:
    match fault:
        case "raise":
            raise ValueError("planted: the reader met a record it cannot read")
        case "exit":
            raise SystemExit(5)
        case "hang" | "deaf":
            hang(fault == "deaf")
        case "hold_gil":
            ctypes.PyDLL(None).sleep(1000)  # which lets nobody else have it
        case "flood":
            os.write(1, b"noise on stdout\n" * 100_000)
            os.write(2, b"noise on stderr\n" * 100_000)
            raise ValueError("planted: after a flood")
        case "fork":
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            time.sleep(1000)


class UnequalOptions(Options):
    """What it does to every fourth batch."""

    fault: Literal["lose", "repeat", "invent", "shorten", "scale", "unmeasured"] = "lose"


class Unequal(Backend):
    """feed_dict that loses, repeats, invents or shortens a batch now and then, and is the faster for it."""

    name = "unequal"
    summary = "does other work than it should, on purpose"
    Options = UnequalOptions

    def connect(self, source: Source, device: str | None) -> Input:
        if self.options.fault == "unmeasured":  # half of every batch, and nothing that says how long it waited
            return Input(Batch(*(each[::2] for each in source.finish(source.produce(source.batch_size)).tensors)))
        return _UnequalInput(source, self.options.fault)


class _UnequalInput(Input):
    wait = "fetch"
    reorder_window = 0

    def __init__(self, source: Source, fault: str) -> None:
        import tensorflow as tf

        self._made = source.finish(source.produce(source.batch_size)).tensors
        self._fault = fault
        self._steps = 0
        self._before: Any = None
        shapes = [(None, *tensor.shape[1:]) for tensor in self._made]
        made = zip(self._made, shapes, strict=True)
        super().__init__(Batch(*(tf.compat.v1.placeholder(tensor.dtype, shape) for tensor, shape in made)))

    def fetch(self, session: Any) -> dict[Any, Any]:
        self._steps += 1
        arrays = self._changed(session) if self._steps % 4 == 0 else session.run(self._made)
        self._before = arrays
        return dict(zip(self.batch.tensors, arrays, strict=True))

    def _changed(self, session: Any) -> Any:
        if self._fault == "repeat":
            return self._before
        arrays = session.run(self._made)
        match self._fault:
            case "lose":
                return session.run(self._made)
            case "invent":
                return [arrays[0] + 1, *arrays[1:]]
            case "scale":
                return [arrays[0] * 2, *arrays[1:]]
        return [array[: len(array) // 2] for array in arrays]


class ServingOptions(Options):
    """How many workers; the file that is told the address and the processes, once they are there."""

    workers: int
    told: Path


class Serving(Backend):
    """No trial: a tf.data service, until it is ended."""

    name = "serving"
    summary = "serves a tf.data service, and trains nothing"
    Options = ServingOptions
    has_processes = True

    def start_processes(self, source: Source, *, can_fork: bool) -> None:
        found = ServiceProcesses(self.options.workers, can_fork=can_fork)
        whole = self.options.told.with_suffix(".part")
        whole.write_text(" ".join([found.address, *map(str, found.pids)]), encoding="ascii")
        whole.rename(self.options.told)
        time.sleep(1000)
