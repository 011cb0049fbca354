"""Two workers of one synchronous training on loopback, watched by `run`: whom the others wait for, and why."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_bench.hosts import merge
from pipeline_bench.model.hosts import HostsKind

WORKERS = Path(__file__).parents[1] / "pipelines" / "workers.py"
LIMIT_S = 200


def ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "kind"), [(("0.12", "0"), "slow-input"), (("0", "0.05"), "slow-model")])
def test_the_worker_that_holds_the_others_up_is_named_with_its_reason(
    tmp_path: Path, planted: tuple[str, str], kind: HostsKind
) -> None:
    """Both step alike, so that neither's own step tells; the input's 120 ms are of two steps."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports(2)]}
    command = [sys.executable, "-m", "pipeline_bench", "run", "--out", str(tmp_path), "--"]
    workers = [
        subprocess.Popen(
            [*command, sys.executable, str(WORKERS), *planted],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [worker.communicate(timeout=LIMIT_S)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    session = merge.merge(merge.read(tmp_path))
    assert session.hosts is not None
    (found,) = session.hosts.results
    assert (found.kind, found.host) == (kind, 1), found.text
    steps_ms = [result.step_ms.mean for result in session.results]
    assert steps_ms[0] == pytest.approx(steps_ms[1], rel=0.1)
    assert {host.launcher for host in session.hosts.hosts} == {"tf-config"}
