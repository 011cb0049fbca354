"""How long every shipped scenario takes, and how much of it is decided at the end.

``python -m benchmarks.scenarios --out FILE [--load "one loop"] [NAME …]`` runs ``pipeline-bench compare NAME`` as a
user does, a process of its own each, beside other work where one is named (`benchmarks.accuracy.loads`). Every run is a
line of FILE as soon as it ends, and the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import keep, kept
from benchmarks.accuracy.loads import LOADS, beside
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import load
from pipeline_bench.scenario.files import shipped


def grade(result: Result) -> str:
    """Return how surely the program says what limits a variant: certain, probable or inconclusive."""
    return result.verdict.kind if result.verdict.kind == "inconclusive" else result.verdict.certainty


def run(name: str, load_name: str) -> dict[str, Any]:
    """Compare the scenario's variants once, and return how long that took and what it came to."""
    with tempfile.TemporaryDirectory() as folder, beside(load_name):
        begin_s = time.monotonic()
        command = [sys.executable, "-m", "pipeline_bench", "compare", name, "--out", folder]
        ended = subprocess.run(command, capture_output=True, check=False, text=True)
        took_s = time.monotonic() - begin_s
        files = list(Path(folder).glob("*/session.json"))
        results = [each for each in load(files[0]).results if each.verdict.kind != "ceiling"] if files else []
    speedups = [each.speedup for each in results if each.speedup.over not in (None, each.variant)]
    return {
        "scenario": name,
        "load": load_name,
        "code": ended.returncode,
        "seconds": took_s,
        "verdicts": Counter(grade(result) for result in results),
        "differences": Counter(each.difference or "open" for each in speedups),
        "headline": next((line for line in ended.stdout.splitlines() if line.startswith("→")), ""),
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return a row for each run."""
    rows = [f"{'scenario':<22} {'beside':<9} {'seconds':>7}  {'verdicts':<38} differences from the baseline"]
    for line in lines:
        verdicts, differences = (
            ", ".join(f"{count} {word}" for word, count in line[key].items()) for key in ("verdicts", "differences")
        )
        failed = "" if line["code"] == 0 else f"  exit {line['code']}"
        rows.append(
            f"{line['scenario']:<22} {line['load']:<9} {line['seconds']:>7.0f}  {verdicts:<38} {differences}{failed}"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="scenarios; by default all that are shipped")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--load", default="nothing", choices=list(LOADS))
    given = parser.parse_args()
    lines = kept(given.out)
    for name in given.names or sorted(shipped()):
        if any((line["scenario"], line["load"]) == (name, given.load) for line in lines):
            continue
        keep(run(name, given.load), given.out, lines)
        print(table(lines[-1:]).splitlines()[-1], flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()
