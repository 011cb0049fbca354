"""What is called behind the first import of a module."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pipeline_bench.tfdata.public_api import after_import


def test_two_that_wait_for_the_same_module_are_both_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "waited_for_by_two"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    called: list[tuple[str, int]] = []

    def tell(who: str, module: ModuleType) -> None:
        called.append((who, module.value))

    with after_import(name, lambda module: tell("outer", module)), after_import(name, lambda each: tell("inner", each)):
        importlib.import_module(name)
    assert sorted(called) == [("inner", 1), ("outer", 1)]
    del sys.modules[name]
