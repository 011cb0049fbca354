"""What only a GPU can show; skipped, with the reason, where TensorFlow has none."""

from __future__ import annotations

import pytest

from pipeline_bench.model.session import Session
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.load import load
from tests.tensorflow.conftest import RunScenario

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def session(run_scenario_once: RunScenario, tmp_path_factory: pytest.TempPathFactory) -> Session:
    tried = run_scenario_once(load("two_layer", ["runtime.device=gpu:0"], ["ceiling"], run={"steps": 1, "repeats": 1}))
    if tried.trials[0].status != "ok":
        pytest.skip(f"TensorFlow has no GPU here: {tried.trials[0].reason}")
    folder = tmp_path_factory.mktemp("gpu")
    return compare(load("two_layer", run={"steps": 1000, "repeats": 1}), folder, Observer()).session


def test_every_trial_trains_on_the_gpu(session: Session) -> None:
    assert {trial.status for trial in session.trials} == {"ok"}
    assert {trial.device.kind for trial in session.trials if trial.device} == {"gpu"}


def test_utilization_is_nvmls_and_of_the_gpu_that_tensorflow_used(session: Session) -> None:
    for result in session.results:
        utilization = result.device_utilization
        assert utilization.source is not None
        assert utilization.source.startswith("NVML"), (result.variant, utilization.reason)
        assert utilization.mean_percent is not None
        assert 0 < utilization.mean_percent <= 100


def test_the_copy_of_a_batch_is_measured(session: Session) -> None:
    assert "ceiling, copied" in session.scenario.ceilings
    for result in session.results:
        if result.verdict.kind != "ceiling":
            copy = result.device_copy
            assert copy.ms.value is not None, (result.variant, copy.ms.reason)
            assert (copy.share.value is None) == (result.backend == "tf_data"), (result.variant, copy.share.reason)


def test_training_on_the_gpu_learns_as_on_the_cpu(session: Session) -> None:
    for result in session.results:
        if result.verdict.kind != "ceiling":
            assert result.accuracy.after is not None
            assert result.accuracy.after > 0.8, result.variant
