"""Real trials over slow storage, cold and warm files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench.analysis.results import summarise
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources import page_cache
from pipeline_bench.sources.datasets import PipelineOptions, Resources, endless
from pipeline_bench.sources.page_cache import FileRange
from pipeline_bench.sources.slow_storage import SlowStorage
from tests.tensorflow import images
from tests.tensorflow.conftest import RunScenario
from tests.trials import without_ceilings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


BACKENDS: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "tf_data", "backend": "tf_data", "options": {"prefetch": 0}},
    {"name": "readers", "backend": "reader_queue"},
]


def run(
    run_scenario: RunScenario,
    folder: Path,
    *variants: dict[str, Any],
    steps: int = 12,
    ceilings: bool = False,
    **source: Any,
) -> Session:
    scenario = resolve(
        {
            "name": "test",
            "source": {"kind": "slow_storage", **source, "files": images.files(folder) | source.get("files", {})},
            "model": {"hidden_widths": [16]},
            "run": {"steps": steps, "repeats": 1, "stall_timeout_s": 20},
            "variants": list(variants),
        }
    )
    session = run_scenario(scenario if ceilings else without_ceilings(scenario))
    return session.model_copy(update={"results": summarise(scenario, session.trials, cores=2)})


@pytest.mark.slow
def test_every_backend_waits_for_its_files_and_trains_on_the_same_samples(
    run_scenario: RunScenario, folder: Path
) -> None:
    """One-sided: a busy machine lengthens a wait, and nothing shortens it by more than its own overshoot."""
    latency_ms, steps = 5.0, 12
    session = run(run_scenario, folder, *BACKENDS, latency_ms=latency_ms, steps=steps)
    for result in session.results[: len(BACKENDS)]:
        assert result.work.status == "equal", (result.variant, result.reason, result.work.text)
    for record in session.trials:
        if record.variant in ("feed_dict", "tf_data"):
            assert record.steps is not None
            assert record.steps.wait_ns is not None
            assert record.steps.wait_ns.unpack().sum() / 1e6 > 0.8 * 8 * steps * latency_ms


def test_a_file_of_many_records_comes_at_its_bandwidth(tmp_path: Path) -> None:
    """A stream's records wait one after the other: TensorFlow runs maps in parallel, and would share the waits out."""
    import tensorflow as tf

    path = tmp_path / "lines.csv"
    path.write_text("\n".join(["0.5," * 250 + "1"] * 200) + "\n", encoding="utf-8")
    source: Any = SlowStorage.make(
        {"latency_ms": 20, "bandwidth_mb_s": 0.5, "files": {"kind": "csv", "path": str(path), "batch_size": 200}}
    )
    expected_s = 0.02 + path.stat().st_size / 0.5e6
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        source.prepare(tf.compat.v1.ConfigProto())
        batch = endless(source, PipelineOptions(), Resources()).take(1).prefetch(2)
        count = batch.reduce(np.int64(0), lambda total, batch: total + tf.size(batch[0], tf.int64))
        session.run(tf.compat.v1.global_variables_initializer())
        start_s = time.monotonic()
        assert session.run(count) == source.records == 200
        assert time.monotonic() - start_s > 0.8 * expected_s


def evicts(folder: Path) -> bool:
    path = sorted(folder.rglob("*.png"))[0]
    part = FileRange(str(path), 0, path.stat().st_size)
    page_cache.evict(part, sync=True)
    return page_cache.resident_pages(part)[0] == 0


def test_cold_and_warm_files_are_so_in_every_epoch(run_scenario: RunScenario, tmp_path: Path) -> None:
    folder = images.make(tmp_path, size=24)
    if not evicts(folder):
        pytest.skip("this file system does not evict: tmpfs has no other place for its pages")
    variants = [
        {"name": state, "backend": "feed_dict", "source": {"files": {**images.files(folder), "page_cache": state}}}
        for state in ("cold", "warm")
    ]
    session = run(run_scenario, folder, *variants, latency_ms=8, steps=20)
    cold, warm = (record.storage for record in session.trials[:2])
    assert cold is not None
    assert warm is not None
    assert (cold.asked, warm.asked) == ("cold", "warm")
    assert cold.resident_share == 0
    assert warm.resident_share == 1
    assert cold.epoch_count == warm.epoch_count == 4
    for result in session.results[:2]:
        assert "page_cache" not in result.verdict.text, result.verdict.text
    # The first steps also load code from storage, now and then.
    assert sum(epoch.read_bytes or 0 for epoch in warm.epochs[2:]) < cold.epochs[1].size_bytes
    assert cold.epochs[2].read_bytes is None or cold.epochs[2].read_bytes >= 0.9 * cold.epochs[2].size_bytes


def test_a_ceiling_reads_no_files(run_scenario: RunScenario, folder: Path) -> None:
    session = run(run_scenario, folder, BACKENDS[0], steps=3, ceilings=True)
    assert [record.storage is not None for record in session.trials] == [True, False]
