"""From sessions to plans: a merged one, workers of the service, variants of one host, and what tells none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.errors import UsageError
from pipeline_bench.hosts import merge, planning
from pipeline_bench.hosts.planning import PlanRequest, shown_counts
from pipeline_bench.model.diagnosis import AS_WRITTEN
from pipeline_bench.model.hosts import Plan, Range
from pipeline_bench.model.result import WorkCheck
from pipeline_bench.model.session import Session, load
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.model.trial import plan as trials_of
from pipeline_bench.report import plan as report
from pipeline_bench.scenario import Component, Variant
from tests.unit import records
from tests.unit.console import printed
from tests.unit.diagnosis.simulated import Machine, diagnose, python_decode
from tests.unit.hosts import test_merge
from tests.unit.hosts.test_merge import busy, on
from tests.unit.hosts.test_merge import session as of_rank
from tests.unit.sessions import pending, scenario, variant

ROOT = Path(__file__).parents[3]
COUNTS = (1, 64)
committed = cache(load)


def session_of(steps: dict[str, tuple[float, float]], *variants: Variant) -> Session:
    """A session whose steps take, by variant, so many ms, of which so many are a wait."""
    wanted = scenario(*variants, variant("ceiling", "ceiling", ceiling=None))
    trials = []
    for trial in trials_of(wanted):
        step_ms, wait_ms = steps[trial.variant.name]
        timed = step_ms * (1 + 0.01 * (trial.repeat - 1)), None if trial.variant.is_ceiling else wait_ms
        at: Any = {"index": trial.index, "start_ns": trial.index * 10**10}
        trials.append(records.record(trial.variant.name, trial.repeat, *timed, steps=300, noise=0.0, **at))
    return records.session(wanted, trials)


def reading(kind: str, variant: Variant, **changes: Any) -> Variant:
    """The variant with a source of that kind."""
    return variant.model_copy(update={"source": variant.source.model_copy(update={"kind": kind}), **changes})


@cache
def together(together_ms: float) -> Session:
    """Two ranks that take 10 ms a step alone, on one machine whose cores are not busy."""
    return merge.merge([busy(of_rank(rank, together_ms=together_ms), 40.0, 15.0) for rank in range(2)])


def working_ahead(session: Session) -> Session:
    """The session with a backend that makes the next batch meanwhile."""
    variants = [reading("tfrecord", each, backend="tf_data") for each in session.scenario.variants]
    return session.model_copy(update={"scenario": session.scenario.model_copy(update={"variants": tuple(variants)})})


@cache
def merged(together_ms: float = 25.0) -> Session:
    return working_ahead(together(together_ms))


def with_a_straggler() -> Session:
    return merge.merge([on("a", of_rank(0, together_ms=10.0)), on("b", of_rank(1, together_ms=25.0))])


def planned(session: Session, step_ms: float | None = None, **asked: Any) -> Plan:
    return planning.plan(session, PlanRequest(step_ms, asked.pop("counts", COUNTS), **asked), "here")


def shown(plan: Plan) -> list[str]:
    return printed(report.render(plan, 80)).splitlines()


def service(workers: int, **options: Any) -> Variant:
    made = variant(f"{workers} workers", "tf_data_service")
    return made.model_copy(update={"options": {"workers": workers, "dispatcher": None, **options}})


def test_storage_that_two_hosts_exhaust_limits_all_that_are_more() -> None:
    """Alone 10 ms a step without a wait, two 16 ms each: 16,000 samples a second in all."""
    made = planned(merged(16.0), counts=(1, 1000))
    (found,) = made.variants
    assert made.step_ms == pytest.approx(10, rel=0.01)
    assert found.measured_counts == (1, 2)
    assert found.own.value is None
    assert found.total.value == pytest.approx(16_000, rel=0.02)
    by_count = {row.count: row for row in found.rows}
    assert by_count[1].limit == "accelerator"
    assert by_count[2].utilization.value == pytest.approx(0.625, abs=0.02)
    assert by_count[2].basis == "measured"
    assert by_count[1000].utilization.value == pytest.approx(0.00125, rel=0.05)
    assert by_count[1000].limit == "storage"
    assert by_count[1000].basis == "extrapolated"
    assert "is the limit from 2 hosts on" in found.answer
    assert found.assumption == "Assumes that storage stays at 16.0k samples/s beyond the 2 hosts measured."
    (check,) = found.checks
    assert (check.planned_from, check.count) == (1, 2)
    assert check.planned.low <= check.measured <= (check.planned.high or 0)


@pytest.mark.parametrize(
    ("together_ms", "said"),
    [
        (
            16.0,
            (
                "The tf.data service saturates at 16.0k samples/s",
                "that the tf.data service stays at",
                "2 16.0k 0.63 (0.59 to 0.66) the tf.data service measured",
            ),
        ),
        (10.0, ("The tf.data service was not saturated with 2 hosts", "that the tf.data service gives each further")),
    ],
)
def test_hosts_of_one_tf_data_service_are_limited_by_it(together_ms: float, said: tuple[str, ...]) -> None:
    session = together(together_ms)
    served = {"backend": "tf_data_service", "options": {"dispatcher": "grpc://service:5000"}}
    variants = tuple(reading("tfrecord", each, **served) for each in session.scenario.variants)
    session = session.model_copy(update={"scenario": session.scenario.model_copy(update={"variants": variants})})
    text = " ".join(" ".join(shown(planned(session))).split())
    assert all(words in text for words in said)
    assert "storage" not in text.lower().replace("cores and storage", "")


def test_hosts_are_held_against_what_they_themselves_reach_alone() -> None:
    """Rank 2 reads slower than ranks 0 and 1, which reach 83 % of what they reach alone: 95 % of the mean of all."""
    steps_ms = {"a, 2 hosts": 12.0, "a, 3 hosts": 18.0}

    def at_pace(trial: TrialRecord, rank: int) -> TrialRecord:
        step_ms = 16.0 if (rank, trial.variant) == (2, "a, alone") else steps_ms.get(trial.variant)
        if step_ms is None or trial.steps is None:
            return trial
        start_ns = int(trial.steps.start_ns.unpack()[0])
        return trial.model_copy(update={"steps": records.steps_of([step_ms] * 300, step_ms - 9.6, start_ns)})

    ranks = []
    for rank in range(3):
        whole = on("abc"[rank], of_rank(rank, 3))
        trials = [at_pace(trial, rank) for trial in whole.trials]
        ranks.append(records.session(whole.scenario, trials, whole.environment, host=whole.host))
    session = merge.merge(ranks)
    assert session.hosts is not None
    assert session.hosts.results[0].kind == "shared-storage"
    assert session.hosts.results[0].efficiency.value == pytest.approx(10 / 12, rel=0.01)
    (found,) = planned(working_ahead(session)).variants
    assert found.total.value == pytest.approx(128_000 / 6, rel=0.02)
    assert found.trend == "flat"  # from two hosts on


def test_storage_that_gives_two_less_than_one_is_said_to_fall() -> None:
    (found,) = planned(merged(25.0)).variants
    assert found.trend == "falling"
    assert found.assumption.endswith("although it fell until there.")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            with_a_straggler,
            "the plan assumes that all hosts are alike, but they are not: one straggler: rank 1 (b) waits 62 %",
        ),
        (
            lambda: merge.merge([busy(of_rank(rank, together_ms=16.0), 97.0, 48.0) for rank in range(2)]),
            "what held up the hosts may not be storage: at 2 hosts each waits 40 %",
        ),
    ],
    ids=["straggler", "cores"],
)
def test_hosts_that_something_else_may_have_held_up_show_no_end_of_the_storage(
    build: Callable[[], Session], reason: str
) -> None:
    session = build()
    made = planned(working_ahead(session))
    (found,) = made.variants
    assert not found.total.is_known
    assert found.total.low == pytest.approx(session.hosts.results[0].samples_per_second, rel=0.02)  # type: ignore[union-attr]
    assert found.total_from is None
    assert "Storage gives at least" in found.answer
    assert found.answer.endswith("that it saturates is not shown.")
    assert "that something else held up hosts that were measured" in found.assumption
    assert found.own.low == pytest.approx(12_800, rel=0.02)
    (said,) = [note for note in made.notes if session.hosts.results[0].text in note]  # type: ignore[union-attr]
    assert said.startswith(reason)


def test_the_own_rate_of_a_host_is_not_that_of_hosts_that_something_else_held_up() -> None:
    """One whose batch is made after its step shows its own rate in every step, but not beside a straggler."""
    alone, beside = (planned(each).variants[0].own for each in (merge.merge([of_rank(0)]), with_a_straggler()))
    assert beside.value == pytest.approx(alone.value, rel=0.02)


def test_storage_that_was_never_at_its_end_is_taken_to_go_on_and_said_so() -> None:
    (found,) = planned(merged(10.0)).variants
    assert found.assumption.startswith(
        "Assumes that storage gives each further host as much as the 2 measured: it was never saturated"
    )
    last = found.rows[-1]
    assert last.count == 64
    assert last.basis == "extrapolated"
    assert last.utilization.value == pytest.approx(1, abs=0.02)
    assert last.utilization.low == pytest.approx(2 / 64, rel=0.05)


def test_a_plan_of_machines_that_differ_says_that_it_takes_them_to_be_alike() -> None:
    assert not any("alike" in note for note in planned(merged(10.0)).notes)
    made = merge.merge([on(f"node-{rank}", of_rank(rank, together_ms=10.0), cores=2 + rank) for rank in range(2)])
    assert "the plan assumes that all hosts are alike, but they are not: their machines differ" in planned(made).notes
    shared = "ranks that ran on one machine shared its cores and storage: on several, they may reach more"
    assert shared in planned(merged(10.0)).notes
    assert shared not in planned(made).notes


def test_a_faster_accelerator_than_any_input_was_tried_with_is_not_known() -> None:
    (found,) = planned(merged(10.0), 2.0).variants
    assert found.alone.utilization.value is None
    assert found.alone.utilization.low == pytest.approx(0.2, abs=0.01)
    assert found.alone.basis == "extrapolated"
    assert "not known" in found.answer
    assert "it limited no step" in found.assumption


def test_workers_are_counted_and_an_accelerator_gets_as_many_as_it_needs() -> None:
    """Each gives a batch in 40 ms, the accelerator takes one in 12."""
    steps = {"1 workers": (40.0, 28.0), "2 workers": (20.0, 8.0), "4 workers": (12.1, 0.1), "ceiling": (12.0, 0.0)}
    (found,) = planned(session_of(steps, service(1), service(2), service(4))).variants
    assert found.unit == "input worker"
    assert found.measured_counts == (1, 2, 4)
    assert found.own.value == pytest.approx(128 / 0.040, rel=0.02)
    assert found.needed == 3
    assert found.answer.startswith("an accelerator needs 3 input workers: each gives 3.20k samples/s")
    assert [row.utilization.value for row in found.rows[:3]] == pytest.approx([0.3, 0.6, 1.0], abs=0.02)
    (twice,) = planned(session_of(steps, service(1), service(2), service(4)), accelerators=2).variants
    assert twice.needed == 6


def test_variants_that_differ_in_their_name_only_are_one_number_of_workers() -> None:
    """Two workers take 20 ms a batch, and another time 24.2: 22 in the mean."""
    again = service(2).model_copy(update={"name": "2 workers again"})
    steps = {"1 workers": (40.0, 28.0), "2 workers": (20.0, 8.0), again.name: (24.2, 12.2), "ceiling": (12.0, 0.0)}
    made = planned(session_of(steps, service(1), service(2), again))
    (found,) = made.variants
    assert found.measured_counts == (1, 2)
    assert [(each.planned_from, each.count) for each in found.checks] == [(1, 2)]
    assert found.checks[0].measured == pytest.approx(128 / 0.022, rel=0.02)
    assert found.needed is not None
    assert planned(session_of(steps, service(1), service(2), again), variant=again.name).variants == made.variants


def test_workers_with_other_options_are_another_plan_and_unequal_work_is_none() -> None:
    steps = {"1 workers": (40.0, 28.0), "2 workers": (20.0, 8.0), "ceiling": (12.0, 0.0)}
    other = service(2, sharding="off")
    session = session_of(steps, service(1), other)
    assert len(planned(session).variants) == 2
    results = [
        each.model_copy(update={"work": WorkCheck(status="unequal")}) if each.variant == other.name else each
        for each in session.results
    ]
    assert len(planned(session.model_copy(update={"results": tuple(results)})).variants) == 1


def test_feed_dict_adds_its_input_to_the_step_and_prefetch_hides_it() -> None:
    """30 ms a step with 10 of model: feed_dict reads for 20 of them, tf_data for 30."""
    steps = {"feed_dict": (30.0, 20.0), "tf_data": (30.0, 20.0), "ceiling": (10.0, 0.0)}
    found = planned(session_of(steps, variant("feed_dict"), variant("tf_data", "tf_data")), 30.0)
    by_name = {each.variant: each for each in found.variants}
    assert by_name["feed_dict"].works_ahead is False
    assert by_name["feed_dict"].alone.utilization.value == pytest.approx(30 / 50, rel=0.02)
    assert by_name["tf_data"].works_ahead is True
    assert by_name["tf_data"].alone.utilization.value == pytest.approx(1, rel=0.02)
    assert found.variants[0].variant == "tf_data"


def test_what_a_storage_is_enough_for_agrees_with_where_it_limits() -> None:
    """Two hosts take 15 ms a step of feed_dict, beside 10 of model: two batches in 15 ms, enough for 1.5 steps."""
    (found,) = planned(together(15.0)).variants
    assert found.works_ahead is False
    assert found.total.value == pytest.approx(2 * 128 / 0.015, rel=0.02)
    assert found.total_feeds.value == pytest.approx(2 / 0.015 * 0.010 / 0.9, rel=0.02)


def test_an_input_of_another_batch_is_not_planned_for_this_ones_step() -> None:
    """A step of 64 samples takes 3 ms, one of 1024 takes 40: each is fed by its own input."""

    def of(name: str, samples: int) -> Variant:
        made = variant(name, "tf_data", ceiling=None if name.startswith("ceiling") else f"ceiling {name}")
        return made.model_copy(
            update={
                "source": made.source.model_copy(update={"options": {"batch_size": samples}}),
                "backend": "ceiling" if name.startswith("ceiling") else made.backend,
            }
        )

    steps = {"few": (3.0, 0.1), "many": (40.0, 0.1), "ceiling few": (2.9, 0.0), "ceiling many": (39.9, 0.0)}
    wanted = [of(name, 1024 if "many" in name else 64) for name in steps]
    session = session_of({**steps, "ceiling": (1.0, 0.0)}, *wanted)
    found = planned(session)
    assert [each.variant for each in found.variants] == ["few"]
    assert "inputs with another batch size have plans of their own: --variant many" in found.notes
    many = planned(session, variant="many")
    assert many.step_ms == pytest.approx(39.9, rel=0.01)
    assert many.variants[0].alone.utilization.low > 0.9
    assert many.notes == found.notes[:-1]


def test_two_models_beside_one_input_tell_whether_it_works_ahead() -> None:
    """The backend says yes; beside a step that is 20 ms longer the wait is the same, so that it does not."""
    first = variant("short", "tf_data")
    longer = first.model_copy(update={"name": "long", "model": Component(kind="mlp")})
    steps = {"short": (30.0, 20.0), "long": (50.0, 20.0), "ceiling": (10.0, 0.0)}
    found = planned(session_of(steps, first, longer))
    assert [each.variant for each in found.variants] == ["short"]
    assert all(each.works_ahead is False and each.works_ahead_measured for each in found.variants)


def test_an_input_whose_own_model_never_waits_is_known_by_another_that_does() -> None:
    """12 ms of input beside 10 ms of model, of which 2 are waited for, and hidden beside 30 ms."""
    fast = variant("fast", "tf_data", ceiling="ceiling")
    slow = fast.model_copy(update={"name": "slow", "model": Component(kind="mlp")})
    session = session_of({"fast": (12.0, 2.0), "slow": (30.0, 0.0), "ceiling": (10.0, 0.0)}, fast, slow)
    (alone,) = planned(session, 12.0, variant="slow").variants
    assert alone.own.is_known
    assert alone.own.value == pytest.approx(planned(session, 12.0).variants[0].own.value, rel=1e-6)


def test_an_input_of_which_nobody_says_how_it_works_is_between_both_ways() -> None:
    unheard_of = variant("mine", "somebodys_own")
    found = planned(session_of({"mine": (30.0, 20.0), "ceiling": (10.0, 0.0)}, unheard_of), 30.0).variants[0]
    assert found.works_ahead is None
    assert found.alone.utilization.value is None
    assert found.alone.utilization.low <= 30 / 50 <= 1 <= (found.alone.utilization.high or 0) + 0.01
    assert "two models with different step times" in found.assumption


def test_what_tells_no_plan_is_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match="no measured rate of an input"):
        planned(pending())
    session = session_of({"tf_data": (30.0, 20.0), "ceiling": (10.0, 0.0)}, variant("tf_data", "tf_data"))
    with pytest.raises(UsageError, match="no input of that name") as caught:
        planned(session, variant="tf_dat")
    assert caught.value.hint.startswith("Did you mean 'tf_data'?")
    drained = variant("tf_data", "tf_data").model_copy(update={"loop": Component(kind="drain")})
    session = session_of({"tf_data": (30.0, 30.0), "ceiling": (10.0, 0.0)}, drained)
    with pytest.raises(UsageError, match="no step to plan for"):
        planned(session)
    assert planned(session, 30.0).variants[0].alone.utilization.value == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(
    ("asked", "measured", "first", "expected"),
    [
        ((1, 64), (1, 2), None, [1, 2, 4, 8, 16, 32, 64]),
        ((1, 1000), (1, 2, 3, 4), 3, [1, 2, 3, 4, 16, 64, 256, 1000]),
        ((8, 8), (1, 2), None, [8]),
        ((5, 9), (1, 7), 7, [5, 7, 8, 9]),
    ],
)
def test_the_ends_and_what_was_measured_are_shown_and_powers_of_two_between(
    asked: tuple[int, int], measured: tuple[int, ...], first: int | None, expected: list[int]
) -> None:
    begins = None if first is None else Range(value=first, low=first, high=first)
    assert shown_counts(asked, measured, begins) == expected


SYSTEMS = sorted(f"docs/systems/{file.parent.name}" for file in ROOT.glob("docs/systems/*/session.json"))


@pytest.mark.parametrize(
    ("folder", "step_ms"),
    [*zip(["reports/example", "docs/walkthrough", *SYSTEMS], cycle((5.0, 0.01, 3e4)), strict=False)],
)
def test_a_plan_of_every_committed_session_is_one_screen(folder: str, step_ms: float) -> None:
    lines = shown(planned(committed(ROOT / folder), step_ms, counts=(1, 1_000_000), accelerators=8))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_a_session_that_lacks_the_result_of_a_variant_is_planned_without_it() -> None:
    whole = committed(ROOT / "reports" / "example")
    renamed = tuple(
        each.model_copy(update={"variant": f"{each.variant} of another"}) if number == 0 else each
        for number, each in enumerate(whole.results)
    )
    assert shown(planned(whole.model_copy(update={"results": renamed}), 5.0, counts=(1, 1000)))


def test_the_screen_says_answer_table_assumption_and_check() -> None:
    text = "\n".join(shown(planned(merged())))
    assert "accelerators of 10.0 ms a step, as measured (128 samples: 12.8k/s)" in text
    assert "→ a: one host" in text
    assert "extrapolated" in text
    assert "Check: planned from 1 host alone, 2 give" in text
    assert "AU: share of the time" in text


@pytest.mark.parametrize(("kind", "is_shared"), [("synthetic", False), ("memory", False), ("tfrecord", True)])
def test_hosts_whose_input_reads_no_storage_add_up(kind: str, is_shared: bool) -> None:
    session = session_of({"tf_data": (10.0, 6.0), "ceiling": (4.0, 0.0)}, variant("tf_data", "tf_data"))
    variants = [reading(kind, each) for each in session.scenario.variants]
    session = session.model_copy(update={"scenario": session.scenario.model_copy(update={"variants": tuple(variants)})})
    (made,) = planned(session, counts=(1, 1000)).variants
    assert made.shared is is_shared
    assert (made.rows[-1].utilization.low < 0.5 * made.rows[0].utilization.low) is is_shared
    assert ("storage" in made.assumption) is is_shared


def test_an_input_that_is_enough_beside_a_host_that_is_slow_itself_says_both() -> None:
    session = session_of({"tf_data": (10.0, 6.0), "ceiling": (1.0, 0.0)}, variant("tf_data", "tf_data"))
    (made,) = planned(session, 12.0).variants
    assert made.alone.limit == "host"
    assert made.answer.startswith("one host's input is enough for 1.3")
    assert f"{made.alone.utilization.value:.2f}" in made.answer


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_a_narrow_terminal_has_fewer_columns_and_every_figure_whole(width: int) -> None:
    made = planned(merged(16.0), counts=(1, 1000))
    lines = printed(report.render(made, width), width).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("hosts  "))
    table = lines[head : head + 2 + len(made.variants[0].rows)]
    assert not any("…" in line for line in table)
    assert [line.split()[:2] for line in table[2:4]] == [["1", "12.8k"], ["2", "16.0k"]]
    assert ("limited by" in table[0]) is (width >= 60)


def test_where_a_rank_is_lost_the_input_of_the_other_can_be_planned() -> None:
    made = planned(merge.merge([of_rank(0)]))
    assert made.variants[0].variant == "a"
    assert made.variants[0].measured_counts == (1,)


@pytest.mark.parametrize("name", ["a · b", "a, alone · b", "a · rank 0"])
def test_a_variant_whose_name_looks_like_a_ranks_can_be_planned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = test_merge.BASE.variants
    variants = (first, first.model_copy(update={"name": name}), *others)
    monkeypatch.setattr(test_merge, "BASE", test_merge.BASE.model_copy(update={"variants": variants}))
    ranks = [busy(of_rank.__wrapped__(rank, together_ms=10.0), 40.0, 15.0) for rank in range(2)]
    (found,) = planned(working_ahead(merge.merge(ranks)), variant=name).variants
    assert found.variant == name
    assert found.measured_counts == (1, 2)
    assert found.own.low == pytest.approx(12_800, rel=0.02)


def test_unequal_work_of_merged_ranks_cannot_be_planned_from() -> None:
    bad = WorkCheck(status="unequal", text="it repeated 2,672 of 3,840 samples")
    spoilt = [
        whole.model_copy(update={"results": tuple(each.model_copy(update={"work": bad}) for each in whole.results)})
        for whole in (of_rank(0, together_ms=10.0), of_rank(1, together_ms=10.0))
    ]
    with pytest.raises(UsageError, match="cannot be planned from"):
        planned(merge.merge(spoilt))


def test_of_a_diagnosis_only_what_is_proven_is_planned_with_and_the_pipeline_as_written_comes_first() -> None:
    slower = Machine(python_decode(20.0), lambda edits: 30.0 if edits else 20.0, ceiling_ms=5.0)
    session = diagnose(slower, budget_s=40)
    assert session.diagnosis is not None
    assert session.diagnosis.attempts
    assert session.diagnosis.proposal is None
    found = planning.plan(session, PlanRequest(5.0, COUNTS), "here")
    assert [each.variant for each in found.variants] == [AS_WRITTEN]
