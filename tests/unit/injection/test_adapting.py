"""What layers of Keras adapt to."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.injection.adapting import Adapting


class Elements:
    """As a dataset of elements of some rank."""

    def __init__(self, count: int, rank: int) -> None:
        self.count = count
        self.element_spec = SimpleNamespace(shape=SimpleNamespace(rank=rank))

    def iterator(self, adapting: Adapting) -> Any:
        """Return its iterator, as it is when Keras begins to iterate."""
        plain = iter(range(self.count))
        return adapting.counted(plain) if adapting.will_iterate else plain


def adapted(adapting: Adapting, data: Any, line: str | None = "train.py:3", *, iterates: bool = True) -> Any:
    """Have a layer adapt to data, or let it do so in the block."""
    return adapting.to(data, "StringLookup", lambda: line, iterates=iterates)


def test_the_elements_that_a_layer_adapts_to_are_counted_for_each_line() -> None:
    adapting = Adapting()
    for data in (Elements(5, rank=0), Elements(7, rank=0), Elements(4, rank=1)):
        with adapted(adapting, data):
            assert list(data.iterator(adapting)) == [*range(data.count)]
    assert not adapting.will_iterate
    told = [(each["line"], each["single_values"], each["calls"], each["elements"]) for each in adapting.record()]
    assert told == [("train.py:3", True, 2, 12), ("train.py:3", False, 1, 4)]


def test_what_else_is_iterated_over_while_a_layer_adapts_is_left_alone() -> None:
    adapting, data, other = Adapting(), Elements(5, rank=0), Elements(9, rank=0)
    with adapted(adapting, [data]):
        assert not adapting.will_iterate, "a list of batches is no dataset"
    with adapted(adapting, data), adapted(adapting, other, "layer.py:8"):  # a layer within a layer
        for _ in data.iterator(adapting):
            assert list(other.iterator(adapting)) == [*range(9)]
    with adapted(adapting, [1, 2], "train.py:9", iterates=False):
        adapting.see_call()  # Keras 2 cuts an array into batches, which its function takes one by one
    with adapted(adapting, data, None):
        assert not adapting.will_iterate, "no line of the program's calls it"
    assert [(each["line"], each["elements"]) for each in adapting.record()] == [
        ("train.py:3", 0),
        ("train.py:3", 5),
        ("train.py:9", 0),
    ]


def test_where_a_function_takes_the_elements_its_calls_are_counted_and_not_those_that_are_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapting, eager = Adapting(), [True]
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(executing_eagerly=lambda: eager[0]))
    adapting.see_call()
    with adapted(adapting, Elements(3, rank=0), iterates=False):
        assert not adapting.will_iterate, "the function is given the iterator as it is"
        for eager[0] in (False, True, True, True):
            adapting.see_call()
    adapting.see_call()
    assert [each["elements"] for each in adapting.record()] == [3]


def test_what_a_layer_raises_as_it_adapts_is_the_programs() -> None:
    adapting, data = Adapting(), Elements(3, rank=0)
    with pytest.raises(ValueError, match="shape"), adapted(adapting, data):
        raise ValueError("another shape")
    assert not adapting.will_iterate
