"""Whether files were as cold or as warm as asked: what counts against it, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.analysis import validity
from pipeline_bench.model.events import Storage, StorageEpoch
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.report import machines
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records, sessions
from tests.unit.records import record

MB = 10**6
SCENARIO = resolve({"name": "test", "variants": [{"name": "plain", "backend": "feed_dict"}]})
PLAIN = SCENARIO.variants[0]
CACHED = PLAIN.model_copy(update={"options": {"cache": "samples"}})


def storage(
    asked: Any, before: float | None, *epochs: tuple[float | None, int | None], size_mb: int = 100, **more: Any
) -> Storage:
    """What a trial saw of its files: for each epoch the resident share, and the megabytes that were read."""
    return Storage(
        asked=asked,
        size_bytes=size_mb * MB,
        resident_share=before,
        epoch_count=len(epochs),
        epochs=tuple(
            StorageEpoch(
                index=index,
                size_bytes=size_mb * MB,
                resident_share=share,
                read_bytes=None if read_mb is None else read_mb * MB,
            )
            for index, (share, read_mb) in enumerate(epochs)
        ),
        **more,
    )


def trial(found: Storage | None, repeat: int = 0) -> TrialRecord:
    return record("plain", repeat, 10.0).model_copy(update={"storage": found})


def doubt(found: Storage, variant: Any = PLAIN) -> str | None:
    return validity.cache_doubt(variant, [trial(found)])


@pytest.mark.parametrize(
    "found",
    [
        storage("cold", 0.0, (0.0, 101), (0.02, 99), (0.1, 97)),
        storage("cold", None, (None, 100), (None, 95), reason="planted"),
        storage("cold", 0.0, (0.0, 130), (0.6, 70)),  # an input that reads far ahead
        storage("cold", 0.0, (0.0, None), read_reason="planted"),
        storage("cold", 0.0),
        storage("warm", 1.0, (1.0, 0), (1.0, 0)),
        storage("warm", 1.0, (1.0, 5)),
        storage("warm", 1.0, (1.0, 7), size_mb=10),  # the first steps load code as well
        storage("warm", None, (None, 0), reason="planted"),
        storage("as-is", 0.5, (0.5, 50), (1.0, 0)),
    ],
)
def test_files_that_were_as_asked_are_not_doubted(found: Storage) -> None:
    assert doubt(found) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            storage("cold", 0.0, (0.0, 100), (0.97, 0), (0.97, 0), (0.97, 0), (0.97, 0)),
            "page_cache = cold was set, but 97 % of the files was in the page cache from epoch 2 on",
        ),
        (storage("cold", 1.0, (1.0, 0)), "100 % of the files was in the page cache when training began"),
        (storage("cold", 1.0, (1.0, 4), size_mb=1), "100 % of the files was in the page cache when training began"),
        (storage("cold", 0.0, (1.0, 0)), "100 % of the files was in the page cache in epoch 1"),
        (storage("cold", 0.0, (0.0, 900), (0.9, 0)), "90 % of the files was in the page cache from epoch 2 on"),
        (storage("cold", 0.0, (0.3, None), read_reason="planted"), "30 % of the files was in the page cache"),
        (
            storage("cold", None, (None, 100), (None, 40), (None, 0), reason="planted"),
            "only 47 % of what was consumed from epoch 2 on came from storage",
        ),
        (storage("cold", None, (None, None), reason="planted"), "this was not checked in epoch 1: planted"),
        (storage("cold", 0.0, (0.0, 0), (0.0, 0)), "only 0 % of what was consumed in epoch 1 came from storage"),
        (storage("cold", 0.0, (None, None)), "an epoch was too short to check a file"),
        (storage("warm", 0.6, (0.6, 40)), "only 60 % of the files was in the page cache when training began"),
        (storage("warm", 1.0, (0.7, 30)), "only 70 % of the files was in the page cache while it trained"),
        (storage("warm", None, (None, 30), reason="planted"), "28.6 MiB was read from storage while it trained, 30 %"),
        (storage("warm", None, (None, None), reason="planted"), "this was not checked: planted"),
    ],
)
def test_files_that_were_not_as_asked_are_named(found: Storage, words: str) -> None:
    assert words in (doubt(found) or "")


def test_of_a_pipeline_that_caches_only_the_first_epoch_counts() -> None:
    """It reads no file after it, so that nothing evicts them in time and nothing comes from storage."""
    found = storage("cold", 0.0, (0.0, 100), (0.9, 0))
    assert doubt(found) is not None
    assert doubt(found, CACHED) is None
    assert doubt(storage("cold", 0.0, (1.0, 0), (1.0, 0)), CACHED) is not None


def test_where_another_process_reads_residency_decides() -> None:
    loader = PLAIN.model_copy(update={"backend": "data_loader"})
    assert doubt(storage("cold", 0.0, (0.0, 0), (0.0, 0)), loader) is None


def test_one_repeat_of_several_is_enough_and_is_named() -> None:
    good, bad = storage("cold", 0.0, (0.0, 100)), storage("cold", 1.0, (1.0, 0))
    assert validity.cache_doubt(PLAIN, [trial(good), trial(None, 1), trial(good, 2)]) is None
    assert str(validity.cache_doubt(PLAIN, [trial(good), trial(bad, 1)])).endswith("when training began in repeat 2")


def results(found: Storage) -> Any:
    trials = [trial(found, repeat) for repeat in range(3)]
    return records.session(SCENARIO, [*trials, *records.rounds({"ceiling": (5.0, None)})]).results[0]


def test_the_verdict_is_withheld_and_says_why() -> None:
    assert results(storage("cold", 0.0, (0.0, 100))).verdict.kind != "inconclusive"
    verdict = results(storage("cold", 0.0, (0.0, 100), (0.97, 0))).verdict
    assert verdict.kind == "inconclusive"
    assert verdict.text.startswith("inconclusive: page_cache = cold was set, but 97 %")


def test_what_was_found_is_one_line() -> None:
    found = storage("cold", 0.0, (0.0, 100), (0.02, 96))
    text = validity.describe_cache([trial(found), trial(found, 1)])
    assert text == (
        "0 % in the page cache before training, 2 % from epoch 2 on; 381 MiB consumed in 4 epochs in 2 trials, "
        "374 MiB read from storage"
    )
    assert validity.describe_cache([trial(None)]) is None


def test_what_is_not_known_is_said_and_has_no_number() -> None:
    text = str(
        validity.describe_cache([trial(storage("cold", None, (None, None), reason="planted", read_reason="why"))])
    )
    assert text == (
        "not known what was in the page cache: planted; 95.4 MiB consumed in 1 epoch, "
        "not known how much of it came from storage: why"
    )


def session_of(*trials: TrialRecord, scenario: Scenario = SCENARIO) -> Session:
    return sessions.normal().model_copy(update={"scenario": scenario, "trials": trials})


def test_a_report_has_a_line_for_each_state_that_was_asked_for() -> None:
    cold = trial(storage("cold", 0.0, (0.0, 100)))
    warm = trial(storage("warm", 1.0, (1.0, 0))).model_copy(update={"variant": "other"})
    assert machines.storage(session_of(record("plain", 0, 1.0))) == []
    ((head, text),) = machines.storage(session_of(cold, cold))
    assert head == "cold files"
    assert "in 2 trials" in text
    heads = [head for head, _ in machines.storage(session_of(cold, warm))]
    assert heads == ["cold files of plain", "warm files of other"]
