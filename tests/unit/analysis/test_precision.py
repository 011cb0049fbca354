"""Repeats until the speed-ups are known well enough: when another round begins, when the adding ends, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_bench.analysis import precision, stats
from pipeline_bench.analysis.goal import until_decided
from pipeline_bench.analysis.results import summarise
from pipeline_bench.analysis.speedups import unless_unequal
from pipeline_bench.analysis.thresholds import CERTAIN_CLAIM, RATIO_SCATTER, SAME_JOB_SCATTER, TIE
from pipeline_bench.errors import UsageError
from pipeline_bench.model.result import Doubt, Precision, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Track, Trial, plan
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.unit import sessions
from tests.unit.analysis.test_measured import tracks
from tests.unit.records import of_ceilings, record, scenario

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
StepMs = Callable[[Trial], float | None]
"""What a trial measures, without any noise of its own; None where it fails."""

S = 1_000_000_000


def new(goal: float = 0.02, budget_s: float = 600, of: Scenario | None = None) -> Session:
    asked_for = Precision(goal=goal, budget_s=budget_s)
    return sessions.pending().model_copy(
        update={"scenario": of or scenario("feed_dict", "tf_data"), "trials": (), "results": (), "precision": asked_for}
    )


def after(
    session: Session,
    trial: Trial,
    step_ms: float | None,
    trial_s: float = 1.0,
    steps: int = 40,
    samples: tuple[Track, ...] = (),
) -> Session:
    """The session with one more trial, as the runner makes it."""
    found = record(trial.variant.name, trial.repeat, step_ms or 1.0, steps=steps, noise=0.0, samples=samples)
    start_ns = session.trials[-1].ended_ns if session.trials else 5 * S
    told = {
        "index": trial.index,
        "status": "ok" if step_ms is not None else "failed",
        "reason": None if step_ms is not None else "planted",
        "started_ns": start_ns,
        "ended_ns": start_ns + round(trial_s * S),
    }
    trials = (*session.trials, found.model_copy(update=told))
    session = session.model_copy(update={"trials": trials})
    if session.precision is None or precision.rounds(session) > trial.repeat:  # results count between rounds only
        session = session.model_copy(update={"results": summarise(session.scenario, trials, 2)})
    return precision.updated(session)


def run(session: Session, step_ms: StepMs, trial_s: float = 1.0, most: int = 400, steps: int = 40) -> Session:
    """Run trials until there is none to run, as the runner does."""
    while (trial := precision.next_trial(session)) is not None:
        assert len(session.trials) < most, "this goes on for ever"
        session = after(session, trial, step_ms(trial), trial_s, steps)
    return session


def ended(session: Session) -> Precision:
    assert session.precision is not None
    return session.precision


def spread(share: float, variant: str = "tf_data") -> StepMs:
    """Steps of 10 ms; those of one variant by turns that share longer and shorter."""

    def step_ms(trial: Trial) -> float:
        return 10.0 * (1 + share * (-1) ** trial.repeat if trial.variant.name == variant else 1)

    return step_ms


@cache
def precise() -> Session:
    """Ended after eight rounds."""
    return run(new(), spread(0.01))


def but(step_ms: StepMs, *failing: str, from_repeat: int = 0) -> StepMs:
    """The same, with variants that fail."""
    return lambda trial: None if trial.variant.name in failing and trial.repeat >= from_repeat else step_ms(trial)


def test_a_scenario_of_a_ceiling_alone_has_nothing_to_narrow() -> None:
    with pytest.raises(UsageError, match="has only ceiling"):
        precision.check(scenario("ceiling"))
    precision.check(scenario("feed_dict"))


def on_emulated(*step_ms: float) -> Scenario:
    """A variant for each emulated device that is busy so long a step."""
    entries = [
        {"name": f"{ms:g} ms", "backend": "tf_data", "model": {"kind": "emulated", "step_ms": ms}} for ms in step_ms
    ]
    return resolve({"name": "test", "run": {"steps": 100, "repeats": 3}, "variants": entries})


def test_variants_on_emulated_devices_that_all_differ_from_the_baselines_have_nothing_to_narrow() -> None:
    with pytest.raises(UsageError, match="no other variant on the device of 2 ms"):
        precision.check(on_emulated(2, 8, 30))
    precision.check(on_emulated(2))


def test_a_variant_that_joins_within_a_round_has_its_trial_of_it() -> None:
    two, three = (scenario(*names) for names in (["feed_dict", "tf_data"], ["feed_dict", "tf_data", "fifo_queue"]))
    session = new(of=two)
    for _ in range(len(two.variants) + 1):  # the first round, which is the scenario's, and a trial of the second
        trial = precision.next_trial(session)
        assert trial is not None
        session = after(session, trial, 10.0)
    session = session.model_copy(update={"scenario": three})
    while len({each.variant for each in session.trials if each.repeat == 1}) < len(three.variants):
        trial = precision.next_trial(session)
        assert trial is not None
        assert trial.variant.name not in {each.variant for each in session.trials if each.repeat == trial.repeat}
        assert trial.index == len(session.trials)
        session = after(session, trial, 10.0)


@pytest.mark.parametrize("done", [0, 5, 9])
def test_without_a_goal_the_trials_are_those_of_the_plan(done: int) -> None:
    session = new().model_copy(update={"precision": None})
    planned = plan(session.scenario)
    for trial in planned[:done]:
        assert precision.next_trial(session) == trial
        session = after(session, trial, 10.0)
    assert precision.next_trial(session) == (planned[done] if done < len(planned) else None)
    assert session.precision is None


def test_rounds_are_whole_and_to_and_fro_through_the_scenario_with_the_ceilings() -> None:
    found = run(new(goal=0.001, budget_s=17.5), spread(0.2))
    order = [(trial.variant, trial.repeat) for trial in found.trials]
    names = ["feed_dict", "tf_data", "ceiling"]
    assert order == [(name, repeat) for repeat in range(5) for name in (names[::-1] if repeat % 2 else names)]
    assert [trial.index for trial in found.trials] == list(range(15))


def test_a_variant_with_fewer_repeats_takes_part_in_every_round_that_is_added() -> None:
    wide = scenario("feed_dict", "tf_data", repeats=3)
    first = wide.variants[0]
    fewer = first.model_copy(update={"run": first.run.model_copy(update={"repeats": 1})})
    found = run(new(0.02, 12.9, wide.model_copy(update={"variants": (fewer, *wide.variants[1:])})), spread(0.2))
    assert [trial.repeat for trial in found.trials if trial.variant == "feed_dict"] == [0, 3]


def test_precision_is_reached_when_every_speedup_is_that_narrow() -> None:
    found = ended(precise())
    assert (found.ended_by, found.repeats) == ("precision", 8)
    assert found.text == "precision of 2 % reached after 8 repeats: tf_data's speed-up is known within ±0.9 %"


def test_a_few_trials_that_look_alike_by_chance_do_not_end_it() -> None:
    session = new(goal=0.02)
    for _ in range(7 * 3):
        trial = precision.next_trial(session)
        assert trial is not None
        session = after(session, trial, 10.0)
    assert ended(session).ended_by is None
    assert precision.next_trial(session) is not None


def test_the_scenarios_own_repeats_are_never_cut_short_by_the_precision() -> None:
    of = scenario("feed_dict", "tf_data", repeats=11)
    assert ended(run(new(goal=0.5, of=of), spread(0.001))).repeats == 11


def test_the_widest_speedup_decides() -> None:
    three = scenario("feed_dict", "fifo_queue", "tf_data")
    alone = ended(run(new(goal=0.025), spread(0.03)))
    beside_a_narrow_one = ended(run(new(goal=0.025, of=three), spread(0.03)))
    assert beside_a_narrow_one.ended_by == "precision"
    assert beside_a_narrow_one.repeats == alone.repeats > 8
    assert "tf_data's speed-up is known within ±" in beside_a_narrow_one.text
    assert beside_a_narrow_one.text.endswith("the others are known better")


def test_a_single_variant_is_narrowed_against_its_ceiling() -> None:
    found = ended(run(new(goal=0.02, of=scenario("feed_dict")), spread(0.01, "ceiling")))
    assert found.ended_by == "precision"
    assert "feed_dict's accelerator utilization is known within ±" in found.text


def test_an_interval_that_is_cut_off_at_the_ceiling_reaches_as_far_up_as_down() -> None:
    found = run(new(goal=0.001, budget_s=30, of=scenario("feed_dict")), spread(0.02, "ceiling"))
    utilization = found.result("feed_dict").accelerator_utilization
    assert utilization.ci95 is not None
    assert utilization.value is not None
    assert utilization.ci95[1] == 1.0
    below = utilization.value - utilization.ci95[0]
    assert precision.ratios(found)[0].half_width == pytest.approx(below / utilization.value, rel=0.1)


@pytest.mark.parametrize(
    ("step_ms", "budget_s", "loop", "steps"),
    [
        (100.0, 60.0, {}, 60),  # 4 trials of 6 s
        (1000.0, 60.0, {}, 20),
        (1000.0, 90.0, {}, 23),
        (1000.0, 200.0, {}, 60),
        (1000.0, 60.0, {"kind": "while_loop", "steps_per_call": 10}, 20),
        (1000.0, 60.0, {"kind": "while_loop", "steps_per_call": 60}, 60),
    ],
)
def test_trials_of_long_steps_become_shorter_where_two_rounds_would_take_much_longer_than_the_budget(
    step_ms: float, budget_s: float, loop: dict[str, object], steps: int
) -> None:
    entry = {"name": "tf_data", "backend": "tf_data", **({"loop": loop} if loop else {})}
    of = resolve({"name": "test", "run": {"steps": 60}, "variants": [entry]})
    begun = new(budget_s=budget_s, of=of).model_copy(update={"precision": Precision(goal=None, budget_s=budget_s)})
    assert precision.with_shorter_trials(begun) is begun, "nothing is known yet"
    trial = precision.next_trial(begun)
    assert trial is not None
    first = after(begun, trial, step_ms, trial_s=60 * step_ms / 1e3)
    found = precision.with_shorter_trials(first)
    assert {variant.run.steps for variant in found.scenario.variants} == {steps}
    assert len(found.notes) == (steps < 60)
    assert precision.with_shorter_trials(found) == found
    planned = first.model_copy(update={"precision": None})
    assert precision.with_shorter_trials(planned) is planned


def test_one_variant_of_long_steps_beside_short_ones_shortens_no_trial() -> None:
    """Two rounds of 60 steps: of 0.6, 0.01 and 0.01 s, and of a ceiling that is not measured yet: 99 s."""
    begun = new(of=scenario("feed_dict", "tf_data", "fifo_queue", steps=60))
    begun = session = begun.model_copy(update={"precision": Precision(goal=None, budget_s=60)})
    for step_ms in (600.0, 10.0, 10.0):
        trial = precision.next_trial(session)
        assert trial is not None
        session = after(session, trial, step_ms)
    assert precision.with_shorter_trials(session) is session
    alone = after(begun, next(iter(plan(begun.scenario))), 600.0)
    assert precision.with_shorter_trials(alone) is not alone, "the others may be as long"


def test_a_utilization_that_cannot_be_after_the_first_repeats_is_narrowed_on() -> None:
    """A variant that runs at its ceiling, whose first trials came out 15 % quicker than the ceiling's."""

    def lucky(trial: Trial) -> float:
        return 8.5 if trial.variant.name == "tf_data" and trial.repeat < 3 else 10.0

    one = new(goal=0.02, budget_s=120, of=scenario("tf_data"))
    session = one
    for _ in range(3 * 2):
        trial = precision.next_trial(session)
        assert trial is not None
        session = after(session, trial, lucky(trial))
    assert session.result("tf_data").accelerator_utilization.impossible
    assert precision.ratios(session)[0].half_width == math.inf
    assert ended(session).text == "not ended after 3 repeats: tf_data's accelerator utilization is not known yet"
    found = run(one, lucky)
    assert (ended(found).ended_by, ended(found).repeats > 3) == ("precision", True)


