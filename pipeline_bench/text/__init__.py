"""Text of foreign origin: made safe once, where it enters the program, so that whatever shows it need not ask.

Safe text can be written as UTF-8 and steers no terminal. It enters by pydantic's models (`Text`), by the message of an
error (`errors.PipelineBenchError`), and by what a child catches of a user's code (`message_of`).
"""

from __future__ import annotations

import difflib
import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable
from typing import Annotated, Any, TypeVar

MESSAGE_CHARACTERS = 10_000
"""The most that is kept of what an exception or a program said: more is data, and nobody reads it."""
FIELD_CHARACTERS = 20_000
"""The most that is kept of any text of a session or an event: of a traceback with its causes, for one."""

NAME, REASON, TEXT = 80, 300, 1200
"""The most characters that a report has of a name among other words, of why something failed, and of any other text."""

_CUT = " […] "

_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)")
"""Colours, cursor movements and window titles, as programs send them to a terminal."""

_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What `str.splitlines` takes for the end of a line, besides the line feed."""

_BARE_IN_JSON = re.compile("[\x7f-\x9f]")
_UNUSUAL = re.compile(r"[^\n\t -~]+")
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF
"""The lone surrogates that stand for a byte of a path or an argument that is no UTF-8 (PEP 383)."""
_QUOTED_BYTE = re.compile(r"(?<!\\)\\udc([89a-f][0-9a-f])")
"""Such a one as `repr` shows it."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def safe(text: str) -> str:
    r"""Return the text, of one or more lines, without anything that steers a terminal or cannot be written.

    Line feeds and tabs stay, every other end of a line becomes a line feed, and escape sequences are removed. Other
    control and format characters, among them those that change the direction of what follows, are shown as U+FFFD, and
    a byte that was no UTF-8 as ``\xff``. What is safe already is returned as it is.
    """
    if text.isprintable():  # nearly every text there is, and quickly seen
        return text
    return _UNUSUAL.sub(_shown, _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))


def is_utf8(text: str) -> bool:
    """Return whether the text can be written: one that came from bytes that are no UTF-8 holds lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def to_json(model: Any, indent: int | None = None) -> str:
    """Return a pydantic model as JSON in which every control character is escaped: data may hold some.

    A copy of a model may have been given a text that did not go through its field; that must not cost the whole.
    """
    try:
        document: str = model.model_dump_json(indent=indent)
    except ValueError:  # pydantic writes no lone surrogate
        document = type(model).model_validate(model.model_dump()).model_dump_json(indent=indent)
    # JSON itself escapes C0 only.
    return _BARE_IN_JSON.sub(lambda char: f"\\u{ord(char[0]):04x}", document)


def bounded(text: str, limit: int) -> str:
    """Return the text, or its beginning and its end where it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    head = (limit - len(_CUT)) // 2
    return f"{text[:head]}{_CUT}{text[len(text) - (limit - len(_CUT) - head) :]}"


def safe_message(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    r"""Return what a program said, safe and of at most `limit` characters; a byte that `repr` shows as ``\xff``."""
    # A function in place of a template, for which Python would import `re`: user code may have cleared `sys.modules`.
    return bounded(_QUOTED_BYTE.sub(lambda byte: f"\\x{byte[1]}", safe(bounded(text, limit))), limit)


def message_of(error: BaseException) -> str:
    """Return what an exception says, safe and bounded; empty where it says nothing, or where saying it raises."""
    try:
        return safe_message(str(error))
    except Exception:  # of a class of the user's that cannot say it
        return ""


def line_of(error: BaseException) -> str:
    """Return an exception in one line, with its type: ``ValueError: no such file``."""
    words, name = message_of(error), type(error).__name__
    return one_line(f"{name}: {words}" if words else name, REASON)


def one_line(text: str, limit: int | None = None) -> str:
    """Return the text as one safe line, runs of space as one space.

    Args:
        text: what a scenario, a driver or a failing process wrote.
        limit: the most characters to keep; a longer text ends in an ellipsis.
    """
    shown = " ".join(safe(text).split())
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1].rstrip() + "…"


def joined(names: Iterable[str], word: str = "") -> str:
    """Return ``a, b or c``; ``a, b, c`` without a word; semicolons between names that have commas."""
    shown = tuple(names)
    comma = "; " if any("," in name for name in shown) else ", "
    if not word or len(shown) == 1:
        return comma.join(shown)
    if comma == "; " and len(shown) > 2:  # noqa: PLR2004 - two need no comma between them
        return f"{comma.join(shown[:-1])}; {word} {shown[-1]}"
    return f" {word} ".join([", ".join(shown[:-1]), *shown[-1:]])


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key, in the order in which they came."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def free_name(name: str, taken: Collection[str], between: str = " ") -> str:
    """Return a name, or the first one with a number behind it, from 2, that is not taken.

    Args:
        name: the wanted one.
        taken: the names of others.
        between: what stands between the name and its number.
    """
    numbered = (f"{name}{between}{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def sentence(text: str) -> str:
    """Return the text with its first letter a capital one, if it is no file's name, and the others as they are."""
    is_name = "." in text.partition(" ")[0].rstrip(".")
    return text if is_name else text[:1].upper() + text[1:]


def with_stop(text: str) -> str:
    """Return the text with a full stop where it is one line that ends with none."""
    return text if "\n" in text or text.endswith((".", "!", "?", ":", "…")) else f"{text}."


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """Say what is allowed in place of `given`, the nearest name first: ``did you mean 'a'? (allowed: a, b)``."""
    names = sorted(allowed)
    nearest = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    listing = f"allowed: {', '.join(names)}" if names else "none is allowed here"
    return f"did you mean {nearest[0]!r}? ({listing})" if nearest else listing


def code_line(text: str, limit: int | None = None) -> str:
    """Return a line of foreign code as it stands, its blanks kept, made safe.

    Args:
        text: one line; what follows a line end is left out.
        limit: the most characters to keep; a longer line ends in an ellipsis.
    """
    line = (safe(text).splitlines() or [""])[0].expandtabs(4)
    shown = "".join(" " if char.isspace() else char for char in line).rstrip()
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def _shown(run: re.Match[str]) -> str:
    """Return a run of characters beyond ASCII's printable ones, made safe."""
    return run[0] if run[0].isprintable() else "".join(map(_harmless, run[0]))


def _harmless(char: str) -> str:
    if _FIRST_BYTE <= ord(char) <= _LAST_BYTE:
        return f"\\x{ord(char) - _FIRST_BYTE + 0x80:02x}"
    # Control and format characters steer a terminal or reverse what follows; other surrogates stand for nothing.
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in {"Cc", "Cf", "Cs"} else char


class MadeSafe:
    """Has pydantic make a string safe before it validates it, so that no lone surrogate is refused."""

    def __init__(self, *, line: bool = False) -> None:
        self._line = line

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - the command line's --help needs none of it

        return core_schema.no_info_before_validator_function(self._entering, handler(source))

    def _entering(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        made = safe_message(value, FIELD_CHARACTERS)
        # A name of nothing but escape sequences is a name all the same.
        return (one_line(made) if self._line else made) or ("\N{REPLACEMENT CHARACTER}" if value else "")


Line = Annotated[str, MadeSafe(line=True)]
"""The type of a field of a session or an event that is to be read: made safe, bounded, and on one line."""
Text = Annotated[str, MadeSafe()]
"""The same of text that has several lines, or whose blanks count, such as a path."""
