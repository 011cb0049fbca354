"""The ceiling of each variant: the same model on a batch that already sits on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.scenario import Component, Run, Runtime, Variant

CEILING = "ceiling"


def with_ceilings(variants: Sequence[Variant]) -> list[Variant]:
    """Give every variant that names no ceiling the name of its own, and add those that the file does not have."""
    ceilings = {_ceiling_key(variant): variant.name for variant in variants if variant.backend == CEILING}
    added: list[Variant] = []
    resolved = []
    taken = {variant.name for variant in variants}
    settings = {_ceiling_key(variant): _settings(variant) for variant in variants}
    names = dict.fromkeys(name for values in settings.values() for name in sorted(values, key=_kinds_first))
    differing = [name for name in names if len({values.get(name) for values in settings.values()}) > 1]
    for variant in variants:
        if variant.backend == CEILING or variant.ceiling is not None:
            resolved.append(variant)
            continue
        key = _ceiling_key(variant)
        if key not in ceilings:
            told_apart = [_told(name, settings[key][name]) for name in differing if name in settings[key]]
            name = _free_name(", ".join([CEILING, *told_apart]), taken)
            taken.add(name)
            users = [other for other in variants if _ceiling_key(other) == key]
            added.append(_ceiling_of(variant, name, _longest_run(users)))
            ceilings[key] = name
        resolved.append(variant.model_copy(update={"ceiling": ceilings[key]}))
    return resolved + added


def other_job(variant: Variant, ceiling: Variant) -> list[str]:
    """In which settings a ceiling is of another job than the variant, by dotted name; the loop is not the job."""
    own, its = _settings(variant), _settings(ceiling)
    return sorted(name for name in own | its if own.get(name) != its.get(name) and not name.startswith("loop."))


def _kinds_first(name: str) -> bool:
    return not name.endswith(".kind")


def _told(name: str, value: str) -> str:
    """``batch_size 32``; a kind by itself; ``synchronous false``, as TOML has it."""
    option = name.rpartition(".")[2]
    value = value.lower() if value in ("True", "False") else value
    return value if option == "kind" else f"{option} {value}"


def _settings(variant: Variant) -> dict[str, str]:
    """What tells one ceiling from another, by dotted name: ``source.batch_size``."""
    parts = {"source": _without_timing(variant.source), "model": variant.model.options, "loop": variant.loop.options}
    settings = {f"{part}.{key}": str(value) for part, options in parts.items() for key, value in options.items()}
    settings |= {f"{part}.kind": getattr(variant, part).kind for part in parts}
    settings |= {f"runtime.{key}": str(value) for key, value in _of_runtime(variant.runtime).items()}
    return settings | {"run.seed": str(variant.run.seed)}


def _of_runtime(runtime: Runtime) -> dict[str, Any]:
    """What of a runtime a ceiling's steps depend on: how replicas work together only where there are some."""
    left_out = {"log_placement"}
    if runtime.replicas == 1:
        left_out |= {"replication", "synchronous"}
    elif runtime.replication != "between_graph":
        left_out.add("synchronous")
    return runtime.model_dump(exclude=left_out)


def _ceiling_of(variant: Variant, name: str, run: Run) -> Variant:
    options = plugins.find("backends", CEILING)({}).options.model_dump(mode="json")
    source = variant.source.model_copy(update={"options": _without_timing(variant.source)})
    return variant.model_copy(
        update={"name": name, "backend": CEILING, "options": options, "source": source, "run": run}
    )


def _longest_run(users: Sequence[Variant]) -> Run:
    """As many repeats and steps as any of the ceiling's variants has: each of their trials needs one beside it."""
    longest = max((variant.run for variant in users), key=lambda run: (run.time_s or 0.0, run.steps or 0))
    return longest.model_copy(update={"repeats": max(variant.run.repeats for variant in users)})


def _ceiling_key(variant: Variant) -> str:
    """Two variants share a ceiling when everything but the way of the batch to the model is the same."""
    return repr(sorted(_settings(variant).items()))


def _without_timing(source: Component) -> dict[str, Any]:
    """A source's options with those that only say how long a batch takes at their defaults."""
    plugin: Any = plugins.find("sources", source.kind)
    fields = plugin.Options.model_fields
    return {
        key: fields[key].get_default(call_default_factory=True) if key in plugin.timing_options else value
        for key, value in source.options.items()
    }


def _free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} {number}", number + 1
    return candidate
