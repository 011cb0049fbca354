"""Known answers: hold the input wait against a delay planted in the source.

``python -m benchmarks.planted_delay [--latency-ms 10] [--features 128] [--repeats 3]``. The synchronous backend must
wait the producer's period, the delay and making the batch; an overlapping one for what is left of that period once the
rest of its step is done, never less than 0. The time to make a batch comes from a run without a delay, so it is
too short where making and training fight for the same cores: small --features keep it small beside the delay.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from pipeline_bench.model.session import Session
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario.resolve import resolve

SYNCHRONOUS = ("feed_dict", "tf_data, prefetch 0")
VARIANTS: list[dict[str, Any]] = [
    {"name": "feed_dict", "backend": "feed_dict"},
    {"name": "tf_data, prefetch 0", "backend": "tf_data", "options": {"prefetch": 0}},
    {"name": "fifo_queue, 1 thread", "backend": "fifo_queue"},
    {"name": "fifo_queue, 2 threads", "backend": "fifo_queue", "options": {"threads": 2}},
    {"name": "tf_data, 1 call", "backend": "tf_data"},
    {"name": "tf_data, 2 calls", "backend": "tf_data", "options": {"parallel_calls": 2}},
]
PRODUCERS = {"fifo_queue, 2 threads": 2, "tf_data, 2 calls": 2}


def measure(latency_ms: float, features: int, steps: int, repeats: int) -> Session:
    document = {
        "name": f"{latency_ms} ms",
        "source": {"features": features, "latency_ms": latency_ms},
        "run": {"steps": steps, "repeats": repeats},
        "variants": VARIANTS,
    }
    with tempfile.TemporaryDirectory() as folder:
        return compare(resolve(document), Path(folder), Observer()).session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency-ms", type=float, default=10)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    make_ms = measure(0, arguments.features, arguments.steps, arguments.repeats).result("feed_dict").input_wait_ms.value
    session = measure(arguments.latency_ms, arguments.features, arguments.steps, arguments.repeats)
    assert make_ms is not None
    period_ms = arguments.latency_ms + make_ms
    print(f"planted delay {arguments.latency_ms:g} ms; making a batch {make_ms:.3f} ms")
    print(f"{'variant':<22} {'expected ms':>11} {'measured ms':>11} {'error':>7} {'over the delay':>14}  verdict")
    for result in session.results:
        if result.backend == "ceiling":
            continue
        wait_ms = result.input_wait_ms.value
        share = result.input_wait_share.value
        if wait_ms is None or share is None:
            print(f"{result.variant:<22} not measured: {result.reason}")
            continue
        rest_ms = wait_ms / share - wait_ms
        synchronous = result.variant in SYNCHRONOUS
        expected_ms = max(0.0, period_ms / PRODUCERS.get(result.variant, 1) - (0.0 if synchronous else rest_ms))
        error = f"{wait_ms / expected_ms - 1:+.1%}" if expected_ms else "–"
        alone = f"{wait_ms / arguments.latency_ms - 1:+.1%}" if synchronous and arguments.latency_ms else ""
        print(
            f"{result.variant:<22} {expected_ms:>11.3f} {wait_ms:>11.3f} {error:>7} {alone:>14}  {result.verdict.kind}",
            flush=True,
        )


if __name__ == "__main__":
    main()
