"""An address where no Ray is: one message, at once."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts import on_ray


def test_an_address_where_something_else_listens_is_told_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and says nothing, as a proxy does in front of a head node that is gone."""
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"ray://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"no Ray answers there: .*does not answer as Ray does"):
            on_ray._see_that_it_answers(address)


def test_a_session_that_cannot_be_saved_here_is_one_message(tmp_path: Path) -> None:
    """What is in the way stands for a full disk."""
    run = on_ray._Ranks.__new__(on_ray._Ranks)
    run._out = tmp_path
    (tmp_path / "rank-001").write_text("in the way")
    with pytest.raises(SessionError, match="rank-001: a session cannot be saved: File exists") as refused:
        run._keep(1, b"{}")
    assert f"pipeline-bench merge {tmp_path}" in refused.value.hint


@pytest.mark.parametrize(
    ("code", "ended_early", "why"),
    [(-9, False, "its program was killed by SIGKILL"), (1, True, "it ended before its last trial")],
)
def test_a_rank_that_ends_early_is_lost_and_all_others_hear_why(code: int, ended_early: bool, why: str) -> None:
    told: list[str] = []
    run = on_ray._Ranks.__new__(on_ray._Ranks)
    run._ray = SimpleNamespace(get=lambda seen: seen, exceptions=SimpleNamespace(RayError=ConnectionError))
    run._beats, run._ahead_s, run._lost, run._outbox, run._notify = {}, {}, {}, [{}, {}, {}], told.append
    run._wall_s = on_ray._wall_clock()
    assert not run._take(1, on_ray.Seen(None, None, "", code, 0.0, ended_early))
    assert told == [f"rank 1 is lost: {why}"]
    assert run._outbox == [{"rank-001.gone": why.encode()}, {}, {"rank-001.gone": why.encode()}]


def test_a_clock_that_is_set_back_leaves_no_rank_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    run = on_ray._Ranks.__new__(on_ray._Ranks)
    run._ray = SimpleNamespace(get=lambda seen: seen, exceptions=SimpleNamespace(RayError=ConnectionError))
    run._beats, run._ahead_s, run._wall_s = {}, {}, on_ray._wall_clock()
    seen = on_ray.Seen(None, None, "", None, run._wall_s())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert run._take(1, seen)
    assert run._ahead_s[1] <= 0


def test_a_cluster_that_does_not_start_here_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Ray gives up after 30 s, with an exception of no class of its own."""

    def time_out(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.cluster_utils", SimpleNamespace(Cluster=time_out))
    with pytest.raises(UsageError, match="did not start 4 nodes on this machine: Exception: The current node timed"):
        on_ray._started(4)


@pytest.mark.parametrize(
    "address", ["ray://127.0.0.1:1", "127.0.0.1:1", "ray://127.0.0.1:port", "ray://[::1", "ray://"]
)
def test_an_address_where_nobody_is_or_that_is_none_is_told(address: str) -> None:
    with pytest.raises(UsageError, match="no Ray answers there"):
        on_ray._see_that_it_answers(address)
