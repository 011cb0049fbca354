"""Which op ran where, in the reports: counted by device in a terminal, by name elsewhere, and never as markup."""

from __future__ import annotations

from pipeline_bench.model.events import PlacedOp, Placement
from pipeline_bench.model.session import Session
from pipeline_bench.report import html, markdown, placements
from pipeline_bench.report.terminal import render
from pipeline_bench.scenario import Runtime
from tests.unit import sessions
from tests.unit.console import printed
from tests.unit.report import commonmark
from tests.unit.report.pages import Page

OPS = (
    *(PlacedOp(name=f"matmul_{i}", type="_MklMatMul", device="CPU:1") for i in range(3)),
    PlacedOp(name="fused", type="_MklNativeFusedConv2D", device="CPU:0"),
    PlacedOp(name="add", type="AddV2", device="CPU:0"),
    PlacedOp(name="add_1", type="AddV2", device="CPU:0"),
    PlacedOp(name="weights", type="VarHandleOp", device="CPU:0"),
    PlacedOp(name="to_1", type="_Send", device="CPU:0"),
)


def session(**told: Placement | None) -> Session:
    """The usual session, in which these variants were asked and their first trials have told this."""
    known = sessions.normal()
    trials = [
        trial.model_copy(update={"placement": told[trial.variant]})
        if trial.repeat == 0 and trial.variant in told
        else trial
        for trial in known.trials
    ]
    asked = [
        each.model_copy(update={"runtime": Runtime(log_placement=each.name in told)})
        for each in known.scenario.variants
    ]
    scenario = known.scenario.model_copy(update={"variants": tuple(asked)})
    return known.model_copy(update={"scenario": scenario, "trials": tuple(trials)})


def placed(ops: tuple[PlacedOp, ...] = OPS, op_count: int | None = None) -> Placement:
    return Placement(ops=ops, op_count=len(ops) if op_count is None else op_count)


def terminal(shown: Session, width: int = 80) -> str:
    return printed(render(shown, None, width), width)


def test_ops_are_counted_by_device_and_type_and_plumbing_as_one() -> None:
    (found,) = placements(session(tf_data=placed()))
    first, second = found.devices
    assert first == ("CPU:0", 5, "AddV2 2, FusedConv2D 1, 2 of plumbing")
    assert second[2] == "MatMul 3"


def test_many_types_are_cut() -> None:
    many = tuple(PlacedOp(name=f"op_{i}", type=f"Type{i:02}", device="GPU:0") for i in range(30))
    (found,) = placements(session(tf_data=placed(many)))
    assert found.devices[0][2].endswith("Type07 1, 22 of other types")


def test_variants_with_the_same_placement_are_told_together_and_ceilings_not_at_all() -> None:
    found = placements(session(feed_dict=placed(), tf_data=placed(), fifo_queue=placed(OPS[:2]), ceiling=placed()))
    assert [each.name for each in found] == ["feed_dict; tf_data", "fifo_queue"]


def test_a_thousand_devices_do_not_flood_the_terminal() -> None:
    ops = tuple(PlacedOp(name=f"op_{i}", type="MatMul", device=f"/job:worker/task:{i}/CPU:0") for i in range(1000))
    told = terminal(session(tf_data=placed(ops)))
    assert told.count("/job:worker") == 24
    assert "and 976 lines more" in told


def test_a_trial_that_was_asked_and_told_nothing_is_not_passed_over() -> None:
    (found,) = placements(session(tf_data=None))
    assert found.reason == "its first trial ended before it was recorded"
    assert placements(sessions.normal()) == []
    assert placements(session(tf_data=None).model_copy(update={"trials": ()})) == []


def test_where_none_is_known_markdown_gives_the_reason_and_no_table() -> None:
    text = markdown.render(session(tf_data=Placement(reason="the step failed")))
    assert "not known, the step failed" in text
    assert "device and types" not in text


def test_markdown_names_a_hundred_ops_and_counts_the_rest() -> None:
    ops = tuple(PlacedOp(name=f"op_number_{i:03}", type="MatMul", device="CPU:0") for i in range(223))
    text = markdown.render(session(tf_data=placed(ops, op_count=6000)))
    assert "op_number_099" in text.replace("\\", "")
    assert "op_number_100" not in text.replace("\\", "")
    assert "and 123 more, in session.json" in text
    assert "5777 more ops not kept" in text.replace("\\", "")


def test_names_of_ops_are_no_markup() -> None:
    names = ("<script>x</script>", "a|b\n", "*c*")
    hostile = tuple(PlacedOp(name=name, type="[red]T[/red]", device="[red]<script>|") for name in names)
    shown = session(tf_data=placed(hostile))
    assert "[red]<script>|  3 ops: [red]T[/red] 3" in terminal(shown, 160)
    usual = Page(html.render(session(tf_data=placed()))).tags
    page = Page(html.render(shown))
    assert page.open == []
    assert page.tags["script"] == usual["script"]
    unwanted = [token.content.strip() for token in commonmark.unwanted(markdown.render(shown))]
    assert unwanted == ["<details><summary>The ops by name</summary>", "</details>"]
