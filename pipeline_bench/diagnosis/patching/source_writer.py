"""Writes a user's source file with the changes that were noted on its tree (`source_file`)."""

from __future__ import annotations

import difflib
import functools
import re
import warnings
from collections.abc import Sequence
from typing import Any

import libcst as cst

from pipeline_bench.diagnosis.patching.source_file import (
    BLOCKS,
    Chain,
    Composed,
    SourceFile,
    comment_at,
    statements_of,
    without_comment,
    without_comments,
)
from pipeline_bench.model.calls import CannotPatchError

_NO_COMMA = cst.MaybeSentinel.DEFAULT
_QUOTED = re.compile(r'["\\\x00-\x1f\x7f]')
_WITH_ITS_END = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as git has them: a form feed in it ends none."""


def write(file: SourceFile) -> str:
    """Return the whole text with every change.

    Raises:
        CannotPatchError: a comment cannot stand where its call has moved to, or a new line is no Python.
    """
    try:
        changed = file.module.visit(_Writer(file))
    except cst.ParserSyntaxError:
        raise CannotPatchError("an argument is laid out in a way that is not understood") from None
    assert isinstance(changed, cst.Module)
    return file.mark + changed.code


class _Writer(cst.CSTTransformer):
    """Makes the changed tree."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.chains = {chain.top: chain for chain in file.chains}
        self.line_ends: dict[cst.CSTNode, str] = {}
        self.orphans: list[cst.EmptyLine] = []
        """Comments above a statement that is left out; they come above the next one."""
        self.lifted: dict[cst.CSTNode | None, list[cst.CSTNode]] = {}
        """Statements by the line in front of which they are written."""
        for statement, place in file.lifted.items():
            self.lifted.setdefault(file.line_of(place.before), []).append(statement)
        self.left = {place.arm for place in file.lifted.values() if place.arm is not None}
        """The arms that they stood in."""
        self.adopted: dict[cst.CSTNode, list[cst.EmptyLine]] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.orphans and isinstance(node, cst.BaseStatement) and hasattr(node, "leading_lines"):
            self.adopted[node], self.orphans = self.orphans, []
        return node not in self.chains and node not in self.file.values

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        made = self._changed(original_node, updated_node)
        lifted = [self._lifted(each) for each in self.lifted.get(original_node, ())]
        if not lifted:
            return made
        rest = [] if made is cst.RemovalSentinel.REMOVE else made if isinstance(made, cst.FlattenSentinel) else [made]
        return cst.FlattenSentinel([*lifted, *rest])

    def _changed(self, original: Any, updated: Any) -> Any:
        file = self.file
        if original in self.chains:
            return self._chain(self.chains[original])
        if original in file.dropped:
            return cst.RemoveFromParent()
        if isinstance(original, cst.BaseExpression):
            return self._expression(original, updated)
        if isinstance(original, cst.Arg) and original in file.values:
            return updated.with_changes(value=self._value(original))
        if isinstance(original, cst.BaseStatement) and hasattr(original, "leading_lines"):
            return self._statement(original, updated)
        if isinstance(original, BLOCKS) and self.orphans:
            updated = updated.with_changes(footer=[*self.orphans, *updated.footer])
            self.orphans = []
        return updated

    def _expression(self, original: Any, updated: Any) -> Any:
        if original in self.file.replaced:
            return self.file.replaced[original].with_changes(lpar=original.lpar, rpar=original.rpar)
        return self._call(original, updated) if isinstance(original, cst.Call) else updated

    def _statement(self, original: Any, updated: Any) -> Any:
        if original in self.file.moved:
            left = [each for each in updated.leading_lines if each.comment is None]
            updated = updated.with_changes(leading_lines=left)
        if original in self.adopted:
            updated = updated.with_changes(leading_lines=[*self.adopted[original], *updated.leading_lines])
        updated = self._rest(original, updated)
        if updated is None:
            return cst.RemoveFromParent()
        if original in self.line_ends:
            end = _line_end(self.line_ends[original], without_comment(original.trailing_whitespace))
            updated = updated.with_changes(trailing_whitespace=end)
        if original in self.file.decorators:
            new = cst.Decorator(cst.parse_expression(self.file.decorators[original]))
            updated = updated.with_changes(decorators=[new, *updated.decorators])
        if original in self.file.behind:
            return cst.FlattenSentinel([updated, *_definitions(original, self.file.behind[original])])
        if original in self.file.ahead:
            return cst.FlattenSentinel([*_definitions(original, self.file.ahead[original]), updated])
        before, after = (
            [cst.parse_statement(text) for text in lines.get(original, ())]
            for lines in (self.file.lines_before, self.file.lines_after)
        )
        if before:
            before[0] = before[0].with_changes(leading_lines=updated.leading_lines)
            updated = updated.with_changes(leading_lines=())
        return cst.FlattenSentinel([*before, updated, *after]) if before or after else updated

    def _rest(self, original: Any, updated: Any) -> Any:
        """Return what is left of a statement; None where nothing is."""
        if isinstance(original, cst.If) and self.left & {original, original.orelse}:
            rest = _without_empty_arms(updated)
            adopted = self.adopted.get(original, ()) if rest is None else ()
            self.orphans += [*adopted, *_comments_in_empty_arms(updated)]
            return rest
        if not isinstance(original, cst.SimpleStatementLine) or len(original.body) == len(updated.body):
            return updated
        if not updated.body:
            is_lifted = original.body[0] in self.file.lifted  # with its own comments
            self.orphans = list(self.adopted.get(original, ()) if is_lifted else updated.leading_lines)
            return None
        last = updated.body[-1].with_changes(semicolon=original.body[-1].semicolon)
        return updated.with_changes(body=[*updated.body[:-1], last])

    def _lifted(self, statement: Any) -> cst.SimpleStatementLine | cst.If:
        """Return a statement that is written elsewhere, with its comments."""
        value, line, place = statement.value.visit(self), self.file.parents[statement], self.file.lifted[statement]
        end: Any = line.trailing_whitespace  # type: ignore[attr-defined]
        end = _line_end(self.line_ends[line], without_comment(end)) if line in self.line_ends else end
        above, small = getattr(line, "leading_lines", ()), statement.with_changes(value=value)
        made, arm = cst.SimpleStatementLine([small], above, end), place.arm
        if arm is None:
            return made
        first, *others = place.tests if len(place.tests) == 1 else map(_bracketed, place.tests)
        test = functools.reduce(lambda left, right: cst.BooleanOperation(left, cst.And(), right), others, first)
        is_empty = self.file.dropped.issuperset(statements_of(arm.body))
        is_gone = is_empty and getattr(arm, "orelse", None) is None
        header = getattr(arm.body, "header", None) if is_empty else None
        body = cst.IndentedBlock([made], header or cst.TrailingWhitespace())
        return cst.If(test, body, leading_lines=arm.leading_lines if is_gone else ())

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
            value = _composed([each.value.visit(self) for each in value.functions], value.unpacked, value.name)
        if isinstance(arg.value, cst.Tuple):  # whose brackets are its own
            return value
        return value.with_changes(lpar=arg.value.lpar, rpar=arg.value.rpar)


