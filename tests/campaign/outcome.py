"""What one try left behind, and the checks of it: each returns what is wrong in words, nothing where all is well."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model import session as sessions
from pipeline_bench.model.session import Session
from tests.unit.hostile import unsafe

MOST_MEMORY_KB = 4 * 2**20
"""A session's file may hold 1 GiB and unpack to another; a few copies of both are the most that is fair."""
SOFT_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

_OURS = re.compile(r'File "[^"\n]*pipeline_bench/[^"\n]*", line \d+')
_TROUBLE = re.compile(
    r"Traceback \(most recent call last\)|This is a bug of|Exception ignored|Exception in thread|Fatal Python error"
)
_MESSAGE = re.compile(r"^(?:Error: |╭─ Error|\+- Error|.?- Error -)", re.MULTILINE)
_TOLD = re.compile(r"^\[ *(\d+)(?:/\d+)?\] (?!.* so far$).*: ", re.MULTILINE)
"""A trial's end, of a number of trials, of rounds until all is decided or of a diagnosis; no line on how far it is."""


@dataclass
class Outcome:
    """One run of the program, or of a part of it, and what it left."""

    what: str
    """Its command line, or what stands for it."""
    code: int | None = 0
    """The exit code, negative for a signal; None where it had to be killed at the try's limit."""
    allowed: tuple[int, ...] = (0,)
    stdout: str = ""
    stderr: str = ""
    processes: tuple[str, ...] = ()
    """The command lines of what still runs 10 s after its end."""
    leftovers: tuple[str, ...] = ()
    """What is left in its folder for temporary files, or half written beside its session."""
    memory_kb: int = 0
    folder: Path | None = None
    """Where its session must be; None where it makes none."""
    asked_to_end: bool = False
    """Whether it was sent a signal that saves what was measured: the reports must then be there."""
    in_flight: bool = False
    """Whether that came while a trial ran that never ends by itself."""
    tells_all: bool = True
    """Whether stderr can be read, so that an error must be told there, once."""
    shows_tracebacks: bool = False
    """Whether user's code runs, whose traceback is rightly shown."""
    more: list[str] = field(default_factory=list)
    """Complaints of the kind's own checks."""


def complaints(outcome: Outcome) -> list[str]:
    """Return everything that is wrong with an outcome, in words."""
    return [f"{outcome.what[:200]}: {text}" for check in CHECKS for text in check(outcome)]


def ends_in_time(outcome: Outcome) -> Iterator[str]:
    """It ended by itself."""
    if outcome.code is None:
        yield "it hung, and was killed at the try's limit"


def exit_code(outcome: Outcome) -> Iterator[str]:
    """It ended with one of the codes that are documented for what was done to it."""
    if outcome.code is not None and outcome.code not in outcome.allowed:
        yield f"exit code {outcome.code}, and not one of {outcome.allowed}"


def no_traceback(outcome: Outcome) -> Iterator[str]:
    """Nothing of this program's own insides is shown."""
    pattern = _OURS if outcome.shows_tracebacks else _TROUBLE
    if found := pattern.search(outcome.stderr) or _OURS.search(outcome.stdout):
        yield f"a traceback of ours: {found[0]}"


def one_message(outcome: Outcome) -> Iterator[str]:
    """Where it could not do what was asked it says so once, and where it could it says no such thing."""
    count = len(_MESSAGE.findall(outcome.stderr))
    if outcome.code == 2 and outcome.tells_all and count != 1:
        yield f"exit code 2 with {count} error messages"
    if outcome.code == 1 and outcome.tells_all and not (outcome.stderr.strip() or outcome.stdout.strip()):
        yield "exit code 1 without a word"
    if outcome.code == 0 and count:
        yield "an error message with exit code 0"


def nothing_steers(outcome: Outcome) -> Iterator[str]:
    """No character reaches the terminal that steers it."""
    for name, text in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
        if found := unsafe(text.replace("\r\n", "\n")):
            yield f"{name} holds {sorted(found)!r}"


def nothing_left(outcome: Outcome) -> Iterator[str]:
    """No process, no folder for temporary files and no half of a file is left."""
    for left in outcome.processes:
        yield f"a process is left: {left}"
    for left in outcome.leftovers:
        yield f"a file or folder is left: {left}"


def memory(outcome: Outcome) -> Iterator[str]:
    """It took no more memory than its input can ask for."""
    if outcome.memory_kb > MOST_MEMORY_KB:
        yield f"it took {outcome.memory_kb / 2**20:.1f} GiB of memory"


def session_whole(outcome: Outcome) -> Iterator[str]:
    """The session loads, every trial whose end was told is in it, and a soft end has left its reports."""
    if outcome.folder is None:
        return
    told = {int(number) - 1 for number in _TOLD.findall(outcome.stdout + outcome.stderr)}
    try:
        found = saved(outcome.folder) or printed(outcome.stdout)
        if found is None or not told <= {trial.index for trial in found.trials}:
            found = printed(outcome.stdout) or found
    except PipelineBenchError as error:
        yield f"the session does not load: {error.message}"
        return
    if found is None:
        if told:
            yield f"{len(told)} trials were told, and there is no session"
        return
    if missing := told - {trial.index for trial in found.trials}:
        yield f"trials {sorted(missing)} were told and are not in the session"
    if not outcome.asked_to_end:
        return
    if found.trials and outcome.code not in (0, 1) and not list(outcome.folder.glob("*/report.html")):
        yield "it was interrupted and left no report"
    if outcome.in_flight and (not found.trials or found.trials[-1].status != "interrupted"):
        yield "the trial in flight is not in the session as interrupted"


def own_checks(outcome: Outcome) -> list[str]:
    """What the kind itself found."""
    return outcome.more


CHECKS: tuple[Callable[[Outcome], Iterator[str] | list[str]], ...] = (
    ends_in_time,
    exit_code,
    no_traceback,
    one_message,
    nothing_steers,
    nothing_left,
    memory,
    session_whole,
    own_checks,
)


def saved(out: Path) -> Session | None:
    """Return the session in the only folder below `out`; None where there is none.

    Raises:
        SessionError: it does not load.
    """
    files = sorted(out.glob("*/session.json"))
    return sessions.load(files[-1]) if files else None


def printed(stdout: str) -> Session | None:
    """Return the session that was written to stdout for want of a file; None where there is none.

    Raises:
        SessionError: it does not load.
    """
    start = stdout.find('{\n "schema_version"')
    if start < 0:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(stdout[start:])
    except ValueError:
        return None
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        return sessions.load(file.name)
