"""What is put around a framework's methods leaves what they do as it is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pipeline_bench.injection import replacing


class Layer:
    def call(self) -> int:
        return 1


class Model(Layer):
    """As Keras' own, which has the method of its base."""


class Doubled(Layer):
    def call(self) -> int:
        return 2 * super().call()


class Mixed(Model, Doubled):
    """A model that has another base behind the one that is patched."""


def test_what_is_put_around_an_inherited_method_skips_no_other_base() -> None:
    seen: list[Any] = []

    def around(owner: Any, call: Callable[[], Any]) -> Any:
        seen.append(owner)
        return call()

    models = (Model(), Mixed())
    replacing.put_around(Model, "call", around)
    assert [each.call() for each in models] == [1, 2]
    assert seen == [*models]


def test_what_is_put_before_a_function_leaves_what_it_is_given_and_gives() -> None:
    seen: list[str] = []

    def double(value: int) -> int:
        return 2 * value

    module = SimpleNamespace(double=double)
    replacing.put_before(module, "double", lambda: seen.append("before"))
    assert (module.double(value=2), module.double.__name__, seen) == (4, "double", ["before"])
