"""Real trials that prove which samples reached their model, and backends that did other work."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

from pipeline_bench import plugins
from pipeline_bench.analysis.speedups import fastest
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources.datasets import PipelineOptions, reorder_window
from tests.tensorflow.conftest import RunScenario
from tests.trials import alone, selected

MODEL: dict[str, Any] = {"model": {"hidden_widths": [16]}}
MEMORY: dict[str, Any] = {"source": {"kind": "memory", "batch_size": 16, "features": 32, "samples": 100}}
LONG_STEPS: dict[str, Any] = {"model": {"kind": "emulated", "step_ms": 15}}
"""Of steps of less than 12 ms only some are looked at."""
SYNTHETIC: dict[str, Any] = {"source": {"batch_size": 16, "features": 32}}

HONEST: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "queue, 4 threads", "backend": "fifo_queue", "options": {"threads": 4}},
    {"name": "samples, 4 threads", "backend": "fifo_queue", "options": {"element": "sample", "threads": 4}},
    {"name": "tf_data, 4 calls", "backend": "tf_data", "options": {"parallel_calls": 4}},
]


def run(run_scenario: RunScenario, source: dict[str, Any], *variants: dict[str, Any], steps: int = 60) -> Session:
    return run_scenario(alone(*variants, run={"steps": steps}, **{**MODEL, **source}))


@pytest.mark.slow
def test_every_backend_carries_the_same_samples(run_scenario: RunScenario) -> None:
    session = run(run_scenario, MEMORY, *HONEST)
    for variant in HONEST:
        result = session.result(variant["name"])
        assert result.work.status == "equal", (variant["name"], result.work.text)
    for trial in session.trials:
        assert trial.work is not None
        # One of the first steps may be left out, to see what checking costs on this machine.
        assert trial.work.checked_steps >= 59 // trial.work.every
        assert trial.work.samples == 16 * trial.work.checked_steps


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_parallel_map_holds_back_as_many_batches_as_are_in_flight(calls: int) -> None:
    import tensorflow as tf

    count, others = itertools.count(), threading.Event()

    def number(position: Any) -> int:
        if position == 5 and calls > 1:
            others.wait(60)
        with lock:
            found = next(count)
        if found == 5 + calls - 1:
            others.set()
        return found

    lock = threading.Lock()
    positions = tf.data.Dataset.range(20)
    data = positions.map(lambda position: tf.py_function(number, [position], tf.int64), num_parallel_calls=calls)
    numbers = [int(each) for each in data.as_numpy_iterator()]
    held_back = max(max(numbers[:taken]) + 1 - taken for taken in range(1, len(numbers) + 1))
    source = resolve({"name": "x", **MEMORY, "variants": [HONEST[0]]}).baseline.source
    made = plugins.make("sources", source.kind, source.options)
    assert held_back * 16 == reorder_window(made, PipelineOptions(parallel_calls=calls))


def test_the_account_of_a_dataset_names_its_epochs(run_scenario: RunScenario) -> None:
    slow = {"source": {**MEMORY["source"], "batch_size": 256}, **LONG_STEPS}
    session = run(run_scenario, slow, *HONEST[:2], steps=20)
    digests = set()
    for trial in session.trials:
        assert trial.work is not None
        assert trial.work.numbered is not None
        if trial.work.checked_steps == 20:
            assert trial.work.numbered.whole_epochs == 51
            digests |= {epoch.digest for epoch in trial.work.numbered.epochs if epoch.samples == 100}
    assert len(digests) == 1


SOURCES = {"memory": MEMORY, "synthetic": SYNTHETIC}
CHEATS = {
    "memory": {
        "lose": "it lost",
        "repeat": "it repeated",
        "invent": "it invented",
        "shorten": "samples each, not 16",
        "unmeasured": "its steps brought 8 samples each, not 16",
    },
    "synthetic": {
        "repeat": "exact repetitions",
        "scale": "standard deviation",
        "invent": "mean",
        "shorten": "samples each, not 16",
    },
}
"""The faults of a backend that can be seen with each source, and what is said of them."""
BROADER = {("memory", "invent"), ("memory", "shorten"), ("synthetic", "invent"), ("synthetic", "shorten")}
"""Faults whose words are told of an account by hand in tests/unit/analysis/test_validity_of_work.py."""
CHEATED = [
    pytest.param(source, fault, marks=pytest.mark.slow if (source, fault) in BROADER else ())
    for source, faults in CHEATS.items()
    for fault in faults
]


@pytest.fixture(scope="module")
def cheated(
    request: pytest.FixtureRequest, faulty_backends: None, run_scenario_once: RunScenario
) -> dict[str, Session]:
    """For each source a session with the honest variant and every cheat that is asked for."""
    honest, asked = {"name": "honest", "backend": "feed_dict"}, selected(request, "fault")
    found = {}
    for source, given in SOURCES.items():
        cheats = [cheat(fault) for fault in CHEATS[source] if fault in asked]
        found[source] = run(run_scenario_once, {**given, **LONG_STEPS}, honest, *cheats, steps=24)
    return found


def cheat(fault: str) -> dict[str, Any]:
    return {"name": fault, "backend": "unequal", "options": {"fault": fault}}


@pytest.mark.parametrize(("source", "fault"), CHEATED)
def test_a_backend_that_does_other_work_is_marked(cheated: dict[str, Session], source: str, fault: str) -> None:
    result = cheated[source].result(fault)
    assert (result.work.status, result.verdict.kind) == ("unequal", "unequal-work"), result.work.text
    assert CHEATS[source][fault] in result.work.text


@pytest.mark.parametrize("source", SOURCES)
def test_no_cheat_is_the_fastest(cheated: dict[str, Session], source: str) -> None:
    assert cheated[source].result("honest").work.status == "equal", cheated[source].result("honest").work.text
    best = fastest(cheated[source])
    assert best is not None
    assert best.variant == "honest"


def test_queue_depths_are_sampled_while_the_model_trains(run_scenario: RunScenario) -> None:
    # Asked four times a second; on a busy machine one answer took longer than a second.
    entry = {"name": "queue", "backend": "fifo_queue", "run": {"time_s": 3}}
    session = run_scenario(alone(entry, **LONG_STEPS, **SYNTHETIC))
    (depth,) = session.trials[0].queue_depths
    steps = session.trials[0].steps
    assert steps is not None
    assert (depth.name, depth.capacity) == ("input_queue", 5)
    assert depth.size.count >= 2
    assert np.all((depth.size.unpack() >= 0) & (depth.size.unpack() <= 5))
    assert depth.at_ns.unpack()[0] >= steps.start_ns.unpack()[0]
