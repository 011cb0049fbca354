"""Command lines that nobody would write, under terminals, locales and files that are as bad."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import REAL, Program
from tests.campaign.words import NUMBERS, TEXTS, lines, values
from tests.unit import sessions

COUNT = 400
WAITS = False
_REAL_EVERY = 8
_SEEDS = lines("command_lines.txt")
"""Command lines that are right; where they would measure no process can be started, so that they end soon."""
_WORDS = lines("words.txt")
_AROUND = values("around.jsonl")
"""What is around a real process: its environment, its streams, and whether its arguments are no UTF-8."""
_MEASURES = ("compare", "diagnose", "lesson", "doctor", "data", "selftest", "run")
_PROC = {
    "none": ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc; exec "$0" "$@"'],
    "anothers": ["unshare", "-p", "-f"],
}
"""How what is behind it is started with a /proc that is empty, or of another namespace."""
_WITHIN = "import json, os, sys; words = json.loads(sys.argv[1]); os.execvp(words[0], [*words, *sys.argv[2:]])"
_OF_A_COMMAND = (126, 127)
"""Exit codes of `run` where its command cannot be started."""


def plan(random: Random, number: int) -> Case:
    """Draw a command line, and for some of them what is around it."""
    arguments = random.choice(_SEEDS).split()
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        _change(arguments, random)
    if number % _REAL_EVERY:
        return {"arguments": arguments, "env": random.choice(_AROUND).get("env", {})}
    quick = [words for seed in _SEEDS if (words := seed.split()) and words[0] not in _MEASURES]
    return {"arguments": random.choice(quick), "real": True, **random.choice(_AROUND)}


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Run it where there are a session and a script."""
    (bench.folder / "session.json").write_text(sessions.normal().to_json(), "utf-8")
    (bench.folder / "train.py").write_text("raise SystemExit\n", "utf-8")
    arguments = case["arguments"]
    if not case.get("real"):
        arguments = [word.replace("\0", "") for word in arguments]
        return [bench.warm.run(bench.folder, arguments, (0, 1, 2, *_OF_A_COMMAND), case["env"])]
    if case.get("bytes"):
        arguments = [*arguments, b"\xff\xfe\x80"]
    return [_real(arguments, case, bench.folder)]


def _real(arguments: list[Any], case: Case, folder: Path) -> Outcome:
    options: dict[str, Any] = {}
    closed = [number for number, name in enumerate(("stdin", "stdout", "stderr")) if case.get(name) == "closed"]
    if closed:
        options["preexec_fn"] = partial(os.closerange, closed[0], closed[-1] + 1)
    for name in ("stdout", "stderr"):
        if case.get(name) == "/dev/full":
            options[name] = os.open("/dev/full", os.O_WRONLY)
        if case.get(name) == "gone":
            read, options[name] = os.pipe()
            os.close(read)
    bad_stdout, lost = "stdout" in case, case.get("stderr")
    program = Program(folder, arguments, _module(case), environment=case.get("env"), **options)
    for descriptor in (value for value in options.values() if isinstance(value, int)):
        os.close(descriptor)
    full = case.get("stdout") == "/dev/full" and "-o" not in arguments
    allowed = (0, 1, 2, 141) if case.get("stdout") == "gone" else (0, 1, 2)  # as for SIGPIPE
    found = program.outcome(allowed=allowed, tells_all=not lost and not bad_stdout)
    if full and found.code == 0:
        found.more.append("stdout was full, and the exit code says nothing of it")
    if full and "cannot be written" not in found.stderr and found.code == 1:
        found.more.append("stdout was full, and nothing was said")
    return found


def _module(case: Case) -> tuple[str, ...]:
    """Return how Python runs the program: in namespaces of its own where the case asks for them."""
    if "proc" not in case or os.geteuid() != 0 or shutil.which("unshare") is None:
        return REAL
    return ("-c", _WITHIN, json.dumps([*_PROC[case["proc"]], sys.executable]), *REAL)


def _change(arguments: list[str], random: Random) -> None:
    """Change, add, double or take away a word."""
    at = random.randrange(len(arguments) + 1)
    word = random.choice((*_WORDS, *TEXTS, *NUMBERS))
    match random.randrange(5):
        case 0 | 1:
            arguments[at : at + 1] = [word]
        case 2:
            arguments.insert(at, word)
        case 3:
            arguments[at:at] = arguments[at : at + 1]
        case _:
            del arguments[at : at + 1]
