"""Which loops of the script's text a call stands in: what such a loop makes, it makes anew each time it goes round."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.user_code import source_guards

AN_ITERATOR_A_BATCH = (
    "makes an iterator for every batch: each starts the pipeline again, throws away what its buffers hold, and never "
    "comes to what is further on in the data"
)
ONE_ITERATOR = "make one before the loop, batches = iter(dataset.repeat()), and take next(batches) in it"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, *_COMPREHENSIONS)
_COMPUTING = ("CALL", "BINARY", "UNARY")
"""How the names of the instructions begin one of which a generator has that does more than hand elements on."""
_FOR_ITER, _CACHE = dis.opmap["FOR_ITER"], dis.opmap["CACHE"]


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
    over: range
    """The lines of what it goes over; a generator there runs on each time that the loop goes round."""


def around(*, body: bool = True, innermost: FrameType | None = None) -> Iterator[SourceLoop]:
    """Yield the loops of the user's code, or of a library, that a call which led here stands in, the innermost first.

    Args:
        body: only those that repeat the call. What a `for` goes over is evaluated once; where all of a loop is in one
            line, that cannot be told from what it repeats.
        innermost: the frame that makes the call; None: the caller's.
    """
    for frame, line in _around(innermost or sys._getframe(1), body):
        yield SourceLoop(id(frame), frame.f_code.co_filename, line)


def repeating() -> Iterator[SourceLoop]:
    """Yield those of the loops around a call that make it each time they go round, as far as their text tells.

    Not one that makes it in its first round only, or whose call has a function make what it then keeps.
    """
    inner: FrameType | None = sys._getframe(1)
    for frame, line in _around(sys._getframe(1), body=True):
        while inner is not None and inner is not frame:
            if _is_programs(inner) and source_guards.is_kept(inner):
                return
            inner = inner.f_back
        if not source_guards.is_conditional(frame.f_code.co_filename, line, frame.f_lineno):
            yield SourceLoop(id(frame), frame.f_code.co_filename, line)


def never_reads_again(batches: int) -> bool:
    """Return whether no pass can read what an earlier one over the same kept, where a call begins one.

    That is so where a `for` of the user's code, in no other loop, goes over it; where a loop around it has another
    dataset in each round (`is_replaced`); or where each pass is left by its count before its end: ``if step >= 20:
    break``, with a number that is known by then.

    Args:
        batches: of a whole pass; negative where that is not known, or there is no end.
    """
    frame = _users_frame()
    if frame is None:
        return False
    if is_replaced():
        return True
    loop = _for_over(frame.f_code.co_filename, frame.f_lineno)
    if loop is None:
        return False
    known = {**frame.f_globals, **frame.f_locals}
    if any(0 <= taken < batches for taken in source_guards.most_taken(loop, known)):
        return True
    return [*_around(sys._getframe(1), body=False)] == [(frame, loop.lineno)]


def is_replaced() -> bool:
    """Return whether the loop around a call which led here gives its data's variable another dataset in each round.

    ``for epoch in range(9): for batch in data: …; data = make()``: nothing that one pass kept is read by another. Only
    where a function by its name, or a module's, makes it of what is no dataset: those may keep something themselves.
    """
    frame = _users_frame()
    if frame is None:
        return False
    known, code = {**frame.f_globals, **frame.f_locals}, frame.f_code

    def hold_dataset(names: frozenset[str]) -> bool:
        return any(hasattr(type(known.get(name)), "element_spec") for name in names)  # not of a module that loads late

    taken, assigned = _assigned_around(code.co_filename, code.co_firstlineno, frame.f_lineno)
    return any(
        hold_dataset(taken & each.sets)
        and not hold_dataset(each.uses)
        and all(isinstance(known.get(name), ModuleType) for name in each.parts_of)
        for each in assigned
    )


def generator() -> CodeType | None:
    """Return the code of the user's generator whose own lines make a call which led here; None where none does."""
    frame = _users_frame()
    return frame.f_code if frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR else None


def is_left(generator: CodeType) -> bool:
    """Return whether a generator has given what it last took to the code that runs now, and waits to go on."""
    return all(frame.f_code is not generator for frame in user_code.outward(sys._getframe(1)))


def listed(generator: CodeType) -> str:
    """Return a generator as it is listed, by its name without the enclosing function: ``batches, train.py:12``."""
    name = generator.co_qualname.rpartition("<locals>.")[2]
    return f"{name}, {Path(generator.co_filename).name}:{generator.co_firstlineno}"


def handing_on(generator: CodeType | None) -> str:
    """Return a generator as it is `listed` if it `is_left`, and computes anything; empty of others, and for None."""
    if generator is None or not is_left(generator):
        return ""
    computes = any(each.opname.startswith(_COMPUTING) for each in dis.get_instructions(generator))
    return listed(generator) if computes else ""


class _Made(NamedTuple):
    """An assignment of what a call gives, by the names in it."""

    sets: frozenset[str]
    uses: frozenset[str]
    parts_of: frozenset[str]
    """Those of which it uses an attribute or an item."""


