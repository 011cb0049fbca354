"""Having data made in a process of its own: progress, interruption, no room, and who else makes the same."""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections import namedtuple
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.errors import UsageError
from pipeline_bench.run import data_making
from pipeline_bench.sources import synthetic_dataset
from pipeline_bench.sources.csv import Csv
from pipeline_bench.sources.synthetic import Synthetic
from pipeline_bench.sources.synthetic_dataset import (
    FOLDER_VARIABLE,
    SyntheticDataset,
    dataset_folder,
    is_complete,
    present,
)

DATA = SyntheticDataset("image_folder", 600, 600, 16)
SMALL = SyntheticDataset("csv", 30, 2, 4)


def test_a_child_makes_it_and_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[int] = []
    data_making.make(SMALL, tmp_path / "new" / "folder", told.append)
    assert is_complete(SMALL, tmp_path / "new" / "folder")
    assert told[-1] == 30
    assert told == sorted(told)


def test_what_an_interrupt_leaves_is_gone_on_with(tmp_path: Path) -> None:
    def interrupt(made: int) -> None:
        if made:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data_making.make(DATA, tmp_path, interrupt)
    there = present(DATA, tmp_path)
    assert there
    told: list[int] = []
    data_making.make(DATA, tmp_path, told.append)
    assert not told or told[0] >= len(there)  # the child may have made all of it before it was ended
    assert is_complete(DATA, tmp_path)


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made: Not a directory") as raised:
        data_making.make(SMALL, tmp_path / "file" / "data", lambda _: None)
    assert FOLDER_VARIABLE in raised.value.hint


def test_what_does_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 50 << 20))
    with pytest.raises(UsageError, match=r"600 images take about .* MiB, and 50\.0 MiB are free"):
        data_making.make(DATA, tmp_path, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_is_one_message(tmp_path: Path) -> None:
    """A folder where a file should be written stands for a disk that refuses."""
    (tmp_path / (SMALL.path(1) + ".part")).mkdir()
    with pytest.raises(UsageError, match="the data cannot be made: Is a directory"):
        data_making.make(SMALL, tmp_path, lambda _: None)


def test_two_processes_do_not_make_the_same_data_at_once(tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    waiting = threading.Event()

    def report(**message: Any) -> None:
        reported.append(message)
        waiting.set()

    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = threading.Thread(target=synthetic_dataset.make_once, args=(asdict(SMALL), str(tmp_path), report))
        second.start()
        assert waiting.wait(20)
        assert not is_complete(SMALL, tmp_path)
        synthetic_dataset.make(SMALL, tmp_path)
    second.join(20)
    assert reported == [{"waiting": True}], "it found what the other one had made"


def test_what_another_process_has_begun_there_meanwhile_is_not_mixed_with(tmp_path: Path) -> None:
    other = SyntheticDataset("csv", 8, 2, 3, seed=1)
    synthetic_dataset.make(other, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    with pytest.raises(UsageError, match=f"it holds another synthetic dataset, {other.name}"):
        data_making.make(SyntheticDataset("csv", 8, 2, 3, seed=2), tmp_path, lambda _: None)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == before


def test_progress_is_told_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    synthetic_dataset.make_once(
        asdict(SMALL), str(tmp_path), lambda **message: reported.append(message), clock=lambda: 0.0
    )
    assert reported == [{"made": 0}, {"made": 30}]


def test_only_sources_without_a_path_of_their_own_want_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    made_one = Csv({"samples": 30, "files": 2, "made_columns": 4})

    class Around:
        inner = made_one

    sources = [made_one, Around(), Csv({"path": "/somewhere"}), Synthetic()]
    assert data_making.wanted(sources) == [SMALL]
    synthetic_dataset.make(SMALL, dataset_folder(SMALL))
    assert data_making.wanted(sources) == []


def test_what_is_kept_is_listed_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert data_making.kept() == []
    synthetic_dataset.make(SMALL, dataset_folder(SMALL))
    other = SyntheticDataset("csv", 40, 2, 4)
    synthetic_dataset.make(other, dataset_folder(other))
    (dataset_folder(other) / other.path(0)).unlink()
    (tmp_path / "not ours").mkdir()
    kept = {found.folder.name: found for found in data_making.kept()}
    assert set(kept) == {SMALL.name, other.name}
    assert kept[SMALL.name].complete
    assert kept[SMALL.name].size_bytes == sum(present(SMALL, dataset_folder(SMALL)).values())
    assert not kept[other.name].complete
