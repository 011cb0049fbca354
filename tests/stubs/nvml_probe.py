"""Runs NvmlSampler through the steps in its argument, with clocks that the steps set, and prints what each gave."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from pipeline_bench.samplers.nvml import NvmlSampler


class _Clocks:
    at_ns = 0
    wall_ns = 0


def _opened(sampler: NvmlSampler) -> dict[str, Any]:
    return {
        "available": sampler.available,
        "reason": sampler.reason,
        "driver": sampler.driver,
        "devices": [asdict(device) for device in sampler.devices],
        "selected": sampler.selected.index if sampler.selected else None,
    }


def _do(step: dict[str, Any], sampler: NvmlSampler) -> Any:
    match step["do"]:
        case "select":
            device = sampler.select(step["pci_bus_id"])
            return None if device is None else device.index
        case "begin":
            return sampler.begin()
        case "poll":
            return [asdict(reading) for reading in sampler.poll()]
        case "close":
            return sampler.close()
        case other:
            raise ValueError(other)


def main() -> None:
    clocks = _Clocks()
    sampler: NvmlSampler | None = None
    answers: list[Any] = []
    for step in json.loads(sys.argv[1]):
        clocks.at_ns = step.get("at_ns", clocks.at_ns)
        clocks.wall_ns = step.get("wall_ns", clocks.wall_ns)
        os.environ.update(step.get("env", {}))
        if sampler is None:
            sampler = NvmlSampler.open(lambda: clocks.at_ns, lambda: clocks.wall_ns)
            answers.append(_opened(sampler))
        else:
            answers.append(_do(step, sampler))
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
