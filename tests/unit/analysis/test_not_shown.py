"""What a session does not show: of buffers and caches in trials too short for them, of files that were cold once."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench import plugins
from pipeline_bench.analysis import validity
from pipeline_bench.model.events import NumberedSamples, Storage, Work
from pipeline_bench.model.session import Session
from pipeline_bench.scenario.resolve import resolve
from tests.unit.records import record
from tests.unit.records import session as session_of

NUMBERED = NumberedSamples(epoch_samples=1000, repeated=0, invented=0, lost=0, in_flight=0)


def storage(share: float) -> Storage:
    return Storage(asked="as-is", size_bytes=9, resident_share=share)


def session(backend: str, options: dict[str, Any], steps: int, resident: tuple[float, ...] = (1.0, 1.0)) -> Session:
    """A variant with these options, batches of 32 out of 1,000 files, and a trial for each part of them in memory."""
    scenario = resolve(
        {
            "name": "test",
            "source": {"kind": "image_folder", "path": "photos", "batch_size": 32},
            "run": {"steps": steps},
            "variants": [{"name": "own", "backend": backend, "options": options}],
        }
    )
    work = Work(steps=steps, batch_size=32, numbered=NUMBERED)
    trials = [
        record(
            name, repeat, 10.0, steps=steps, work=work, storage=Storage(asked="as-is", size_bytes=9, resident_share=of)
        )
        for repeat, of in enumerate(resident)
        for name in ("own", "ceiling")
    ]
    return session_of(scenario, trials)


@pytest.mark.parametrize(
    ("backend", "options", "ahead"),
    [
        ("feed_dict", {}, 0),
        ("fifo_queue", {}, 5),
        ("fifo_queue", {"capacity": 40}, 40),
        ("fifo_queue", {"capacity": 320, "element": "sample"}, 10),
        ("reader_queue", {"shuffle": 64}, 7),
        ("tf_data", {}, 0),
        ("tf_data", {"prefetch": 30}, 30),
        ("py_dataset", {}, 0),
        ("py_dataset", {"workers": 2, "max_queue_size": 20}, 20),
        ("data_loader", {}, 1),
        ("data_loader", {"num_workers": 4, "prefetch_factor": 3}, 13),
        ("grain", {"num_threads": 0, "prefetch_buffer_size": 0}, 1),
        ("grain", {"worker_count": 2, "worker_buffer_size": 3}, 39),
    ],
)
def test_what_a_backend_may_make_before_the_first_step(backend: str, options: dict[str, Any], ahead: int) -> None:
    assert plugins.make("backends", backend, options).ahead_batches(32) == ahead


def test_a_buffer_that_holds_much_of_a_trial_is_remarked_with_the_steps_that_it_takes() -> None:
    options = {"prefetch": 20}
    ((name, text),) = validity.not_shown(session("tf_data", options, steps=60))
    assert name == "own"
    assert text == (
        "its buffer holds up to 20 batches, made before the steps that count, and a trial has 60: a part of its wait "
        "may not show; use --steps 120"
    )
    assert validity.not_shown(session("tf_data", options, steps=120)) == []


@pytest.mark.parametrize(("steps", "told"), [(31, True), (32, False)])
def test_a_cache_that_no_trial_came_to_read_is_remarked(steps: int, told: bool) -> None:
    found = validity.not_shown(session("tf_data", {"cache": "samples"}, steps))
    text = "no trial came to its second epoch, so its cache was never read; use --steps 63"
    assert found == [("own", text)] * told
    assert validity.not_shown(session("tf_data", {}, steps)) == []


def test_files_that_were_cold_for_one_trial_alone_are_remarked() -> None:
    ((name, text),) = validity.not_shown(session("tf_data", {}, 60, resident=(0.02, 1.0, 0.99)))
    assert name == "own"
    assert text.startswith("repeat 1 found 2 % of the files in the page cache, and others up to 100 %")
    assert validity.not_shown(session("tf_data", {}, 60, resident=(0.95, 1.0))) == []


def test_of_a_backend_that_is_gone_nothing_is_said() -> None:
    kept = session("tf_data", {"prefetch": 20}, 60)
    variants = tuple(each.model_copy(update={"backend": "gone"}) for each in kept.scenario.variants)
    scenario = kept.scenario.model_copy(update={"variants": variants})
    assert validity.not_shown(kept.model_copy(update={"scenario": scenario})) == []
