"""A backend that goes wrong in the way it is told to, in a real trial, after its first steps."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any, Literal

from pipeline_bench.backends import Backend, Input
from pipeline_bench.plugins import Options
from pipeline_bench.sources import Batch, Source

GOOD_STEPS = 5


class FaultyOptions(Options):
    """What happens."""

    fault: Literal["raise", "segfault", "killed", "exit", "hang", "hold_gil", "memory", "flood", "fork"] = "raise"


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

        self._made = source.finish(source.produce(source.batch_size))
        self._fault = fault
        self._steps = 0
        super().__init__(Batch(*(tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in self._made)))

    def fetch(self, session: Any) -> dict[Any, Any]:
        self._steps += 1
        if self._steps > GOOD_STEPS:
            go_wrong(self._fault)
        return dict(zip(self.batch, session.run(self._made), strict=True))


def go_wrong(fault: str) -> None:
    match fault:
        case "raise":
            raise ValueError("planted: the reader met a record it cannot read")
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            raise SystemExit(5)
        case "hang":
            time.sleep(1000)
        case "hold_gil":
            sum(range(10**12))
        case "memory":
            raise MemoryError("planted: out of memory")
        case "flood":
            os.write(1, b"noise on stdout\n" * 100_000)
            os.write(2, b"noise on stderr\n" * 100_000)
            raise ValueError("planted: after a flood")
        case "fork":
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            time.sleep(1000)
