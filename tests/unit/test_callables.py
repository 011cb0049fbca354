"""A user's callable: found without running it, and what is said of one that is not there or that raises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_bench.errors import UsageError
from pipeline_bench.records.callables import CallableName, where_in
from pipeline_bench.records.samples import RecordError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; what is imported in a test is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def trouble(text: str, **arguments: object) -> str:
    with pytest.raises(UsageError) as caught:
        CallableName.parse(text).check(arguments)
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("text", ["train.py:make", "a/b.py:make", "package.module:make", "module:make", "C:/x.py:make"])
def test_a_name_is_a_file_or_a_module_and_a_function(text: str) -> None:
    name = CallableName.parse(text)
    assert name.function == "make"
    assert str(name) == text
    assert name.in_file == (".py" in text)


@pytest.mark.parametrize(
    "text", ["", "make", "train.py", "train.py:", ":make", "a-b:make", "train.py:a.b", "a..b:make"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"path/to/file\.py:function or package\.module:function"):
        CallableName.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = CallableName.parse(text)
    except ValueError:
        return
    assert str(name) == text
    assert name.function.isidentifier()


@pytest.mark.parametrize(
    "source",
    [
        "def make(): yield 1",
        "make = lambda: []",
        "class make: pass",
        "from somewhere import make",
        "from somewhere import other as make",
        "from somewhere import *",
        "try:\n    import fast\nexcept ImportError:\n    def make(): yield 1",
        "if True:\n    pass\nelse:\n    make = 1",
        "make: object = print",
    ],
)
def test_a_function_is_found_however_the_file_defines_it(folder: Path, source: str) -> None:
    written(folder / "train.py", source)
    CallableName.parse("train.py:make").check({})


def test_checking_a_file_or_a_module_runs_none_of_it(folder: Path) -> None:
    """A module's package too: its import may take seconds, or fail where only the trials can."""
    written(folder / "train.py", "raise SystemExit\ndef make(): yield 1")
    written(folder / "package" / "__init__.py", "raise SystemExit")
    written(folder / "package" / "train.py", "raise SystemExit\ndef make(): yield 1")
    CallableName.parse("train.py:make").check({})
    CallableName.parse("package.train:make").check({})
    assert "package" not in sys.modules


def test_what_is_not_there_is_said_with_what_is(folder: Path) -> None:
    written(folder / "train.py", "def make_samples(): yield 1\ndef _hidden(): pass")
    assert "train.py defines no 'make_sample'. Did you mean 'make_samples'?" in trouble("train.py:make_sample")
    assert "No such file" in trouble("trian.py:make")
    assert str(folder) in trouble("trian.py:make")
    assert "there is no module 'trian'" in trouble("trian:make")
    written(folder / "package" / "__init__.py", "")
    assert "there is no module 'package.trian'" in trouble("package.trian:make")
    written(folder / "bad.py", "def make(:\n")
    assert "bad.py, line 1" in trouble("bad.py:make")


def test_a_folder_is_no_file(folder: Path) -> None:
    (folder / "folder.py").mkdir()
    assert "folder.py cannot be read: Is a directory" in trouble("folder.py:make")


def test_arguments_are_held_against_the_function(folder: Path) -> None:
    written(folder / "train.py", "def make(path, *, size, seed=0): yield 1\ndef any_of(**options): yield 1")
    CallableName.parse("train.py:make").check({"path": "x", "size": 3})
    CallableName.parse("train.py:any_of").check({"whatever": 3})
    assert "takes no 'sed'. Did you mean 'seed'?" in trouble("train.py:make", path="x", size=3, sed=1)
    assert "needs 'size'" in trouble("train.py:make", path="x")


def test_a_file_finds_the_files_beside_it(folder: Path) -> None:
    written(folder / "below" / "train.py", "from helper_of_train import value\ndef make(): return value")
    written(folder / "below" / "helper_of_train.py", "value = 7")
    assert CallableName.parse("below/train.py:make").load()() == 7


def test_a_file_may_have_the_name_of_a_module(folder: Path) -> None:
    written(folder / "json.py", "def make(): return 7")
    assert CallableName.parse("json.py:make").load()() == 7
    import json

    assert json.loads("7") == 7


def test_an_import_that_raises_is_told_with_its_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written(folder / "train.py", "\nimport no_such_module\n")
    with pytest.raises(RecordError, match=r"ModuleNotFoundError: No module named 'no_such_module' \(train\.py:2\)"):
        CallableName.parse("train.py:make").load()
    shown = capfd.readouterr().err
    assert "import no_such_module" in shown
    assert "callables.py" not in shown


def test_what_is_no_function_is_refused(folder: Path) -> None:
    written(folder / "train.py", "make = 3")
    with pytest.raises(RecordError, match="is no function: it is a int"):
        CallableName.parse("train.py:make").load()
    with pytest.raises(RecordError, match="there is none of that name"):
        CallableName.parse("train.py:other").load()


def test_an_exception_has_the_users_own_frame(folder: Path) -> None:
    written(folder / "train.py", "import json\ndef make():\n    json.loads('{')\n")
    function = CallableName.parse("train.py:make").load()
    with pytest.raises(ValueError, match="Expecting") as caught:
        function()
    assert where_in(caught.value, function) == " (train.py:3)"
    assert "json" not in where_in(caught.value, function)