def test_a_variant_without_a_speedup_is_left_out_for_the_reason_that_it_has_none() -> None:
    by_turns = run(new(), lambda trial: None if trial.repeat % 2 == (trial.variant.name == "tf_data") else 10.0)
    assert ended(by_turns).text.endswith("; tf_data is left out: no round has a good trial of both it and 'feed_dict'")
    unequal = WorkCheck(status="unequal", text="it lost 3")
    session = sessions.with_result(precise(), "feed_dict", work=unequal)
    results = unless_unequal(session.scenario, session.results)
    assert ended(precision.updated(session.model_copy(update={"results": results}))).text.endswith(
        "; tf_data is left out: the work of 'feed_dict' was not equal"
    )


@pytest.mark.parametrize(
    ("names", "failing", "missing", "why"),
    [
        (["feed_dict"], "ceiling", "accelerator utilization", "its ceiling, 'ceiling', was not measured beside it"),
        (["feed_dict", "tf_data"], "feed_dict", "speed-up", "'feed_dict' was not measured"),
    ],
)
def test_without_what_a_ratio_is_over_there_is_nothing_to_narrow(
    names: list[str], failing: str, missing: str, why: str
) -> None:
    found = ended(run(new(of=scenario(*names)), but(spread(0.01), failing)))
    assert (found.ended_by, found.repeats) == (None, 3)
    assert found.text == (
        f"there is no {missing} to measure after 3 repeats, so no more repeats were added; "
        f"{names[-1]} is left out: {why}"
    )


