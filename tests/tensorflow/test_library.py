"""The library, called as a notebook calls it: from a thread beside an event loop, with functions of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import pipeline_bench
from pipeline_bench.diagnosis import search
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import Trial

pytestmark = pytest.mark.usefixtures("commands_share_server")

SMALL: dict[str, Any] = {
    "settings": {"source.features": 8, "model.hidden_widths": [8]},
    "backends": ["feed_dict"],
    "steps": 40,
    "repeats": 1,
}


def test_compare_gives_the_session_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = pipeline_bench.compare("two_layer", **SMALL)
    assert session.result("feed_dict").trials == 1
    assert session.scenario.variant("feed_dict").source.options["features"] == 8
    assert not list(tmp_path.iterdir())


def test_compare_in_another_thread_of_an_event_loop_keeps_the_session_where_asked(tmp_path: Path) -> None:
    async def cell() -> Session:
        return await asyncio.to_thread(pipeline_bench.compare, "two_layer", out=tmp_path, **SMALL)

    session = asyncio.run(cell())
    (folder,) = tmp_path.iterdir()
    assert pipeline_bench.load(folder) == session


def test_diagnose_takes_a_function_that_stands_nowhere_but_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_dataset() -> Any:
        import time

        import tensorflow as tf

        def slow(number: Any) -> Any:
            def wait(value: Any) -> Any:
                time.sleep(0.005)
                return value

            return tf.py_function(wait, [number], tf.int64)

        return tf.data.Dataset.range(10**6).map(slow).batch(4)

    plain = search.Search.next

    def first(self: search.Search, session: Session) -> tuple[Session, Trial | None]:
        return (session, None) if session.trials else plain(self, session)

    monkeypatch.setattr(search.Search, "next", first)
    session = pipeline_bench.diagnose(make_dataset, budget_s=20)
    assert session.diagnosis is not None
    assert session.diagnosis.failure is None
    assert session.diagnosis.inspection is not None
