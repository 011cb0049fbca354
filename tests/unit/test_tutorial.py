"""The scenario of a machine without a GPU: the tutorial's job, its network included, on an emulated accelerator."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.model import Series
from pipeline_bench.model.trial import plan
from pipeline_bench.report import facts
from pipeline_bench.scenario.load import load
from tests.unit import records
from tests.unit.test_emulated import MS, emulated


def test_it_is_the_tutorials_job_but_for_the_width_and_for_the_times_that_are_planted() -> None:
    planted, real = load("tutorial").variants[1], load("two_layer").variants[1]
    assert (planted.backend, planted.options, planted.loop) == (real.backend, real.options, real.loop)
    timing = {"batch_ms"}
    assert {k: v for k, v in planted.source.options.items() if k not in timing} == {
        k: v for k, v in real.source.options.items() if k not in timing
    }
    assert planted.model.options["learning_rate"] == real.model.options["learning_rate"]
    assert load("tutorial").published == load("two_layer").published


def test_what_is_planted_gives_the_published_utilization_without_a_queue_and_no_less_than_that_with_one() -> None:
    scenario = load("tutorial")
    assert scenario.published is not None
    busy_ms = scenario.variants[0].model.options["step_ms"]
    input_ms = scenario.variants[0].source.options["batch_ms"]
    fed, queued = scenario.published.figures
    for figure in (fed, queued):
        assert figure.seconds is not None
        assert figure.device_utilization_percent is not None
        published_busy_ms = figure.seconds / scenario.published.steps * 1000 * figure.device_utilization_percent / 100
        assert busy_ms == pytest.approx(published_busy_ms, rel=0.15)
    assert queued.seconds is not None
    assert input_ms <= queued.seconds / scenario.published.steps * 1000  # a queue cannot be faster than its input
    assert 100 * busy_ms / (input_ms + busy_ms) >= (fed.device_utilization_percent or 0)  # Python comes on top
    assert 100 * busy_ms / max(input_ms, busy_ms) >= (queued.device_utilization_percent or 0)


def test_the_time_of_a_batch_is_no_part_of_the_ceiling() -> None:
    ceiling = load("tutorial").variant("ceiling")
    assert ceiling.source.options["batch_ms"] is None


@pytest.mark.parametrize("setting", ["source.batch_ms=0", "source.batch_ms=nan", "model.step_ms=0.1"])
def test_a_time_that_cannot_be_planted_is_refused(setting: str) -> None:
    with pytest.raises(ScenarioError, match=setting.partition("=")[0]):
        load("tutorial", [setting])


def test_the_model_trains_and_emulates() -> None:
    model = plugins.find("models", "emulated_two_layer")({"step_ms": 2.0})
    assert model.trains  # type: ignore[attr-defined]
    assert model.emulated_device == "emulated accelerator, busy 2 ms a step"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("busy_ms", "said"), [(1.1, False), (1.12, False), (1.4, True)])
def test_a_host_that_does_not_keep_up_with_its_device_is_told(busy_ms: float, said: bool) -> None:
    scenario = load("tutorial", run={"steps": 100, "repeats": 2})
    found = []
    for trial in plan(scenario):
        record = emulated(records.record(trial.variant.name, trial.repeat, 4.0, 1.0), 1.1)
        assert record.steps is not None
        if trial.variant.name == "tf_data":
            busy = Series.pack(np.full(record.steps.count, round(busy_ms * MS), dtype=np.int64))
            record = record.model_copy(update={"steps": record.steps.model_copy(update={"busy_ns": busy})})
        found.append(record)
    session = records.session(scenario, found)
    told = facts.busy_time(session) or ""
    assert ("because the host was too slow: tf_data's 1.40 ms a step, not 1.1 ms" in told) == said
    assert "feed_dict's" not in told
