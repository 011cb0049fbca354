"""What is not the same in two sessions and makes it unfair to compare them: machine, versions, job, broken trials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.model.difference import Condition
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.model.task import KIND, Task
from pipeline_bench.scenario import Variant
from pipeline_bench.text import REASON, one_line, units

_CEILING_PARTS = {"source", "model", "loop", "runtime"}

_ENVIRONMENT_NAMES = {
    "accelerator_kind": "kind of accelerator",
    "accelerator_name": "accelerator",
    "tensorflow": "TensorFlow",
    "python": "Python",
    "cpu": "CPU",
    "memory_bytes": "memory",
    "package": "pipeline-bench",
}

# What a machine lacks is said by its kind, and why it lacks it makes no figure another.
_ENVIRONMENT_IGNORED = {"accelerator_reason"}

_KERNEL = "ipykernel_launcher"
"""What runs a notebook, with another file at each start of its kernel."""
# More repeats make an interval narrower and move nothing, nor does a log of what ran where; the others say when to give
# up, or when to stop adding.
_JOB_IGNORED = {
    *("name", "ceiling", "run.repeats", "run.stall_timeout_s", "run.precision", "run.budget_s"),
    "runtime.log_placement",
}
_OF_THE_JOB = {"target", "model", "activity", "batch_size", "edits", "cold"}
_CHOSEN = {"run.time_s", *(f"source.{name}" for name in Task.model_fields if name not in _OF_THE_JOB)}
"""Of a diagnosis: what it chose itself, by what it measured."""


def conditions(before: Session, after: Session) -> tuple[Condition, ...]:
    """Return every difference that makes a comparison of the two sessions unfair; none where it is fair."""
    machines = (*_environment(before.environment, after.environment), *_machines(before, after))
    return (*machines, *_watched(before, after), *_variants(before, after))


def _watched(before: Session, after: Session) -> Iterator[Condition]:
    """Yield what is known of two watched jobs, of which nothing else says that they are of different trainings."""
    if before.watched and after.watched:
        for name, was, now in (
            ("job", before.scenario.name, after.scenario.name),
            ("command", before.command, after.command),
        ):
            if was != now and not (_KERNEL in was and _KERNEL in now):
                yield Condition(name=name, before=_shown(was), after=_shown(now))


def _machines(before: Session, after: Session) -> Iterator[Condition]:
    """Yield the ranks but the first, whose machine the environment is, that ran on another kind of machine."""
    ranks = [{} if each.hosts is None else {host.rank: host for host in each.hosts.hosts} for each in (before, after)]
    for rank in sorted((ranks[0].keys() & ranks[1].keys()) - {min(ranks[0], default=0)}):
        for name in ("cpu", "cores", "accelerator"):
            was, now = (getattr(each[rank], name) for each in ranks)
            if was != now:
                yield Condition(
                    name=f"{_ENVIRONMENT_NAMES.get(name, name)} of rank {rank}", before=_shown(was), after=_shown(now)
                )


def _environment(before: Environment, after: Environment) -> Iterator[Condition]:
    for field in Environment.model_fields:
        if field in _ENVIRONMENT_IGNORED:
            continue
        values = getattr(before, field), getattr(after, field)
        # The same memory is some pages more or less after another start of the machine.
        shown = tuple(units.size(value) for value in values) if field == "memory_bytes" else tuple(map(_shown, values))
        if values[0] != values[1] and shown[0] != shown[1]:
            yield Condition(
                name=_ENVIRONMENT_NAMES.get(field, field.replace("_", " ")), before=shown[0], after=shown[1]
            )


def _variants(before: Session, after: Session) -> Iterator[Condition]:
    """Yield what differs in the variants of both: options, skipped records, broken trials; each change only once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for variant in shared_variants(before, after):
        for change in (*_job(before, after, variant), *_outcome(before, after, variant)):
            found.setdefault(change, []).append(variant)
    for (key, was, now), variants in found.items():
        yield Condition(name=key, before=was, after=now, variants=tuple(variants))


