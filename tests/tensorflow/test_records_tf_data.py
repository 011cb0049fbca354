"""Real trials of tf.data over files: however a pipeline is built, its model trains on the same samples."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline_bench.backends.tf_data import TfData
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.session import Session
from pipeline_bench.sources import Batch
from pipeline_bench.sources.generator import Generator
from pipeline_bench.sources.memory import Memory
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.sources.synthetic import Synthetic
from tests.tensorflow import counted, images
from tests.tensorflow.conftest import RunScenario
from tests.tensorflow.counted import Counted
from tests.tensorflow.inputs import Carried, carry


def variants(**options: dict[str, Any]) -> list[dict[str, Any]]:
    """A tf_data variant for each name, with these options."""
    return [{"name": name, "backend": "tf_data", "options": given} for name, given in options.items()]


IN_ORDER = variants(
    serial={},
    no_prefetch={"prefetch": 0},
    parallel={"parallel_calls": 3, "prefetch": 2},
    auto={"parallel_calls": "auto"},
    by_batch={"batch_before_map": True, "parallel_calls": 2},
    records_cached={"cache": "records"},
    records_cached_by_batch={"cache": "records", "batch_before_map": True},
    samples_cached={"cache": "samples", "parallel_calls": 2},
    samples_on_disk={"cache": "disk"},
    interleaved={"interleave": 3},
    generator={"from_generator": True},
)
"""In order as long as a file holds one record, as those of image_folder do."""

OUT_OF_ORDER = variants(
    shuffled={"shuffle": 20},
    shuffled_whole={"shuffle": 4 * images.RECORDS, "cache": "samples"},
    shuffled_by_batch={"shuffle": 20, "batch_before_map": True, "cache": "records"},
    shuffled_on_disk={"shuffle": 10, "cache": "disk"},
    shuffled_generator={"shuffle": 20, "from_generator": True},
    as_it_comes={"deterministic": False, "parallel_calls": 4, "interleave": 4},
    as_it_comes_by_batch={"deterministic": False, "parallel_calls": 4, "interleave": "auto", "batch_before_map": True},
)


TRAINED = {"by_batch", "samples_on_disk", "interleaved", "generator", "shuffled_on_disk", "as_it_comes_by_batch"}
"""Those that real trials are made of, one a piece of code; what each of all carries is looked at without a trial."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def assert_equal_work(session: Session) -> None:
    for result in session.results:
        assert result.work.status == "equal", (result.variant, result.work.text)


@pytest.mark.slow
def test_every_pipeline_that_keeps_the_order_trains_like_feed_dict(run_scenario: RunScenario, folder: Path) -> None:
    tried = [entry for entry in IN_ORDER if entry["name"] in TRAINED]
    session = images.train(run_scenario, folder, {"name": "feed_dict", "backend": "feed_dict"}, *tried)
    assert_equal_work(session)
    losses = images.losses(session)
    for name, found in losses.items():
        np.testing.assert_allclose(found, losses["feed_dict"], rtol=1e-3, err_msg=name)


@pytest.mark.slow
def test_every_pipeline_that_does_not_gives_each_sample_once_an_epoch(run_scenario: RunScenario, folder: Path) -> None:
    tried = [entry for entry in OUT_OF_ORDER if entry["name"] in TRAINED]
    session = images.train(run_scenario, folder, IN_ORDER[0], *tried)
    assert_equal_work(session)
    losses = images.losses(session)
    for name, found in losses.items():
        if name.startswith("shuffled"):
            assert not np.allclose(found, losses["serial"], rtol=1e-3), f"{name} is in order"


def numbers(source: RecordSource, options: dict[str, Any], batches: int) -> npt.NDArray[np.int64]:
    """The numbers of the first batches, one after the other."""
    return np.concatenate([batch[0] for batch in carry(TfData(options), source, batches).batches])


BROADER = {"no_prefetch", "auto", "records_cached", "shuffled", "as_it_comes"}
"""Ways of which the default run has one with the same options and more, or a trial (of test_trials.py)."""
WAYS = [
    pytest.param(entry, id=entry["name"], marks=pytest.mark.slow if entry["name"] in BROADER else ())
    for entry in [*IN_ORDER, *OUT_OF_ORDER]
]


EPOCHS = 3


