"""The example session that the README shows: it opens, and its results still follow from its trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench import units
from pipeline_bench.results import summarise
from pipeline_bench.session import Session, load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> Session:
    return load(ROOT / "reports" / "example")


def test_its_results_follow_from_its_trials(example: Session) -> None:
    assert summarise(example.scenario, example.trials, example.environment.cores) == example.results


def test_it_is_the_original_job(example: Session) -> None:
    assert {trial.steps.count for trial in example.trials if trial.steps} == {5000}
    assert {trial.status for trial in example.trials} == {"ok"}


def test_the_picture_in_the_readme_is_of_it(example: Session) -> None:
    picture = (ROOT / "docs" / "compare.svg").read_text(encoding="utf-8")
    for result in example.results:
        assert units.plain_milliseconds(result.step_ms.median) in picture, result.variant
