"""Turns pieces of a scenario's document into models; every complaint names the file and the key."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time
from functools import partial
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from pipeline_bench import plugins
from pipeline_bench.errors import ScenarioError
from pipeline_bench.scenario import Component, Run, Runtime, Variant
from pipeline_bench.scenario.files import COMPONENTS, DEFAULT_KINDS, without_none
from pipeline_bench.text import NAME, did_you_mean, is_utf8, one_line, sentence

RIVALS = {"steps": "time_s", "time_s": "steps"}
"""The two ways to say how long a trial is; one replaces the other."""

Place = Callable[[str], str]
"""Names the key of a scenario that a key of a table stands for, to complain of it; of no key (``""``) the table's."""

_MESSAGES = {
    "string_pattern_mismatch": "has not the form that it takes",
    "too_short": "has fewer values than the {min_length} that it needs",
    "too_long": "has more values than the {max_length} that it takes",
}
"""What is said of a value in place of pydantic's own message, by the type of its error."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_Model = TypeVar("_Model", bound=BaseModel)


class Checker:
    """Turns pieces of a document into models; every complaint names the file and the key."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._found: list[ScenarioError] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an error in the block for `finish`, so that what comes after is checked as well."""
        try:
            yield
        except ScenarioError as error:
            self._note(error)

    def finish(self) -> None:
        """See that nothing was noted.

        Raises:
            ScenarioError: all that was noted, each once, in its order.
        """
        found, self._found = self._found, []
        if len(found) > 1:
            lines = [f"- {error.in_full}" for error in found]
            raise ScenarioError("\n".join([f"{self.where} has {len(lines)} errors:", *lines]))
        if found:
            raise found[0]

    def _note(self, error: ScenarioError) -> None:
        if error.message not in [other.message for other in self._found]:  # every variant has the scenario's own values
            self._found.append(error)

    def fail(self, key: str, problem: str, hint: str) -> ScenarioError:
        place = f"{self.where}, key {key}" if key else self.where
        return ScenarioError(f"{place}: {problem}.", sentence(hint))

    def texts(self, document: Mapping[str, Any]) -> None:
        """See that there is no date, and that every text can be written: an argument may hold what is no UTF-8."""
        waiting: list[tuple[str, Any]] = [("", document)]
        while waiting:
            key, value = waiting.pop()
            if isinstance(value, str) and not is_utf8(value):
                hint = "write it in UTF-8; a file of such a name has to be renamed"
                raise self.fail(key, f"'{one_line(value, NAME)}' is not UTF-8", hint)
            if isinstance(value, date | time):
                raise self.fail(key, f"{value} is a date or a time", "no key takes one: write it in quotes")
            if isinstance(value, Mapping):
                waiting += [(key, name) for name in value]  # a key is a text as well
                waiting += [(_join(key, str(name)), part) for name, part in value.items()]
            elif isinstance(value, list | tuple):
                waiting += [(_join(key, str(index)), part) for index, part in enumerate(value)]

    def keys(self, table: Mapping[str, Any], prefix: str, allowed: set[str]) -> None:
        for key in table:
            if key not in allowed:
                self._note(self.fail(_join(prefix, key), "unknown key", did_you_mean(key, allowed)))

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

    def unused(self, entries: list[dict[str, Any]], base: dict[str, dict[str, Any]]) -> None:
        """Note what is wrong in a component of the scenario where no variant takes any of it: each has another kind."""
        for part in COMPONENTS:
            own = [entry.get(part) for entry in entries]
            if all(isinstance(table, dict) and is_other_kind(base[part], table) for table in own):
                with self.noting():
                    self.component(part, base[part], partial(_join, part))

    def variants(
        self, entries: list[dict[str, Any]], base: dict[str, dict[str, Any]], key: str | None = None
    ) -> list[Variant]:
        """Resolve the variants.

        Args:
            entries: as the file has them.
            base: the scenario's own values of each part.
            key: what to call them in a complaint; by default each by its name.

        Raises:
            ScenarioError: with everything that is wrong in them, and all that was noted before.
        """
        made = []
        for i, entry in enumerate(entries):
            with self.noting():
                made.append(self._variant(entry, key or f"variants.{variant_key(entry, i)}", base))
        self.finish()
        return [variant for variant in made if variant is not None]

    def _variant(self, entry: dict[str, Any], key: str, base: dict[str, dict[str, Any]]) -> Variant | None:
        """Resolve one variant over the scenario's own values; None where an error in a part of it was noted."""
        self.keys(entry, key, {"name", "backend", "options", "ceiling", "runtime", "run", *COMPONENTS})
        if "backend" not in entry:
            raise self.fail(f"{key}.backend", "is missing", f"allowed: {', '.join(plugins.names('backends'))}")
        backend = entry["backend"]
        merged: dict[str, Any] = {
            "name": entry.get("name", backend),
            "backend": backend,
            "ceiling": entry.get("ceiling"),
        }
        with self.noting():
            given = entry.get("options", {})
            options_place = partial(_join, f"{key}.options")
            merged["options"] = self.options("backends", backend, given, f"{key}.backend", options_place)
        models: dict[str, type[BaseModel]] = {"runtime": Runtime, "run": Run}
        for part in (*COMPONENTS, *models):
            with self.noting():
                own = self.table(entry.get(part, {}), f"{key}.{part}")
                own = without_none(own) if part == "run" else own
                shared = _without_rivals(base[part], own) if part == "run" else base[part]
                table, place = _merge(shared, own), _place_in(part, key, own)
                known = models.get(part)
                merged[part] = self.model(known, table, place) if known else self.component(part, table, place)
        if not {"options", *COMPONENTS, *models} <= merged.keys():
            return None
        return self.model(Variant, merged, partial(_join, key))

    def component(self, part: str, table: dict[str, Any], place: Place) -> Component:
        rest = dict(table)
        kind = rest.pop("kind", DEFAULT_KINDS[part])
        return Component(kind=kind, options=self.options(COMPONENTS[part], kind, rest, place("kind"), place))

    def options(self, group: plugins.Group, name: Any, given: Any, name_key: str, place: Place) -> dict[str, Any]:
        """Check a plug-in's name and options; return the options with every default filled in."""
        if not isinstance(name, str) or not plugins.has(group, name):
            raise self.fail(
                name_key,
                f"there is no {group[:-1]} {_shown(name)}",
                did_you_mean(_shown(name).strip("'"), plugins.names(group)),
            )
        checked = self.model(plugins.find(group, name).Options, self.table(given, place("")), place)
        return checked.model_dump(mode="json")

    def model(self, model: type[_Model], data: Mapping[str, Any], place: Place = str) -> _Model:
        """Return the model of a table.

        Raises:
            ScenarioError: the last thing that is wrong in it; the others are noted.
        """
        try:
            # Through JSON because its strict mode is TOML's: true is no 1, "3" no 3, and a list may become a tuple.
            return model.model_validate_json(json.dumps(data, default=_json_value), strict=True)
        except ValidationError as error:
            *others, last = self._errors(model, error, place)
            for other in others:
                self._note(other)
            raise last from None
        except (ValueError, RecursionError) as error:  # JSON's limits: digits of a number, depth of a nesting
            raise self.fail(place(""), f"holds a value that cannot be read: {error}", "write a smaller one") from None

    def _errors(self, model: type[BaseModel], error: ValidationError, place: Place) -> list[ScenarioError]:
        """Return an error for each key; a value that fits no branch of a union is one error, not one a branch."""
        problems: dict[tuple[str, ...], list[Any]] = {}
        found = error.errors()
        for problem in found:
            within = (each["loc"] for each in found if each is not problem)
            if problem["type"] == "too_short" and any(loc[: len(problem["loc"])] == problem["loc"] for loc in within):
                continue  # a list of which only the right items were counted
            problems.setdefault(tuple(_follow(model, problem["loc"])[0]), []).append(problem)
        return [self._error(model, same, place(".".join(path))) for path, same in problems.items()]

    def _error(self, model: type[BaseModel], same: list[Any], key: str) -> ScenarioError:
        """Return the error of a key, of all its problems."""
        first = same[0]
        path, field, table = _follow(model, first["loc"])
        if first["type"] == "extra_forbidden":
            return self.fail(key, "unknown key", did_you_mean(path[-1], table.model_fields))
        messages = [_message(problem).removeprefix("Value error, ").removeprefix("Input ") for problem in same]
        message = ", or ".join(dict.fromkeys(text[:1].lower() + text[1:] for text in messages))
        given = "" if first["type"] in ("missing", "value_error") else f" (given: {_shown(first['input'])})"
        choices = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
        if choices and len(same) == 1:
            return self.fail(key, message + given, did_you_mean(_shown(first["input"]).strip("'"), choices))
        meaning = field.description if field else None
        hint = f"what it is: {meaning}" if meaning else "see docs/scenarios.md for what is allowed"
        return self.fail(key, message + given, hint)