@pytest.fixture(scope="module", params=WAYS)
def carried(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Carried]:
    """The options of a way, and what it carries of some epochs of four batches each."""
    options = request.param["options"]
    return options, carry(TfData(options), Counted({"batch_size": counted.RECORDS // 4}), 4 * EPOCHS)


def test_every_epoch_holds_every_record_once(carried: tuple[dict[str, Any], Carried]) -> None:
    """What has come by the end of an epoch must be just its records."""
    options, brought = carried
    found = np.concatenate([of_batch for of_batch, _, _ in brought.batches])
    assert len(np.unique(found)) == len(found)
    # What is shuffled, or goes when it is ready, after the epochs were joined may cross from one into the next.
    if options.get("deterministic", True) and not ("shuffle" in options and "from_generator" in options):
        for epoch, of_epoch in enumerate(found.reshape(EPOCHS, counted.RECORDS)):
            np.testing.assert_array_equal(np.sort(of_epoch), np.arange(counted.RECORDS) + epoch * counted.RECORDS)


def test_what_comes_with_a_number_is_that_sample(carried: tuple[dict[str, Any], Carried]) -> None:
    for of_batch, features, labels in carried[1].batches:
        np.testing.assert_array_equal(of_batch % counted.RECORDS, labels)
        np.testing.assert_array_equal(features, labels[:, None])


def test_no_more_samples_are_on_their_way_than_was_said(carried: tuple[dict[str, Any], Carried]) -> None:
    said, batches = carried[1]
    assert said is not None
    come: set[int] = set()
    for of_batch, _, _ in batches:
        come.update(of_batch.tolist())
        assert max(come) + 1 - len(come) <= said


def test_files_that_are_read_at_a_time_take_turns() -> None:
    found = numbers(Counted({"batch_size": 3}), {"interleave": 2}, batches=1)
    assert found.tolist() == [0, counted.IN_FILES[0], 1]


def test_two_epochs_of_a_shuffle_differ() -> None:
    for how in ({}, {"cache": "samples"}):
        found = numbers(Counted({"batch_size": counted.RECORDS}), {"shuffle": counted.RECORDS, **how}, batches=2)
        first, second = found.reshape(2, counted.RECORDS) % counted.RECORDS
        assert (first != second).any()


@pytest.mark.parametrize("how", [{}, {"parallel_calls": 2}, {"from_generator": True}, {"cache": "samples"}], ids=str)
def test_samples_that_differ_in_size_are_padded_and_cut_to_what_the_model_takes(how: dict[str, Any]) -> None:
    """Those of 1, 2 and 3 values are padded to 3, those of 4 are cut."""
    for _, features, labels in carry(TfData(how), Counted({"batch_size": 3, "sizes_differ": True}), 4).batches:
        expected = [[label] * min(label % 4 + 1, 3) + [0] * max(2 - label % 4, 0) for label in labels.tolist()]
        np.testing.assert_array_equal(features, expected)


_IN_ANOTHER_WAY: list[dict[str, Any]] = [{"parallel_calls": 3}, {"cache": "records"}]
SKIPPING = [{}, {"cache": "samples"}, *(pytest.param(each, marks=pytest.mark.slow) for each in _IN_ANOTHER_WAY)]


@pytest.mark.parametrize("how", [*SKIPPING, {"from_generator": True}], ids=str)
def test_a_record_that_is_skipped_leaves_the_others_their_numbers(how: dict[str, Any]) -> None:
    found = numbers(Counted({"batch_size": counted.RECORDS - 1, "bad": 12, "on_error": "skip"}), how, batches=3)
    kept = [number for number in range(3 * counted.RECORDS) if number % counted.RECORDS != 12]
    assert found.tolist() == kept


@pytest.mark.parametrize("how", SKIPPING, ids=str)
def test_a_record_that_its_file_does_not_give_leaves_the_others_their_numbers(how: dict[str, Any]) -> None:
    source = Counted({"batch_size": counted.RECORDS - 1, "short_file": 3, "on_error": "skip"})
    last = sum(counted.IN_FILES[:4]) - 1
    kept = [number for number in range(3 * counted.RECORDS) if number % counted.RECORDS != last]
    assert numbers(source, how, batches=3).tolist() == kept


def test_a_cache_on_disk_goes_with_its_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[Path] = []

    class Watched(Counted):
        def finish(self, carried: Sequence[Any]) -> Batch:
            seen.extend(tmp_path.iterdir())
            return super().finish(carried)

    carry(TfData({"cache": "disk"}), Watched({"batch_size": counted.RECORDS}), 2)
    assert len(seen) == 1
    assert not list(tmp_path.iterdir())


def test_one_seed_is_one_order_whatever_else_the_pipeline_does() -> None:
    def order(seed: int, **more: Any) -> list[int]:
        found = carry(TfData({"shuffle": 20, **more}), Counted({"batch_size": 8}), 6, seed=seed)
        return [int(number) for batch in found.batches for number in batch[0]]

    assert order(3) == order(3, prefetch=0, cache="samples") != order(4)


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"shuffle": 6}], ids=str)
def test_samples_without_files_go_through_a_generator(options: dict[str, Any]) -> None:
    said, batches = carry(TfData(options), Generator({"batch_size": 4}), 5)
    found = np.concatenate([of_batch for of_batch, _, _ in batches])
    assert said == options.get("shuffle", 0)
    assert (np.sort(found) == found).all() == (not options.get("shuffle"))
    assert len(set(found.tolist())) == 20


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (Synthetic(), {"shuffle": 5, "cache": "records"}, "tf_data was given cache, shuffle, .* source synthetic: it "),
        (Memory(), {"from_generator": True}, "tf_data was given from_generator, .* the source memory: it makes whole"),
        (Generator(), {"parallel_calls": 2}, "tf_data was given parallel_calls, .* the source generator: its samples"),
        (Counted({"on_error": "skip"}), {"batch_before_map": True}, 'whole batches with source.on_error = "skip"'),
        (Counted({"sizes_differ": True}), {"batch_before_map": True}, "whole batches of samples that differ in size"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_an_option_that_would_change_nothing_is_refused_by_name(
    source: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(PipelineBenchError, match=words):
        carry(TfData(options), source, 1)
