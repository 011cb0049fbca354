"""Signals to the program, the server of its trials and a trial: at every moment, of every kind, once and twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random

from pipeline_bench.__main__ import INTERRUPTED
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import SOFT_SIGNALS, Outcome, saved
from tests.campaign.processes import REAL, SCRIPTED, Program, send

COUNT = 110
WAITS = True
_REAL_EVERY = 22
"""One in so many has trials of TensorFlow; the others follow a script, tests/integration/scripted_child.py."""
_STOPPING = 3.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGSTOP")
_TARGETS = ("program",) * 6 + ("server", "trial", "trial")
_MOMENTS = ("start", "trial", "ended", "told", "reports")
_SCRIPTS = (
    ["ok", "silent"],
    ["ok", "long"],
    ["ok", "ok"],
    ["long", "raise"],
    ["daemon", "daemon silent"],
    ["family", "ok"],
)
_FAILING = ("raise", "silent", "daemon silent", "family")
_ENDLESS = ("silent", "daemon silent", "family")


def plan(random: Random, number: int) -> Case:
    """Draw who gets which signal when; every fourth case has a second signal."""
    target = random.choice(_TARGETS)
    scripts = random.choice(_SCRIPTS)
    moments = [moment for moment in _MOMENTS if moment != "reports" or not set(scripts) & set(_ENDLESS)]
    second = random.choice(_SIGNALS[:5]) if number % 4 == 3 else None
    return {
        "scripts": scripts,
        "target": target,
        "moment": random.choice(moments) if target == "program" else random.choice(("trial", "told")),
        "signal": random.choice(_SIGNALS),
        "delay_s": random.choice((0.0, random.random() * 0.05, random.random() * 1.5)),
        "second": second,
        "second_after_s": random.random() * random.choice((0.02, 1.0)),
        "real": number % _REAL_EVERY == 0,
    }


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Start a comparison, send the signals, and see what is left."""
    program = _started(case, bench)
    target, in_flight = _reach(case, program)
    numbers = [case["signal"], *filter(None, [case["second"]])]
    for number, after_s in zip(numbers, (0.0, case["second_after_s"]), strict=False):
        time.sleep(after_s)
        send(target, number)
    if "SIGSTOP" in numbers and case["target"] == "program":
        time.sleep(_STOPPING / 3)
        send(target, "SIGCONT")
    elif not set(numbers) & {*SOFT_SIGNALS, "SIGQUIT", "SIGKILL"} or case["target"] != "program":
        _end_soon(program, case)
        in_flight = False
    soft = case["target"] == "program" and all(number in SOFT_SIGNALS for number in numbers)
    found = program.outcome(
        allowed=_allowed(case, numbers),
        folder=bench.folder / "reports",
        asked_to_end=soft,
        in_flight=soft and in_flight,
        tells_all=False,
        # Python itself says where it was interrupted before any of this program ran.
        shows_tracebacks=case["moment"] == "start",
    )
    if soft and case["moment"] == "ended" and not case["real"] and found.code == INTERRUPTED:
        kept = saved(bench.folder / "reports")
        if kept is None or not kept.trials:
            found.more.append("a trial that had ended is not in the session")
    return [found]


def _started(case: Case, bench: Bench) -> Program:
    options = ["--no-live", "--out", "reports", "--repeats", "1", "--stall-timeout"]
    if case["real"]:
        return Program(bench.folder, ["compare", "two_layer", "--time", "4", *options, "30"], REAL)
    # Two variants cannot have the same name, and a script is the words before the number.
    variants = "".join(
        f'[[variants]]\nname = "{name}"\nbackend = "feed_dict"\n' for name in dict.fromkeys(case["scripts"])
    )
    (bench.folder / "scripted.toml").write_text(variants, "utf-8")
    stall_s = "4" if set(case["scripts"]) & set(_ENDLESS) else "30"
    return Program(bench.folder, ["compare", "scripted.toml", *options, stall_s], SCRIPTED)


def _reach(case: Case, program: Program) -> tuple[int, bool]:
    """Wait for the moment; return the process that is meant, and whether a trial runs that never ends by itself."""
    last = "feed_dict" if case["real"] else case["scripts"][-1]
    in_flight = False
    match case["moment"]:
        case "trial":
            _wait(program, program.trial)
            in_flight = not case["real"] and case["scripts"][0] in _ENDLESS and case["delay_s"] < 1
        case "ended":  # and nobody has told its line yet
            _wait(program, program.trial)
            _wait(program, lambda: not program.trial())
        case "told":
            program.wait_for(", repeat 1/1: ")
        case "reports":
            program.wait_for("ceiling, repeat 1/1: " if not case["real"] else f"{last}, repeat 1/1: ")
    time.sleep(case["delay_s"])
    if case["target"] == "program":
        return program.process.pid, in_flight and bool(program.trial())
    return _wait(program, program.server if case["target"] == "server" else program.trial), False


def _wait(program: Program, look: Callable[[], int], limit_s: float = 40.0) -> int:
    ends_s = time.monotonic() + limit_s
    while program.process.poll() is None and time.monotonic() < ends_s:
        if found := look():
            return found
        time.sleep(0.01)
    return 0


def _end_soon(program: Program, case: Case) -> None:
    """Wait for the session to go on to its end, which it has to find without help."""
    _wait(program, lambda: 0, limit_s=60.0 if case["signal"] == "SIGSTOP" else 45.0)


def _allowed(case: Case, numbers: list[str]) -> tuple[int, ...]:
    """The exit codes that are documented for what was done."""
    went_on = (0, 1) if case["real"] or case["target"] != "program" or set(case["scripts"]) & set(_FAILING) else (0,)
    if case["target"] != "program":
        return (0, 1)
    codes: tuple[int, ...] = went_on  # the signal came too late, or is one that it survives
    for name in numbers:
        if name in SOFT_SIGNALS:
            codes += (130,)
        if name in ("SIGQUIT", "SIGKILL"):
            codes += (-getattr(signal, name),)
        elif name in SOFT_SIGNALS and case["moment"] == "reports":
            codes += (-getattr(signal, name),)  # when all was written, and the program was about to end
        elif name in SOFT_SIGNALS and case["moment"] == "start":
            # Interrupted before any of this program ran, Python itself ends with 1.
            codes += (-getattr(signal, name), 1)
    return codes
