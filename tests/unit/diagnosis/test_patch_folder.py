"""The patch of a user's file, applied by git itself."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline_bench.diagnosis.patching.patch import change
from pipeline_bench.model.diagnosis import CodeChange
from pipeline_bench.model.edits import InsertAfter
from pipeline_bench.model.pipeline import Inspection, Location, Stage
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.run.diagnosis import patched_from, source_texts
from tests.unit.diagnosis.recorded import FILE, change_of, fix_of, inspected

SOURCE = "import os\n\ndef make_dataset():\n    data = tf.data.Dataset.range(9)\n    return data.batch(2)\n"


def made(file: Path, here: Path) -> CodeChange:
    """The change for the source that stands in a file."""
    fix = fix_of(InsertAfter(stage=1, method="cache"))
    text = file.read_bytes().decode()
    return change({FILE: text}, inspected(SOURCE), fix, {FILE: patched_from(str(file), here)})


def apply(code: CodeChange, folder: Path) -> None:
    assert code.diff is not None
    patch = folder / "fix.patch"
    patch.write_bytes(code.diff.encode())
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        *((name, True) for name in ("train.py", "src/data/train.py", "my train.py", 'a"b\\c\td.py', "größe.py")),
        ("src/data/train.py", False),
    ],
)
def test_git_applies_it_from_the_top(name: str, repository: bool, tmp_path: Path) -> None:
    if repository:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SOURCE)
    code = made(file, here=file.parent if repository else tmp_path)
    assert code.root == str(tmp_path)
    apply(code, tmp_path)
    assert file.read_text() == SOURCE.replace("data.batch(2)", "data.batch(2).cache()")


@pytest.mark.parametrize(
    "source",
    [SOURCE.replace("\n", "\r\n"), SOURCE.removesuffix("\n"), SOURCE.replace("\n\ndef", "\n\f\n# a\fb\ndef")],
    ids=["line ends of Windows", "no last line end", "form feeds"],
)
def test_git_applies_it_whatever_the_line_ends(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCE", source)
    file = tmp_path / "train.py"
    file.write_bytes(source.encode())
    apply(made(file, here=tmp_path), tmp_path)
    assert file.read_bytes().decode() == source.replace("batch(2)", "batch(2).cache()")


def test_a_file_of_no_repository_and_elsewhere_is_patched_from_its_own_folder(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "train.py").write_text(SOURCE)
    assert patched_from(str(there / "train.py"), here) == (str(there), "train.py")


def test_files_without_a_folder_in_common_have_no_patch() -> None:
    code = change_of(SOURCE, InsertAfter(stage=1, method="cache"))
    assert code.diff is not None
    assert code.root is None


@pytest.mark.parametrize(("seconds", "is_known"), [(-5, True), (0, True), (5, False)])
def test_a_file_that_was_written_while_it_was_measured_is_not_changed(
    seconds: int, is_known: bool, tmp_path: Path
) -> None:
    file, began = tmp_path / "train.py", datetime.fromisoformat("2024-05-06T07:08:09+00:00")
    file.write_text(SOURCE)
    os.utime(file, (0, began.timestamp() + seconds))
    stage = Stage(id=0, method="range", place=Location(file=str(file), line=4))
    assert source_texts(Inspection(stages=(stage,)), began) == ({str(file): SOURCE} if is_known else {})


def test_the_file_of_a_function_is_read_and_that_of_a_library_is_not(tmp_path: Path) -> None:
    own, librarys = tmp_path / "loading.py", tmp_path / "site-packages" / "loading.py"
    librarys.parent.mkdir()
    for file in (own, librarys):
        file.write_text(SOURCE)
    functions = (UserFunction(name="load", file=str(file), line=3) for file in (own, librarys))
    stages = tuple(Stage(id=number, method="map", function=each) for number, each in enumerate(functions))
    assert source_texts(Inspection(stages=stages), datetime.now(UTC)) == {str(own): SOURCE}
