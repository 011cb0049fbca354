"""Ranks that meet in a folder: in the plan's order, and without those that are gone."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import ExitStack, closing, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.hosts import ranks, rendezvous
from pipeline_bench.hosts.ranks import Rank
from pipeline_bench.hosts.rendezvous import FOLDER, Meeting, Position, gone_path, gone_s, lost, path_of, ran_all
from pipeline_bench.system.files import clock_offset_s
from tests.unit.sessions import scenario, variant

WANTED = scenario(variant("a"), variant("ceiling", "ceiling", ceiling=None))
SLOTS = ranks.slots(WANTED, 3)


def run(meeting: Meeting, rank: int, events: list[tuple[str, int, int]], stop_at: int | None = None) -> None:
    own = [number for number, slot in enumerate(SLOTS) if rank in slot.ranks]
    for index, slot in enumerate(own):
        if slot == stop_at:
            return
        try:
            meeting.enter(index)
        except PipelineBenchError as error:
            events.append((error.message, slot, rank))
            meeting.leave(index)
            continue
        events.append(("in", slot, rank))
        time.sleep(0.001 * (rank + 1))
        events.append(("out", slot, rank))
        meeting.leave(index)


def meet(folder: Path, stop_at: int | None = None) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Three ranks run the plan, each in a thread; the last one leaves at `stop_at` without a word."""
    events: list[tuple[str, int, int]] = []
    told: list[str] = []
    with ExitStack() as stack:
        meetings = [
            stack.enter_context(closing(Meeting(folder, Rank(rank, 3, "pmi"), SLOTS, told.append, 2.0, 10.0)))
            for rank in range(3)
        ]
        threads = [
            threading.Thread(target=run, args=(meeting, rank, events, stop_at if rank == 2 else None))
            for rank, meeting in enumerate(meetings)
        ]
        for thread in threads:
            thread.start()
        if stop_at is not None:
            threads[2].join()
            meetings[2]._ended.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "it waits for ever"
    return events, told


def test_a_trial_begins_when_all_of_its_ranks_are_there_and_the_one_before_has_ended(tmp_path: Path) -> None:
    events, told = meet(tmp_path)
    assert told == []
    for number, slot in enumerate(SLOTS):
        begun = min(place for place, event in enumerate(events) if event[:2] == ("in", number))
        ended = [place for place, event in enumerate(events) if event[0] == "out" and event[1] < number]
        assert all(place < begun for place in ended), f"{slot} began while one before it ran"
        assert {rank for what, at, rank in events if (what, at) == ("in", number)} == set(slot.ranks)
    assert [ran_all(tmp_path / FOLDER, rank) for rank in range(4)] == [True, True, True, False], "each says so"
    assert lost(tmp_path) == {}


def test_the_others_go_on_without_a_rank_that_gives_no_sign_of_life(tmp_path: Path) -> None:
    events, told = meet(tmp_path, stop_at=5)
    assert {rank for what, at, rank in events if (what, at) == ("in", len(SLOTS) - 1)} == {0, 1}
    refused = [event for event in events if event[0] not in ("in", "out")]
    with_rank_2 = [slot.together and 2 in slot.ranks and len(slot.ranks) > 1 for slot in SLOTS]
    assert {at for _, at, _ in refused} == {at for at, is_with in enumerate(with_rank_2) if is_with and at > 5}
    assert all(words.startswith("rank 2 is lost: it gave no sign of life for") for words, _, _ in refused)
    assert told
    assert all(line.startswith("rank 2 is lost: it gave no sign of life for") for line in told)


def test_a_rank_that_was_only_stopped_runs_no_trial_beside_those_of_the_ranks_that_went_on(tmp_path: Path) -> None:
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    with (
        closing(Meeting(tmp_path, Rank(0, 2, "pmi"), slots, told.append, 0.2, 600.0)) as lasting,
        closing(Meeting(tmp_path, Rank(1, 2, "pmi"), slots, told.append, 600.0, 600.0)) as stopped,
    ):
        stopped._ended.set()
        lasting.enter(0)  # alone
        lasting.leave(0)
        with pytest.raises(PipelineBenchError, match="rank 1 is lost"):
            lasting.enter(1)
        with pytest.raises(PipelineBenchError, match="the others continue without rank 1: it gave no sign of life"):
            stopped.enter(0)