def _job(before: Session, after: Session, variant: str) -> Iterator[tuple[str, str, str]]:
    """Yield the differing options of a variant, by the keys of a scenario file, with both values."""
    ignored = _JOB_IGNORED | ({"run.steps"} if _chose_steps(before, after) else set())
    one, other = (
        {key: value for key, value in _flat(session.scenario.variant(variant).model_dump()) if key not in ignored}
        for session in (before, after)
    )
    for key in dict.fromkeys((*one, *other)):
        if one.get(key) == other.get(key) or (one.get("source.kind") == KIND and key in _CHOSEN):
            continue
        if key.endswith(".pickled"):
            yield key.removesuffix(".pickled"), "a function", "another one"
        else:
            yield key, _shown(one.get(key)), _shown(other.get(key))


def _chose_steps(before: Session, after: Session) -> bool:
    """Return whether two comparisons of one scenario may have chosen, by their first trials, how long others are."""
    same = before.scenario.name == after.scenario.name
    return same and all(each.precision is not None and each.precision.goal is None for each in (before, after))


def _outcome(before: Session, after: Session, variant: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a variant left out: a record that cannot be read costs time and gives no sample."""
    was, now = (skipped(session, variant) for session in (before, after))
    if was != now:
        yield "records skipped", f"{was:,}", f"{now:,}"
    trials = [session.trials_of(variant) for session in (before, after)]
    one, other = (f"{sum(trial.broke for trial in each)} of {len(each)}" for each in trials)
    if one != other and any(trial.broke for each in trials for trial in each):
        yield "trials that failed or stalled", one, other


def skipped(session: Session, variant: str) -> int:
    """Return how many records of an epoch a variant skipped."""
    return max((trial.work.skipped for trial in session.trials_of(variant) if trial.work), default=0)


def ceilings_differ_in(before: Session, after: Session, variant: str) -> tuple[str, ...]:
    """Return the keys in which the job of a variant's ceiling differs, or a ceiling's own job; empty for the same job.

    A ceiling's step time is that of its source's batch, model, loop and runtime. How long the source takes to make a
    batch is no part of it: a ceiling has no input.
    """
    ceilings = _ceiling(before, variant), _ceiling(after, variant)
    one, other = (dict(_flat(ceiling.model_dump(include=_CEILING_PARTS))) for ceiling in ceilings)
    ignored = _JOB_IGNORED | (_CHOSEN if ceilings[1].source.kind == KIND else set())
    differing = [key for key in dict.fromkeys((*one, *other)) if one.get(key) != other.get(key) and key not in ignored]
    if any(key.startswith("source.") for key in differing):
        timing = _timing_options(ceilings[1].source.kind)
        differing = [key for key in differing if key not in timing]
    return tuple(differing)


def _ceiling(session: Session, variant: str) -> Variant:
    own = session.scenario.variant(variant)
    # A watched job names a ceiling that was never run; any file may name one that its scenario lacks.
    return next((each for each in session.scenario.variants if each.name == own.ceiling), own)


def _timing_options(source: str) -> set[str]:
    """Return the keys that only say how long a source takes for a batch; none of a source that is not installed."""
    plugin = plugins.find_if_known("sources", source)
    return set() if plugin is None else {f"source.{option}" for option in plugin.timing_options}


def shared_variants(before: Session, after: Session) -> tuple[str, ...]:
    """Return the names of the variants that both scenarios have, in the order of AFTER."""
    names = {variant.name for variant in before.scenario.variants}
    return tuple(variant.name for variant in after.scenario.variants if variant.name in names)


def _flat(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        # A component's options stand beside its kind, as they do in a scenario file.
        inner = path if path and name == "options" else (*path, name)
        if isinstance(value, dict):
            yield from _flat(value, inner)
        else:
            yield ".".join(inner), value


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if value == "":
        return "empty"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, REASON)
