"""The tree: guides from source to sink, branches, inner stages, and what each row says."""

from __future__ import annotations

from pipeline_bench.model.diagnosis import Bottleneck, Diagnosis
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.report.pipeline_tree import Row, rows
from tests.unit import diagnoses
from tests.unit.diagnoses import stage


def drawn(inspection: Inspection, bottleneck: int | None = None) -> list[str]:
    found = diagnoses.diagnosis(inspection=inspection, bottleneck=Bottleneck(stage=bottleneck))
    return [f"{row.guide} {row.label}" for row in rows(found)]


def row(diagnosis: Diagnosis, number: int) -> Row:
    return next(row for row in rows(diagnosis) if row.stage == number)


def test_a_chain_runs_straight_down() -> None:
    assert drawn(diagnoses.inspection()) == [
        "┬ list_files",
        "├ TFRecordDataset",
        "├ map(decode)",
        "├ shuffle",
        "├ batch",
        "└ prefetch",
    ]


def test_thirty_stages_are_not_indented() -> None:
    lines = drawn(diagnoses.long_chain())
    assert len(lines) == 30
    assert {len(line.split()[0]) for line in lines} == {1}


def test_inputs_branch_and_join_and_inner_stages_hang_below_theirs() -> None:
    lines = drawn(diagnoses.two_inputs())
    assert lines[:3] == ["┬ from_tensor_slices", "├ interleave(open_shard)", "│    · TFRecordDataset"]
    assert [line[:3] for line in lines[4:]] == ["│ ┬", "│ ├", "├─┴", "├ m", "└ b"]


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


def test_an_input_that_is_not_known_is_left_out() -> None:
    assert drawn(Inspection(stages=(stage(4, "map", 3),), sink=4)) == ["└ map"]


def test_the_figures_of_a_stage() -> None:
    found = diagnoses.diagnosis()
    decode = row(found, 2)
    assert (decode.place, decode.own_ms, decode.cpu_ms, decode.is_bottleneck) == ("train.py:14", 11.2, 11.2, True)
    assert decode.share is not None
    assert round(decode.share, 2) == 0.87
    assert decode.parallelism == "1 (1→4)"
    assert decode.element == "32 × 147 KiB"
    assert row(found, 3).buffer == "– of 1024"
    assert row(found, 5).buffer == "0.25 of 4"
    assert row(found, 5).parallelism == ""


def test_what_was_not_measured_has_its_reason_and_no_figure() -> None:
    files = row(diagnoses.diagnosis(), 0)
    assert (files.own_ms, files.share, files.cpu_ms) == (None, None, None)
    assert files.reason == "its elements are too few to measure"


def test_a_pipeline_without_its_sink_or_in_a_circle_is_drawn_as_far_as_it_goes() -> None:
    assert drawn(diagnoses.inspection().model_copy(update={"sink": 99})) == []
    circle = Inspection(stages=(stage(0, "a", 1), stage(1, "b", 0)), sink=1)
    assert [line.split()[1] for line in drawn(circle)][-1] == "b"
