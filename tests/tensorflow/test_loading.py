"""A user's function loaded and called: what comes back, and what is said of one that does not do what it should."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.script import loading
from tests.tensorflow import recorded


def failure(name: str, argument: int | None = None) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        recorded.call(name, argument, recorded.FAILING)
    return caught.value


def test_a_script_finds_its_neighbours_and_its_main_guard_holds() -> None:
    assert recorded.values(recorded.call("make_batches", 10)) == [list(range(1, 11)), list(range(11, 21))]


def test_a_dataset_under_the_name_is_taken_as_it_is() -> None:
    assert recorded.values(recorded.call("READY")) == [list(range(7))]


def test_nothing_is_written_beside_the_users_files(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import beside\ndef make(): return beside.made\n")
    (tmp_path / "beside.py").write_text("made = 'made'\n")
    with recorded.importing():
        assert loading.call(Target(file=str(tmp_path / "script.py"), name="make"), "model") == "made"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside.py", "script.py"]


def test_the_working_folder_stays_and_arguments_are_the_scripts_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os, sys\ndef make(): return os.getcwd(), sys.argv\n")
    file = str(tmp_path / "script.py")
    with recorded.importing():
        assert loading.call(Target(file=file, name="make"), "model") == (str(Path.cwd()), [file])


def test_a_traceback_begins_at_their_own_first_frame_and_keeps_causes() -> None:
    error = failure("raises")
    assert error.message == "raises failed: RuntimeError: cannot make the dataset"
    assert "FileNotFoundError: no such file: a\nb.csv" in error.traceback
    assert "direct cause" in error.traceback
    files = {line.split('"')[1] for line in error.traceback.splitlines() if line.startswith("  File ")}
    assert files == {str(recorded.FAILING)}


def test_an_error_in_a_traced_function_is_told_without_tensorflows_frames() -> None:
    error = failure("traced_wrongly")
    assert error.message.startswith("traced_wrongly failed: TypeError: Input 'y' of 'AddV2' Op has type string")
    assert "lambda x: x +" in error.traceback
    assert "site-packages" not in error.traceback


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("exits", "it called sys.exit('not today') instead of returning a dataset", "__main__"),
        ("interrupted", "interrupted failed: KeyboardInterrupt", ""),
        ("wants", "wants wants an argument: size", "--batch-arg N"),
        ("wants_two", "wants_two wants 2 arguments: folder, size", "without arguments"),
        ("number", "is a int, neither a function nor a dataset", "name a function"),
        ("nothing", "there is no 'nothing' in", "allowed: "),
    ],
)
def test_what_went_wrong_is_said_in_words(name: str, message: str, hint: str) -> None:
    error = failure(name)
    assert message in error.message
    assert hint in error.hint


def test_an_argument_too_many_is_told() -> None:
    assert failure("takes_none", 3).hint == "leave --batch-arg out"


def test_input_is_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        error = failure("asks")
    assert error.message.startswith("asks failed: EOFError")
    assert "cannot ask for input" in error.hint


def test_missing_files_and_modules_are_told(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import not_there_at_all\n")
    (tmp_path / "relative.py").write_text("from . import neighbour\n")
    for file, message, hint in (
        ("gone.py", "there is no file", "was it moved"),
        ("script.py", "cannot be loaded: ModuleNotFoundError: No module named 'not_there_at_all'", "install it"),
        ("relative.py", "attempted relative import", "package.module:FUNCTION"),
    ):
        with recorded.importing(), pytest.raises(UserCodeError, match=message) as caught:
            loading.call(Target(file=str(tmp_path / file), name="make"), "dataset")
        assert hint in caught.value.hint


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_the_child_of_a_fork_does_not_go_on(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    assert recorded.values(recorded.call("forks", file=recorded.FAILING)) == [0, 1]
    with seen.open("a") as file:  # by every process that gets here
        file.write("x")
    assert seen.read_text() == "x"


def test_prints_and_threads_left_behind_do_no_harm() -> None:
    assert recorded.values(recorded.call("leaves_a_thread", file=recorded.FAILING)) == [0, 1]


def script(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text)
    return str(folder / "script.py")


CLASS = """
class Data:
    def __init__(self, size=3): self.size = size
    def make(self): return self.size
    @classmethod
    def of_class(cls): return cls(5).size
    @staticmethod
    def plain(): return 7
class Wants:
    def __init__(self, folder): self.folder = folder
    def make(self): return 1
"""


@pytest.mark.parametrize(("name", "made"), [("Data.make", 3), ("Data.of_class", 5), ("Data.plain", 7)])
def test_a_method_is_called_on_an_object_made_without_arguments(name: str, made: int, tmp_path: Path) -> None:
    with recorded.importing():
        assert loading.call(Target(file=script(tmp_path, CLASS), name=name), "model") == made


def test_a_class_that_wants_arguments_is_told(tmp_path: Path) -> None:
    with recorded.importing(), pytest.raises(UserCodeError, match="Wants cannot be made without arguments") as caught:
        loading.call(Target(file=script(tmp_path, CLASS), name="Wants.make"), "dataset")
    assert "Wants(…).make()" in caught.value.hint


def test_an_argument_by_keyword_is_not_said_to_be_given_by_an_option(tmp_path: Path) -> None:
    file = script(tmp_path, "def make(*, size): return size\n")
    with (
        recorded.importing(),
        pytest.raises(UserCodeError, match="needs size by keyword, which no option gives") as caught,
    ):
        loading.call(Target(file=file, name="make"), "dataset")
    assert "--batch-arg N" not in caught.value.hint
    assert "give them defaults" in caught.value.hint


def test_what_the_users_code_takes_from_the_import_system_is_given_back(tmp_path: Path) -> None:
    body = "import sys\ndef make():\n    sys.path.clear()\n    sys.modules.clear()\n    return 'made'\n"
    (tmp_path / "script.py").write_text(body)
    with recorded.importing():
        assert loading.call(Target(file=str(tmp_path / "script.py"), name="make"), "model") == "made"
        assert {"tensorflow", "pipeline_bench"} <= sys.modules.keys()
        assert sys.path
