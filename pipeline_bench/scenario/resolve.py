"""From the mapping that a scenario's TOML file holds to a scenario: checked whole, every default filled in.

Each variant is the file's ``source``, ``model``, ``loop``, ``runtime`` and ``run`` with the variant's own values over
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError, did_you_mean, sentence
from pipeline_bench.scenario import Scenario, Variant
from pipeline_bench.scenario.ceilings import with_ceilings
from pipeline_bench.scenario.check import DEFAULT_KINDS, Checker
from pipeline_bench.scenario.overrides import COMPONENTS
from pipeline_bench.scenario.shipped import default_document
from pipeline_bench.text import safe


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
    if not {"steps", "time_s"} & set(base["run"]):
        base["run"] = {"steps": default["run"]["steps"], **base["run"]}
    given = document.get("variants", default["variants"])
    variants = check.variants(check.tables(given, "variants"), base)
    if backends:
        variants = _only_backends(check, variants, backends, base)
    check.unique([variant.name for variant in variants])
    check.ceilings(variants)
    # The default's published figures are of the default's job: a file that changes it does not inherit them.
    same_job = not {"variants", *COMPONENTS} & set(document)
    published = document.get("published", default.get("published", {}) if same_job else {})
    scenario = check.model(
        Scenario,
        {
            "name": document.get("name", safe(default_name)),
            "question": document.get("question", ""),
            "usual_duration_s": document.get("usual_duration_s"),
            "variants": with_ceilings(variants),
            "published": check.table(published, "published") or None,
        },
        "",
    )
    check.finish()
    check.published(scenario, kept_all=not backends)
    return scenario


def _only_backends(
    check: Checker, variants: list[Variant], wanted: Sequence[str], base: dict[str, dict[str, Any]]
) -> list[Variant]:
    known = plugins.names("backends")
    kept = []
    for backend in dict.fromkeys(wanted):
        if backend not in known:
            raise ScenarioError(f"--backends: there is no backend {backend!r}.", sentence(did_you_mean(backend, known)))
        matching = [variant for variant in variants if variant.backend == backend]
        kept += matching or check.added(backend, base)
    named = {variant.ceiling for variant in kept}
    kept += [variant for variant in variants if variant.name in named and variant not in kept]
    order = {variant.name: i for i, variant in enumerate(variants)}
    return sorted(kept, key=lambda variant: order.get(variant.name, len(order)))
