"""What the lines of the user's Python are charged with, by a clock that only waiting moves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_bench.user_code import line_profile
from pipeline_bench.user_code.line_profile import LineCosts, Tracer, in_this_thread, line_costs

LIBRARY = """
now_ns = 0
def wait(ns):
    global now_ns
    now_ns += ns
def calls_back(function):
    wait(70)
    function()
    wait(20)
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Functions that wait, of a file whose lines are not followed."""
    space: dict[str, Any] = {}
    exec(compile(LIBRARY, "library.py", "exec"), space)
    clock = SimpleNamespace(perf_counter_ns=lambda: space["now_ns"], monotonic=lambda: 0.0)
    monkeypatch.setattr(line_profile, "time", clock)
    return SimpleNamespace(**space)


def profiled(function: Callable[[], Any], **given: Any) -> LineCosts:
    return line_costs(function, 0.0, lambda file: file == __file__, **given)


def told(costs: LineCosts) -> dict[str, tuple[float, float]]:
    """The own and the whole share of each line that has any."""
    whole = {each.place.text: each.share for each in costs.whole}
    return {each.place.text: (each.share, whole[each.place.text]) for each in costs.own if each.share}


def test_the_share_of_a_line_is_of_the_whole_call_with_the_library_that_calls_it(library: Any) -> None:
    """As of a function that a library's PyDataset calls for each picture."""

    def preprocess() -> None:
        library.wait(10)

    costs = profiled(functools.partial(library.calls_back, preprocess))
    assert told(costs) == {"library.wait(10)": (0.1, 0.1)}


def test_what_a_library_does_behind_a_call_of_the_users_counts_for_the_line_that_called_the_library(
    library: Any,
) -> None:
    def inner() -> None:
        library.wait(10)

    def outer() -> None:
        library.calls_back(inner)

    assert told(profiled(outer)) == {"library.calls_back(inner)": (0.9, 1.0), "library.wait(10)": (0.1, 0.1)}


def test_how_often_a_line_runs_in_a_call_is_counted_once_for_what_is_in_brackets_over_several(library: Any) -> None:

    def work() -> None:
        for _ in range(3):
            library.wait(
                10,
            )
        library.wait(20)

    runs = {each.place.text: (each.runs, each.run_ns) for each in profiled(work).own}
    assert runs["library.wait("] == (3, 10)
    assert runs["library.wait(20)"] == (1, 20)


def test_what_passes_between_calls_that_are_followed_counts_for_none(library: Any) -> None:
    tracers: list[Tracer] = []

    @contextmanager
    def follow(tracer: Tracer) -> Iterator[None]:
        tracers.append(tracer)
        yield

    def work() -> None:
        for _ in range(2):
            library.wait(1000)
            with in_this_thread(tracers[0]):
                library.calls_back(own)

    def own() -> None:
        library.wait(10)

    assert told(profiled(work, follow=follow)) == {"library.wait(10)": (0.1, 0.1)}
