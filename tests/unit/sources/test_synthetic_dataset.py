"""Made data: where it lies, that it is the same whenever it is made, and that what was interrupted goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline_bench.sources import synthetic_dataset
from pipeline_bench.sources.synthetic_dataset import (
    FOLDER_VARIABLE,
    MANIFEST,
    SyntheticDataset,
    dataset_folder,
    is_complete,
    present,
    read_manifest,
)

IMAGES = SyntheticDataset("image_folder", 25, 25, 16)
TABLE = SyntheticDataset("csv", 300, 3, 4)
ARRAYS = SyntheticDataset("npz", 20, 3, 8)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


@pytest.mark.parametrize("data", [IMAGES, TABLE, replace(IMAGES, uneven=True)], ids=lambda data: data.name)
def test_the_same_data_is_made_whenever_it_is_made(tmp_path: Path, data: SyntheticDataset) -> None:
    for name, threads in (("first", 1), ("second", 3)):
        synthetic_dataset.make(data, tmp_path / name, threads=threads)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    assert len(contents(tmp_path / "first")) == data.file_count


def test_another_seed_makes_other_data() -> None:
    assert not np.array_equal(synthetic_dataset.image(IMAGES, 3), synthetic_dataset.image(replace(IMAGES, seed=1), 3))
    assert synthetic_dataset.line(TABLE, 3) != synthetic_dataset.line(replace(TABLE, seed=1), 3)


def test_the_classes_can_be_told_apart() -> None:
    """The mean image of one half of a class is nearer to that of its other half than to another class's."""
    data = SyntheticDataset("image_folder", 400, 400, 16)
    pictures = np.stack([synthetic_dataset.image(data, place) for place in range(400)]).astype(float)
    labels = np.array([synthetic_dataset.label_of(place) for place in range(400)])
    halves = [[pictures[labels == label][half::2].mean(axis=0) for label in range(10)] for half in (0, 1)]
    distances = np.array([[np.abs(one - other).mean() for other in halves[1]] for one in halves[0]])
    assert (distances.argmin(axis=1) == np.arange(10)).all()


def test_uneven_images_differ_in_size_and_are_never_larger_than_asked_for() -> None:
    sizes = {synthetic_dataset.image(replace(IMAGES, uneven=True), place).shape for place in range(25)}
    assert len(sizes) > 5
    assert max(max(size[:2]) for size in sizes) <= 16


@pytest.mark.parametrize("data", [IMAGES, TABLE], ids=lambda data: data.name)
def test_what_was_interrupted_goes_on_where_it_stopped(tmp_path: Path, data: SyntheticDataset) -> None:
    folder = tmp_path / "interrupted"

    def interrupt(made: int) -> None:
        if made >= 128 or (data is IMAGES and made):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthetic_dataset.make(replace(data, samples=300, files=3 if data is TABLE else 300), folder, interrupt)
    whole = replace(data, samples=300, files=3 if data is TABLE else 300)
    assert not is_complete(whole, folder)
    there = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix in (".csv", ".jpg")}
    assert 0 < len(there) < whole.file_count
    told: list[int] = []
    synthetic_dataset.make(whole, folder, told.append)
    assert told[0] == sum(
        len(whole.indices(file)) for file in range(whole.file_count) if folder / whole.path(file) in there
    )
    assert told[-1] == 300
    assert {path: path.stat().st_mtime_ns for path in there} == there
    assert is_complete(whole, folder)
    synthetic_dataset.make(whole, tmp_path / "at once")
    assert contents(folder) == contents(tmp_path / "at once")


def test_a_file_that_is_missing_or_empty_is_made_again(tmp_path: Path) -> None:
    synthetic_dataset.make(TABLE, tmp_path)
    before = contents(tmp_path)
    (tmp_path / TABLE.path(0)).unlink()
    (tmp_path / TABLE.path(2)).write_bytes(b"")
    assert not is_complete(TABLE, tmp_path)
    assert list(present(TABLE, tmp_path)) == [1]
    synthetic_dataset.make(TABLE, tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("manifest", [None, "", "{", '{"data": {}}', '{"made_by": "another program"}'])
def test_a_folder_without_a_manifest_of_ours_is_not_complete(tmp_path: Path, manifest: str | None) -> None:
    synthetic_dataset.make(TABLE, tmp_path)
    (tmp_path / MANIFEST).unlink()
    if manifest is not None:
        (tmp_path / MANIFEST).write_text(manifest)
    assert read_manifest(tmp_path) is None
    assert not is_complete(TABLE, tmp_path)


def test_the_manifest_says_how_large_the_data_is(tmp_path: Path) -> None:
    synthetic_dataset.make(ARRAYS, tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.size_bytes == sum(map(len, contents(tmp_path).values()))


@pytest.mark.parametrize("data", [IMAGES, TABLE, ARRAYS], ids=lambda data: data.kind)
def test_the_size_is_known_beforehand(tmp_path: Path, data: SyntheticDataset) -> None:
    data = replace(data, samples=400, side=32, files=400 if data.kind == "image_folder" else 2)
    synthetic_dataset.make(data, tmp_path)
    assert synthetic_dataset.estimated_bytes(data) == pytest.approx(sum(present(data, tmp_path).values()), rel=0.05)


def test_every_sample_is_in_one_file() -> None:
    for data in (IMAGES, TABLE, replace(TABLE, files=7, samples=3)):
        places = [place for file in range(data.file_count) for place in data.indices(file)]
        assert places == list(range(data.samples))
        assert len({data.path(file) for file in range(data.file_count)}) == data.file_count


def test_other_parameters_lie_in_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "/data")
    changed = [
        replace(IMAGES, samples=26),
        replace(IMAGES, side=17),
        replace(IMAGES, seed=1),
        replace(IMAGES, uneven=True),
        replace(IMAGES, kind="tfrecord"),
        replace(IMAGES, kind="tfrecord", files=3),
    ]
    assert len({dataset_folder(data) for data in (IMAGES, *changed)}) == 7


def test_a_dataset_lies_in_the_users_cache_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert dataset_folder(TABLE) == tmp_path / "pipeline-bench" / "data" / "csv-300-lines-4columns-3-files"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert dataset_folder(TABLE).is_relative_to(tmp_path / "home" / ".cache")
    monkeypatch.setenv(FOLDER_VARIABLE, "~/elsewhere")
    assert dataset_folder(TABLE).parent == tmp_path / "home" / "elsewhere"


def test_what_a_full_disk_has_taken_of_a_file_is_removed(tmp_path: Path) -> None:
    def begin() -> None:
        with synthetic_dataset._once_whole(tmp_path / "data.csv") as unfinished:
            unfinished.write_bytes(b"1,2")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        begin()
    assert not list(tmp_path.iterdir())


def test_an_image_is_a_jpeg_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    synthetic_dataset.make(IMAGES, tmp_path)
    with Image.open(tmp_path / IMAGES.path(7)) as picture:
        assert (picture.format, picture.size) == ("JPEG", (16, 16))
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {f"class_{label}" for label in range(10)}
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".part"]
    assert os.fspath(tmp_path / IMAGES.path(7)).endswith("class_7/0000007.jpg")