def test_a_rank_whose_end_somebody_saw_is_not_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    with closing(Meeting(tmp_path, Rank(0, 2, "ray"), slots, told.append, 600.0, 600.0)) as meeting:
        gone_path(tmp_path / FOLDER, 1).write_text("its node died")
        own = [slot for slot in slots if 0 in slot.ranks]
        for index, slot in enumerate(own):
            alone = len(slot.ranks) == 1 or not slot.together
            with (
                nullcontext() if alone else pytest.raises(PipelineBenchError, match=r"^rank 1 is lost: its node died$")
            ):
                meeting.enter(index)
            meeting.leave(index)


def test_of_ranks_with_other_trials_those_of_rank_0_go_on_and_the_others_run_none(tmp_path: Path) -> None:
    """Rank 2 was started with another scenario: it says so at its first trial, and nobody waits for it."""
    events: list[tuple[str, int, int]] = []
    told: list[str] = []
    with ExitStack() as stack:
        threads = []
        for rank, plan in enumerate(("same", "same", "other")):
            meeting = Meeting(tmp_path, Rank(rank, 3, "pmi"), SLOTS, told.append, 600.0, 600.0, plan)
            stack.enter_context(closing(meeting))
            threads.append(threading.Thread(target=run, args=(meeting, rank, events)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "it waits for ever"
    assert told == ["rank 2 has other trials, or another version; the others continue without it"]
    assert {rank for what, _, rank in events if what == "in"} == {0, 1}
    (words,) = {what for what, _, rank in events if rank == 2}
    assert words.startswith("rank 2 has other trials, or another version of this program or of TensorFlow, than rank 0")


def test_what_the_ranks_run_is_told_by_their_variants_number_and_versions() -> None:
    fewer = WANTED.model_copy(update={"variants": WANTED.variants[:1]})
    both = ("1.0", "2.19")
    runs = (
        (WANTED, 2, both),
        (WANTED, 3, both),
        (WANTED, 2, ("2.0", "2.19")),
        (WANTED, 2, ("1.0", "2.20")),
        (WANTED, 2, ("1.0", None)),
        (fewer, 2, both),
    )
    assert len({ranks.fingerprint(*each) for each in runs}) == len(runs)
    assert ranks.fingerprint(WANTED.model_copy(), 2, both) == ranks.fingerprint(WANTED, 2, both)


def test_a_rank_is_given_up_no_later_than_a_step_would_be() -> None:
    hasty = variant("a")
    hasty = hasty.model_copy(update={"run": hasty.run.model_copy(update={"stall_timeout_s": 3.0})})
    assert gone_s(scenario(hasty)) == 3.0
    assert gone_s(WANTED) == 20.0


def test_a_rank_that_never_comes_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    with closing(Meeting(tmp_path, Rank(0, 2, "pmi"), slots, told.append, 0.2, 0.3)) as meeting:
        for index in range(len([slot for slot in slots if 0 in slot.ranks])):
            with suppress(PipelineBenchError):
                meeting.enter(index)
            meeting.leave(index)
    assert len(told) == 1
    assert told[0].startswith("rank 1 is lost: it did not start within")


def test_a_rank_that_ends_early_is_not_waited_for_and_its_trials_are_not_run_without_it(tmp_path: Path) -> None:
    """It was interrupted on its own host, or its disk is full."""
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    with closing(Meeting(tmp_path, Rank(0, 2, "pmi"), slots, told.append, 600.0, 600.0)) as meeting:
        with closing(Meeting(tmp_path, Rank(1, 2, "pmi"), slots, told.append, 600.0, 600.0)):
            meeting.enter(0)  # alone
            meeting.leave(0)
        with pytest.raises(PipelineBenchError, match=r"^rank 1 is lost: it ended before its last trial$"):
            meeting.enter(1)
        assert not ran_all(tmp_path / FOLDER, 0)
    assert told == []


@pytest.fixture
def at_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the ranks, in s, as its only item; who sleeps sets it on."""
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now_s[0], time=lambda: 0.0, sleep=sleep)
    monkeypatch.setattr(rendezvous, "time", clock)
    return now_s


def silent_for_a_minute(meeting: Meeting, folder: Path) -> None:
    """Rank 1 has been there, and `meeting` saw its last sign of life so long ago."""
    other = path_of(folder / FOLDER, 1)
    other.write_text('[0, 0, ""]')
    meeting._beats[1] = other.stat().st_mtime_ns, time.monotonic() - 60


@pytest.mark.parametrize("off_s", [-3600, 3600])
@pytest.mark.parametrize("lives", [True, False])
def test_who_lives_is_told_by_new_stamps_of_whichever_clock(
    off_s: int, lives: bool, at_s: list[float], tmp_path: Path
) -> None:
    """Lustre stamps a file with the clock of the host that touches it, which may be off."""
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    other = path_of(tmp_path / FOLDER, 1)
    with closing(Meeting(tmp_path, Rank(0, 2, "pmi"), slots, told.append, 0.2, 600.0)) as first:
        other.write_text('[0, 0, ""]')
        begun_s = time.time() + off_s
        for beat in range(50):
            stamp_s = begun_s + (beat if lives else 0)
            os.utime(other, (stamp_s, stamp_s))
            first._note_gone(1)
            at_s[0] += 0.01
        assert (1 in first._gone) is not lives


def test_a_rank_that_was_stopped_with_all_others_waits_for_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm has suspended the job: who is first to go on must not take the others' silence for their end."""
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    with closing(Meeting(tmp_path, Rank(0, 2, "pmi"), slots, told.append, 30.0, 600.0)) as first:
        with monkeypatch.context() as stopped:
            begun_s, now = first._awake_since_s, time.time
            stopped.setattr(time, "time", lambda: now() + 60.0)
            deadline_s = time.monotonic() + 60
            while first._awake_since_s == begun_s and time.monotonic() < deadline_s:
                time.sleep(0.01)
        silent_for_a_minute(first, tmp_path)
        first._note_gone(1)
    assert told == []


def test_a_rank_on_ray_is_gone_where_the_process_says_so_that_carries_the_files(tmp_path: Path) -> None:
    """While that is stopped, no file of the others is new, and each rank would go on by itself."""
    told: list[str] = []
    slots = ranks.slots(WANTED, 2)
    with closing(Meeting(tmp_path, Rank(0, 2, "ray"), slots, told.append, 0.2, 0.3)) as first:
        silent_for_a_minute(first, tmp_path)
        first._awake_since_s -= 60
        first._note_gone(1)
        assert not first._gone
        gone_path(tmp_path / FOLDER, 1).write_text("its node died")
        first._note_gone(1)
        assert first._gone == {1: "is lost: its node died"}
    assert told == []


def test_a_folder_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    """Of that run only the ranks' own folders were removed: the others would be taken to have ended, or to be gone."""
    slots = ranks.slots(WANTED, 2)
    for number in range(2):
        Meeting(tmp_path, Rank(number, 2, "pmi"), slots, print).close()
    with pytest.raises(UsageError, match=f"{FOLDER} is of an earlier run") as refused:
        Meeting(tmp_path, Rank(0, 2, "pmi"), slots, print)
    assert refused.value.hint.startswith("Remove it")


def test_how_far_the_clock_is_off_is_taken_from_the_shared_folder(tmp_path: Path) -> None:
    with closing(Meeting(tmp_path, Rank(0, 2, "pmi"), SLOTS, print)) as meeting:
        assert abs(meeting.clock_offset_s) < 5
    assert [each.name for each in tmp_path.iterdir()] == [FOLDER]
    os.utime(tmp_path, (0, 0))  # as a disk that has taken long to write
    assert abs(clock_offset_s(tmp_path)) < 5


class _Counted(Meeting):
    """Counts how often it reads where another rank is."""

    looks = 0

    def _said(self, rank: int) -> tuple[Position | None, str]:
        self.looks += 1
        return super()._said(rank)


@pytest.mark.usefixtures("at_s")
def test_a_rank_that_waits_for_long_seldom_reads_the_folder_that_may_lie_on_the_storage(tmp_path: Path) -> None:
    """Two reads a look, and 5 looks a second but for the first ones."""
    meeting = _Counted(tmp_path, Rank(0, 2, "pmi"), ranks.slots(WANTED, 2), lambda _: None, 10.0, 10.0)
    with closing(meeting), pytest.raises(PipelineBenchError, match="rank 1 is lost"):
        meeting.enter(1)
    assert meeting.looks == 2 * (10 * 5 + 4)


def test_a_trial_whose_end_cannot_be_written_is_kept(tmp_path: Path) -> None:
    """The folder is full, or lost: a rank that raised here would lose its record, and the session's last word."""
    with closing(Meeting(tmp_path, Rank(0, 2, "pmi"), SLOTS, print)) as meeting:
        shutil.rmtree(tmp_path / FOLDER)
        meeting.leave(0)
        with pytest.raises(PipelineBenchError, match="cannot be written: No such file or directory"):
            meeting.enter(0)
