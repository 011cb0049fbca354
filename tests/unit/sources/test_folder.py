"""Sources of files before anything is read: which files they take, in which order, and what they say where none is."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench import plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.run import comparison
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources import RecordError
from pipeline_bench.sources.folder import FolderSource
from pipeline_bench.sources.image_folder import ImageFolder
from pipeline_bench.sources.synthetic_dataset import FOLDER_VARIABLE

NAMES = {"image_folder": "a.jpg", "tfrecord": "a.tfrecord", "npz": "a.npz", "csv": "a.csv"}
KINDS = sorted(NAMES)


def source_of(kind: str, **options: Any) -> FolderSource:
    source: Any = plugins.find("sources", kind)(options)
    return source  # type: ignore[no-any-return]


def lay(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_is_said_with_what_is_allowed(tmp_path: Path, kind: str) -> None:
    with pytest.raises(
        UsageError, match=f"path .*gone of the source {kind}: there is no such file or folder"
    ) as raised:
        source_of(kind, path=str(tmp_path / "gone")).check()
    assert NAMES[kind].replace("a.", "*.") in raised.value.hint
    with pytest.raises(UsageError, match="there is no such user"):
        source_of(kind, path="~no-such-user/data").check()
    with pytest.raises(UsageError, match="it is empty"):
        source_of(kind, path="").check()
    lay(tmp_path, "notes.txt", f".hidden/{NAMES[kind]}", f".{NAMES[kind]}", f"{NAMES[kind]}.part")
    with pytest.raises(UsageError, match="no file in it is called"):
        source_of(kind, path=str(tmp_path)).check()
    source_of(kind, path=str(lay(tmp_path, NAMES[kind]))).check()
    source_of(kind, path=str(tmp_path / "notes.txt")).check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, NAMES[kind])
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, who may read all
    with pytest.raises(UsageError, match=rf"may not read .*{NAMES[kind]}"):
        source_of(kind, path=str(tmp_path)).check()


@pytest.mark.parametrize("kind", KINDS)
def test_made_data_that_is_gone_says_how_to_have_it_made_again(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(UsageError, match=f"made for the source {kind}") as raised:
        source_of(kind).check()
    assert "makes it again" in raised.value.hint


def test_names_of_shards_are_known(tmp_path: Path) -> None:
    names = [
        "a.tfrecord",
        "b.tfrec",
        "c.tfrecords",
        "d.tfrecord-00000-of-00002",
        "train-00001-of-01024",
        "sub/e.tfrecord",
    ]
    lay(tmp_path, *names, "f.txt", "g.tfrecord.gz", "index-1-of-2")
    found = [str(path.relative_to(tmp_path)) for path in source_of("tfrecord", path=str(tmp_path)).paths]
    assert found == sorted(names)


def test_folders_of_classes_may_be_links_and_loops_are_not_followed(tmp_path: Path) -> None:
    lay(tmp_path / "elsewhere", "1.jpg", "2.png")
    root = lay(tmp_path / "root", "dogs/deep/3.JPEG")
    (root / "cats").symlink_to(tmp_path / "elsewhere")
    (root / "dogs" / "again").symlink_to(root / "dogs")
    found = [str(path.relative_to(root)) for path in source_of("image_folder", path=str(root)).paths]
    assert found == ["cats/1.jpg", "cats/2.png", "dogs/deep/3.JPEG"]


@pytest.mark.parametrize("kind", KINDS)
def test_linked_folders_are_followed_at_every_level_and_loops_end(kind: str, tmp_path: Path) -> None:
    name = NAMES[kind]
    lay(tmp_path / "disk", f"part/{name}")
    root = lay(tmp_path / "root", f"train/day1/{name}")
    (root / "train" / "day2").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "back").symlink_to(root / "train")
    (root / "train" / "itself").symlink_to(root / "train" / "itself")
    found = [str(path.relative_to(root)) for path in source_of(kind, path=str(root)).paths]
    assert found == [f"train/day1/{name}", f"train/day2/part/{name}"]


def test_a_link_further_down_to_what_is_read_anyway_reads_nothing_twice(tmp_path: Path) -> None:
    lay(tmp_path / "disk", "c.csv")
    root = lay(tmp_path / "root", "runs/run1/a.csv", "runs/run2/b.csv")
    (root / "runs" / "latest").symlink_to(root / "runs" / "run2")
    (root / "runs" / "up").symlink_to(tmp_path)
    for link in ("runs/more", "runs/again", "zoo"):
        (root / link).symlink_to(tmp_path / "disk")
    found = [str(path.relative_to(root)) for path in source_of("csv", path=str(root)).paths]
    assert found == ["runs/run1/a.csv", "runs/run2/b.csv", "zoo/c.csv"]


def test_folders_that_all_link_to_each_other_are_read_once(tmp_path: Path) -> None:
    """There are 16! ways through them."""
    names = [f"{number:02}" for number in range(16)]
    root = lay(tmp_path, *(f"all/{name}/{name}.jpg" for name in names))
    for name in names:
        for other in names:
            (root / "all" / name / f"to {other}").symlink_to(root / "all" / other)
    found = {path.resolve().name for path in source_of("image_folder", path=str(root)).paths}
    assert found == {f"{name}.jpg" for name in names}


def test_an_empty_first_file_leaves_the_columns_to_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "part-00000.csv").touch()
    (tmp_path / "part-00001.csv").write_text("a,b,class\n1,2,0\n3,4,1\n")
    source = source_of("csv", path=str(tmp_path))
    source.prepare(None)
    assert [(Path(file.path).name, file.records) for file in source.files] == [("part-00001.csv", 2)]
    assert source.sample_specs[0].shape == (2,)


def labels(source: ImageFolder) -> list[int]:
    return [int(label) for label in source.labels]


def test_classes_alternate_and_are_spread_over_the_epoch(tmp_path: Path) -> None:
    lay(tmp_path, *(f"{name}/{i:02}.jpg" for name, count in (("b", 10), ("a", 10), ("c", 5)) for i in range(count)))
    source = ImageFolder({"path": str(tmp_path)})
    assert source.records == 25
    assert [file.first for file in source.files] == list(range(25))
    found = labels(source)
    assert found[:2] == [0, 1]
    assert {tuple(np.bincount(found[start : start + 5], minlength=3).tolist()) for start in range(0, 25, 5)} == {
        (2, 2, 1)
    }
    for name in "abc":
        names = [file.path for file in source.files if f"/{name}/" in file.path]
        assert all(one < other for one, other in pairwise(names))


def test_a_flat_folder_is_one_class(tmp_path: Path) -> None:
    source = ImageFolder({"path": str(lay(tmp_path, "2.jpg", "1.png"))})
    assert labels(source) == [0, 0]
    assert [Path(file.path).name for file in source.files] == ["1.png", "2.jpg"]


def test_one_image_is_a_data_set_of_one(tmp_path: Path) -> None:
    source = ImageFolder({"path": str(lay(tmp_path, "cats/1.jpg") / "cats" / "1.jpg")})
    assert (source.records, labels(source)) == (1, [0])


def save(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("arrays", "options", "problem"),
    [
        ({"a": np.zeros(3), "b": np.zeros(3)}, {}, "none of the arrays x, features, .*its arrays: a, b"),
        ({"x": np.zeros(3), "b": np.zeros(3)}, {"labels": "c"}, "no array 'c'; its arrays: b, x"),
        ({"x": np.zeros(3), "y": np.zeros(3)}, {"labels": "x"}, "features and labels are both the array 'x'"),
        ({"x": np.zeros(3), "y": np.zeros(4, dtype=int)}, {}, "3 samples in 'x' and 4 in 'y'"),
        ({"x": np.zeros(3), "y": np.zeros((3, 10))}, {}, r"shape \(3, 10\), not one number a sample"),
        ({"x": np.array(["a", "b"]), "y": np.zeros(2)}, {}, "no list of numbers"),
        ({"x": np.float32(1), "y": np.zeros(1)}, {}, "no list of numbers"),
        ({"x": np.zeros((3, 0)), "y": np.zeros(3)}, {}, r"shape \(3, 0\), which holds no features"),
        ({"x": np.zeros(3, dtype=np.longdouble), "y": np.zeros(3)}, {}, "64 bits at most"),
    ],
)
def test_arrays_that_cannot_be_samples_are_refused(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    save(tmp_path / "a.npz", **arrays)
    with pytest.raises(RecordError, match=problem):
        source_of("npz", path=str(tmp_path), **options).prepare(None)


@pytest.mark.parametrize("label", [0.5, np.nan, np.inf, 1e30])
def test_a_label_that_is_no_class_is_named(tmp_path: Path, label: float) -> None:
    save(tmp_path / "a.npz", x=np.zeros(3), y=np.array([0.0, 1.0, label]))
    source = source_of("npz", path=str(tmp_path))
    with pytest.raises(RecordError, match=r"a\.npz, record 3: the label in 'y' is .*, no whole number"):
        list(source.read(source.files[0]))


def test_all_files_must_have_the_arrays_of_the_first_one(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.zeros(2))
    save(tmp_path / "b.npz", x=np.zeros((2, 4)), y=np.zeros(2))
    with pytest.raises(RecordError, match=r"b\.npz: the array 'x' is float64 \(2, 4\)"):
        source_of("npz", path=str(tmp_path)).prepare(None)


def test_what_is_no_npz_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"a\.npz cannot be read as an \.npz file"):
        source_of("npz", path=str(lay(tmp_path, "a.npz"))).prepare(None)


def test_a_comparison_of_what_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    wanted = resolve(
        {"name": "x", "source": {"kind": "csv", "path": str(tmp_path / "gone")}, "variants": [{"backend": "feed_dict"}]}
    )
    with pytest.raises(UsageError, match="there is no such file or folder"):
        comparison.compare(wanted, folder, Observer(), command="test")
    assert not folder.exists()
