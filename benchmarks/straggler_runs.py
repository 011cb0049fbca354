"""Known answers with real processes: how often a synchronous training's planted rank is named, and its reason.

``python -m benchmarks.straggler_runs --out FILE [--runs 30] [--seed 0]``. A run is a training of 2 or 3 workers of
MultiWorkerMirroredStrategy on a loopback of its own under `pipeline-bench run`, and `merge`. It draws what takes the
batches, the rank, and 80 to 120 ms a step of slow input, 30 to 60 ms of a slow model, or nothing. FILE has a line a
run: a second call goes on where the first one ended, and prints the counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import keep, kept
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.hosts import merge
from pipeline_bench.model.hosts import HostsResult

WORKERS = Path(__file__).parents[1] / "tests" / "pipelines" / "workers.py"
LIMIT_S = 240
_CONSUMERS = ("loop", "function", "graph", "fit")
_KINDS = ("slow-input", "slow-model", "none")
_PLANTED_S = {"slow-input": (0.08, 0.12), "slow-model": (0.03, 0.06), "none": (0.0, 0.0)}
"""Of a step. An input works while the model does, so that the others lose what it takes longer than a step."""


def ports(count: int) -> list[int]:
    """Return so many free ports of loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def train(out: Path, ranks: int, arguments: Sequence[str]) -> HostsResult:
    """Run a training of so many workers into a folder, and return what the merged session says.

    TensorFlow's workers listen on every interface: they get a network of their own, which no other machine reaches.

    Raises:
        RuntimeError: a worker failed, or the system gives no process such a network.
        TimeoutExpired: one did not end.
        PipelineBenchError: their sessions cannot be merged.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_OWN_NETWORK, str(out), str(ranks), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=LIMIT_S)[0]
    finally:
        with suppress(ProcessLookupError):  # TensorFlow keeps TERM for itself where it has workers
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise RuntimeError(said)
    (sessions,) = merge.trainings(merge.read(out))
    merged = merge.merge(sessions)
    assert merged.hosts is not None
    return merged.hosts.results[0]


_IN_OWN_NETWORK = """
import sys
from pipeline_bench.system import private_network
private_network.enter()
from pathlib import Path
from benchmarks import straggler_runs
sys.exit(straggler_runs.run_workers(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
"""


def run_workers(out: Path, ranks: int, arguments: Sequence[str]) -> int:
    """Run the workers on the loopback of this process; return the greatest of their exit codes."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports(ranks)]}
    command = [sys.executable, "-m", "pipeline_bench", "run", "--out", str(out), "--"]
    workers = [
        subprocess.Popen(
            [*command, sys.executable, str(WORKERS), *arguments],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
            },
        )
        for rank in range(ranks)
    ]
    return max(abs(worker.wait()) for worker in workers)


def case(seed: int, number: int) -> dict[str, Any]:
    """Return what a run plants."""
    rng = np.random.default_rng([seed, number])
    ranks, kind = int(rng.integers(2, 4)), _KINDS[number % len(_KINDS)]
    planted_s = round(float(rng.uniform(*_PLANTED_S[kind])), 3)
    drawn = {"ranks": ranks, "rank": int(rng.integers(ranks)), "planted_s": planted_s}
    return {"run": number, "consumer": str(rng.choice(_CONSUMERS)), "kind": kind, **drawn}


def measured(planted: dict[str, Any]) -> dict[str, Any]:
    """Run a case; return it with what was said of it."""
    size, ranks = planted["planted_s"], planted["ranks"]
    # A batch of the dataset is shared out, so that each rank makes one for as many steps as there are ranks.
    times = (ranks * size, 0.0) if planted["kind"] == "slow-input" else (0.0, size)
    folder = Path(tempfile.mkdtemp())
    said: dict[str, Any] = {}
    try:
        found = train(folder, ranks, [planted["consumer"], *map(str, times), str(planted["rank"])])
        said = {"named": found.host, "as": found.kind, "text": found.text}
    except (RuntimeError, subprocess.TimeoutExpired, PipelineBenchError) as error:
        said = {"failed": str(error)[-2000:]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**planted, **said, "load": os.getloadavg()[0]}


def judged(run: dict[str, Any]) -> str:
    """Return whether the right rank was named with the right reason."""
    if "failed" in run:
        return "failed"
    if run["named"] is None:
        return "right" if run["kind"] == "none" else "nobody"
    if run["kind"] == "none":
        return "wrong"
    if run["named"] != run["rank"]:
        return "wrong"
    return "right" if run["as"] == run["kind"] else "reason"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    runs = kept(arguments.out)
    done = {run["run"] for run in runs}
    for number in (number for number in range(arguments.runs) if number not in done):
        keep(measured(case(arguments.seed, number)), arguments.out, runs)
    columns = ("right", "reason", "wrong", "nobody", "failed")
    print(f"{'planted':<12}" + "".join(f"{name:>8}" for name in columns))
    for kind in _KINDS:
        found = Counter(judged(run) for run in runs if run["kind"] == kind)
        print(f"{kind:<12}" + "".join(f"{found[name]:>8}" for name in columns))


if __name__ == "__main__":
    main()
