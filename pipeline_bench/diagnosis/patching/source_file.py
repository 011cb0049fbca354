"""A user's source file as a LibCST tree: chains of method calls, and the changes that a patch makes to them.

A chain is a base and the method calls behind it: ``ds``, ``.map(f)``, ``.batch(32)``. Changes are only noted;
`source_writer.write` then writes the text once, so that changes to one call, and to calls within its arguments, add up.
Every byte that no change touches stays as it is.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import libcst as cst
from libcst.metadata import BaseAssignment, ByteSpanPositionProvider, ImportAssignment, MetadataWrapper, ScopeProvider

from pipeline_bench.model.calls import PARAMETERS, CannotPatchError

_LINE_END = re.compile(rb"\r\n|\r|\n")
BLOCKS = (cst.IndentedBlock, cst.Module)
NOT_AT_ONCE = (cst.Lambda, cst.BaseComp, cst.IfExp, cst.BooleanOperation)
"""Expressions whose parts do not run just once, whenever their statement does."""


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
                lead = Lead(without_comments(self.leads[place].space))
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
class Lifted:
    """Where a statement is written that is left out in its place: in front of another one, under `tests`, if any.

    `arm`: the ``if`` or ``else`` that it stands in as the file is written, and which made the tests.
    """

    before: cst.CSTNode
    tests: Sequence[cst.BaseExpression]
    arm: cst.If | cst.Else | None


@dataclass(frozen=True)
class Composed:
    """One function in place of the functions of several maps, upstream first.

    `unpacked`: of each but the last, whether it gives a tuple, which the next one takes as its arguments. `name`: of
    what the function takes, which none of them uses.
    """

    functions: Sequence[cst.Arg]
    unpacked: Sequence[bool]
    name: str


_OF_THE_CLASS = ("from_tensor_slices", "list_files")


class SourceFile:
    """One file of the user's: its tree, its chains, and what is to change in it.

    Raises:
        SyntaxError: the text is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.mark = "\ufeff" if text.startswith("\ufeff") else ""
        self._wrapper, self.spans, self.parents = _parsed(text.removeprefix(self.mark))
        self.module = self._wrapper.module
        self.nodes = (self.module, *self.parents)
        if self.mark + self.module.code != text:
            raise SyntaxError("LibCST does not give the text back as it is")
        self.chains: list[Chain] = []
        self.values: dict[cst.Arg, cst.BaseExpression | Composed] = {}
        self.added: dict[cst.Call, dict[str, cst.BaseExpression]] = {}
        self.renamed: dict[cst.Call, str] = {}
        self.lines_before: dict[cst.CSTNode, list[str]] = {}
        self.lines_after: dict[cst.CSTNode, list[str]] = {}
        self.behind: dict[cst.CSTNode, list[str]] = {}
        """Definitions to write behind one."""
        self.ahead: dict[cst.CSTNode, list[str]] = {}
        """Definitions to write in front of a statement of the module."""
        self.replaced: dict[cst.BaseExpression, cst.BaseExpression] = {}
        self.decorators: dict[cst.CSTNode, str] = {}
        """What to put above a definition and the decorators that it has."""
        self.dropped: set[cst.CSTNode] = set()
        self.lifted: dict[cst.CSTNode, Lifted] = {}
        """Statements that are dropped, and written elsewhere."""
        self.moved: set[cst.CSTNode] = set()
        """Lines of which all is dropped, and the comments above them stand elsewhere."""
        encoded = text.removeprefix(self.mark).encode()
        self._lines = [0, *(found.end() for found in _LINE_END.finditer(encoded))]
        self.names = {node.value for node in self.nodes if isinstance(node, cst.Name)}
        """All names in it, and those that edits have taken."""

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

    def free_name(self, *wanted: str) -> str:
        """Return a name that the file does not have, and note that it has it now: a wanted one, or with a number."""
        return self.free_names(*((name,) for name in wanted))[0]

    def free_names(self, *wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Return several names like `free_name`, all of which are free."""
        numbered = (tuple(f"{name}_{number}" for name in wanted[-1]) for number in itertools.count(2))
        found = next(names for names in itertools.chain(wanted, numbered) if not self.names.intersection(names))
        self.names.update(found)
        return found

    def readers(self, name: cst.Name) -> list[cst.CSTNode]:
        """Return all places that read the variable that a name stands for."""
        scope = self._wrapper.resolve(ScopeProvider)[name]
        assignments = scope[name.value] if scope is not None else ()
        return list({access.node for each in assignments for access in each.references})

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
        """Return the statements among which one stands; an ``elif`` stands alone."""
        parent = self.parents[statement]
        block = self.parents[parent] if isinstance(parent, cst.SimpleStatementLine) else parent
        if not isinstance(block, (*BLOCKS, cst.SimpleStatementSuite)):
            return [statement]
        return statements_of(block)

    def line_of(self, statement: cst.CSTNode) -> cst.CSTNode | None:
        """Return what lines can be put in front of, for a statement; None where it does not begin its line."""
        parent = self.parents[statement]
        line = parent if isinstance(parent, cst.SimpleStatementLine) else statement
        if isinstance(parent, cst.SimpleStatementLine) and parent.body[0] is not statement:
            return None
        return line if isinstance(self.parents[line], BLOCKS) else None

    def write_before(self, node: cst.CSTNode, statements: Sequence[str]) -> None:
        """Write statements in front of the one that a node is in.

        Raises:
            CannotPatchError: it does not begin a line, or not all of it runs just once.
        """
        statement, around = self.statement(node), self.around(node)
        line = self.line_of(statement)
        if line is None or any(isinstance(each, NOT_AT_ONCE) for each in around[: around.index(statement)]):
            raise CannotPatchError("there is no line for it of its own")
        self.lines_before.setdefault(line, []).extend(statements)

    def definition(self, name: str, line: int) -> cst.FunctionDef | None:
        """Return the function of that name whose definition, or whose first decorator, begins in a line."""
        found = (each for each in self.nodes if isinstance(each, cst.FunctionDef) and each.name.value == name)
        begun = ((each, {self.lines(part)[0] for part in (each, *each.decorators[:1])}) for each in found)
        return next((each for each, lines in begun if line in lines), None)

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
            behind = comment_before(before.rpar)
            if isinstance(space, cst.ParenthesizedWhitespace):
                behind = behind if before.rpar else comment_at(space.first_line)
                if any(line.comment for line in space.empty_lines):
                    above = tuple(space.empty_lines)
                    space = space.with_changes(empty_lines=())
                if behind and not before.rpar:
                    space = space.with_changes(first_line=without_comment(space.first_line))
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

    def made(self, name: str, node: cst.CSTNode) -> list[BaseAssignment]:
        """Return what makes a name something where a node stands."""
        scope = self._wrapper.resolve(ScopeProvider).get(node)  # a class's block has none
        return [] if scope is None else list(scope[name])

    def only_definition(self, name: str, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function that a name is where a node stands; None where it may be anything else."""
        nodes = [getattr(each, "node", None) for each in self.made(name, node)]
        return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], cst.FunctionDef) else None

    def is_imported(self, name: str, node: cst.CSTNode) -> bool:
        """Return whether a name is nothing but what an import makes it, where a node stands."""
        return all(isinstance(each, ImportAssignment) for each in self.made(name, node))

    def _behind(self, top: cst.BaseExpression) -> str:
        """Return the comment behind an expression on its line, where it can be moved."""
        if top.rpar:
            return comment_before(top.rpar)
        line = self.ending(top)
        return comment_at(line.trailing_whitespace) if line is not None else ""


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[MetadataWrapper, Mapping[Any, Any], Mapping[cst.CSTNode, cst.CSTNode]]:
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
    return wrapper, wrapper.resolve(ByteSpanPositionProvider), parents


