"""The sentence that a session comes down to, and the variant that it calls the fastest."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.analysis.conclusion import conclude, of_hosts
from pipeline_bench.analysis.speedups import fastest
from pipeline_bench.analysis.verdicts import unequal_work
from pipeline_bench.model.hosts import Host, Hosts, HostsKind, HostsResult
from pipeline_bench.model.result import Precision, Result, Speedup, Verdict, VerdictKind, WorkCheck
from pipeline_bench.model.session import Session
from tests.unit import records, sessions


def changed(variant: str, **changes: Any) -> Session:
    return sessions.with_result(sessions.normal(), variant, **changes)


def best(session: Session) -> str:
    found = fastest(session)
    assert found is not None
    return found.variant


def test_the_fastest_has_the_highest_throughput_and_is_no_ceiling() -> None:
    assert best(sessions.normal()) == "tf_data"
    assert conclude(sessions.normal()) == (
        "tf_data is fastest: 1.66× the throughput of feed_dict (1.61 to 1.71×); feed_dict is severely input-bound."
    )


def without(session: Session, variant: str = "fifo_queue") -> Session:
    return session.model_copy(update={"results": tuple(r for r in session.results if r.variant != variant)})


def gain(value: float, low: float, high: float, **told: Any) -> Speedup:
    return Speedup(over="feed_dict", value=value, ci95=(low, high), **told)


TIE = Speedup(over="tf_data", value=0.98, ci95=(0.95, 1.01), difference="none")
SLOWER = Speedup(over="tf_data", value=0.76, ci95=(0.70, 0.80), difference="slower")
OPEN = TIE.model_copy(update={"ci95": (0.7, 1.3)})


@pytest.mark.parametrize(
    ("session", "text"),
    [
        (
            changed("tf_data", work=WorkCheck(status="unequal", text="it lost 3 of 4 samples")),
            "fifo_queue is fastest: 1.26×",
        ),
        (
            changed("fifo_queue", speedup=gain(1.6, 1.5, 1.65)),  # its interval overlaps the best one's
            "tf_data is faster: 1.66× the throughput of feed_dict (1.61 to 1.71×); fifo_queue may",
        ),
        (
            changed("fifo_queue", against_fastest=SLOWER),
            "tf_data is fastest: 1.66× the throughput of feed_dict",
        ),
        (
            changed("fifo_queue", against_fastest=SLOWER.model_copy(update={"certainty": "probable"})),
            "tf_data is probably fastest: 1.66× the throughput of feed_dict",
        ),
        (
            changed("fifo_queue", against_fastest=TIE),
            "tf_data and fifo_queue tie: about 1.66× the throughput of feed_dict (1.61 to",
        ),
        (
            without(changed("tf_data", speedup=gain(1.4, 1.1, 1.7, difference="faster", certainty="probable"))),
            "tf_data is probably faster: 1.40×",
        ),
        (  # one that is not told came out higher
            changed("tf_data", speedup=gain(2.0, 0.7, 4.0, difference="none")),
            "fifo_queue is faster: 1.26×",
        ),
        (
            without(changed("tf_data", speedup=gain(1.01, 0.99, 1.03, difference="none", smallest=0.0199))),
            "feed_dict and tf_data tie; feed_dict is severely input-bound.",
        ),
        (
            without(changed("tf_data", speedup=gain(4.0, 1.1, 14.5, difference="none", smallest=7.3))),
            "tf_data may be faster than feed_dict: 4.00× (1.10 to 14.5×); feed_dict is",
        ),
        (  # a high figure of chance alone
            without(changed("tf_data", speedup=gain(4.0, 0.8, 20.0, difference="none", smallest=7.3))),
            "It is not decided whether tf_data is faster or slower than feed_dict (0.80 to 20.0×); feed_dict is",
        ),
        (
            without(changed("tf_data", speedup=Speedup(over="feed_dict", value=1.04, reason="one trial"))),
            "tf_data had 1.04× the throughput of feed_dict in one trial each, which may be chance; feed_dict is "
            "severely input-bound.",
        ),
        (
            changed("feed_dict", work=WorkCheck(status="unequal", text="it lost 3"), verdict=unequal_work("it lost 3")),
            "Nothing is compared, because the work of feed_dict itself was not equal: it lost 3.",
        ),
        (without(without(sessions.normal()), "tf_data"), "feed_dict is severely input-bound."),
        (sessions.pending(), "No variant was measured that can be compared."),
    ],
)
def test_a_conclusion(session: Session, text: str) -> None:
    assert conclude(session).startswith(text)


def test_ceilings_are_compared_where_there_is_nothing_else() -> None:
    of_ms = {"1 thread": (10.0, None), "2 threads": (6.0, None), "4 threads": (10.0, None)}
    session = records.session(records.of_ceilings(*of_ms), records.rounds(of_ms))
    assert best(session) == "2 threads"
    assert session.result("4 threads").against_fastest.difference == "slower"
    assert conclude(session).startswith("2 threads is fastest: 1.67× the throughput of 1 thread (1.5")
    assert "ceiling" not in conclude(session), "that they have no input is no limit"
    alone = records.session(records.of_ceilings("1 thread"), records.rounds({"1 thread": (10.0, None)}))
    assert conclude(alone) == "No variant was measured that can be compared."


@pytest.mark.parametrize(
    ("kind", "begins", "within"),
    [
        ("inconclusive", "What limits feed_dict is not decided.", "; what limits feed_dict is not decided."),
        ("mixed", "No single part limits feed_dict.", "; no single part limits feed_dict."),
        ("host-bound", "feed_dict is host-bound.", "; feed_dict is host-bound."),
    ],
)
def test_what_limits_the_baseline_has_a_capital_where_a_sentence_begins(
    kind: VerdictKind, begins: str, within: str
) -> None:
    session = changed("feed_dict", verdict=Verdict(kind=kind, text=""))
    assert conclude(session).endswith(within)
    assert conclude(without(without(session), "tf_data")) == begins


def test_who_may_be_as_fast_is_named() -> None:
    assert best(changed("tf_data", work=WorkCheck(status="unequal", text="it lost 3"))) == "fifo_queue"
    assert "fifo_queue may be as fast as tf_data;" in conclude(changed("fifo_queue", against_fastest=OPEN))
    wild = changed("tf_data", speedup=gain(2.0, 0.7, 4.0, difference="none"))
    assert "tf_data may be as fast as fifo_queue;" in conclude(wild)


def test_a_baseline_is_beaten_by_none_only_where_all_were_found_to_be_slower() -> None:
    session = sessions.normal()
    slower = Speedup(over="feed_dict", value=0.8, ci95=(0.7, 0.9), difference="slower")
    unsure = Speedup(over="feed_dict", value=0.9, ci95=(0.7, 1.2), difference="none", smallest=0.3)
    for speedup, text in (
        (slower, "No variant is faster than feed_dict; feed_dict is"),
        (
            unsure,
            "It is not decided whether tf_data is faster or slower than feed_dict (0.70 to 1.20×); "
            "fifo_queue is slower; feed_dict is",
        ),
        (
            slower.model_copy(update={"value": 1.0, "ci95": (0.98, 1.02), "difference": "none"}),
            "feed_dict and tf_data tie; fifo_queue is slower; feed_dict is",
        ),
    ):
        speedups = {"fifo_queue": slower, "tf_data": speedup}
        results = tuple(r.model_copy(update={"speedup": speedups.get(r.variant, r.speedup)}) for r in session.results)
        assert conclude(session.model_copy(update={"results": results})).startswith(text)


def test_names_with_commas_of_their_own_are_told_apart() -> None:
    session = sessions.normal()
    unsure = Speedup(over="feed_dict", value=0.9, ci95=(0.7, 1.2), difference="none", smallest=0.3)
    named = {"fifo_queue": "in_graph, 2", "tf_data": "in_graph, 4", "ceiling": "mirrored, 2"}
    results = tuple(
        r.model_copy(update={"variant": named[r.variant], "speedup": unsure}) if r.variant in named else r
        for r in session.results
    )
    assert "whether in_graph, 2; in_graph, 4; or mirrored, 2 is faster or slower than feed_dict;" in conclude(
        session.model_copy(update={"results": results})
    )


def test_the_fastest_is_so_beside_its_neighbours_and_not_by_a_lucky_trial() -> None:
    """A repeat that it alone had may have raised a variant's throughput; its speed-up is over the repeats of both."""
    slower = Speedup(over="feed_dict", value=0.91, ci95=(0.9, 0.92), difference="slower")
    assert best(changed("tf_data", speedup=slower, samples_per_second=1e9)) == "fifo_queue"


