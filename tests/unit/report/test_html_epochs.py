"""The page's figure of a watched training's epochs."""

from __future__ import annotations

from pipeline_bench.model.job import Epoch, WallTime
from pipeline_bench.report.html.distribution import epochs
from tests.unit import sessions

S = 10**9


def test_a_resumed_training_has_its_epochs_numbered_as_keras_does() -> None:
    passed = tuple(Epoch(begin_ns=start * S, end_ns=(start + 1) * S, steps_ns=S) for start in range(3))
    time = WallTime(begin_ns=0, end_ns=3 * S, initial_epoch=50, epochs=passed)
    drawn = epochs(sessions.normal().model_copy(update={"wall_time": time}))
    assert drawn is not None
    assert [row[0].text for row in drawn.table.rows] == ["51", "52", "53"]
