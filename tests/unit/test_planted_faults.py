"""How the benchmark of the diagnosis judges: by sessions whose answer is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.diagnose import planted, scoring
from benchmarks.diagnose.pairs import Seen
from benchmarks.diagnose.planted import Planted
from benchmarks.diagnose.scoring import EXPERT, PROPOSAL, Score
from pipeline_bench.model.diagnosis import AS_WRITTEN, Attempt, Bottleneck, Diagnosis, Fix
from pipeline_bench.model.edits import InsertAfter, SetArgument
from pipeline_bench.model.pipeline import Inspection, Stage, Target
from pipeline_bench.model.session import Session
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.scenario import Component, Scenario, Variant
from tests.unit import records
from tests.unit.sessions import CPU

FAULT = Planted("slow", Path("slow.py"), "It decodes in order.", frozenset({"map(decode)"}), allow_reordering=True)
FIX = Fix(
    kind="parallel_map",
    variant="parallel decode",
    title="Run decode on several cores",
    edits=(SetArgument(stage=1, argument="num_parallel_calls", value=-1), InsertAfter(stage=2, method="prefetch")),
)


def diagnosed(named: int | None = 1, proposal: str | None = "parallel decode") -> Session:
    """A diagnosis of three stages that names one of them and proposes one fix or none."""
    target = Target(file="slow.py", name="make_dataset")
    stages = (
        Stage(id=0, method="list_files"),
        Stage(id=1, method="map", inputs=(0,), function=UserFunction(name="decode")),
        Stage(id=2, method="batch", inputs=(1,)),
    )
    diagnosis = Diagnosis(
        target=target,
        budget_s=60,
        inspection=Inspection(stages=stages, sink=2),
        bottleneck=Bottleneck(stage=named),
        attempts=(Attempt(fix=FIX, outcome="proposed"),),
        proposal=proposal,
    )
    task = Task(target=target, activity="drain", batch_size=16, fingerprint=True)
    return Session(
        started_at="2024-05-01T12:00:00+00:00",
        scenario=Scenario(name="slow.py:make_dataset", variants=(variant(AS_WRITTEN, task),)),
        environment=CPU,
        diagnosis=diagnosis,
    )


def variant(name: str, task: Task) -> Variant:
    return Variant(
        name=name,
        backend="tf_data",
        source=Component(kind=KIND, options=task.model_dump(mode="json")),
        model=Component(kind="none"),
        loop=Component(kind="session"),
    )


def measured(scenario: Scenario, **step_ms: float) -> Session:
    """A session in which the variants of a scenario took so many ms a step."""
    named = {name.replace("_", " "): value for name, value in step_ms.items()}
    return records.session(scenario, records.rounds({name: (value, value) for name, value in named.items()}))


def test_the_proposal_is_held_against_the_expert_by_their_throughput() -> None:
    session = diagnosed()
    again = measured(scoring.scenario(session, repeats=3), as_written=12.0, proposal=5.0, expert=4.0)
    found = scoring.score(FAULT, session, again, diagnose_s=61.0)
    assert found.right
    assert found.named == "map(decode)"
    assert found.speedup == pytest.approx(2.4, rel=0.02)
    assert found.expert_speedup == pytest.approx(3.0, rel=0.02)
    assert found.reached == pytest.approx(0.8, rel=0.02)
    assert not found.slower


@pytest.mark.parametrize("named", [0, 2, None])
def test_another_stage_or_none_is_wrong(named: int | None) -> None:
    session = diagnosed(named)
    assert not scoring.score(FAULT, session, None, 60.0).right


def test_a_proposal_that_is_slower_when_it_is_measured_again_is_told() -> None:
    session = diagnosed()
    scenario = scoring.scenario(session, repeats=3)
    worse = scoring.score(FAULT, session, measured(scenario, as_written=4.0, proposal=5.0, expert=2.0), 60.0)
    assert worse.slower
    assert "SLOWER" in scoring.row(worse)
    as_fast = scoring.score(FAULT, session, measured(scenario, as_written=4.0, proposal=4.05, expert=2.0), 60.0)
    assert not as_fast.slower


def test_without_a_proposal_the_pipeline_as_written_stands_for_it() -> None:
    session = diagnosed(proposal=None)
    scenario = scoring.scenario(session, repeats=3)
    assert [each.name for each in scenario.variants] == [AS_WRITTEN, EXPERT]
    found = scoring.score(FAULT, session, measured(scenario, as_written=4.0, expert=2.0), 60.0)
    assert found.reached == pytest.approx(0.5, rel=0.02)
    assert not found.slower


def test_what_was_not_measured_counts_as_not_reached() -> None:
    found = scoring.score(FAULT, diagnosed(), None, 60.0)
    assert found.speedup is None
    assert found.reached is None
    assert "1 of 1, 100%" in scoring.summary([found]).splitlines()[0]
    assert "0 of 1, 0%" in scoring.summary([found]).splitlines()[1]
    assert "could not be measured again: 1: slow" in scoring.summary([found])


def test_no_diagnosis_is_a_wrong_answer_with_its_reason() -> None:
    found = scoring.score(FAULT, None, None, 180.0)
    assert not found.right
    assert "there is no diagnosis" in scoring.row(found)


def test_the_three_are_drained_alike_and_differ_in_their_function_and_edits() -> None:
    scenario = scoring.scenario(diagnosed(), repeats=5)
    tasks = {each.name: Task.model_validate(each.source.options) for each in scenario.variants}
    assert list(tasks) == [AS_WRITTEN, PROPOSAL, EXPERT]
    assert {name: task.target.name for name, task in tasks.items()} == {
        AS_WRITTEN: "make_dataset",
        PROPOSAL: "make_dataset",
        EXPERT: "expert",
    }
    assert {name: task.edits for name, task in tasks.items()} == {AS_WRITTEN: (), PROPOSAL: FIX.edits, EXPERT: ()}
    assert {(task.activity, task.batch_size, task.fingerprint) for task in tasks.values()} == {("drain", 16, False)}
    assert {(each.run.repeats, each.run.time_s) for each in scenario.variants} == {(5, scoring.TURN_S)}


def test_the_rates_are_shares_of_all_pipelines() -> None:
    def score(name: str, right: bool, speedup: float) -> Score:
        return Score(name, ("map(f)",), "map(f)", right, "a fix", speedup, 2.0, diagnose_s=60.0)

    scores = [score("a", True, 1.9), score("b", True, 1.8), score("c", False, 1.7), score("d", True, 0.5)]
    right, reached, slower, wall = scoring.summary(scores).splitlines()
    assert "3 of 4, 75%" in right
    assert "2 of 4, 50%" in reached
    assert slower.startswith("proposals slower than the pipeline as written: 1: d")
    assert "4 minutes" in wall


def test_a_fault_that_costs_nothing_here_counts_only_among_those_made_slower() -> None:
    real = Score("real", ("map(f)",), "map(f)", True, "a fix", 1.9, 2.0, diagnose_s=60.0)
    none = Score("none", ("map(f)",), "batch", False, "a fix", 0.8, 1.05, diagnose_s=60.0)
    right, reached, slower, small, _ = scoring.summary([real, none]).splitlines()
    assert "1 of 1, 100%" in right
    assert "1 of 1, 100%" in reached
    assert slower.startswith("proposals slower than the pipeline as written: 1: none")
    assert small.endswith("1: none")


def test_scores_are_read_back_as_they_were_kept(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    first = scoring.score(FAULT, diagnosed(named=0), None, 60.0)
    later = scoring.score(FAULT, diagnosed(), None, 70.0)
    assert scoring.load(file) == []
    scoring.append(first, file)
    scoring.append(later, file)
    assert scoring.load(file) == [later]
    file.write_text('{"name": "x"}\n')
    with pytest.raises(ValueError, match="line 1"):
        scoring.load(file)


def test_every_pipeline_says_what_is_wrong_with_it() -> None:
    every = planted.every()
    assert len(every) >= 28
    for each in every:
        text = each.file.read_text(encoding="utf-8")
        assert each.what.endswith("."), each.name
        assert "def make_dataset() ->" in text, each.name
        assert "def expert() ->" in text, each.name
        for label in each.labels:
            method, _, function = label.rstrip(")").partition("(")
            assert f"{method}(" in text, f"{each.name}: no {method}"
            librarys = function == "<lambda>" and "tf.keras.utils." in text
            assert not function or librarys or f"def {function}(" in text, f"{each.name}: no {function}"


def test_a_pipeline_is_chosen_by_its_name() -> None:
    assert [each.name for each in planted.chosen(["small_reads", "csv_lines"])] == ["small_reads", "csv_lines"]
    assert len(planted.chosen([])) == len(planted.every())
    with pytest.raises(ValueError, match="there is no pipeline nonsense"):
        planted.chosen(["nonsense"])


def test_a_file_without_its_constants_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bare.py"
    file.write_text('"""A pipeline."""\nFAULT = {"map(a)", "map(b)"}\n')
    with pytest.raises(ValueError, match=r"bare\.py needs"):
        planted.read(file)
    file.write_text(file.read_text() + "ALLOW_REORDERING = False\n")
    assert planted.read(file).labels == {"map(a)", "map(b)"}


def test_samples_are_compared_in_any_order_once_all_were_seen_and_one_by_one_before() -> None:
    ordered, shuffled = (("a", "1"), ("b", "2")), (("b", "2"), ("a", "1"))
    assert not Seen(ordered, whole=True).differs(Seen(shuffled, whole=True))
    assert "2 of the first 2" in Seen(ordered, whole=False).differs(Seen(shuffled, whole=False))
    assert Seen(ordered, whole=True).differs(Seen((("a", "1"), ("b", "3")), whole=True))
    assert not Seen(ordered, whole=True).only([0]).differs(Seen((("a", "9"), ("b", "9")), whole=True).only([0]))
