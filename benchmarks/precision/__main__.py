"""How often "different" is said of two copies of one job, and how often a job that is 3 % slower is found.

``python -m benchmarks.precision --out FILE [--comparisons 100] [--budget 50] [--precision 1.5%] [--steps 15]`` runs as
many comparisons of each kind, through the whole program, in an order drawn by ``--seed``. A step is 100 runs of a small
model on a resident batch, and of the slower job 103, which of the two comes first being drawn too. Every comparison is
a line of FILE as soon as it ends; the same command on the same FILE goes on where it stopped, and with a larger number
adds to it.

Everything runs on one core: where a session's threads wake each other across virtual cores, two processes of one script
differ by 10 to 20 %, and no statistics would find 3 % among them within a minute.

``python -m benchmarks.precision --calibrate`` measures the plant itself: steps of 100 and of 103 runs by turns in one
process, where nothing else can differ.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks import keep, kept
from benchmarks.precision.plugin import install
from pipeline_bench.analysis import stats
from pipeline_bench.analysis.goal import parse_goal
from pipeline_bench.model.session import Session
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve

UNITS, SLOWER_UNITS = 100, 103
JOB: dict[str, Any] = {
    "source": {"features": 64, "batch_size": 32},
    "model": {"hidden_widths": [64]},
    "runtime": {"device": "cpu", "intra_op_threads": 1, "inter_op_threads": 1},
}
GOALS = {"same": "at most 5 %", "slower": "at least 90 %"}


def scenario(first: dict[str, int], *others: dict[str, int], steps: int, repeats: int = 2) -> Scenario:
    """Variants a and b, which differ in the options of their loop alone and have no input to wait for."""
    variants = [
        {"name": "ab"[i], "backend": "ceiling", "loop": {"kind": "units", **options}}
        for i, options in enumerate((first, *others))
    ]
    return resolve({"name": "precision", **JOB, "run": {"steps": steps, "repeats": repeats}, "variants": variants})


def run(what: Scenario, goal: str | None = None, budget_s: float | None = None) -> Session:
    wanted = None if goal is None else parse_goal(goal, budget_s)
    with tempfile.TemporaryDirectory() as folder:
        return compare(what, Path(folder), Observer(), precision=wanted).session


def drawn(number: int, seed: int) -> tuple[str, int, int]:
    """Comparison number `number`: its kind and the units of its two jobs. Each pair of numbers has one of each kind."""
    generator = random.Random(f"{seed} {number // 2}")
    kinds = ["same", "slower"]
    generator.shuffle(kinds)
    kind = kinds[number % 2]
    units = [UNITS, UNITS if kind == "same" else SLOWER_UNITS]
    generator.shuffle(units)
    return kind, units[0], units[1]


def measure(number: int, given: argparse.Namespace) -> dict[str, Any]:
    """One comparison, as a line of the file."""
    kind, first, second = drawn(number, given.seed)
    begin_s = time.monotonic()
    what = scenario({"units": first}, {"units": second}, steps=given.steps)
    session = run(what, given.precision, given.budget)
    took_s = time.monotonic() - begin_s
    speedup, ended = session.result("b").speedup, session.precision
    assert ended is not None
    return {
        "number": number,
        "kind": kind,
        "units": [first, second],
        "speedup": speedup.value,
        "ci95": speedup.ci95,
        "difference": speedup.difference,
        "repeats": ended.repeats,
        "ended_by": ended.ended_by,
        "text": ended.text,
        "seconds": round(took_s, 2),
        "failed_trials": sum(trial.status != "ok" for trial in session.trials),
        "step_ms": session.result("a").step_ms.median,
        "with": conditions(given),
    }


def conditions(given: argparse.Namespace) -> dict[str, Any]:
    """What must not change between the comparisons of one file."""
    return {name: getattr(given, name) for name in ("precision", "budget", "steps", "seed")}


def said_different(line: dict[str, Any]) -> bool:
    """Of two copies: that they differ at all. Of a slower one: that they do, and the right way round."""
    if line["kind"] == "same":
        return line["difference"] in ("faster", "slower")
    return bool(line["difference"] == ("slower" if line["units"][1] > line["units"][0] else "faster"))


def holds_truth(line: dict[str, Any]) -> bool:
    first, second = line["units"]
    return line["ci95"] is not None and bool(line["ci95"][0] <= first / second <= line["ci95"][1])


def earlier(file: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The comparisons that the file holds.

    Raises:
        SystemExit: they were measured under other conditions.
    """
    lines = kept(file)
    for line in lines:
        if line["with"] != conditions(given):
            raise SystemExit(f"{file} was measured with {line['with']}. Use the same options, or another --out.")
    return lines


