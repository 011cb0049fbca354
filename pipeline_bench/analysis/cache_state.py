"""Whether a trial's files really were in the page cache, or out of it, as its source asked for. Pure.

A benchmark of cold storage that reads from memory from its second epoch on shows a fine figure of the wrong thing
(mlcommons/storage issue 464: no traffic in epochs 2 to 5, and a high accelerator utilization).
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline_bench.model.events import Storage, StorageEpoch
from pipeline_bench.model.result import Verdict
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Variant
from pipeline_bench.text import units

OTHER_STATE_SHARE = 0.10
"""How much of the files may be in the other state than was asked.

A tenth of the files in memory takes at most a tenth of the storage's time away, which is the line at which a verdict
names a cause (`verdicts.BOUND_SHARE`).
"""

# What the first epoch may have read for the second one, or for another purpose, as a share of what it consumed.
_READ_AHEAD_SHARE = 0.5
# What a warm run may read from storage whatever its files hold: the first steps load code and libraries as well.
_CODE_BYTES = 8 << 20


def doubt(variant: Variant, trials: Sequence[TrialRecord]) -> str | None:
    """Why the files were not as the source asked, or cannot be known to have been; None where all is well.

    Residency decides, and what was read from storage where residency is not known or speaks against a cold run. Of a
    pipeline that caches only the first epoch is judged: it reads no file afterwards.

    Args:
        variant: as resolved.
        trials: its trials that ended well.
    """
    cached = variant.options.get("cache", "none") not in ("none", None, False)
    for trial in trials:
        found = trial.storage
        if found is None or found.asked == "as-is":
            continue
        reason = _cold_doubt(found, cached) if found.asked == "cold" else _warm_doubt(found, cached)
        if reason:
            where = f" in repeat {trial.repeat + 1}" if len(trials) > 1 else ""
            return f"page_cache = {found.asked} was asked, but {reason}{where}"
    return None


def refusal(reason: str) -> Verdict:
    """The verdict on a variant whose files were not as asked: its figures are of another storage."""
    return Verdict(kind="inconclusive", text=f"inconclusive: {reason}.")


def describe(trials: Sequence[TrialRecord]) -> str | None:
    """What was in the page cache and what was read, over trials that asked for the same; None where none read files."""
    found = [trial.storage for trial in trials if trial.storage is not None]
    if not found:
        return None
    before = _mean([storage.resident_share for storage in found])
    known = f"{units.share(before)} in the page cache before training"
    if before is None:
        known = f"not known what was in the page cache: {found[0].reason or 'no file was looked at'}"
    later = _resident([epoch for storage in found for epoch in storage.epochs[1:]])
    parts = [known] + ([f"{units.share(later)} from epoch 2 on"] if later is not None and before is not None else [])
    return f"{', '.join(parts)}; {_traffic_text(found)}"


def _traffic_text(found: Sequence[Storage]) -> str:
    epochs = [epoch for storage in found for epoch in storage.epochs]
    consumed = sum(epoch.size_bytes for epoch in epochs)
    in_trials = f" in {units.count(len(found), 'trial')}" if len(found) > 1 else ""
    head = f"{units.size(consumed)} consumed in {units.count(len(epochs), 'epoch')}{in_trials}"
    if _read(epochs) is None:
        return f"{head}, not known how much of it came from storage: {found[0].read_reason or 'nothing was consumed'}"
    return f"{head}, {units.size(_read(epochs))} read from storage"


def _cold_doubt(found: Storage, cached: bool) -> str | None:
    # No reading ahead explains this, and traffic does not excuse it: of a small data set the first steps' code is more.
    if found.resident_share is not None and found.resident_share > OTHER_STATE_SHARE:
        return f"{units.share(found.resident_share)} of the files was in the page cache when training began"
    judged = [("in epoch 1", found.epochs[:1], _traffic(found.epochs[:1]))]
    judged += [("from epoch 2 on", found.epochs[1:], _traffic(_levelled(found.epochs)))] if not cached else []
    for name, epochs, traffic in judged:
        if not epochs:
            continue
        resident = _resident(epochs)
        if resident is None and traffic is None:
            return f"that could not be checked {name}: {found.reason or 'an epoch was too short to look at a file'}"
        from_storage = traffic is not None and traffic >= 1 - OTHER_STATE_SHARE
        if resident is not None and resident > OTHER_STATE_SHARE and not from_storage:
            return f"{units.share(resident)} of the files was in the page cache {name}"
        if resident is None and not from_storage:
            return f"only {units.share(traffic)} of what was consumed {name} came from storage"
    return None


def _warm_doubt(found: Storage, cached: bool) -> str | None:
    shares = [found.resident_share, _resident(found.epochs)]
    known = [share for share in shares if share is not None]
    if known and min(known) < 1 - OTHER_STATE_SHARE:
        when = "when training began" if min(known) == found.resident_share else "while it trained"
        return f"only {units.share(min(known))} of the files was in the page cache {when}"
    read, traffic = _read(found.epochs), _traffic(found.epochs)
    if read is not None and traffic is not None and traffic > OTHER_STATE_SHARE and read > _CODE_BYTES:
        return f"{units.size(read)} was read from storage while it trained, {units.share(traffic)} of what it consumed"
    if not known and (read is None or cached):
        return f"that could not be checked: {found.reason or 'no file was looked at'}"
    return None


def _resident(epochs: Sequence[StorageEpoch]) -> float | None:
    """The resident share over some epochs, each weighted by what it consumed."""
    known = [(epoch.size_bytes, epoch.resident_share) for epoch in epochs if epoch.resident_share is not None]
    weight = sum(size_bytes for size_bytes, _ in known)
    return sum(size_bytes * share for size_bytes, share in known) / weight if weight else None


def _levelled(epochs: Sequence[StorageEpoch]) -> list[StorageEpoch]:
    """With no more read in the first epoch than it can have read for itself and ahead; all others as they are."""
    first = [
        epoch.model_copy(
            update={"read_bytes": min(epoch.read_bytes, round((1 + _READ_AHEAD_SHARE) * epoch.size_bytes))}
        )
        for epoch in epochs[:1]
        if epoch.read_bytes is not None
    ]
    return [*first, *epochs[1:]]


def _traffic(epochs: Sequence[StorageEpoch]) -> float | None:
    """What was read from storage over what was consumed; above 1 with what was read ahead."""
    read, consumed = _read(epochs), sum(epoch.size_bytes for epoch in epochs)
    return read / consumed if read is not None and consumed else None


def _read(epochs: Sequence[StorageEpoch]) -> int | None:
    known = [epoch.read_bytes for epoch in epochs if epoch.read_bytes is not None]
    return sum(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
