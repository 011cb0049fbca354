"""What only a GPU can show; skipped, with the reason, where TensorFlow has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_bench.model.session import Session
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.load import load

pytestmark = pytest.mark.gpu

LIST_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    done = subprocess.run([sys.executable, "-c", LIST_GPUS], capture_output=True, text=True, check=False)
    if done.returncode or int(done.stdout.split()[-1]) == 0:
        pytest.skip("TensorFlow sees no GPU here")
    folder: Path = tmp_path_factory.mktemp("gpu")
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


def test_training_on_the_gpu_learns_as_on_the_cpu(session: Session) -> None:
    for result in session.results:
        if result.backend != "ceiling":
            assert result.accuracy.after is not None
            assert result.accuracy.after > 0.8, result.variant