def test_the_first_two_rounds_run_however_small_the_budget() -> None:
    found = run(new(budget_s=0.1), spread(0.1))
    assert len(found.trials) == 6
    assert ended(found).ended_by == "budget"
    assert ended(found).text.startswith(
        "precision of 2 % not reached, the budget of 0.1 s was spent after 2 repeats: tf_data's speed-up is known"
    )


@pytest.mark.parametrize(("budget_s", "rounds"), [(8.9, 2), (9, 3), (11.9, 3), (12, 4), (14, 4)])
def test_a_round_begins_only_if_it_should_end_within_the_budget(budget_s: float, rounds: int) -> None:
    found = ended(run(new(budget_s=budget_s), spread(0.1)))  # three trials of 1 s a round
    assert (found.ended_by, found.repeats) == ("budget", rounds)


@settings(max_examples=10)  # each trial looks at all that were before it
@given(
    st.floats(0.001, 0.5),
    st.floats(0.5, 10),
    st.floats(0.2, 3),
    st.lists(st.one_of(st.none(), st.floats(1, 20)), min_size=1, max_size=30),
)
def test_it_ends_within_the_budget_whatever_is_measured(
    goal: float, budget_s: float, trial_s: float, step_ms: Sequence[float | None]
) -> None:
    found = run(new(goal, budget_s), lambda trial: step_ms[trial.index % len(step_ms)], trial_s, most=3000)
    assert found.elapsed_s <= budget_s * (1 + 1e-9) or ended(found).repeats <= 3
    assert ended(found).repeats >= 2
    assert ended(found).text
    narrow = precision.widest(found)
    if ended(found).ended_by == "precision":
        assert narrow is not None
        assert narrow.half_width <= goal


