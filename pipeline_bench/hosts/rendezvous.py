"""Has the ranks start their trials together, by files in a folder that all see; none waits for one that is gone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.hosts import ranks
from pipeline_bench.hosts.ranks import Rank, Slot, folder_name
from pipeline_bench.scenario import Scenario
from pipeline_bench.system import interrupts
from pipeline_bench.system.files import clock_offset_s, matching, write_atomically
from pipeline_bench.text import REASON, one_line, units

FOLDER = ".together"
_BEAT_S = 0.5
_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.2
"""Who waits looks ever less often: the folder may lie on the storage that a host alone is being measured with."""
START_S = 120.0
"""How long the first of all ranks waits for the others: each may have to import and to make data first."""
_GONE_S = 20.0
"""Without a sign of life for so long, forty beats, a rank is gone; a shared folder may show a change seconds late."""


ENDED_EARLY = "it ended before its last trial"
"""What a rank says of itself where it ends so."""


def gone_s(scenario: Scenario) -> float:
    """Return without how long a sign of life a rank is gone: no longer than a step of its may take."""
    return min(_GONE_S, max(variant.run.stall_timeout_s for variant in scenario.variants))


def path_of(folder: Path, rank: int) -> Path:
    """Return the file that tells how far a rank is, and by its time stamp that it lives."""
    return folder / f"{folder_name(rank)}.json"


def gone_path(folder: Path, rank: int) -> Path:
    """Return the file by which somebody who saw a rank's end, or waits for it no more, says so."""
    return folder / f"{folder_name(rank)}.gone"


class Position(NamedTuple):
    """How far a rank is: at the start of a slot, or (`done` 1) behind it."""

    slot: int
    done: int


_BEHIND_ALL = Position(2**53, 1)
"""Where a rank is that has ended its last trial."""


def _said(path: Path) -> tuple[Position, str] | None:
    """Return where a rank is by its file, and its fingerprint; None where it cannot be read."""
    try:
        *at, fingerprint = json.loads(path.read_text(encoding="ascii"))
        return Position(*at), fingerprint
    except (OSError, ValueError, TypeError):
        return None


def ran_all(folder: Path, rank: int) -> bool:
    """Return whether a rank says that it has ended its last trial."""
    said = _said(path_of(folder, rank))
    return said is not None and said[0] == _BEHIND_ALL


def lost(out: Path) -> dict[int, str]:
    """Return by rank why it did not run all of its trials, as those said that saw it, or it itself."""
    reasons = {}
    for path in matching(out, f"{FOLDER}/rank-*.gone"):
        with suppress(OSError, ValueError):
            reasons[int(path.stem.removeprefix("rank-"))] = _text_of(path)
    return reasons


def _text_of(path: Path) -> str:
    return one_line(path.read_text(encoding="utf-8", errors="replace"), REASON)


