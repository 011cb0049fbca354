"""Runs NvmlReader through the steps in its argument, with clocks that the steps set, and prints what each gave."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from pipeline_bench.samplers.nvml_reader import NvmlReader


class _Clocks:
    at_ns = 0
    wall_ns = 0


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
            device = reader.select(step["pci_bus_id"])
            return None if device is None else device.index
        case "begin":
            return reader.begin()
        case "poll":
            return [asdict(reading) for reading in reader.poll()]
        case "close":
            return reader.close()
        case other:
            raise ValueError(other)


def main() -> None:
    clocks = _Clocks()
    reader: NvmlReader | None = None
    answers: list[Any] = []
    for step in json.loads(sys.argv[1]):
        clocks.at_ns = step.get("at_ns", clocks.at_ns)
        clocks.wall_ns = step.get("wall_ns", clocks.wall_ns)
        os.environ.update(step.get("env", {}))
        if reader is None:
            reader = NvmlReader(lambda: clocks.at_ns, lambda: clocks.wall_ns)
            answers.append(_opened(reader))
        else:
            answers.append(_do(step, reader))
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
