"""The example session that the README shows: its results still follow from its trials, and its renderings from it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from pipeline_bench.analysis import interference
from pipeline_bench.analysis.results import summarise
from pipeline_bench.model.session import Session, load
from pipeline_bench.report import markdown
from pipeline_bench.text import units
from tests.golden import without_plotly

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "reports" / "example"
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "render_example.py"))
RENDERINGS = ("report.html", "report.md", "report.csv", "trace.json.gz")


@pytest.fixture(scope="module")
def example() -> Session:
    return load(EXAMPLE)


@pytest.fixture(scope="module")
def renderings(example: Session) -> dict[str, str]:
    found: dict[str, str] = SCRIPT["renderings"](example)
    return found


def test_its_results_follow_from_its_trials(example: Session) -> None:
    assert summarise(example.scenario, example.trials, example.environment.cores) == example.results
    assert interference.find(example.trials, example.environment.cores) == example.disturbances


def test_it_is_the_tutorials_job_on_many_trials(example: Session) -> None:
    assert {trial.status for trial in example.trials} == {"ok"}
    assert {(v.source.options["batch_size"], v.source.options["features"]) for v in example.scenario.variants} == {
        (128, 1024)
    }
    assert min(result.trials for result in example.results) >= 6, "fewer rounds decide nothing"
    assert example.precision is not None


def test_its_variants_did_equal_work(example: Session) -> None:
    assert {result.work.status for result in example.results if result.variant != "ceiling"} == {"equal"}


def test_no_rendering_is_without_a_golden_file(renderings: dict[str, str]) -> None:
    assert set(renderings) == set(RENDERINGS)
    assert {path.name for path in EXAMPLE.iterdir()} == {*RENDERINGS, "session.json"}


@pytest.mark.parametrize("name", RENDERINGS)
def test_its_renderings_are_the_golden_files(renderings: dict[str, str], name: str) -> None:
    """After a change that is meant: ``python docs/render_example.py``, and look at what git shows."""
    golden = SCRIPT["read"](EXAMPLE / name)
    assert without_plotly(renderings[name]) == without_plotly(golden)


@pytest.mark.parametrize("folder", SCRIPT["KEPT"], ids=lambda folder: folder.name)
def test_what_is_kept_reads_as_it_was_rendered(folder: Path) -> None:
    """After a change that is meant: ``python docs/render_example.py``, and look at what git shows."""
    assert markdown.render(load(folder)) == (folder / "report.md").read_text(encoding="utf-8")


def test_the_results_on_a_gpu_follow_from_its_trials() -> None:
    session = load(ROOT / "reports" / "h100-two_layer")
    assert session.checked is not None
    found = summarise(session.scenario, session.trials, session.environment.cores, session.checked.windows)
    assert found == session.results
    shares = {each.variant: each.device_utilization.mean_percent for each in found}
    assert shares["feed_dict"] is not None
    assert shares["fifo_queue"] is not None
    assert shares["feed_dict"] < shares["fifo_queue"]


def test_the_picture_in_the_readme_is_of_it(example: Session) -> None:
    """By its figures: the drawing itself is another one under each version of rich."""
    picture = (ROOT / "docs" / "compare.svg").read_text(encoding="utf-8")
    for result in example.results:
        assert units.plain_milliseconds(result.step_ms.mean) in picture, result.variant
