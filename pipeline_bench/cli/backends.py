"""``pipeline-bench backends``: every backend found here, its options and where it comes from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class OptionRow:
    """One option as a reader sees it."""

    name: str
    type: str
    default: Any
    meaning: str


@dataclass(frozen=True)
class BackendRow:
    """One backend as a reader sees it; `error` where its package is broken."""

    name: str
    origin: str
    summary: str = ""
    options: tuple[OptionRow, ...] = ()
    error: str | None = None


def backends(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the backends, with their options and where each comes from."""
    rows = _rows()
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for row in rows:
        _show(console, row)


def _rows() -> list[BackendRow]:
    from pipeline_bench import plugins
    from pipeline_bench.errors import UsageError

    rows = []
    for name in plugins.names("backends"):
        origin = plugins.origin("backends", name)
        try:
            plugin = plugins.find("backends", name)
        except UsageError as error:  # somebody's broken package does not hide the backends that work
            rows.append(BackendRow(name, origin, error=f"{error.message} {error.hint}".strip()))
            continue
        rows.append(
            BackendRow(name, origin, getattr(plugin, "summary", ""), _options(plugin.Options.model_json_schema()))
        )
    return rows


def _options(schema: dict[str, Any]) -> tuple[OptionRow, ...]:
    definitions = schema.get("$defs", {})
    return tuple(
        OptionRow(name, describe_type(option, definitions), option.get("default"), option.get("description", ""))
        for name, option in schema.get("properties", {}).items()
    )


def describe_type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A JSON schema's type in the words of the docs: ``integer ≥ 1 | "auto"``."""
    if "$ref" in schema:
        return describe_type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        # TOML has no null: an option that may be None is one that may be left out.
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        return " | ".join(describe_type(choice, definitions) for choice in choices)
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(choice) for choice in schema["enum"])
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))
        if key in schema
    ]
    return " ".join([schema.get("type", "any"), ", ".join(bounds)]).strip()


def _show(console: Console, row: BackendRow) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console.print(Text.assemble((row.name, "bold"), f"  ({row.origin})"))
    console.print(Padding(Text(row.error or row.summary, style="red" if row.error else ""), (0, 0, 0, 2)))
    if row.options:
        table = Table("option", "type", "default", "meaning", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for option in row.options:
            default = "unset" if option.default is None else json.dumps(option.default, ensure_ascii=False)
            table.add_row(Text(option.name), Text(option.type), Text(default), Text(option.meaning))
        console.print(Padding(table, (0, 0, 0, 4)))
    console.print()
