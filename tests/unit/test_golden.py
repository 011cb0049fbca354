"""What is shown of the committed sessions, and every --help, is what was accepted: see tests/golden."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from pipeline_bench.model import session as sessions
from tests import golden

ACCEPTED = golden.accepted()
COMMANDS = golden.commands()
ALIKE = ("docs-systems-", "reports-h100-selftest-gpu-", "reports-h100-two_layer")
"""Comparisons whose parts the other sessions have too."""


def is_slow(name: str) -> bool:
    """Whether it is left to nox -s slow: also the traces of real sessions, whose parts the built ones have."""
    return name.startswith(ALIKE) or (name.endswith(".trace") and name.startswith(("docs-", "reports-")))


def test_every_text_was_accepted_once() -> None:
    assert ACCEPTED.keys() == COMMANDS.keys()


@pytest.fixture(scope="module", autouse=True)
def each_session_is_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "load", cache(sessions.load))
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if is_slow(name) else ()) for name in COMMANDS], ids=str
)
def test_a_text_is_as_it_was_accepted(name: str) -> None:
    shown = golden.text(name, COMMANDS[name])
    assert golden.digest(shown) == ACCEPTED[name], (
        f"pipeline-bench {' '.join(COMMANDS[name])} now shows:\n{shown[:4000]}"
    )
