"""Whether a generator ends, as far as its text says."""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.user_code import generator_call

rows: list[int] = [1, 2, 3]


def goes_round() -> Iterator[int]:
    while True:
        yield from rows


def goes_round_in_parts(size: int = 2) -> Iterator[list[int]]:
    first = 0
    while 1:
        for each in range(first, len(rows), size):
            if each > 9:
                break
            yield rows[each : each + size]


def ends() -> Iterator[int]:
    yield from rows


def breaks() -> Iterator[int]:
    while True:
        yield from rows
        if len(rows) > 2:
            break


def returns() -> Iterator[int]:
    while True:
        try:
            yield rows[0]
        except ValueError:
            return


def waits_and_ends() -> Iterator[int]:
    while True:
        if rows:
            break
    yield from rows


def while_it_has() -> Iterator[int]:
    while rows:
        yield rows[0]


def breaks_in_a_with() -> Iterator[int]:
    while True:
        with Path(__file__).open() as file:
            if not file.readline():
                break
            yield 1


def reads_until_an_error() -> Iterator[int]:
    try:
        while True:
            yield rows[len(rows)]
    except IndexError:
        pass


def reads_until_it_is_empty() -> Iterator[int]:
    with contextlib.suppress(IndexError):
        while True:
            yield rows[len(rows)]


def breaks_behind_a_loop() -> Iterator[int]:
    while True:
        for each in rows:
            if each > 9:
                break
            yield each
        else:
            break


def limited(function: Callable[[], Iterator[int]]) -> Callable[[], Iterator[int]]:
    @functools.wraps(function)
    def some() -> Iterator[int]:
        yield from itertools.islice(function(), 9)

    return some


def has_a_helper() -> Iterator[int]:
    def first() -> int:
        return rows[0]

    while True:
        yield first()


def within_a_file() -> Iterator[int]:
    with Path(__file__).open() as file:
        try:
            while True:
                yield int(file.readline())
        finally:
            rows.sort()


def goes_round_by_itertools() -> Iterator[int]:
    for each in itertools.cycle(rows):
        yield each + 1


def counts_rounds() -> Iterator[int]:
    for number, each in enumerate(itertools.cycle(rows)):
        yield each + number


def counts_some_rounds() -> Iterator[int]:
    for number, each in enumerate(itertools.cycle(rows)):
        if number > 9:
            break
        yield each


def looks_at_each_once() -> Iterator[int]:
    yield from itertools.chain(rows)


def of_another() -> Iterator[list[int]]:
    yield from goes_round_in_parts()


def of_another_that_ends() -> Iterator[int]:
    yield from ends()


def up_to_infinity() -> Iterator[int]:
    epoch = 0
    while epoch < math.inf:
        yield from rows
        epoch += 1


def up_to_many() -> Iterator[int]:
    epoch = 0
    while epoch < len(rows):
        yield from rows
        epoch += 1


class Batches:
    def rounds(self) -> Iterator[int]:
        while True:
            yield from self.part()

    def of_rounds(self) -> Iterator[int]:
        for each in self.rounds():
            yield each + 1

    def __call__(self) -> Iterator[int]:
        while True:
            yield 1

    def part(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        (goes_round, True),
        (goes_round_in_parts, True),
        (has_a_helper, True),
        (Batches.__call__, True),
        (Batches.part, False),
        (within_a_file, True),
        (goes_round_by_itertools, True),
        (counts_rounds, True),
        (counts_some_rounds, False),
        (looks_at_each_once, False),
        (of_another, True),
        (of_another_that_ends, False),
        (up_to_infinity, True),
        (up_to_many, False),
        (Batches().of_rounds, True),
        (ends, False),
        (breaks, False),
        (returns, False),
        (waits_and_ends, False),
        (while_it_has, False),
        (breaks_in_a_with, False),
        (reads_until_an_error, False),
        (reads_until_it_is_empty, False),
        (breaks_behind_a_loop, False),
        (limited(goes_round), False),
        (functools.partial(limited(goes_round)), False),
        (functools.partial(goes_round_in_parts, size=3), True),
        (Batches(), True),
        (Batches().part, False),
        (len, False),
    ],
)
def test_a_generator_is_endless_if_its_values_come_from_a_loop_without_an_end(
    generator: Callable[..., Any], expected: bool
) -> None:
    assert generator_call.never_ends(generator) is expected


@pytest.mark.parametrize(
    ("instruction", "names", "is_lost"),
    [
        ("STORE_FAST", "rows", True),
        ("STORE_FAST_STORE_FAST", ("first", "rows"), True),
        ("STORE_FAST_LOAD_FAST", ("rows", "first"), True),
        ("STORE_FAST_LOAD_FAST", ("first", "rows"), False),
    ],
)
def test_an_instruction_that_sets_one_name_and_loads_a_parameter_loses_none(
    monkeypatch: pytest.MonkeyPatch, instruction: str, names: Any, is_lost: bool
) -> None:
    """As Python 3.13 has them, of ``[rows for first in range(3)]``."""
    found = [SimpleNamespace(opname=instruction, argval=names)]
    monkeypatch.setattr(dis, "get_instructions", lambda _: found)
    assert generator_call._has_lost(ends.__code__, {"rows": [1]}) is is_lost


def test_a_lambda_that_names_an_iterator_of_keras_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Iterator:
        def __iter__(self) -> Iterator:
            return self

        def __next__(self) -> Any:
            return next(self._flow_index())

        def _flow_index(self) -> Any:
            yield 1

    class OfOnePass(Iterator):
        def __next__(self) -> int:
            raise StopIteration

    monkeypatch.setitem(sys.modules, "keras.src.legacy.preprocessing.image", SimpleNamespace(Iterator=Iterator))
    flow, of_one_pass = Iterator(), OfOnePass()
    assert generator_call.never_ends(lambda: flow)
    assert not generator_call.never_ends(lambda: of_one_pass)
    assert not generator_call.never_ends(lambda: rows)
    of_two = (lambda: flow, lambda: rows)
    assert not generator_call.never_ends(of_two[1]), "the first lambda in its text is another"


def test_of_a_lambda_the_function_that_it_calls_counts() -> None:
    size = 2
    generator = lambda: goes_round_in_parts(size)  # noqa: E731 - as from_generator is given it
    assert generator_call.never_ends(generator)
    other = lambda: ends()  # noqa: E731, PLW0108
    assert not generator_call.never_ends(other)


def test_of_a_lambda_the_method_that_it_calls_counts() -> None:
    batches = Batches()
    endless = lambda: batches.rounds()  # noqa: E731, PLW0108 - as from_generator is given it
    assert generator_call.never_ends(endless)
    ending = lambda: batches.part()  # noqa: E731, PLW0108
    assert not generator_call.never_ends(ending)
