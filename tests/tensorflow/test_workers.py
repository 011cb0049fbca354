"""Two workers of one synchronous training on loopback, watched by `run`: whom the others wait for, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import straggler_runs
from pipeline_bench.hosts import merge
from pipeline_bench.model.hosts import HostsKind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (("loop", "0.12", "0"), "slow-input"),
        (("loop", "0", "0.05"), "slow-model"),
        (("function", "0.12", "0"), "slow-input"),
        (("graph", "0.12", "0"), "slow-input"),
        (("graph", "0", "0.05"), "slow-model"),
        (("fit", "0.12", "0"), "slow-input"),
        (("fit", "0", "0.05"), "slow-model"),
    ],
)
def test_the_worker_that_holds_the_others_up_is_named_with_its_reason(
    tmp_path: Path, planted: tuple[str, str, str], kind: HostsKind
) -> None:
    """Both step alike, so that neither's own step tells; the input's 120 ms are of two steps."""
    found = straggler_runs.train(tmp_path, 2, planted)
    assert (found.kind, found.host) == (kind, 1), found.text
    session = merge.merge(merge.read(tmp_path))
    assert session.hosts is not None
    steps_ms = [result.step_ms.mean for result in session.results]
    assert steps_ms[0] == pytest.approx(steps_ms[1], rel=0.1)
    assert {host.launcher for host in session.hosts.hosts} == {"tf-config"}
