"""Real trials of what reads and decodes in Python: a queue that threads fill, and Keras' PyDataset."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.backends.fifo_queue import FifoQueue
from pipeline_bench.backends.py_dataset import PyDataset
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.sources import RecordError, Sample
from pipeline_bench.sources.synthetic import Synthetic
from tests.tensorflow import counted, images
from tests.tensorflow.conftest import RunScenario
from tests.tensorflow.counted import Counted
from tests.tensorflow.inputs import carry

IN_ORDER: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "queue", "backend": "fifo_queue"},
    {"name": "queue of samples", "backend": "fifo_queue", "options": {"element": "sample", "capacity": 20}},
    {"name": "py_dataset", "backend": "py_dataset"},
    {"name": "py_dataset, 3 workers", "backend": "py_dataset", "options": {"workers": 3, "max_queue_size": 4}},
]
OUT_OF_ORDER: list[dict[str, Any]] = [
    {"name": "queue, 3 threads", "backend": "fifo_queue", "options": {"threads": 3}},
    {"name": "samples, 3 threads", "backend": "fifo_queue", "options": {"threads": 3, "element": "sample"}},
]
QUEUES = [entry.get("options", {}) for entry in (*IN_ORDER[1:3], *OUT_OF_ORDER)]
DATASETS = [entry.get("options", {}) for entry in IN_ORDER[3:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


@pytest.mark.slow
def test_every_one_trains_on_the_same_samples(run_scenario: RunScenario, folder: Path) -> None:
    session = images.train(run_scenario, folder, *IN_ORDER, *OUT_OF_ORDER)
    losses = images.losses(session)
    for entry in (*IN_ORDER, *OUT_OF_ORDER):
        result = session.result(entry["name"])
        assert result.work.status == "equal", (entry["name"], result.work.text)
        if entry in IN_ORDER:
            np.testing.assert_allclose(losses[entry["name"]], losses["feed_dict"], rtol=1e-3, err_msg=entry["name"])


@pytest.mark.parametrize("options", QUEUES, ids=str)
def test_threads_hold_back_no_more_samples_than_was_said(options: dict[str, Any]) -> None:
    """A stream that dawdles over its file, while the others go on, is what the bound is there for."""

    class Dawdling(Counted):
        def streams(self, threads: int) -> list[Iterator[Sample]]:
            first, *others = super().streams(threads)
            return [_slowly(first) if others else first, *others]

    said, batches = carry(FifoQueue(options), Dawdling({"batch_size": 4}), 40)
    assert said is not None
    come: list[int] = []
    for of_batch, features, labels in batches:
        np.testing.assert_array_equal(features, labels[:, None])
        come += of_batch.tolist()
        assert max(come) + 1 - len(come) <= said
    assert len(set(come)) == len(come)
    if options.get("threads", 1) == 1:
        assert come == list(range(160))


def _slowly(stream: Iterator[Sample]) -> Iterator[Sample]:
    for sample in stream:
        time.sleep(0.01)
        yield sample


@pytest.mark.parametrize("options", DATASETS, ids=str)
def test_batches_are_found_by_their_number_across_epochs(options: dict[str, Any]) -> None:
    found = carry(PyDataset(options), Counted({"batch_size": 9}), 12).batches
    np.testing.assert_array_equal([of_batch for of_batch, _, _ in found], np.arange(12 * 9).reshape(12, 9))
    np.testing.assert_array_equal(
        [labels for _, _, labels in found], np.arange(12 * 9).reshape(12, 9) % counted.RECORDS
    )


@pytest.mark.parametrize("backend", [*map(FifoQueue, QUEUES[:2]), *map(PyDataset, DATASETS)])
def test_samples_that_differ_in_size_are_padded_and_cut_to_what_the_model_takes(backend: Any) -> None:
    """Those of 1, 2 and 3 values are padded to 3, those of 4 are cut; two batches of one largest size come first."""
    for _, features, labels in carry(backend, Counted({"batch_size": 3, "sizes_differ": True}), 4).batches:
        expected = [[label] * min(label % 4 + 1, 3) + [0] * max(2 - label % 4, 0) for label in labels.tolist()]
        np.testing.assert_array_equal(features, expected)


@pytest.mark.parametrize("backend", [*map(FifoQueue, QUEUES), *map(PyDataset, DATASETS)])
def test_what_a_thread_raises_ends_the_input_and_names_the_record(backend: Any) -> None:
    with pytest.raises(RecordError, match=r"file 5, record 3 cannot be decoded"):
        carry(backend, Counted({"batch_size": 4, "bad": 30}), 40)


def test_a_record_that_cannot_be_decoded_is_named_by_the_trial(run_scenario: RunScenario, tmp_path: Path) -> None:
    folder = images.make(tmp_path)
    bad = images.spoil(folder)
    record = images.train(run_scenario, folder, IN_ORDER[4], model=images.FED).trials[0]
    assert record.status == "failed"
    assert (record.reason or "").startswith(f"{bad} cannot be decoded")


def test_a_queue_leaves_out_what_is_skipped() -> None:
    for options in QUEUES[:2]:
        batches = carry(FifoQueue(options), Counted({"batch_size": 11, "bad": 5, "on_error": "skip"}), 4).batches
        come = [int(number) for of_batch, _, _ in batches for number in of_batch]
        kept = [number for number in range(2 * counted.RECORDS) if number % counted.RECORDS != 5]
        assert come == kept[:44]


@pytest.mark.parametrize("options", [{}, pytest.param({"element": "sample"}, marks=pytest.mark.slow)], ids=str)
def test_a_queue_whose_reader_waits_stops_at_once(options: dict[str, Any]) -> None:
    """Its thread stands in a read that takes minutes: the input must not wait for it."""

    class Waiting(Counted):
        def streams(self, threads: int) -> list[Iterator[Sample]]:
            return [self._then_waits(stream) for stream in super().streams(threads)]

        def _then_waits(self, stream: Iterator[Sample]) -> Iterator[Sample]:
            for _ in range(8):
                yield next(stream)
            time.sleep(600)

    assert len(carry(FifoQueue(options), Waiting({"batch_size": 4}), 2).batches) == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Synthetic(), "py_dataset asks for samples by their number, which the source synthetic"),
        (Counted({"on_error": "skip"}), "py_dataset cannot leave a record out"),
    ],
    ids=["synthetic", "skip"],
)
def test_a_dataset_by_number_refuses_what_has_none(source: Any, words: str) -> None:
    with pytest.raises(PipelineBenchError, match=words):
        carry(PyDataset(), source, 1)
