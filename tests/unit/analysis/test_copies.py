"""The copy of a batch to the device: copies of known length, in trials that say that they ran on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pipeline_bench.analysis.copies import with_host_ceilings, with_host_ceilings_asked_for
from pipeline_bench.analysis.precision import next_trial
from pipeline_bench.hosts import ranks
from pipeline_bench.model.result import DeviceCopy, Result
from pipeline_bench.model.session import Session
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records

COPIED = "ceiling, copied"
COMPUTE_MS, COPY_MS = 4.0, 2.0


def pair(**runtime: Any) -> Scenario:
    """tf_data, whose copies are made ahead or in the step, beside their one ceiling."""
    variants = [
        {"name": name, "backend": "tf_data", "options": {"device_prefetch": ahead}}
        for name, ahead in (("in the step", False), ("ahead", True))
    ]
    return resolve({"name": "pair", "run": {"steps": 100}, "runtime": runtime, "variants": variants})


def begun(scenario: Scenario, *, gpu: bool = True) -> Session:
    """The session after the first trial of every variant."""
    names = [variant.name for variant in scenario.variants]
    return records.session(scenario, [records.record(name, 0, 5.0, 0.0, gpu=gpu) for name in names])


def measured(
    of_ms: Mapping[str, tuple[float, float | None]], *, gpu: bool = True, repeats: int = 3
) -> dict[str, Result]:
    scenario = with_host_ceilings(begun(pair())).scenario
    trials = [
        records.record(name, repeat, *ms, gpu=gpu, noise=0.002)
        for repeat in range(repeats)
        for name, ms in of_ms.items()
    ]
    return {result.variant: result for result in records.session(scenario, trials).results}


def planted(own: str, step_ms: float, wait_ms: float = 0.0, copy_ms: float = COPY_MS) -> DeviceCopy:
    """The copy of one variant, of steps of that length, beside ceilings that a copy of `copy_ms` lies between."""
    others = {"ceiling": (COMPUTE_MS, None), COPIED: (COMPUTE_MS + copy_ms, None)}
    return measured({own: (step_ms, wait_ms), **others})[own].device_copy


# --- which trials measure it -----------------------------------------------------------------------------------------


def test_a_ceiling_whose_model_is_on_a_gpu_gets_a_host_ceiling_after_the_first_round() -> None:
    session = with_host_ceilings(begun(pair()))
    added = session.scenario.variant(COPIED)
    assert added.backend == "host_ceiling"
    assert added.is_ceiling
    assert added.model_copy(update={"name": "ceiling", "backend": "ceiling"}) == session.scenario.variant("ceiling")
    trial = next_trial(session)
    assert trial is not None
    assert (trial.variant.name, trial.repeat, trial.index) == (COPIED, 0, 3)
    assert with_host_ceilings(session) is session


def test_nothing_is_added_without_a_gpu_or_in_the_middle_of_the_first_round() -> None:
    on_cpu = begun(pair(), gpu=False)
    assert with_host_ceilings(on_cpu) is on_cpu
    early = begun(pair())
    early = early.model_copy(update={"trials": early.trials[:-1]})
    assert with_host_ceilings(early) is early


def test_ranks_that_ask_for_a_gpu_have_the_host_ceilings_in_their_plan_from_the_start() -> None:
    asked = with_host_ceilings_asked_for(pair(device="gpu"))
    assert asked.variants == with_host_ceilings(begun(pair(device="gpu"))).scenario.variants
    assert [slot.ranks for slot in ranks.slots(asked, 2) if slot.variant == COPIED] == [(0, 1)] * 3
    of_first = ranks.of_rank(asked, 2, 0)
    step_ms = {"in the step, alone": 7.0, "ahead, alone": 5.0, "ceiling": COMPUTE_MS, COPIED: COMPUTE_MS + COPY_MS}
    trials = [
        records.record(name, repeat, ms, 0.0 if "alone" in name else None, gpu=True, noise=0.002)
        for repeat in range(3)
        for name, ms in step_ms.items()
    ]
    found = records.session(of_first, trials)
    assert found.result("in the step, alone").device_copy.ms.value == pytest.approx(COPY_MS, rel=0.05)
    assert found.result("ahead, alone").device_copy.gain.over == "in the step, alone"
    nowhere = pair()
    assert with_host_ceilings_asked_for(nowhere) is nowhere


def test_replicas_have_no_host_ceiling() -> None:
    replicas = begun(pair(replicas=2))
    assert with_host_ceilings(replicas) is replicas
    copy = replicas.results[0].device_copy
    assert copy.ms.value is None
    assert "replica" in (copy.ms.reason or "")


# --- what it comes to ------------------------------------------------------------------------------------------------


def test_a_copy_that_the_step_makes_is_a_part_of_its_host_slowdown() -> None:
    others = {"ceiling": (COMPUTE_MS, None), COPIED: (COMPUTE_MS + COPY_MS, None)}
    result = measured({"in the step": (8.0, 1.0), **others})["in the step"]
    copy = result.device_copy
    assert copy.ms.value == pytest.approx(COPY_MS, rel=0.02)
    assert copy.share.value == pytest.approx(COPY_MS / 8, rel=0.02)
    assert copy.share.ci95 is not None
    assert copy.share.ci95[0] < COPY_MS / 8 < copy.share.ci95[1]
    assert result.host_slowdown_share.value == pytest.approx(3 / 8, rel=0.02)
    assert "the copy of the batch to the device (25 %)" in result.verdict.text
    assert copy.overlapped_share.value is None
    assert copy.overlapped_share.reason


def test_a_copy_that_the_step_has_no_room_for_is_another_one() -> None:
    copy = planted("in the step", COMPUTE_MS + COPY_MS / 4)
    assert copy.ms.value is None
    assert copy.share.value is None
    assert "pageable" in (copy.share.reason or "")


@pytest.mark.parametrize(("step_ms", "wait_ms", "overlapped"), [(4.0, 0.0, 1.0), (5.0, 1.0, 0.5), (9.0, 5.0, 0.0)])
def test_a_copy_ahead_overlaps_as_far_as_the_step_comes_near_its_ceiling(
    step_ms: float, wait_ms: float, overlapped: float
) -> None:
    copy = planted("ahead", step_ms, wait_ms)
    assert copy.ms.value == pytest.approx(COPY_MS, rel=0.02)
    assert copy.share.value is None
    assert copy.share.reason
    assert copy.overlapped_share.value == pytest.approx(overlapped, abs=0.02)
    assert copy.overlapped_share.ci95 is not None
    assert copy.overlapped_share.ci95[0] <= overlapped <= copy.overlapped_share.ci95[1]


def test_of_a_copy_that_is_as_short_as_noise_nothing_is_said_to_overlap() -> None:
    copy = planted("ahead", 4.0, copy_ms=0.02)
    assert copy.overlapped_share.value is None
    assert "too short" in (copy.overlapped_share.reason or "")


def test_what_copying_ahead_gains_is_over_the_variant_that_differs_in_nothing_else() -> None:
    others = {"ceiling": (COMPUTE_MS, None), COPIED: (COMPUTE_MS + COPY_MS, None)}
    found = measured({"in the step": (6.0, 0.0), "ahead": (4.0, 0.0), **others})
    gain = found["ahead"].device_copy.gain
    assert gain.over == "in the step"
    assert gain.value == pytest.approx(1.5, rel=0.02)
    assert found["in the step"].device_copy.gain.value is None


def test_a_model_on_the_cpu_has_no_copy_and_says_so() -> None:
    copy = measured({"in the step": (8.0, 1.0), "ceiling": (COMPUTE_MS, None)}, gpu=False)["in the step"].device_copy
    for figure in (copy.ms, copy.share, copy.overlapped_share, copy.gain):
        assert figure.value is None
        assert figure.reason == "the model is on the CPU: its batch is not copied"


def test_one_round_has_no_interval_and_a_missing_host_ceiling_is_a_reason() -> None:
    others = {"ceiling": (COMPUTE_MS, None), COPIED: (COMPUTE_MS + COPY_MS, None)}
    copy = measured({"in the step": (8.0, 1.0), **others}, repeats=1)["in the step"].device_copy
    assert copy.share.value == pytest.approx(COPY_MS / 8, rel=0.02)
    assert copy.share.ci95 is None
    assert copy.share.reason
    missing = measured({"in the step": (8.0, 1.0), "ceiling": (COMPUTE_MS, None)})["in the step"].device_copy
    assert missing.share.value is None
    assert "host memory" in (missing.share.reason or "")
