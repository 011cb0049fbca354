"""A module is patched as soon as it is imported, by whoever imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@contextmanager
def after_import(name: str, action: Callable[[Any], None]) -> Iterator[None]:
    """Call `action` with the module: now where it is imported, else after its first import in the block."""
    if name in sys.modules:
        action(sys.modules[name])
        yield
        return
    finder = _Finder(name, action)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:  # the user's code may have cleared it
            sys.meta_path.remove(finder)


class _Finder:
    """Finds nothing itself: the other finders' loader of one module, with an action behind it."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None and spec.loader is not None:
                self._act_behind(spec.loader)
                return spec
        return None

    def _act_behind(self, loader: Any) -> None:
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            plain(module)
            self._action(module)

        loader.exec_module = exec_module
