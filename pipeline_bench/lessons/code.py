"""What a lesson shows of source code: the lines that matter, its docstring in brief."""

from __future__ import annotations

import ast
import textwrap

CODE_COLUMNS = 76
"""How wide shown code may be: a terminal of 80 columns, less the frame around it."""


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


def briefly_described(source: str) -> str:
    """Return the source with its first docstring cut to one line; the rest of it is for who calls the function."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not (described := ast.get_docstring(node)):
            continue
        docstring = node.body[0]
        indent = " " * docstring.col_offset
        text = f'"""{described.splitlines()[0]}"""'
        brief = textwrap.wrap(text, CODE_COLUMNS, initial_indent=indent, subsequent_indent=indent)
        lines[docstring.lineno - 1 : docstring.end_lineno] = brief
        break  # a second one would be on other lines by now
    return "\n".join(lines)
