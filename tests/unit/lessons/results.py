"""What the parts of every lesson could have measured, without measuring: for tests of the text and of the player."""

from __future__ import annotations

from typing import Any

from pipeline_bench.lessons.reading import Compare, Exercise, Lesson, Played
from pipeline_bench.model.session import Session
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve
from tests.unit import sessions

TEN = {"samples": list(range(10)), "at_once": 3, "settled": 3, "in_all": 3}
RECORDED: dict[str, dict[str, Any]] = {
    "fill_once_and_dequeue": {
        "outcomes": ["succeeded", "succeeded", "succeeded", "blocked"],
        "waited": True,
        "got": 7.0,
    },
    "many_runs": {
        "first": TEN,
        "at_once": [3] * 10 + [2] * 2,
        "settled": [3] * 12,
        "rerun": TEN | {"samples": list(range(20)), "in_all": 4},
        "two_threads": TEN | {"at_once": 4, "settled": 4, "in_all": 4},
    },
    "two_busy_cores": {
        "useful": {"core_percent": 99.8, "done": 2110},
        "useless": {"core_percent": 99.7, "done": 5_817_324},
    },
}
"""What the exercises returned on a machine with two cores, by the name of their function."""


def measured(part: Exercise | Compare, observer: Observer | None = None) -> Any:
    """In place of `play.measure`: recorded results, and sessions with made figures."""
    return RECORDED[part.function.__name__] if isinstance(part, Exercise) else made_session(part)


def made_session(part: Compare, percent: float | None = 80.0) -> Session:
    """A session of the part's scenario; a variant's step takes 1 ms longer than the one's before it."""
    scenario = resolve(part.document)
    results = []
    for place, variant in enumerate(scenario.variants):
        made = sessions.result(
            variant.name,
            step_ms=5.0 + place,
            wait=0.2,
            utilization=0.6,
            speedup=None if variant == scenario.baseline else 5.0 / (5.0 + place),
            kind="mixed",
            text="between two bounds.",
        )
        device = made.device_utilization.model_copy(update={"mean_percent": percent})
        results.append(made.model_copy(update={"backend": variant.backend, "device_utilization": device}))
    trials = tuple(sessions.trial(index, variant.name, 0) for index, variant in enumerate(scenario.variants))
    return sessions.normal().model_copy(
        update={"scenario": scenario, "results": tuple(results), "trials": trials, "disturbances": ()}
    )


def played(lesson: Lesson) -> Played:
    """The lesson without a reader, on recorded results."""
    so_far = Played()
    for part in lesson.parts:
        if isinstance(part, Exercise | Compare):
            so_far = so_far.with_result(part.key, measured(part))
    return so_far