def statements_of(block: cst.BaseSuite | cst.Module) -> list[cst.CSTNode]:
    """Return the statements that stand in a block, of several on a line each."""
    found: list[cst.CSTNode] = []
    for each in block.body:
        found += each.body if isinstance(each, cst.SimpleStatementLine) else [each]
    return found


def expression(text: str) -> cst.BaseExpression:
    """Return an expression's tree.

    Raises:
        CannotPatchError: it is none on one line.
    """
    try:
        return cst.parse_expression(text)
    except cst.ParserSyntaxError:
        raise CannotPatchError("an argument is laid out in a way that is not understood") from None


def called_name(call: cst.Call) -> str:
    """Return the last name of what a call calls; empty where it has none."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return name.value if isinstance(name, cst.Name) else ""


def is_unbound(call: cst.Call) -> bool:
    """Return whether a call is of a dataset's method by its class, with the dataset as first argument."""
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    name = owner.attr if isinstance(owner, cst.Attribute) else owner
    is_class = isinstance(name, cst.Name) and name.value == "Dataset"
    return is_class and called_name(call) in PARAMETERS and called_name(call) not in _OF_THE_CLASS


def new_call(text: str) -> cst.Call:
    """Return the call that a text like ``.cache()`` makes on a dataset."""
    call = expression(f"_{text}")
    assert isinstance(call, cst.Call)
    return call


def comment_at(end: cst.TrailingWhitespace) -> str:
    """Return the comment at the end of a line with the blanks before it; empty without one."""
    return f"{end.whitespace.value}{end.comment.value}" if end.comment else ""


def comment_before(rpar: Sequence[cst.RightParen]) -> str:
    """Return the comment that ends the line in front of a closing bracket."""
    space = rpar[0].whitespace_before if rpar else None
    return comment_at(space.first_line) if isinstance(space, cst.ParenthesizedWhitespace) else ""


def without_comments(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """Return the space between two parts of an expression with its line breaks and without its comments."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return space.with_changes(first_line=first, empty_lines=())


def without_comment(end: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    """Return the end of a line without its comment and the blanks before that."""
    return end.with_changes(comment=None, whitespace=cst.SimpleWhitespace("")) if end.comment else end
