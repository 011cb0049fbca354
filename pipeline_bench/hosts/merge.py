"""The sessions that the ranks left in a folder -> one session with hosts; refuses what cannot be compared."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipeline_bench.analysis import measured, wall_time
from pipeline_bench.analysis.measured import ByVariant, Rounds
from pipeline_bench.analysis.speedups import batch_size
from pipeline_bench.errors import SessionError, UsageError
from pipeline_bench.hosts import efficiency, inputs, ranks, synchronous
from pipeline_bench.hosts.comparable import (
    check_comparable,
    check_met,
    names,
    never_began,
    ranks_at_once,
    to_common_clock_ns,
    with_work_compared,
)
from pipeline_bench.hosts.efficiency import HostFigures, Span
from pipeline_bench.hosts.rendezvous import ENDED_EARLY
from pipeline_bench.hosts.shared import MOST_LISTED, common_of, ranks_named
from pipeline_bench.hosts.synchronous import Ranked
from pipeline_bench.model import Series
from pipeline_bench.model.hosts import Host, Hosts, HostsResult
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import SESSION_FILE, Session, load
from pipeline_bench.model.trial import TrialRecord, plan
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.system.files import matching
from pipeline_bench.text import joined, units

_AT_ONCE = (
    "several processes of rank {} trained at once, as torchrun starts them: each is taken for a training of its own; "
    "start each process as a rank"
)


def read(folder: Path) -> list[Session]:
    """Return the sessions of the ranks below a folder, by rank.

    Raises:
        UsageError: there is none.
        SessionError: one is damaged, or is not of the rank whose folder it lies in.
    """
    files = matching(folder, f"rank-*/{SESSION_FILE}") or matching(folder, f"rank-*/*/{SESSION_FILE}")
    if not files:
        raise UsageError(
            f"{folder} holds no sessions of ranks.",
            "Give what --out named under srun or mpirun: the folder that holds rank-000 and the others.",
        )
    return sorted((_of_its_folder(file, file.relative_to(folder).parts[0]) for file in files), key=_rank)


def _of_its_folder(file: Path, folder: str) -> Session:
    """Return the session of a file; a copy of another rank's would count twice."""
    try:
        session = load(file)
    except SessionError as error:
        raise SessionError(error.message, f"Remove {folder} to merge the other ranks without it.") from None
    if session.host is None or ranks.folder_name(session.host.rank) != folder:
        of = "of no rank" if session.host is None else f"of {session.host.label}"
        raise SessionError(
            f"{file} is {of}, and lies in {folder}.", "Leave in each folder what its own rank has saved there."
        )
    return session


def trainings(sessions: Sequence[Session]) -> list[list[Session]]:
    """Return the sessions by training, each by rank: the first of a name in one rank belongs to the first in another.

    Args:
        sessions: of the ranks, which may have left several each: a script that calls `fit` twice leaves two.

    Raises:
        SessionError: some are of another run.
    """
    check_met(sessions)
    groups: dict[tuple[str, int], list[Session]] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for session in sorted(sessions, key=lambda each: each.trials[0].started_ns if each.trials else 0):
        rank, name = _rank(session), session.scenario.name
        groups.setdefault((name, seen[rank, name]), []).append(session)
        seen[rank, name] += 1
    if len({rank for rank, _ in seen}) == len(sessions):  # one each: `merge` says what keeps them apart
        return [list(sessions)]
    return [sorted(group, key=_rank) for group in groups.values()]


def _rank(session: Session) -> int:
    return session.host.rank if session.host is not None else -1


def merge(
    sessions: Sequence[Session], lost: Mapping[int, str] | None = None, beside: Sequence[Session] = ()
) -> Session:
    """Return the session of all hosts.

    Args:
        sessions: of ranks, by rank; each has a `host`.
        lost: by rank why it did not run all of its trials, see `rendezvous.lost`.
        beside: what the ranks left of other trainings.

    Raises:
        SessionError: they cannot be compared.
    """
    began = [each for each in sessions if not never_began(each)] or sessions
    ranked: Ranked = [(_described(each.host, each), each) for each in began if each.host is not None]
    hosts = tuple(host for host, _ in ranked)
    who = names(hosts)
    check_comparable(ranked, who)
    ranked = with_work_compared(ranked, who)
    size = hosts[0].size
    present, elsewhere = {host.rank for host in hosts}, set(map(_rank, beside))
    missing = tuple(sorted(set(range(size)) - present - elsewhere))
    notes = dict.fromkeys((*_said(ranked, who), *_absent(sessions, missing), *_cut_short(began, who)))
    if elsewhere - present:  # as a validation that only rank 0 does
        those = ranks_named(sorted(present)[:MOST_LISTED]) + (" …" if len(present) > MOST_LISTED else "")
        notes[f"only {those} ran this training"] = None
    notes |= dict.fromkeys(map(_AT_ONCE.format, ranks_at_once([*sessions, *beside])))
    seen = {rank: why for rank, why in (lost or {}).items() if why != ENDED_EARLY}  # its session says that itself
    notes |= dict.fromkeys(f"{who.get(rank, f'rank {rank}')} was lost: {why}" for rank, why in seen.items())
    merged = began[0].model_copy(
        update={
            "host": None,
            "hosts": Hosts(hosts=hosts, missing=missing, results=tuple(_results(ranked, size, who))),
            "notes": tuple(notes),
            "precision": None,
            "wall_time": None,  # each rank has its own
            "disturbances": tuple(
                found.model_copy(update={"variant": _named(found.variant, host)})
                for host, session in ranked
                for found in session.disturbances
            ),
            "scenario": _scenario(ranked),
            "trials": tuple(_trials(ranked)),
            "results": tuple(_result(result, host) for host, session in ranked for result in session.results),
        }
    )
    return Session.model_validate(merged.model_dump())


