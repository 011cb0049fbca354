"""Session files that somebody else has made: absurd but valid, damaged, of the wrong kind, or without an end."""

from __future__ import annotations

import base64
import gzip
import json
import os
import socket
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipeline_bench.model import Series
from pipeline_bench.model.session import Session
from tests.campaign.bench import Bench
from tests.campaign.kinds import Case
from tests.campaign.outcome import Outcome
from tests.campaign.processes import ROOT, Program
from tests.campaign.words import TEXTS, damaged, lines, values
from tests.unit import diagnoses, sessions
from tests.unit.report import pages

COUNT = 500
WAITS = False
_REAL_EVERY = 25
_LARGE_EVERY = 40
"""One in so many is made from the session in reports/example, which is as large as real ones."""
_SPECIAL = ("gz", "bomb", "deep", "sparse", "fifo", "zero", "socket", "folder", "loop", "dangling", "memory", "null")
_VIEWS = lines("views.txt")
_NUMBERS = values("session_numbers.jsonl")
_COLUMNS = values("columns.jsonl")
_BASES = (
    *(sessions.normal, sessions.troubled, sessions.pending, sessions.hostile, pages.hostile),
    *(diagnoses.with_model, diagnoses.failed),
)


def plan(random: Random, number: int) -> Case:
    """Draw a file: half of them load, and are absurd."""
    base = len(_BASES) if number % _LARGE_EVERY == 0 else random.randrange(len(_BASES))
    case: Case = {
        "base": base,
        "views": random.sample(_VIEWS, 2),
        "real": number % _REAL_EVERY == 0,
    }
    draw = random.random()
    if draw < 0.12:
        return {**case, "special": random.choice(_SPECIAL)}
    text = _base(base)
    if draw < 0.25:
        content = damaged(text.encode(), random)
    else:
        document = json.loads(text)
        content = json.dumps(_mutated(document, random, valid=draw < 0.85)).encode()
    return {**case, "content": base64.b64encode(zlib.compress(content)).decode()}


def attempt(case: Case, bench: Bench) -> list[Outcome]:
    """Show the file in two ways."""
    name = "session.json"
    (bench.folder / "whole.json").write_text(_base(case["base"]), "utf-8")
    if "special" in case:
        _make(case["special"], bench.folder / name)
    else:
        (bench.folder / name).write_bytes(zlib.decompress(base64.b64decode(case["content"])))
    views = [view.format(*[name] * 2).split() for view in case["views"]]
    if case["real"]:
        return [Program(bench.folder, views[0]).outcome(allowed=_allowed(views[0]))]
    return [bench.warm.run(bench.folder, view, _allowed(view)) for view in views]


def _allowed(view: list[str]) -> tuple[int, ...]:
    return (0, 2) if view[0] == "report" else (0, 1, 2)


def _base(number: int) -> str:
    if number < len(_BASES):
        return _BASES[number]().to_json()
    return (ROOT / "reports" / "example" / "session.json").read_text("utf-8")


def _mutated(document: dict[str, Any], random: Random, *, valid: bool) -> dict[str, Any]:
    """Return the document after a few changes; where `valid`, after those only that leave it a session."""
    for _ in range(random.choice((1, 2, 4)) * (3 if valid else 1)):
        changed = json.loads(json.dumps(document))
        _change(changed, random)
        if not valid or _loads(changed):
            document = changed
    return document


def _loads(document: Any) -> bool:
    try:
        Session.model_validate(document)
    except (ValidationError, ValueError):
        return False
    return True


def _change(document: Any, random: Random) -> None:
    """Change one place of a document."""
    places = list(_places(document))
    # First by key, so that the many of one kind do not hide the few of another.
    key = random.choice(sorted({str(key) for _, key in places}))
    holder, at = random.choice([place for place in places if str(place[1]) == key])
    value = holder[at]
    others = [other[same] for other, same in places if same == at]
    match random.randrange(5):
        case 0:
            holder[at] = random.choice(others)
        case 1:
            del holder[at]
        case _:
            holder[at] = _another(value, document, random)


def _another(value: Any, document: Any, random: Random) -> Any:  # noqa: PLR0911 - one for each kind
    """Return another value of the same kind."""
    match value:
        case {"encoding": _}:
            column = random.choice(_COLUMNS)
            packed = Series.pack(np.array(column, dtype=random.choice(("<i8", "<f8")) if _whole(column) else "<f8"))
            return {**packed.model_dump(), **random.choice(({}, {}, {"count": 3}, {"dtype": "<f8"}))}
        case bool():
            return not value
        case int() | float() | None:
            return random.choice(_NUMBERS)
        case str():
            strings = [other[at] for other, at in _places(document) if isinstance(other[at], str)]
            return random.choice(strings) if random.random() < 0.5 else random.choice(TEXTS)
        case list():
            return random.choice(([], value[:1], value[1:], value[::-1], value * 2, value + value[:1], value * 40))
        case dict():
            return random.choice(({}, {**value, random.choice(TEXTS): 1}, dict(list(value.items())[1:])))
    return None


def _whole(column: list[Any]) -> bool:
    return all(isinstance(number, int) for number in column)


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return every place of a document: what holds it, and its key or number there."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        for at in holder if isinstance(holder, dict) else range(len(holder)):
            found.append((holder, at))
            if isinstance(holder[at], dict | list):
                waiting.append(holder[at])
    return found


def _make(special: str, path: Path) -> None:
    """Make a file that is none, or more than it seems."""
    text = sessions.normal().to_json()
    match special:
        case "gz":
            path.write_bytes(gzip.compress(text.encode()))
        case "bomb":
            column = base64.b64encode(zlib.compress(bytes(2**29), 9)).decode()
            document = json.loads(text)
            bomb = {"encoding": "zlib+base64", "dtype": "<i8", "count": 2**26, "data": column}
            for trial in document["trials"]:
                trial["steps"].update(start_ns=bomb, end_ns=bomb)
            path.write_text(json.dumps(document))
        case "deep":
            path.write_text('{"trials":' * 50_000 + "[" * 50_000)
        case "sparse":
            with path.open("wb") as file:
                file.truncate(1 << 42)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(path))
            server.close()
        case "folder":
            path.mkdir()
        case _:
            targets = {"zero": "/dev/zero", "loop": path.name, "memory": "/proc/self/mem", "null": "/dev/null"}
            path.symlink_to(targets.get(special, "nowhere"))
