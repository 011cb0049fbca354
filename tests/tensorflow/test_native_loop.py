"""Real trials whose steps a program in C runs: the same work as from Python, and the same care where it goes wrong."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline_bench import native
from pipeline_bench.backends import Input
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources import Batch
from tests.tensorflow import images
from tests.tensorflow.conftest import RunScenario
from tests.trials import losses, see_length, without_ceilings

pytestmark = pytest.mark.skipif(not isinstance(native.find(), native.Toolchain), reason=f"{native.find()}")

NATIVE = {"loop": {"kind": "native"}}
STEPS = 60


def variants(*entries: dict[str, Any], **top: Any) -> Scenario:
    document: dict[str, Any] = {
        "name": "test",
        "source": {"kind": "memory", "batch_size": 16, "features": 32},
        "model": {"hidden_widths": [16]},
        "run": {"steps": STEPS, "repeats": 1},
        "variants": list(entries),
    }
    return resolve(document | top)


def test_every_input_in_the_graph_trains_as_it_does_from_python(run_scenario: RunScenario) -> None:
    scenario = variants(
        {"name": "session", "backend": "fifo_queue"},
        {"name": "queue", "backend": "fifo_queue", **NATIVE},
        {"name": "tf_data", "backend": "tf_data", **NATIVE},
    )
    ceiling = scenario.variant("tf_data").ceiling
    found = {record.variant: record for record in run_scenario(without_ceilings(scenario, ceiling)).trials}
    reference = found["session"]
    for name in ("queue", "tf_data"):
        record = found[name]
        assert len(losses(record)) == STEPS
        np.testing.assert_allclose(losses(record), losses(reference), rtol=1e-3, err_msg=name)
        # Of the trained weights, which come back from the program: in the Python session they were never trained.
        assert record.accuracy.before == reference.accuracy.before
        assert record.accuracy.after == pytest.approx(reference.accuracy.after, abs=0.07)
        _see_its_steps(record)
        _see_its_work(record)
    assert len(losses(found[str(ceiling)])) == STEPS


def _see_its_steps(record: TrialRecord) -> None:
    """They follow each other, and a wait is part of its step."""
    assert record.steps is not None
    assert record.steps.wait_ns is not None
    start_ns, end_ns, waits = (
        series.unpack() for series in (record.steps.start_ns, record.steps.end_ns, record.steps.wait_ns)
    )
    assert (end_ns > start_ns).all()
    assert (start_ns[1:] >= end_ns[:-1]).all()
    assert (waits >= 0).all()
    assert (waits <= end_ns - start_ns).all()


def _see_its_work(record: TrialRecord) -> None:
    """The samples of the steps that were looked at are all there, each once."""
    work = record.work
    assert work is not None
    assert work.steps == STEPS
    # The first ten, one of which is looked at only where steps are long, and of the others one in `every`.
    later = sum(step % work.every == 0 for step in range(10, STEPS))
    assert work.checked_steps in (9 + later, 10 + later)
    assert work.numbered is not None
    assert (work.numbered.lost, work.numbered.repeated, work.numbered.invented) == (0, 0, 0)


@pytest.mark.slow
def test_a_trial_runs_for_its_time(run_scenario: RunScenario) -> None:
    scenario = variants({"name": "native", "backend": "tf_data", **NATIVE}, run={"time_s": 0.3, "repeats": 1})
    see_length(run_scenario(scenario).trials[0], 0.3)


def programs() -> list[psutil.Process]:
    """The programs that run below this process."""
    found = []
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if "pipeline-bench-native" in process.exe():
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def killing_the_program() -> Iterator[list[int]]:
    """Kill the first program that is seen, from a thread; gives its process id."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not (killed or ended.is_set()):
            for process in programs():
                process.send_signal(signal.SIGKILL)
                killed.append(process.pid)
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_program_that_is_killed_ends_its_trial_as_failed_and_the_next_goes_on(run_scenario: RunScenario) -> None:
    scenario = variants(
        {"name": "killed", "backend": "fifo_queue", **NATIVE},
        {"name": "good", "backend": "tf_data"},
        # A ceiling has no latency: only what is to be killed takes long.
        source={"kind": "synthetic", "batch_size": 16, "features": 32, "latency_ms": 200},
        run={"steps": 10, "repeats": 1},
    )
    with killing_the_program() as killed:
        records = {record.variant: record for record in run_scenario(scenario).trials}
    assert len(killed) >= 1
    assert records["killed"].status == "failed"
    assert "the native program was killed by SIGKILL" in (records["killed"].reason or "")
    assert records["good"].status == "ok"


