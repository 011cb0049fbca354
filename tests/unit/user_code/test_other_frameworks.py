"""A script of PyTorch or JAX alone is told from one that may have a tf.data pipeline, by its text and its modules'."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from pipeline_bench import user_code
from pipeline_bench.errors import UsageError
from pipeline_bench.model.pipeline import Target
from pipeline_bench.user_code import other_frameworks, own_modules, targets

TF = "import tensorflow as tf"
OF_TORCH = "import torch.nn as nn\nfor x, y in loader:\n    nn.functional.mse_loss(model(x), y).backward()\n"


def test_a_relative_import_that_leads_to_the_root_of_the_file_system_runs_no_file() -> None:
    ((folder, name),) = own_modules.imported(ast.parse("from .utils import x"), Path("/"))
    assert folder is not None
    assert own_modules.files(folder, name) == []


_all_packages = metadata.packages_distributions


@cache
def _packages_of(_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    return _all_packages()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is read once for each `sys.path`: it takes half a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: _packages_of(tuple(sys.path)))


def _written(files: dict[str, str]) -> Path:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return Path(next(iter(files)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": OF_TORCH}, "PyTorch"),
        ({"train.py": "from jax import value_and_grad\nstep = value_and_grad(loss)"}, "JAX"),
        ({"train.py": "import jax\nstep = jax.jit(jax.grad(loss))"}, "JAX"),
        # By what a module of the script's does, or a package's.
        ({"train.py": "from steps import one\nimport numpy", "steps.py": OF_TORCH}, "PyTorch"),
        ({"train.py": "import net.loop", "net/__init__.py": "", "net/loop.py": OF_TORCH}, "PyTorch"),
        ({"train.py": "from net import loop", "net/loop.py": OF_TORCH}, "PyTorch"),
        # Something may be of TensorFlow.
        ({"train.py": "from net import loop", "net/loop.py": OF_TORCH + "from .a.b import c", "net/a/b.py": TF}, None),
        ({"train.py": "from net import loop", "net/loop.py": OF_TORCH + "from . import b", "net/b.py": TF}, None),
        ({"train.py": "import tensorflow as tf\n" + OF_TORCH}, None),
        ({"train.py": "import keras\n" + OF_TORCH}, None),
        ({"train.py": "from data import load\n" + OF_TORCH, "data.py": "import tensorflow_datasets"}, None),
        ({"train.py": "def main():\n    import tensorflow.keras\n" + OF_TORCH}, None),
        ({"train.py": "import importlib\n" + OF_TORCH}, None),
        ({"train.py": "import sys\nsys.path.append('src')\nimport away\n" + OF_TORCH}, None),
        # Nothing is seen to train.
        ({"train.py": "import torch\nprint(torch.__version__)"}, None),
        ({"train.py": OF_TORCH.replace("import torch.nn as nn", "nn = object()")}, None),
        # What cannot be read says nothing; what Python would refuse is left to it.
        ({"train.py": "import broken\n" + OF_TORCH, "broken.py": "import tensorflow as"}, "PyTorch"),
        ({"train.py": "from . import away\n" + OF_TORCH}, "PyTorch"),
        ({"train.py": "import site\nsite.addsitedir('src')\n" + OF_TORCH}, None),
        ({"train.py": "from sys import path\npath.append('src')\nimport away\n" + OF_TORCH}, None),
        ({"train.py": "from net import *\n" + OF_TORCH, "net/__init__.py": "__all__ = ['b']", "net/b.py": TF}, None),
        ({"train.py": "data.to_tf_dataset()\n" + OF_TORCH}, None),
        ({"train.py": "import " + "x" * 300 + "\n" + OF_TORCH}, None),
        ({"app/__main__.py": "import data\n" + OF_TORCH, "app/data.py": TF}, None),
        ({"app/__main__.py": "import data\n" + OF_TORCH, "app/data.py": ""}, "PyTorch"),
        ({"train.py": "def rarely():\n    import not_installed\n" + OF_TORCH}, "PyTorch"),
        ({"train.py": "import torch.utils.data, jax\nstep = jax.jit(jax.grad(loss))"}, "JAX"),
    ],
)
def test_a_script_of_another_framework_is_told_by_its_text(files: dict[str, str], expected: str | None) -> None:
    file = str(_written(files))
    target = Target(file=file, name="", arguments=())
    try:
        other_frameworks.refuse(target, Path(file))
        found = None
    except UsageError as refused:
        found = next(name for name in ("PyTorch", "JAX") if f"trains with {name}, " in refused.message)
    assert found == expected


@pytest.mark.parametrize(
    ("module", "file"), [("work.train", "work/train.py"), ("work", "work/__main__.py"), ("train", "train.py")]
)
def test_a_module_is_followed_through_its_package(module: str, file: str) -> None:
    relative = "from .helper import load\n" if "/" in file else "from helper import load\n"
    written = _written({file: relative + OF_TORCH, "work/__init__.py": "", "work/helper.py": "", "helper.py": ""})
    assert other_frameworks.trained_with(written, module) == "PyTorch"
    for helper in ("work/helper.py", "helper.py"):
        Path(helper).write_text("import tensorflow")
    assert other_frameworks.trained_with(written, module) is None


def test_a_module_that_is_not_beside_the_script_may_be_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    _written({"jobs/train.py": "from loaders import load\n" + OF_TORCH, "src/loaders.py": "import tensorflow"})
    monkeypatch.syspath_prepend(str(Path("src").absolute()))  # as of PYTHONPATH
    assert other_frameworks.trained_with(Path("jobs/train.py")) is None


def test_a_module_beside_the_package_and_one_in_the_path_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    _written({"src/work/train.py": "import my_data\n" + OF_TORCH, "lib/my_data.py": "", "linked/work/a": ""})
    monkeypatch.syspath_prepend(str(Path("lib").absolute()))
    assert other_frameworks.trained_with(Path("src/work/train.py"), "work.train") == "PyTorch"
    Path("lib/my_data.py").write_text(TF)
    assert other_frameworks.trained_with(Path("src/work/train.py"), "work.train") is None
    Path("linked/my_data.py").write_text(TF)
    Path("lib/my_data.py").write_text("")
    link = Path("linked/work/train.py")
    link.symlink_to(Path("src/work/train.py").absolute())
    assert other_frameworks.trained_with(link, "work.train") is None


def test_the_modules_of_an_installed_package_that_is_run_are_beside_it() -> None:
    written = _written({"away/work/train.py": "from .data import load\n" + OF_TORCH, "away/work/data.py": ""})
    assert other_frameworks.trained_with(written, "work.train") == "PyTorch"
    Path("away/work/data.py").write_text(TF)
    assert other_frameworks.trained_with(written, "work.train") is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"METADATA": "Requires-Dist: numpy"}, "PyTorch"),
        ({"METADATA": "Requires-Dist: tensorflow>=2.16"}, None),
        ({"METADATA": 'Requires-Dist: tensorflow; extra == "tf"'}, "PyTorch"),
        ({"METADATA": "", "direct_url.json": "{}"}, None),  # installed from a folder, as one's own
    ],
)
def test_an_installed_package_may_need_tensorflow_or_be_ones_own(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], expected: str | None
) -> None:
    head = {"METADATA": "Name: loaders\nVersion: 1\n" + told["METADATA"], "top_level.txt": "loaders"}
    _written({f"site/loaders-1.dist-info/{name}": text for name, text in {**told, **head}.items()})
    _written({"site/loaders/__init__.py": "", "jobs/train.py": "import loaders\n" + OF_TORCH})
    monkeypatch.syspath_prepend(str(Path("site").absolute()))
    monkeypatch.setattr(user_code, "origin", lambda file: "library" if "/site/" in file else "user")
    assert other_frameworks.trained_with(Path("jobs/train.py")) == expected


def test_a_script_of_tensorflow_is_not_read_to_its_last_module(monkeypatch: pytest.MonkeyPatch) -> None:
    written = _written({"train.py": "import many\nimport tensorflow", "many.py": "import more", "more.py": ""})
    read: list[bytes] = []

    def readable(text: bytes) -> ast.Module:
        read.append(text)
        return ast.parse(text)

    monkeypatch.setattr(own_modules, "readable", readable)
    assert other_frameworks.trained_with(written) is None
    assert read == [written.read_bytes()]


def test_such_a_script_is_refused_before_it_runs_with_the_command_that_measures_it() -> None:
    _written({"train.py": OF_TORCH + "open('ran', 'w')"})
    expected = "train.py --epochs 3 trains with PyTorch, and imports neither TensorFlow nor Keras"
    with pytest.raises(UsageError, match=re.escape(expected)) as refused:
        targets.parse_script("train.py", ["--epochs", "3"])
    assert "`pipeline-bench run -- python train.py --epochs 3`" in str(refused.value.hint)
    assert not Path("ran").exists()