def _message(problem: Mapping[str, Any]) -> str:
    """Return pydantic's message; in place of one about regular expressions or Python's types, one about the value."""
    own = _MESSAGES.get(problem["type"])
    return str(problem["msg"]) if own is None else own.format(**problem["ctx"])


def _follow(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], FieldInfo | None, type[BaseModel]]:
    """Follow an error's place in a model.

    Returns:
        Its keys, without what pydantic adds for the branch of a union; the field it is about; the table with that key.
    """
    path: list[str] = []
    field: FieldInfo | None = None
    table: type[BaseModel] = model
    inner: type[BaseModel] | None = model
    for i, part in enumerate(loc):
        table = inner or table
        known = inner is not None and part in inner.model_fields
        unknown_key = inner is not None and i == len(loc) - 1
        if not (isinstance(part, int) or known or unknown_key):
            break
        path.append(str(part))
        if inner is not None and isinstance(part, str):
            field = inner.model_fields.get(part)
            inner = _inner_model(field.annotation) if field else None
    return path, field, table


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for choice in get_args(annotation) if (found := _inner_model(choice))), None)


def _json_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return {"value": str(value)}  # of Python's; as a plain string it would pass for a name


def _shown(value: Any, limit: int = 60) -> str:
    try:
        text = str(value).lower() if isinstance(value, bool) else repr(value)
    except (ValueError, RecursionError):  # a number with more digits than Python prints
        text = "a value too large to show"
    return text if len(text) <= limit else f"{text[:limit]}…"


