"""Reads a scenario from its TOML file and checks it whole; every complaint names the file and the key.

A file is read in three layers: the defaults, the file, the ``--set`` overrides. Each variant is then the file's
``source``, ``model``, ``loop``, ``runtime`` and ``run`` with the variant's own values on top. Resolving also adds the
**ceiling** of each variant, the same model on a batch that already sits on the device, where the file has none.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError, did_you_mean
from pipeline_bench.scenario import Component, Run, Runtime, Scenario, Variant

DEFAULT_SCENARIO = "two_layer"
CEILING = "ceiling"

COMPONENTS: dict[str, plugins.Group] = {"source": "sources", "model": "models", "loop": "loops"}
DEFAULT_KINDS = {"source": "synthetic", "model": "two_layer", "loop": "session"}

_RIVALS = {"steps": "time_s", "time_s": "steps"}
"""The two ways to say how long a trial is; one replaces the other."""

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
    try:
        if path.exists() and not path.is_dir():  # a pipe, as of <(...), will do
            return path
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise ScenarioError(
            f"The scenario file {name_or_path} cannot be read: {error}.", "Give another path."
        ) from None
    if path.suffix == ".toml" or "/" in name_or_path:
        reason = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise ScenarioError(f"The scenario file {name_or_path} {reason}.", "Give the path to a TOML file.")
    raise ScenarioError(f"There is no scenario {name_or_path!r}.", _sentence(did_you_mean(name_or_path, known)))


def load(
    name_or_path: str = DEFAULT_SCENARIO,
    overrides: Sequence[str] = (),
    backends: Sequence[str] = (),
    run: Mapping[str, Any] | None = None,
) -> Scenario:
    """Read, override, check and resolve a scenario.

    Args:
        name_or_path: a shipped scenario's name or the path of a TOML file.
        overrides: ``KEY=VALUE`` with a dotted key; the value is TOML, or else a bare string. A variant is addressed
            by its position or its name: ``variants.0.options.threads=4``.
        backends: keep the variants of these backends only; one that no variant has is added with its default options.
        run: values of ``run`` that hold for every variant, whatever the file says.

    Raises:
        ScenarioError: with the file, the key, what was given and what is allowed.
    """
    path = locate(name_or_path)
    document = _read(path)
    where = str(path) if path not in shipped().values() else f"scenario {path.stem!r}"
    for override in overrides:
        _apply_override(document, override)
    _force_run(document, run or {})
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
    for (
        key,
        kind,
    ) in DEFAULT_KINDS.items():  # said outright, so that a variant that names the same kind keeps the options
        base[key] = {"kind": kind, **base[key]}
    # A file that says nothing about its variants, or its length, is two_layer under another name.
    default = _read(shipped()[DEFAULT_SCENARIO])
    if not {"steps", "time_s"} & set(base["run"]):
        base["run"] = {"steps": default["run"]["steps"], **base["run"]}
    given = document.get("variants", default["variants"])
    variants = [check.variant(entry, f"variants.{i}", base) for i, entry in enumerate(check.tables(given, "variants"))]
    if backends:
        variants = _only_backends(check, variants, backends, base)
    check.unique([variant.name for variant in variants])
    published = document.get("published", default.get("published", {}) if "variants" not in document else {})
    scenario = check.model(
        Scenario,
        {
            "name": document.get("name", default_name),
            "question": document.get("question", ""),
            "variants": _with_ceilings(variants, base, check),
            "published": check.table(published, "published") or None,
        },
        "",
    )
    check.published(scenario, kept_all=not backends)
    return scenario


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors open a file with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}.", "A scenario is a UTF-8 text file.") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # beside TOMLDecodeError: a number too long, a nesting too deep
        raise ScenarioError(
            f"{path} is not valid TOML: {error}.", "Mend the line named; see docs/scenarios.md."
        ) from error


def _force_run(document: dict[str, Any], run: Mapping[str, Any]) -> None:
    """Let the values hold for the scenario and every variant of it; a table that is none is left for the check."""
    variants = document.get("variants")
    own = [entry.get("run") for entry in variants if isinstance(entry, dict)] if isinstance(variants, list) else []
    tables = [table for table in own if isinstance(table, dict)]
    for table in tables:
        for key in run:
            table.pop(key, None)
            table.pop(_RIVALS.get(key, key), None)
    shared = document.setdefault("run", {})
    if isinstance(shared, dict):
        for key, value in run.items():
            shared.pop(_RIVALS.get(key, key), None)
            shared[key] = value


def _apply_override(document: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = _split_key(key.strip(), override)
    if not equals or not path:
        raise ScenarioError(
            f"--set {override!r} is no KEY=VALUE.",
            "Write for example --set source.batch_size=32 or --set run.repeats=5.",
        )
    _set(document, path, _toml_value(text.strip()), override)


def _split_key(key: str, override: str) -> list[str]:
    """Split a dotted key as TOML does, so that a quoted part may hold dots: ``variants."a.b".backend``."""
    try:
        table = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        raise ScenarioError(
            f"--set {override!r}: {key!r} is no dotted key.",
            "Quote a part with spaces: --set 'variants.\"my queue\".backend=...'",
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
    except (ValueError, RecursionError):
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
            raise ScenarioError(
                f"--set {override!r}: {'.'.join(path[:depth])} is a value, not a table.", "Shorten the key."
            )
        elif depth == len(path) - 1:
            node[part] = value
            if path[-2:-1] == ["run"]:  # the last word on a trial's length holds
                node.pop(_RIVALS.get(part), None)
        else:
            node = node.setdefault(part, {})


def _variant_index(variants: list[Any], part: str, override: str) -> int:
    labels = [_variant_name(entry) for entry in variants]
    if part in labels:
        return labels.index(part)
    if part.isdecimal() and int(part) < len(variants):
        return int(part)
    raise ScenarioError(
        f"--set {override!r}: there is no variant {part!r}.",
        _sentence(f"{did_you_mean(part, labels)}, or a position from 0 to {len(variants) - 1}"),
    )


def _variant_name(entry: Any) -> str:
    return str(entry.get("name", entry.get("backend", ""))) if isinstance(entry, dict) else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class _Checker:
    """Turns pieces of a document into models; every complaint names the file and the key."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, key: str, problem: str, hint: str) -> ScenarioError:
        place = f"{self.where}, key {key}" if key else self.where
        return ScenarioError(f"{place}: {problem}.", _sentence(hint))

    def keys(self, table: Mapping[str, Any], prefix: str, allowed: set[str]) -> None:
        for key in table:
            if key not in allowed:
                raise self.fail(_join(prefix, key), "unknown key", did_you_mean(key, allowed))

    def table(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(
                key,
                f"{_shown(value)} is no table",
                f"write {key.rpartition('.')[2]} = {{ key = value }}, or a table of that name",
            )
        return value

    def tables(self, value: Any, key: str) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not value:
            raise self.fail(key, f"{_shown(value)} is no list of tables", f"write [[{key}]] once for each variant")
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
        options = self.options(COMPONENTS[part], kind, rest, blame("kind"), part, blame=blame)
        return Component(kind=kind, options=options)

    def options(
        self,
        group: plugins.Group,
        name: Any,
        given: Any,
        name_key: str,
        options_key: str,
        *,
        blame: Callable[[str], str] | None = None,
    ) -> dict[str, Any]:
        """Check a plug-in's name and options; return the options with every default filled in."""
        if not isinstance(name, str) or name not in plugins.names(group):
            raise self.fail(
                name_key,
                f"there is no {group[:-1]} {_shown(name)}",
                did_you_mean(_shown(name).strip("'"), plugins.names(group)),
            )
        checked = self.model(plugins.find(group, name).Options, self.table(given, options_key), options_key, blame)
        return checked.model_dump(mode="json")

    def model(
        self, model: type[_Model], data: Mapping[str, Any], key: str, blame: Callable[[str], str] | None = None
    ) -> _Model:
        try:
            # Through JSON because its strict mode is TOML's: true is no 1, "3" no 3, and a list may become a tuple.
            return model.model_validate_json(json.dumps(data, default=_plain), strict=True)
        except ValidationError as error:
            raise self._explained(model, error, key, blame) from None
        except (ValueError, RecursionError) as error:  # JSON's limits: digits of a number, depth of a nesting
            raise self.fail(key, f"holds a value that cannot be read: {error}", "write a smaller one") from None

    def _explained(
        self, model: type[BaseModel], error: ValidationError, key: str, blame: Callable[[str], str] | None
    ) -> ScenarioError:
        problems = error.errors()
        path, field = _follow(model, problems[0]["loc"])
        # A value that fits no branch of a union is one problem a branch: tell them as one.
        same = [problem for problem in problems if _follow(model, problem["loc"])[0] == path]
        place = blame(".".join(path)) if blame and path else _join(key, ".".join(path))
        first = problems[0]
        if first["type"] == "extra_forbidden":
            return self.fail(place, "unknown key", did_you_mean(path[-1], _fields(model, first["loc"][:-1])))
        said = [problem["msg"].removeprefix("Value error, ").removeprefix("Input ") for problem in same]
        message = ", or ".join(dict.fromkeys(text[:1].lower() + text[1:] for text in said))
        given = "" if first["type"] in ("missing", "value_error") else f" (given: {_shown(first['input'])})"
        choices = re.findall(
            r"'([^']*)'", " ".join(str(problem.get("ctx", {}).get("expected", "")) for problem in same)
        )
        if choices and len(same) == 1:
            return self.fail(place, message + given, did_you_mean(_shown(first["input"]).strip("'"), choices))
        meaning = field.description if field else None
        hint = f"what it is: {meaning}" if meaning else "see docs/scenarios.md for what is allowed"
        return self.fail(place, message + given, hint)

    def published(self, scenario: Scenario, kept_all: bool) -> None:
        if scenario.published is None or not kept_all:
            return
        known = [variant.name for variant in scenario.variants]
        for i, figure in enumerate(scenario.published.figures):
            if figure.variant not in known:
                raise self.fail(
                    f"published.figures.{i}.variant",
                    f"there is no variant {figure.variant!r}",
                    did_you_mean(figure.variant, known),
                )


def _follow(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], FieldInfo | None]:
    """The keys of an error's place, without what pydantic adds for the branch of a union, and the field it is about."""
    path: list[str] = []
    field: FieldInfo | None = None
    inner: type[BaseModel] | None = model
    for i, part in enumerate(loc):
        known = inner is not None and part in inner.model_fields
        unknown_key = inner is not None and i == len(loc) - 1
        if not (isinstance(part, int) or known or unknown_key):
            break
        path.append(str(part))
        if inner is not None and isinstance(part, str):
            field = inner.model_fields.get(part)
            inner = _inner_model(field.annotation) if field else None
    return path, field


