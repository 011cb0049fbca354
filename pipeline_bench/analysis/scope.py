"""What a comparison does not show: of a cache or a buffer in trials too short for it, and of files that were cold once.

Pure: everything follows from the session.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pipeline_bench import plugins
from pipeline_bench.analysis.speedups import batch_size
from pipeline_bench.analysis.thresholds import BUFFER_SHARE, OTHER_STATE_SHARE
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Variant
from pipeline_bench.text import NAME, one_line, units


def remarks(session: Session) -> list[tuple[str, str]]:
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