def is_other_kind(base: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Return whether a variant's table has no use for the scenario's own, since it names another kind."""
    return "kind" in own and bool(own["kind"] != base.get("kind"))  # a kind that is no name may differ from itself: nan


def _merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `own` over it, table by table; of another kind `own` alone."""
    if is_other_kind(base, own):
        return dict(own)
    merged = copy.deepcopy(dict(base))
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _without_rivals(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario's own values of a run without the length that a variant's other one replaces."""
    return {key: value for key, value in base.items() if RIVALS.get(key) not in own}


def _place_in(part: str, key: str, own: Mapping[str, Any]) -> Place:
    """Name the key that a wrong value came from: the variant's own where it has one, else the scenario's."""

    def place(name: str) -> str:
        mine = name.split(".", maxsplit=1)[0] in own
        return _join(f"{key}.{part}" if mine else part, name)

    return place


def variant_key(entry: Mapping[str, Any], position: int) -> str:
    """Return a variant's name as ``--set`` takes it; its position where it has none."""
    name = entry.get("name", entry.get("backend"))
    if not isinstance(name, str) or not name:
        return str(position)
    return quoted(name)


def quoted(key: str) -> str:
    """Return a key as TOML and ``--set`` take it: in quotes unless it is a bare one."""
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _join(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix and key else prefix or key
