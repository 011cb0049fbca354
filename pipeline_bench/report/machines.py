"""What a report says of the machines: which hosts there were, and what of the files was in their page caches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pipeline_bench.analysis import validity
from pipeline_bench.model.hosts import Host, sharing
from pipeline_bench.model.session import Session
from pipeline_bench.model.trial import TrialRecord
from pipeline_bench.text import NAME, grouped, joined, one_line, units

_MOST_HOSTS = 16
_HEADS = {"as-is": "files as found", "cold": "cold files", "warm": "warm files"}


def storage(session: Session) -> list[tuple[str, str]]:
    """Return what was in the page cache where files were read: a line for those variants that asked for the same.

    Of several hosts `hosts` says it, since each has a page cache of its own.
    """
    if session.hosts is not None:
        return []
    asked = _by_state(session.trials)
    lines = []
    for state, trials in asked.items():
        names = dict.fromkeys(one_line(trial.variant, NAME) for trial in trials)
        who = f" of {joined(names)}" if len(asked) > 1 else ""
        lines.append((f"{_HEADS[state]}{who}", validity.describe_cache(trials) or ""))
    return lines


def hosts(session: Session) -> list[tuple[str, str]]:
    """Return each host with its machine and what of the files was in its page cache, and how the machines differ."""
    if session.hosts is None:
        return []
    every = session.hosts.hosts
    lines = [(host.label, _host(host, session.trials)) for host in every[:_MOST_HOSTS]]
    if (more := len(every) - len(lines)) > 0:
        lines.append(("besides", f"{units.count(more, 'more host')} in the session file"))
    return [*lines, *(("remark", remark) for remark in _remarks(every, with_ceilings=not session.watched))]


TOGETHER = ("variant", "hosts", "samples/s in all", "efficiency", "rounds")
"""The heads of the table of `together`; its first column is a name."""


def together(session: Session) -> list[tuple[str, list[str]]]:
    """Return what the hosts reached at once, as variants and rows of figures; empty where nothing ran on several."""
    results = session.hosts.results if session.hosts is not None else ()
    return [
        (
            one_line(result.variant, NAME),
            [
                str(result.hosts),
                units.rate(result.samples_per_second),
                units.with_ends(units.share, result.efficiency.value, result.efficiency.ci95),
                str(result.rounds),
            ],
        )
        for result in results
        if result.samples_per_second is not None
    ]


def _by_state(trials: Iterable[TrialRecord]) -> dict[str, list[TrialRecord]]:
    """Return the trials that read files by the state of the page cache that they asked for."""
    return grouped((trial.storage.asked, trial) for trial in trials if trial.storage is not None and trial.measured)


def _host(host: Host, trials: Iterable[TrialRecord]) -> str:
    own = [trial for trial in trials if trial.rank == host.rank]
    caches = [f"{_HEADS[state]}: {validity.describe_cache(each)}" for state, each in _by_state(own).items()]
    return "; ".join([one_line(host.name, NAME), *_machine(host), *caches])


def _machine(host: Host) -> list[str]:
    """Return what the host has; empty of a session that was merged before this was kept."""
    parts = [one_line(part, NAME) for part in dict.fromkeys((host.accelerator, host.cpu)) if part]
    return [", ".join([*parts, units.count(host.cores, "core")])] if host.cores is not None else []


def _remarks(every: Sequence[Host], *, with_ceilings: bool) -> Iterator[str]:
    """Yield which ranks shared a machine, and which hosts are other machines than the first."""
    too_high = "; there they also measured their ceilings at once, so that AU may be too high" if with_ceilings else ""
    for together in sharing(every):
        numbers = joined([str(host.rank) for host in together])
        yield (
            f"ranks {numbers} ran on one machine, {one_line(together[0].name, NAME)}, and shared its cores, "
            f"memory bandwidth and page cache{too_high}"
        )
    if unlike := [str(host.rank) for host in every[1:] if _machine(host) != _machine(every[0])]:
        yield f"machines differ: the heading shows that of {every[0].label}; unlike it: rank {joined(unlike)}"
