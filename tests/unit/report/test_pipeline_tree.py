"""The tree: guides from source to sink, branches, inner stages, and what each row says."""

from __future__ import annotations

import pytest

from pipeline_bench.model import Series
from pipeline_bench.model.calls import AUTOTUNE
from pipeline_bench.model.diagnosis import Bottleneck, Diagnosis
from pipeline_bench.model.pipeline import Inspection, Tuned
from pipeline_bench.report import terminal_diagnosis
from pipeline_bench.report.pipeline_tree import StageRow, captions, rows
from tests.unit import diagnoses
from tests.unit.console import printed
from tests.unit.diagnoses import decode, stage


def drawn(inspection: Inspection, bottleneck: int | None = None) -> list[str]:
    found = diagnoses.diagnosis(inspection=inspection, bottleneck=Bottleneck(stage=bottleneck))
    return [f"{row.guide} {row.label}" for row in rows(found)]


def row(diagnosis: Diagnosis, number: int) -> StageRow:
    return next(row for row in rows(diagnosis) if row.stage == number)


@pytest.mark.parametrize("reached_ms", [12.9, None])
def test_the_caption_says_what_a_share_is_of(reached_ms: float | None) -> None:
    made = rows(diagnoses.diagnosis(reached_ms=reached_ms))
    shares = [row.share for row in made if row.share is not None]
    assert (sum(shares) == pytest.approx(1.0)) == (reached_ms is None)
    of = "the time between two batches as written" if reached_ms is not None else "what all cost together; the time"
    assert f"share: what a stage costs alone, of {of}" in next(captions(made))


def test_three_inputs_and_an_input_of_two_more() -> None:
    stages = (
        stage(0, "range"),
        stage(1, "a"),
        stage(2, "b"),
        stage(3, "c"),
        stage(4, "zip", 2, 3),
        stage(5, "zip", 0, 1, 4),
    )
    assert drawn(Inspection(stages=stages, sink=5)) == [
        "┬ range",
        "│ ┬ a",
        "│ │ ┬ b",
        "│ │ │ ┬ c",
        "│ │ ├─┴ zip",
        "└─┴─┴ zip",
    ]


def test_a_dataset_that_is_used_twice_is_drawn_once() -> None:
    stages = (stage(0, "range"), stage(1, "map", 0), stage(2, "skip", 1), stage(3, "zip", 1, 2))
    assert drawn(Inspection(stages=stages, sink=3)) == ["┬ range", "├ map", "│ ┬ map, as above", "│ ├ skip", "└─┴ zip"]


def test_a_single_stage_and_none() -> None:
    assert drawn(Inspection(stages=(stage(0, "range"),), sink=0)) == ["─ range"]
    assert drawn(Inspection()) == []
    assert rows(diagnoses.diagnosis(inspection=None)) == []


def test_functions_of_one_name_are_told_apart_by_their_lines() -> None:
    unnamed = decode("<lambda>")
    stages = (
        stage(0, "range"),
        stage(1, "map", 0, function=unnamed),
        stage(2, "map", 1, function=unnamed),
        stage(3, "map", 2, function=decode()),
        stage(4, "skip", 3),
        stage(5, "skip", 4),
    )
    assert [each.split()[1] for each in drawn(Inspection(stages=stages, sink=5))] == [
        "range",
        "map(<lambda>):13",
        "map(<lambda>):14",
        "map(decode)",
        "skip",
        "skip",
    ]


def test_an_input_that_is_not_known_is_left_out() -> None:
    assert drawn(Inspection(stages=(stage(4, "map", 3),), sink=4)) == ["└ map"]


def test_a_pipeline_without_its_sink_or_in_a_circle_is_drawn_as_far_as_it_goes() -> None:
    assert drawn(diagnoses.inspection().model_copy(update={"sink": 99})) == []
    circle = Inspection(stages=(stage(0, "a", 1), stage(1, "b", 0)), sink=1)
    assert [line.split()[1] for line in drawn(circle)][-1] == "b"


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_narrow_terminal_has_whole_figures_and_names_that_tell_stages_apart(width: int) -> None:
    stages = (stage(0, "list_files"), stage(1, "map", 0, arguments={"num_parallel_calls": AUTOTUNE}))
    tuned = Tuned(
        stage=1, node="n", parameter="parallelism", at_ns=Series.pack([0, 1]), values=Series.pack([1.0, 16.0])
    )
    inspection = Inspection(stages=stages, sink=1, tuned=(tuned,))
    shown = terminal_diagnosis.stages(diagnoses.diagnosis(inspection=inspection, bottleneck=None), width, 9)
    assert shown is not None
    text = printed(shown, width)
    assert "┬ list_files" in text
    assert "…" not in text
    assert ("auto (1→16)" in text) is ("parallel" in text) is (width > 40)
