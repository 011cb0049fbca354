"""How long a session of a million steps takes to open and to render, and how much memory, in every form.

``python -m benchmarks.large_session [--steps N] [SESSION]``. Without a session it records one first, which takes some
minutes: the tutorial's job with layers of 16 units, N steps in all. Each form is made by the installed command in a
process of its own, from the file to a file, and held against the goals of 10 s and 1 GB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipeline_bench.model.session import load

COMMAND = str(Path(sys.executable).with_name("pipeline-bench"))
FORMS = ("terminal", "html", "markdown", "csv", "json", "trace")
GOAL_S, GOAL_BYTES = 10.0, 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        session = arguments.session or record(arguments.steps, Path(folder))
        steps = sum(trial.steps.count for trial in load(session).trials if trial.steps)
        size = session.stat().st_size if session.is_file() else (session / "session.json").stat().st_size
        print(f"{steps:,} steps, session file {size / 1e6:.1f} MB; goals: {GOAL_S:g} s, {GOAL_BYTES / 1e9:g} GB")
        print(f"{'form':<24} {'seconds':>8} {'memory MB':>10} {'written MB':>11}")
        for form in FORMS:
            measure(form, [COMMAND, "report", str(session), "-f", form], Path(folder) / form)
        measure(
            "diff with itself", [COMMAND, "diff", str(session), str(session), "-f", "markdown"], Path(folder) / "diff"
        )


def record(steps: int, folder: Path) -> Path:
    """Run a comparison of so many steps in all; return its folder."""
    small = ["--set", "source.features=16", "--set", "model.hidden_widths=[16]"]
    each = ["--steps", str(-(-steps // 12)), "--repeats", "3"]  # 4 variants
    command = [COMMAND, "compare", *small, *each, "--no-live", "--out", str(folder / "sessions")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (session,) = (folder / "sessions").iterdir()
    return session


def measure(name: str, command: list[str], output: Path) -> None:
    """Run a command that writes to `output`, and print what it took."""
    begin = time.perf_counter()
    process = subprocess.Popen([*command, "-o", str(output)])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{name} failed")
    memory_bytes = usage.ru_maxrss * 1024
    verdict = "" if seconds < GOAL_S and memory_bytes < GOAL_BYTES else "  over the goal"
    written = output.stat().st_size / 1e6
    print(f"{name:<24} {seconds:>8.2f} {memory_bytes / 1e6:>10.0f} {written:>11.2f}{verdict}")


if __name__ == "__main__":
    main()
