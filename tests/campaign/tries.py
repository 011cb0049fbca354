"""Tries: drawn from the seed, carried out by workers, kept where they fail, and not repeated where a run is resumed."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from random import Random

from tests.campaign.bench import Bench
from tests.campaign.kinds import Case, Kind
from tests.campaign.outcome import Outcome, complaints

KEPT = Path(".campaign")
_SHOWN_CHARACTERS = 20_000


@dataclass(frozen=True)
class Tried:
    """A try that is done."""

    kind: str
    number: int
    seconds: float
    complaints: tuple[str, ...]


def carry_out(kind: Kind, case: Case, bench: Bench) -> tuple[list[Outcome], list[str]]:
    """Carry a case out in a new folder; return its outcomes and all that is wrong with them."""
    bench.next_folder()
    try:
        outcomes = kind.attempt(case, bench)
    except Exception:  # whatever it is, it belongs to this try, and the others go on
        return [], [f"the try itself failed: {traceback.format_exc()}"]
    return outcomes, [text for outcome in outcomes for text in complaints(outcome)]


class Log:
    """Which tries of a seed are done, and the cases of those that failed."""

    def __init__(self, seed: int, root: Path = KEPT, *, resume: bool = False) -> None:
        self._seed = seed
        self._root = root
        self._done = root / f"{seed}.jsonl"
        root.mkdir(exist_ok=True)
        if not resume:
            self._done.unlink(missing_ok=True)

    def done(self) -> dict[tuple[str, int], Tried]:
        """Every try that is done, by its kind and number; a line that a killed campaign left unfinished is none."""
        found = {}
        for line in self._done.read_text("utf-8").splitlines() if self._done.exists() else ():
            try:
                tried = Tried(**json.loads(line))
            except (ValueError, TypeError):
                continue
            found[tried.kind, tried.number] = tried
        return found

    def keep(self, tried: Tried, case: Case, outcomes: Iterable[Outcome]) -> Path | None:
        """Note a try; return the file that it replays from, where it failed."""
        with self._done.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(tried)) + "\n")
        if not tried.complaints:
            return None
        path = self._root / f"{self._seed}-{tried.kind}-{tried.number}.json"
        document = {
            "kind": tried.kind,
            "complaints": tried.complaints,
            "case": case,
            "outcomes": [_bounded(asdict(outcome)) for outcome in outcomes],
        }
        path.write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")
        return path


def run(name: str, kind: Kind, seed: int, count: int, workers: int, log: Log) -> Iterator[tuple[Tried, Path | None]]:
    """Carry out the tries of a kind that are not done yet; yield each with the file that it replays from, if it failed.

    Args:
        name: the kind's.
        kind: what to try.
        seed: the campaign's; a try follows from it, the kind and its number.
        count: how many tries there are.
        workers: how many run at a time; twice as many of those that mostly wait.
        log: what is done already, and where this is noted.
    """
    done = log.done()
    waiting = [number for number in range(count) if (name, number) not in done]
    benches: SimpleQueue[Bench] = SimpleQueue()
    workers *= 2 if kind.WAITS else 1
    made = [Bench() for _ in range(min(workers, len(waiting)))]
    for bench in made:
        benches.put(bench)

    def attempt(number: int) -> tuple[Tried, Case, list[Outcome]]:
        case = kind.plan(Random(f"{seed}/{name}/{number}"), number)
        bench = benches.get()
        start_s = time.monotonic()
        try:
            outcomes, wrong = carry_out(kind, case, bench)
        finally:
            benches.put(bench)
        return Tried(name, number, time.monotonic() - start_s, tuple(wrong)), case, outcomes

    pool = ThreadPoolExecutor(workers)
    try:
        for tried, case, outcomes in pool.map(attempt, waiting):
            yield tried, log.keep(tried, case, outcomes)
    finally:
        pool.shutdown(cancel_futures=True)
        for bench in made:
            bench.close()


def _bounded(document: dict[str, object]) -> dict[str, object]:
    return {
        key: value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value
        for key, value in document.items()
        if key != "more"
    }
