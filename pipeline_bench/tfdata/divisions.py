"""What is doubtful where a `take` and a `skip` divide one dataset, as into parts for training and for validation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline_bench.model.calls import BATCHING, KEEPING, UNCHANGED
from pipeline_bench.tfdata import describe

if TYPE_CHECKING:
    from pipeline_bench.tfdata.recipe import RecordedCall

_KEEPS_ORDER = "shuffle(…, reshuffle_each_iteration=False)"
_READER = re.compile(r"\b(image|text|audio)_dataset_from_directory\b")
"""Functions of Keras' that list files and shuffle them, in one call."""
_ONE_BY_ONE = UNCHANGED | BATCHING | {"map"}
"""Methods in front of which the same elements can be counted."""


def mixed(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> Iterator[str]:
    """Yield, as warnings, which `take` and `skip` divide elements that come in another order in each pass.

    Of a shuffle each iterator has an order of its own, so that either part has elements of the other in other passes.
    """
    for number, both in _divided(calls):
        mixes = _mixing_before(calls, number)
        if mixes is None or not any(each.id in needed for each in both):
            continue
        yield (
            f"{_subject(both)} divide what {mixes.placed} gives in another order in each "
            "pass, so that samples of one part, as for validation, come in the other part too. "
            + _keeping_apart(calls, mixes)
        )


def behind_maps(calls: Mapping[int, RecordedCall], needed: Collection[int]) -> Iterator[str]:
    """Yield, as warnings, which `take` and `skip` divide what a costly map makes, where the `take` is trained on.

    Each pass over the other part, as for validation, then makes all elements of the `take` first, only to drop them.
    """
    for number, both in _divided(calls):
        taken, skipped = sorted(both, key=lambda each: each.method, reverse=True)
        costly, is_batched = _costly_map_before(calls, number)
        if costly is None or taken.id not in needed or skipped.id in needed or _is_kept_behind(calls, skipped.id):
            continue
        counted = ", and count samples there in place of batches" if is_batched else ""
        yield (
            f"{_subject(both)} divide what {costly.named} makes: a pass over the part of the skip, as for "
            "validation, also makes all elements of the take, and drops them. Put take and skip in front of "
            f"{costly.label}{counted}."
        )


def _divided(calls: Mapping[int, RecordedCall]) -> Iterator[tuple[int, list[RecordedCall]]]:
    """Yield each call whose elements a `take` and a `skip` of as many divide, with these two."""
    parts: dict[int, list[RecordedCall]] = {}
    for call in calls.values():
        if call.method in ("take", "skip") and call.inputs:  # in a function, what it is given has no call
            parts.setdefault(call.inputs[0], []).append(call)
    for number, dividing in sorted(parts.items()):
        if both := _divide(dividing):
            yield number, both


def _subject(both: Sequence[RecordedCall]) -> str:
    return " and ".join(each.placed for each in both)


def _costly_map_before(calls: Mapping[int, RecordedCall], number: int) -> tuple[RecordedCall | None, bool]:
    """Return the first costly map of the maps and batches from a call upwards, and whether a batch is behind it."""
    found, is_batched, batches_behind = None, False, False
    while (call := calls[number]).method in _ONE_BY_ONE and len(call.inputs) == 1:
        batches_behind = batches_behind or call.method in BATCHING
        if call.method == "map" and not _is_librarys(calls, call) and _is_costly(call):
            found, is_batched = call, batches_behind
        number = call.inputs[0]
    return found, is_batched


def _is_costly(call: RecordedCall) -> bool:
    """Return whether a map is known to take long, before any is measured.

    It reads files, runs Python, or crops or resizes what it decodes.
    """
    function = call.stage().function
    return function is not None and (
        function.reads_files or function.python or function.crops_decoded or function.resizes_decoded
    )


def _is_kept_behind(calls: Mapping[int, RecordedCall], number: int) -> bool:
    """Return whether a cache is made behind a call: later passes then drop nothing."""
    behind = {number}
    for each, call in sorted(calls.items()):  # upstream first
        if not behind.isdisjoint(call.inputs):
            behind.add(each)
    return any(calls[each].method in KEEPING for each in behind)


def _keeping_apart(calls: Mapping[int, RecordedCall], mixes: RecordedCall) -> str:
    """Return what to write to keep two parts apart of what a call mixes, which may be within a reader of Keras'."""
    place = mixes.location
    reader = _READER.search(place.text) if place is not None and _is_librarys(calls, mixes) else None
    if reader is not None:
        return (
            f'{reader[0]}(…, validation_split=…, subset="both", seed=…) returns two parts that stay apart. The second '
            "comes in one order, and take and skip may divide it further. Diagnose again then: a cache can be tried."
        )
    how = "list_files(…, shuffle=False)" if mixes.method == "list_files" else _KEEPS_ORDER
    return f"{how} keeps them apart, and a cache may then stand behind them, in front of what draws."


def _is_librarys(calls: Mapping[int, RecordedCall], call: RecordedCall) -> bool:
    """Return whether one call of the user's, such as of a reader of Keras', makes a call and others with it."""
    place = call.location
    return place is not None and any(e.location == place and e.method != call.method for e in calls.values())


def _divide(dividing: Sequence[RecordedCall]) -> list[RecordedCall]:
    """Return a `take` and a `skip` of as many elements among these calls; nothing where there are none."""
    for one in dividing:
        for other in dividing:
            if one.method == "take" and other.method == "skip":
                counts = [describe.arguments(each.given()).get("count") for each in (one, other)]
                if counts[0] == counts[1] and isinstance(counts[0], int) and counts[0] > 0:
                    return sorted((one, other), key=lambda each: each.id)
    return []


def _mixing_before(calls: Mapping[int, RecordedCall], number: int) -> RecordedCall | None:
    """Return what mixes anew in each pass in front of a call, which is among it; None where a cache keeps the order."""
    while True:
        call = calls[number]
        if call.method == "shuffle" and call.given().get("reshuffle_each_iteration") is not False:
            return call
        if call.lists_anew:
            return call
        if call.method in KEEPING or len(call.inputs) != 1:
            return None
        number = call.inputs[0]
