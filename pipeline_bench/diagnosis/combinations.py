"""Several fixes together: which ones fit, and what the pair is called."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_bench.model.diagnosis import Fix
from pipeline_bench.model.edits import WHOLE

KIND = "combination"
_MOST_CHARACTERS = 70


def compatible(one: Fix, other: Fix) -> bool:
    """Whether the edits of two fixes can be made together: no two of them want the same thing otherwise."""
    if one.variant == other.variant or (one.kind == other.kind and one.stages == other.stages):
        return False
    left, right = _claims(one), _claims(other)
    whole = {stage for stage, what in left | right if what == WHOLE}
    shared = {stage for stage, _ in left} & {stage for stage, _ in right}
    return not (left & right) and not (whole & shared)


def combine(parts: Sequence[Fix], taken: set[str]) -> Fix:
    """The fix that consists of these.

    Args:
        parts: single fixes that are compatible, the one that gained most first.
        taken: the names of other variants.
    """
    edits = sorted((edit for part in parts for edit in part.edits), key=lambda edit: edit.order)
    names = [part.variant for part in parts]
    name = " + ".join(names)
    if len(name) > _MOST_CHARACTERS:
        name = f"{names[0]} + {len(names) - 1} more"
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} #{number}", number + 1
    return Fix(
        kind=KIND,
        variant=unique,
        title="; ".join(part.title for part in parts),
        edits=tuple(edits),
        stages=tuple(dict.fromkeys(stage for part in parts for stage in part.stages)),
        reorders=any(part.reorders for part in parts),
        threads=any(part.threads for part in parts),
        because="; ".join(part.because for part in parts if part.because),
        combines=tuple(names),
    )


def _claims(fix: Fix) -> set[tuple[int | str, str]]:
    return {claim for edit in fix.edits for claim in edit.claims()}
