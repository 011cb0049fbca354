"""Texts, numbers and bytes that make trouble, for whatever is mutated."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.unit.hostile import PIECES

DATA = Path(__file__).parent / "data"

TEXTS = (
    *PIECES,
    *(
        "",
        "x" * 5000,
        "../../etc/passwd",
        "/dev/zero",
        "/dev/full",
        "/proc/self/mem",
        "a/b",
        "nan",
        "-1",
        "%s%n",
        "{0}",
    ),
    *("--help", "-", "~", "$HOME", "feed_dict", "ceiling", "tf_data", "CON", "你好", "\U0001f600", "\ud800", "𝟙"),
)
NUMBERS = (
    *("0", "-1", "1", "2", "1e308", "-1e308", "5e-324", "9223372036854775807", "9223372036854775808", "1" + "0" * 400),
    *("inf", "nan", "-0.0", "0.5", "1e9", "2147483648", "1000000", "0x10", "1_000"),
)


def lines(name: str) -> list[str]:
    """Return the lines of a file of `DATA`."""
    return (DATA / name).read_text("utf-8").splitlines()


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
