"""Keeps account of the samples that reached a model: each numbered one once, or the moments of random ones.

Evidence comes in the order of the steps, but only the checked steps bring any. Pure arithmetic on arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pipeline_bench.model.events import Epoch, NumberedSamples, RandomSamples, Work
from pipeline_bench.records import RecordSource
from pipeline_bench.records.samples import SampleSource
from pipeline_bench.sources import Identity, Moments, Source

Numbers = npt.NDArray[np.int64]
Shown = tuple[int, npt.NDArray[np.float64]]
"""The index of a step, from 0, and the evidence that it brought, float64 [n]."""

EPOCHS_KEPT = 100
SKIPPED_RECORDS_KEPT = 5
# Epochs of a sample or two are many: later ones than this have no account of their own.
_EPOCHS_COUNTED = 2**20
# How many batches of random numbers are remembered at least, to know one that comes again.
_BATCHES_REMEMBERED = 2**16

# How far back a number is remembered at least; one that comes later than that counts as repeated.
_REMEMBERED = 2**23
# A source may run ahead of its model by this many samples; a larger number than that is none it can have given.
_AHEAD = 2**24
# Of so many checked steps at most it is remembered which ones they were.
_STEPS_REMEMBERED = 2**16

_UNKNOWN_ORDER_BATCHES = 16
_NONE_CHECKED = "no step showed the samples that it trained on"


class Ledger(ABC):
    """The account of one trial.

    Args:
        batch_size: the samples that a step should bring.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.checked_steps = 0
        self.samples = 0

    @abstractmethod
    def take(self, shown: Sequence[Shown]) -> None:
        """Take in what checked steps showed, in their order; see `evidence.build`."""

    @abstractmethod
    def close(self, every: int, steps: int) -> Work:
        """The account as it stands, where one step in `every` was to be looked at, of so many in all."""