@pytest.mark.parametrize("make", [sessions.pending, sessions.troubled, sessions.hostile])
def test_every_session_has_a_conclusion(make: Any) -> None:
    assert conclude(make())


@pytest.mark.parametrize(
    ("queue_ms", "text"),
    [
        (
            7.0,
            "fifo_queue is faster: 1.43× the throughput of feed_dict (1.30 to 1.57×); "
            "no round has a good trial of both feed_dict and tf_data",
        ),
        (None, "No round has a good trial of both feed_dict and tf_data"),
    ],
)
def test_a_variant_that_shares_no_round_with_the_baseline_is_named_and_none_is_called_fastest(
    queue_ms: float | None, text: str
) -> None:
    of_ms = {"feed_dict": 10.0, "fifo_queue": queue_ms, "tf_data": 3.0, "ceiling": 2.5}
    good = {"feed_dict": (0, 1), "tf_data": (2, 3)}
    trials = [
        records.record(name, repeat, step_ms, noise=0.0)
        for repeat in range(4)
        for name, step_ms in of_ms.items()
        if step_ms is not None and repeat in good.get(name, range(4))
    ]
    session = records.session(records.scenario("feed_dict", "fifo_queue", "tf_data", repeats=1), trials)
    assert session.result("tf_data").speedup.reason == "no round has a good trial of both it and 'feed_dict'"
    assert conclude(session).startswith(f"{text}; feed_dict is ")


