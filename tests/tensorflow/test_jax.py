"""Keras on JAX and on PyTorch: the monitor of a `fit` and a diagnosis measure what tf.data or a PyDataset feeds it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

DELAY_S = 0.02
SCRIPT = f"""
import json, sys, time
import numpy as np, keras, tensorflow as tf
from pipeline_bench.keras import StarvationMonitor

class Batches(keras.utils.PyDataset):
    def __len__(self): return 20
    def __getitem__(self, index):
        time.sleep({DELAY_S})
        return np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)

def slowly():
    for index in range(20): yield Batches()[index]

spec = tf.TensorSpec([4, 3]), tf.TensorSpec([4, 1])
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
found = {{}}
for name, data in (
    ("py_dataset", Batches()),
    ("tf_data", tf.data.Dataset.from_generator(slowly, output_signature=spec)),
    ("fast", tf.data.Dataset.from_tensors((np.ones((4, 3)), np.ones((4, 1)))).repeat(20)),
):
    monitor = StarvationMonitor(out=None, quiet=True)
    model.fit(data, epochs=2, verbose=0, callbacks=[monitor])
    figures = monitor.figures
    found[name] = [figures.steps, figures.input_wait_ms, figures.input_wait_share, list(monitor.session.notes)]
json.dump(found, open(sys.argv[1], "w"))
"""


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=needs_jax), pytest.param("torch", marks=needs_torch)])
def test_a_fit_on_another_backend_is_measured_and_what_its_wait_means_is_said(tmp_path: Path, backend: str) -> None:
    file = tmp_path / "found.json"
    environment = {**os.environ, "KERAS_BACKEND": backend}
    subprocess.run([sys.executable, "-c", SCRIPT, str(file)], check=True, env=environment, timeout=200)
    found = json.loads(file.read_text())
    for name in ("py_dataset", "tf_data"):
        steps, wait_ms, share, _ = found[name]
        assert steps == 36, f"{name}: all but the warm-up, in which the step is traced"
        assert wait_ms > 500 * DELAY_S, f"{name}: each batch is waited for, but while the step before it runs"
        assert share > 0.2
    assert found["fast"][1] < found["py_dataset"][1]
    # On PyTorch a step of a CPU's has ended as the next batch is asked for.
    assert any("the device may still be at work" in note for note in found["fast"][3]) == (backend == "jax")
