"""Real trials that prove which samples reached their model, and backends that did other work."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from pipeline_bench.analysis.speedups import fastest
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.resolve import resolve
from tests.tensorflow.conftest import RunScenario

MODEL: dict[str, Any] = {"model": {"hidden_widths": [16]}}
MEMORY: dict[str, Any] = {"source": {"kind": "memory", "batch_size": 16, "features": 32, "samples": 100}}
SYNTHETIC: dict[str, Any] = {"source": {"batch_size": 16, "features": 32}}

HONEST: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "queue", "backend": "fifo_queue"},
    {"name": "queue, 4 threads", "backend": "fifo_queue", "options": {"threads": 4}},
    {"name": "samples, 4 threads", "backend": "fifo_queue", "options": {"element": "sample", "threads": 4}},
    {"name": "tf_data", "backend": "tf_data"},
    {"name": "tf_data, no prefetch", "backend": "tf_data", "options": {"prefetch": 0}},
    {"name": "tf_data, 4 calls", "backend": "tf_data", "options": {"parallel_calls": 4}},
    {"name": "tf_data, auto", "backend": "tf_data", "options": {"parallel_calls": "auto"}},
]


@pytest.fixture(autouse=True)
def unequal_backend(faults_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline_bench import plugins

    for folder in faults_path.split(os.pathsep)[:2]:
        monkeypatch.syspath_prepend(folder)
    plugins._classes.cache_clear()


def run(run_scenario: RunScenario, source: dict[str, Any], *variants: dict[str, Any], steps: int = 60) -> Session:
    return run_scenario(
        resolve({**MODEL, **source, "name": "x", "run": {"steps": steps, "repeats": 1}, "variants": list(variants)})
    )


@pytest.mark.parametrize("source", [MEMORY, SYNTHETIC], ids=["memory", "synthetic"])
def test_every_backend_carries_the_same_samples(run_scenario: RunScenario, source: dict[str, Any]) -> None:
    session = run(run_scenario, source, *HONEST)
    for variant in HONEST:
        result = session.result(variant["name"])
        assert result.work.status == "equal", (variant["name"], result.work.text)
    for trial in session.trials:
        if trial.variant != "ceiling":
            assert trial.work is not None
            # One of the first steps may be left out, to see what checking costs on this machine.
            assert trial.work.checked_steps >= 59 // trial.work.every
            assert trial.work.samples == 16 * trial.work.checked_steps


def test_the_account_of_a_dataset_names_its_epochs(run_scenario: RunScenario) -> None:
    slow = {"source": {**MEMORY["source"], "features": 4096, "batch_size": 256}, "model": {"hidden_widths": [512]}}
    session = run(run_scenario, slow, *HONEST[:2], steps=20)
    digests = []
    for trial in session.trials[:2]:
        assert trial.work is not None
        assert trial.work.numbered is not None
        if trial.work.checked_steps == 20:  # a machine that steps faster than 12 ms looks at some steps only
            assert trial.work.numbered.whole_epochs == 51
            digests.append({epoch.digest for epoch in trial.work.numbered.epochs if epoch.samples == 100})
    assert len(set().union(*digests)) <= 1


@pytest.mark.parametrize(
    ("source", "fault", "words"),
    [
        (MEMORY, "lose", "it lost"),
        (MEMORY, "repeat", "it repeated"),
        (MEMORY, "invent", "it invented"),
        (MEMORY, "shorten", "samples each, not 16"),
        (SYNTHETIC, "repeat", "exact repetitions"),
        (SYNTHETIC, "scale", "standard deviation"),
        (SYNTHETIC, "invent", "mean"),
        (SYNTHETIC, "shorten", "samples each, not 16"),
    ],
)
def test_a_backend_that_does_other_work_is_marked_and_not_the_fastest(
    run_scenario: RunScenario, source: dict[str, Any], fault: str, words: str
) -> None:
    cheat = {"name": "cheat", "backend": "unequal", "options": {"fault": fault}}
    wide = {**source, "model": {"hidden_widths": [512]}}  # steps long enough that most are looked at
    session = run(run_scenario, wide, {"name": "honest", "backend": "feed_dict"}, cheat, steps=80)
    result = session.result("cheat")
    assert (result.work.status, result.verdict.kind) == ("unequal", "unequal-work"), result.work.text
    assert words in result.work.text
    assert session.result("honest").work.status == "equal", session.result("honest").work.text
    best = fastest(session)
    assert best is not None
    assert best.variant == "honest"


def test_queue_depths_are_sampled_while_the_model_trains(run_scenario: RunScenario) -> None:
    entry = {"name": "queue", "backend": "fifo_queue", "run": {"time_s": 1.2}}
    session = run_scenario(resolve({**MODEL, **SYNTHETIC, "name": "x", "run": {"repeats": 1}, "variants": [entry]}))
    (depth,) = session.trials[0].queue_depths
    steps = session.trials[0].steps
    assert steps is not None
    assert (depth.name, depth.capacity) == ("input_queue", 5)
    assert depth.size.count >= 2
    assert np.all((depth.size.unpack() >= 0) & (depth.size.unpack() <= 5))
    assert depth.at_ns.unpack()[0] >= steps.start_ns.unpack()[0]
