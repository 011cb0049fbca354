"""What the trials' accounts of their samples mean for a variant."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.analysis import validity
from pipeline_bench.analysis.conclusion import conclude
from pipeline_bench.analysis.speedups import fastest
from pipeline_bench.model.events import EpochSamples, NumberedSamples, RandomSamples, Work
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report.facts import evidence
from pipeline_bench.scenario import Component
from tests.unit import records
from tests.unit.records import record, scenario

SCENARIO = scenario("feed_dict", "fifo_queue")
BATCH = 128


def numbered(steps: int = 100, every: int = 1, samples: int | None = None, **changes: Any) -> Work:
    checked = steps // every
    counts: dict[str, Any] = {"epoch_samples": 1000, "repeated": 0, "invented": 0, "lost": 0, "in_flight": 0}
    epoch = EpochSamples(index=0, samples=1000, repeated=0, digest="00000000000000aa")
    found = NumberedSamples.model_validate(
        {**counts, "epoch_count": 1, "whole_epochs": 1, "epochs": (epoch,), **changes}
    )
    brought = checked * BATCH if samples is None else samples
    return Work(checked_steps=checked, steps=steps, every=every, samples=brought, batch_size=BATCH, numbered=found)


def random(**changes: Any) -> Work:
    found = {"values": 10**6, "mean": 0.0005, "std": 1.0003, "expected_mean": 0.0, "expected_std": 1.0}
    sample = RandomSamples.model_validate(found | changes)
    return Work(checked_steps=100, steps=500, every=5, samples=100 * BATCH, batch_size=BATCH, random=sample)


def trial(work: Work | None, variant: str = "fifo_queue") -> TrialRecord:
    return record(variant, 0, 2.0).model_copy(update={"work": work})


def check(*works: Work | None, baseline: Work | None = None) -> tuple[str, str]:
    base = [trial(baseline, "feed_dict")] if baseline else []
    queue, feed_dict = SCENARIO.variant("fifo_queue"), SCENARIO.variant("feed_dict")
    found = validity.check_work(queue, [trial(work) for work in works], feed_dict, base)
    return found.status, found.text


def test_every_sample_once_is_equal_work_and_says_what_was_looked_at() -> None:
    status, text = check(numbered(), numbered(), baseline=numbered())
    assert status == "equal"
    assert text == "25,600 samples in 2 trials, 2 whole epochs of 1,000: none lost, repeated or invented"


@pytest.mark.parametrize(
    ("silent", "changes", "status", "words"),
    [
        ((), {"in_flight": 300}, "equal", "none lost"),
        (("worker 1 was silent",), {}, "equal", "none lost"),
        (
            ("worker 1 was silent",),
            {"in_flight": 300},
            "not-checked",
            "worker 1 was silent: 300 samples before the last of the 12,800 that came are lost or were on their way",
        ),
        (
            ("worker 1 was silent",),
            {"repeated": 8},
            "unequal",
            "it repeated 8 of 12,800 samples; worker 1 was silent",
        ),
    ],
)
def test_what_a_process_held_that_fell_silent_is_not_taken_to_be_on_its_way(
    silent: tuple[str, ...], changes: dict[str, int], status: str, words: str
) -> None:
    """Else a worker that is killed and comes again in time would cost nothing."""
    found = check(numbered(**changes).model_copy(update={"silent": silent}))
    assert found[0] == status
    assert words in found[1]


def test_a_trial_that_failed_by_a_silent_process_says_what_it_cost() -> None:
    work = numbered(in_flight=300, repeated=8).model_copy(update={"silent": ("worker 1 was killed",)})
    failed = trial(work).model_copy(update={"status": "failed", "reason": "worker 1 was killed"})
    for brief in (True, False):
        (line,) = evidence(failed, brief=brief)
        assert line == (
            "equal work: worker 1 was killed: 300 samples before the last of the 12,800 that came are lost or were on "
            "their way, and 8 came twice"
        )


def test_a_sampled_account_says_so() -> None:
    assert "in 25 of 100 steps" in check(numbered(every=4))[1]
    assert "in 100 of 500 steps" in check(random())[1]


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (numbered(lost=12), "it lost 12 of 12,800 samples"),
        (numbered(every=4, lost=12), "it lost at least 12 of 12,800 samples"),
        (numbered(repeated=3), "it repeated 3 of 12,800 samples"),
        (numbered(invented=1), "it invented 1 of 12,800 samples"),
        (numbered(samples=6400), "its steps brought 64 samples each, not 128"),
        (random(repeated_batches=96), "96 of 100 batches were exact repetitions"),
        (random(mean=0.02), "its features have the mean 0.02, not 0"),
        (random(std=0.0), "its features have the standard deviation 0, not 1"),
    ],
)
def test_other_work_is_named(work: Work, words: str) -> None:
    assert check(work) == ("unequal", words)


def test_a_few_random_values_may_be_off_by_chance() -> None:
    assert check(random(values=100, mean=0.3, std=0.8))[0] == "equal"
    assert check(random(values=10_000, mean=0.3, std=0.8))[0] == "unequal"


def test_in_flight_is_not_lost() -> None:
    assert check(numbered(in_flight=128))[0] == "equal"


def test_a_whole_epoch_of_other_samples_than_the_baseline_s_is_other_work() -> None:
    other = EpochSamples(index=0, samples=1000, repeated=0, digest="00000000000000bb")
    status, text = check(numbered(epochs=(other,)), baseline=numbered())
    assert (status, text) == ("unequal", "its epoch 1 held other samples than the baseline's")
    part = other.model_copy(update={"samples": 999})
    assert check(numbered(epochs=(part,)), baseline=numbered())[0] == "equal"


def test_an_epoch_that_has_the_right_count_by_repetition_is_not_whole() -> None:
    """Half of its samples came twice and half of them never: its digest is no reference."""
    doubled = EpochSamples(index=0, samples=1000, repeated=500, digest="00000000000000bb")
    assert check(numbered(), baseline=numbered(epochs=(doubled,)))[0] == "equal"


@pytest.mark.parametrize("fault", [{"repeated": 500}, {"lost": 3}, {"invented": 1}])
def test_a_baseline_with_a_fault_of_its_own_accuses_nobody(fault: dict[str, int]) -> None:
    other = EpochSamples(index=0, samples=1000, repeated=0, digest="00000000000000bb")
    assert check(numbered(), baseline=numbered(epochs=(other,), **fault))[0] == "equal"
    at_fault = numbered(**fault).model_copy(update={"skipped": 2})
    of_rest = at_fault.numbered.model_copy(update={"epochs": skipping(2).numbered.epochs})  # type: ignore[union-attr]
    assert check(skipping(3), baseline=at_fault.model_copy(update={"numbered": of_rest}))[0] == "equal"


def skipping(records: int, digest: str = "00000000000000aa", samples: int | None = None) -> Work:
    """The account of a trial that left out so many of 1000 records, of an epoch of `samples` samples."""
    epoch = EpochSamples(index=0, samples=1000 - records if samples is None else samples, repeated=0, digest=digest)
    return numbered(epochs=(epoch,)).model_copy(update={"skipped": records})


def test_skipped_records_are_part_of_the_proof() -> None:
    status, text = check(skipping(3), baseline=skipping(3))
    assert status == "equal"
    assert text.endswith("1 whole epoch of 1,000: none lost, repeated or invented, 3 of 1,000 records skipped")
    of_part = numbered(whole_epochs=0, epochs=()).model_copy(update={"skipped": 1})
    assert check(of_part)[1].endswith("invented, 1 record skipped")


def test_a_variant_that_skipped_other_records_did_other_work() -> None:
    assert check(skipping(3), baseline=skipping(2)) == ("unequal", "it skipped 3 records of an epoch, the baseline 2")
    other = skipping(3, digest="00000000000000bb")
    assert check(other, baseline=skipping(3)) == ("unequal", "its epoch 1 held other samples than the baseline's")


def test_what_was_skipped_is_only_compared_where_both_came_through_an_epoch() -> None:
    assert check(skipping(1, samples=500), baseline=skipping(3))[0] == "equal"


def test_what_could_not_be_checked_has_its_reason() -> None:
    assert check(Work(reason="the source X says nothing")) == ("not-checked", "the source X says nothing")
    assert check(None)[0] == "not-checked"
    ceiling, feed_dict = SCENARIO.variant("ceiling"), SCENARIO.variant("feed_dict")
    assert validity.check_work(ceiling, [trial(numbered())], feed_dict, []).status == "not-checked"


def test_epochs_of_another_source_are_not_compared() -> None:
    other = EpochSamples(index=0, samples=1000, repeated=0, digest="00000000000000bb")
    queue = SCENARIO.variant("fifo_queue")
    larger = queue.model_copy(update={"source": Component(kind="memory", options={"samples": 999})})
    for source, status in ((queue, "unequal"), (larger, "equal")):
        trials = [trial(numbered(epochs=(other,)))]
        found = validity.check_work(source, trials, SCENARIO.variant("feed_dict"), [trial(numbered(), "feed_dict")])
        assert found.status == status


def test_a_few_small_random_batches_may_be_alike_by_chance() -> None:
    assert check(random(values=100, repeated_batches=2))[0] == "equal"
    assert check(random(values=100, repeated_batches=25))[0] == "unequal"
    assert check(random(values=100 * BATCH, repeated_batches=1))[0] == "unequal"


def session_of(work_of_queue: Work, work_of_baseline: Work | None = None) -> Session:
    trials = [
        record(name, repeat, ms, 0.0).model_copy(update={"work": work})
        for repeat in range(3)
        for name, ms, work in (
            ("feed_dict", 2.0, work_of_baseline or numbered()),
            ("fifo_queue", 1.0, work_of_queue),
            ("ceiling", 0.9, None),
        )
    ]
    return records.session(SCENARIO, trials)


def test_a_variant_that_did_less_is_marked_and_never_the_fastest() -> None:
    honest, cheat = session_of(numbered()), session_of(numbered(lost=640))
    assert [best.variant for best in (fastest(honest), fastest(cheat)) if best] == [
        "fifo_queue",
        "feed_dict",
    ]
    assert cheat.result("fifo_queue").verdict.kind == "unequal-work"
    assert "it lost 1,920 of 38,400 samples" in cheat.result("fifo_queue").verdict.text
    assert cheat.result("feed_dict").verdict.kind != "unequal-work"
    assert "fifo_queue is fastest" not in conclude(cheat)


def test_over_a_baseline_that_did_less_there_are_no_ratios() -> None:
    session = session_of(numbered(), numbered(lost=640))
    queue = session.result("fifo_queue")
    assert queue.work.status == "equal"
    assert (queue.speedup.value, queue.speedup.reason) == (None, "the work of 'feed_dict' was not equal")
    assert session.result("feed_dict").speedup.reason == "this is the variant that the others are compared with"
    assert "×" not in conclude(session)


def test_a_mean_of_about_nothing_has_no_sign() -> None:
    assert "mean 0.000," in check(random(mean=-0.0001))[1]
