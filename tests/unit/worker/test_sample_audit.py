"""The account of samples: what it notices, and that order alone never looks like a fault."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.model.events import NumberedSamples, Work
from pipeline_bench.sources import Identity, Moments
from pipeline_bench.sources.memory import Memory
from pipeline_bench.sources.synthetic import Synthetic
from pipeline_bench.worker import sample_audit
from pipeline_bench.worker.sample_audit import NumberedAudit, RandomAudit, SampleAudit

BATCH = 8
TABLE = np.random.default_rng(0).standard_normal(50).astype(np.float32)
IDENTITY = Identity(len(TABLE), lambda numbers: TABLE[numbers % len(TABLE)])


def digest(numbers: npt.ArrayLike) -> npt.NDArray[np.float64]:
    shown = np.asarray(numbers, dtype=np.int64)
    return np.concatenate([shown.astype(np.float64), IDENTITY.fingerprints(shown).astype(np.float64)])


def batches(numbers: Sequence[int] | npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    shown = np.asarray(numbers, dtype=np.int64)
    return [shown[i : i + BATCH] for i in range(0, len(shown), BATCH)]


def account(
    steps: Sequence[npt.NDArray[np.int64]], out_of_order: int | None = 0, every: int = 1, at_a_time: int = 3
) -> Work:
    audit = NumberedAudit(BATCH, IDENTITY, out_of_order)
    shown = [(i, digest(numbers)) for i, numbers in enumerate(steps) if i % every == 0]
    for i in range(0, len(shown), at_a_time):
        audit.take(shown[i : i + at_a_time])
    return audit.close(every, len(steps))


def numbered(work: Work) -> NumberedSamples:
    assert work.numbered is not None
    return work.numbered


def faults(work: Work) -> tuple[int, int, int]:
    found = numbered(work)
    return found.lost, found.repeated, found.invented


def test_samples_in_order_are_each_there_once() -> None:
    work = account(batches(range(120)))
    assert faults(work) == (0, 0, 0)
    assert (work.samples, work.checked_steps) == (120, 15)
    assert (numbered(work).epoch_count, numbered(work).whole_epochs) == (3, 2)
    assert [epoch.samples for epoch in numbered(work).epochs] == [50, 50, 20]


@pytest.mark.parametrize("threads", [2, 3])
def test_what_overtakes_in_steps_that_are_not_checked_is_not_repeated(threads: int) -> None:
    """Of so few steps the last one that is checked is often not the one with the largest number."""
    for seed in range(200):
        random = Random(seed)
        waiting = batches(range(20 * BATCH))
        arriving = [waiting.pop(random.randrange(threads)) for _ in range(10)]
        shown = [(i, digest(batch)) for i, batch in enumerate(arriving) if not i or random.random() < 0.5]
        audit = NumberedAudit(BATCH, IDENTITY, (threads - 1) * BATCH)
        audit.take(shown)
        assert faults(audit.close(1, 10)) == (0, 0, 0), seed


def test_batches_that_come_again_between_the_checked_steps_are_repeated() -> None:
    echoed = [batch for batch in batches(range(400)) for _ in range(4)]
    assert faults(account(echoed, every=7))[1] >= 2 * 400
    assert faults(account(echoed, out_of_order=2 * BATCH, every=7))[1] >= 2 * 400
    assert faults(account(echoed))[1] == 3 * 400


def test_what_the_source_s_own_shuffling_holds_back_is_not_lost() -> None:
    shuffled = np.random.default_rng(0).permutation(10_000)[:800]
    identity = Identity(10_000, lambda numbers: (numbers % 7).astype(np.float32), shuffled_samples=10_000)
    audit = NumberedAudit(BATCH, identity, 0)
    audit.take([(i, np.concatenate([batch, batch % 7]).astype(float)) for i, batch in enumerate(batches(shuffled))])
    assert faults(audit.close(1, 100)) == (0, 0, 0)


def test_where_the_content_is_not_known_any_is_accepted_and_elsewhere_none_but_its_own() -> None:
    known = np.array([1.0, np.nan, 3.0], dtype=np.float32)
    audit = NumberedAudit(3, Identity(3, lambda numbers: known[numbers % 3]), 0)
    audit.take([(0, np.array([0.0, 1.0, 2.0, 1.0, 7.0, 3.0]))])
    audit.take([(1, np.array([3.0, 4.0, 5.0, np.nan, np.nan, 3.0]))])
    assert faults(audit.close(1, 1))[2] == 1


@given(st.sets(st.integers(0, 48)), st.integers(1, 160))
def test_records_that_were_skipped_are_not_lost(places: set[int], steps: int) -> None:
    kept = [number for number in range(160) if number % len(TABLE) not in places][:steps]
    skipped = {place: f"record {place}" for place in places}
    audit = NumberedAudit(1, IDENTITY, 0, skipped)
    audit.take([(i, digest([number])) for i, number in enumerate(kept)])
    work = audit.close(1, len(kept))
    assert faults(work) == (0, 0, 0)
    reached = sorted(place for place in places if place <= kept[-1])
    assert work.skipped == len(reached), "as far as the samples reached"
    assert work.skipped_records == tuple(f"record {place}" for place in reached[: sample_audit.SKIPPED_RECORDS_KEPT])
    # An epoch is whole when all but the skipped ones have come.
    due = len(TABLE) - len(places)
    assert numbered(work).whole_epochs == len(kept) // due


def test_a_record_that_was_lost_beside_a_skipped_one_is_lost() -> None:
    numbers = [number for number in range(50) if number not in (7, 20)]
    audit = NumberedAudit(BATCH, IDENTITY, 0, {7: "record 7"})
    audit.take([(i, digest(batch)) for i, batch in enumerate(batches(numbers))])
    work = audit.close(1, 6)
    assert (faults(work), numbered(work).whole_epochs) == ((1, 0, 0), 0)


def test_a_record_that_is_skipped_only_now_is_known_when_the_account_is_closed() -> None:
    skipped: dict[int, str] = {}
    audit = NumberedAudit(4, IDENTITY, 0, skipped)
    audit.take([(0, digest([0, 1, 3, 4]))])
    skipped[2] = "record 2"
    assert faults(audit.close(1, 1)) == (0, 0, 0)


def test_with_skipped_records_unchecked_steps_are_still_taken_to_be_there() -> None:
    kept = [number for number in range(1600) if number % 50 not in (3, 40)]
    skipped = {3: "record 3", 40: "record 40"}
    audit = NumberedAudit(BATCH, IDENTITY, 0, skipped)
    audit.take([(i, digest(batch)) for i, batch in enumerate(batches(kept)) if i % 7 == 0])
    assert faults(audit.close(7, 192)) == (0, 0, 0)


def test_old_numbers_are_forgotten_and_still_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_audit, "_REMEMBERED", 64)
    numbers = [number for number in range(4000) if number not in (10, 2000)]
    work = account(batches(numbers[:3992]), at_a_time=1)
    assert faults(work) == (2, 0, 0)
    audit = NumberedAudit(BATCH, IDENTITY, 0)
    audit.take([(i, digest(batch)) for i, batch in enumerate(batches(range(4000)))])
    assert audit._seen.size < 8192


@pytest.mark.parametrize("audit", [NumberedAudit(8, IDENTITY, 0), RandomAudit(8, 4, Moments(0, 1))])
def test_without_a_step_it_says_that_there_was_none(audit: SampleAudit) -> None:
    audit.take([])
    work = audit.close(1, 9)
    assert work.numbered is None
    assert work.random is None
    assert work.reason


def moments(features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([len(features), features.mean(), (features**2).mean()])


def test_the_moments_of_random_samples_are_those_of_all_batches_together() -> None:
    features = np.random.default_rng(1).normal(3, 2, (5, 8, 4))
    audit = RandomAudit(8, 4, Moments(3, 2))
    audit.take([(i, moments(batch)) for i, batch in enumerate(features)])
    found = audit.close(1, 9).random
    assert found is not None
    assert found.values == features.size
    assert found.mean == pytest.approx(features.mean())
    assert found.std == pytest.approx(features.std())
    assert found.repeated_batches == 0


def test_a_batch_that_was_there_before_is_a_repetition() -> None:
    features = np.random.default_rng(1).normal(size=(3, 8, 4))
    audit = RandomAudit(8, 4, Moments(0, 1))
    audit.take([(i, moments(features[i % 3])) for i in range(9)])
    found = audit.close(1, 9).random
    assert found is not None
    assert found.repeated_batches == 6


def test_features_that_are_no_numbers_have_a_reason_in_place_of_moments() -> None:
    audit = RandomAudit(8, 4, Moments(0, 1))
    audit.take([(0, np.array([8.0, np.nan, np.nan]))])
    work = audit.close(1, 9)
    assert work.random is None
    assert work.reason == "its features are not finite numbers"


@given(st.floats(0, 1e6), st.floats(0, 1e9))
def test_digests_cost_at_most_one_percent_of_the_steps(cost_us: float, step_us: float) -> None:
    every = sample_audit.every(cost_us, step_us)
    assert every >= 1
    assert cost_us / every <= sample_audit.COST_SHARE * max(step_us, 1e-3) * (1 + 1e-6)


def test_long_steps_are_all_sampled_and_short_ones_now_and_then() -> None:
    assert sample_audit.every(10, 1000) == 1
    assert sample_audit.every(10, 999) == 2
    assert sample_audit.every(10, 100) == 10


def test_the_moments_of_a_batch_cost_more_than_its_numbers() -> None:
    assert sample_audit.cost_us(Memory(), 1024) < sample_audit.cost_us(Synthetic(), 1024)