class Meeting:
    """One rank's part in the common plan, as the runner's gate.

    Args:
        folder: shared by all ranks.
        rank: this one.
        slots: the common plan, the same in all ranks.
        notify: takes a line for the user.
        gone_s: without a sign of life for so long a rank is gone.
        start_s: how long the first slot waits for ranks that were never seen.
        fingerprint: what every rank has that runs the same trials; one that has another than rank 0 runs none.

    Raises:
        UsageError: the folder cannot be written, or is of an earlier run.
    """

    def __init__(
        self,
        folder: Path,
        rank: Rank,
        slots: Sequence[Slot],
        notify: Callable[[str], None],
        gone_s: float = _GONE_S,
        start_s: float = START_S,
        fingerprint: str = "",
    ) -> None:
        self._folder, self._rank, self._slots, self._notify = folder / FOLDER, rank, slots, notify
        self._gone_s, self._start_s, self._fingerprint = gone_s, start_s, fingerprint
        self._own = [number for number, slot in enumerate(slots) if rank.number in slot.ranks]
        self._left = -1
        self._gone: dict[int, str] = {}
        self._beats: dict[int, tuple[int, float]] = {}
        """By rank its file's stamp, and when that was first seen: some file systems, as Lustre, stamp by its clock."""
        self._ended = threading.Event()
        self._begun_s = self._awake_since_s = time.monotonic()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._path(rank.number).exists():  # the files of other ranks may then be of that run as well
                raise UsageError(
                    f"--out {folder}: {self._folder} is of an earlier run.",
                    "Remove it, or give each run of the ranks an --out of its own.",
                )
            self._say(Position(-1, 1))
            self.clock_offset_s = clock_offset_s(self._path(rank.number))
        except OSError as error:
            raise UsageError(
                f"--out {folder}: the files that the ranks share cannot be written: {error.strerror}.",
                "Give a folder that every host can write.",
            ) from None
        self._beating = threading.Thread(target=self._beat, name="pipeline-bench rank", daemon=True)
        self._beating.start()

    def enter(self, index: int) -> None:
        """Wait until every rank is where the trial of that index may begin, or is gone.

        Raises:
            PipelineBenchError: a rank without which the trial means nothing is gone, or this one runs other trials, or
                the others go on without this one, whose trials would disturb theirs.
            KeyboardInterrupt: the user interrupted.
        """
        slot = self._own[index]
        try:
            self._say(Position(slot, 0))
        except OSError as error:
            raise PipelineBenchError(f"the files that the ranks share cannot be written: {error.strerror}") from None
        look_s = _LOOK_S
        others = [rank for rank in range(self._rank.size) if rank != self._rank.number]
        while waited_for := [rank for rank in others if rank not in self._gone and not self._is_there(rank, slot)]:
            interrupts.check()
            for rank in waited_for:
                self._check_runs_the_same(rank)
                self._note_gone(rank)
            time.sleep(look_s)
            look_s = min(2 * look_s, _LONGEST_LOOK_S)
        if (why := self._said_of(self._rank.number)) is not None:
            raise PipelineBenchError(f"the others continue without rank {self._rank.number}: {why}")
        gone = [rank for rank in self._slots[slot].ranks if rank in self._gone]
        if gone and self._slots[slot].together:
            raise PipelineBenchError(f"rank {gone[0]} {self._gone[gone[0]]}")

    def leave(self, index: int) -> None:
        """Say that the trial has ended."""
        self._left = index
        with suppress(OSError):  # the trial's record is kept; the next `enter` says as much
            self._say(Position(self._own[index], 1))

    def close(self) -> None:
        """Tell the other ranks that this one takes part in no further trial."""
        with suppress(OSError):  # the others will see no further sign of life
            if self._left + 1 < len(self._own):
                write_atomically(gone_path(self._folder, self._rank.number), ENDED_EARLY)
            else:
                self._say(_BEHIND_ALL)
        self._ended.set()
        self._beating.join()

    def _is_there(self, rank: int, slot: int) -> bool:
        needed = Position(slot, 0)
        if rank not in self._slots[slot].ranks:
            before = ranks.before(self._slots, slot, rank)
            needed = Position(-1, 0) if before is None else Position(before, 1)
        at, fingerprint = self._said(rank)
        return at is not None and at >= needed and fingerprint == self._fingerprint

    def _said(self, rank: int) -> tuple[Position | None, str]:
        """Return where a rank is, and its fingerprint; the position is None where it cannot be read."""
        return _said(self._path(rank)) or (None, self._fingerprint)

    def _check_runs_the_same(self, rank: int) -> None:
        if self._said(rank)[1] == self._fingerprint:
            return
        if rank == 0:
            raise PipelineBenchError(
                f"rank {self._rank.number} has other trials, or another version of this program or of TensorFlow, than "
                "rank 0: start every rank with the same command"
            )
        if self._rank.number == 0:
            self._notify(f"rank {rank} has other trials, or another version; the others continue without it")
        self._gone[rank] = "has other trials, or another version of this program or of TensorFlow"

    def _note_gone(self, rank: int) -> None:
        """Wait no more for a rank that shows no sign of life: a new stamp, of whichever clock, as it is seen here."""
        if (why := self._said_of(rank)) is not None:
            self._gone[rank] = f"is lost: {why}"
            return
        if self._rank.launcher == "ray":  # who carries the files says who is gone; while that is stopped, none is new
            return
        now_s = time.monotonic()
        try:
            stamp_ns = self._path(rank).stat().st_mtime_ns
        except OSError:
            silent_s = now_s - self._begun_s
            gone, why = silent_s > self._start_s, "it did not start within"
        else:
            if stamp_ns != self._beats.get(rank, (None, 0.0))[0]:
                self._beats[rank] = stamp_ns, now_s
            silent_s = now_s - self._beats[rank][1]
            gone, why = silent_s > self._gone_s, "it gave no sign of life for"
        if gone and now_s - self._awake_since_s > self._gone_s:
            why = f"{why} {units.seconds(silent_s)}"
            self._gone[rank] = f"is lost: {why}"
            with suppress(OSError):  # so that it is gone for all, itself too, should it only have been stopped
                write_atomically(gone_path(self._folder, rank), why)
            self._notify(f"rank {rank} is lost: {why}; the others continue without it")

    def _said_of(self, rank: int) -> str | None:
        """Return why a rank is gone, as the first who saw it says; None of one that nobody misses."""
        with suppress(OSError):
            return _text_of(gone_path(self._folder, rank))
        return None

    def _say(self, position: Position) -> None:
        write_atomically(self._path(self._rank.number), json.dumps([*position, self._fingerprint]))

    def _beat(self) -> None:
        beat_s = time.time()
        while not self._ended.wait(_BEAT_S):
            if time.time() - beat_s > self._gone_s / 2:
                self._awake_since_s = time.monotonic()  # this one was stopped, perhaps with all others
            beat_s = time.time()
            try:
                os.utime(self._path(self._rank.number))
            except OSError:  # a full or lost folder: the others will say that this one is gone
                continue

    def _path(self, rank: int) -> Path:
        return path_of(self._folder, rank)
