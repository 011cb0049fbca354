"""Texts, numbers and bytes that make trouble, for whatever is mutated."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.unit.hostile import PIECES

DATA = Path(__file__).parent / "data"


def lines(name: str) -> list[str]:
    """Return the lines of a file of `DATA`."""
    return (DATA / name).read_text("utf-8").splitlines()


def values(name: str) -> list[Any]:
    """Return what each line of a file of `DATA` is as JSON."""
    return [json.loads(line) for line in lines(name)]


TEXTS = (*PIECES, *values("texts.jsonl"))
NUMBERS = lines("numbers.txt")
"""As a command line or a file writes them; some are none."""


def damaged(content: bytes, random: Random) -> bytes:  # noqa: PLR0911 - one for each damage
    """Return the content with bytes changed, lost, doubled or in another encoding."""
    at, length = (random.randrange(len(content) + 1), random.choice((1, 1, 7, 300)))
    match random.randrange(7):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes(random.randrange(256) for _ in range(length)) + content[at + length :]
        case 2:
            return content[:at] + content[at + length :]
        case 3:
            return content[:at] + content[at : at + length] * 50 + content[at:]
        case 4:
            return content.decode("utf-8", "replace").encode("utf-16")
        case 5:
            return content + content
    return b"\xef\xbb\xbf" + content[:at] + b"\x00\xff\xfe" + content[at:]
