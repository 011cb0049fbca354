"""The suite's properties with twenty times the examples, a process for each file of them."""

from __future__ import annotations

import subprocess
import sys
from random import Random

from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import ROOT

_FILES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "tests" / "unit").rglob("test_*.py")
    if "@given" in path.read_text("utf-8")
)
COUNT = len(_FILES)
WAITS = False
_LIMIT_S = 500.0


def plan(random: Random, number: int) -> Case:
    """Return a file, and the seed of its examples."""
    return {"file": _FILES[number % len(_FILES)], "seed": random.randrange(2**32)}


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Run the properties of the file."""
    options = ["-m", "hypothesis", "--hypothesis-profile=campaign", f"--hypothesis-seed={case['seed']}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
    what = f"pytest {case['file']} {' '.join(options)}"
    try:
        ended = subprocess.run(
            [*command, f"--basetemp={bench.folder / 'tmp'}", case["file"]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Outcome(what, None)]
    # What a failing test shows is its own: the traceback is the finding.
    return [Outcome(what, ended.returncode, more=[ended.stdout[-3000:]] if ended.returncode else [])]
