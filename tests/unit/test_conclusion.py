"""The sentence that a session comes down to, and the variant that it calls the fastest."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.conclusion import conclude, fastest
from pipeline_bench.session import Result, Session, Speedup, WorkCheck
from tests.unit import sessions


def changed(variant: str, **changes: Any) -> Session:
    session = sessions.normal()
    results = tuple(r.model_copy(update=changes) if r.variant == variant else r for r in session.results)
    return session.model_copy(update={"results": results})


def best(session: Session) -> str:
    found = fastest(session)
    assert found is not None
    return found.variant


def test_the_fastest_has_the_highest_throughput_and_is_no_ceiling() -> None:
    assert best(sessions.normal()) == "tf_data"
    assert conclude(sessions.normal()) == (
        "tf_data is fastest: 1.66× the throughput of feed_dict (1.61× to 1.71×), which is severely input-bound."
    )


def test_who_did_other_work_is_not_the_fastest() -> None:
    cheat = changed("tf_data", work=WorkCheck(status="unequal", text="it lost 3 of 4 samples"))
    assert best(cheat) == "fifo_queue"
    assert conclude(cheat).startswith("fifo_queue is fastest: 1.26×")


def test_one_whose_interval_overlaps_the_best_one_s_is_named() -> None:
    close = changed("fifo_queue", speedup=Speedup(over="feed_dict", value=1.6, ci95=(1.5, 1.65)))
    assert conclude(close).startswith("tf_data is fastest, though not told from fifo_queue: 1.66×")


def test_a_gain_that_is_none_is_no_difference() -> None:
    speedup = Speedup(over="feed_dict", value=1.01, ci95=(0.99, 1.03), difference="none", smallest=0.0199)
    session = changed("tf_data", speedup=speedup)
    session = session.model_copy(update={"results": tuple(r for r in session.results if r.variant != "fifo_queue")})
    assert conclude(session) == (
        "No difference found between tf_data and feed_dict (smallest this run could have seen: 2 %); feed_dict, "
        "which is severely input-bound."
    )


def test_a_baseline_that_is_the_fastest_is_beaten_by_none() -> None:
    assert conclude(changed("feed_dict", samples_per_second=1e9)).startswith(
        "No variant is faster than feed_dict, which"
    )


@pytest.mark.parametrize("make", [sessions.pending, sessions.troubled, sessions.hostile])
def test_every_session_has_a_conclusion(make: Any) -> None:
    assert conclude(make())


def test_without_the_baseline_nothing_is_compared() -> None:
    session = sessions.normal()
    missing = session.results[0].model_copy(update={"trials": 0, "samples_per_second": None})
    results: tuple[Result, ...] = (missing, *session.results[1:])
    assert conclude(session.model_copy(update={"results": results})) == (
        "tf_data was measured, but feed_dict, which the others are compared with, was not."
    )
    assert conclude(sessions.pending()) == "Nothing was measured that could be compared."
