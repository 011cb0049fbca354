"""What the loops refuse to drive, before the first trial: what was given, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench import plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.loops import Job, Loop
from pipeline_bench.scenario import Run, Runtime


def plugin(group: plugins.Group, name: str, **options: Any) -> Any:
    return plugins.find(group, name)(options)


def job(
    backend: str = "tf_data", model: str = "two_layer", source: Any = None, steps: int | None = 300, **runtime: Any
) -> Job:
    return Job(
        source or plugin("sources", "synthetic"),
        plugin("backends", backend),
        plugin("models", model),
        Runtime(**runtime),
        Run(steps=steps, time_s=None if steps else 1.0),
    )


def refusal(loop: Loop, asked: Job) -> str:
    with pytest.raises(UsageError) as caught:
        loop.check(asked)
    assert caught.value.hint
    return caught.value.message


EAGER = ["function", "keras_fit"]


@pytest.mark.parametrize("kind", ["session", "callable", "while_loop", *EAGER])
@pytest.mark.parametrize("backend", ["tf_data", "ceiling"])
def test_every_loop_drives_batches_of_the_graph(kind: str, backend: str) -> None:
    plugin("loops", kind).check(job(backend))


@pytest.mark.parametrize("kind", ["session", "callable"])
def test_what_asks_for_one_step_at_a_time_drives_any_backend_and_model(kind: str) -> None:
    plugin("loops", kind).check(job("feed_dict", "emulated", replicas=2))


def test_a_loop_of_the_graph_refuses_batches_that_come_out_of_python() -> None:
    assert "feed_dict" in refusal(plugin("loops", "while_loop"), job("feed_dict"))


@pytest.mark.parametrize("backend", ["fifo_queue", "reader_queue", "py_dataset"])
def test_a_loop_of_the_graph_takes_from_a_queue(backend: str) -> None:
    plugin("loops", "while_loop").check(job(backend))


@pytest.mark.parametrize("backend", ["feed_dict", "fifo_queue", "reader_queue", "py_dataset"])
@pytest.mark.parametrize("kind", EAGER)
def test_an_eager_loop_refuses_a_backend_that_needs_a_session(kind: str, backend: str) -> None:
    assert backend in refusal(plugin("loops", kind), job(backend))


@pytest.mark.parametrize("kind", ["while_loop", *EAGER])
@pytest.mark.parametrize("model", ["emulated", "mobilenet"])
def test_a_model_that_cannot_be_built_again_is_refused(kind: str, model: str) -> None:
    assert model in refusal(plugin("loops", kind), job(model=model))


@pytest.mark.parametrize("kind", EAGER)
def test_an_eager_loop_trains_one_replica(kind: str) -> None:
    assert "replicas = 2" in refusal(plugin("loops", kind), job(replicas=2))
    assert "replication = 'mirrored'" in refusal(plugin("loops", kind), job(replication="mirrored"))


@pytest.mark.parametrize("kind", EAGER)
def test_an_eager_loop_does_not_leave_records_out(kind: str) -> None:
    source = plugin("sources", "tfrecord", on_error="skip")
    assert "left out" in refusal(plugin("loops", kind), job(source=source))


@pytest.mark.parametrize("replication", ["mirrored", "between_graph"])
def test_a_loop_of_the_graph_drives_replicas_of_its_own_graph_only(replication: str) -> None:
    assert replication in refusal(plugin("loops", "while_loop"), job(replicas=2, replication=replication))
    plugin("loops", "while_loop").check(job(replicas=2, replication="in_graph"))


def test_keras_trains_whole_calls_and_the_message_says_how_many_steps_that_are() -> None:
    loop = plugin("loops", "keras_fit", steps_per_execution=100)
    loop.check(job(steps=300))
    loop.check(job(steps=None))
    with pytest.raises(UsageError) as caught:
        loop.check(job(steps=250))
    assert "250 steps" in caught.value.message
    assert "run.steps = 300" in caught.value.hint
