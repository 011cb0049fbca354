"""Which device ran the ops of a step, for every format: one account for all variants that have the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_bench.model.events import PlacedOp, Placement
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, one_line, units

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
_OF_ONEDNN = re.compile(r"^_(?:MklNative|Mkl)?(?=[A-Z])")


@dataclass(frozen=True)
class Placed:
    """The placement that some variants have in common; `reason` where it is not known."""

    name: str
    """The variants, on one line."""
    ops: tuple[PlacedOp, ...]
    not_kept: str
    """How many ops are not in the session, in words; empty where all are."""
    reason: str | None

    @property
    def devices(self) -> list[tuple[str, int, str]]:
        """The devices that have ops, by name, with how many ops and of which types."""
        names = sorted({op.device for op in self.ops})
        own = ([op for op in self.ops if op.device == name] for name in names)
        return [(name, len(ops), _types(ops)) for name, ops in zip(names, own, strict=True)]


def placements(session: Session) -> list[Placed]:
    """Return the placements in the scenario's order: one for all variants that have the same.

    A ceiling's is left out, since its model is placed like its variants'; but where there are only ceilings.
    """
    first = {trial.variant: trial.placement or _NOT_TOLD for trial in session.trials if trial.repeat == 0}
    asked = [variant for variant in session.scenario.variants if variant.runtime.log_placement]
    variants = [variant for variant in asked if variant.name in first]
    shown = [variant for variant in variants if variant.ceiling is not None] or variants
    groups: dict[Placement, list[str]] = {}
    for variant in shown:
        groups.setdefault(first[variant.name], []).append(one_line(variant.name, NAME))
    made = []
    for at, names in groups.items():
        left_out = at.op_count - len(at.ops)
        not_kept = f"{units.count(left_out, 'more op')} not kept" if left_out > 0 else ""
        made.append(Placed("; ".join(names), at.ops, not_kept, at.reason))
    return made


def _types(ops: Sequence[PlacedOp]) -> str:
    """Return the types of ops by how often they are there: ``MatMul 18, AddV2 1, 4 of plumbing``."""
    counted = Counter(_OF_ONEDNN.sub("", op.type) for op in ops if op.type not in PLUMBING)
    types = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{one_line(kind, NAME)} {count}" for kind, count in types[:_MOST_TYPES]]
    if rest := sum(count for _, count in types[_MOST_TYPES:]):
        named.append(f"{rest} of other types")
    if plumbing := len(ops) - counted.total():
        named.append(f"{plumbing} of plumbing")
    return ", ".join(named)
