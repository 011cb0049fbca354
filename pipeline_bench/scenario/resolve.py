"""From the mapping that a scenario's TOML file holds to a scenario: checked whole, every default filled in.

Each variant is the file's ``source``, ``model``, ``loop``, ``runtime`` and ``run`` with the variant's own values over
them. The ceiling of a variant is the same model on a batch that already sits on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario import Component, Run, Runtime, Scenario, Variant
from pipeline_bench.scenario.check import Checker, variant_key
from pipeline_bench.scenario.files import COMPONENTS, DEFAULT_KINDS, default_document, without_none
from pipeline_bench.text import did_you_mean, free_name, safe, sentence

CEILING = "ceiling"


def resolve(
    document: Mapping[str, Any], where: str = "scenario", default_name: str = "", backends: Sequence[str] = ()
) -> Scenario:
    """Check a scenario given as the mapping that its TOML file holds, and fill in every default.

    Raises:
        ScenarioError: with `where`, the key, what was given and what is allowed; of several errors, with each of them.
    """
    check = Checker(where)
    with check.noting():
        return _resolved(check, document, default_name, backends)
    check.finish()
    raise AssertionError("an error was noted, and is raised by now")


def _resolved(check: Checker, document: Mapping[str, Any], default_name: str, backends: Sequence[str]) -> Scenario:
    allowed = {"name", "question", "usual_duration_s", "published", "variants", "runtime", "run", *COMPONENTS}
    check.texts(document)
    check.keys(document, "", allowed)
    base = {key: check.table(document.get(key, {}), key) for key in (*COMPONENTS, "runtime", "run")}
    # Said outright, so that a variant that names the same kind keeps the options.
    for key, kind in DEFAULT_KINDS.items():
        base[key] = {"kind": kind, **base[key]}
    # A file that says nothing about its variants, or its length, is two_layer under another name.
    default = default_document()
    base["run"] = without_none(base["run"])
    if not {"steps", "time_s"} & set(base["run"]):
        base["run"] = {"steps": default["run"]["steps"], **base["run"]}
    given = document.get("variants", default["variants"])
    entries = check.tables(given, "variants")
    check.unused(entries, base)
    variants = check.variants(entries, base)
    if backends:
        variants = _only_backends(check, variants, backends, base)
    names = [variant.name for variant in variants]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise check.fail("variants", f"two variants are named {twice!r}", "give each its own name")
    _check_ceilings(check, variants)
    # The default's published figures are of the default's jobs: a file that changes them does not inherit them.
    published = document.get("published")
    if published is None:
        published = default["published"] if _has_jobs_of(default, document, variants) else {}
    scenario = check.model(
        Scenario,
        {
            "name": document.get("name", safe(default_name)),
            "question": document.get("question", ""),
            "usual_duration_s": document.get("usual_duration_s"),
            "variants": _with_ceilings(variants),
            "published": check.table(published, "published") or None,
        },
    )
    check.finish()
    if not backends:  # else figures of variants that were left out would be refused
        _check_published(check, scenario)
    return scenario


def job(variant: Variant) -> tuple[object, ...]:
    """Return what an author's figure was measured with; how long and how often it ran is scaled for."""
    runtime = variant.runtime.model_copy(update={"device": "auto", "memory_growth": True, "log_placement": False})
    return (variant.backend, variant.options, variant.source, variant.model, variant.loop, runtime)


def _has_jobs_of(default: Mapping[str, Any], document: Mapping[str, Any], variants: Sequence[Variant]) -> bool:
    """Return whether a file leaves the default's variants as they are; `runtime` need not change their job."""
    if "published" not in default or {"variants", *COMPONENTS} & set(document):
        return False
    if "runtime" not in document:
        return True
    jobs = {variant.name: job(variant) for variant in resolve(default).variants}
    return all(job(variant) == jobs.get(variant.name, job(variant)) for variant in variants)


def _only_backends(
    check: Checker, variants: list[Variant], wanted: Sequence[str], base: dict[str, dict[str, Any]]
) -> list[Variant]:
    known = plugins.names("backends")
    kept = []
    for backend in dict.fromkeys(wanted):
        if backend not in known:
            raise ScenarioError(f"--backends: there is no backend {backend!r}.", sentence(did_you_mean(backend, known)))
        matching = [variant for variant in variants if variant.backend == backend]
        kept += matching or check.variants([{"backend": backend}], base, key="--backends")
    named = {variant.ceiling for variant in kept}
    kept += [variant for variant in variants if variant.name in named and variant not in kept]
    order = {variant.name: i for i, variant in enumerate(variants)}
    return sorted(kept, key=lambda variant: order.get(variant.name, len(order)))


