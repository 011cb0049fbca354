"""Which op ran on which device, as every report of a session tells it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_bench.model.events import PlacedOp, Placement
from pipeline_bench.model.session import Session
from pipeline_bench.text import one_line, units

PLUMBING = frozenset(
    {
        *("Const", "Placeholder", "IteratorV2", "VarHandleOp", "VariableV2", "ReadVariableOp"),
        *("_Arg", "_Retval", "NoOp", "Identity", "IdentityN", "_Send", "_Recv", "_HostSend", "_HostRecv"),
        *("Reshape", "Squeeze", "ExpandDims", "Shape"),
    }
)
"""Ops that hold, pass on or relabel values and compute nothing: they are counted together."""

METHOD = (
    "The ops of one step after TensorFlow has pruned, fused and optimised its graph, with those that take the batch "
    "and time that (Timestamp); the ops inside of a dataset are not among them. Plumbing: constants, variables, and "
    "what passes values on. Of a loop that runs several steps a call it is one step by itself."
)

_NOT_TOLD = Placement(reason="its first trial did not come to telling it")
_MOST_TYPES = 8
_NAME_LIMIT = 40
_OF_ONEDNN = re.compile(r"^_(?:MklNative|Mkl)?(?=[A-Z])")


@dataclass(frozen=True)
class DeviceOps:
    """The ops of one device: how many, of which types, and how many of them are plumbing."""

    device: str
    ops: int
    types: tuple[tuple[str, int], ...]
    """By how often they are there; without the plumbing, and without oneDNN's prefix."""
    plumbing: int

    @property
    def text(self) -> str:
        """``MatMul 18, AddV2 1, and 4 of plumbing``."""
        named = [f"{one_line(kind, _NAME_LIMIT)} {count}" for kind, count in self.types[:_MOST_TYPES]]
        if rest := sum(count for _, count in self.types[_MOST_TYPES:]):
            named.append(f"{rest} of other types")
        if self.plumbing:
            named.append(f"{self.plumbing} of plumbing")
        return ", ".join(named)


@dataclass(frozen=True)
class Placed:
    """The placement that some variants have in common; `reason` where it is not known."""

    variants: tuple[str, ...]
    ops: tuple[PlacedOp, ...]
    op_count: int
    reason: str | None

    @property
    def name(self) -> str:
        """The variants, on one line."""
        return "; ".join(one_line(variant, _NAME_LIMIT) for variant in self.variants)

    @property
    def devices(self) -> tuple[DeviceOps, ...]:
        """The devices that have ops, by name; of the ops that were kept."""
        return tuple(_of_device(device, self.ops) for device in sorted({op.device for op in self.ops}))

    @property
    def not_kept(self) -> str:
        """How many ops are not in the session, in words; empty where all are."""
        left_out = self.op_count - len(self.ops)
        return f"{units.count(left_out, 'more op')} not kept" if left_out > 0 else ""


def found(session: Session) -> list[Placed]:
    """The placements in the scenario's order: one for all variants that have the same.

    A ceiling's is not told, since its model is placed like its variants'; but where there are only ceilings.
    """
    told = {trial.variant: trial.placement or _NOT_TOLD for trial in session.trials if trial.repeat == 0}
    asked = [variant for variant in session.scenario.variants if variant.runtime.log_placement]
    variants = [variant for variant in asked if variant.name in told]
    shown = [variant for variant in variants if not variant.is_ceiling] or variants
    groups: dict[Placement, list[str]] = {}
    for variant in shown:
        groups.setdefault(told[variant.name], []).append(variant.name)
    return [Placed(tuple(names), at.ops, at.op_count, at.reason) for at, names in groups.items()]


def _of_device(device: str, ops: Sequence[PlacedOp]) -> DeviceOps:
    own = [op for op in ops if op.device == device]
    counted = Counter(_OF_ONEDNN.sub("", op.type) for op in own if op.type not in PLUMBING)
    types = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return DeviceOps(device, len(own), tuple(types), sum(op.type in PLUMBING for op in own))
