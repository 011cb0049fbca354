"""The lessons that compare: what they say of any session, told from one whose trials have the times of the test."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_bench.lessons.figures import Comparison
from pipeline_bench.lessons.reading import Ask, Compare, Lesson, Played, Say, Tell, find, lessons
from pipeline_bench.model.events import Device, PlacedOp, Placement
from pipeline_bench.model.result import Disturbance
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.model.trial import plan
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.files import shipped
from pipeline_bench.scenario.load import load
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records
from tests.unit.sessions import CPU, GPU

NAMES = ("feed_dict_or_queue", "elements_of_a_queue", "tf_data_and_prefetch", "threads", "placement", "replication")
STEPS, WARMUP = 60, 10
CEILING_MS, BASE_MS = 4.0, 10.0
CLAIM = re.compile(r"`([^`]+)` is (?:probably )?(faster|slower): ")


def compares(lesson: Lesson) -> list[Compare]:
    return [part for part in lesson.parts if isinstance(part, Compare)]


def scenario_of(part: Compare) -> Scenario:
    return resolve(part.document)


def session_of(
    scenario: Scenario,
    step_ms: Mapping[str, Sequence[float] | None],
    environment: Environment = CPU,
    disturbances: tuple[Disturbance, ...] = (),
    placed: Mapping[str, Placement] | None = None,
) -> Session:
    """Trials of these step times, one a repeat; None for a variant whose trials failed. Results as of any session."""
    trials = []
    for trial in plan(scenario):
        name, times = trial.variant.name, step_ms[trial.variant.name]
        kind = "emulated" if trial.variant.model.kind == "emulated" else "cpu"
        took_ms = times[trial.repeat % len(times)] if times else 1.0
        wait_ms = None if trial.variant.is_ceiling else took_ms / 2
        changes: dict[str, Any] = {
            "warmup_steps": WARMUP,
            "device": Device(kind=kind, name="a device"),
            "placement": (placed or {}).get(name) if trial.repeat == 0 else None,
        }
        if times is None:
            changes = {"status": "failed", "reason": "the test had it fail", "steps": None}
        steps_ms = [took_ms] * STEPS
        trials.append(records.record(name, trial.repeat, steps_ms, wait_ms, **{"index": trial.index, **changes}))
    return records.session(scenario, trials, environment, disturbances=disturbances)


def times(step_ms: float, spread: float = 0.005) -> list[float]:
    """Of three trials, apart by that share of the middle one."""
    return [step_ms * (1 - spread), step_ms, step_ms * (1 + spread)]


def played_with(lesson: Lesson, run: Callable[[Scenario], Session]) -> Played:
    result = Played()
    for part in compares(lesson):
        result = result.with_result(part.key, run(scenario_of(part)))
    return result


def played_on(name: str, ratio: float, spread: float = 0.005, **session: Any) -> Played:
    """Every variant that is not the baseline has `ratio` times its throughput."""

    def run(scenario: Scenario) -> Session:
        step_ms = {each.name: times(BASE_MS / ratio, spread) for each in scenario.variants}
        step_ms |= {each.name: times(CEILING_MS) for each in scenario.variants if each.name.startswith("ceiling")}
        step_ms[scenario.baseline.name] = times(BASE_MS, spread)[::-1]
        return session_of(scenario, step_ms, **session)

    return played_with(find(name), run)


@cache
def played(name: str, ratio: float, spread: float = 0.005) -> Played:
    return played_on(name, ratio, spread)


def session_in(played: Played, key: str) -> Session:
    session = played.results[key]
    assert isinstance(session, Session)
    return session


def told(lesson: Lesson, played: Played) -> str:
    return "\n\n".join(part.text(played) for part in lesson.parts if isinstance(part, Tell))


def answers(lesson: Lesson, *numbers: float) -> Iterator[tuple[str, str | float]]:
    """Every question's key with each answer that is offered, or each number: without any, the least and the largest."""
    for part in lesson.parts:
        if isinstance(part, Ask):
            yield from ((part.key, answer) for answer in [*part.lettered.values()] or numbers or (part.low, part.high))


