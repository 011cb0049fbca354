"""The ceiling of each variant: the same model on a batch that already sits on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.scenario import Component, Variant

CEILING = "ceiling"


def with_ceilings(variants: Sequence[Variant]) -> list[Variant]:
    """Give every variant the name of its ceiling, and add the ceilings that the file does not have."""
    ceilings = {_ceiling_key(variant): variant.name for variant in variants if variant.backend == CEILING}
    added: list[Variant] = []
    resolved = []
    taken = {variant.name for variant in variants}
    several = len({_ceiling_key(variant) for variant in variants}) > 1
    for variant in variants:
        if variant.backend == CEILING:
            resolved.append(variant)
            continue
        key = _ceiling_key(variant)
        if key not in ceilings:
            name = _free_name(f"{CEILING} of {variant.name}" if several else CEILING, taken)
            taken.add(name)
            added.append(_ceiling_of(variant, name))
            ceilings[key] = name
        resolved.append(variant.model_copy(update={"ceiling": ceilings[key]}))
    return resolved + added


def _ceiling_of(variant: Variant, name: str) -> Variant:
    options = plugins.find("backends", CEILING)({}).options.model_dump(mode="json")
    source = variant.source.model_copy(update={"options": _without_timing(variant.source)})
    return variant.model_copy(update={"name": name, "backend": CEILING, "options": options, "source": source})


def _ceiling_key(variant: Variant) -> str:
    """Two variants share a ceiling when everything but the way of the batch to the model is the same."""
    source = {"kind": variant.source.kind, **_without_timing(variant.source)}
    return repr((source, variant.model, variant.loop, variant.runtime, variant.run.seed))


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
