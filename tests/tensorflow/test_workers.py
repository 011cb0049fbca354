"""Two workers of one synchronous training on loopback, watched by `run`: whom the others wait for, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import straggler_runs
from pipeline_bench.analysis import thresholds
from pipeline_bench.hosts import merge
from pipeline_bench.model.hosts import HostsKind

DELAY_MS = 50.0
"""Of each step: the model's, and what the input takes longer than the step of 10 ms that it works beside."""
INPUT_MS = 60.0
"""A step that takes longer by itself hides it."""


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
    try:
        found = straggler_runs.train(tmp_path, 2, planted)
    except RuntimeError as error:
        if "CoordinationService/Heartbeat" not in str(error):
            raise
        pytest.skip("TensorFlow's workers lost each other: the machine is too busy for their heartbeat")
    session = merge.merge(merge.read(tmp_path))
    assert session.hosts is not None
    steps_ms = [result.step_ms.mean or 0.0 for result in session.results]
    step_ms = min(steps_ms)
    hides = kind == "slow-input" and step_ms > 1.2 * INPUT_MS
    if hides or step_ms * thresholds.STRAGGLER_WAIT > DELAY_MS / 2:
        pytest.skip(f"beside other work a step took {step_ms:.0f} ms: the planted delay is no large part of it")
    assert (found.kind, found.host) == (kind, 1), found.text
    assert steps_ms[0] == pytest.approx(steps_ms[1], rel=0.1)
    assert {host.launcher for host in session.hosts.hosts} == {"tf-config"}
