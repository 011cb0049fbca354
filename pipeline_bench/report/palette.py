"""The colours that every view gives to verdicts and to the parts of a step."""

from __future__ import annotations

from pipeline_bench.model.result import VerdictKind

INPUT_WAIT = "red"
COMPUTE = "green"
HOST_SLOWDOWN = "yellow"

VERDICTS: dict[VerdictKind, str] = {
    "input-bound": INPUT_WAIT,
    "host-bound": HOST_SLOWDOWN,
    "compute-bound": COMPUTE,
    "mixed": "magenta",
    "ceiling": "bright_black",
    "inconclusive": "cyan",
    "unequal-work": "bold red",
    "not-measured": "bright_black",
}
