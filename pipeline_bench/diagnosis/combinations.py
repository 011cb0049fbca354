"""Several fixes together: which ones fit, and what the pair is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline_bench.diagnosed import Fix
from pipeline_bench.user_pipeline import (
    BatchInGenerator,
    Edit,
    Fuse,
    InsertAfter,
    Interleave,
    MoveBefore,
    OffloadToService,
    PrefetchToDevice,
    Remove,
    SetArgument,
    SetOptions,
)

KIND = "combination"
_MOST_CHARACTERS = 70
_WHOLE = "*"
"""All of a stage: no other edit of it fits."""
_Claim = tuple[int | str, str]
# What changes a call comes before what moves it, and what stands behind the sink comes last.
_ORDER: tuple[type | tuple[type, ...], ...] = (
    SetArgument,
    (Remove, MoveBefore, Fuse, BatchInGenerator, Interleave),
    InsertAfter,
    SetOptions,
    PrefetchToDevice,
    OffloadToService,
)


def compatible(one: Fix, other: Fix) -> bool:
    """Whether the edits of two fixes can be made together: no two of them want the same thing otherwise."""
    if one.variant == other.variant or (one.kind == other.kind and one.stages == other.stages):
        return False
    left, right = set(_claims(one)), set(_claims(other))
    whole = {stage for stage, what in left | right if what == _WHOLE}
    shared = {stage for stage, _ in left} & {stage for stage, _ in right}
    return not (left & right) and not (whole & shared)


def combine(parts: Sequence[Fix], taken: set[str]) -> Fix:
    """The fix that consists of these.

    Args:
        parts: single fixes that are compatible, the one that gained most first.
        taken: the names of other variants.
    """
    edits = sorted((edit for part in parts for edit in part.edits), key=_place)
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


def _claims(fix: Fix) -> Iterator[_Claim]:
    """What the edits of a fix want for themselves: stages or options, and what of them."""
    for edit in fix.edits:
        yield from _claimed(edit)


def _claimed(edit: Edit) -> list[_Claim]:  # noqa: PLR0911 - a case for each edit
    match edit:
        case SetArgument():
            return [(edit.stage, edit.argument)]
        case InsertAfter():  # of caches, one is enough
            return [(edit.stage, edit.method), *([("cache", "place")] if edit.method == "cache" else [])]
        case MoveBefore():
            return [(edit.stage, "place")]
        case Remove() | Interleave():
            return [(edit.stage, _WHOLE)]
        case Fuse():
            return [(stage, _WHOLE) for stage in edit.stages]
        case BatchInGenerator():
            return [(edit.generator, _WHOLE), (edit.batch, _WHOLE)]
        case SetOptions():
            return [("options", name) for name in edit.options]
        case _:
            return [("sink", edit.edit)]


def _place(edit: Edit) -> int:
    return next(place for place, kinds in enumerate(_ORDER) if isinstance(edit, kinds))
