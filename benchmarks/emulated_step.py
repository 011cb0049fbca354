"""How exact an emulated device is: its busy time against the time it was told, on an idle and on a busy host.

``python -m benchmarks.emulated_step [--repeats N] [--seconds S]``. Trials of the model ``emulated`` on a resident
batch; on the busy host one process a core computes meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.loads import LOOP, running
from pipeline_bench.environment import usable_cores
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve

STEPS_MS = (0.3, 0.8, 1.0, 2.0, 5.0, 20.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    print(f"{'host':<5} {'step_ms':>7} {'mean':>8} {'error':>6} {'median':>8} {'error':>6} {'5th':>8} {'95th':>8}")
    for host, busy_cores in (("idle", 0), ("busy", usable_cores())):
        with running((LOOP, busy_cores)):
            for step_ms, busy_ms in measure(arguments.repeats, arguments.seconds).items():
                mean, median = float(busy_ms.mean()), float(np.median(busy_ms))
                low, high = np.percentile(busy_ms, [5, 95])
                figures = [f"{value:>8.3f} {value / step_ms - 1:>+6.1%}" for value in (mean, median)]
                print(f"{host:<5} {step_ms:>7g} {' '.join(figures)} {low:>8.3f} {high:>8.3f}", flush=True)


def measure(repeats: int, seconds: float) -> dict[float, npt.NDArray[np.float64]]:
    """The busy times of all measured steps in ms, by the time that the device was told."""
    document = {
        "name": "emulated steps",
        "model": {"kind": "emulated"},
        "run": {"time_s": seconds, "repeats": repeats},
        "variants": [{"name": f"{ms:g}", "backend": "ceiling", "model": {"step_ms": ms}} for ms in STEPS_MS],
    }
    with tempfile.TemporaryDirectory() as folder:
        session = compare(resolve(document), Path(folder), Observer()).session
    found: dict[float, list[npt.NDArray[np.float64]]] = {step_ms: [] for step_ms in STEPS_MS}
    for record in session.trials:
        if record.steps is None or record.steps.busy_ns is None:
            raise SystemExit(f"no busy times of {record.variant} ms: {record.reason}")
        found[float(record.variant)].append(record.steps.busy_ns.unpack()[record.warmup_steps :] / 1e6)
    return {step_ms: np.concatenate(columns) for step_ms, columns in found.items()}


if __name__ == "__main__":
    main()
