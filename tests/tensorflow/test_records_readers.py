"""TensorFlow 1's readers: however many threads read, each sample comes once an epoch, and models train on the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench import plugins
from pipeline_bench.backends import Backend
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.sources import synthetic_dataset
from pipeline_bench.sources.records import RecordSource
from pipeline_bench.sources.synthetic_dataset import SyntheticDataset
from tests.tensorflow import images, inputs
from tests.tensorflow.conftest import RunScenario

RECORDS = 40
FILES = 7
BATCH = 8
WAYS: list[dict[str, Any]] = [{}, {"threads": 3}, {"threads": 9}, {"shuffle": 20}, {"shuffle": 16, "threads": 3}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TFRecord files of several records each."""
    root = tmp_path_factory.mktemp("records")
    synthetic_dataset.make(SyntheticDataset("tfrecord", RECORDS, FILES, 16, uneven=True), root)
    return root


def tfrecord(folder: Path, **options: Any) -> RecordSource:
    given = {"path": str(folder), "batch_size": BATCH, "image_size": 8, **options}
    source: Any = plugins.find("sources", "tfrecord")(given)
    source.prepare(None)
    return source  # type: ignore[no-any-return]


def readers(**options: Any) -> Backend:
    found: Any = plugins.find("backends", "reader_queue")(options)
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_sample_comes_once_an_epoch_and_as_early_as_the_input_says(folder: Path, way: dict[str, Any]) -> None:
    carried = inputs.carry(readers(**way), tfrecord(folder), 4 * RECORDS // BATCH)
    numbers = np.concatenate([numbers for numbers, _, _ in carried.batches])
    assert len(set(numbers.tolist())) == 4 * RECORDS, "a sample came twice"
    assert carried.reorder_window is not None
    for seen in range(BATCH, 4 * RECORDS + 1, BATCH):
        assert numbers[:seen].max() + 1 - seen <= carried.reorder_window
    if not way:
        assert numbers.tolist() == list(range(4 * RECORDS))
    if "shuffle" in way:
        assert not np.array_equal(numbers, np.sort(numbers))


@pytest.mark.slow
def test_no_number_comes_twice_where_an_epoch_is_as_short_as_there_are_threads(tmp_path: Path) -> None:
    synthetic_dataset.make(SyntheticDataset("tfrecord", 2, 2, 16), tmp_path)
    for _ in range(5):
        carried = inputs.carry(readers(threads=2), tfrecord(tmp_path), 100)
        numbers = np.concatenate([numbers for numbers, _, _ in carried.batches])
        assert len(set(numbers.tolist())) == numbers.size


@pytest.mark.parametrize("fit", ["resize", "pad"])
def test_what_comes_with_a_number_is_that_sample(folder: Path, fit: str) -> None:
    source = tfrecord(folder, fit=fit)
    for numbers, features, labels in inputs.carry(readers(threads=2), source, 10).batches:
        for number, found, label in zip(numbers, features, labels, strict=True):
            place = int(number) % RECORDS
            expected, of_class = source.decode(place, source.load(place))
            shown = found[tuple(slice(min(size, 8)) for size in expected.shape)]
            np.testing.assert_array_equal(shown, expected[: shown.shape[0], : shown.shape[1]])
            assert label == of_class


@pytest.mark.slow
def test_models_train_on_the_same_samples_as_with_feed_dict(run_scenario: RunScenario, folder: Path) -> None:
    source = {"kind": "tfrecord", "path": str(folder), "batch_size": BATCH, "image_size": 8}
    ways = [WAYS[0], WAYS[-1]]
    entries = [{"name": str(way), "backend": "reader_queue", "options": way} for way in ways]
    session = images.run(run_scenario, source, {"name": "feed_dict", "backend": "feed_dict"}, *entries, steps=25)
    for result in session.results:
        assert result.work.status == "equal", (result.variant, result.work.text)
    losses = images.losses(session)
    np.testing.assert_allclose(losses[str(WAYS[0])], losses["feed_dict"], rtol=1e-3)
    queues = [{state.name for state in record.queue_depths} for record in session.trials if record.queue_depths]
    assert queues
    assert all(names == {"file_names", "samples"} for names in queues)


def test_a_record_that_is_skipped_leaves_the_others_their_numbers(folder: Path, tmp_path: Path) -> None:
    whole = images.make(tmp_path)
    bad = images.spoil(whole)
    source = images.source(whole, on_error="skip", batch_size=images.RECORDS - 1)
    place = [file.path for file in source.files].index(str(bad))
    (first, second) = (numbers.tolist() for numbers, _, _ in inputs.carry(readers(), source, 2).batches)
    assert first == [number for number in range(images.RECORDS) if number != place]
    assert second == [number + images.RECORDS for number in first]


@pytest.mark.parametrize("queue", [{"capacity": 4}, {"capacity": 6, "shuffle": 5}])
def test_a_queue_of_less_than_a_batch_is_filled_while_a_batch_is_taken(folder: Path, queue: dict[str, int]) -> None:
    (numbers, *_) = inputs.carry(readers(**queue), tfrecord(folder), 1).batches[0]
    assert len(set(numbers.tolist())) == BATCH


def test_what_would_hang_or_cannot_be_read_is_refused(folder: Path, tmp_path: Path) -> None:
    memory: Any = plugins.find("sources", "memory")({"batch_size": BATCH})
    with pytest.raises(PipelineBenchError, match="no TensorFlow 1 reader for the source memory"):
        readers().connect(memory, None)
    with pytest.raises(UsageError, match="no more than the 5 that shuffle keeps") as caught:
        readers(capacity=5, shuffle=5).check(tfrecord(folder))
    assert "Set capacity to 6 at least" in caught.value.hint
    with pytest.raises(PipelineBenchError, match="differ in size"):
        inputs.carry(readers(shuffle=5), tfrecord(folder, fit="pad"), 1)
    file = tmp_path / "part.tfrecord"
    file.write_bytes(sorted(folder.glob("*.tfrecord"))[0].read_bytes()[:-9])
    with pytest.raises(PipelineBenchError, match=f"{file}, record .* does not get beyond it"):
        inputs.carry(readers(), tfrecord(tmp_path, on_error="skip"), 1)


@pytest.mark.parametrize("kind", ["image_folder", "tfrecord", "csv"])
@pytest.mark.parametrize("backend", ["reader_queue", "tf_data"])
def test_a_file_is_read_whose_name_is_no_utf_8(tmp_path: Path, kind: Any, backend: str) -> None:
    """As names are that were written in Latin-1."""
    synthetic_dataset.make(SyntheticDataset(kind, 2 * BATCH, FILES, 16), tmp_path)
    named = min(path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("."))
    named.rename(named.with_name(os.fsdecode(b"caf\xe9") + named.suffix))
    sized = {} if kind == "csv" else {"image_size": 8}
    source: Any = plugins.find("sources", kind)({"path": str(tmp_path), "batch_size": BATCH, **sized})
    source.prepare(None)
    carrying: Any = plugins.find("backends", backend)()
    numbers = np.concatenate([numbers for numbers, _, _ in inputs.carry(carrying, source, 2).batches])
    assert numbers.tolist() == list(range(2 * BATCH))
