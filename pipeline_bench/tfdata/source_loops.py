"""Which loops of the script's text a call stands in: what such a loop makes, it makes anew each time it goes round."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator
from typing import NamedTuple

from pipeline_bench.tfdata import user_code

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class SourceLoop(NamedTuple):
    """A loop that is going round."""

    frame: int
    """The identity of the frame that runs it, which lives as long as the loop does."""
    file: str
    line: int


def around(*, body: bool = True) -> Iterator[SourceLoop]:
    """Yield the loops of the user's code, or of a library, that a call which led here stands in, the innermost first.

    Args:
        body: only those that repeat the call. What a `for` goes over is evaluated once; where all of a loop is in one
            line, that cannot be told from what it repeats.
    """
    for frame in user_code.outward(sys._getframe(1)):
        code = frame.f_code
        # Of code without a file, as that of `-c`, Python has the text from 3.13 on; it is none of the script's.
        if code.co_filename.startswith("<") or user_code.origin(code.co_filename) not in ("user", "library"):
            continue
        for line, first, end in _loops(code.co_filename):
            # A loop that begins in front of the function only defines it.
            begins = max(first, line + 1) if body else line
            if code.co_firstlineno <= line and begins <= frame.f_lineno <= end:
                yield SourceLoop(id(frame), code.co_filename, line)


@functools.lru_cache(maxsize=256)
def _loops(file: str) -> tuple[tuple[int, int, int], ...]:
    """Return the first line of each loop of a file, that of its body, and its last line, inner ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    nodes = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    bodies = ((node, getattr(node, "body", None)) for node in nodes)
    spans = [(n.lineno, body[0].lineno if body else n.lineno, n.end_lineno or n.lineno) for n, body in bodies]
    return tuple(sorted(spans, key=lambda span: -span[0]))
