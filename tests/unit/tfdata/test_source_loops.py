"""Which loops of a text a call stands in."""

from __future__ import annotations

from pipeline_bench.tfdata.source_loops import SourceLoop, around


def here() -> list[SourceLoop]:
    return [loop for loop in around() if loop.file == __file__]


def test_the_innermost_loop_comes_first_with_those_of_the_callers_behind_it() -> None:
    for _ in range(1):
        outer = here()
        while True:
            both = here()
            break
    assert len(outer) == 1
    assert both[1:] == outer
    assert both[0].line > outer[0].line


def test_what_a_loop_goes_over_is_made_once_and_its_body_each_time() -> None:
    for goes_over in (here(),):
        assert goes_over == []
        assert len(here()) == 1
    assert here() == []


def test_a_loop_that_defines_a_function_does_not_repeat_its_calls() -> None:
    for _ in range(1):

        def defined() -> list[SourceLoop]:
            return here()

    assert defined() == []


def test_a_loop_in_one_line_counts_where_all_count() -> None:
    found = [any(loop.file == __file__ for loop in around(body=body)) for body in (True, False) for _ in range(1)]
    assert found == [False, True]


def test_what_a_comprehension_goes_over_and_what_follows_a_loop_are_made_once() -> None:
    # fmt: off
    repeated, once = zip(*[
        (here(), over)
        for over
        in [here()]
    ], strict=True)
    # fmt: on
    assert [len(*repeated), len(*once)] == [1, 0]
    for is_last in (False,):
        if is_last:
            break
    else:
        assert here() == []
