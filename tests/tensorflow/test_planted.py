"""What the selftest plants does what it is taken for, in real trials; how right figures are is measured, not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.selftest import cases
from tests.tensorflow.conftest import RunScenario
from tests.trials import without_ceilings


@pytest.mark.parametrize(
    "name",
    [
        "a backend that cheats",
        "copy, tf_data, 1",
        "loop function of 10",
        "loop native",
        "storage, tf_data_service, 1",
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
