"""Whether the sessions of ranks are of one run and can be laid side by side; what cannot is refused. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_bench.analysis import verdicts
from pipeline_bench.errors import SessionError
from pipeline_bench.hosts.ranks import folder_name
from pipeline_bench.hosts.rendezvous import START_S
from pipeline_bench.hosts.synchronous import Ranked
from pipeline_bench.model.hosts import Host
from pipeline_bench.model.result import Result, WorkCheck
from pipeline_bench.model.session import Session
from pipeline_bench.text import NAME, joined, one_line, sentence, units

MOST_CLOCKS_APART_S = 1.0
"""Hosts whose clocks differ by more cannot be laid side by side; NTP keeps them within some milliseconds."""
_ONE_VERSION = ("package", "tensorflow")


def names(hosts: Sequence[Host]) -> dict[int, str]:
    """Return what a sentence calls each rank: with its machine's name where there are several machines."""
    several = len({host.name for host in hosts}) > 1
    return {host.rank: f"{host.label} ({one_line(host.name, NAME)})" if several else host.label for host in hosts}


def check_comparable(ranked: Ranked, who: Mapping[int, str]) -> None:
    """Refuse sessions that cannot be laid side by side; `who` is what a sentence calls each rank.

    Raises:
        SessionError: what they differ in.
    """
    first_host, first = ranked[0]
    for host, session in ranked[1:]:
        problem = _difference(first, session)
        if problem is not None:
            raise SessionError(
                sentence(f"{who[first_host.rank]} and {who[host.rank]} cannot be compared: {problem}."),
                "Start every rank with the same command, program and scenario. To merge the others, remove "
                f"{_folders(first_host.rank, host.rank)}.",
            )
    offsets = {host.rank: host.clock_offset_s for host, _ in ranked if host.clock_offset_s is not None}
    if offsets and max(offsets.values()) - min(offsets.values()) > MOST_CLOCKS_APART_S:
        ahead, behind = max(offsets, key=lambda r: offsets[r]), min(offsets, key=lambda r: offsets[r])
        apart = units.seconds(offsets[ahead] - offsets[behind])
        raise SessionError(
            f"The clock of {who[ahead]} is {apart} ahead of that of {who[behind]}, so that their trials cannot be "
            "laid side by side.",
            f"Have the clocks set by NTP, and measure again. To merge the others, remove {_folders(ahead, behind)}.",
        )
    if not first.watched:
        _check_trials_met(ranked, who)


def with_work_compared(ranked: Ranked, who: Mapping[int, str]) -> Ranked:
    """Return the sessions with the work marked as unequal of ranks that read epochs of another size than most do."""
    by_variant: dict[str, dict[int, int]] = {}
    for host, session in ranked:
        for trial in session.trials:
            if trial.measured and trial.work is not None and trial.work.numbered is not None:
                by_variant.setdefault(trial.variant, {})[host.rank] = trial.work.numbered.epoch_samples
    faults: dict[tuple[str, int], str] = {}
    for variant, sizes in by_variant.items():
        usual, count = Counter(sizes.values()).most_common(1)[0]
        others = "the others" if count > 1 else who[next(rank for rank, size in sizes.items() if size == usual)]
        for rank, size in sizes.items():
            if size != usual:
                faults[variant, rank] = f"it read {units.count(size, 'sample')} an epoch, {others} {usual:,}"
    return [(host, _with_unequal_work(session, host.rank, faults)) for host, session in ranked]


def _with_unequal_work(session: Session, rank: int, faults: Mapping[tuple[str, int], str]) -> Session:
    def of(result: Result) -> Result:
        if (fault := faults.get((result.variant, rank))) is None:
            return result
        work = WorkCheck(status="unequal", text=fault)
        return result.model_copy(update={"work": work, "verdict": verdicts.unequal_work(fault)})

    return session.model_copy(update={"results": tuple(map(of, session.results))})


def never_began(session: Session) -> bool:
    """Return whether each trial of a rank was refused before it began: it has other trials than rank 0, for one."""
    return bool(session.trials) and all(trial.broke and not trial.phases for trial in session.trials)


def _folders(*of: int) -> str:
    return joined([folder_name(rank) for rank in sorted(of)], "or")


def _difference(first: Session, other: Session) -> str | None:
    if first.host is None or other.host is None or first.host.size != other.host.size:
        return "they are from runs with different numbers of ranks"
    for name in _ONE_VERSION:
        ours, theirs = getattr(first.environment, name), getattr(other.environment, name)
        if ours != theirs:
            return f"{name} is {ours} in the first and {theirs} in the second"
    ours, theirs = (each.command.partition(" ")[0] for each in (first, other))  # arguments may be of the rank
    if first.watched and ours != theirs:
        return f"one ran {ours}, the other {theirs}"
    if first.watched != other.watched or first.scenario.name != other.scenario.name:
        return f"their scenarios are {first.scenario.name!r} and {other.scenario.name!r}"
    ours, theirs = ({v.name: v for v in session.scenario.variants} for session in (first, other))
    everyones = {name: v for name, v in ours.items() if v.is_ceiling or (v.on_hosts and v.on_hosts.hosts == 1)}
    # A later rank is not among few hosts, and has no such variant.
    unlike = [name for name in {**everyones, **theirs} if ours.get(name) != theirs.get(name)]
    return f"their variants {unlike[0]!r} differ" if unlike and not first.watched else None


