"""Checks which samples reached a model: each numbered one once, or the moments of random ones.

A step that is sampled fetches a digest of its batch, one tensor beside the loss. Only as many steps are sampled as keep
the cost of all digests below 1 % of the training; `StepSampling` is the rule. The audits take the digests in the order
of their steps. They are arithmetic on arrays; only `digest` needs TensorFlow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.loops import SamplingRule
from pipeline_bench.model.events import EpochSamples, NumberedSamples, RandomSamples, Work
from pipeline_bench.sources import Batch, Identity, Moments, Source

Numbers = npt.NDArray[np.int64]
StepDigest = tuple[int, npt.NDArray[np.float64]]
"""The index of a step, from 0, and the digest that it brought, float64 [n]."""

COST_SHARE = 0.01
"""How much of the mean step all digests together may cost."""
FIRST_STEPS = 10
"""The shortest of the steps up to here says how many of the later ones are sampled."""
FIRST_UNSAMPLED = 2
"""The step among them that is not sampled where later ones may not be either: the first run of what such a step fetches
takes tens of milliseconds, and belongs into the warm-up."""
# By the step before the first one that is not sampled, later ones may be so many times as short.
_STEADY_FACTOR = 4

# What a sampled step costs more, rounded up: the fetch (`benchmarks.overhead.probe`); in the recorder's thread the
# entry into the audit, 10 µs for 128 numbers; and the moments, which read every feature twice.
_FETCH_US = 10.0
_US_PER_NUMBER = 0.08
_US_PER_VALUE = 0.001
_ROUNDING = 1e-9

EPOCHS_KEPT = 100
SKIPPED_RECORDS_KEPT = 5
# Epochs of a sample or two are many: later ones than this have no digest of their own.
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


class StepSampling:
    """Decides which steps are sampled; `native/plan.c` has a copy for the loop that leaves Python.

    The first steps are sampled but for one, then one in `every`, which follows from the shortest of the first steps.

    Args:
        cost_us: about how many microseconds a step takes longer when it is sampled.
    """

    def __init__(self, cost_us: float) -> None:
        self.cost_us = cost_us
        self.every = 1
        self._shortest_ns = 2**62

    @property
    def rule(self) -> SamplingRule:
        """The rule for a loop that applies it itself."""
        return SamplingRule(self.cost_us, COST_SHARE, FIRST_STEPS, FIRST_UNSAMPLED, _STEADY_FACTOR)

    def samples(self, step: int, before_ns: int) -> bool:
        """Return whether a step is sampled; ask for each one, in order, from step 1 on.

        Args:
            step: its index, from 0.
            before_ns: how long the step before it took.
        """
        if 1 < step <= FIRST_STEPS:
            self._shortest_ns = min(self._shortest_ns, before_ns)
            if step == FIRST_UNSAMPLED:
                return every(self.cost_us, self._shortest_ns / _STEADY_FACTOR / 1e3) == 1
            if step == FIRST_STEPS:
                self.every = every(self.cost_us, self._shortest_ns / 1e3)
        return step % self.every == 0


def every(cost_us: float, step_us: float) -> int:
    """Return n of "one step in n": then the digests cost at most `COST_SHARE` of steps of `step_us`."""
    return max(1, math.ceil(cost_us / (COST_SHARE * max(step_us, 1e-3)) - _ROUNDING))


def digest(source: Source, batch: Batch) -> Any:
    """Build the tensor that shows what a batch holds, float64 [n].

    Of numbered samples [2 * samples]: their numbers, then the first feature of each. Of random numbers [3]: how many
    samples there are, the mean of all features, and the mean of their squares. None where the source has neither, or
    the backend has dropped the numbers.
    """
    import tensorflow as tf

    if source.identity is not None:
        if batch.numbers is None:
            return None
        first = tf.reshape(batch.features, [tf.shape(batch.features)[0], -1])[:, 0]
        return tf.concat([tf.cast(batch.numbers, tf.float64), tf.cast(first, tf.float64)], axis=0)
    if source.moments is None:
        return None
    features = tf.cast(batch.features, tf.float32)
    parts = [tf.shape(features)[0], tf.reduce_mean(features), tf.reduce_mean(tf.square(features))]
    return tf.stack([tf.cast(part, tf.float64) for part in parts])


def cost_us(source: Source, values_per_sample: int) -> float:
    """Return about how many microseconds a step takes longer when it is sampled."""
    if source.identity is not None:
        return _FETCH_US + _US_PER_NUMBER * source.batch_size
    return _FETCH_US + _US_PER_VALUE * source.batch_size * values_per_sample


def values_per_sample(features: Any) -> int:
    """Return the number of features of a sample; a size that the graph does not know counts as one.

    Args:
        features: the shape of a batch's features, a ``tf.TensorShape``.
    """
    return math.prod(int(size or 1) for size in (features.dims or [1])[1:])


class SampleAudit(ABC):
    """The audit of one trial.

    Args:
        batch_size: the samples that a step should bring.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.checked_steps = 0
        self.samples = 0

    @abstractmethod
    def take(self, digests: Sequence[StepDigest]) -> None:
        """Take in the digests of sampled steps, in their order; see `digest`."""

    @abstractmethod
    def close(self, every: int, steps: int) -> Work:
        """Return what was found, where one step in `every` was to be sampled, of so many in all."""


