"""The process that NVML runs in, so that an NVML that hangs or crashes takes nothing else along.

``python -m pipeline_bench.samplers.nvml_process SOCKET_FD PARENT_PID``. The socket carries one JSON object
a line. To the parent: the state of `NvmlReader` once it is open, then one answer for each request, in their order. From
the parent: ``{"ask": "select", "pci_bus_id": …}``, ``{"ask": "begin"}``, ``{"ask": "poll"}``; the end of its requests
asks the process to end. `nvml.NvmlSampler` is the other side.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

from pipeline_bench.samplers.nvml_reader import NvmlReader
from pipeline_bench.system.processes import leave

_LOOK_EVERY_MS = 1000


def state(reader: NvmlReader) -> dict[str, Any]:
    """Describe what was found, for the answer to the opening and to ``select``."""
    return {
        "reason": reader.reason,
        "driver": reader.driver,
        "devices": [vars(device) for device in reader.devices],
        "selected": vars(reader.selected) if reader.selected else None,
    }


def answer(reader: NvmlReader, request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request asks for, and return the answer to it."""
    match request["ask"]:
        case "select":
            reader.select(request["pci_bus_id"])
            return state(reader)
        case "begin":
            reader.begin()
            return {}
        case "poll":
            return {"readings": [vars(reading) for reading in reader.poll()]}
        case other:
            raise ValueError(other)


def main() -> None:
    """Open NVML, and answer until the parent asks for no more; without a GPU to read there is nothing to ask for."""
    descriptor, parent = (int(argument) for argument in sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_parent, args=(descriptor, parent), daemon=True).start()
    reader = NvmlReader.open()
    _send(connection, state(reader))
    if reader.available:
        with connection.makefile("rb") as requests:
            for line in requests:
                _send(connection, answer(reader, json.loads(line)))
    reader.close()
    leave(ok=True)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    # What this process takes is the profiler's own use of the machine, and none of other programs'.
    connection.sendall(json.dumps({**message, "cpu_s": time.process_time()}).encode() + b"\n")


def _end_with_parent(descriptor: int, parent: int) -> None:
    """End the process when the parent has closed the socket or has ended, also while a call of NVML hangs.

    A process that the parent has forked may hold the socket open, so that its end alone would not do.
    """
    poller = select.poll()
    poller.register(descriptor, 0)  # whatever is registered, the other side's end is reported
    while os.getppid() == parent and not poller.poll(_LOOK_EVERY_MS):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
