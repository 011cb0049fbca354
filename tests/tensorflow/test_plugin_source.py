"""The source of docs/plugins.md, which another package brings: the same samples, whichever backend carries them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.backends import Backend
from pipeline_bench.backends.feed_dict import FeedDict
from pipeline_bench.backends.fifo_queue import FifoQueue
from pipeline_bench.backends.py_dataset import PyDataset
from pipeline_bench.backends.tf_data import TfData
from pipeline_bench.errors import UsageError
from pipeline_bench.records import RecordError
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


@pytest.mark.parametrize("module", ["__init__.py", "vectors.py"])
def test_the_document_shows_the_code_that_is_tested(module: str) -> None:
    _, code = (PACKAGE / "pipeline_bench_recycled" / module).read_text(encoding="utf-8").split("\n\n", 1)
    assert code in (PACKAGE.parents[1] / "docs" / "plugins.md").read_text(encoding="utf-8")
