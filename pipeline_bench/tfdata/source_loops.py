"""Which loops of the script's text a call stands in: what such a loop makes, it makes anew each time it goes round."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pipeline_bench.tfdata import user_code

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, *_COMPREHENSIONS)


class SourceLoop(NamedTuple):
    """A loop that is going round."""

    frame: int
    """The identity of the frame that runs it, which lives as long as the loop does."""
    file: str
    line: int


class _Lines(NamedTuple):
    """Where the text of a loop stands."""

    first: int
    last: int
    repeated: frozenset[int]
    """The lines of what it repeats, but not of what it goes over, which is evaluated once."""


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
        for line in _loops_around(code.co_filename, code.co_firstlineno, frame.f_lineno, body):
            yield SourceLoop(id(frame), code.co_filename, line)


@functools.lru_cache(maxsize=4096)  # a script may make thousands of datasets in one line
def _loops_around(file: str, defined_line: int, line: int, body: bool) -> tuple[int, ...]:
    """Return the first lines of the loops that a line of a function stands in, inner ones first."""
    around = (each for each in _loops(file) if (line in each.repeated if body else each.first <= line <= each.last))
    # A loop that begins in front of the function only defines it.
    return tuple(each.first for each in around if defined_line <= each.first)


@functools.lru_cache(maxsize=256)
def _loops(file: str) -> tuple[_Lines, ...]:
    """Return the loops of a file, inner ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    loops = [_lines(node) for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    return tuple(sorted(loops, key=lambda loop: -loop.first))


def _lines(node: Any) -> _Lines:
    whole, once = _span([node]), range(0)
    if isinstance(node, _COMPREHENSIONS):
        repeated, once = whole, _span([node.generators[0].iter])
    else:
        repeated = _span(node.body)  # without an `else`
    return _Lines(whole[0], whole[-1], frozenset(repeated) - {whole[0], *once})


def _span(nodes: Sequence[Any]) -> range:
    """Return the lines from the first of some nodes to the last."""
    return range(nodes[0].lineno, nodes[-1].end_lineno + 1)
