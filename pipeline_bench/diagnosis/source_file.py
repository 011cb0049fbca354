"""A user's source file as a LibCST tree: chains of method calls, and the changes that a patch makes to them.

A chain is a base and the method calls behind it: ``ds``, ``.map(f)``, ``.batch(32)``. Changes are only noted;
`SourceFile.render` then writes the text once, so that changes to one call, and to calls within its arguments, add up.
Every byte that no change touches stays as it is.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from pipeline_bench.model.edits import CannotPatchError

_LINE_END = re.compile(rb"\r\n|\r|\n")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NO_COMMA = cst.MaybeSentinel.DEFAULT
_BLOCKS = (cst.IndentedBlock, cst.Module)


@dataclass(eq=False)
class Link:
    """A call in a chain, with the comments above it and the one behind it on its line."""

    call: cst.Call
    above: tuple[cst.EmptyLine, ...] = ()
    behind: str = ""
    home: Chain | None = None
    """The chain that it stands in as the file is written."""


@dataclass(frozen=True)
class Lead:
    """The blanks before a call's dot, and the brackets around what stands before it; both stay when calls move."""

    space: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace("")  # noqa: RUF009 - nodes are immutable
    lpar: Sequence[cst.LeftParen] = ()
    rpar: Sequence[cst.RightParen] = ()

    @property
    def broken(self) -> bool:
        """Whether the call begins a line."""
        space = self.space
        return isinstance(space, cst.ParenthesizedWhitespace) or "\\" in getattr(space, "value", "")


@dataclass(eq=False)
class Chain:
    """Calls behind a base; `top` is the expression that they make together in the file."""

    top: cst.BaseExpression
    base: cst.BaseExpression
    links: list[Link] = field(default_factory=list)
    leads: list[Lead] = field(default_factory=list)
    behind_base: str = ""

    def insert(self, index: int, link: Link) -> None:
        """Put a call in, on a line of its own where the nearest other calls have one."""
        places = sorted(range(len(self.leads)), key=lambda place: abs(place - index + 0.5))
        for place in places:
            closed = any(lead.rpar for lead in self.leads[place + 1 : index])
            if self.leads[place].broken and not closed:
                lead = Lead(_without_comments(self.leads[place].space))
                break
        else:
            lead = Lead()
        self.leads.insert(index, lead)
        self.links.insert(index, link)

    def remove(self, link: Link) -> None:
        """Take a call out.

        Raises:
            CannotPatchError: brackets close before the call.
        """
        index = self.links.index(link)
        if self.leads[index].rpar:
            raise CannotPatchError("brackets stand around the calls before it")
        del self.leads[index], self.links[index]


@dataclass(frozen=True)
class Composed:
    """One function in place of the functions of several maps, upstream first.

    `unpacked`: of each but the last, whether it gives a tuple, which the next one takes as its arguments.
    """

    functions: Sequence[cst.Arg]
    unpacked: Sequence[bool]