@functools.lru_cache(maxsize=1024)
def _assigned_around(file: str, defined_line: int, line: int) -> tuple[frozenset[str], tuple[_Made, ...]]:
    """Return the names in the statement of a line, and what the innermost loop around it assigns of calls."""
    nodes = source_guards.nodes(file)
    over = _for_over(file, line)
    simple = [each for each in nodes if isinstance(each, ast.Expr | ast.Assign) and line in _span([each])]
    taken = simple if over is None else [over.iter]
    innermost = _loops_around(file, defined_line, line, body=True, runs_on=False)[:1]
    loop = next((each for each in nodes if isinstance(each, ast.For | ast.While) and each.lineno in innermost), None)
    assigned = [] if loop is None else [each for each in loop.body if isinstance(each, ast.Assign)]
    made = (
        _Made(_names(each.targets, ast.Store), _names([each.value]), _parts_of(each.value))
        for each in assigned
        if isinstance(each.value, ast.Call)
    )
    return _names(taken), tuple(made)


def _names(nodes: Sequence[ast.AST], context: type[ast.expr_context] = ast.expr_context) -> frozenset[str]:
    inside = (each for node in nodes for each in ast.walk(node))
    return frozenset(each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, context))


def _parts_of(node: ast.AST) -> frozenset[str]:
    parts = (each.value for each in ast.walk(node) if isinstance(each, ast.Attribute | ast.Subscript))
    return frozenset(each.id for each in parts if isinstance(each, ast.Name))


def _users_frame() -> FrameType | None:
    """Return the innermost frame of the user's code in a file; None where there is none."""
    frames = user_code.outward(sys._getframe(1))
    frame = next((each for each in frames if user_code.origin(each.f_code.co_filename) == "user"), None)
    return None if frame is None or frame.f_code.co_filename.startswith("<") else frame


def rounds() -> int | None:
    """Return how often all loops around a call go round together, where each is a `for` over a `range` that tells."""
    product, found = 1, [*_around(sys._getframe(1), body=True)]
    for frame, line in found:
        file, known = frame.f_code.co_filename, {**frame.f_globals, **frame.f_locals}
        loops = [each for each in source_guards.nodes(file) if isinstance(each, ast.For) and each.lineno == line]
        number = source_guards.rounds(loops[0], known) if len(loops) == 1 else None
        if number is None:
            return None
        product *= number
    return product if found else None


@functools.lru_cache(maxsize=256)
def _for_over(file: str, line: int) -> ast.For | None:
    """Return the innermost `for` of a file that goes over what stands in a line."""
    loops = [each for each in source_guards.nodes(file) if isinstance(each, ast.For) and line in _span([each.iter])]
    return max(loops, key=lambda each: each.lineno, default=None)


def _around(innermost: FrameType, body: bool) -> Iterator[tuple[FrameType, int]]:
    """Yield the loops of `around`: the frame that runs each, and its first line."""
    in_generators_loop = False
    for frame in user_code.outward(innermost):
        if not _is_programs(frame):
            continue
        # What a generator does before a loop of its own is done once, though a loop has it run on.
        runs_on = in_generators_loop and _is_iterating(frame)
        code = frame.f_code
        lines = _loops_around(code.co_filename, code.co_firstlineno, frame.f_lineno, body, runs_on)
        yield from ((frame, line) for line in lines)
        in_generators_loop = bool(code.co_flags & inspect.CO_GENERATOR) and (bool(lines) or in_generators_loop)


def _is_programs(frame: FrameType) -> bool:
    """Return whether a frame runs code of the user's, or of a library."""
    file = frame.f_code.co_filename
    # Of code without a file, as that of `-c`, Python has the text from 3.13 on; it is none of the script's.
    return not file.startswith("<") and user_code.origin(file) in ("user", "library")


def _is_iterating(frame: FrameType) -> bool:
    """Return whether a frame is at the instruction by which a loop asks for its next element."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while at > 0 and code[at] == _CACHE:
        at -= 2
    return at >= 0 and code[at] == _FOR_ITER


@functools.lru_cache(maxsize=4096)  # a script may make thousands of datasets in one line
def _loops_around(file: str, defined_line: int, line: int, body: bool, runs_on: bool) -> tuple[int, ...]:
    """Return the first lines of the loops that a line of a function stands in, inner ones first.

    Args:
        file: of the text.
        defined_line: in which the function begins.
        line: of the function.
        body: as for `around`.
        runs_on: whether the line is where a loop has a generator go round.
    """
    around = (
        each
        for each in _loops(file)
        if line in each.repeated or (line in each.over and runs_on) or (not body and each.first <= line <= each.last)
    )
    # A loop that begins in front of the function only defines it.
    return tuple(each.first for each in around if defined_line <= each.first)


@functools.lru_cache(maxsize=256)
def _loops(file: str) -> tuple[_Lines, ...]:
    """Return the loops of a file, inner ones first."""
    loops = [_lines(node) for node in source_guards.nodes(file) if isinstance(node, _LOOPS)]
    return tuple(sorted(loops, key=lambda loop: -loop.first))


def _lines(node: Any) -> _Lines:
    whole, once = _span([node]), range(0)
    if isinstance(node, _COMPREHENSIONS):
        repeated, once = whole, _span([node.generators[0].iter])
    else:
        repeated = _span(node.body)  # without an `else`
        once = range(0) if isinstance(node, ast.While) else _span([node.iter])
    return _Lines(whole[0], whole[-1], frozenset(repeated) - {whole[0], *once}, once)


def _span(nodes: Sequence[Any]) -> range:
    """Return the lines from the first of some nodes to the last."""
    return range(nodes[0].lineno, nodes[-1].end_lineno + 1)
