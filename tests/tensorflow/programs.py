"""Programs that train, run as their users run them: by `pipeline-bench run`, or without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return run_command(folder, "train.py", *arguments)


def run_command(folder: Path, *started: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline_bench", "run", "--", sys.executable, *started]
    # Who is killed does not remove AutoGraph's files; a package is looked for where one may be installed.
    path = os.pathsep.join(filter(None, (str(folder / "site-packages"), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False, env=variables)


def run_plain(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script that is there, without the watching."""
    command = [sys.executable, "train.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def line_of(text: str, part: str) -> int:
    """Return the number of the first line with a part in it."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)