def _definitions(beside: Any, texts: Sequence[str]) -> list[cst.BaseCompoundStatement]:
    """Return definitions as statements, with as many empty lines in front as a statement has, one at least."""
    empty = [line for line in beside.leading_lines if line.comment is None] or [cst.EmptyLine(indent=False)]
    made = [cst.parse_statement(text) for text in texts]
    return [each.with_changes(leading_lines=empty) for each in made if isinstance(each, cst.BaseCompoundStatement)]


def _closed(rpar: Sequence[cst.RightParen], behind: str) -> tuple[Sequence[cst.RightParen], str]:
    """Return brackets with that comment in front of them, and the comment where it cannot stand there."""
    space = rpar[0].whitespace_before if rpar else None
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return rpar, behind
    space = space.with_changes(first_line=_line_end(behind, without_comment(space.first_line)))
    return [rpar[0].with_changes(whitespace_before=space), *rpar[1:]], ""


def _line_end(comment: str, end: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    """Return the end of a line with a comment in front of what it has."""
    if not comment:
        return end
    text = comment + comment_at(end)
    begun = text.index("#")
    return end.with_changes(whitespace=cst.SimpleWhitespace(text[:begun]), comment=cst.Comment(text[begun:]))


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
            space = without_comments(before)
        args[-1] = last.with_changes(
            comma=cst.Comma(whitespace_after=space), whitespace_after_arg=cst.SimpleWhitespace("")
        )
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    comma = cst.Comma(whitespace_after=space)
    new = [cst.Arg(value, keyword=cst.Name(name), equal=equal, comma=comma) for name, value in added.items()]
    end = {"comma": last.comma, "whitespace_after_arg": last.whitespace_after_arg} if args else {"comma": _NO_COMMA}
    return [*args, *new[:-1], new[-1].with_changes(**end)]


def _composed(functions: Sequence[Any], unpacked: Sequence[bool], name: str) -> cst.BaseExpression:
    """Return one function of several: ``lambda *sample: g(*f(*sample))``."""
    inner: cst.BaseExpression = cst.Name(name)
    star = True
    for function, next_star in zip(functions, [*unpacked, False], strict=True):
        brackets = not isinstance(function, cst.Name | cst.Attribute | cst.Call)
        lpar, rpar = ([cst.LeftParen()], [cst.RightParen()]) if brackets else ((), ())
        called = function.with_changes(lpar=lpar, rpar=rpar)
        inner, star = cst.Call(called, [cst.Arg(inner, star="*" if star else "")]), next_star
    return cst.parse_expression(f"lambda *{name}: _").with_changes(body=inner)


def _comments_in_empty_arms(branch: cst.If) -> list[cst.EmptyLine]:
    """Return the comments in those arms that `_without_empty_arms` leaves out."""
    arms = [each for each in (branch, branch.orelse) if each is not None and not each.body.body]
    gone = [each for each in arms if not isinstance(getattr(each, "orelse", None), cst.If)]
    return [line for each in gone for line in getattr(each.body, "footer", ()) if line.comment is not None]


def _without_empty_arms(branch: cst.If) -> cst.If | None:
    """Return an ``if`` without an arm that has no statement; None where nothing is left of it."""
    further = branch.orelse
    if branch.body.body:
        is_empty = isinstance(further, cst.Else) and not further.body.body
        return branch.with_changes(orelse=None) if is_empty else branch
    if isinstance(further, cst.Else):
        above, space = [*branch.leading_lines, *further.leading_lines], cst.SimpleWhitespace(" ")
        spaced = branch.with_changes(whitespace_before_test=space, leading_lines=above)
        return spaced.with_changes(test=negated(branch.test), body=further.body, orelse=None)
    return branch if further is not None else None


def negated(test: cst.BaseExpression) -> cst.BaseExpression:
    """Return the condition that holds where another one does not."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return test.expression
    return cst.UnaryOperation(cst.Not(), _bracketed(test))


def _bracketed(test: cst.BaseExpression) -> cst.BaseExpression:
    """Return a condition with brackets, where others may need them around it."""
    if test.lpar or not isinstance(test, cst.BooleanOperation | cst.IfExp | cst.Lambda | cst.NamedExpr):
        return test
    return test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def is_program(text: str) -> bool:
    """Return whether a text is valid Python, arguments that are given twice included; nothing of it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text.removeprefix("\ufeff"), "<changed>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def diff(name: str, old: str, new: str) -> str:
    """Return the unified diff of a file, as git writes it; empty where nothing changed."""
    before, after = (_WITH_ITS_END.findall(text) for text in (old, new))
    made = difflib.unified_diff(before, after, _header(f"a/{name}"), _header(f"b/{name}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made)


def _header(name: str) -> str:
    """Return a file's name as git writes it: in quotes where it needs them, and its end marked where it has blanks."""
    if _QUOTED.search(name):
        octal = _QUOTED.sub(lambda found: rf"\{ord(found[0]):03o}", name)
        return f'"{octal}"'
    return f"{name}\t" if " " in name else name