def claims(text: str) -> set[tuple[str, str]]:
    return set(CLAIM.findall(text))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("ratio", "spread", "claim", "is_none", "is_wide"),
    [
        (1.6, 0.005, {"faster"}, False, False),
        (0.6, 0.005, {"slower"}, False, False),
        (1.0, 0.005, set(), True, False),
        (1.2, 0.4, set(), False, True),
    ],
)
def test_a_difference_is_told_as_it_is(
    name: str, ratio: float, spread: float, claim: set[str], is_none: bool, is_wide: bool
) -> None:
    text = told(find(name), played(name, ratio, spread))
    assert {found for _, found in claims(text)} == claim
    assert ("No difference between" in text) == is_none
    assert ("differ too much" in text) == is_wide


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_variant_is_told_with_its_reason_and_without_a_claim(name: str) -> None:
    def run(scenario: Scenario) -> Session:
        own = {each.name: None for each in scenario.variants}
        return session_of(scenario, {**own, scenario.baseline.name: times(BASE_MS)})

    text = told(find(name), played_with(find(name), run))
    assert "the test had it fail" in text
    assert claims(text) == set()
    assert "No difference between" not in text


@pytest.mark.parametrize("name", NAMES)
def test_one_trial_each_proves_nothing(name: str) -> None:
    lesson = find(name)
    result = Played()
    for part in compares(lesson):
        scenario = resolve({**part.document, "run": {**part.document["run"], "repeats": 1}})
        step_ms = {each.name: times(BASE_MS / 2) for each in scenario.variants}
        step_ms[scenario.baseline.name] = times(BASE_MS)
        result = result.with_result(part.key, session_of(scenario, step_ms))
    text = told(lesson, result)
    assert "may be chance" in text
    assert claims(text) == set()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4)  # each makes all sessions of a lesson
@given(data=st.data())
def test_whatever_was_measured_the_claims_are_those_of_the_results(name: str, data: st.DataObject) -> None:
    allowed: set[tuple[str, str]] = set()
    time_ms = st.floats(min_value=0.01, max_value=1e5)
    machine = data.draw(st.sampled_from([CPU, GPU, CPU.model_copy(update={"cores": 1})]))

    def run(scenario: Scenario) -> Session:
        step_ms = {
            each.name: data.draw(st.none() | st.lists(time_ms, min_size=3, max_size=3)) for each in scenario.variants
        }
        session = session_of(scenario, step_ms, machine)
        allowed.update((each.variant, str(each.speedup.difference)) for each in session.results)
        return session

    text = told(find(name), played_with(find(name), run))
    assert claims(text) <= allowed
    assert not re.search(r"\bNone\b|\bnan\b|\binf\b", text)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_reader_and_with_any_answer_it_is_told(name: str) -> None:
    lesson = find(name)
    run = played(name, 1.6)
    for key, answer in answers(lesson):
        assert "You said" in told(lesson, run.with_answer(key, answer))
    assert "You said" not in told(lesson, run)


NO_GAIN, HALF, TRIPLE = (
    "hardly any difference: both bring the same batches",
    "the queue is faster, about 1.5 times",
    "the queue is faster, 3 times or more",
)


@pytest.mark.parametrize(
    ("name", "key", "ratio", "right", "wrong"),
    [
        ("feed_dict_or_queue", "gain", 1.6, HALF, TRIPLE),
        ("feed_dict_or_queue", "gain", 3.5, TRIPLE, HALF),
        ("feed_dict_or_queue", "gain", 1.0, NO_GAIN, HALF),
        ("elements_of_a_queue", "sample", 0.3, "slower than feed_dict", "faster than feed_dict"),
        ("elements_of_a_queue", "sample", 1.5, "faster than feed_dict", "as fast as feed_dict"),
        ("elements_of_a_queue", "sample", 1.0, "as fast as feed_dict", "slower than feed_dict"),
        ("tf_data_and_prefetch", "step", 2.0, 5.0, 7.0),
        ("threads", "times", 1.5, 1.5, 2.0),
        ("feed_dict_or_queue", "gain", 1.15, NO_GAIN, HALF),
        ("placement", "gain", 1.9, "nearly twice as fast", "about as fast as one"),
        ("placement", "gain", 1.0, "about as fast as one", "nearly twice as fast"),
        ("placement", "gain", 1.15, "about as fast as one", "nearly twice as fast"),
        ("placement", "gain", 0.8, "slower than one", "about as fast as one"),
        ("replication", "times", 0.8, 0.8, 2.0),
    ],
)
def test_a_prediction_is_judged_by_what_was_measured(
    name: str, key: str, ratio: float, right: str | float, wrong: str | float
) -> None:
    run = played(name, ratio)
    assert ", as you predicted" in told(find(name), run.with_answer(key, right))
    assert ", unlike you predicted" in told(find(name), run.with_answer(key, wrong))


