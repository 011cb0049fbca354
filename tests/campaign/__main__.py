"""``python -m tests.campaign [--seed N] [--only KIND] [--resume] [--replay FILE]``: exit 1 if any failed."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path

from tests.campaign.bench import Bench
from tests.campaign.kinds import kinds
from tests.campaign.tries import KEPT, Log, Tried, carry_out, run

_LAST = KEPT / "last_seed"


def main() -> int:
    """Run the campaign, or replay a try; return the exit code."""
    arguments = _arguments()
    # What is started is to be interrupted as in a terminal, also where this runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):  # nor is what nohup has this ignore
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    if arguments.replay:
        return _replay(arguments.replay)
    seed = _seed(arguments)
    _say(f"seed {seed}; again: python -m tests.campaign --seed {seed}")
    log = Log(seed, resume=arguments.resume)
    _LAST.write_text(str(seed), encoding="utf-8")
    rows = [_run(name, seed, arguments, log) for name in arguments.only or kinds()]
    _table(rows)
    return 1 if any(row[2] for row in rows) else 0


def _run(name: str, seed: int, arguments: argparse.Namespace, log: Log) -> tuple[str, int, int, float]:
    """Run a kind, telling each failure; return its row of the table."""
    kind = kinds()[name]
    count = arguments.count or kind.COUNT
    start_s = time.monotonic()
    tried = [each for (of, number), each in log.done().items() if of == name and number < count]
    for each, path in run(name, kind, seed, count, arguments.workers, log):
        tried.append(each)
        if path is not None:
            _tell(each, path)
    failures = sum(bool(each.complaints) for each in tried)
    row = (name, len(tried), failures, time.monotonic() - start_s)
    _say(f"{name}: {len(tried)} tries, {failures} failures, {row[3]:.0f} s")
    return row


def _tell(tried: Tried, path: Path) -> None:
    _say(f"FAILED {tried.kind} {tried.number}; again: python -m tests.campaign --replay {path}")
    for text in tried.complaints:
        _say(f"    {ascii(text)[1:-1][:2000]}")


def _replay(path: Path) -> int:
    document = json.loads(path.read_text("utf-8"))
    bench = Bench()
    try:
        outcomes, wrong = carry_out(kinds()[document["kind"]], document["case"], bench)
    finally:
        bench.close()
    for outcome in outcomes:
        _say(ascii(outcome)[:4000])
    for text in wrong:
        _say(f"FAILED {ascii(text)[1:-1]}")
    return 1 if wrong else 0


def _table(rows: list[tuple[str, int, int, float]]) -> None:
    total = ("in all", sum(row[1] for row in rows), sum(row[2] for row in rows), sum(row[3] for row in rows))
    _say("\n| kind | tries | failures | seconds |\n|---|---:|---:|---:|")
    for name, tries, failures, seconds in (*rows, total):
        _say(f"| {name.replace('_', ' ')} | {tries:,} | {failures} | {seconds:.0f} |")


def _seed(arguments: argparse.Namespace) -> int:
    if arguments.seed is None and arguments.resume and _LAST.exists():
        return int(_LAST.read_text("utf-8"))
    return secrets.randbelow(10**9) if arguments.seed is None else int(arguments.seed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description="Try to break the program on purpose."
    )
    parser.add_argument("--seed", type=int, help="the tries follow from it; by default another one every time")
    parser.add_argument("--only", action="append", choices=list(kinds()), help="this kind of tries; repeatable")
    parser.add_argument("--count", type=int, help="so many tries of each kind")
    parser.add_argument("--workers", type=int, default=max(2, os.cpu_count() or 2), help="tries at a time")
    parser.add_argument("--resume", action="store_true", help="leave out what is done with that seed, or the last one")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="only this try, which a campaign has kept")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        _say("interrupted; go on with --resume")
        sys.exit(130)
