"""Real trials of the scenarios of the lessons whose variants no other test trains: they run, and say what is told."""

from __future__ import annotations

import pytest

from pipeline_bench.analysis.results import summarise
from pipeline_bench.lessons.reading import Compare, Played, Tell, find
from pipeline_bench.scenario.resolve import resolve
from tests.tensorflow.conftest import RunScenario


@pytest.mark.parametrize(
    "name",
    [pytest.param("threads", marks=pytest.mark.slow), "placement", pytest.param("replication", marks=pytest.mark.slow)],
)
def test_the_variants_of_a_lesson_train_and_are_told(run_scenario: RunScenario, name: str) -> None:
    lesson = find(name)
    (part,) = [part for part in lesson.parts if isinstance(part, Compare)]
    session = run_scenario(resolve({**part.document, "run": {"steps": 4, "repeats": 1}}))
    assert [(trial.variant, trial.reason) for trial in session.trials if trial.status != "ok"] == []
    results = summarise(session.scenario, session.trials, session.environment.cores)
    played = Played().with_result(part.key, session.model_copy(update={"results": results}))
    text = "\n".join(part.text(played) for part in lesson.parts if isinstance(part, Tell))
    assert "may be chance" in text
    if name == "placement":
        assert text.count(" 9 matrix products (") == 2, "A^10 takes nine, and each device has one power"
        assert text.count(" 18 matrix products (") == 1
