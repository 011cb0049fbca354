"""What is planted on which machine, and what it must come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_bench.backends.data_loader import DataLoader
from pipeline_bench.backends.grain import Grain
from pipeline_bench.selftest import cases
from pipeline_bench.selftest.truth import LOADERS, SERVICE, Pipeline

LOADERS_OWN = {"storage, grain, 1", "storage, data_loader, 1"}


def planted(folder: Path) -> set[str]:
    cases.write_files(folder)
    found = cases.all_of(False, folder)
    assert cases.scenario(found, quick=False).variants  # every option is one that the backend has
    return {each.name for each in found}


@pytest.mark.parametrize("package", ["pathlib", "a_package_that_is_not_here"])
def test_a_loader_is_planted_where_its_package_is_installed(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loader in (Grain, DataLoader):
        monkeypatch.setattr(loader, "package", package)
    found = planted(tmp_path)
    assert LOADERS_OWN & found == (LOADERS_OWN if package == "pathlib" else set())
    assert {"loop native", "storage, tf_data_service, 1"} <= found


@pytest.mark.parametrize("pipeline", [SERVICE, *LOADERS], ids=lambda pipeline: pipeline.name)
def test_one_producer_that_is_slower_than_the_device_is_waited_for_by_the_difference(pipeline: Pipeline) -> None:
    truth = pipeline.work_out((120.0,), 0.0, 80.0)
    assert (truth.step_ms, truth.wait_ms) == pytest.approx((120.0, 40.0))
