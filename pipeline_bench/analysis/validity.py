"""Whether a variant's figures are of the job that was asked: of the same samples, from files as cold as asked.

And what a comparison does not show: of a cache or a buffer in trials too short for it, of files that were cold once.

"Faster" must not mean "did less".

A benchmark of cold storage that reads from memory from its second epoch on shows a fine figure of the wrong thing
(mlcommons/storage issue 464: no traffic in epochs 2 to 5, and a high accelerator utilization).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.analysis.speedups import batch_size
from pipeline_bench.analysis.thresholds import BUFFER_SHARE, OTHER_STATE_SHARE
from pipeline_bench.model.events import RandomSamples, Storage, StorageEpoch, Work
from pipeline_bench.model.result import WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Variant
from pipeline_bench.text import NAME, one_line, units

# A mean this many standard errors from the expected one, or a standard deviation, is none by chance.
_STANDARD_ERRORS = 6.0
# Less than this part of a standard deviation is no other distribution, however many values say so: float32 sums round.
_TOLERANCE = 0.01
# Two batches of so many random float32 values are never the same by chance; of fewer, a share like this may be.
_TELLING_VALUES = 8
_CHANCE_SHARE = 0.05

# What the first epoch may have read for the second one, or for another purpose, as a share of what it consumed.
_READ_AHEAD_SHARE = 0.5
# What a warm run may read from storage whatever its files hold: the first steps load code and libraries as well.
_CODE_BYTES = 8 << 20


# --- the samples -----------------------------------------------------------------------------------------------------


def check_work(
    variant: Variant, trials: Sequence[TrialRecord], baseline: Variant, baseline_trials: Sequence[TrialRecord]
) -> WorkCheck:
    """Return what the trials of a variant prove of the samples that reached its model.

    Args:
        variant: as resolved.
        trials: its trials that ended well.
        baseline: the variant that speed-ups are over; its epochs held the same samples, if its source is the same.
        baseline_trials: its trials that ended well; those that have a fault of their own are compared with none.
    """
    if variant.is_ceiling:
        return WorkCheck(text="a ceiling has no input")
    works = [trial.work for trial in trials if trial.work is not None]
    able = [work for work in works if work.reason is None]
    if not able:
        reason = works[0].reason if works else "its trials did not report which samples reached the model"
        return WorkCheck(text=str(reason))
    of_baseline = [trial.work for trial in baseline_trials if trial.work] if variant.source == baseline.source else []
    same = [work for work in of_baseline if not any(_faults([work]))]
    others = list(_other_records_skipped(able, same)) or list(_other_epochs(able, same))
    faults = list(dict.fromkeys([*_faults(able), *others]))
    if faults:
        silent = [each for work in able for each in work.silent]
        return WorkCheck(status="unequal", text="; ".join(dict.fromkeys([*faults, *silent])))
    if unsure := [found for work in able if work.silent and (found := missing(work))]:
        return WorkCheck(text=unsure[0])
    return WorkCheck(status="equal", text=_proof(able))


def missing(work: Work) -> str | None:
    """Return what did not come of the samples of a trial in which a process of the input fell silent, and who did.

    None where none did, where every sample came once, and where they cannot be distinguished.
    """
    found = work.numbered
    if not work.silent or found is None or not (absent := found.lost + found.in_flight) + found.repeated:
        return None
    least = _at_least([work])
    again = f", and {least}{found.repeated:,} came twice" if found.repeated else ""
    came = f"the last of the {_all_samples([work]):,} that came"
    return f"{work.silent[0]}: {least}{absent:,} samples before {came} are lost or were on their way{again}"


def _faults(works: Sequence[Work]) -> Iterator[str]:
    samples = sum(work.samples for work in works)
    due = sum(work.checked_steps * work.batch_size for work in works)
    if samples != due:
        steps = sum(work.checked_steps for work in works)
        yield f"its steps brought {_number(samples / steps)} samples each, not {_number(due / steps)}"
    numbered = [work.numbered for work in works if work.numbered is not None]
    for name in ("lost", "repeated", "invented"):
        count = sum(getattr(found, name) for found in numbered)
        if count:
            yield f"it {name} {_at_least(works)}{count:,} of {_all_samples(works):,} samples"
    random = [work.random for work in works if work.random is not None]
    batches = sum(_repeated_batches(work) for work in works)
    if batches:
        yield f"{batches:,} of {sum(work.checked_steps for work in works):,} batches were exact repetitions"
    yield from dict.fromkeys(fault for found in random for fault in _other_distribution(found))


def _at_least(works: Sequence[Work]) -> str:
    return "at least " if any(work.checked_steps < work.steps for work in works) else ""


def _all_samples(works: Sequence[Work]) -> int:
    """Return the samples of the checked steps, and what the others should have brought."""
    return sum(work.samples + max(0, work.steps - work.checked_steps) * work.batch_size for work in works)


def _repeated_batches(work: Work) -> int:
    """Return how many batches came again, and not by chance: a few float32 numbers can be the same as a few others."""
    if work.random is None or not work.checked_steps:
        return 0
    tiny = work.random.values < _TELLING_VALUES * work.checked_steps
    by_chance = tiny and work.random.repeated_batches < _CHANCE_SHARE * work.checked_steps
    return 0 if by_chance else work.random.repeated_batches


def _other_distribution(found: RandomSamples) -> Iterator[str]:
    """Yield what is off by more than chance, mean or deviation: their standard errors are σ/√n and σ/√(2n)."""
    if found.expected_mean is None or found.expected_std is None or not found.values:
        return
    error = _STANDARD_ERRORS * found.expected_std / math.sqrt(found.values)
    tolerance = _TOLERANCE * found.expected_std
    if abs(found.mean - found.expected_mean) > max(error, tolerance):
        yield f"its features have the mean {found.mean:.3g}, not {found.expected_mean:.3g}"
    if abs(found.std - found.expected_std) > max(error / math.sqrt(2), tolerance):
        yield f"its features have the standard deviation {found.std:.3g}, not {found.expected_std:.3g}"


def _other_epochs(works: Sequence[Work], baseline: Sequence[Work]) -> Iterator[str]:
    """Yield a fault: whole epochs must have held the samples that the same epoch of the baseline held."""
    expected = {index: digest for work in baseline for index, digest in _whole_epochs(work)}
    for work in works:
        for index, digest in _whole_epochs(work):
            if expected.get(index, digest) != digest:
                yield f"its epoch {index + 1} held other samples than the baseline's"
                return


def _other_records_skipped(works: Sequence[Work], baseline: Sequence[Work]) -> Iterator[str]:
    """Yield a fault: of trials that came through an epoch each, how many records they left out must be the same."""
    whole = [work for work in baseline if any(_whole_epochs(work))]
    for work in works:
        for other in whole:
            if any(_whole_epochs(work)) and work.skipped != other.skipped:
                yield f"it skipped {units.count(work.skipped, 'record')} of an epoch, the baseline {other.skipped:,}"
                return


def _whole_epochs(work: Work) -> Iterator[tuple[int, str]]:
    """Yield index and digest of the epochs of which every sample came once, but for the skipped ones."""
    if work.numbered is not None:
        for epoch in work.numbered.epochs:
            if epoch.samples == work.numbered.epoch_samples - work.skipped and not epoch.repeated:
                yield epoch.index, epoch.digest


def _proof(works: Sequence[Work]) -> str:
    """Return which samples were checked, and the result."""
    samples = sum(work.samples for work in works)
    checked, steps = sum(work.checked_steps for work in works), sum(work.steps for work in works)
    scope = f"in {units.count(len(works), 'trial')}"
    if checked < steps:
        scope = f"in {checked:,} of {steps:,} steps"
    numbered = [work.numbered for work in works if work.numbered is not None]
    if numbered:
        whole = sum(found.whole_epochs for found in numbered)
        size = numbered[0].epoch_samples
        epochs = f", {units.count(whole, 'whole epoch')} of {size:,}" if whole else ""
        skipped = max(work.skipped for work in works)
        records = f"{skipped:,} of {size:,} records" if whole else units.count(skipped, "record")
        left_out = f", {records} skipped" if skipped else ""
        if damaged := max(work.damaged_files for work in works):
            left_out += f", {units.count(damaged, 'file')} read up to some damage"
        return f"{samples:,} samples {scope}{epochs}: none lost, repeated or invented{left_out}"
    found = works[-1].random
    if found is None:
        return f"{samples:,} samples {scope}"
    moments = f"mean {round(found.mean, 3) + 0.0:.3f}, standard deviation {found.std:.3f}"
    return f"{samples:,} random samples {scope}: {moments}, no batch twice"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


# --- the page cache --------------------------------------------------------------------------------------------------


def cache_doubt(variant: Variant, trials: Sequence[TrialRecord]) -> str | None:
    """Return why the files were not as the source asked, or cannot be known to have been; None where all is well.

    Residency decides, and what was read from storage where residency is not known or speaks against a cold run. Of a
    pipeline that caches only the first epoch is judged: it reads no file afterwards.

    Args:
        variant: as resolved.
        trials: its trials that ended well.
    """
    cached = variant.caches
    # Traffic is counted of the trial's own process.
    known: Any = plugins.find_if_known("backends", variant.backend)
    reads_itself = known is not None and not known.has_processes
    for trial in trials:
        found = trial.storage
        if found is None or found.asked == "as-is":
            continue
        reason = _cold_doubt(found, cached, reads_itself) if found.asked == "cold" else _warm_doubt(found, cached)
        if reason:
            where = f" in repeat {trial.repeat + 1}" if len(trials) > 1 else ""
            return f"page_cache = {found.asked} was set, but {reason}{where}"
    return None


def describe_cache(trials: Sequence[TrialRecord]) -> str | None:
    """Return what was in the page cache and what was read, over trials that asked for the same; None without files."""
    found = [trial.storage for trial in trials if trial.storage is not None]
    if not found:
        return None
    before = _mean([storage.resident_share for storage in found])
    known = f"{units.share(before)} in the page cache before training"
    if before is None:
        known = f"not known what was in the page cache: {found[0].reason or 'no file was checked'}"
    later = _resident([epoch for storage in found for epoch in storage.epochs[1:]])
    parts = [known] + ([f"{units.share(later)} from epoch 2 on"] if later is not None and before is not None else [])
    return f"{', '.join(parts)}; {_traffic_text(found)}"


def from_page_cache(trials: Sequence[TrialRecord]) -> bool | None:
    """Return whether what trials read of files came from the page cache, and not from storage; None: not known.

    A network's file system may not count what it reads, so that the cache itself has to hold the files.
    """
    epochs = [epoch for trial in trials if trial.storage is not None for epoch in trial.storage.epochs]
    resident = _resident(epochs)
    if resident is None:
        return None
    return resident >= 1 - OTHER_STATE_SHARE and (_traffic(epochs) or 0.0) <= OTHER_STATE_SHARE


def _traffic_text(found: Sequence[Storage]) -> str:
    epochs = [epoch for storage in found for epoch in storage.epochs]
    consumed = sum(epoch.size_bytes for epoch in epochs)
    in_trials = f" in {units.count(len(found), 'trial')}" if len(found) > 1 else ""
    head = f"{units.size(consumed)} consumed in {units.count(len(epochs), 'epoch')}{in_trials}"
    if _read(epochs) is None:
        return f"{head}, not known how much of it came from storage: {found[0].read_reason or 'nothing was consumed'}"
    return f"{head}, {units.size(_read(epochs))} read from storage"


def _cold_doubt(found: Storage, cached: bool, reads_itself: bool) -> str | None:
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
            return f"this was not checked {name}: {found.reason or 'an epoch was too short to check a file'}"
        from_storage = traffic is not None and traffic >= 1 - OTHER_STATE_SHARE
        if resident is not None and resident > OTHER_STATE_SHARE and not from_storage:
            return f"{units.share(resident)} of the files was in the page cache {name}"
        # Nothing is resident of files that nobody reads, as where the input keeps them in its own memory.
        is_kept = reads_itself and traffic is not None and traffic < OTHER_STATE_SHARE
        if is_kept or (resident is None and not from_storage):
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
        return f"this was not checked: {found.reason or 'no file was checked'}"
    return None


def _resident(epochs: Sequence[StorageEpoch]) -> float | None:
    """Return the resident share over some epochs, each weighted by what it consumed."""
    known = [(epoch.size_bytes, epoch.resident_share) for epoch in epochs if epoch.resident_share is not None]
    weight = sum(size_bytes for size_bytes, _ in known)
    return sum(size_bytes * share for size_bytes, share in known) / weight if weight else None


def _levelled(epochs: Sequence[StorageEpoch]) -> list[StorageEpoch]:
    """Return the epochs, with no more read in the first than it can have read for itself and ahead."""
    first = [
        epoch.model_copy(
            update={"read_bytes": min(epoch.read_bytes, round((1 + _READ_AHEAD_SHARE) * epoch.size_bytes))}
        )
        for epoch in epochs[:1]
        if epoch.read_bytes is not None
    ]
    return [*first, *epochs[1:]]


def _traffic(epochs: Sequence[StorageEpoch]) -> float | None:
    """Return what was read from storage over what was consumed; above 1 with what was read ahead."""
    read, consumed = _read(epochs), sum(epoch.size_bytes for epoch in epochs)
    return read / consumed if read is not None and consumed else None


def _read(epochs: Sequence[StorageEpoch]) -> int | None:
    known = [epoch.read_bytes for epoch in epochs if epoch.read_bytes is not None]
    return sum(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# --- what trials do not show -----------------------------------------------------------------------------------------


def not_shown(session: Session) -> list[tuple[str, str]]:
    """Return the variants that a session shows less of than a reader would take for granted, and why."""
    found = []
    for variant in session.scenario.variants:
        trials = [trial for trial in session.trials if trial.variant == variant.name and trial.measured]
        if trials and not variant.is_ceiling:
            found += [(one_line(variant.name, NAME), text) for text in _of_variant(variant, trials)]
    return [*found, *_of_files(session)]


def _of_variant(variant: Variant, trials: Sequence[TrialRecord]) -> Iterator[str]:
    steps = max(trial.steps.count for trial in trials if trial.steps is not None)
    ahead = _ahead_batches(variant)
    if ahead > BUFFER_SHARE * steps:
        yield (
            f"its buffer holds up to {units.count(ahead, 'batch', 'batches')}, made before the steps that count, and a "
            f"trial has {steps:,}: a part of its wait may not show; use --steps {math.ceil(ahead / BUFFER_SHARE):,}"
        )
    epochs = [
        trial.work.steps * trial.work.batch_size / trial.work.numbered.epoch_samples
        for trial in trials
        if trial.work is not None and trial.work.numbered is not None and trial.work.numbered.epoch_samples
    ]
    if variant.caches and epochs and max(epochs) <= 1:
        needed = math.ceil(2 * steps / max(epochs))
        yield f"no trial came to its second epoch, so its cache was never read; use --steps {needed:,}"


def _ahead_batches(variant: Variant) -> int:
    """Return how many batches a variant may make before its first step; 0 where that is not known."""
    backend = plugins.make_if_known("backends", variant.backend, variant.options)
    return 0 if backend is None else int(backend.ahead_batches(batch_size(variant)))


def _of_files(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the trial that found least of its files in the page cache, where others found much more; nobody asked."""
    found = [
        (trial.storage.resident_share, trial)
        for trial in session.trials
        if trial.measured and trial.storage is not None and trial.storage.asked == "as-is"
        if trial.storage.resident_share is not None
    ]
    shares = [share for share, _ in found]
    if not found or max(shares) - min(shares) <= OTHER_STATE_SHARE:
        return
    least, trial = min(found, key=lambda each: each[0])
    yield (
        one_line(trial.variant, NAME),
        f"repeat {trial.repeat + 1} found {units.share(least)} of the files in the page cache, and others up to "
        f"{units.share(max(shares))}: it read from storage what these had from memory; measure again, or set "
        'source.page_cache to "warm" or "cold"',
    )