@pytest.mark.slow
@settings(max_examples=3)
@given(st.floats(0.3, 3), st.floats(0.001, 0.1))
def test_how_large_the_difference_is_does_not_decide_when_it_ends(factor: float, share: float) -> None:
    """Adding trials until an interval leaves 1 would find a difference where there is none."""
    noisy = spread(share)

    def slower(trial: Trial) -> float | None:
        step_ms = noisy(trial)
        return step_ms and step_ms * (factor if trial.variant.name == "tf_data" else 1)

    plain, scaled = (ended(run(new(0.021, 36), step_ms)) for step_ms in (noisy, slower))
    assert (plain.ended_by, plain.repeats) == (scaled.ended_by, scaled.repeats)


def test_a_variant_that_never_works_is_left_out_and_named() -> None:
    three = scenario("feed_dict", "fifo_queue", "tf_data")
    found = ended(run(new(goal=0.02, of=three), but(spread(0.01), "fifo_queue")))
    assert found.ended_by == "precision"
    assert found.text.endswith("fifo_queue is left out: it has no good trial")


def test_a_trial_that_fails_in_an_added_round_is_counted_among_those_that_ran() -> None:
    noisy = spread(0.01)
    found = run(new(goal=0.02), lambda t: None if (t.variant.name, t.repeat) == ("tf_data", 5) else noisy(t))
    assert found.result("tf_data").status == "partial"
    assert (found.result("tf_data").reason or "").startswith("8 of 9 trials are in these figures; failed: planted")
    assert found.result("feed_dict").status == "ok"


def test_a_variant_that_worked_only_once_has_no_interval_and_the_budget_ends_it() -> None:
    found = ended(run(new(budget_s=40), but(spread(0.01), "tf_data", from_repeat=1)))
    assert found.ended_by == "budget"
    assert "tf_data's speed-up is not known yet" in found.text


