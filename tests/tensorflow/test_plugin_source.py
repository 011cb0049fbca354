"""The plug-ins of docs/plugins.md, which another package brings: what they carry, and in which loops they run."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench import plugins
from pipeline_bench.backends import Backend, DatasetBackend
from pipeline_bench.backends.feed_dict import FeedDict
from pipeline_bench.backends.fifo_queue import FifoQueue
from pipeline_bench.backends.py_dataset import PyDataset
from pipeline_bench.backends.tf_data import TfData
from pipeline_bench.errors import UsageError
from pipeline_bench.loops import Job
from pipeline_bench.models.two_layer import TwoLayer
from pipeline_bench.scenario import Run, Runtime
from pipeline_bench.sources import RecordError, Source
from pipeline_bench.sources.memory import Memory
from tests.tensorflow.inputs import carry

PACKAGE = Path(__file__).parents[1] / "plugin_package"
IN_FILES = (3, 1, 4)
BATCHES = 6


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PACKAGE)
    return importlib.import_module("pipeline_bench_recycled.vectors").Vectors


def options(folder: Path) -> dict[str, Any]:
    return {"path": str(folder), "features": 2, "batch_size": 3}


@pytest.mark.parametrize("backend", [FeedDict(), FifoQueue(), PyDataset(), TfData()], ids=lambda each: each.name)
def test_every_backend_brings_the_files_samples_by_their_numbers(
    vectors: Any, backend: Backend, tmp_path: Path
) -> None:
    records = np.array([[place % 5, place, -place] for place in range(sum(IN_FILES))], dtype="<f4")
    ends = np.cumsum(IN_FILES)
    for index, own in enumerate(np.split(records, ends[:-1])):
        (tmp_path / f"{index}.vec").write_bytes(own.tobytes())
    source = vectors(options(tmp_path))
    source.check()
    found = carry(backend, source, BATCHES).batches
    numbers, features, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert numbers.tolist() == list(range(BATCHES * 3))
    expected = records[numbers % len(records)]
    np.testing.assert_array_equal(features, expected[:, 1:])
    np.testing.assert_array_equal(labels, expected[:, 0])


def test_a_folder_without_such_files_is_refused_before_anything_runs(vectors: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \.vec files"):
        vectors(options(tmp_path)).check()


def test_a_file_of_another_length_is_named(vectors: Any, tmp_path: Path) -> None:
    (tmp_path / "short.vec").write_bytes(bytes(13))
    with pytest.raises(RecordError, match=r"short\.vec has 13 bytes"):
        _ = vectors(options(tmp_path)).files


def plugin(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> Any:
    monkeypatch.syspath_prepend(PACKAGE)
    return getattr(importlib.import_module(f"pipeline_bench_recycled{module}"), name)


def write_vectors(folder: Path) -> Path:
    records = np.array([[index % 5, index, -index] for index in range(12)], dtype="<f4")
    (folder / "0.vec").write_bytes(records.tobytes())
    return folder


def test_a_backend_of_one_method_carries_files_and_batches_of_the_graph(
    vectors: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repeated = plugin(monkeypatch, ".repeated", "Repeated")({"times": 3})
    for source in (vectors(options(write_vectors(tmp_path))), Memory({"batch_size": 3, "samples": 12, "features": 2})):
        repeated.check(source)
        found = carry(repeated, source, 6).batches
        assert [numbers.tolist() for numbers, _, _ in found] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3


def test_a_backend_of_one_method_feeds_eager_tensorflow(
    vectors: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tensorflow as tf

    repeated = plugin(monkeypatch, ".repeated", "Repeated")()
    feeding = repeated.connect_eagerly(vectors(options(write_vectors(tmp_path))), None)
    take = tf.function(lambda: feeding.take()[0].tensors, autograph=False)
    assert [take()[2].numpy().tolist() for _ in range(3)] == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]


def test_a_backend_of_one_method_is_driven_by_every_loop(
    vectors: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repeated = plugin(monkeypatch, ".repeated", "Repeated")()
    source = vectors(options(write_vectors(tmp_path)))
    for name in plugins.names("loops"):
        loop: Any = plugins.find("loops", name)()
        loop.check(Job(source, repeated, TwoLayer(), Runtime(), Run()))


def test_a_backend_for_batches_of_the_graph_refuses_files(
    vectors: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recycled = plugin(monkeypatch, "", "Recycled")()
    with pytest.raises(UsageError, match="vectors gives single samples, which recycled cannot carry"):
        recycled.check(vectors(options(tmp_path)))
    found = carry(recycled, Memory({"batch_size": 3, "samples": 12, "features": 2}), 5).batches
    assert [numbers[0] for numbers, _, _ in found] == [0, 3, 6, 9, 0]


@pytest.mark.parametrize("module", ["__init__.py", "repeated.py", "vectors.py"])
def test_the_document_shows_the_code_that_is_tested(module: str) -> None:
    _, code = (PACKAGE / "pipeline_bench_recycled" / module).read_text(encoding="utf-8").split("\n\n", 1)
    assert code in (PACKAGE.parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")


class Shuffled(DatasetBackend):
    """Shuffles whole batches, and says how far that changes their order."""

    name = "shuffled"
    summary = "whole batches shuffled"

    def batches(self, made: Any, source: Source) -> Any:
        return made.shuffle(4, seed=1)

    def overtaken_samples(self, source: Source) -> int:
        return 3 * source.batch_size


def test_a_backend_that_changes_the_order_says_how_far_a_sample_may_be_overtaken() -> None:
    carried = carry(Shuffled(), Memory({"batch_size": 4, "features": 2, "samples": 400}), 40)
    numbers = np.concatenate([numbers for numbers, _, _ in carried.batches])
    assert not np.array_equal(numbers, np.sort(numbers))
    # What has not come of all below the largest number that came is never more than was said.
    held_back = [int(numbers[:seen].max()) + 1 - seen for seen in range(4, numbers.size + 1, 4)]
    assert carried.reorder_window is not None
    assert max(held_back) <= carried.reorder_window
