"""Disks that are full, become full, are full for a while, turn read-only or vanish, while sessions are measured."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import SCRIPTED, Program

COUNT = 24
WAITS = True
_FAULTS = ("full", "fills", "room again", "read-only", "vanishes", "removed", "limit", "temporary full")
_TMPFS_BYTES = 4 << 20


def plan(random: Random, number: int) -> Case:
    """Draw what becomes of the disk, and when."""
    return {
        "fault": _FAULTS[number % len(_FAULTS)],
        "delay_s": random.random() * 0.5,
        "limit_bytes": random.choice((0, 4096, 30_000, 200_000)),
        "json": random.choice(([], ["--json", "-"], ["--json", "reports/again.json"])),
    }


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Measure upon that disk, a small file system of its own where this user may mount one."""
    disk = bench.folder / "disk"
    disk.mkdir()
    mounted = _mount(disk)
    try:
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
    # A limit of all files holds for what is printed, too: then stdout is full as well.
    quiet = fault == "limit"
    found = program.outcome(allowed=(0, 1, 2), tells_all=not quiet)
    if fault not in ("limit", "removed", "vanishes", "temporary full"):
        found.folder = _copied(disk, bench.folder / "kept")
    if (
        found.code == 0
        and fault in ("full", "fills", "read-only", "vanishes")
        and "ceiling, repeat" not in found.stdout + found.stderr
    ):
        found.more.append("the disk failed, and the exit code says nothing of it")
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