def test_a_budget_that_ends_before_the_precision_counts_says_so() -> None:
    found = ended(run(new(goal=0.1, budget_s=12), spread(0.001)))
    assert found.text == (
        "precision of 10 % not reached, the budget of 12 s was spent after 4 repeats: tf_data's speed-up is known "
        "within ±4.2 %, but the precision counts only from 8 repeats on"
    )


def test_an_interrupted_round_does_not_count() -> None:
    session = new()
    for _ in range(8):
        trial = precision.next_trial(session)
        assert trial is not None
        session = after(session, trial, spread(0.1)(trial))
    found = ended(precision.updated(session, interrupted=True))
    assert (found.ended_by, found.repeats) == ("interrupted", 2)
    assert found.text.startswith("interrupted after 2 repeats: tf_data's speed-up is known within ±")


def test_an_interrupt_after_the_last_trial_takes_nothing_back() -> None:
    found = precision.updated(precise(), interrupted=True)
    assert ended(found).ended_by == "precision"


def test_an_interval_that_reaches_0_is_infinitely_wide() -> None:
    """The mean of a share has an interval by its own scale; that of a ratio by the logarithm."""
    of = scenario("feed_dict")
    found = run(new(budget_s=4, of=of), but(spread(0.9, "ceiling")))
    assert precision.ratios(found)[0].half_width == math.inf


def stopped(trials: Floats, goal: float) -> tuple[float, float]:
    """The interval at the end of a comparison whose trials have these logarithms of a ratio."""
    for count in range(precision.JUDGED_FROM_REPEATS, len(trials)):
        low, high = stats.believe(trials[:count].tolist(), RATIO_SCATTER, trimmed=True).interval()
        if (high - low) / 2 <= goal:
            break
    return low, high


def heavy_tailed(generator: np.random.Generator, count: int) -> Floats:
    """The difference of two trials that are each slow now and then."""
    return (generator.lognormal(0, 0.8, count) - generator.lognormal(0, 0.8, count)) / 1.75


def normal(generator: np.random.Generator, count: int) -> Floats:
    return generator.standard_normal(count)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [normal, heavy_tailed])
@pytest.mark.parametrize("goal", [1.24, 0.72, 0.47], ids=["5 trials", "10 trials", "20 trials"])
def test_stopping_where_it_is_narrow_leaves_the_interval_true(
    draw: Callable[[np.random.Generator, int], Floats], goal: float
) -> None:
    """Of trials with a standard deviation of 1 and no difference, so that what is missed is a false one."""
    generator = np.random.default_rng(11)
    intervals = [stopped(draw(generator, 60), goal) for _ in range(400)]
    hits = sum(low <= 0 <= high for low, high in intervals)
    assert hits / len(intervals) >= 0.87  # of thousands 0.90 at the least; 400 know it to 0.015


# --- rounds until everything is decided


def undecided(budget_s: float = 600.0) -> Session:
    session = new(of=scenario("feed_dict", "tf_data", repeats=1))
    return session.model_copy(update={"precision": until_decided(budget_s)})


@cache
def spent() -> Session:
    """A budget's end that left everything open."""
    return run(undecided(budget_s=30.0), spread(0.4))


def test_the_looks_are_few_and_ever_further_apart() -> None:
    looks = [rounds for rounds in range(1, 60) if precision.is_look(rounds, 1)]
    assert looks[:4] == [6, 9, 13, 19]
    gaps = np.diff(looks)
    assert list(gaps) == sorted(gaps)


@given(fewest=st.integers(1, 40))
def test_the_first_look_is_after_the_rounds_that_a_scenario_asks_for(fewest: int) -> None:
    assert precision.is_look(max(6, fewest), fewest)
    assert not any(precision.is_look(rounds, fewest) for rounds in range(max(6, fewest)))


def test_steady_variants_tie_at_the_first_look() -> None:
    found = run(undecided(), spread(0.001))
    assert (ended(found).ended_by, ended(found).repeats, ended(found).text) == ("decided", 6, "")
    assert not precision.open_questions(found)


def test_rounds_go_on_while_a_verdict_lacks_steps_and_the_budget_has_room() -> None:
    """Of 4 steps a trial 3 count, and a verdict needs 30: after 6 rounds there are 18, after 9 there are 27."""
    found = run(undecided(), spread(0.001), steps=4)
    assert (ended(found).ended_by, ended(found).repeats, ended(found).text) == ("decided", 13, "")
    cut = ended(run(undecided(budget_s=20.0), spread(0.001), steps=4))
    assert (
        cut.text
        == "not decided after 6 rounds, with the budget of 20 s spent: the limit of feed_dict, the limit of tf_data"
    )


