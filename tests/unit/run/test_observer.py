"""The measuring goes on when nobody can look any more."""

from __future__ import annotations

import pytest

from pipeline_bench.run.observer import Guarded, Observer


class Lost(Observer):
    """A view whose terminal was closed."""

    calls = 0

    def note(self, text: str) -> None:
        self.calls += 1
        raise OSError(5, "Input/output error")


def test_a_view_whose_terminal_is_gone_is_left_alone_from_then_on() -> None:
    view = Lost()
    guarded = Guarded(view)
    guarded.note("one")
    guarded.note("two")
    assert view.calls == 1


def test_a_view_with_a_bug_is_not_hidden() -> None:
    class Broken(Observer):
        def note(self, text: str) -> None:
            raise ValueError(text)

    with pytest.raises(ValueError, match="planted"):
        Guarded(Broken()).note("planted")


def test_everything_is_passed_on() -> None:
    heard = []

    class Listener(Observer):
        def preparing(self, what: str) -> None:
            heard.append(what)

        def note(self, text: str) -> None:
            heard.append(text)

    guarded = Guarded(Listener())
    guarded.preparing("importing")
    guarded.note("a note")
    assert heard == ["importing", "a note"]