def _said(ranked: Ranked, who: Mapping[int, str]) -> Iterator[str]:
    """Yield what the ranks' sessions note, and what in a training's wall time is unusual: of whom, if not of all."""
    by_note: dict[str, list[str]] = {}
    for host, session in ranked:
        for note in dict.fromkeys((*session.notes, *wall_time.remarks_of(session))):
            by_note.setdefault(note, []).append(who[host.rank])
    for note, said_by in by_note.items():
        of_all = len(said_by) == len(ranked) > 1
        more = " …" if len(said_by) > MOST_LISTED else ""
        yield note if of_all else f"{joined(said_by[:MOST_LISTED], '' if more else 'and')}{more}: {note}"


def _absent(sessions: Sequence[Session], missing: Sequence[int]) -> Iterator[str]:
    """Yield which ranks are missing, and why those that left a session."""
    refused = {_rank(each): each for each in sessions if _rank(each) in missing}
    if unseen := [rank for rank in missing if rank not in refused]:
        listed = ", ".join(map(str, unseen[:MOST_LISTED])) + (" …" if len(unseen) > MOST_LISTED else "")
        size = sessions[0].host.size if sessions[0].host is not None else len(sessions)
        yield f"{units.count(len(unseen), 'rank')} of {size} left no session: {listed}"
    yield from (f"rank {rank} ran no trial: {each.trials[0].reason}" for rank, each in refused.items())


def _cut_short(sessions: Sequence[Session], who: Mapping[int, str]) -> Iterator[str]:
    """Yield which ranks have not run their last trial, as one that was killed."""
    for session in sessions:
        planned = () if session.watched else plan(session.scenario)
        if (ran := len(session.trials)) < len(planned):
            next_one = f"the next was {planned[ran].label}"
            yield f"{who[_rank(session)]} ended early, or still runs: {ran} of {len(planned)} trials; {next_one}"


def _described(host: Host, session: Session) -> Host:
    """Return the host with what its session says of the machine."""
    around = session.environment
    emulated = around.accelerator_kind == "emulated"
    return host.model_copy(
        update={
            "accelerator": None if emulated else around.accelerator_name,
            "cpu": around.cpu,
            "cores": around.cores,
        }
    )


def _named(name: str, host: Host) -> str:
    return f"{name} · {host.label}"


def _scenario(ranked: Ranked) -> Scenario:
    def of(variant: Variant, host: Host) -> Variant:
        ceiling = variant.ceiling and _named(variant.ceiling, host)
        return variant.model_copy(update={"name": _named(variant.name, host), "ceiling": ceiling})

    variants = tuple(of(variant, host) for host, session in ranked for variant in session.scenario.variants)
    return ranked[0][1].scenario.model_copy(update={"variants": variants})


def _result(result: Result, host: Host) -> Result:
    def of(speedup: Any) -> Any:
        return speedup.model_copy(update={"over": speedup.over and _named(speedup.over, host)})

    update = {"variant": _named(result.variant, host), "speedup": of(result.speedup)}
    return result.model_copy(update=update | {"against_fastest": of(result.against_fastest)})


def _trials(ranked: Ranked) -> Iterator[TrialRecord]:
    """Yield the trials on the first host's monotonic clock, in the order in which they began."""
    records = [
        shifted(record, to_common_clock_ns(host) - to_common_clock_ns(ranked[0][0])).model_copy(
            update={"variant": _named(record.variant, host), "rank": host.rank, "stderr_file": _stderr(record, host)}
        )
        for host, session in ranked
        for record in session.trials
    ]
    for index, record in enumerate(sorted(records, key=lambda record: record.started_ns)):
        yield record.model_copy(update={"index": index})


def _stderr(record: TrialRecord, host: Host) -> str | None:
    return record.stderr_file and f"{ranks.folder_name(host.rank)}/{record.stderr_file}"


