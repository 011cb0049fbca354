"""Text that nobody should see as it stands, and sessions that are full of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline_bench.text import MadeSafe

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What steers a terminal or cannot be written: C0 but the line feed and the tab, DEL, C1, surrogates."""

PIECES = (
    *("\x1b]0;title\x07", "\x1b[2J", "\x9b2J", "\x9d0;title\x9c", "\x1b", "\x07", "\x00", "\x7f", "\x85", "\x1f"),
    *("\r", "\r\n", "\n", "\t", "\u2028", "\u202e", "\u2066", "\ufeff", "\u200d", "\xad", "\xa0"),
    *("[red]", "</script>", "=1+1", "|", "`", "é", "名前", "a", " "),
)
_SURROGATES = ("\ud800", "\udcff", "\udfff")
UTF8 = st.lists(st.sampled_from(PIECES) | st.characters(codec="utf-8"), min_size=1, max_size=6).map("".join)
"""Any text that a file can hold, and more often than chance would have it what makes trouble."""
TEXT = st.lists(st.sampled_from((*PIECES, *_SURROGATES)) | st.characters(), min_size=1, max_size=6).map("".join)
"""Any text that Python can hold, lone surrogates included."""

NAMES = (
    "<script>alert(1)</script>",
    "\"quotes'",
    "x" * 10_000,
    "a\u202eb",
    "two\nlines",
    "=cmd()",
    "|",
    "a`b`",
    "&lt;",
    "[/]",
)
"""Names that would be markup, a formula, or too long, in one form of a report or another."""
DATA = {
    *("Series.data", "CodeChange.diff"),
    *(
        "Target.file",
        "Target.module",
        "Target.name",
        "Target.pickled",
        "Target.arguments",
        "Target.dataset",
        "Target.training",
    ),
}
"""The fields that are no text to be read but data, which is kept as it is."""
_PACKED = {"Series.data", "Target.pickled"}


def unsafe(text: str) -> set[str]:
    """Return the characters of the text that must not reach a terminal."""
    return set(_UNSAFE.findall(text))


def fields(model: type[BaseModel]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Return every field of a model and of those inside it: ``Model.field``, its annotation, its metadata."""
    seen: set[type[BaseModel]] = set()
    waiting = [model]
    while waiting:
        if (each := waiting.pop()) in seen:
            continue
        seen.add(each)
        for name, field in each.model_fields.items():
            yield f"{each.__name__}.{name}", field.annotation, tuple(field.metadata)
            waiting += [
                part for part in _parts(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)
            ]


def _parts(annotation: Any) -> list[Any]:
    return [annotation, *(part for argument in get_args(annotation) for part in _parts(argument))]


def is_text(annotation: Any, metadata: tuple[Any, ...]) -> bool:
    """Return whether a field, or a part of it, is made safe as it enters."""
    return any(isinstance(part, MadeSafe) for part in (*metadata, *_parts(annotation)))


def holds_str(annotation: Any) -> bool:
    """Return whether a field takes a string."""
    return str in _parts(annotation)


def planted(model: BaseModel, replace: Callable[[str], str]) -> dict[str, Any]:
    """Return the document of a model with every string replaced but those that have to be one of a few words."""
    document = {}
    for name, field in type(model).model_fields.items():
        where = f"{type(model).__name__}.{name}"
        text = is_text(field.annotation, tuple(field.metadata)) or where in DATA - _PACKED
        document[name] = _planted(getattr(model, name), replace, text)
    return document


def _planted(value: Any, replace: Callable[[str], str], text: bool) -> Any:
    match value:
        case BaseModel():
            return planted(value, replace)
        case str():
            return replace(value) if text else value
        case dict():
            return {_planted(key, replace, text): _planted(part, replace, text) for key, part in value.items()}
        case list() | tuple():
            return [_planted(part, replace, text) for part in value]
    return value