def test_without_the_baseline_nothing_is_compared() -> None:
    session = sessions.normal()
    missing = session.results[0].model_copy(update={"trials": 0, "samples_per_second": None})
    results: tuple[Result, ...] = (missing, *session.results[1:])
    assert conclude(session.model_copy(update={"results": results})) == (
        "tf_data was measured, but the baseline feed_dict was not."
    )


def test_an_interrupted_session_says_that_it_is_one() -> None:
    session = sessions.normal()
    cut = session.trials[-1].model_copy(update={"status": "interrupted", "reason": "by the user"})
    interrupted = session.model_copy(update={"trials": (*session.trials[:-1], cut)})
    assert conclude(interrupted) == f"Interrupted; until then: {conclude(session)}"


def test_a_session_that_ended_between_two_trials_does_not_look_whole() -> None:
    session = sessions.normal()
    ended = Precision(goal=None, budget_s=60, repeats=3, ended_by="interrupted")
    assert conclude(session.model_copy(update={"precision": ended})) == f"Interrupted; until then: {conclude(session)}"
    fewer = session.model_copy(update={"trials": session.trials[:7]})  # killed, or its disk was full
    assert conclude(fewer) == f"After 7 of 12 trials: {conclude(session)}"
    by_budget = ended.model_copy(update={"ended_by": "budget"})
    assert conclude(fewer.model_copy(update={"precision": by_budget})) == conclude(session)


def test_of_alike_verdicts_on_several_numbers_of_hosts_the_one_of_the_most_is_said() -> None:
    kinds: dict[int, HostsKind] = {2: "scales", 3: "shared-storage", 4: "shared-storage"}
    results = tuple(
        HostsResult(variant="tf_data", hosts=number, kind=kind, text=f"{number} hosts are {kind}")
        for number, kind in kinds.items()
    )
    host = Host(rank=0, size=4, name="here", launcher="slurm", wall_minus_monotonic_ns=0)
    assert of_hosts(Hosts(hosts=(host,), results=results)) == "2 hosts are scales. 4 hosts are shared-storage."


def test_long_names_are_cut_each_by_itself_also_where_one_begins_with_another() -> None:
    long = "y" * 100
    session = sessions.normal()
    names = {session.scenario.baseline.name: long, session.results[1].variant: f"{long}z"}

    def renamed(result: Result) -> Result:
        over = result.speedup.model_copy(update={"over": names.get(result.speedup.over or "", result.speedup.over)})
        return result.model_copy(update={"variant": names.get(result.variant, result.variant), "speedup": over})

    variants = [each.model_copy(update={"name": names.get(each.name, each.name)}) for each in session.scenario.variants]
    scenario = session.scenario.model_copy(update={"variants": tuple(variants)})
    results = tuple(map(renamed, session.results))
    text = conclude(session.model_copy(update={"scenario": scenario, "results": results}))
    assert text.count("y" * 79 + "…") >= 2
    assert "y" * 80 not in text
    assert "…z" not in text
