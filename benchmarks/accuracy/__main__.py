"""Known answers: how close the shares come to what was planted, and how many verdicts are right, by load.

``python -m benchmarks.accuracy --out FOLDER [--loads "nothing,two loops"] [--cases 84] [--seed N] [--budget 60]`` draws
new cases for every load, from a seed that it prints. What a case must come to follows from its construction
(`pipeline_bench.selftest.truth`): delays in reading, decoding, copying, Python and storage, one producer or several,
steady or bursty, on an emulated device, whose bare step (`pipeline_bench.planted.delays`) is timed before and after
without the program and without a load. A group of cases that share their device is one comparison, through the whole
program, beside other work (`benchmarks.accuracy.loads`), for as long as the program's own default lets it. About 10 s
a case and load.

FOLDER keeps the truth and the session of every group; the same command goes on where it stopped, and
``--judge`` judges what is there anew, with the program as it is now, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import cases
from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.loads import LOADS, beside
from pipeline_bench.analysis.goal import DECIDING_BUDGET_S, until_decided
from pipeline_bench.analysis.results import summarise
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import load
from pipeline_bench.planted import delays
from pipeline_bench.run.child import call
from pipeline_bench.run.comparison import compare
from pipeline_bench.run.observer import Observer
from pipeline_bench.scenario import Scenario
from pipeline_bench.scenario.resolve import resolve
from pipeline_bench.selftest.cases import write_files

CEILING = "bare-step-ms.json"
POINTS = 0.02


@dataclass(frozen=True)
class Outcome:
    """A case and what the program said of it; shares are of the step, 0 to 1."""

    case: Case
    utilization: float | None
    wait: float | None
    verdict: str
    certain: bool
    text: str

    @property
    def utilization_error(self) -> float:
        return abs(self.utilization - self.case.truth.utilization) if self.utilization is not None else 1.0

    @property
    def wait_error(self) -> float:
        return abs(self.wait - self.case.truth.wait) if self.wait is not None else 1.0

    @property
    def inconclusive(self) -> bool:
        return self.verdict == "inconclusive"

    @property
    def plain(self) -> bool:
        return not self.inconclusive and self.certain

    @property
    def probable(self) -> bool:
        return not self.inconclusive and not self.certain

    @property
    def right(self) -> bool:
        """Whether the verdict is the planted one; at a threshold, one of the two that meet there."""
        if not self.case.threshold:
            return self.verdict == self.case.verdict
        bound = "input-bound" if self.case.truth.wait > self.case.truth.host else "host-bound"
        return self.verdict in (bound, "compute-bound", "mixed")


def scenario(device_ms: float, group: Sequence[Case], data: Path) -> Scenario:
    """A group as one comparison: every case is a variant beside the others, and the ceilings are shared."""
    variants = []
    for number, case in enumerate(group):
        variant = json.loads(json.dumps(case.variant).replace("{data}", str(data)))
        variants.append({**variant, "name": _name(number, case)})
    document: dict[str, Any] = {
        "name": "accuracy",
        "model": {"kind": "emulated", "step_ms": device_ms},
        "variants": variants,
    }
    return resolve(document)


def measure(device_ms: float, what: Scenario, load: str, folder: Path, budget_s: float) -> None:
    """Measure a group beside a load, and keep what a bare step takes on the machine when it is left alone."""
    before_ms = bare_ms(device_ms)
    with beside(load):
        compare(what, folder, Observer(), precision=until_decided(budget_s))
    ceiling_ms = min(before_ms, bare_ms(device_ms))
    (folder / CEILING).write_text(json.dumps(ceiling_ms), encoding="utf-8")


def bare_ms(device_ms: float) -> float:
    """What a bare step takes, timed in a process of its own."""
    return float(call(delays.ceilings, {"device_ms": [device_ms]}).result["ceiling_ms"][0])


def judged(folder: Path, group: Sequence[Case]) -> list[Outcome]:
    """What the program, as it is now, says of a group that was measured."""
    ceiling_ms = float(json.loads((folder / CEILING).read_text(encoding="utf-8")))
    session = load(folder)
    results = {each.variant: each for each in summarise(session.scenario, session.trials, session.environment.cores)}
    return [_outcome(case.with_ceiling(ceiling_ms), results[_name(i, case)]) for i, case in enumerate(group)]


def _name(number: int, case: Case) -> str:
    return f"{number + 1}: {case.variant['name']}"


def _outcome(case: Case, result: Result) -> Outcome:
    utilization, wait = result.accelerator_utilization.value, result.input_wait_share.value
    verdict = result.verdict
    return Outcome(case, utilization, wait, verdict.kind, verdict.certainty == "certain", result.reason or verdict.text)


def table(outcomes: Sequence[Outcome], by: Callable[[Outcome], str]) -> str:
    names = sorted({by(outcome) for outcome in outcomes})
    rows = [
        f"{'':<22} {'cases':>5}  {'AU error':>14}  {'within 2':>8}  {'wait error':>14}  {'verdicts':>8}  {'right':>7}"
        f"  {'inconclusive':>12}",
        f"{'':<22} {'':>5}  {'median, worst':>14}  {'points':>8}  {'median, worst':>14}",
    ]
    for name in [*names, "all"]:
        of = [outcome for outcome in outcomes if name in ("all", by(outcome))]
        clear = [outcome for outcome in of if not outcome.case.threshold]
        given = [outcome for outcome in of if not outcome.inconclusive]
        rows.append(
            f"{name:<22} {len(of):>5}  {_errors([o.utilization_error for o in of]):>14}"
            f"  {_share([o.utilization_error <= POINTS for o in of]):>8}"
            f"  {_errors([o.wait_error for o in of]):>14}  {len(given):>8}  {_share([o.right for o in given]):>7}"
            f"  {_share([o.inconclusive for o in clear]):>12}"
        )
    return "\n".join(rows)


def _errors(errors: Sequence[float]) -> str:
    """In percentage points."""
    return f"{100 * float(np.median(errors)):.1f}, {100 * max(errors):.1f}" if errors else "–"


def _share(hits: Sequence[bool]) -> str:
    return f"{np.mean(hits):.0%}" if hits else "–"


def by_load(outcomes: dict[str, list[Outcome]]) -> str:
    """A row for each load: how many verdicts were given plainly or as probable, and how many of each are right."""
    head = ("beside", "cases", "plain", "right", "probably", "right", "AU error", "wait error")
    rows = ["{:<10} {:>5}  {:>6}  {:>6}  {:>8}  {:>6}  {:>14}  {:>14}".format(*head)]
    for name, of in outcomes.items():
        clear = [outcome for outcome in of if not outcome.case.threshold]
        rows.append(
            f"{name:<10} {len(of):>5}  {_share([o.plain for o in clear]):>6}"
            f"  {_share([o.right for o in of if o.plain]):>6}  {_share([o.probable for o in clear]):>8}"
            f"  {_share([o.right for o in of if o.probable]):>6}  {_errors([o.utilization_error for o in of]):>14}"
            f"  {_errors([o.wait_error for o in of]):>14}"
        )
    rows.append(
        f"plain, probably: of the cases that lie {cases.CLEAR:.0%} of a step or more from every line; "
        "errors: median and worst, in points"
    )
    return "\n".join(rows)


def show(number: int, device_ms: float, outcome: Outcome) -> None:
    """Print one case, on stderr."""
    case = outcome.case
    said = f"probably {outcome.verdict}" if outcome.probable else outcome.verdict
    wrong = "" if outcome.right or outcome.inconclusive else f"  WRONG, it is {case.verdict}"
    print(
        f"{number:>3} {case.family:<20} {case.variant['name']:<22} device {device_ms:>4.1f} ms"
        f"  AU {case.truth.utilization:.3f} → {outcome.utilization or 0:.3f}"
        f"  wait {case.truth.wait:.3f} → {outcome.wait or 0:.3f}  {said}{wrong}",
        file=sys.stderr,
        flush=True,
    )


def settled(given: argparse.Namespace) -> dict[str, Any]:
    """What the folder was begun with; a new one keeps what is asked for now."""
    kept = given.out / "settings.json"
    if kept.exists():
        settings: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return settings
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    settings = {"seed": seed, "cases": given.cases, "budget_s": given.budget}
    given.out.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(settings), encoding="utf-8")
    return settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--cases", type=int, default=84)
    parser.add_argument("--seed", type=int, help="of an earlier run, to see its cases again")
    parser.add_argument("--budget", type=float, default=DECIDING_BUDGET_S, help="seconds for a group of cases")
    parser.add_argument("--judge", action="store_true", help="measure nothing")
    given = parser.parse_args()
    settings = settled(given)
    print(f"seed {settings['seed']}", flush=True)
    outcomes: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as data:
        write_files(Path(data))
        for name in given.loads.split(","):
            drawn = cases.drawn(settings["cases"] - 2, f"{settings['seed']} {name}")
            for number, (device_ms, group) in enumerate(drawn):
                folder = given.out / name.replace(" ", "-") / f"{number:02}"
                if not (folder / CEILING).exists():
                    if given.judge:
                        continue
                    folder.mkdir(parents=True, exist_ok=True)
                    what = scenario(device_ms, group, Path(data))
                    measure(device_ms, what, name, folder, settings["budget_s"])
                for outcome in judged(folder, group):
                    outcomes.setdefault(name, []).append(outcome)
                    show(len(outcomes[name]), device_ms, outcome)
    print(by_load(outcomes))
    for name, of in outcomes.items():
        print(f"\nbeside {name}\n" + table(of, lambda outcome: outcome.case.family))


if __name__ == "__main__":
    main()