def test_a_choice_that_an_end_of_the_interval_has_is_neither_right_nor_wrong() -> None:
    """1.20 times, and 1.13 to 1.27: from 1.25 on the other choice is right."""
    lesson = find("feed_dict_or_queue")
    run = played("feed_dict_or_queue", 1.2)
    assert ", as you predicted" in told(lesson, run.with_answer("gain", NO_GAIN))
    assert "you predicted" not in told(lesson, run.with_answer("gain", HALF))
    assert ", unlike you predicted" in told(lesson, run.with_answer("gain", TRIPLE))


@pytest.mark.parametrize(
    ("name", "ratio", "happened"),
    [("feed_dict_or_queue", 0.7, "feed_dict is the faster one"), ("placement", 1.35, "1.35× as fast")],
)
def test_where_no_choice_is_right_none_is_called_wrong(name: str, ratio: float, happened: str) -> None:
    for key, answer in answers(find(name)):
        text = told(find(name), played(name, ratio).with_answer(key, answer))
        assert f"You said: {answer}. **It was: {happened}.**" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_is_not_judged_by_what_was_not_measured_well(name: str) -> None:
    """Neither by trials that are far apart nor by those that were all disturbed."""
    lesson = find(name)
    baseline = scenario_of(compares(lesson)[0]).baseline
    others = tuple(
        Disturbance(kind="cpu-contention", variant=baseline.name, repeat=repeat, text="a compiler ran")
        for repeat in range(baseline.run.repeats)
    )
    for run, ratio in ((played(name, 1.2, 0.5), 1.2), (played_on(name, 1.6, disturbances=others), 1.6)):
        for key, answer in answers(lesson, ratio, BASE_MS / ratio):
            assert "you predicted" not in told(lesson, run.with_answer(key, answer))


@pytest.mark.parametrize("name", NAMES)
def test_what_disturbed_the_trials_is_told(name: str) -> None:
    lesson = find(name)
    variant = scenario_of(compares(lesson)[0]).baseline.name
    other = Disturbance(kind="cpu-contention", variant=variant, repeat=1, cost_share=0.2, text="a compiler ran")
    assert "a compiler ran" in told(lesson, played_on(name, 1.6, disturbances=(other,)))


def test_one_disturbed_trial_of_many_is_not_worth_a_word() -> None:
    lesson = find("feed_dict_or_queue")
    other = Disturbance(kind="cpu-contention", variant="feed_dict", repeat=1, cost_share=0.2, text="a compiler ran")
    for repeats, is_told in ((3, True), (12, False)):
        part = compares(lesson)[0]
        scenario = resolve({**part.document, "run": {**part.document["run"], "repeats": repeats}})
        steps = {each.name: [BASE_MS] * repeats for each in scenario.variants}
        session = session_of(scenario, steps, disturbances=(other,))
        assert ("a compiler ran" in Comparison(session).disturbed) == is_told


def test_the_sum_and_the_longer_of_the_two_are_those_of_the_session() -> None:
    lesson = find("feed_dict_or_queue")
    # Steps of 10 ms, 5 of them waiting, 4 on the device; the queue's are 5.
    text = told(lesson, played("feed_dict_or_queue", 2.0))
    assert "the batch takes 5.00 ms, then the device takes 4.00 ms" in text
    assert "The rest, 1.00 ms, is Python" in text
    assert "It took 5.00 ms, about that" in text


@pytest.mark.parametrize(("ratio", "words"), [(1.2, "more than that"), (3.0, "even less")])
def test_a_queue_that_does_not_follow_the_rule_is_not_said_to(ratio: float, words: str) -> None:
    lesson = find("feed_dict_or_queue")
    assert words in told(lesson, played("feed_dict_or_queue", ratio))


def test_published_figures_are_of_the_same_job_as_the_lessons() -> None:
    for name, original in (("feed_dict_or_queue", "tutorial"), ("elements_of_a_queue", "queue_elements")):
        ours, theirs = scenario_of(compares(find(name))[0]), load(original)
        assert ours.published is not None
        for figure in ours.published.figures:
            own, shipped_one = ours.variant(figure.variant), theirs.variant(figure.variant)
            job = ("backend", "source", "model", "loop")
            assert [getattr(own, part) for part in job] == [getattr(shipped_one, part) for part in job]


def test_the_published_figures_stand_beside_ours() -> None:
    text = told(find("feed_dict_or_queue"), played("feed_dict_or_queue", 2.0))
    assert "`feed_dict`: 18.0 s there, 50.0 s here; device busy 31 % there" in text
    assert "to which our shorter run is scaled" in text