class NumberedLedger(Ledger):
    """Holds every number against those that came before.

    Args:
        batch_size: the samples that a step should bring.
        identity: what the source says of its samples.
        reorder_window: see `Input.reorder_window`.
        skipped: the places of records that were left out, and why; read when the account is closed, and not before.
        damaged_files: see `RecordSource.damaged_files`.
    """

    def __init__(
        self,
        batch_size: int,
        identity: Identity,
        reorder_window: int | None,
        skipped: Mapping[int, str] | None = None,
        damaged_files: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(batch_size)
        self._identity = identity
        self._skipped: Mapping[int, str] = {} if skipped is None else skipped
        self._damaged = [f"{path}, {why}; the rest of the file" for path, why in (damaged_files or {}).items()]
        unknown = _UNKNOWN_ORDER_BATCHES * batch_size
        self._out_of_order = unknown if reorder_window is None else reorder_window
        self._out_of_order += identity.shuffled_samples
        self._first = 0
        """The number that `_seen` begins with; all below are settled."""
        self._seen = np.zeros(1024, dtype=np.bool_)
        self._largest = -1
        self._distinct = 0
        self._repeated = 0
        self._invented = 0
        self._last_step = -1
        self._overtaken_steps = self._out_of_order // batch_size
        self._last_steps = deque([-1], maxlen=min(self._overtaken_steps, _STEPS_REMEMBERED) + 1)
        self._epochs = np.zeros((1, 2), dtype=np.int64)  # samples, repeated
        self._digests = np.zeros(1, dtype=np.uint64)

    def take(self, shown: Sequence[Shown]) -> None:
        """Numbers [samples], then as many fingerprints, of each step."""
        if not shown:
            return
        self.checked_steps += len(shown)
        self._last_step = shown[-1][0]
        self._last_steps.extend(step for step, _ in shown)
        claimed = np.concatenate([evidence[: evidence.size // 2] for _, evidence in shown])
        fingerprints = np.concatenate([evidence[evidence.size // 2 :] for _, evidence in shown]).astype(np.float32)
        self.samples += claimed.size
        largest = (self._last_step + 1) * self.batch_size + _AHEAD + self._identity.shuffled_samples
        possible = (claimed >= 0) & (claimed < largest) & (claimed == np.floor(claimed))
        numbers = claimed[possible].astype(np.int64)
        expected, shown_ones = self._identity.fingerprints(numbers), fingerprints[possible]
        real = (expected == shown_ones) | np.isnan(expected)
        self._invented += claimed.size - int(real.sum())
        if real.any():
            self._enter(numbers[real])

    def close(self, every: int, steps: int) -> Work:
        """The account; what is missing is lost where threads of the input that lag behind cannot explain it."""
        if not self.checked_steps:
            return Work(batch_size=self.batch_size, reason=_NONE_CHECKED)
        unchecked = max(0, self._last_step + 1 - self.checked_steps) * self.batch_size
        size = self._identity.epoch_samples
        skipped = {place: why for place, why in sorted(dict(self._skipped).items()) if place <= self._largest}
        due = self._largest + 1 - _numbers_of(skipped, size, self._largest + 1)
        # The samples of the other steps are taken to be there, each once: then there are as many numbers, or more.
        missing = max(0, due - self._distinct - unchecked)
        again = self.samples - self._invented + unchecked - self._beyond() - due
        in_flight = min(missing, self._out_of_order)
        epochs = [
            Epoch(index=index, samples=int(samples), repeated=int(repeated), digest=f"{int(self._digests[index]):016x}")
            for index, (samples, repeated) in enumerate(self._epochs[:EPOCHS_KEPT].tolist())
            if samples
        ]
        numbered = NumberedSamples(
            epoch_samples=size,
            repeated=max(self._repeated, again),
            invented=self._invented,
            lost=missing - in_flight,
            in_flight=in_flight,
            epoch_count=int((self._epochs[:, 0] > 0).sum()),
            whole_epochs=int(((self._epochs[:, 0] == size - len(skipped)) & (self._epochs[:, 1] == 0)).sum()),
            epochs=tuple(epochs),
        )
        return Work(
            checked_steps=self.checked_steps,
            steps=steps,
            every=every,
            samples=self.samples,
            batch_size=self.batch_size,
            numbered=numbered,
            skipped=len(skipped),
            skipped_records=(*self._damaged, *skipped.values())[:SKIPPED_RECORDS_KEPT],
            damaged_files=len(self._damaged),
        )

    def _beyond(self) -> int:
        """How many samples of unchecked steps may have had a larger number than any that was seen.

        What reached the model after the first of these was overtaken by it: no more than `reorder_window`, which
        fill so many of the last checked steps.
        """
        checked = min(self._overtaken_steps, self.checked_steps)
        before = self._last_steps[-1 - checked] if checked < len(self._last_steps) else -1
        return (self._last_step - before - checked) * self.batch_size

    def _enter(self, numbers: Numbers) -> None:
        self._make_room(int(numbers.max()))
        distinct, counts = np.unique(numbers, return_counts=True)
        places = distinct - self._first
        settled = places < 0
        known = settled.copy()
        known[~settled] = self._seen[places[~settled]]
        self._seen[places[~settled]] = True
        repeated = counts - 1 + known
        self._repeated += int(repeated.sum())
        self._distinct += int((~known).sum())
        self._largest = max(self._largest, int(distinct[-1]))
        epoch, place = np.divmod(distinct, self._identity.epoch_samples)
        kept = epoch < _EPOCHS_COUNTED
        if not kept.any():
            return
        epoch = epoch[kept]
        self._grow_epochs(int(epoch[-1]))
        np.add.at(self._epochs, epoch, np.stack([counts, repeated], axis=1)[kept])
        np.add.at(self._digests, epoch, (_mixed(place) * counts.astype(np.uint64))[kept])

    def _make_room(self, largest: int) -> None:
        """Remember numbers up to the largest; forget the oldest now and then, which by then have come or are lost."""
        excess = largest + 1 - self._first - _REMEMBERED
        if excess > _REMEMBERED:
            self._first += excess
            self._seen = self._seen[excess:].copy()
        needed = largest + 1 - self._first
        if needed > self._seen.size:
            grown = np.zeros(max(needed, 2 * self._seen.size), dtype=np.bool_)
            grown[: self._seen.size] = self._seen
            self._seen = grown

    def _grow_epochs(self, index: int) -> None:
        """Make room for an epoch's account."""
        rows = len(self._epochs)
        if index >= rows:
            more = max(index + 1, 2 * rows) - rows
            self._epochs = np.concatenate([self._epochs, np.zeros((more, 2), dtype=np.int64)])
            self._digests = np.concatenate([self._digests, np.zeros(more, dtype=np.uint64)])


class RandomLedger(Ledger):
    """Adds up the moments of random samples, and notices a batch that was there before."""

    def __init__(self, batch_size: int, values_per_sample: int, expected: Moments) -> None:
        super().__init__(batch_size)
        self._values_per_sample = values_per_sample
        self._expected = expected
        self._sum = 0.0
        self._squares = 0.0
        self._known: set[tuple[float, float]] = set()
        self._known_before: set[tuple[float, float]] = set()
        self._repeated = 0

    def take(self, shown: Sequence[Shown]) -> None:
        """Samples, mean and mean square of each step's batch."""
        for _, evidence in shown:
            samples, mean, square = (float(value) for value in evidence)
            self.checked_steps += 1
            self.samples += int(samples)
            self._sum += samples * mean
            self._squares += samples * square
            batch = (mean, square)
            self._repeated += batch in self._known or batch in self._known_before
            self._known.add(batch)
            if len(self._known) >= _BATCHES_REMEMBERED:
                self._known_before, self._known = self._known, set()

    def close(self, every: int, steps: int) -> Work:
        """The account; without a finite mean and deviation it has a reason in place of them."""
        work = Work(
            checked_steps=self.checked_steps, steps=steps, every=every, samples=self.samples, batch_size=self.batch_size
        )
        if not self.samples:
            return work.model_copy(update={"reason": _NONE_CHECKED})
        mean = self._sum / self.samples
        variance = self._squares / self.samples - mean**2
        if not math.isfinite(variance):
            return work.model_copy(update={"reason": "its features are not finite numbers"})
        random = RandomSamples(
            values=self.samples * self._values_per_sample,
            mean=mean,
            std=math.sqrt(max(0.0, variance)),
            expected_mean=self._expected.mean,
            expected_std=self._expected.std,
            repeated_batches=self._repeated,
        )
        return work.model_copy(update={"random": random})


def open_ledger(source: Source, values_per_sample: int, reorder_window: int | None) -> Ledger | None:
    """The account for a source; None where its samples have neither numbers nor known moments.

    Args:
        source: what made the batches.
        values_per_sample: features of a sample.
        reorder_window: see `Input.reorder_window`.
    """
    if source.identity is not None:
        skipped = source.skipped if isinstance(source, SampleSource) else None
        damaged = source.damaged_files if isinstance(source, RecordSource) else None
        return NumberedLedger(source.batch_size, source.identity, reorder_window, skipped, damaged)
    if source.moments is not None:
        return RandomLedger(source.batch_size, values_per_sample, source.moments)
    return None


def _numbers_of(places: Collection[int], epoch_samples: int, end: int) -> int:
    """How many of the numbers below `end` belong to these places."""
    epochs, rest = divmod(end, epoch_samples)
    return epochs * len(places) + sum(place < rest for place in places)


def _mixed(places: Numbers) -> npt.NDArray[np.uint64]:
    """A hash of each number, uint64: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), whose sums tell sets apart."""
    value = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
