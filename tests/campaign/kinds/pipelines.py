"""User pipelines that turn against the process that runs them: a deed, and where in the pipeline it is done."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from random import Random

from pipeline_bench.model.session import load
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import Program, survivors
from tests.campaign.words import DATA, lines
from tests.tensorflow.test_diagnose import run_trials
from tests.unit.hostile import unsafe
from tests.unit.test_hostile_text import every_view

COUNT = 80
WAITS = False
_COMMAND_EVERY = 20
"""One in so many is given to the command itself, which takes longer."""
_DEEDS = lines("deeds.txt")
_PLACES = ("import", "make", "map", "generator")
_SCRIPT = (DATA / "script.txt").read_text("utf-8")
_LIMIT_S = 2.0
"""How long a trial may make no progress; the deeds that hang hang for longer."""


def plan(random: Random, number: int) -> Case:
    """Draw a script."""
    deed = _DEEDS[number] if number < len(_DEEDS) else random.choice(_DEEDS)
    text = _SCRIPT.format(deed=deed, place=random.choice(_PLACES), at=random.choice((0, 3, 50)))
    return {"text": text, "trials": random.choice((1, 1, 2)), "command": number % _COMMAND_EVERY == _COMMAND_EVERY - 1}


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Diagnose it: by the command, or for a trial or two by a server that has imported TensorFlow already."""
    # A folder of its own: a deed may remove it.
    script = bench.folder / "theirs" / "script.py"
    script.parent.mkdir()
    script.write_text(case["text"], "utf-8")
    deed = next(line.strip() for line in case["text"].partition("def deed():\n")[2].splitlines())
    if case["command"]:
        return [_by_command(script, bench)]
    out = bench.folder / "out"
    out.mkdir()
    found = Outcome(f"diagnose a pipeline that does {deed}")
    server = bench.server()
    try:
        run_trials(server, out, "make", file=script, trials=case["trials"], stall_timeout_s=_LIMIT_S)
        found.more += _said(out)
    except Exception:  # nothing of the user's may reach the runner
        found.stderr = traceback.format_exc()
    found.processes = tuple(survivors(bench.mark, spared=[server.pid]))
    if bench.server() is server:  # else what it has left goes with the one that has taken its place
        found.leftovers = tuple(path.name for path in bench.temporary.glob("pipeline-bench*"))
    return [found]


def _by_command(script: Path, bench: Bench) -> Outcome:
    options = ["--budget", "20", "--stall-timeout", str(_LIMIT_S), "--no-live", "--out", "reports"]
    program = Program(bench.folder, ["diagnose", f"{script}:make", *options])
    return program.outcome(allowed=(0, 1), folder=bench.folder / "reports", tells_all=False, shows_tracebacks=True)


def _said(out: Path) -> list[str]:
    """What is wrong with the session: it says nothing, shows our own insides, or steers a terminal."""
    session = load(out)
    diagnosis = session.diagnosis
    assert diagnosis is not None
    wrong = [] if diagnosis.failure or diagnosis.inspection else ["neither a failure nor a finding is told"]
    told = [diagnosis.failure or "", diagnosis.traceback]
    # Of a trial that stalled it holds the stacks of all threads, ours among them.
    told += [trial.stderr_tail for trial in session.trials if trial.status != "stalled"]
    wrong += [f"our own insides are shown: {text[-500:]}" for text in told if f"pipeline_bench{os.sep}" in text]
    for name, text in every_view(session).items():
        if found := unsafe(text):
            wrong.append(f"the view {name} holds {sorted(found)!r}")
    return wrong
