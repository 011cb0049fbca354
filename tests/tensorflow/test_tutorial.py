"""The tutorial's job on an emulated accelerator, in real trials: it trains, on the samples it should, for as long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline_bench.scenario.load import load
from tests.tensorflow import images
from tests.tensorflow.conftest import RunScenario
from tests.trials import without_ceilings


def test_it_trains_the_same_samples_under_every_backend_and_fills_the_device_up(run_scenario: RunScenario) -> None:
    scenario = load("tutorial", ["model.step_ms=4"], run={"steps": 90, "repeats": 1})
    session = run_scenario(without_ceilings(scenario))
    assert session.environment.accelerator_name == "emulated accelerator, busy 4 ms a step"
    results = {result.variant: result for result in session.results}
    assert {result.work.status for result in results.values()} == {"equal"}
    losses = images.losses(session)
    for name, loss in losses.items():
        assert loss[-20:].mean() < 0.7 * loss[:20].mean(), name
        assert loss == pytest.approx(losses["feed_dict"], rel=1e-3), name
        after = results[name].accuracy.after
        assert after is not None
        assert after > 0.7, name


@pytest.mark.slow
def test_a_batch_takes_its_time_whoever_makes_it(run_scenario: RunScenario) -> None:
    """Also where a queue takes its samples singly, of which the first one of a batch waits."""
    entry = {"element": "sample"}
    scenario = load("tutorial", ["source.batch_ms=20", "source.features=8"], run={"steps": 15, "repeats": 1})
    variants = [
        v.model_copy(update={"options": {**v.options, **entry}} if v.backend == "fifo_queue" else {})
        for v in scenario.variants
    ]
    session = run_scenario(without_ceilings(scenario.model_copy(update={"variants": tuple(variants)})))
    for record in session.trials:
        assert record.status == "ok", record.reason
        assert record.steps is not None
        span_ms = (record.steps.end_ns.unpack()[-1] - record.steps.start_ns.unpack()[0]) / 1e6
        assert span_ms > 0.8 * 20 * (15 - 5), record.variant  # a queue's first batches were there already


@pytest.mark.parametrize("passed_s", [0.0, 10.0, -3600.0])
def test_what_has_passed_already_is_not_waited_again(passed_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is set back for summer time, an hour less than nothing has."""
    import tensorflow as tf

    from pipeline_bench import graph_ops

    asked_us: list[int] = []

    def noted(wait_us: Any) -> Any:
        def note(us: Any) -> Any:
            asked_us.append(int(us))
            return np.int32(0)

        return tf.numpy_function(note, [wait_us], tf.int32)

    monkeypatch.setattr(graph_ops, "delay", noted)
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        since_s = tf.timestamp() - passed_s
        with tf.control_dependencies([since_s]):
            took_s = graph_ops.fill_up(since_s, 5e6, "test")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            first_s = session.run(took_s)
    assert first_s >= passed_s
    assert [0 < us <= 5e6 for us in asked_us] == [True] * (passed_s < 5)
