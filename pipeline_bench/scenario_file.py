"""Reads a scenario from its TOML file and checks it whole; every complaint names the file and the key.

A file is read in three layers: the defaults, the file, the ``--set`` overrides. Each variant is then the file's
``source``, ``model``, ``loop``, ``runtime`` and ``run`` with the variant's own values on top. Resolving also adds the
**ceiling** of each variant, the same model on a batch that already sits on the device, where the file has none.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError, did_you_mean
from pipeline_bench.scenario import Component, Run, Runtime, Scenario, Variant

DEFAULT_SCENARIO = "two_layer"
CEILING = "ceiling"

COMPONENTS: dict[str, plugins.Group] = {"source": "sources", "model": "models", "loop": "loops"}
DEFAULT_KINDS = {"source": "synthetic", "model": "two_layer", "loop": "session"}

_Model = TypeVar("_Model", bound=BaseModel)


def shipped() -> dict[str, Path]:
    """Name to file of the scenarios that come with the package."""
    folder = Path(str(files("pipeline_bench"))) / "scenarios"
    if not folder.is_dir():  # an editable install: the wheel puts scenarios/ inside the package, a checkout beside it
        folder = folder.parent.parent / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def locate(name_or_path: str) -> Path:
    """The file of a shipped scenario's name, or of a path to a TOML file.

    Raises:
        ScenarioError: neither exists.
    """
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.suffix == ".toml" or "/" in name_or_path:
        reason = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise ScenarioError(f"The scenario file {name_or_path} {reason}.", "Give the path to a TOML file.")
    raise ScenarioError(f"There is no scenario {name_or_path!r}.", did_you_mean(name_or_path, known).capitalize())


def load(
    name_or_path: str = DEFAULT_SCENARIO, overrides: Sequence[str] = (), backends: Sequence[str] = ()
) -> Scenario:
    """Read, override, check and resolve a scenario.

    Args:
        name_or_path: a shipped scenario's name or the path of a TOML file.
        overrides: ``KEY=VALUE`` with a dotted key; the value is TOML, or else a bare string. A variant is addressed
            by its position or its name: ``variants.0.options.threads=4``.
        backends: keep the variants of these backends only; one that no variant has is added with its default options.

    Raises:
        ScenarioError: with the file, the key, what was given and what is allowed.
    """
    path = locate(name_or_path)
    document = _read(path)
    where = str(path) if path not in shipped().values() else f"scenario {path.stem!r}"
    for override in overrides:
        _apply_override(document, override)
    return resolve(document, where=where, default_name=path.stem, backends=backends)


def resolve(
    document: Mapping[str, Any], where: str = "scenario", default_name: str = "", backends: Sequence[str] = ()
) -> Scenario:
    """Check a scenario given as the mapping that its TOML file holds, and fill in every default.

    Raises:
        ScenarioError: with `where`, the key, what was given and what is allowed.
    """
    check = _Checker(where)
    allowed = {"name", "question", "published", "variants", "runtime", "run", *COMPONENTS}
    check.keys(document, "", allowed)
    base = {key: check.table(document.get(key, {}), key) for key in (*COMPONENTS, "runtime", "run")}
    # A file that says nothing about its variants, or its length, is two_layer under another name.
    default = _read(shipped()[DEFAULT_SCENARIO])
    if not {"steps", "time_s"} & set(base["run"]):
        base["run"] = {"steps": default["run"]["steps"], **base["run"]}
    given = document.get("variants", default["variants"])
    variants = [check.variant(entry, f"variants.{i}", base) for i, entry in enumerate(check.tables(given, "variants"))]
    if backends:
        variants = _only_backends(check, variants, backends, base)
    check.unique([variant.name for variant in variants])
    published = document.get("published", default.get("published") if "variants" not in document else None)
    scenario = check.model(
        Scenario,
        {
            "name": document.get("name", default_name),
            "question": document.get("question", ""),
            "variants": _with_ceilings(variants, base, check),
            "published": published or None,
        },
        "",
    )
    check.published(scenario, kept_all=not backends)
    return scenario


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path} is not valid TOML: {error}.", "Mend the line named; see docs/scenarios.md.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}.", "A scenario is a UTF-8 text file.") from error


def _apply_override(document: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = _split_key(key.strip(), override)
    if not equals or not path:
        raise ScenarioError(
            f"--set {override!r} is no KEY=VALUE.", "Write for example --set source.batch_size=32 or --set run.repeats=5."
        )
    _set(document, path, _toml_value(text.strip()), override)


def _split_key(key: str, override: str) -> list[str]:
    """Split a dotted key as TOML does, so that a quoted part may hold dots: ``variants."a.b".backend``."""
    try:
        table = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise ScenarioError(
            f"--set {override!r}: {key!r} is no dotted key.", 'Quote a part with spaces: --set \'variants."my queue".backend=...\''
        ) from None
    parts = []
    node: Any = table
    while isinstance(node, dict) and node:
        part, node = next(iter(node.items()))
        parts.append(part)
    return parts


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(document: dict[str, Any], path: list[str], value: Any, override: str) -> None:
    if path[0] == "variants" and "variants" not in document:
        document["variants"] = _read(shipped()[DEFAULT_SCENARIO])["variants"]
    node: Any = document
    for depth, part in enumerate(path):
        if isinstance(node, list):
            node_index = _variant_index(node, part, override)
            if depth == len(path) - 1:
                node[node_index] = value
            else:
                node = node[node_index]
        elif not isinstance(node, dict):
            raise ScenarioError(f"--set {override!r}: {'.'.join(path[:depth])} is a value, not a table.", "Shorten the key.")
        elif depth == len(path) - 1:
            node[part] = value
        else:
            node = node.setdefault(part, {})


def _variant_index(variants: list[Any], part: str, override: str) -> int:
    labels = [_variant_name(entry) for entry in variants]
    if part in labels:
        return labels.index(part)
    if part.isdigit() and int(part) < len(variants):
        return int(part)
    raise ScenarioError(
        f"--set {override!r}: there is no variant {part!r}.",
        f"{did_you_mean(part, labels)}, or a position from 0 to {len(variants) - 1}".capitalize(),
    )


def _variant_name(entry: Any) -> str:
    return str(entry.get("name", entry.get("backend", ""))) if isinstance(entry, dict) else ""


class _Checker:
    """Turns pieces of a document into models; every complaint names the file and the key."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, key: str, problem: str, hint: str) -> ScenarioError:
        place = f"{self.where}, key {key}" if key else self.where
        return ScenarioError(f"{place}: {problem}.", hint[:1].upper() + hint[1:])

    def keys(self, table: Mapping[str, Any], prefix: str, allowed: set[str]) -> None:
        for key in table:
            if key not in allowed:
                raise self.fail(_join(prefix, key), "unknown key", did_you_mean(key, allowed))

    def table(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(key, f"{value!r} is no table", f"write [{key}] and its keys below")
        return value

    def tables(self, value: Any, key: str) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not value:
            raise self.fail(key, f"{value!r} is no list of tables", f"write [[{key}]] once for each variant")
        return [self.table(entry, f"{key}.{i}") for i, entry in enumerate(value)]

    def unique(self, variant_names: list[str]) -> None:
        for name in variant_names:
            if variant_names.count(name) > 1:
                raise self.fail("variants", f"two variants are named {name!r}", "give each its own name")

    def variant(self, entry: dict[str, Any], key: str, base: dict[str, dict[str, Any]]) -> Variant:
        """Resolve one variant over the scenario's own values."""
        self.keys(entry, key, {"name", "backend", "options", "runtime", "run", *COMPONENTS})
        if "backend" not in entry:
            raise self.fail(f"{key}.backend", "is missing", f"allowed: {', '.join(plugins.names('backends'))}")
        backend = entry["backend"]
        merged: dict[str, Any] = {
            "name": entry.get("name", backend),
            "backend": backend,
            "options": self.options("backends", backend, entry.get("options", {}), f"{key}.backend", f"{key}.options"),
        }
        for part in (*COMPONENTS, "runtime", "run"):
            own = self.table(entry.get(part, {}), f"{key}.{part}")
            table = _over(base[part], own)
            blame = _blame(part, key, own)
            merged[part] = self.component(part, table, blame) if part in COMPONENTS else table
        for part, model in (("runtime", Runtime), ("run", Run)):
            merged[part] = self.model(model, merged[part], part, _blame(part, key, entry.get(part, {})))
        return self.model(Variant, merged, key)

    def component(self, part: str, table: dict[str, Any], blame: Callable[[str], str]) -> Component:
        rest = dict(table)
        kind = rest.pop("kind", DEFAULT_KINDS[part])
        options = self.options(COMPONENTS[part], kind, rest, blame("kind"), part, blame)
        return Component(kind=kind, options=options)

    def options(
        self,
        group: plugins.Group,
        name: Any,
        given: Any,
        name_key: str,
        options_key: str,
        blame: Callable[[str], str] | None = None,
    ) -> dict[str, Any]:
        """Check a plug-in's name and options; return the options with every default filled in."""
        if not isinstance(name, str) or name not in plugins.names(group):
            raise self.fail(name_key, f"there is no {group[:-1]} {name!r}", did_you_mean(str(name), plugins.names(group)))
        checked = self.model(plugins.find(group, name).Options, self.table(given, options_key), options_key, blame)
        return checked.model_dump(mode="json")

    def model(
        self, model: type[_Model], data: Mapping[str, Any], key: str, blame: Callable[[str], str] | None = None
    ) -> _Model:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise self._explained(model, error, key, blame) from None

    def _explained(
        self, model: type[BaseModel], error: ValidationError, key: str, blame: Callable[[str], str] | None
    ) -> ScenarioError:
        first = error.errors()[0]
        parts = [str(part) for part in first["loc"] if not str(part).startswith(("function-", "constrained-"))]
        place = blame(".".join(parts)) if blame and parts else _join(key, ".".join(parts))
        if first["type"] == "extra_forbidden":
            return self.fail(place, "unknown key", did_you_mean(parts[-1], model.model_fields))
        message = first["msg"].removeprefix("Value error, ")
        given = "" if first["type"] == "missing" else f" (given: {first['input']!r})"
        if first["type"] == "value_error":
            given = ""
        return self.fail(place, message[:1].lower() + message[1:] + given, "see docs/scenarios.md for what is allowed")

    def published(self, scenario: Scenario, kept_all: bool) -> None:
        if scenario.published is None or not kept_all:
            return
        known = [variant.name for variant in scenario.variants]
        for i, figure in enumerate(scenario.published.figures):
            if figure.variant not in known:
                raise self.fail(
                    f"published.figures.{i}.variant", f"there is no variant {figure.variant!r}", did_you_mean(figure.variant, known)
                )


def _only_backends(
    check: _Checker, variants: list[Variant], wanted: Sequence[str], base: dict[str, dict[str, Any]]
) -> list[Variant]:
    kept = []
    for backend in wanted:
        matching = [variant for variant in variants if variant.backend == backend]
        kept += matching or [check.variant({"backend": backend}, "--backends", base)]
    order = {variant.name: i for i, variant in enumerate(variants)}
    return sorted(kept, key=lambda variant: order.get(variant.name, len(order)))


def _with_ceilings(variants: list[Variant], base: dict[str, dict[str, Any]], check: _Checker) -> list[Variant]:
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
    defaults = plugin.Options().model_dump(mode="json")
    return {key: defaults[key] if key in plugin.timing_options else value for key, value in source.options.items()}


def _free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} {number}", number + 1
    return candidate


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` on top of `base`; another kind starts from nothing, and a length in steps replaces one in seconds."""
    if own.get("kind", base.get("kind")) != base.get("kind"):
        return dict(own)
    merged = copy.deepcopy(dict(base))
    for key, rival in (("steps", "time_s"), ("time_s", "steps")):
        if key in own and rival not in own:
            merged.pop(rival, None)
    return merged | dict(own)


def _blame(part: str, key: str, own: Any) -> Callable[[str], str]:
    """Name the key that a wrong value came from: the variant's own where it has one, else the scenario's."""

    def place(name: str) -> str:
        mine = isinstance(own, Mapping) and name.split(".")[0] in own
        return f"{key}.{part}.{name}" if mine else f"{part}.{name}"

    return place


def _join(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix and key else prefix or key
