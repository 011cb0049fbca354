"""Disks that are full, become full, are full for a while, turn read-only or vanish, while sessions are measured.

Also beside a signal, and while a report replaces another file.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

from pipeline_bench.__main__ import INTERRUPTED
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import SOFT_SIGNALS, Outcome, printed
from tests.campaign.processes import SCRIPTED, Program, send
from tests.unit import sessions

COUNT = 36
WAITS = True
_FAULTS = ("full", "fills", "room again", "read-only", "vanishes", "removed", "limit", "temporary full", "report")
_TMPFS_BYTES = 4 << 20
_OLD = b"what was there before"


def plan(random: Random, number: int) -> Case:
    """Draw what becomes of the disk, and when."""
    return {
        "fault": _FAULTS[number % len(_FAULTS)],
        "delay_s": random.random() * 0.5,
        "limit_bytes": random.choice((0, 4096, 30_000, 200_000)),
        "signal": random.choice((None, *SOFT_SIGNALS)),
        "signal_after_s": random.random() * 0.25,
        "ending": random.choice((".html", ".md", ".csv", ".json", ".json.gz")),
        "json": random.choice(([], ["--json", "-"], ["--json", "reports/again.json"])),
    }


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Measure upon that disk, a small file system of its own where this user may mount one."""
    disk = bench.folder / "disk"
    disk.mkdir()
    mounted = _mount(disk)
    try:
        if case["fault"] == "report":
            return [_reported(case, bench, disk, mounted=mounted)]
        return [_measured(case, bench, disk, mounted=mounted)]
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)


def _measured(case: Case, bench: Bench, disk: Path, *, mounted: bool) -> Outcome:
    fault = case["fault"] if mounted or case["fault"] in ("removed", "limit") else "removed"
    options: dict[str, Any] = {}
    if fault == "limit":
        limit = case["limit_bytes"]
        options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if fault == "full":
        _fill(disk)
    if fault == "temporary full":
        _fill(disk)
        options["environment"] = {"TMPDIR": str(disk)}
    out = bench.folder / "reports" if fault == "temporary full" else disk
    variants = "".join(f'[[variants]]\nname = "{name}"\nbackend = "feed_dict"\n' for name in ("ok", "long", "ok too"))
    (bench.folder / "scripted.toml").write_text(variants, "utf-8")
    arguments = ["compare", "scripted.toml", "--no-live", "--repeats", "1", "--out", str(out), *case["json"]]
    program = Program(bench.folder, arguments, SCRIPTED, **options)
    if fault in ("fills", "room again", "read-only", "vanishes", "removed"):
        program.wait_for(", repeat 1/1: ", limit_s=30)
        time.sleep(case["delay_s"])
        _spoil(fault, disk)
    if fault == "room again":
        time.sleep(1.0)
        (disk / "ballast").unlink(missing_ok=True)
    if case["signal"] is not None and fault != "limit":
        program.wait_for("cannot be written", limit_s=3)  # the reports are being written, or about to be
        time.sleep(case["signal_after_s"])
        send(program.process.pid, case["signal"])
    # A limit of all files holds for what is printed, too: then stdout is full as well.
    quiet = fault == "limit"
    found = program.outcome(allowed=_allowed(case), tells_all=not quiet)
    if fault not in ("limit", "removed", "vanishes", "temporary full"):
        found.folder = _copied(disk, bench.folder / "kept")
    if (
        found.code == 0
        and fault in ("full", "fills", "read-only", "vanishes")
        and "ceiling, repeat" not in found.stdout + found.stderr
    ):
        found.more.append("the disk failed, and the exit code says nothing of it")
    lost = "session.json cannot be written" in found.stdout + found.stderr and fault in (
        "fills",
        "read-only",
        "vanishes",
    )
    if lost and found.code == INTERRUPTED and printed(found.stdout) is None:
        found.more.append("a session that could not be saved was not written to stdout either")
    return found


def _allowed(case: Case) -> tuple[int, ...]:
    if case["signal"] is None:
        return (0, 1, 2)
    number = signal.Signals[case["signal"]]
    return (0, 1, 2, INTERRUPTED, -number)  # or, of its own number, when all was written and it was about to end


def _reported(case: Case, bench: Bench, disk: Path, *, mounted: bool) -> Outcome:
    """Write a report in place of another file, which has to be whole afterwards: the old one or the new one."""
    session, file = bench.folder / "session.json", disk / f"report{case['ending']}"
    session.write_text(sessions.normal().to_json(), "utf-8")
    file.write_bytes(_OLD)
    options: dict[str, Any] = {}
    if mounted:
        _fill(disk)
    else:
        limit = case["limit_bytes"]
        options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    program = Program(bench.folder, ["report", str(session), "-o", str(file)], **options)
    found = program.outcome(allowed=(0, 2), tells_all=mounted or case["limit_bytes"] > 0)
    if found.code != 0 and file.read_bytes() != _OLD:
        found.more.append("a report that could not be written has spoilt the file that was there")
    if list(disk.glob(".*.part")):
        found.more.append("a part of a report is left")
    return found


def _copied(disk: Path, kept: Path) -> Path:
    """Keep the session that lies there, for the checks: the file system goes first."""
    for file in disk.glob("*/session.json"):
        (kept / file.parent.name).mkdir(parents=True)
        shutil.copy(file, kept / file.parent.name)
    return kept


def _mount(disk: Path) -> bool:
    if shutil.which("mount") is None or os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "tmpfs", str(disk)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def _spoil(fault: str, disk: Path) -> None:
    match fault:
        case "fills" | "room again":
            _fill(disk)
        case "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=False, capture_output=True)
        case "vanishes":
            subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)
        case _:
            for folder in disk.iterdir():
                shutil.rmtree(folder, ignore_errors=True)
