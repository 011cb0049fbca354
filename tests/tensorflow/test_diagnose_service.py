"""A pipeline whose first part runs on a tf.data service that is there: the same samples, and who falls silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil
import pytest

from pipeline_bench.diagnosis import equality
from pipeline_bench.model.fingerprint import Fingerprint
from pipeline_bench.model.pipeline import Target
from pipeline_bench.model.service_edits import DistributeToService
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.run.launcher import TrialServer
from pipeline_bench.scenario import Component, Run, Scenario, Variant
from tests.tensorflow.beside import Cluster, WhenStepping, service_cluster
from tests.trials import run

STALL_S = 8
SCRIPT = """
import numpy as np
import tensorflow as tf


def make_dataset():
    ds = tf.data.Dataset.range(4096).map(lambda number: number + 1)
    ds = ds.map(lambda number: tf.numpy_function(np.negative, [number], tf.int64))
    return ds.batch(8).repeat()
"""
READ, PYTHON = 1, 2
"""Its stages."""


@pytest.fixture
def cluster(fork_server: TrialServer, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of two workers that is there already."""
    with service_cluster(fork_server, tmp_path, 2) as found:
        yield found


def scenario(folder: Path, length: Run, **cuts: DistributeToService | None) -> Scenario:
    script = folder / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    target = Target(file=str(script), name="make_dataset")
    variants = []
    for name, cut in cuts.items():
        edits = () if cut is None else (cut,)
        task = Task(target=target, activity="drain", edits=edits, warmup_s=0.1, fingerprint=True)
        source = Component(kind=KIND, options=task.model_dump(mode="json"))
        none, drain = Component(kind="none"), Component(kind="drain")
        variants.append(Variant(name=name, backend="tf_data", source=source, model=none, loop=drain, run=length))
    return Scenario(name="service", variants=tuple(variants))


def cut(address: str, mode: Literal["OFF", "DYNAMIC"], stage: int = READ) -> DistributeToService:
    return DistributeToService(stage=stage, dispatcher=address, processing_mode=mode)


@pytest.mark.slow
def test_several_workers_give_each_sample_once_and_never_all_of_them_each(
    fork_server: TrialServer, cluster: Cluster, tmp_path: Path
) -> None:
    address = cluster.address
    wanted = scenario(
        tmp_path,
        Run(time_s=0.5, repeats=1, stall_timeout_s=30),
        written=None,
        dynamic=cut(address, "DYNAMIC"),
        off=cut(address, "OFF"),
        python=cut(address, "DYNAMIC", PYTHON),
        nobody=cut("grpc://localhost:1", "OFF"),
    )
    records = {record.variant: record for record in run(fork_server, wanted, tmp_path).trials}
    told: dict[str, Fingerprint | None] = {name: records[name].fingerprint for name in ("written", "dynamic")}
    assert told["written"] is not None
    assert told["written"].samples >= 64
    found = equality.compare(told["written"], told["dynamic"])
    assert found.status in ("identical", "reordered"), found.text
    reasons = {name: record.reason for name, record in records.items() if record.status == "failed"}
    assert reasons == {
        "off": f"The tf.data service at {address} has 2 workers, and each would give every sample",
        "python": "The pipeline runs Python functions, which tf.data service workers do not have.",
        "nobody": "No tf.data service answers at grpc://localhost:1",
    }


@pytest.mark.slow
def test_a_dispatcher_that_falls_silent_is_named_within_the_stall_timeout_and_the_rest_goes_on(
    fork_server: TrialServer, cluster: Cluster, tmp_path: Path
) -> None:
    """What the workers have of a pass still comes; the next one needs the dispatcher."""
    length = Run(time_s=30, repeats=1, stall_timeout_s=STALL_S)
    through = scenario(tmp_path, length, through=cut(cluster.address, "DYNAMIC"))
    stop = WhenStepping(lambda: psutil.Process(cluster.pids[0]).suspend())
    (record,) = run(fork_server, through, tmp_path, stop).trials
    assert record.status == "failed"
    ends = (f"does not answer, and no step came for {STALL_S} s", f"has not answered for {STALL_S} s")
    assert record.reason in [f"the dispatcher {cluster.address} {end}" for end in ends]
    after = scenario(tmp_path, Run(steps=9, repeats=1), through=cut(cluster.address, "DYNAMIC"), written=None)
    found = {each.variant: each for each in run(fork_server, after, tmp_path).trials}
    assert found["through"].reason == f"No tf.data service answers at {cluster.address}"
    assert found["written"].status == "ok", found["written"].reason
