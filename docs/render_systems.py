"""Runs the scenarios of docs/systems, and keeps each session and report: ``python docs/render_systems.py [NAME …]``.

Run it on an idle machine: what is measured is kept, and shown.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "systems"
SCENARIOS = (
    "cpu_threads",
    "graph_partition",
    "python_overhead",
    "python_overhead_wide",
    "replication",
    "matpow",
)
OPTIONS = {"graph_partition": ["--log-placement"], "matpow": ["--log-placement"]}
KEPT = ("session.json", "report.md")


def main(names: list[str]) -> None:
    """Run the scenarios named, or all of them."""
    program = str(Path(sys.executable).with_name("pipeline-bench"))
    for name in names or SCENARIOS:
        with tempfile.TemporaryDirectory() as out:
            command = [program, "compare", name, *OPTIONS.get(name, []), "--no-live"]
            subprocess.run([*command, "--out", "."], cwd=out, check=True)
            (session,) = Path(out).iterdir()
            (FOLDER / name).mkdir(parents=True, exist_ok=True)
            for file in KEPT:
                shutil.copyfile(session / file, FOLDER / name / file)


if __name__ == "__main__":
    main(sys.argv[1:])
