"""Source code made to fit a column of a terminal: it stays the code that runs, with its long lines broken."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence

CODE_COLUMNS = 76
"""How wide shown code may be: a terminal of 80 columns, less the frame around it."""
_INDENT = 4
_EARLY = 0.4
"""A place before this share of a line is taken only where there is no later one: a stump reads badly."""
_BEFORE = {"for", "if", "else", "and", "or", "+", "-", "*", "/"}
"""Words and operators that a line is broken before; it is broken after commas and opening brackets."""

_Place = tuple[int, int, int]
"""A column; how many brackets are open there; 0 after a comma, 1 after an opening bracket, 2 before a word."""


def fitted(source: str, columns: int) -> str:
    """Return the code with lines of at most that many columns, and its docstring cut to the first line.

    A line is broken inside brackets only, so the result is the same program; one that offers no place stays long.

    Args:
        source: statements of Python, not indented.
        columns: how wide a line may be.
    """
    lines = _briefly_described(source, columns).splitlines()
    places = _places(lines)
    return "\n".join(piece for row, line in enumerate(lines) for piece in _broken(line, places[row], columns))


def between(source: str, first: str, last: str) -> str:
    """Return the lines from the first that begins with `first` to the next that begins with `last`, not indented.

    Raises:
        ValueError: there are no such lines.
    """
    lines = source.splitlines()
    begun = [row for row, line in enumerate(lines) if line.lstrip().startswith(first)]
    ended = [row for row, line in enumerate(lines) if begun and row >= begun[0] and line.lstrip().startswith(last)]
    if not ended:
        raise ValueError(
            f"No line that begins with {first!r}, followed by one that begins with {last!r}, in:\n{source}"
        )
    return textwrap.dedent("\n".join(lines[begun[0] : ended[0] + 1]))


def _briefly_described(source: str, columns: int) -> str:
    """Return the source with its first docstring cut to one line; the rest of it is for who calls the function."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not (described := ast.get_docstring(node)):
            continue
        docstring = node.body[0]
        indent = " " * docstring.col_offset
        text = f'"""{described.splitlines()[0]}"""'
        brief = textwrap.wrap(text, columns, initial_indent=indent, subsequent_indent=indent)
        lines[docstring.lineno - 1 : docstring.end_lineno] = brief
        break  # a second one would be on other lines by now
    return "\n".join(lines)


def _places(lines: Sequence[str]) -> defaultdict[int, list[_Place]]:
    """Return where each line may be broken, by its row."""
    places: defaultdict[int, list[_Place]] = defaultdict(list)
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        row = token.start[0] - 1
        if token.string in _BEFORE and depth:
            places[row].append((token.start[1], depth, 2))
        if token.type != tokenize.OP:
            continue
        if token.string in "([{":
            depth += 1
            places[row].append((token.end[1], depth, 1))
        elif token.string in ")]}":
            depth -= 1
        elif token.string == "," and depth:
            places[row].append((token.end[1], depth, 0))
    return places


def _broken(line: str, places: Sequence[_Place], columns: int) -> Iterator[str]:
    """Yield a line in pieces, broken where the fewest brackets are open, there at the best kind of place, and late."""
    indent = len(line) - len(line.lstrip())
    if line.lstrip().startswith("#"):
        yield from textwrap.wrap(
            line.lstrip("# "), columns, initial_indent=f"{' ' * indent}# ", subsequent_indent=f"{' ' * indent}# "
        )
        return
    more = " " * (indent + (2 * _INDENT if line.endswith(":") else _INDENT))
    begun, lead = 0, ""
    while len(lead) + len(line[begun:].strip() if lead else line) > columns:
        room = begun + columns - len(lead)
        fitting = [(depth, kind, -column) for column, depth, kind in places if begun < column <= room]
        if not fitting:
            break
        late = [place for place in fitting if -place[2] >= begun + _EARLY * columns]
        end = -min(late or fitting)[2]
        yield f"{lead}{line[begun:end].rstrip()}"
        begun, lead = end + (len(line[end:]) - len(line[end:].lstrip())), more
    yield f"{lead}{line[begun:]}"
