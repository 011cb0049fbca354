"""How often the default command finds that the queue is faster, and how often it says that two copies differ, by load.

``python -m benchmarks.default --out FILE [--runs 100] [--loads "nothing,one loop"] [--budget 60]`` runs
``pipeline-bench compare`` as a user does, as a process of its own, beside other work (`benchmarks.accuracy.loads`),
and a comparison of two copies of a variant with the same budget, all by turns. Every run is a line of FILE as soon as
it ends, and the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import keep, kept
from benchmarks.accuracy.loads import LOADS, beside
from benchmarks.precision.__main__ import share
from pipeline_bench.model.session import load
from pipeline_bench.scenario.files import locate

KINDS = {"default": "fifo_queue", "copies": "copy"}
"""By kind of run: the variant whose speed-up over the baseline is looked at."""


def copies() -> str:
    """Return the main job's job with its baseline twice, and nothing else to compare."""
    head = locate("tutorial").read_text(encoding="utf-8").split("[published]")[0]
    return head + "".join(f'[[variants]]\nname = "{name}"\nbackend = "feed_dict"\n' for name in ("first", "copy"))


def run(kind: str, load_name: str, budget_s: float) -> dict[str, Any]:
    """Run the command once and return what it said of the variant."""
    with tempfile.TemporaryDirectory() as folder, beside(load_name):
        scenario = Path(folder) / "copies.toml"
        scenario.write_text(copies(), encoding="utf-8")
        given = ["--out", folder, "--budget", str(budget_s), *([str(scenario)] if kind == "copies" else [])]
        begin_s = time.monotonic()
        command = [sys.executable, "-m", "pipeline_bench", "compare", *given]
        code = subprocess.run(command, capture_output=True, check=False).returncode
        took_s = time.monotonic() - begin_s
        files = list(Path(folder).glob("*/session.json"))
        speedup = load(files[0]).result(KINDS[kind]).speedup if files else None
    line: dict[str, Any] = {"kind": kind, "load": load_name, "budget": budget_s, "code": code, "seconds": took_s}
    if speedup is not None:
        line |= {"difference": speedup.difference, "certainty": speedup.certainty, "value": speedup.value}
    return line


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return a row for each kind of run and load."""
    head = f"{'run':<8} {'beside':<10} {'said faster or slower':<28} {'of these plainly':>16}"
    rows = [f"{head} {'speed-up':>9} {'seconds':>12}"]
    for kind, name in dict.fromkeys((line["kind"], line["load"]) for line in lines):
        of = [line for line in lines if (line["kind"], line["load"]) == (kind, name)]
        wanted = ("faster",) if kind == "default" else ("faster", "slower")
        said = [line for line in of if line.get("difference") in wanted]
        plain = sum(line["certainty"] == "certain" for line in said)
        value = np.median([line["value"] for line in of if line.get("value")] or [np.nan])
        seconds = [line["seconds"] for line in of]
        rows.append(
            f"{kind:<8} {name:<10} {share(len(said), len(of)):<28} {plain:>16} {value:>8.2f}×"
            f" {np.median(seconds):>5.0f}, {max(seconds):>5.0f}"
        )
    return "\n".join([*rows, "speed-up: median; seconds, from the start of the command to its end: median and longest"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=100, help="of each kind and load")
    parser.add_argument("--loads", default="nothing,one loop", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--kinds", default="default,copies")
    parser.add_argument("--budget", type=float, default=60)
    given = parser.parse_args()
    loads, kinds = (text.split(",") for text in (given.loads, given.kinds))
    lines = kept(given.out)
    for number in range(given.runs):
        for kind, name in ((kind, name) for kind in kinds for name in loads):
            if sum((line["kind"], line["load"]) == (kind, name) for line in lines) > number:
                continue
            keep(run(kind, name, given.budget), given.out, lines)
    print(table(lines))


if __name__ == "__main__":
    main()
