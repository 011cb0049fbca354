"""Whether a variant trained on the samples that it should: "faster" must not mean "did less". Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pipeline_bench.model.events import RandomSamples, Work
from pipeline_bench.model.result import Verdict, WorkCheck
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Variant
from pipeline_bench.text import units

# A mean this many standard errors from the expected one, or a standard deviation, is none by chance.
_STANDARD_ERRORS = 6.0
# Less than this part of a standard deviation is no other distribution, however many values say so: float32 sums round.
_TOLERANCE = 0.01
# Two batches of so many random float32 values are never the same by chance; of fewer, a share like this may be.
_TELLING_VALUES = 8
_CHANCE_SHARE = 0.05


def check(
    variant: Variant, trials: Sequence[TrialRecord], baseline: Variant, baseline_trials: Sequence[TrialRecord]
) -> WorkCheck:
    """What the trials of a variant prove of the samples that reached its model.

    Args:
        variant: as resolved.
        trials: its trials that ended well.
        baseline: the variant that speed-ups are over; its epochs held the same samples, if its source is the same.
        baseline_trials: its trials that ended well.
    """
    if variant.is_ceiling:
        return WorkCheck(text="a ceiling has no input")
    works = [trial.work for trial in trials if trial.work is not None]
    able = [work for work in works if work.reason is None]
    if not able:
        reason = works[0].reason if works else "its trials did not say which samples reached the model"
        return WorkCheck(text=str(reason))
    same = [trial.work for trial in baseline_trials if trial.work] if variant.source == baseline.source else []
    others = list(_other_records_skipped(able, same)) or list(_other_epochs(able, same))
    faults = list(dict.fromkeys([*_faults(able), *others]))
    if faults:
        return WorkCheck(status="unequal", text="; ".join(faults))
    return WorkCheck(status="equal", text=_proof(able))


def refusal(found: WorkCheck) -> Verdict:
    """The verdict on a variant that did other work: its figures are of another job, and it cannot be the fastest."""
    return Verdict(kind="unequal-work", text=f"not comparable, its work was not equal: {found.text}.")


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
    """Those of the checked steps, and what the others should have brought."""
    return sum(work.samples + max(0, work.steps - work.checked_steps) * work.batch_size for work in works)


def _repeated_batches(work: Work) -> int:
    """Batches that came again, and not by chance: a few float32 numbers can be the same as a few others."""
    if work.random is None or not work.checked_steps:
        return 0
    tiny = work.random.values < _TELLING_VALUES * work.checked_steps
    by_chance = tiny and work.random.repeated_batches < _CHANCE_SHARE * work.checked_steps
    return 0 if by_chance else work.random.repeated_batches


def _other_distribution(found: RandomSamples) -> Iterator[str]:
    """Where mean or standard deviation are off by more than chance: their standard errors are σ/√n and σ/√(2n)."""
    if found.expected_mean is None or found.expected_std is None or not found.values:
        return
    error = _STANDARD_ERRORS * found.expected_std / math.sqrt(found.values)
    tolerance = _TOLERANCE * found.expected_std
    if abs(found.mean - found.expected_mean) > max(error, tolerance):
        yield f"its features have the mean {found.mean:.3g}, not {found.expected_mean:.3g}"
    if abs(found.std - found.expected_std) > max(error / math.sqrt(2), tolerance):
        yield f"its features have the standard deviation {found.std:.3g}, not {found.expected_std:.3g}"


def _other_epochs(works: Sequence[Work], baseline: Sequence[Work]) -> Iterator[str]:
    """Whole epochs must have held the samples that the same epoch of the baseline held."""
    expected = {index: digest for work in baseline for index, digest in _whole_epochs(work)}
    for work in works:
        for index, digest in _whole_epochs(work):
            if expected.get(index, digest) != digest:
                yield f"its epoch {index + 1} held other samples than the baseline's"
                return


def _other_records_skipped(works: Sequence[Work], baseline: Sequence[Work]) -> Iterator[str]:
    """Of trials that came through an epoch each, how many records they left out must be the same."""
    whole = [work for work in baseline if any(_whole_epochs(work))]
    for work in works:
        for other in whole:
            if any(_whole_epochs(work)) and work.skipped != other.skipped:
                yield f"it skipped {units.count(work.skipped, 'record')} of an epoch, the baseline {other.skipped:,}"
                return


def _whole_epochs(work: Work) -> Iterator[tuple[int, str]]:
    """Index and digest of the epochs of which every sample came, but for the skipped ones."""
    if work.numbered is not None:
        for epoch in work.numbered.epochs:
            if epoch.samples == work.numbered.epoch_samples - work.skipped:
                yield epoch.index, epoch.digest


def _proof(works: Sequence[Work]) -> str:
    """What was looked at, and what it showed."""
    samples = sum(work.samples for work in works)
    checked, steps = sum(work.checked_steps for work in works), sum(work.steps for work in works)
    looked = f"in {units.count(len(works), 'trial')}"
    if checked < steps:
        looked = f"in {checked:,} of {steps:,} steps"
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
        return f"{samples:,} samples {looked}{epochs}: none lost, repeated or invented{left_out}"
    found = works[-1].random
    if found is None:
        return f"{samples:,} samples {looked}"
    moments = f"mean {round(found.mean, 3) + 0.0:.3f}, standard deviation {found.std:.3f}"
    return f"{samples:,} random samples {looked}: {moments}, no batch twice"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
