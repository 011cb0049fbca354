"""What the selftest says of figures that are known to be right or wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.environment import Accelerator, describe
from pipeline_bench.model.events import Device
from pipeline_bench.model.selftest import Part
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.selftest import cases, judge
from tests.unit import records

BARE_MS = {"12": 12.2}
DEVICE = Device(kind="emulated", name="emulated accelerator, busy 12 ms a step")


def measured(wrong_ms: dict[str, float], taken_percent: float = 0.0) -> dict[str, Part]:
    """The parts of a quick selftest whose every trial comes out as planted, but for the waits of some variants."""
    planted = cases.all_of(True, Path())
    scenario = cases.scenario(planted, True)
    truths = {each.name: each.truth(BARE_MS["12"]) for each in planted if each.truth is not None}
    trials: list[TrialRecord] = []
    other = records.track("other_cpu_percent", [0, 10**9], taken_percent, "psutil")
    for variant in scenario.variants:
        truth = truths.get(variant.name)
        added = wrong_ms.get(variant.name, 0.0)
        step_ms = (truth.step_ms if truth else BARE_MS["12"]) + added
        wait_ms = truth.wait_ms + added if truth else None if variant.is_ceiling else 0.0
        for repeat in range(variant.run.repeats):
            record = records.record(variant.name, repeat, step_ms, wait_ms, noise=1e-4, steps=40, samples=[other])
            trials.append(record.model_copy(update={"device": DEVICE}))
    session = records.session(scenario, trials, describe(Accelerator()))
    return {part.name: part for part in judge.of_comparison(session, planted, BARE_MS)}


def test_what_comes_out_as_planted_passes() -> None:
    found = measured({})
    for name in (cases.SOURCE, cases.DECODE, cases.HOST, cases.CEILING, cases.DIFFERENCE):
        assert found[name].status == "passed", found[name]


@pytest.mark.parametrize(
    ("variant", "part"), [("source, tf_data, 1", cases.SOURCE), ("decoding, tf_data, 1", cases.DECODE)]
)
def test_a_wait_that_is_off_fails_its_part_and_no_other(variant: str, part: str) -> None:
    found = measured({variant: 2.0})
    assert found[part].status == "failed"
    assert {name for name, each in found.items() if each.status == "failed"} - {cases.WORK} == {part}
    worst = found[part].worst
    assert worst is not None
    assert worst.what == variant


def test_what_is_off_beside_much_other_work_tells_nothing() -> None:
    assert measured({"source, tf_data, 1": 6.0}, taken_percent=60.0)[cases.SOURCE].status == "disturbed"


def test_a_twin_that_is_slower_fails_the_difference() -> None:
    assert measured({"its twin": 2.0})[cases.DIFFERENCE].status == "failed"


def test_work_that_was_not_shown_to_be_equal_fails() -> None:
    """These records have no account of their samples; a load is no excuse for that."""
    assert measured({}, taken_percent=60.0)[cases.WORK].status == "failed"


def test_a_step_that_measuring_makes_much_longer_fails_and_noise_does_not() -> None:
    bare = [1000.0 + (-1) ** i for i in range(40)]
    assert judge.of_cost(bare, [each * 1.10 for each in bare], 1.0).status == "failed"
    assert (
        judge.of_cost(bare, [each * (1 + 0.2 * (-1) ** (i // 2)) for i, each in enumerate(bare)], 1.0).status
        == "passed"
    )
    assert judge.of_cost([each / 10 for each in bare], [each / 10 * 1.15 for each in bare], 1.0).status == "passed"