class NumberedAudit(SampleAudit):
    """Compares every number with those that came before.

    Args:
        batch_size: the samples that a step should bring.
        identity: what the source says of its samples.
        reorder_window: see `Input.reorder_window`.
        skipped: the indices of records that were left out, and why; read when the audit is closed, and not before.
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

    def take(self, digests: Sequence[StepDigest]) -> None:
        """Take in of each step its samples' numbers [samples], then as many fingerprints."""
        if not digests:
            return
        self.checked_steps += len(digests)
        self._last_step = digests[-1][0]
        self._last_steps.extend(step for step, _ in digests)
        claimed = np.concatenate([shown[: shown.size // 2] for _, shown in digests])
        features = np.concatenate([shown[shown.size // 2 :] for _, shown in digests]).astype(np.float32)
        self.samples += claimed.size
        largest = (self._last_step + 1) * self.batch_size + _AHEAD + self._identity.shuffled_samples
        possible = (claimed >= 0) & (claimed < largest) & (claimed == np.floor(claimed))
        numbers = claimed[possible].astype(np.int64)
        expected = self._identity.fingerprints(numbers)
        real = (expected == features[possible]) | np.isnan(expected)
        self._invented += claimed.size - int(real.sum())
        if real.any():
            self._enter(numbers[real])

    def close(self, every: int, steps: int) -> Work:
        """Return the audit; what is missing is lost where threads of the input that lag behind cannot explain it."""
        if not self.checked_steps:
            return Work(batch_size=self.batch_size, reason=_NONE_CHECKED)
        unchecked = max(0, self._last_step + 1 - self.checked_steps) * self.batch_size
        size = self._identity.epoch_samples
        skipped = {index: why for index, why in sorted(dict(self._skipped).items()) if index <= self._largest}
        due = self._largest + 1 - _numbers_of(skipped, size, self._largest + 1)
        # The samples of the other steps are taken to be there, each once: then there are as many numbers, or more.
        missing = max(0, due - self._distinct - unchecked)
        again = self.samples - self._invented + unchecked - self._beyond() - due
        in_flight = min(missing, self._out_of_order)
        epochs = [
            EpochSamples(
                index=index, samples=int(samples), repeated=int(repeated), digest=f"{int(self._digests[index]):016x}"
            )
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
        """Return how many samples of unchecked steps may have had a larger number than any that was seen.

        What reached the model after the first of these was overtaken by it: no more than `reorder_window`, which
        fill so many of the last checked steps.
        """
        checked = min(self._overtaken_steps, self.checked_steps)
        before = self._last_steps[-1 - checked] if checked < len(self._last_steps) else -1
        return (self._last_step - before - checked) * self.batch_size

    def _enter(self, numbers: Numbers) -> None:
        self._make_room(int(np.max(numbers)))
        distinct, counts = np.unique(numbers, return_counts=True)
        offsets = distinct - self._first
        settled = offsets < 0
        known = settled.copy()
        known[~settled] = self._seen[offsets[~settled]]
        self._seen[offsets[~settled]] = True
        repeated = counts - 1 + known
        self._repeated += int(repeated.sum())
        self._distinct += int((~known).sum())
        self._largest = max(self._largest, int(distinct[-1]))
        epoch, index = np.divmod(distinct, self._identity.epoch_samples)
        kept = epoch < _EPOCHS_COUNTED
        if not kept.any():
            return
        epoch = epoch[kept]
        self._grow_epochs(int(epoch[-1]))
        np.add.at(self._epochs, epoch, np.stack([counts, repeated], axis=1)[kept])
        np.add.at(self._digests, epoch, (_mixed(index) * counts.astype(np.uint64))[kept])

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
        """Make room for an epoch's counts."""
        rows = len(self._epochs)
        if index >= rows:
            more = max(index + 1, 2 * rows) - rows
            self._epochs = np.concatenate([self._epochs, np.zeros((more, 2), dtype=np.int64)])
            self._digests = np.concatenate([self._digests, np.zeros(more, dtype=np.uint64)])


class RandomAudit(SampleAudit):
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

    def take(self, digests: Sequence[StepDigest]) -> None:
        """Take in of each step its number of samples, and the mean and mean square of its batch."""
        for _, shown in digests:
            samples, mean, square = (float(value) for value in shown)
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
        """Return the audit; without a finite mean and deviation it has a reason in place of them."""
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


def open_audit(source: Source, values_per_sample: int, reorder_window: int | None) -> SampleAudit | None:
    """Return the audit for a source; None where its samples have neither numbers nor known moments.

    Args:
        source: what made the batches.
        values_per_sample: features of a sample.
        reorder_window: see `Input.reorder_window`.
    """
    if source.identity is not None:
        return NumberedAudit(source.batch_size, source.identity, reorder_window, source.skipped, source.damaged_files)
    if source.moments is not None:
        return RandomAudit(source.batch_size, values_per_sample, source.moments)
    return None


def _numbers_of(indices: Collection[int], epoch_samples: int, end: int) -> int:
    """Return how many of the numbers below `end` belong to records with these indices."""
    epochs, rest = divmod(end, epoch_samples)
    return epochs * len(indices) + sum(index < rest for index in indices)


def _mixed(indices: Numbers) -> npt.NDArray[np.uint64]:
    """Return a hash of each number, uint64, whose sums distinguish sets: SplitMix64 (Steele et al., OOPSLA 2014)."""
    value = indices.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
