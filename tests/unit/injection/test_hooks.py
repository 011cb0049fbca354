"""What the watching of a process makes of what its program calls."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_bench.injection import patches, process_records
from pipeline_bench.injection.hooks import Watched
from pipeline_bench.injection.loop_locations import Line, Loop
from pipeline_bench.injection.watched_loops import WatchedLoops
from pipeline_bench.monitoring.calls import TrainingCalls
from tests.unit.monitoring.test_calls import GAP_NS, STEP_NS, at, loop

__all__ = ["at"]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """That of this process, which leaves nothing in its forks nor at its end."""
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    watched = Watched(tmp_path / "records", tmp_path, (os.getpid(), str(tmp_path)))
    yield watched
    watched.end()
    atexit.unregister(watched.end)


@pytest.mark.parametrize(
    ("forks", "problem", "records"), [(False, None, 1), (True, None, 0), (True, "it trains so", 1)]
)
def test_a_fork_leaves_a_record_only_if_it_has_something_to_tell(
    forks: bool, problem: str | None, records: int, watched: Watched, tmp_path: Path
) -> None:
    """Each epoch of a DataLoader may fork 16 workers."""
    if forks:
        watched._forked()
    if problem is not None:
        watched.problem(problem)
    watched.end()
    assert len(list((tmp_path / "records").glob("*"))) == records


@pytest.mark.parametrize("is_fork", [False, True])
def test_a_fork_that_is_the_first_to_import_a_framework_has_no_command_for_a_diagnosis(
    is_fork: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    watched = Watched(tmp_path / "records", tmp_path, (os.getpid() + is_fork, "/where/it/began"))
    atexit.unregister(watched.end)
    watched.end()
    (path,) = (tmp_path / "records").glob("*.json")
    record = json.loads(path.read_text())
    assert (record["command"] == []) is is_fork
    assert record["folder"] == "/where/it/began"


@pytest.mark.parametrize(("calls", "told"), [(400, True), (3, False)])
def test_a_training_by_backward_on_what_no_loop_gives_is_said_to_be_unwatched(
    calls: int, told: bool, watched: Watched, tmp_path: Path
) -> None:
    """And no look at a picture or two."""
    for _ in range(calls):
        watched.see(WatchedLoops.see_backward)
    watched.end()
    (path,) = (tmp_path / "records").glob("*.json")
    problem = json.loads(path.read_text())["problem"]
    assert ("400 calls of backward" in (problem or "")) is told


@pytest.mark.parametrize(("trains", "told"), [(True, False), (False, True)])
def test_what_trains_by_backward_is_said_to_be_unwatched_also_beside_a_loop_that_only_reads(
    trains: bool, told: bool
) -> None:
    loops = WatchedLoops()
    loops.unfed_backward = 400
    assert (process_records.unseen([{"trains": trains}], loops, tapes=False) is not None) is told
    assert process_records.unseen([{}], loops, tapes=False) is None, "a fit trains"
    loops._unwatched[Loop(Line("train.py", 9))] = None
    assert process_records.unseen([{"trains": trains}], loops, tapes=False) is None, "that may be what trains"


@pytest.mark.parametrize(("weights", "waited"), [(["kernel"], 9 / 20), ([], 19 / 20)])
def test_what_a_model_that_learns_computes_between_two_steps_is_no_input_wait(
    weights: list[str], waited: float, watched: Watched, at: list[int]
) -> None:
    """As the generator's pictures, by `generator(noise)`; layers that augment a batch are a part of making it."""

    def calls_model(training: TrainingCalls, _: int) -> None:
        def compute() -> str:
            at[0] += 10 * STEP_NS
            return "pictures"

        watched.__dict__["_training_calls"] = training
        assert watched.model_call(SimpleNamespace(trainable_weights=weights), compute) == "pictures"

    monitor = loop(at, calls_model)
    monitor.close()
    assert monitor.summary.input_wait_share == pytest.approx(waited, abs=0.01)


@pytest.mark.parametrize(("every", "waited", "beside_ns"), [(1, 9 / 20, 0), (10, 9 / 10, 3 * (10 * STEP_NS + GAP_NS))])
def test_an_evaluation_ends_a_step_and_is_a_part_of_it_where_it_comes_in_every_step(
    every: int, waited: float, beside_ns: int, watched: Watched, at: list[int]
) -> None:
    class Model:
        def fit(self, x: object = None, callbacks: object = None) -> None:
            """Train."""

        def evaluate(self) -> float:
            at[0] += 10 * STEP_NS
            return 0.5

        predict = test_on_batch = predict_on_batch = train_on_batch = __call__ = evaluate

    keras = SimpleNamespace(
        __name__="keras",
        Model=Model,
        callbacks=SimpleNamespace(CallbackList=tuple),
        backend=SimpleNamespace(backend=lambda: "tensorflow"),
        layers=SimpleNamespace(),
    )
    patches.apply(keras, watched)

    def evaluates(training: TrainingCalls, number: int) -> None:
        watched.__dict__["_training_calls"] = training
        if number % every == every - 1:
            assert Model().evaluate() == 0.5

    monitor = loop(at, evaluates)
    monitor.close()
    assert monitor.summary.steps >= 30
    assert monitor.summary.input_wait_share == pytest.approx(waited, abs=0.02)
    assert monitor.beside_ns == beside_ns


def test_a_model_that_does_not_know_its_weights_before_its_first_call_is_no_problem(
    watched: Watched, at: list[int]
) -> None:
    """As one of Keras 2, which is built by its first call: that of the first step, or between two."""

    class Unbuilt:
        @property
        def trainable_weights(self) -> list[str]:
            raise ValueError("Weights for model 'sequential' have not yet been created.")

    def calls_model(training: TrainingCalls, _: int) -> None:
        watched.__dict__["_training_calls"] = training
        training.enter_tape()
        assert watched.model_call(Unbuilt(), lambda: "logits") == "logits"
        training.leave_tape()
        assert watched.model_call(Unbuilt(), lambda: "pictures") == "pictures"

    loop(at, calls_model).close()
    assert watched._problem is None