@pytest.mark.parametrize(
    ("cores", "times_of_8", "words"),
    [
        (2, 1.5, "neither help nor"),
        (2, 1.0, "they take turns"),
        (4, 2.5, "the cores that two threads leave idle"),
        (8, 2.5, "one of their own"),
    ],
)
def test_more_threads_than_cores_are_explained_by_the_cores_there_are(
    cores: int, times_of_8: float, words: str
) -> None:
    scenario = scenario_of(compares(find("threads"))[0])
    step_ms = {each.name: times(BASE_MS / 1.5) for each in scenario.variants}
    step_ms |= {"1 thread": times(BASE_MS), "intra 8": times(BASE_MS / times_of_8)}
    session = session_of(scenario, step_ms, CPU.model_copy(update={"cores": cores}))
    assert words in told(find("threads"), Played().with_result("threads", session))


def placement(*devices: str, kind: str = "MatMul") -> Placement:
    ops = [PlacedOp(name=f"m{number}", type=kind, device=device) for number, device in enumerate(devices)]
    return Placement(ops=(*ops, PlacedOp(name="sum", type="AddV2", device="CPU:0")), op_count=len(devices) + 1)


@pytest.mark.parametrize(
    ("devices", "environment", "words"),
    [
        (("CPU:0", "CPU:1"), CPU, "`CPU:0` and `CPU:1` are two names for the same 2 cores"),
        (("GPU:0", "GPU:1"), GPU, "The two devices are two GPUs"),
        (("GPU:0", "GPU:0"), GPU, "nothing was spread"),
    ],
)
def test_two_devices_are_called_what_they_are(devices: tuple[str, str], environment: Environment, words: str) -> None:
    lesson = find("placement")
    own = "MatMul" if environment is GPU else "_MklMatMul"  # as oneDNN's, which TensorFlow puts in place on a CPU
    placed = {"one device": placement(devices[0], devices[0], kind=own), "two devices": placement(*devices, kind=own)}
    text = told(lesson, played_on("placement", 1.0, environment=environment, placed=placed))
    assert words in text
    assert f"- one device: {devices[0]} ran 2 matrix products (`{own}`)" in text


def test_a_placement_that_is_not_known_is_told_with_its_reason() -> None:
    lesson = find("placement")
    unknown = Placement(reason="the step that was to tell it failed")
    text = told(lesson, played_on("placement", 1.0, placed={"one device": unknown}))
    assert "- one device: not known (the step that was to tell it failed)" in text
    assert "- two devices: not known (no trial of it says)" in text
    assert "two names" not in text


@pytest.mark.parametrize("name", NAMES)
def test_the_scenario_that_is_shown_is_the_one_that_runs(name: str) -> None:
    lesson = find(name)
    shown = [
        tomllib.loads(block)
        for part in lesson.parts
        if isinstance(part, Say)
        for block in re.findall(r"```toml\n(.*?)```", part.text, re.DOTALL)
    ]
    documents = [part.document for part in compares(lesson)]
    beside = ("name", "published")
    assert shown == [{key: value for key, value in each.items() if key not in beside} for each in documents]


@pytest.mark.parametrize("name", NAMES)
def test_every_variant_of_a_lesson_is_in_its_figures(name: str) -> None:
    lesson = find(name)
    text = told(lesson, played(name, 1.6))
    for part in compares(lesson):
        for variant in scenario_of(part).variants:
            if not variant.name.startswith("ceiling"):
                assert f"- `{variant.name}`: " in text
    assert "left out" not in text
    assert "disturbed" not in text


def test_a_variant_that_the_machine_cannot_run_is_told_with_the_note() -> None:
    lesson = find("replication")
    run = played("replication", 1.6)
    session = session_in(run, "replication")
    kept = tuple(each for each in session.results if each.variant != "between_graph, 2")
    note = "The variant 'between_graph, 2' was left out: it needs Linux."
    left_out = {"between_graph, 2": note, "mirrored, 2": "The variant 'mirrored, 2' and not 'between_graph, 2'."}
    scenario = session.scenario.model_copy(update={"left_out": left_out})
    cut = session.model_copy(update={"results": kept, "scenario": scenario})
    text = told(lesson, Played().with_result("replication", cut))
    assert "- `between_graph, 2`: not measured (The variant 'between_graph, 2' was left out: it needs Linux)" in text