def share(hits: int, of: int) -> str:
    """A share and its 95 % interval (Clopper and Pearson's): ``3 of 100   3 % (1–9 %)``."""
    if of == 0:
        return "none yet"
    exact = binomtest(hits, of).proportion_ci(method="exact")
    return f"{hits} of {of}, {hits / of:.0%} ({exact.low:.0%} to {exact.high:.0%})"


def table(lines: list[dict[str, Any]]) -> str:
    head = f"{'jobs':<8} {'said to differ':<28} {'goal':<14} {'interval holds truth':<28}"
    rows = [f"{head} {'half-width':>10} {'repeats':>7} {'seconds':>7} {'narrow':>6}"]
    for kind, goal in GOALS.items():
        of = [line for line in lines if line["kind"] == kind]
        widths = [stats.half_width(line["ci95"]) for line in of if line["ci95"]]
        said, held = (share(sum(map(what, of)), len(of)) for what in (said_different, holds_truth))
        narrow = sum(line["ended_by"] == "precision" for line in of)
        repeats, seconds = (np.median([line[key] for line in of] or [0]) for key in ("repeats", "seconds"))
        width = f"{np.median(widths):.2%}" if widths else "–"
        rows.append(
            f"{kind:<8} {said:<28} {goal:<14} {held:<28} {width:>10} {repeats:>7.0f} {seconds:>7.1f} {narrow:>6}"
        )
    return "\n".join([*rows, "half-width, repeats, seconds: medians; narrow: comparisons that reached the precision"])


def calibrate(steps: int) -> None:
    """The plant by turns in one process, three times: ratios of neighbouring steps, their interval over blocks."""
    what = scenario({"units": UNITS, "by_turns_with": SLOWER_UNITS}, steps=steps, repeats=3)
    for trial in run(what).trials:
        if trial.steps is None:
            raise SystemExit(f"the trial failed: {trial.reason}")
        took_ns = (trial.steps.end_ns.unpack() - trial.steps.start_ns.unpack())[20 : 20 + (steps - 20) // 40 * 40]
        pairs = np.log(took_ns.reshape(-1, 20, 2).astype(np.float64))
        # Medians of a block's pairs: what disturbs the machine falls on one of a pair, and would hide the plant.
        blocks = np.median(pairs[:, :, 1] - pairs[:, :, 0], axis=1)
        low, high = stats.mean_interval(blocks.tolist()) or (np.nan, np.nan)
        median_ms = float(np.median(took_ns)) / 1e6
        print(
            f"step {median_ms:.2f} ms; {SLOWER_UNITS} units over {UNITS}: {np.exp(blocks.mean()) - 1:+.2%} "
            f"({np.exp(low) - 1:+.2%} to {np.exp(high) - 1:+.2%}) over {took_ns.size} steps",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=100, help="of each kind")
    parser.add_argument("--budget", type=float, default=50, help="seconds of each; starting takes 3 to 7 more")
    parser.add_argument("--precision", default="1.5%")
    parser.add_argument("--steps", type=int, default=15, help="a trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calibrate", action="store_true")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as site:
        install(Path(site))
        if given.calibrate:
            calibrate(steps=2020)
            return
        if given.out is None:
            parser.error("--out FILE is needed: the comparisons take hours, and every one is kept as it ends")
        lines = earlier(given.out, given)
        done = {line["number"] for line in lines}
        for number in (n for n in range(2 * given.comparisons) if n not in done):
            keep(measure(number, given), given.out, lines)
            last = lines[-1]
            print(
                f"{number + 1:>3} {last['kind']:<6} {last['seconds']:>5.1f} s  {last['text']}",
                file=sys.stderr,
                flush=True,
            )
    print(table(lines))


if __name__ == "__main__":
    main()
