"""The command `data`: sizes, folders that it refuses, and the data sets that it makes, lists and removes."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.cli import run
from pipeline_bench.cli.data import parse_size
from pipeline_bench.errors import UsageError
from pipeline_bench.scenario.load import load
from pipeline_bench.sources import synthetic_dataset
from pipeline_bench.sources.synthetic_dataset import FOLDER_VARIABLE, SyntheticDataset, dataset_folder, read_manifest
from tests.unit.made_here import made_here

__all__ = ["made_here"]

ASKED = ["--size", "20kB", "--files", "2", "--columns", "4"]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("500MB", 500 * 10**6), ("2GB", 2 * 10**9), ("1GiB", 2**30), (" 1.5 kb ", 1500), ("4096", 4096)],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("name", [FOLDER_VARIABLE, "XDG_CACHE_HOME"])
def test_a_user_without_a_home_folder_is_told_what_to_set(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(name, "~no-such-user/data")
    assert run(["data", "list"]) == 2
    assert f"Set {FOLDER_VARIABLE} to a folder" in capsys.readouterr().err


@given(st.one_of(st.text(max_size=8), st.sampled_from(["1e3GB", "nanGB", "-2GB", "GB", "2XB", "0", "999", "1" * 400])))
def test_a_size_is_read_or_refused_in_words(text: str) -> None:
    size_bytes = 1000
    with suppress(UsageError):
        size_bytes = parse_size(text)
    assert size_bytes >= 1000


@pytest.mark.parametrize("text", ["", "GB", "2XB", "-2GB", "nanGB", "0", "999"])
def test_what_is_no_size_says_how_one_is_written(text: str) -> None:
    with pytest.raises(UsageError, match="no size of 1 kB or more") as raised:
        parse_size(text)
    assert "500MB" in raised.value.hint


@pytest.mark.usefixtures("made_here")
def test_a_table_is_made_of_about_the_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "table"
    assert run(["data", "make", "csv", "--out", str(out), *ASKED]) == 0
    shown = capsys.readouterr()
    assert f"--set source.kind=csv --set source.path={out}" in shown.out
    assert "in 2 files" in shown.out
    assert "making data: " in shown.err
    manifest = read_manifest(out)
    assert manifest is not None
    assert manifest.complete
    assert manifest.size_bytes == pytest.approx(20_000, rel=0.1)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert run(["data", "make", "csv", "--out", str(out), *ASKED]) == 0
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize("name", ["2024", "plain"])
def test_the_command_to_use_it_reads_the_folders_name_as_a_name_and_the_images_in_their_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["data", "make", "image_folder", "--out", name, "--size", "5kB"]) == 0
    scenario, *settings = capsys.readouterr().out.partition("pipeline-bench compare ")[2].split()
    source = load(scenario, [each for each in settings if each != "--set"]).variants[0].source
    assert Path(source.options["path"]) == Path(name)
    assert source.options["image_size"] == 96


@pytest.mark.parametrize("kind", ["npz", pytest.param("tfrecord", marks=pytest.mark.slow)])
def test_the_command_to_use_it_says_nothing_of_data_that_is_made_beside_its_path(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "npz":  # TensorFlow writes the other
        request.getfixturevalue("made_here")
    assert run(["data", "make", kind, "--out", str(tmp_path / "made"), "--size", "5kB", "--image-size", "8"]) == 0
    scenario, *words = capsys.readouterr().out.partition("pipeline-bench compare ")[2].split()
    settings = [word for option, word in pairwise(words) if option == "--set"]
    assert load(scenario, settings).variants[0].source.kind == kind


def test_a_folder_whose_name_is_no_utf8_holds_the_data_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / os.fsdecode(b"caf\xe9")
    assert run(["data", "make", "csv", "--out", str(out), *ASKED]) == 0
    assert read_manifest(out) is not None
    assert r"caf\xe9: " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["data", "remove"], ["scenarios"], []])
def test_a_name_that_is_no_utf8_is_quoted_by_its_bytes(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, os.fsdecode(b"caf\xe9")]) == 2
    assert r"'caf\xe9'" in capsys.readouterr().err


def test_folders_with_something_else_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    synthetic_dataset.make(SyntheticDataset("csv", 5, 1, 4), tmp_path / "other")
    for name, problem in (
        ("foreign", "holds files that"),
        ("foreign/thesis.txt", "is a file"),
        ("other", "holds another synthetic dataset: csv-5-lines"),
    ):
        assert run(["data", "make", "csv", "--out", str(tmp_path / name), *ASKED]) == 2
        assert problem in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["tfrecords", "--size", "1MB"], "Did you mean 'tfrecord'?"),
        (["csv", "--size", "1MB", "--image-size", "32"], "--image-size means nothing for csv"),
        (["image_folder", "--size", "1MB", "--files", "3"], "--files means nothing for image_folder"),
        (["npz", "--size", "1MB", "--columns", "3"], "--columns means nothing for npz"),
        (["csv", "--size", "900PB"], "are free"),
    ],
)
def test_what_cannot_be_made_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert run(["data", "make", *arguments, "--out", str(tmp_path / "new")]) == 2
    assert problem in capsys.readouterr().err


def test_kept_data_is_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    both = [SyntheticDataset("csv", samples, 1, 4) for samples in (5, 6)]
    for data in both:
        synthetic_dataset.make(data, dataset_folder(data))
    assert run(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(data.name in shown for data in both)
    assert "2 datasets" in shown
    assert run(["data", "remove"]) == 2
    assert run(["data", "remove", "../x"]) == 2
    assert run(["data", "remove", both[0].name]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [both[1].name]
    assert run(["data", "remove", "--all"]) == 0
    assert run(["data", "remove", both[0].name]) == 2
    assert "`compare` has made none yet." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
