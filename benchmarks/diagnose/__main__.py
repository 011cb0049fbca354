"""Planted faults: how often `diagnose` names the right stage, and how close its proposal comes to an expert's pipeline.

``python -m benchmarks.diagnose [NAME …] [--budget 60] [--repeats 3] [--out FILE]`` runs the program itself on each
pipeline of `benchmarks/diagnose/pipelines`. Then the pipeline as written, the one with the proposed edits, and the
expert's are drained side by side, in fresh processes in turns: all figures of the table are of that second measurement,
which knows nothing of the search. With --out each result is kept at once, and those that are kept are not run again.
About two minutes a pipeline; keep the machine quiet.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.diagnose import data, planted, scoring
from benchmarks.diagnose.planted import Planted
from benchmarks.diagnose.scoring import Score
from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.session import Session, load
from pipeline_bench.run import comparison
from pipeline_bench.run.observer import Observer
from pipeline_bench.samplers.nvml import NvmlSampler

GRACE_S = 120.0
"""Beyond its budget, before a diagnosis counts as one that never ended."""


def judged(pipeline: Planted, budget_s: float, repeats: int, sessions: Path) -> Score:
    """Diagnose the pipeline, then measure the proposal again."""
    started_s = time.monotonic()
    diagnosed, said = diagnose(pipeline, budget_s, sessions)
    took_s = time.monotonic() - started_s
    if diagnosed is None:
        print(f"{pipeline.name}: {said}", file=sys.stderr)
    measured = None
    if diagnosed is not None and diagnosed.diagnosis is not None and diagnosed.diagnosis.failure is None:
        measured = measure(diagnosed, repeats)
    return scoring.score(pipeline, diagnosed, measured, took_s)


def diagnose(pipeline: Planted, budget_s: float, sessions: Path) -> tuple[Session | None, str]:
    """Run the command; its session, and what it said at last."""
    file = sessions / f"{pipeline.name}.json"
    command = [sys.executable, "-m", "pipeline_bench", "diagnose", f"{pipeline.file}:make_dataset"]
    command += ["--budget", str(budget_s), "--json", str(file), "--out", str(sessions), "--no-live"]
    command += ["--allow-reordering", "--allow-threads"] if pipeline.allow_reordering else []
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=budget_s + GRACE_S)
    except subprocess.TimeoutExpired:
        return None, f"did not end within {budget_s + GRACE_S:.0f} s"
    try:
        return load(file), ""
    except PipelineBenchError as error:
        return None, f"{error.message} exit code {done.returncode}: {done.stderr[-1000:]}"


def measure(diagnosed: Session, repeats: int) -> Session:
    """Drain the three side by side."""
    with tempfile.TemporaryDirectory() as folder, closing(NvmlSampler.open()) as gpu:
        session = comparison.new_session(scoring.scenario(diagnosed, repeats), gpu)
        return comparison.run(session, Path(folder), Observer(), gpu).session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a pipeline; by default all of them")
    parser.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="of each diagnosis")
    parser.add_argument("--repeats", type=int, default=3, help="drains of each of the three, interleaved")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a JSON line for every pipeline")
    parser.add_argument("--sessions", type=Path, metavar="DIR", help="keep the sessions of the diagnoses there")
    parser.add_argument("--list", action="store_true", help="say what is wrong with each pipeline, and end")
    given = parser.parse_args()
    try:
        chosen = planted.chosen(given.names)
        kept = {score.name: score for score in scoring.load(given.out)} if given.out else {}
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        print("\n".join(f"{pipeline.name:<28} {pipeline.what}" for pipeline in chosen))
        return
    os.environ[data.VARIABLE] = str(data.make())
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    print(scoring.HEAD, flush=True)
    scores: list[Score] = []
    with tempfile.TemporaryDirectory() as temporary:
        sessions = given.sessions or Path(temporary)
        sessions.mkdir(parents=True, exist_ok=True)
        for pipeline in chosen:
            score = kept.get(pipeline.name) or judged(pipeline, given.budget, given.repeats, sessions)
            if given.out and pipeline.name not in kept:
                scoring.append(score, given.out)
            scores.append(score)
            print(scoring.row(score), flush=True)
    print()
    print(scoring.summary(scores))


if __name__ == "__main__":
    main()
