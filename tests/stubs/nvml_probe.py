"""Runs NvmlReader through steps, with clocks that the steps set, in a fork of its own, which costs less than a process.

It reads a request a line, ``{"library": …, "environment": {…}, "steps": […]}``, and answers each with a line of what
each step gave, or with why there is nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pynvml

from pipeline_bench.samplers.nvml_reader import NvmlReader


class _Clocks:
    at_ns = 0
    wall_ns = 0
    tick_ns = 0

    def read_ns(self) -> int:
        """Return the time, which goes on by a tick with every look at it."""
        self.at_ns += self.tick_ns
        return self.at_ns


def _opened(reader: NvmlReader) -> dict[str, Any]:
    return {
        "reason": reader.reason,
        "driver": reader.driver,
        "devices": [asdict(device) for device in reader.devices],
        "selected": reader.selected.index if reader.selected else None,
    }


def _do(step: dict[str, Any], reader: NvmlReader) -> Any:
    match step["do"]:
        case "select":
            reader.select(step["pci_bus_id"])
            return reader.selected.index if reader.selected else None
        case "begin":
            return reader.begin()
        case "poll":
            return [asdict(reading) for reading in reader.poll()]
        case "close":
            return reader.close()
        case other:
            raise ValueError(other)


def _answers(steps: list[dict[str, Any]]) -> list[Any]:
    clocks = _Clocks()
    reader: NvmlReader | None = None
    answers: list[Any] = []
    for step in steps:
        clocks.at_ns = step.get("at_ns", clocks.at_ns)
        clocks.wall_ns = step.get("wall_ns", clocks.wall_ns)
        clocks.tick_ns = step.get("tick_ns", 0)
        os.environ.update(step.get("env", {}))
        if reader is None:
            reader = NvmlReader(clocks.read_ns, lambda: clocks.wall_ns)
            answers.append(_opened(reader))
        else:
            answers.append(_do(step, reader))
    return answers


def _answer(request: dict[str, Any]) -> None:
    signal.alarm(60)
    os.environ.clear()
    os.environ.update(request["environment"])
    if Path(request["library"]).exists():  # LD_LIBRARY_PATH is read when a process starts
        pynvml.CDLL = lambda _: ctypes.CDLL(request["library"])
    for name in os.environ.get("PYNVML_LACKS", "").split():  # as an older pynvml does
        delattr(pynvml, name)
    sys.stdout.write(json.dumps(_answers(request["steps"])) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            try:
                _answer(json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            sys.stdout.write(json.dumps(f"the probe ended with {code}") + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
