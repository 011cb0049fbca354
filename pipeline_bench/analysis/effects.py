"""By how much other work on the machine may have moved a figure: learned from known answers under load.

Each number is about one standard deviation of the error, as a share of the step, of a trial from which others took all
of the CPU that they could get all the time; half of it where they took half. ``python -m benchmarks.accuracy`` measures
it, see docs/method.md, "Beside other work".
"""

from __future__ import annotations

from typing import Literal

DeviceKind = Literal["cpu", "gpu", "emulated"]
Figure = Literal["wait", "utilization", "host", "ratio"]

# An accelerator computes at its own pace whatever the host does. Where the CPU is the accelerator, what others take
# makes its computing longer as well, and the ceiling's more than a step that also waits: the wait's share hardly moves,
# the others do.
_OF_ACCELERATOR: dict[Figure, float] = {"wait": 0.02, "utilization": 0.03, "host": 0.03, "ratio": 0.03}
_OF_CPU: dict[Figure, float] = {"wait": 0.05, "utilization": 0.20, "host": 0.20, "ratio": 0.05}


def of(figure: Figure, device: DeviceKind) -> float:
    """Return the standard deviation of the error of a figure on such a device."""
    return (_OF_CPU if device == "cpu" else _OF_ACCELERATOR)[figure]
