"""What is called behind the first import of a module."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pipeline_bench.tfdata.public_api import after_import
from pipeline_bench.user_code import patched


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


def test_what_a_class_inherits_is_inherited_again_when_its_patch_ends() -> None:
    """It hid the method of the other base of a user's class for good."""

    class Library:
        def own(self) -> str:
            return "own"

    class Mixin:
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, f"mixin's {value}")

    class Made(Library, Mixin):
        pass

    made = Made()
    with patched(Library, "__setattr__", object.__setattr__), patched(Library, "own", lambda _: "patched"):
        made.value = "plain"
        assert (vars(made)["value"], made.own()) == ("plain", "patched")
    made.value = "value"
    assert (vars(made)["value"], made.own()) == ("mixin's value", "own")
    assert "__setattr__" not in vars(Library)