def test_work_that_was_not_equal_is_no_gain() -> None:
    lesson = find("elements_of_a_queue")
    session = session_in(played("elements_of_a_queue", 1.6), "elements")
    results = [
        each.model_copy(update={"work": each.work.model_copy(update={"status": "unequal", "text": "it lost samples"})})
        for each in session.results
    ]
    text = told(lesson, Played().with_result("elements", session.model_copy(update={"results": tuple(results)})))
    assert claims(text) == set()
    assert "it lost samples" in text


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.name)
def test_every_command_that_a_lesson_names_exists(lesson: Lesson) -> None:
    from typer.main import get_command

    from pipeline_bench.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for entry in lesson.then:
        program, command, *arguments = entry.command.split()
        assert program == "pipeline-bench"
        options = {option for parameter in commands[command].params for option in parameter.opts}
        assert {word.split("=")[0] for word in arguments if word.startswith("--")} <= options
        named = arguments[0] if arguments and not arguments[0].startswith("-") else None
        known = {"compare": set(shipped()), "lesson": {each.name for each in lessons()}}
        assert named is None or named in known.get(command, {named})


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.name)
def test_every_lesson_that_a_lesson_names_exists(lesson: Lesson) -> None:
    said = " ".join(part.text for part in lesson.parts if isinstance(part, Say))
    assert set(re.findall(r"lesson `(\w+)`", said)) <= {each.name for each in lessons()}


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [("threads", "times", "7×"), ("replication", "times", "7×"), ("tf_data_and_prefetch", "step", "7 ms")],
)
def test_a_number_is_repeated_with_its_unit(name: str, key: str, said: str) -> None:
    lesson = find(name)
    assert f"You said: {said}." in told(lesson, played(name, 1.6).with_answer(key, 7.0))


def test_what_threads_do_is_explained_where_nothing_could_be_told() -> None:
    scenario = scenario_of(compares(find("threads"))[0])
    wide = [BASE_MS * 0.5, BASE_MS, BASE_MS * 2]
    step_ms = {each.name: wide[::-1] for each in scenario.variants} | {"1 thread": wide, "intra 8": wide}
    text = told(find("threads"), Played().with_result("threads", session_of(scenario, step_ms)))
    assert "not measured well enough to say" in text
    for words in (
        "handed out, and waited for",
        "each layer waits for the one before",
        "more threads than there are cores",
    ):
        assert words in text


def test_what_cannot_be_told_of_one_is_not_called_no_difference_from_another() -> None:
    (part,) = compares(find("tf_data_and_prefetch"))
    step_ms = {each.name: times(BASE_MS / 2) for each in scenario_of(part).variants}
    step_ms |= {"no prefetch": times(BASE_MS), "AUTOTUNE": [BASE_MS * 0.4, BASE_MS * 0.6, BASE_MS * 1.2]}
    text = told(find("tf_data_and_prefetch"), Played().with_result(part.key, session_of(scenario_of(part), step_ms)))
    assert "It is not decided whether `AUTOTUNE` is faster than `no prefetch`" in text
    assert "numbers written by hand" not in text


def test_a_wide_interval_is_no_proof_that_there_is_no_difference() -> None:
    scenario = scenario_of(compares(find("threads"))[0])
    alike, wide = times(BASE_MS), [BASE_MS * 0.7, BASE_MS, BASE_MS * 1.4]
    step_ms = {"1 thread": alike, "intra 2": alike[::-1], "inter 2": wide, "intra 8": None}
    session = session_of(scenario, step_ms)
    assert [Comparison(session)[name].outcome for name in ("intra 2", "inter 2", "intra 8", "no such")] == [
        "none",
        "unknown",
        "unknown",
        "unknown",
    ]


@pytest.mark.parametrize(("first_ms", "second_ms", "said"), [(6, 4.6, "faster"), (5, 4.6, "unknown"), (5, 5, "none")])
def test_two_variants_are_compared_by_the_ratios_of_their_rounds(first_ms: float, second_ms: float, said: str) -> None:
    """The baseline scatters, so that the intervals of the two over it overlap."""
    step_ms = {"1 thread": [9.0, 10.0, 12.0], "intra 2": times(first_ms), "intra 8": times(second_ms)[::-1]}
    scenario = scenario_of(compares(find("threads"))[0])
    compared = Comparison(session_of(scenario, {"inter 2": times(BASE_MS), **step_ms}))
    first, second = compared["intra 2"], compared["intra 8"]
    assert first.interval is not None
    assert second.interval is not None
    assert first.interval[1] > second.interval[0]
    assert second.beside(first) == said


def test_what_differs_by_a_fifth_at_most_is_not_called_no_difference() -> None:
    scenario = scenario_of(compares(find("threads"))[0])
    step_ms = {each.name: times(BASE_MS) for each in scenario.variants} | {"intra 2": [8.6, 9.4, 10.0]}
    found = Comparison(session_of(scenario, step_ms))["intra 2"]
    assert found.interval is not None
    assert 1.10 < found.interval[1] < 1.25
    assert found.outcome == "unknown"
