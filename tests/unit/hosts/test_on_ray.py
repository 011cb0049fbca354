"""An address where no Ray is: one message, at once."""

from __future__ import annotations

import socket

import pytest

from pipeline_bench.errors import UsageError
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


@pytest.mark.parametrize(
    "address", ["ray://127.0.0.1:1", "127.0.0.1:1", "ray://127.0.0.1:port", "ray://[::1", "ray://"]
)
def test_an_address_where_nobody_is_or_that_is_none_is_told(address: str) -> None:
    with pytest.raises(UsageError, match="no Ray answers there"):
        on_ray._see_that_it_answers(address)
