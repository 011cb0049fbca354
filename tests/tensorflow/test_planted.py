"""What the selftest plants does what it is taken for, in real trials; how right figures are is measured, not tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.accuracy.cases import BURST
from benchmarks.accuracy.loads import running
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.selftest import cases, on_gpu
from tests.tensorflow.conftest import RunScenario
from tests.trials import without_ceilings


@pytest.mark.parametrize(
    "name",
    [
        "a backend that cheats",
        "copy, tf_data, 1",
        pytest.param("loop function of 10", marks=pytest.mark.slow),
        pytest.param("loop native", marks=pytest.mark.slow),
        pytest.param("storage, tf_data_service, 1", marks=pytest.mark.slow),
    ],
)
def test_planted_variants_train_and_the_cheat_is_caught(name: str, run_scenario: RunScenario, tmp_path: Path) -> None:
    cases.write_files(tmp_path / "files")
    (planted,) = [each for each in cases.all_of(False, tmp_path / "files") if each.name == name]
    session = run_scenario(without_ceilings(cases.scenario([planted], quick=True)))
    (found,) = session.results
    assert found.status == "ok", found.reason
    assert found.work.status == ("unequal" if planted.cheats else "equal"), found.work.text
    if planted.cheats:
        assert found.verdict.kind == "unequal-work"


_BURSTS = (
    "import time\nwhile True:\n end = time.monotonic() + 0.4\n while time.monotonic() < end: pass\n time.sleep(0.6)\n"
)


@pytest.mark.slow
def test_bursts_of_the_input_stay_in_where_bursts_of_other_work_are_left_out(run_scenario: RunScenario) -> None:
    """A batch takes 4 ms to read, most of it in each fifth one, beside a device of 10 ms; others use cores at times."""
    document = {
        "name": "bursty",
        "source": {"kind": "planted", "read_ms": [4.0 * part for part in BURST]},
        "model": {"kind": "emulated", "step_ms": 10.0},
        "loop": {"kind": "planted_host"},
        "run": {"steps": 100, "repeats": 3},
        "variants": [{"name": "feed_dict", "backend": "feed_dict"}],
    }
    with running((_BURSTS, os.cpu_count() or 1)):
        session = run_scenario(resolve(document))
    found = session.result("feed_dict")
    assert found.input_wait_share.value == pytest.approx(4 / 14, abs=0.06)
    assert found.verdict.kind == "input-bound"
    assert found.step_ms.p95 is not None
    assert found.step_ms.p95 >= 20  # the fifth batch takes 13.6 ms


@pytest.mark.slow
def test_what_real_trainings_show_is_read_as_that_of_a_gpu_is(run_scenario: RunScenario) -> None:
    """The CPU stands in for the GPU; the matrices of matpow are those that a CPU multiplies in time."""
    ways = {"session", "function", "mirrored", "matpow"}
    variants = []
    for each in on_gpu.every_way("cpu", 1).variants:
        if each.name in ways:
            options = {**each.model.options, **({"size": 32} if each.name == "matpow" else {})}
            model = each.model.model_copy(update={"options": options})
            run = each.run.model_copy(update={"time_s": 0.3})
            variants.append(each.model_copy(update={"model": model, "run": run}))
    assert {variant.name for variant in variants} == ways
    scenario = on_gpu.every_way("cpu", 1).model_copy(update={"variants": tuple(variants)})
    session = run_scenario(scenario)
    parts = {part.name: part for part in on_gpu.parts_of_every_way(session, "cpu")}
    for name in (cases.TRAINING, cases.PLACED, cases.MIRRORED):
        assert parts[name].status == "passed", parts[name]
    placed = {check.what: check.measured_word for check in parts[cases.PLACED].checks}
    assert placed == dict.fromkeys(ways, "CPU:0")
