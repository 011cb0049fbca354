"""Data for a test that is not about the process that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pipeline_bench.run import data_making
from pipeline_bench.run.child import Answer


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data is made by the test's own process, which need not start another one and import all again."""

    def call(
        function: Callable[..., Any], arguments: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]
    ) -> Answer:
        return Answer(function(**arguments, report=lambda **message: progress(message)) or {})

    monkeypatch.setattr(data_making, "call", call)
