"""What is installed, wherever it was installed to."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pipeline_bench import user_code
from pipeline_bench.user_code import installed


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `pip install --target` makes one, on the path; a script of the user's lies in it as well."""
    metadata = tmp_path / "tensorflow-2.21.0.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text("tensorflow/__init__.py,sha256=x,12\nsix.py,sha256=x,12\n")
    other = tmp_path / "absl_py-2.0.dist-info"
    other.mkdir()
    (other / "RECORD").write_text("absl/app.py,sha256=x,12\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(user_code, "origin", user_code.origin.__wrapped__)  # without what it knows of other tests
    return tmp_path


@pytest.mark.parametrize(
    ("file", "path", "origin"),
    [
        ("tensorflow/python/data/ops/dataset_ops.py", "tensorflow/python/data/ops/dataset_ops.py", "tensorflow"),
        ("absl/app.py", "absl/app.py", "library"),
        ("six.py", "six.py", "library"),
        ("train.py", None, "user"),
        ("mine/data.py", None, "user"),
    ],
)
def test_what_its_metadata_lists_is_a_librarys_and_nothing_else_there(
    target: Path, file: str, path: str | None, origin: str
) -> None:
    assert installed.inside(f"{target}/{file}") == path
    assert user_code.origin(f"{target}/{file}") == origin


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_what_lies_where_installers_put_it_needs_no_metadata(folder: str) -> None:
    assert installed.inside(f"/env/lib/{folder}/keras/src/model.py") == "keras/src/model.py"


def test_a_folder_that_is_not_on_the_path_holds_the_users_code(tmp_path: Path) -> None:
    assert installed.inside(f"{tmp_path}/tensorflow/models/train.py") is None


def test_a_framework_of_a_checkout_is_one_where_it_is_imported_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "/home/dev/keras/keras/src/models/model.py"
    assert user_code.origin.__wrapped__(file) == "user"
    monkeypatch.setitem(sys.modules, "keras", ModuleType("keras"))
    monkeypatch.setattr(sys.modules["keras"], "__file__", "/home/dev/keras/keras/__init__.py", raising=False)
    assert user_code.origin.__wrapped__(file) == "tensorflow"
    assert user_code.origin.__wrapped__("/home/dev/keras/benchmarks/train.py") == "user"


def test_the_modules_of_a_large_program_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched job asks for those of the user's every second."""
    for number in range(6000):
        module = ModuleType(f"large_{number}")
        module.__file__ = f"/opt/large/site-packages/large/part_{number}.py"
        monkeypatch.setitem(sys.modules, module.__name__, module)
    seen, inside = list[str](), installed.inside

    def looked(file: str) -> str | None:
        seen.append(file)
        return inside(file)

    monkeypatch.setattr(installed, "inside", looked)
    user_code.origin.cache_clear()
    before = list(user_code.users_modules())
    assert len(seen) >= 6000
    seen.clear()
    assert list(user_code.users_modules()) == before
    assert seen == []
