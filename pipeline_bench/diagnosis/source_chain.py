"""A user's source as chains of calls that can be rearranged, with the rest of the text left as it is. Pure.

A chain is a base and the method calls behind it: ``ds``, ``.map(f)``, ``.batch(32)``. Edits only note what is to
change; `Source.render` then writes the text once, so that edits to one call, and to calls within its arguments, add up.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

_NEW_LINE = re.compile(rb"\r\n|\r|\n")
_COMMENT = re.compile(rb"#[^\r\n]*")
_TRAILING_COMMENT = re.compile(rb"[ \t]*#[^\r\n]*")

Statement = ast.stmt


class UntoldError(Exception):
    """A change cannot be written as a change of the text; the message says why, as the end of a sentence."""


@dataclass(eq=False)
class Patch:
    """Bytes `start` to `end` become what `render` gives."""

    start: int
    end: int
    render: Callable[[], bytes]


@dataclass(eq=False)
class Link:
    """A call in a chain: its own text, the comments above it and the one behind it on its line."""

    body: Callable[[], bytes]
    call: ast.Call | None = None
    above: tuple[bytes, ...] = ()
    behind: bytes = b""


@dataclass(eq=False)
class Chain:
    """Calls behind a base. `leads` are the blanks and brackets before each call; they stay where they are."""

    base: ast.expr
    start: int
    end: int
    links: list[Link]
    leads: list[bytes]
    behind_base: bytes = b""

    def new_lead(self, index: int) -> bytes:
        """What stands before a call that is put in at `index`: a line of its own where the others have one."""
        nearest = sorted(range(len(self.leads)), key=lambda place: abs(place - index + 0.5))
        broken = [self.leads[place] for place in nearest if _NEW_LINE.search(self.leads[place])]
        return broken[0].replace(b")", b"") if broken else b""

    def insert(self, index: int, link: Link) -> None:
        """Put a call in, with the layout of its neighbours."""
        self.leads.insert(index, self.new_lead(index))
        self.links.insert(index, link)

    def remove(self, link: Link) -> None:
        """Take a call out."""
        index = self.links.index(link)
        if b")" in self.leads[index]:
            raise UntoldError("brackets stand around the calls before it")
        del self.leads[index], self.links[index]


@dataclass
class Source:
    """One file: its bytes, its tree, and what is to change in it.

    Raises:
        SyntaxError: the text is no Python.
    """

    text: str
    chains: list[Chain] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes = self.text.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their escapes and comparisons, which are not ours to judge
            self.tree = ast.parse(self.text.removeprefix("\ufeff"))
        self._lines = [0, *(found.end() for found in _NEW_LINE.finditer(self.bytes))]
        if self.text.startswith("\ufeff"):  # the interpreter's columns do not count the mark
            self._lines[0] = len("\ufeff".encode())
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.new_line = (_NEW_LINE.search(self.bytes) or re.match(b".*", b"\n", re.DOTALL) or [b"\n"])[0] or b"\n"

    def at(self, line: int, column: int) -> int:
        """The offset of a line (from 1) and a column in bytes."""
        return self._lines[line - 1] + column

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Where a node begins."""
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Where a node ends; brackets around it are not of it."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)

    def line_start(self, offset: int) -> int:
        """Where the line of that offset begins."""
        return max(start for start in self._lines if start <= offset)

    def line_end(self, offset: int) -> int:
        """Where the next line begins."""
        return min((start for start in self._lines if start > offset), default=len(self.bytes))

    def calls(self) -> Iterator[ast.Call]:
        """Every call of the file."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """A node and what it is in, up to its statement."""
        yield node
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
            yield node

    def statement(self, node: ast.AST) -> Statement:
        """The statement that a node is in."""
        *_, found = self.around(node)
        assert isinstance(found, ast.stmt)
        return found

    def function(self, node: ast.AST) -> ast.AST:
        """The function that a node is in, or the module."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                break
        return node

    def block(self, statement: Statement) -> list[Statement]:
        """The statements among which one stands."""
        for name in ("body", "orelse", "finalbody"):
            block = getattr(self.parents[statement], name, None)
            if isinstance(block, list) and statement in block:
                return block
        return [statement]

    def after_brackets(self, start: int, end: int) -> int:
        """Where the last closing bracket between two offsets ends; `start` where there is none."""
        blanked = _COMMENT.sub(lambda found: b" " * len(found[0]), self.bytes[start:end])
        return start + blanked.rfind(b")") + 1

    def add_chain(self, calls: list[ast.Call]) -> Chain:
        """Make a chain of calls that stand on one another, the first one first; each is a method's."""
        first = calls[0].func
        assert isinstance(first, ast.Attribute)
        chain = self._chain(first.value, self.end(calls[-1]))
        for call in calls:
            assert isinstance(call.func, ast.Attribute)
            begun = self.end(call.func.value)
            begun += len(_trailing(self.bytes, begun))
            dot = self._dot(begun)
            above = tuple(found[0] for found in _COMMENT.finditer(self.bytes[begun:dot]))
            chain.leads.append(_blank(self.bytes[begun:dot], bool(above)))
            body = partial(self.slice, dot, self.end(call), self.patches[-1])
            chain.links.append(Link(body, call, above, _trailing(self.bytes, self.end(call))))
        return chain

    def empty_chain(self, base: ast.Call) -> Chain:
        """Make a chain that has only its base yet."""
        return self._chain(base, self.end(base))

    def _chain(self, base: ast.expr, end: int) -> Chain:
        start = self.end(base)
        chain = Chain(base, start, end + len(_trailing(self.bytes, end)), [], [], _trailing(self.bytes, start))
        self.chains.append(chain)
        self.patches.append(Patch(chain.start, chain.end, partial(self._render_chain, chain)))
        return chain

    def render(self) -> str:
        """The whole text with every change."""
        self._active: list[Patch] = []
        return self.slice(0, len(self.bytes)).decode()

    def slice(self, start: int, end: int, without: Patch | None = None) -> bytes:
        """A part of the text with the changes within it, but for one: a call's text is not that of its chain."""
        inside = [p for p in self.patches if start <= p.start and p.end <= end and p not in (*self._active, without)]
        # What is put in where the part ends stands behind it.
        inside = [p for p in inside if p.start < end or end == len(self.bytes)]
        inside.sort(key=lambda patch: (patch.start, patch.start != patch.end, -patch.end))
        made, reached = [], start
        for patch in inside:
            if patch.start < reached:  # it lies within the one before, which renders it
                continue
            made.append(self.bytes[reached : patch.start])
            self._active.append(patch)
            made.append(patch.render())
            self._active.remove(patch)
            reached = patch.end
        return b"".join([*made, self.bytes[reached:end]])

    def _dot(self, start: int) -> int:
        blanked = _COMMENT.sub(lambda found: b" " * len(found[0]), self.bytes[start:])
        return start + blanked.index(b".")

    def _render_chain(self, chain: Chain) -> bytes:
        made, behind = [], chain.behind_base
        for lead, link in zip(chain.leads, chain.links, strict=True):
            broken = _NEW_LINE.search(lead)
            if broken:  # a comment ends its line, so it waits for one that ends
                made.append(behind)
                behind = b""
            made += [lead + comment for comment in link.above if broken]
            made += [lead, link.body()]
            behind += b"".join(b"  " + comment for comment in link.above if not broken) + link.behind
        if behind and self.bytes[chain.end : self.line_end(chain.end)].strip():
            raise UntoldError("a comment would hide what stands behind the calls")
        return b"".join([*made, behind])


def is_program(text: str) -> bool:
    """Whether a text is valid Python, arguments that are given twice included; nothing of it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text.removeprefix("\ufeff"), "<changed>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def _trailing(text: bytes, offset: int) -> bytes:
    """The comment behind an offset on its line, with the blanks before it."""
    found = _TRAILING_COMMENT.match(text, offset)
    return found[0] if found else b""


def _blank(lead: bytes, has_comments: bool) -> bytes:
    """The lead without its comments: one line's end and the indentation of the call."""
    if not has_comments:
        return lead
    brackets = b")" * _COMMENT.sub(b"", lead).count(b")")
    *_, last = _NEW_LINE.finditer(lead)
    return brackets + last[0] + lead[last.end() :].replace(b")", b"")