def to_common_clock_ns(host: Host) -> int:
    """Return what is added to a host's times for those of one wall clock: its own, set right by how far it is ahead."""
    return host.wall_minus_monotonic_ns - round((host.clock_offset_s or 0.0) * 1e9)


class _Ran(NamedTuple):
    """From when to when a rank ran, in ns of the common clock."""

    start_ns: int
    end_ns: int
    rank: int


def check_met(sessions: Sequence[Session]) -> None:
    """Refuse trainings that `run` watched if the ranks did not run at one time, as those of two runs in one folder.

    Each rank may train several times, and at its own pace, so that it is the whole of a rank that has to meet the
    others'. Ranks that do not wait for each other may start apart by as much as those that do.

    Raises:
        SessionError: they did not.
    """
    spans: dict[int, _Ran] = {}
    watched = [(session.host, session) for session in sessions if session.host is not None and session.watched]
    for host, session in watched:
        to_common_ns, before_s = to_common_clock_ns(host), session.wall_time and session.wall_time.before_s
        for trial in session.trials:
            started_ns = trial.started_ns - round((before_s or 0.0) * 1e9)
            ran = _Ran(started_ns + to_common_ns, trial.ended_ns + to_common_ns, host.rank)
            whole = spans.get(host.rank, ran)
            spans[host.rank] = _Ran(min(whole.start_ns, ran.start_ns), max(whole.end_ns, ran.end_ns), host.rank)
    in_step = all(None not in (host.collective_ms, host.clock_offset_s) for host, _ in watched)
    most_s = MOST_CLOCKS_APART_S if in_step else START_S
    _refuse_apart([list(spans.values())], names([host for host, _ in watched]), most_s)


def ranks_at_once(sessions: Sequence[Session]) -> list[int]:
    """Return the ranks of which several processes trained at once.

    That is told by their steps: a loop is watched until its process ends. One that a training starts between two of its
    epochs, and waits for, does not train at once with it.
    """
    by_rank: dict[int, list[tuple[int, npt.NDArray[np.int64]]]] = {}
    for session in sessions:
        host = session.host if session.watched else None
        steps = next((trial.steps for trial in session.trials if trial.steps is not None and trial.steps.count), None)
        if host is not None and host.pid is not None and steps is not None:
            begun_ns = np.sort(steps.start_ns.unpack()) + to_common_clock_ns(host)
            by_rank.setdefault(host.rank, []).append((host.pid, begun_ns))
    return [
        rank
        for rank, trained in sorted(by_rank.items())
        if any(
            pid != other_pid and _begin_within(begun_ns, other_ns) and _begin_within(other_ns, begun_ns)
            for (pid, begun_ns), (other_pid, other_ns) in itertools.combinations(trained, 2)
        )
    ]


def _begin_within(some_ns: npt.NDArray[np.int64], others_ns: npt.NDArray[np.int64]) -> bool:
    """Return whether some steps, by when they began, began between the first and the last of others."""
    return bool(np.any((others_ns[0] <= some_ns) & (some_ns <= others_ns[-1])))


def _check_trials_met(ranked: Ranked, who: Mapping[int, str]) -> None:
    """Refuse ranks of which no round of a trial that they were to run at once was run at once."""
    rounds: dict[str, dict[int, list[_Ran]]] = {}
    for host, session in ranked:
        to_common_ns = to_common_clock_ns(host)
        at_once = {each.name for each in session.scenario.variants if each.on_hosts and each.on_hosts.hosts > 1}
        for trial in session.trials:
            if trial.measured and trial.variant in at_once:
                ran = _Ran(trial.started_ns + to_common_ns, trial.ended_ns + to_common_ns, host.rank)
                rounds.setdefault(trial.variant, {}).setdefault(trial.repeat, []).append(ran)
    for of_variant in rounds.values():
        _refuse_apart(list(of_variant.values()), who)


def _refuse_apart(rounds: Sequence[Sequence[_Ran]], who: Mapping[int, str], most_s: float = START_S) -> None:
    """Refuse ranks that were apart in every round by more than `most_s`."""
    apart = [(max(ran), min(ran, key=lambda each: each.end_ns)) for ran in rounds if len(ran) > 1]
    if not apart:
        return
    late, early = min(apart, key=lambda each: each[0].start_ns - each[1].end_ns)
    if late.start_ns - early.end_ns > most_s * 1e9:
        raise SessionError(
            sentence(
                f"{who[early.rank]} and {who[late.rank]} did not run at the same time: the first ran until "
                f"{_when(early.end_ns)}, the second from {_when(late.start_ns)} on."
            ),
            f"One may be of another run. To merge the others, remove {_folders(early.rank, late.rank)}; and give each "
            "run an --out of its own.",
        )


def _when(at_ns: int) -> str:
    return str(np.datetime64(at_ns // 10**9, "s")).replace("T", " ") + " UTC"