class SourceFile:
    """One file of the user's: its tree, its chains, and what is to change in it.

    Raises:
        SyntaxError: the text is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._mark = "\ufeff" if text.startswith("\ufeff") else ""
        self.module, self.spans, self.parents = _parsed(text.removeprefix(self._mark))
        self.nodes = (self.module, *self.parents)
        if self._mark + self.module.code != text:
            raise SyntaxError("LibCST does not give the text back as it is")
        self.chains: list[Chain] = []
        self.values: dict[cst.Arg, cst.BaseExpression | Composed] = {}
        self.added: dict[cst.Call, dict[str, cst.BaseExpression]] = {}
        self.renamed: dict[cst.Call, str] = {}
        self.lines_before: dict[cst.CSTNode, list[str]] = {}
        self.dropped: set[cst.CSTNode] = set()
        encoded = text.removeprefix(self._mark).encode()
        self._lines = [0, *(found.end() for found in _LINE_END.finditer(encoded))]

    def at(self, line: int, column: int) -> int:
        """Return the offset in bytes of a line, from 1, and a column in bytes."""
        return self._lines[line - 1] + column if line <= len(self._lines) else -1

    def start(self, node: cst.CSTNode) -> int:
        """Return where a node begins; brackets around it are not part of it."""
        return int(self.spans[node].start)

    def end(self, node: cst.CSTNode) -> int:
        """Return where a node ends."""
        return self.start(node) + int(self.spans[node].length)

    def lines(self, node: cst.CSTNode) -> range:
        """Return the numbers of the lines that a node stands on, from 1."""
        return range(bisect_right(self._lines, self.start(node)), bisect_right(self._lines, self.end(node)) + 1)

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node as it was."""
        return self.module.code_for_node(node)

    def names(self) -> set[str]:
        """Return every name that the file uses."""
        return {node.value for node in self.nodes if isinstance(node, cst.Name)}

    def around(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return a node and what it is in, up to the module."""
        found = [node]
        while found[-1] in self.parents:
            found.append(self.parents[found[-1]])
        return found

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the function that a node is in, or the module."""
        return next(each for each in self.around(node)[1:] if isinstance(each, cst.FunctionDef | cst.Module))

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement that a node is in; of several on a line, that one."""
        statements = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
        return next(each for each in self.around(node) if isinstance(each, statements))

    def block(self, statement: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the statements among which one stands."""
        parent = self.parents[statement]
        block = self.parents[parent] if isinstance(parent, cst.SimpleStatementLine) else parent
        found: list[cst.CSTNode] = []
        for each in getattr(block, "body", ()):
            found += each.body if isinstance(each, cst.SimpleStatementLine) else [each]
        return found

    def line_of(self, statement: cst.CSTNode) -> cst.CSTNode | None:
        """Return what lines can be put in front of, for a statement; None where it does not begin its line."""
        parent = self.parents[statement]
        line = parent if isinstance(parent, cst.SimpleStatementLine) else statement
        if isinstance(parent, cst.SimpleStatementLine) and parent.body[0] is not statement:
            return None
        return line if isinstance(self.parents[line], _BLOCKS) else None

    def link(self, call: cst.Call) -> tuple[Chain, Link] | None:
        """Return the chain that a call stands in, and its link there."""
        return next(((chain, link) for chain in self.chains for link in chain.links if link.call is call), None)

    def chain_on(self, base: cst.Call) -> Chain:
        """Return the chain that begins with a call; an empty one is made where there is none."""
        for chain in self.chains:
            if chain.base is base:
                return chain
        self.chains.append(Chain(base, base, behind_base=self._behind(base)))
        return self.chains[-1]

    def add_chain(self, calls: Sequence[cst.Call]) -> None:
        """Make a chain of calls of methods, each on the one before it."""
        below = calls[0].func
        assert isinstance(below, cst.Attribute)
        chain = Chain(calls[-1], below.value)
        for call in calls:
            assert isinstance(call.func, cst.Attribute)
            before, space = call.func.value, call.func.dot.whitespace_before
            above: tuple[cst.EmptyLine, ...] = ()
            behind = _comment_before(before.rpar)
            if isinstance(space, cst.ParenthesizedWhitespace):
                behind = behind if before.rpar else _comment(space.first_line)
                if any(line.comment for line in space.empty_lines):
                    above = tuple(space.empty_lines)
                    space = space.with_changes(empty_lines=())
                if behind and not before.rpar:
                    space = space.with_changes(first_line=_bare(space.first_line))
            if chain.links:
                chain.links[-1].behind = behind
            else:
                chain.behind_base = behind
            chain.leads.append(Lead(space, before.lpar, before.rpar))
            chain.links.append(Link(call, above, home=chain))
        chain.links[-1].behind = self._behind(calls[-1])
        self.chains.append(chain)

    def ending(self, top: cst.CSTNode) -> cst.SimpleStatementLine | None:
        """Return the line that an expression is the last of; None where something stands behind it."""
        line = next((each for each in self.around(top) if isinstance(each, cst.SimpleStatementLine)), None)
        ends = line is not None and not getattr(top, "rpar", ()) and self.end(line.body[-1]) == self.end(top)
        return line if ends and line is not None and isinstance(line.body[-1].semicolon, cst.MaybeSentinel) else None

    def render(self) -> str:
        """Return the whole text with every change.

        Raises:
            CannotPatchError: a comment cannot stand where its call has moved to.
        """
        if not (self.chains or self.values or self.added or self.renamed):
            return self.text
        changed = self.module.visit(_Renderer(self))
        assert isinstance(changed, cst.Module)
        return self._mark + changed.code

    def _behind(self, top: cst.BaseExpression) -> str:
        """Return the comment behind an expression on its line, where it can be moved."""
        if top.rpar:
            return _comment_before(top.rpar)
        line = self.ending(top)
        return _comment(line.trailing_whitespace) if line is not None else ""


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[cst.Module, Mapping[Any, Any], Mapping[cst.CSTNode, cst.CSTNode]]:
    """Return the tree of a text, where its nodes stand, and in which other each is, those that hold others first."""
    try:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        raise SyntaxError(str(error)) from None
    parents: dict[cst.CSTNode, cst.CSTNode] = {}
    waiting: list[tuple[cst.CSTNode, cst.CSTNode]] = [
        (each, wrapper.module) for each in reversed(wrapper.module.children)
    ]
    while waiting:
        node, parent = waiting.pop()
        parents[node] = parent
        waiting += [(each, node) for each in reversed(node.children)]
    return wrapper.module, wrapper.resolve(ByteSpanPositionProvider), parents


def stored_and_used(file: SourceFile, node: cst.CSTNode) -> tuple[set[str], set[str]]:
    """Return the names that a statement or an expression sets, and all names of variables in it."""
    nodes = list(ast.walk(ast.parse(file.code(node).strip().rstrip(";"))))
    used = {each.id for each in nodes if isinstance(each, ast.Name)}
    stored = {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    stored |= {each.name for each in nodes if isinstance(each, _DEFINITIONS)}
    imported = (alias for each in nodes if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names)
    return stored | {(alias.asname or alias.name).split(".")[0] for alias in imported}, used


def new_call(text: str) -> cst.Call:
    """Return the call that a text like ``.cache()`` makes on a dataset."""
    call = cst.parse_expression(f"_{text}")
    assert isinstance(call, cst.Call)
    return call


class _Renderer(cst.CSTTransformer):
    """Makes the changed tree."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.chains = {chain.top: chain for chain in file.chains}
        self.line_ends: dict[cst.CSTNode, str] = {}
        self.orphans: list[cst.EmptyLine] = []
        """Comments above a statement that is left out; they come above the next one."""
        self.adopted: dict[cst.CSTNode, list[cst.EmptyLine]] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.orphans and isinstance(node, cst.BaseStatement) and hasattr(node, "leading_lines"):
            self.adopted[node], self.orphans = self.orphans, []
        return node not in self.chains and node not in self.file.values

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        original, updated, file = original_node, updated_node, self.file
        if original in self.chains:
            return self._chain(self.chains[original])
        if original in file.dropped:
            return cst.RemoveFromParent()
        if isinstance(original, cst.Call):
            return self._call(original, updated)
        if isinstance(original, cst.Arg) and original in file.values:
            return updated.with_changes(value=self._value(original))
        if isinstance(original, cst.BaseStatement) and hasattr(original, "leading_lines"):
            return self._statement(original, updated)
        if isinstance(original, _BLOCKS) and self.orphans:
            updated = updated.with_changes(footer=[*self.orphans, *updated.footer])
            self.orphans = []
        return updated

    def _statement(self, original: Any, updated: Any) -> Any:
        if original in self.adopted:
            updated = updated.with_changes(leading_lines=[*self.adopted[original], *updated.leading_lines])
        if isinstance(original, cst.SimpleStatementLine) and not updated.body:
            self.orphans = list(updated.leading_lines)
            return cst.RemoveFromParent()
        if isinstance(original, cst.SimpleStatementLine) and len(original.body) > len(updated.body):
            last = updated.body[-1].with_changes(semicolon=original.body[-1].semicolon)
            updated = updated.with_changes(body=[*updated.body[:-1], last])
        if original in self.line_ends:
            end = _line_end(self.line_ends[original], _bare(original.trailing_whitespace))
            updated = updated.with_changes(trailing_whitespace=end)
        if original not in self.file.lines_before:
            return updated
        new = [cst.parse_statement(line) for line in self.file.lines_before[original]]
        made = [cst.SimpleStatementLine(body=line.body) for line in new if isinstance(line, cst.SimpleStatementLine)]
        made[0] = made[0].with_changes(leading_lines=updated.leading_lines)
        return cst.FlattenSentinel([*made, updated.with_changes(leading_lines=())])

    def _chain(self, chain: Chain) -> cst.BaseExpression:
        made = self._piece(chain.base) if chain.base is chain.top else chain.base.visit(self)
        assert isinstance(made, cst.BaseExpression)
        made, behind = made.with_changes(lpar=(), rpar=()), chain.behind_base
        for lead, link in zip(chain.leads, chain.links, strict=True):
            space, above = lead.space, list(link.above)
            rpar, behind = _closed(lead.rpar, behind)
            if isinstance(space, cst.ParenthesizedWhitespace):
                if link.home is not chain:
                    place = {"indent": space.indent, "whitespace": space.last_line}
                    above = [line.with_changes(**place) for line in above if line.comment]
                if not above or above[0].comment:
                    above = [*space.empty_lines, *above]
                space = space.with_changes(first_line=_line_end(behind, space.first_line), empty_lines=above)
                behind = link.behind
            else:
                comments = [line.comment.value for line in above if line.comment]
                behind += "".join(f"  {comment}" for comment in comments) + link.behind
            call = self._piece(link.call)
            assert isinstance(call.func, cst.Attribute)
            made = made.with_changes(lpar=lead.lpar, rpar=rpar)
            dot = call.func.dot.with_changes(whitespace_before=space)
            made = call.with_changes(func=call.func.with_changes(value=made, dot=dot), lpar=(), rpar=())
        return self._ended(chain, made, behind)

    def _ended(self, chain: Chain, made: cst.BaseExpression, behind: str) -> cst.BaseExpression:
        """Return the expression with its own brackets, and with the last call's comment behind it."""
        rpar, behind = _closed(chain.top.rpar, behind)
        line = self.file.ending(chain.top)
        if line is not None:
            self.line_ends[line] = behind
        elif behind:
            raise CannotPatchError("a comment would hide what stands behind the calls")
        return made.with_changes(lpar=chain.top.lpar, rpar=rpar)

    def _piece(self, node: cst.CSTNode) -> cst.Call:
        """Return a call with what changes in its arguments; what it is called on is left as it is."""
        assert isinstance(node, cst.Call)
        function = node.func if self.file.link(node) else node.func.visit(self)
        return self._call(node, node.with_changes(func=function, args=[arg.visit(self) for arg in node.args]))

    def _call(self, original: cst.Call, call: cst.Call) -> cst.Call:
        if original in self.file.renamed:
            name = cst.Name(self.file.renamed[original])
            call = call.with_changes(func=call.func.with_changes(attr=name))
        if added := self.file.added.get(original):
            call = call.with_changes(args=_with_keywords(call, added))
        return call

    def _value(self, arg: cst.Arg) -> cst.BaseExpression:
        value = self.file.values[arg]
        if isinstance(value, Composed):
            value = _composed([each.value.visit(self) for each in value.functions], value.unpacked)
        return value.with_changes(lpar=arg.value.lpar, rpar=arg.value.rpar)


def _comment(end: cst.TrailingWhitespace) -> str:
    return f"{end.whitespace.value}{end.comment.value}" if end.comment else ""


def _comment_before(rpar: Sequence[cst.RightParen]) -> str:
    """Return the comment that ends the line in front of a closing bracket."""
    space = rpar[0].whitespace_before if rpar else None
    return _comment(space.first_line) if isinstance(space, cst.ParenthesizedWhitespace) else ""


def _closed(rpar: Sequence[cst.RightParen], behind: str) -> tuple[Sequence[cst.RightParen], str]:
    """Return brackets with that comment in front of them, and the comment where it cannot stand there."""
    space = rpar[0].whitespace_before if rpar else None
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return rpar, behind
    space = space.with_changes(first_line=_line_end(behind, _bare(space.first_line)))
    return [rpar[0].with_changes(whitespace_before=space), *rpar[1:]], ""


def _bare(end: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    """Return the end of a line without its comment and the blanks before that."""
    return end.with_changes(comment=None, whitespace=cst.SimpleWhitespace("")) if end.comment else end


def _line_end(comment: str, end: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    """Return the end of a line with a comment in front of what it has."""
    if not comment:
        return end
    text = comment + _comment(end)
    begun = text.index("#")
    return end.with_changes(whitespace=cst.SimpleWhitespace(text[:begun]), comment=cst.Comment(text[begun:]))


def _without_comments(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return space.with_changes(first_line=first, empty_lines=())


def _with_keywords(call: cst.Call, added: dict[str, cst.BaseExpression]) -> list[cst.Arg]:
    """Return the arguments with others by keyword behind them, on lines of their own where the last one has one."""
    args = list(call.args)
    space: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace(" ")
    if args:
        last = args[-1]
        commas = [arg.comma for arg in args if isinstance(arg.comma, cst.Comma)]
        before = [call.whitespace_before_args, *(comma.whitespace_after for comma in commas[: len(args) - 1])][-1]
        behind = cst.Module([]).code_for_node(last.with_changes(value=cst.Name("_")))
        if isinstance(before, cst.ParenthesizedWhitespace) and "#" not in behind:
            space = _without_comments(before)
        args[-1] = last.with_changes(
            comma=cst.Comma(whitespace_after=space), whitespace_after_arg=cst.SimpleWhitespace("")
        )
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    comma = cst.Comma(whitespace_after=space)
    new = [cst.Arg(value, keyword=cst.Name(name), equal=equal, comma=comma) for name, value in added.items()]
    end = {"comma": last.comma, "whitespace_after_arg": last.whitespace_after_arg} if args else {"comma": _NO_COMMA}
    return [*args, *new[:-1], new[-1].with_changes(**end)]


def _composed(functions: Sequence[Any], unpacked: Sequence[bool]) -> cst.BaseExpression:
    """Return one function of several: ``lambda *x: g(*f(*x))``."""
    inner: cst.BaseExpression = cst.Name("x")
    star = True
    for function, next_star in zip(functions, [*unpacked, False], strict=True):
        brackets = not isinstance(function, cst.Name | cst.Attribute | cst.Call)
        lpar, rpar = ([cst.LeftParen()], [cst.RightParen()]) if brackets else ((), ())
        called = function.with_changes(lpar=lpar, rpar=rpar)
        inner, star = cst.Call(called, [cst.Arg(inner, star="*" if star else "")]), next_star
    return cst.parse_expression("lambda *x: _").with_changes(body=inner)