def _fields(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that the table at that place may have."""
    inner: type[BaseModel] = model
    for part in loc:
        field = inner.model_fields.get(part) if isinstance(part, str) else None
        inner = (_inner_model(field.annotation) if field else None) or inner
    return list(inner.model_fields)


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for choice in get_args(annotation) if (found := _inner_model(choice))), None)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return {"date or time": str(value)}  # no key takes one; as a plain string it would pass for a name


def _shown(value: Any, limit: int = 60) -> str:
    try:
        text = str(value).lower() if isinstance(value, bool) else repr(value)
    except (ValueError, RecursionError):  # a number with more digits than Python prints
        text = "a value too large to show"
    return text if len(text) <= limit else f"{text[:limit]}…"


def _only_backends(
    check: _Checker, variants: list[Variant], wanted: Sequence[str], base: dict[str, dict[str, Any]]
) -> list[Variant]:
    known = plugins.names("backends")
    kept = []
    for backend in dict.fromkeys(wanted):
        if backend not in known:
            raise ScenarioError(
                f"--backends: there is no backend {backend!r}.", _sentence(did_you_mean(backend, known))
            )
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


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` on top of `base`; another kind starts from nothing, and a length in steps replaces one in seconds."""
    if own.get("kind", base.get("kind")) != base.get("kind"):
        return dict(own)
    merged = copy.deepcopy(dict(base))
    for key, rival in _RIVALS.items():
        if key in own and rival not in own:
            merged.pop(rival, None)
    return merged | dict(own)


def _blame(part: str, key: str, own: Any) -> Callable[[str], str]:
    """Name the key that a wrong value came from: the variant's own where it has one, else the scenario's."""

    def place(name: str) -> str:
        mine = isinstance(own, Mapping) and name.split(".", maxsplit=1)[0] in own
        return f"{key}.{part}.{name}" if mine else f"{part}.{name}"

    return place


def _join(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix and key else prefix or key
