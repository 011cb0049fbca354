"""Real trials of an emulated device: its busy time, when it is busy, and that the work is still proven."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_bench.analysis.results import summarise
from pipeline_bench.model.result import BUSY_TIME
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from tests.tensorflow.conftest import RunScenario
from tests.trials import without_ceilings

STEP_MS = 4.0
SOURCE = {"kind": "memory", "batch_size": 16, "features": 32, "samples": 100}


def scenario(*entries: dict[str, Any], source: dict[str, Any] | None = None, **run: Any) -> Scenario:
    return resolve(
        {
            "name": "emulated",
            "source": source or SOURCE,
            "model": {"kind": "emulated", "step_ms": STEP_MS},
            "run": {"steps": 60, "repeats": 1} | run,
            "variants": list(entries),
        }
    )


FETCHING = {"name": "feed_dict", "backend": "feed_dict"}
PROBING = {"name": "tf_data", "backend": "tf_data", "options": {"prefetch": 0}}


def columns_ms(record: TrialRecord) -> tuple[Any, Any, Any]:
    """Step, wait and busy time of each step."""
    assert record.status == "ok", record.reason
    assert record.steps is not None
    assert record.steps.busy_ns is not None
    took_ms = (record.steps.end_ns.unpack() - record.steps.start_ns.unpack()) / 1e6
    wait_ms = 0.0 if record.steps.wait_ns is None else record.steps.wait_ns.unpack() / 1e6
    return took_ms, wait_ms, record.steps.busy_ns.unpack() / 1e6


def test_its_steps_are_busy_as_told_and_their_utilization_is_of_that(run_scenario: RunScenario) -> None:
    """One-sided: a busy machine lengthens a wait, and what shortens it only takes back what was too long."""
    asked = scenario(FETCHING, PROBING)
    session = run_scenario(asked)
    for record in session.trials:
        took_ms, _, busy_ms = columns_ms(record)
        assert np.median(busy_ms) > 0.8 * STEP_MS, record.variant
        assert (busy_ms < took_ms).all(), record.variant
    for result in summarise(asked, session.trials, cores=2):
        assert result.emulated == "emulated accelerator, busy 4 ms a step"
        assert result.device_utilization.source == BUSY_TIME
        assert 0 < (result.device_utilization.mean_percent or 0) < 100
        assert result.loss is None
        assert result.accuracy.after is None
        assert result.missing["loss"] == result.missing["accuracy"] == "the model emulated trains nothing"
    equal = {result.variant: result.work.status for result in session.results if result.variant != "ceiling"}
    assert equal == {"feed_dict": "equal", "tf_data": "equal"}
    assert session.environment.accelerator_kind == "emulated"


def test_it_is_busy_only_once_its_batch_is_there(run_scenario: RunScenario) -> None:
    """The wait and the busy time of a synchronous input cannot overlap, so that both fit into the step."""
    slow = {"kind": "synthetic", "batch_size": 16, "features": 32, "latency_ms": 10}
    for record in run_scenario(without_ceilings(scenario(FETCHING, PROBING, source=slow, steps=30))).trials:
        took_ms, wait_ms, busy_ms = columns_ms(record)
        assert (wait_ms + busy_ms <= took_ms).all(), record.variant


def test_it_refuses_a_gpu(run_scenario: RunScenario) -> None:
    record = run_scenario(without_ceilings(scenario(FETCHING | {"runtime": {"device": "gpu:0"}}))).trials[0]
    assert record.status == "failed"
    assert "an emulated device runs on no GPU" in (record.reason or "")


@pytest.mark.parametrize("step_ms", [0.3, 30.0])
def test_a_wait_that_was_too_long_shortens_the_next(step_ms: float) -> None:
    """Against an overshoot that was planted, the steps come down to what they should take."""
    import tensorflow as tf

    from pipeline_bench import graph_ops
    from pipeline_bench.models.emulated import Emulated
    from pipeline_bench.sources import Batch

    planted_us, asked_us = 200, []
    v1 = tf.compat.v1

    def stretched(fetch: Any) -> tuple[list[Any], Any]:
        tensors = list(fetch())
        return tensors, tf.cast(tensors[0] + planted_us, tf.float64) / 1e6

    with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default():
        patch.setattr(graph_ops, "delay", lambda wait_us: wait_us)
        patch.setattr(graph_ops, "timed", stretched)
        batch = Batch(tf.zeros([4, 2]), tf.zeros([4]))
        graph = Emulated({"step_ms": step_ms}).build(batch, batch)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(4):
                asked_us.append(session.run([graph.busy_s, graph.train])[0] * 1e6)
    assert asked_us[:2] == pytest.approx([step_ms * 1000 + planted_us] * 2)  # the first one sets things up: not counted
    assert asked_us[2:] == pytest.approx([step_ms * 1000] * 2, abs=1)