def _check_ceilings(check: Checker, variants: Sequence[Variant]) -> None:
    """See that each ceiling that a variant names is one, of the variant's own job but for the loop."""
    known = {variant.name: variant for variant in variants if variant.backend == CEILING}
    for variant in variants:
        if variant.ceiling is None:
            continue
        key = f"variants.{variant_key({'name': variant.name}, 0)}.ceiling"
        if variant.backend == CEILING:
            raise check.fail(key, "a ceiling has none", "leave it out")
        if variant.ceiling not in known:
            hint = did_you_mean(variant.ceiling, known)
            raise check.fail(key, f"no variant {variant.ceiling!r} has the backend ceiling", hint)
        if differing := _differing_settings(variant, known[variant.ceiling]):
            problem = f"{variant.ceiling!r} is of another job, with other {', '.join(differing)}"
            raise check.fail(key, problem, "a ceiling that is named may differ in its loop alone")


def _check_published(check: Checker, scenario: Scenario) -> None:
    known = [variant.name for variant in scenario.variants]
    for i, figure in enumerate(scenario.published.figures if scenario.published else ()):
        if figure.variant not in known:
            raise check.fail(
                f"published.figures.{i}.variant",
                f"there is no variant {figure.variant!r}",
                did_you_mean(figure.variant, known),
            )


def _with_ceilings(variants: Sequence[Variant]) -> list[Variant]:
    """Give every variant that names no ceiling the name of its own, and add those that the file does not have."""
    added: list[Variant] = []
    resolved = []
    taken = {variant.name for variant in variants}
    settings = [_settings(variant) for variant in variants]
    # Variants share a ceiling when everything but the way of the batch to the model is the same.
    keys = [frozenset(values.items()) for values in settings]
    ceilings = {key: variant.name for key, variant in zip(keys, variants, strict=True) if variant.backend == CEILING}
    names = dict.fromkeys(name for values in settings for name in sorted(values, key=_kinds_first))
    differing = [name for name in names if len({values.get(name) for values in settings}) > 1]
    for variant, key, values in zip(variants, keys, settings, strict=True):
        if variant.backend == CEILING or variant.ceiling is not None:
            resolved.append(variant)
            continue
        if key not in ceilings:
            labels = [_label(name, values[name]) for name in differing if name in values]
            name = free_name(", ".join([CEILING, *labels]), taken)
            taken.add(name)
            users = [other for other, its in zip(variants, keys, strict=True) if its == key]
            added.append(_ceiling_of(variant, name, _longest_run(users)))
            ceilings[key] = name
        resolved.append(variant.model_copy(update={"ceiling": ceilings[key]}))
    return resolved + added


def _differing_settings(variant: Variant, ceiling: Variant) -> list[str]:
    """Return the settings in which a ceiling is of another job than the variant, by dotted name; the loop is none."""
    own, its = _settings(variant), _settings(ceiling)
    return sorted(name for name in own | its if own.get(name) != its.get(name) and not name.startswith("loop."))


def _kinds_first(name: str) -> bool:
    return not name.endswith(".kind")


def _label(name: str, value: str) -> str:
    """Return a setting as a part of a name: ``batch_size 32``, ``synchronous false`` as in TOML; a kind by itself."""
    option = name.rpartition(".")[2]
    value = value.lower() if value in ("True", "False") else value
    return value if option == "kind" else f"{option} {value}"


def _settings(variant: Variant) -> dict[str, str]:
    """Return what distinguishes one ceiling from another, by dotted name: ``source.batch_size``."""
    parts = {"source": _without_timing(variant.source), "model": variant.model.options, "loop": variant.loop.options}
    settings = {f"{part}.{key}": str(value) for part, options in parts.items() for key, value in options.items()}
    settings |= {f"{part}.kind": getattr(variant, part).kind for part in parts}
    settings |= {f"runtime.{key}": str(value) for key, value in _runtime_settings(variant.runtime).items()}
    return settings | {"run.seed": str(variant.run.seed)}


def _runtime_settings(runtime: Runtime) -> dict[str, Any]:
    """Return what of a runtime a ceiling's steps depend on: how replicas work together only where there are some."""
    left_out = {"log_placement"}
    if not runtime.is_replicated:
        left_out |= {"replication", "synchronous"}
    elif runtime.replication != "between_graph":
        left_out.add("synchronous")
    return runtime.model_dump(exclude=left_out)


def _ceiling_of(variant: Variant, name: str, run: Run) -> Variant:
    options = plugins.make("backends", CEILING, {}).options.model_dump(mode="json")
    source = variant.source.model_copy(update={"options": _without_timing(variant.source)})
    return variant.model_copy(
        update={"name": name, "backend": CEILING, "options": options, "source": source, "run": run}
    )


def _longest_run(users: Sequence[Variant]) -> Run:
    """Return the longest run of the ceiling's variants, with the most repeats: each of their trials needs one of it."""
    longest = max((variant.run for variant in users), key=lambda run: (run.time_s or 0.0, run.steps or 0))
    return longest.model_copy(update={"repeats": max(variant.run.repeats for variant in users)})


def _without_timing(source: Component) -> dict[str, Any]:
    """Return a source's options with those that only say how long a batch takes at their defaults."""
    plugin: Any = plugins.find("sources", source.kind)
    fields = plugin.Options.model_fields
    return {
        key: fields[key].get_default(call_default_factory=True) if key in plugin.timing_options else value
        for key, value in source.options.items()
    }
