"""What a step with a tf.data service takes longer than without, in words."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.model.session import Session
from pipeline_bench.report import step_parts
from pipeline_bench.scenario.resolve import resolve
from tests.unit import records

WORKER: dict[str, Any] = {"name": "1 worker", "backend": "tf_data_service"}
LOCAL: dict[str, Any] = {"name": "local", "backend": "tf_data"}
FOUR_FILES: dict[str, Any] = {"name": "4 files", "backend": "tf_data", "options": {"interleave": 4}}
CLUSTER: dict[str, Any] = {
    "name": "a cluster",
    "backend": "tf_data_service",
    "options": {"dispatcher": "grpc://far:5000"},
}
TWO: dict[str, Any] = {"name": "2 workers", "backend": "tf_data_service", "options": {"workers": 2}}


def session(of_ms: dict[str, tuple[float, float]], *variants: dict[str, Any], noise: float = 0.001) -> Session:
    """A session whose steps take, by variant, so many ms, of which so many are a wait."""
    files = {"kind": "tfrecord", "samples": 64, "files": 4, "image_size": 8, "batch_size": 16}
    run = {"steps": 100, "repeats": 3}
    wanted = resolve({"name": "test", "source": files, "run": run, "variants": list(variants)})
    timed: dict[str, tuple[float, float | None]] = {"ceiling": (1.0, None), **of_ms}
    return records.session(wanted, records.rounds(timed, noise=noise))


def test_the_cost_of_the_crossing_is_said_beside_the_same_input_without_a_worker() -> None:
    of_ms = {"local": (5.4, 4.4), "4 files": (3.0, 2.0), "1 worker": (9.5, 8.5), "2 workers": (6.0, 5.0)}
    found = session(of_ms, LOCAL, FOUR_FILES, WORKER, TWO)
    ((name, text),) = step_parts.of_service(found)
    assert name == "1 worker"
    assert text.startswith("a step takes 4.10 ms (")
    assert text.endswith("longer than that of local, whose own process makes the same batches")


@pytest.mark.parametrize(
    ("of_ms", "variants"),
    [
        ({"local": (5.4, 0.1), "1 worker": (9.5, 0.1)}, (LOCAL, WORKER)),
        ({"4 files": (5.4, 4.4), "1 worker": (9.5, 8.5)}, (FOUR_FILES, WORKER)),
        ({"local": (5.4, 4.4), "2 workers": (9.5, 8.5)}, (LOCAL, TWO)),
        ({"local": (5.4, 4.4), "a cluster": (9.5, 8.5)}, (LOCAL, CLUSTER)),
    ],
    ids=["the model hides it", "another input", "two workers", "of any number"],
)
def test_nothing_is_said_where_the_steps_show_no_crossing(
    of_ms: dict[str, tuple[float, float]], variants: tuple[dict[str, Any], ...]
) -> None:
    assert step_parts.of_service(session(of_ms, *variants)) == []


def test_a_difference_that_may_be_none_is_not_said_to_be_a_cost() -> None:
    found = session({"local": (5.4, 4.4), "1 worker": (5.41, 4.4)}, LOCAL, WORKER, noise=0.2)
    ((_, text),) = step_parts.of_service(found)
    assert text.endswith("is not shown")


def test_a_step_with_a_worker_may_be_shorter() -> None:
    found = session({"local": (9.5, 8.5), "1 worker": (5.4, 4.4)}, LOCAL, WORKER)
    ((_, text),) = step_parts.of_service(found)
    assert text.startswith("a step takes 4.10 ms (")
    assert "-" not in text
    assert text.endswith("shorter than that of local, whose own process makes the same batches")
