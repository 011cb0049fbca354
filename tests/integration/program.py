"""The program with scripted children in place of TensorFlow's: ``python -m tests.integration.program ARGUMENTS``.

All of it is real but for what the trials do: the server that starts them, the signals, the files, the exit codes. It
has the command ``pipeline-bench`` has. `start` runs it with a scenario of one variant a script; see `scripted_child`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from pipeline_bench.__main__ import main
from pipeline_bench.model import session as sessions
from pipeline_bench.model.session import Session
from pipeline_bench.run import follower, launcher

ROOT = Path(__file__).parents[2]


def scripted_launcher(log: Path, module: str = "tests.integration.scripted_child") -> launcher.TrialServer:
    """Start a server that forks a scripted child for each trial."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (
        mock.patch.object(launcher, "SERVER", module),
        mock.patch.dict(os.environ, PYTHONPATH=path),
    ):
        return launcher.TrialServer(log)


def start(folder: Path, *scripts: str) -> subprocess.Popen[str]:
    """Start the program on a scenario with a variant for each script; it leads a session of its own."""
    scenario = folder / "scripted.toml"
    variants = [f'[[variants]]\nname = "{script}"\nbackend = "feed_dict"\n' for script in scripts]
    scenario.write_text("".join(variants), encoding="utf-8")
    out = str(folder / "reports")
    command = ["compare", str(scenario), "--no-live", "--repeats", "1", "--out", out]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.program", *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def session_of(folder: Path) -> Session:
    """The session that the program has left under `folder`."""
    (inside,) = (folder / "reports").iterdir()
    return sessions.load(inside)


def started(folder: Path, word: str, script: str = "") -> int:
    """The process that a scripted child has named behind that word; 0 where it has named none yet.

    Of the trials of any script, or of one whose name is a single word.
    """
    files = [file for file in folder.rglob("*.stderr") if file.parent.name == "trials" and script in file.name]
    words = [word for file in files for word in file.read_text().split()]
    return int(words[words.index(word) + 1]) if word in words[:-1] else 0


if __name__ == "__main__":
    follower.STALL_GRACE_S = 0.2
    launcher.best_launcher = lambda log, *_: (scripted_launcher(log), None)
    launcher.fresh_launcher = scripted_launcher
    main()
