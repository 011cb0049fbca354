"""What is put around a framework's methods leaves what they do as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline_bench.injection import patches


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
    patches._put_around(Model, "call", around)
    assert [each.call() for each in models] == [1, 2]
    assert seen == [*models]