def test_rounds_that_other_work_spoilt_are_in_no_figure_and_others_run_in_their_place() -> None:
    """Beside the first five, others take the CPU, and each step takes three times as long."""
    session = undecided()
    while (trial := precision.next_trial(session)) is not None:
        is_spoilt = trial.repeat < 5
        step_ms = 10.0 * (3 if is_spoilt else 1)
        took_ms = 40 * step_ms
        session = after(session, trial, step_ms, samples=tracks(took_ms, (-1.0, took_ms + 100) if is_spoilt else None))
    assert ended(session).ended_by == "decided"
    assert ended(session).repeats > ended(run(undecided(), spread(0.0))).repeats
    for result in session.results:
        assert result.step_ms.mean == pytest.approx(10.0)


def test_of_ceilings_alone_the_ratios_are_asked_for() -> None:
    """Nothing of them was, so that a comparison ended at the first look whatever it had found."""
    asked = until_decided(30.0)
    session = new(of=of_ceilings("1 thread", "2 threads", repeats=1)).model_copy(update={"precision": asked})
    found = run(session, spread(0.4, "2 threads"))
    assert (ended(found).ended_by, ended(found).repeats) == ("budget", 15)
    assert precision.open_words(found) in ("1 thread against 2 threads", "2 threads against 1 thread")
    steady = run(session, spread(0.001, "2 threads"))
    assert (ended(steady).ended_by, ended(steady).repeats) == ("decided", 6)


def test_what_cannot_be_told_ends_with_the_budget_and_is_named() -> None:
    found = spent()
    assert ended(found).ended_by == "budget"
    assert ("tf_data", "feed_dict") in precision.open_questions(found)
    assert "the budget of 30 s spent" in ended(found).text
    assert "tf_data against feed_dict" in ended(found).text
    named = [words.split(" against ") for words in precision.open_words(found).split(", ")]
    pairs = [frozenset(words) for words in named]
    assert len(pairs) == len(set(pairs)), "each pair once, whichever of the two is the fastest"


@pytest.mark.parametrize("scatter", [0.03, 0.1, 0.3])
def test_equal_variants_are_seldom_said_to_differ_by_a_run_that_goes_on_until_it_is_decided(scatter: float) -> None:
    """The rule of `speedups` and the looks together, on rounds of which one in ten lies far out."""
    rng = np.random.default_rng(3)
    differ = 0
    for _ in range(300):
        logs = scatter * rng.standard_normal(28) * np.where(rng.random(28) < 0.1, 5.0, 1.0)
        for rounds in (rounds for rounds in range(1, 29) if precision.is_look(rounds, 1)):
            known = stats.believe(logs[:rounds].tolist(), RATIO_SCATTER, trimmed=True)
            found = known.widened(SAME_JOB_SCATTER)
            low, high = found.interval(CERTAIN_CLAIM)
            if not low <= 0 <= high:
                differ += 1
                break
            if max(map(abs, found.interval())) <= math.log(TIE):
                break
    assert differ / 300 <= 0.03


def test_open_questions_of_names_with_commas_are_apart() -> None:
    session = spent()
    doubt = Doubt(figure="input wait", low=0.1, high=0.3, rounds=2)
    results = [
        result.model_copy(
            update={"variant": f"{result.variant}, 1", "verdict": result.verdict.model_copy(update={"doubt": doubt})}
        )
        for result in session.results
    ]
    words = precision.open_words(session.model_copy(update={"results": tuple(results)}))
    assert words.startswith("the limit of feed_dict, 1; ")


def test_of_many_open_questions_the_first_are_named_and_the_others_counted() -> None:
    session = spent()
    doubt = Doubt(figure="input wait", low=0.1, high=0.3, rounds=2)
    results = [
        result.model_copy(update={"verdict": result.verdict.model_copy(update={"doubt": doubt})})
        for result in session.results
    ]
    session = session.model_copy(update={"results": tuple(results)})
    whole = precision.open_words(session).split(", ")
    assert len(whole) > 3
    assert precision.open_words(session, len(whole) - 1) == ", ".join(whole), "in place of one more, it is named"
    assert precision.open_words(session, 2) == f"{', '.join(whole[:2])} and {len(whole) - 2} more"
