"""Which loops of the script's text a call stands in: what such a loop makes, it makes anew each time it goes round."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import math
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


def never_reads_again() -> bool:
    """Return whether no pass can read what an earlier one over the same kept, where a call begins one.

    That is so where a `for` of the user's code, in no other loop, goes over it; or where a loop around it has another
    dataset in each round (`is_replaced`).
    """
    frame = _users_frame()
    loop = None if frame is None else _for_over(frame.f_code.co_filename, frame.f_lineno)
    is_alone = loop is not None and [*_around(sys._getframe(1), body=False)] == [(frame, loop.lineno)]
    return is_alone or is_replaced()


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


def rounds(
    within: SourceLoop | None,
    iterator: Any,
    in_header: bool = False,
    call: FrameType | None = None,
    function: str | None = None,
) -> int | None:
    """Return how many elements of an iterator all loops around a call take at the most, one in each of their rounds.

    None unless they stand in the function that made the iterator, and each tells how often it goes round
    (`source_guards.rounds`); or if anything else in that function may take from it.

    Args:
        within: the loop that makes the iterator in each of its rounds, and does not count; None: all count.
        iterator: that the call takes from.
        in_header: whether what one of the loops goes over made it.
        call: the frame that makes the call; None: the caller's.
        function: as of `source_guards.take_alone`.
    """
    call = call or sys._getframe(1)
    frame = next((each for each in user_code.outward(call) if _is_programs(each) and not _is_bar(each)), None)
    around = [each for each in _around(call, body=False) if not _is_bar(each[0])]
    places = [SourceLoop(id(each), each.f_code.co_filename, line) for each, line in around]
    if frame is None or (within is not None and within not in places):
        return None
    end, code = len(places) if within is None else places.index(within), frame.f_code
    names = {name for name, value in frame.f_locals.items() if value is iterator}
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if any(each is not frame for each, _ in around[:end]) or not names.isdisjoint({*parameters, *code.co_freevars}):
        return None
    is_here = within is not None and within.frame == id(frame)
    body = _body(code, within.line if within is not None and is_here else None)
    lines = [line for _, line in around[:end]]
    if not in_header and not source_guards.take_alone(body, names, lines, function):
        return None
    changing = frozenset[str]().union(*(source_guards.changed(each.file, each.line) for each in places[: end + 1]))
    known = {**frame.f_globals, **frame.f_locals, **dict.fromkeys(changing)}
    if within is not None and not is_here:  # another pass may be given other numbers
        outer = around[end][0]
        given = source_guards.given(
            within.file, code.co_name, {**outer.f_globals, **outer.f_locals, **dict.fromkeys(changing)}
        )
        same = {_identity(each) for each in given}
        known |= {name: None for name in parameters if _identity(known.get(name)) not in same}
    loops = {each.lineno: each for each in source_guards.own_nodes(body) if isinstance(each, ast.For | ast.While)}
    numbers = [source_guards.rounds(loops.get(line), known) for line in lines]
    return math.prod(each for each in numbers if each is not None) if numbers and None not in numbers else None


def _identity(value: Any) -> tuple[bool, int]:
    is_number = type(value) is int
    return is_number, value if is_number else id(value)


def _is_bar(frame: FrameType) -> bool:
    """Return whether a frame is a progress bar's, which hands on what it goes over."""
    code = frame.f_code
    is_generator = bool(code.co_flags & inspect.CO_GENERATOR) and user_code.origin(code.co_filename) == "library"
    return is_generator and source_guards.is_as_long(code.co_qualname)


def _body(code: CodeType, loop_line: int | None) -> list[ast.stmt]:
    """Return the statements of a function, of a module, or of a loop there that begins in a line."""
    nodes = source_guards.nodes(code.co_filename)
    if loop_line is not None:
        loops = [each for each in nodes if isinstance(each, ast.For | ast.While) and each.lineno == loop_line]
        return [each for loop in loops for each in loop.body]
    module = next(iter(nodes), None) if code.co_name == "<module>" else None
    text = module or source_guards.function_of(code.co_filename, code.co_name, code.co_firstlineno)
    return [] if text is None else list(text.body)


def takes_one(function: Any) -> bool:
    """Return whether a function takes one element, as far as its text says."""
    code = getattr(function, "__code__", None)
    text = None if code is None else source_guards.function_of(code.co_filename, code.co_name, code.co_firstlineno)
    return text is not None and source_guards.takes_one(text)


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
    loops = [_lines(node) for node in source_guards.nodes(file) if isinstance(node, source_guards.LOOPS)]
    return tuple(sorted(loops, key=lambda loop: -loop.first))


def _lines(node: Any) -> _Lines:
    whole, once = _span([node]), range(0)
    if isinstance(node, source_guards.COMPREHENSIONS):
        repeated, once = whole, _span([node.generators[0].iter])
    else:
        repeated = _span(node.body)  # without an `else`
        once = range(0) if isinstance(node, ast.While) else _span([node.iter])
    return _Lines(whole[0], whole[-1], frozenset(repeated) - {whole[0], *once}, once)


def _span(nodes: Sequence[Any]) -> range:
    """Return the lines from the first of some nodes to the last."""
    return range(nodes[0].lineno, nodes[-1].end_lineno + 1)