@pytest.mark.slow
def test_an_input_that_stalls_is_named_with_its_empty_queue_and_no_program_is_left(run_scenario: RunScenario) -> None:
    scenario = variants(
        {"name": "native", "backend": "fifo_queue", **NATIVE},
        source={"kind": "synthetic", "batch_size": 16, "features": 32, "latency_ms": 1e6},
        run={"steps": 5, "repeats": 1, "stall_timeout_s": 3},
    )
    record = run_scenario(without_ceilings(scenario)).trials[0]
    assert record.status == "stalled"
    assert "input_queue held 0 of 5 elements" in (record.reason or "")
    assert programs() == []


def test_a_graph_that_calls_python_is_refused_by_the_name_of_its_op() -> None:
    import tensorflow as tf

    from pipeline_bench.loops.native import _check_all_in_graph

    training: Any = None
    with tf.Graph().as_default() as graph:
        tf.numpy_function(lambda: np.float32(1), [], tf.float32, name="read_it")
        with pytest.raises(PipelineBenchError, match="the graph's op read_it calls it"):
            _check_all_in_graph(graph.as_graph_def(), training)
    with tf.Graph().as_default() as graph:
        dataset = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32))
        tf.compat.v1.data.make_initializable_iterator(dataset)
        with pytest.raises(PipelineBenchError, match="PyFunc calls it"):
            _check_all_in_graph(graph.as_graph_def(), training)


def test_a_backend_that_does_not_say_how_its_input_starts_is_refused_for_that() -> None:
    """Python may have no part in it."""
    import tensorflow as tf

    from pipeline_bench.loops.native import _check_all_in_graph

    training: Any = SimpleNamespace(feeding=Input(Batch(None, None)))
    with pytest.raises(PipelineBenchError, match=r"does not say by which ops \(Input.in_graph\)"):
        _check_all_in_graph(tf.Graph().as_graph_def(), training)


@pytest.fixture
def spoiled(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of images and the one in it that is none."""
    return images.make_plain(tmp_path, 24), images.garble(tmp_path / "b" / "23.jpg")


@pytest.mark.slow
def test_a_record_that_cannot_be_decoded_is_named(run_scenario: RunScenario, spoiled: tuple[Path, Path]) -> None:
    folder, bad = spoiled
    # A thread of the program's meets it in the first, a step in the second.
    entries = [{"name": name, "backend": name, **NATIVE} for name in ("reader_queue", "tf_data")]
    for record in images.train(run_scenario, folder, *entries, steps=12, batch_size=6).trials:
        assert record.status == "failed", record.variant
        assert (record.reason or "").startswith(f"{bad} cannot be decoded: "), (record.variant, record.reason)


def test_what_the_graph_counts_comes_back_with_the_weights(
    run_scenario: RunScenario, spoiled: tuple[Path, Path]
) -> None:
    folder, bad = spoiled
    entry = {"name": "readers", "backend": "reader_queue", **NATIVE}
    record = images.train(run_scenario, folder, entry, steps=12, batch_size=6, on_error="skip").trials[0]
    assert record.status == "ok", record.reason
    assert record.work is not None
    assert record.work.skipped == 1
    assert str(bad) in record.work.skipped_records[0]
