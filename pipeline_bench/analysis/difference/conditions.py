"""What two sessions did not have in common: machine, versions and the job itself, each with both values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.model.difference import Condition
from pipeline_bench.model.session import Environment, Session
from pipeline_bench.scenario import Variant
from pipeline_bench.text import one_line, units

_VALUE_LIMIT = 120

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

# More repeats make an interval narrower and move nothing; the others say when to give up, or when to stop adding.
_JOB_IGNORED = {"name", "ceiling", "run.repeats", "run.stall_timeout_s", "run.precision", "run.budget_s"}


def conditions(before: Session, after: Session) -> tuple[Condition, ...]:
    """Every difference that makes a comparison of the two sessions unfair; none where it is fair."""
    return (*_environment(before.environment, after.environment), *_jobs(before, after))


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


def _jobs(before: Session, after: Session) -> Iterator[Condition]:
    """The options of the variants in both, by the keys of a scenario file; the same change of several only once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for variant in shared_variants(before, after):
        one, other = (dict(_options(session.scenario.variant(variant))) for session in (before, after))
        for key in dict.fromkeys((*one, *other)):
            if one.get(key) != other.get(key):
                change = (key, _shown(one.get(key)), _shown(other.get(key)))
                found.setdefault(change, []).append(variant)
    for (key, was, now), variants in found.items():
        yield Condition(name=key, before=was, after=now, variants=tuple(variants))


def ceilings_differ_in(before: Session, after: Session, variant: str) -> tuple[str, ...]:
    """What tells the ceiling job of a variant before from that after; of a ceiling, its own. Empty for the same job.

    A ceiling's step time is that of its source's batch, model, loop and runtime. How long the source takes to make a
    batch is no part of it: a ceiling has no input.
    """
    ceilings = _ceiling(before, variant), _ceiling(after, variant)
    one, other = (dict(_flat(ceiling.model_dump(include=_CEILING_PARTS), ())) for ceiling in ceilings)
    differing = [key for key in dict.fromkeys((*one, *other)) if one.get(key) != other.get(key)]
    if any(key.startswith("source.") for key in differing):
        timing = _timing_options(ceilings[1].source.kind)
        differing = [key for key in differing if key not in timing]
    return tuple(differing)


def _ceiling(session: Session, variant: str) -> Variant:
    own = session.scenario.variant(variant)
    # A watched job names a ceiling that was never run; any file may name one that its scenario lacks.
    return next((each for each in session.scenario.variants if each.name == own.ceiling), own)


def _timing_options(source: str) -> set[str]:
    """The keys that only say how long a source takes for a batch; none of a source that is not installed here."""
    try:
        plugin: Any = plugins.find("sources", source)
    except (KeyError, UsageError):
        return set()
    return {f"source.{option}" for option in plugin.timing_options}


def shared_variants(before: Session, after: Session) -> tuple[str, ...]:
    """The names of the variants that both scenarios have, in the order of AFTER."""
    names = {variant.name for variant in before.scenario.variants}
    return tuple(variant.name for variant in after.scenario.variants if variant.name in names)


def _options(variant: Variant) -> Iterator[tuple[str, Any]]:
    """A variant's settings by their dotted keys, those that cannot change a step left out."""
    for key, value in _flat(variant.model_dump(), ()):
        if key not in _JOB_IGNORED:
            yield key, value


def _flat(tree: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        # A component's options stand beside its kind, as they do in a scenario file.
        inner = path if path and name == "options" else (*path, name)
        if isinstance(value, dict):
            yield from _flat(value, inner)
        else:
            yield ".".join(inner), value


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, _VALUE_LIMIT)


def only_in(session: Session, other: Iterable[str]) -> tuple[str, ...]:
    """The session's variants that are not among the names of the other's."""
    names = set(other)
    return tuple(variant.name for variant in session.scenario.variants if variant.name not in names)
