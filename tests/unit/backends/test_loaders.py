"""grain and PyTorch's DataLoader before anything runs: what is refused, what is missing, and a source in a worker."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_bench import plugins
from pipeline_bench.backends import data_loader, loaders
from pipeline_bench.errors import ScenarioError, UsageError
from pipeline_bench.run.comparison import prepare_data, without_unavailable
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.sources import RecordError
from tests.tensorflow import images

NAMES = ("grain", "data_loader")


def scenario(*backends: str, source: dict[str, Any] | None = None, **options: Any) -> Scenario:
    variants = [{"backend": name, "options": options} for name in backends]
    return resolve({"name": "x", "source": source or {"kind": "memory"}, "variants": variants})


@pytest.mark.parametrize(("missing", "said"), [("grain", '".[grain]"'), ("torch", "pip install torch")])
def test_a_library_that_is_not_there_leaves_its_variants_out(
    missing: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    found = without_unavailable(scenario("tf_data", *NAMES))
    left = {variant.backend for variant in found.variants if not variant.is_ceiling}
    assert len(left) == 2
    (note,) = found.notes
    assert said in note
    with pytest.raises(UsageError, match="none of the scenario's variants"):
        without_unavailable(scenario("grain" if missing == "grain" else "data_loader"))


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kind": "synthetic"}, "asks for samples by their number"),
        ({"kind": "generator"}, "asks for samples by their number"),
        ({"kind": "tfrecord", "on_error": "skip"}, "cannot leave a record out"),
    ],
)
def test_a_source_without_numbers_is_refused(backend: str, source: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepare_data(scenario(backend, source=source), Observer())


def test_a_prefetch_factor_without_workers_is_refused() -> None:
    with pytest.raises(ScenarioError, match="num_workers is 0"):
        scenario("data_loader", prefetch_factor=2)


def test_a_source_that_crosses_to_a_worker_has_its_samples_and_its_throttle(tmp_path: Path) -> None:
    """An .npz file that is open, or a lock, does not cross: the source is made anew there."""
    images.make(tmp_path, size=8)
    files = {"kind": "image_folder", "path": str(tmp_path), "image_size": 8}
    source: Any = plugins.make("sources", "slow_storage", {"files": files, "latency_ms": 0.01})
    first = source.numbered(3)
    assert source.throttle.arrivals is not None
    there = pickle.loads(pickle.dumps(source))
    assert "files" not in vars(there)
    for mine, theirs in zip(first, there.numbered(3), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert there.throttle.arrivals.latency_us[0] == pytest.approx(10)
    assert plugins.find("sources", "npz")().__reduce__()[1] == (plugins.find("sources", "npz")().options.model_dump(),)


def test_an_epoch_has_the_batches_that_begin_in_it() -> None:
    """Or the samples of a last, smaller batch would be lost."""
    source: Any = plugins.find("sources", "memory")({"samples": 10, "features": 2})
    epochs = data_loader._Epochs(loaders.Samples(source), 4)
    assert [[batch[0] for batch in epochs] for _ in range(3)] == [[0, 4, 8], [12, 16], [20, 24, 28]]


class OneBad:
    """Samples of which the second cannot be read."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> tuple[int, ...]:
        if number:
            raise RecordError("b.tfrecord, record 2 has no image, and a RecordError: of its own.", "Set image_key.")
        return (number,)


def test_an_error_crosses_from_a_worker_as_it_is_and_is_raised_in_the_trials_process() -> None:
    caught: Any = data_loader._Caught(OneBad())  # type: ignore[arg-type]
    assert caught[0] == (0,)
    crossed = pickle.loads(pickle.dumps(data_loader._collated([caught[0], caught[1]])))
    with pytest.raises(RecordError) as raised:
        next(data_loader._batches(None, iter([crossed])))
    assert raised.value.message == "b.tfrecord, record 2 has no image, and a RecordError: of its own."
    assert raised.value.hint == "Set image_key."
    assert str(raised.value).endswith("of its own. Set image_key.")  # all that TensorFlow passes on


def started(target: Callable[[], object]) -> BaseProcess:
    worker = multiprocessing.get_context("fork").Process(target=target, daemon=True)
    worker.start()
    return worker


def test_a_stall_is_blamed_on_a_worker_that_ended_well_only_where_none_is_alive() -> None:
    backend: Any = plugins.find("backends", "data_loader")()
    done = multiprocessing.get_context("fork").Event()
    workers = [started(target) for target in (signal.pause, done.wait)]
    assert backend.why_dead(None) is None  # it has seen both
    done.set()
    workers[1].join()
    assert backend.why_dead(None) is None
    assert backend.why_dead(5.0) is None  # the other one may hang: its stack is to be taken
    os.kill(workers[0].pid or 0, signal.SIGKILL)
    workers[0].join()
    assert backend.why_dead(None) == "DataLoader worker 0 was killed by SIGKILL"
    backend.end_processes()


def test_workers_of_the_last_epoch_are_forgotten_once_those_of_the_next_are_there() -> None:
    backend: Any = plugins.find("backends", "data_loader")()
    done = multiprocessing.get_context("fork").Event()
    first = started(done.wait)
    assert backend.why_dead(None) is None
    done.set()
    first.join()
    assert backend.why_dead(5.0) == "DataLoader worker 0 ended with exit code 0"
    second = started(signal.pause)
    assert backend.why_dead(5.0) is None
    os.kill(second.pid or 0, signal.SIGKILL)
    second.join()
    assert backend.why_dead(None) == "DataLoader worker 0 was killed by SIGKILL"  # the only one of its epoch
    backend.end_processes()