def shifted(value: Any, by_ns: int) -> Any:
    """Return a record with every time stamp in it moved: the fields named ``at_ns``, ``start_ns`` and the like."""
    if by_ns == 0:
        return value
    if isinstance(value, tuple):
        return tuple(shifted(each, by_ns) for each in value)
    if not isinstance(value, BaseModel) or isinstance(value, Series):
        return value
    moved: dict[str, Any] = {}
    for name in type(value).model_fields:
        held = getattr(value, name)
        if name in _STAMPS and isinstance(held, int):
            moved[name] = held + by_ns
        elif name in _STAMPS and isinstance(held, Series):
            moved[name] = Series.pack(held.unpack() + by_ns)
        else:
            moved[name] = shifted(held, by_ns)
    return value.model_copy(update=moved)


_STAMPS = frozenset({"at_ns", "from_ns", "start_ns", "end_ns", "started_ns", "ended_ns"})


def _results(ranked: Ranked, size: int, who: Mapping[int, str]) -> Iterator[HostsResult]:
    first = ranked[0][1]
    if first.watched:
        yield synchronous.watched(ranked, size, who)
        return
    found = {host.rank: measured.of(each.scenario, each.trials, each.environment.cores) for host, each in ranked}
    for variant in first.scenario.variants:
        if variant.on_hosts is None or variant.on_hosts.hosts > 1:
            continue
        base = variant.on_hosts.variant
        for hosts in ranks.widths(size):
            these = [(host, session) for host, session in ranked if host.rank < hosts]
            if len(these) < hosts:
                continue
            together = ranks.variant_name(base, hosts)
            apart, beside = (_spans(these, name, batch_size(variant)) for name in (variant.name, together))
            singles = efficiency.by_round(apart, hosts, efficiency.rate_apart)
            at_once = efficiency.by_round(beside, hosts, efficiency.rate_together)
            rounds = {repeat: (rate, singles[repeat]) for repeat, rate in at_once.items() if repeat in singles}
            windows = efficiency.by_round(beside, hosts, efficiency.window)
            apart_s = {} if windows else efficiency.by_round(beside, hosts, efficiency.apart_s)
            these_names = (variant.name, together, variant.ceiling or "")
            figures = [
                _figures(host, who[host.rank], found[host.rank], these_names, {each: windows[each] for each in at_once})
                for host, _ in these
            ]
            runs = {rank: found[rank].get(together, {}) for rank in range(hosts)}
            records = [[run.record for run in own.values()] for own in runs.values()]
            cached = all(inputs.read_from_cache(variant, each) for each in records)
            common = common_of(inputs.shared_by_hosts(variant), [host for host, _ in these], runs, cached=cached)
            unequal = _unequal(these, who, these_names)
            late_s = max(apart_s.values(), default=None)
            yield efficiency.result(base, hosts, rounds, figures, common=common, unequal=unequal, began_apart_s=late_s)


def _unequal(ranked: Ranked, who: Mapping[int, str], names: Collection[str]) -> str | None:
    """Return which ranks did not do equal work in one of these variants; None: all did, as far as that is known."""
    found = {
        who[host.rank]: each.work.text
        for host, session in ranked
        for each in session.results
        if each.variant in names and each.work.status == "unequal"
    }
    whys = joined(dict.fromkeys(found.values()), "and")
    return f"{joined(found, 'and')} did not do equal work: {whys}; there is no rate to compare" if found else None


def _figures(
    host: Host, who: str, found: ByVariant, names: tuple[str, str, str], windows: Mapping[int, tuple[int, int]]
) -> HostFigures:
    """Return what a rank measured of a variant alone, together and of its ceiling.

    Of the trials together only the steps count in which all trained, by the window of each round: where one fell out,
    came when the others were half through, or went on when they had ended, they had more of the storage.
    """
    alone, together, ceiling = (found.get(name, {}) for name in names)
    to_own_ns = -to_common_clock_ns(host)
    together = {
        repeat: dataclasses.replace(run, during=(start_ns + to_own_ns, end_ns + to_own_ns))
        for repeat, run in together.items()
        if repeat in windows
        for start_ns, end_ns in (windows[repeat],)
    }
    together = {repeat: run for repeat, run in together.items() if run.step_ms.size}
    steps_ms = ({repeat: run.mean_ms for repeat, run in each.items()} for each in (ceiling, alone, together))
    return HostFigures(host.rank, who, _waits(alone), _waits(together), *steps_ms)


def _waits(rounds: Rounds) -> dict[int, float]:
    """Return the share of input wait by round, where that was measured."""
    return {repeat: run.mean_wait_ms / run.mean_ms for repeat, run in rounds.items() if run.mean_wait_ms is not None}


def _spans(of: Ranked, name: str, batch: int) -> list[tuple[int, Span]]:
    """Return the trials of a variant on all of these ranks, each with its round, on one clock."""
    return [
        (record.repeat, span)
        for host, session in of
        for record in session.trials
        if record.variant == name
        if (span := Span.of(record, to_common_clock_ns(host), batch)) is not None
    ]
