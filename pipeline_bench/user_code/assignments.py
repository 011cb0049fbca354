"""Assignments in a row in the text of a function, each of which reads what the one before it made.

    x = cv2.imread(path)                          ds = pydicom.dcmread(path)
    if x is None:                                 name = names[number]
        continue                                  x = ds.pixel_array
    if x.ndim == 2:                               pictures[number] = x[::2]
        x = np.repeat(x[..., None], 3, 2)

Those on the left are to one variable, those on the right to several; what assigns to others may stand between.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TypeGuard

_LEAVING = (ast.Break, ast.Continue, ast.Raise, ast.Return)
_SUPPRESSES = re.compile("suppress|ignor", re.IGNORECASE)
"""In the name of what goes on behind what failed within it."""
_HANDS_OVER = (ast.Yield, ast.YieldFrom, ast.Await)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that a node holds."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(node, name, None), list):
            yield block


def assigns(statement: ast.AST) -> TypeGuard[ast.Assign]:
    """Return whether a statement only assigns to one variable, whatever the values are."""
    return isinstance(statement, ast.Assign) and bool(variable(statement))


def variable(statement: ast.AST) -> str:
    """Return the one variable that a statement assigns to, as does each branch of an ``if``; else nothing."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case ast.If(body=[then], orelse=[] | [_]):
            name = variable(then)
            return name if all(variable(each) == name for each in statement.orelse) else ""
    return ""


def value(statement: ast.AST) -> ast.expr:
    """Return what a statement assigns; of an ``if``, ``a if test else b``, or the variable where it may stay."""
    if isinstance(statement, ast.If):
        other = value(statement.orelse[0]) if statement.orelse else ast.Name(variable(statement), ast.Load())
        return ast.IfExp(statement.test, value(statement.body[0]), other)
    assert isinstance(statement, ast.Assign)
    return statement.value


def reads(node: ast.AST, name: str) -> bool:
    """Return whether a variable is named in a node."""
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def leaves_without(statement: ast.AST, name: str) -> TypeGuard[ast.If]:
    """Return whether a statement is ``if x is None: continue`` of a variable, or leaves so by another statement."""
    match statement:
        case ast.If(test=ast.Compare(left=ast.Name(id=tested), ops=[ast.Is()], comparators=[none]), body=[then]):
            is_none = isinstance(none, ast.Constant) and none.value is None
            return tested == name and is_none and not statement.orelse and isinstance(then, _LEAVING)
    return False


def _may_be_none_behind(run: Sequence[ast.stmt], name: str, function: ast.AST) -> bool:
    """Return whether a function asks behind some statements whether a variable is none, or hands it to who may ask."""
    end = run[-1].end_lineno or run[-1].lineno
    for each in ast.walk(function):
        match each:
            case ast.expr() | ast.stmt() if each.lineno <= end:
                continue
            case ast.Compare(left=ast.Name(id=asked), comparators=[ast.Constant(value=None)]) if asked == name:
                return True
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=asked)) if asked == name:
                return True
            case ast.If(test=ast.Name(id=asked)) | ast.IfExp(test=ast.Name(id=asked)) if asked == name:
                return True
            case ast.Return(value=ast.Name(id=given)) | ast.Yield(value=ast.Name(id=given)) if given == name:
                return True
    return False


def members(run: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a run, without what stands between and names no variable of it."""
    name, found = variable(run[0]), [run[0]]
    for each in run[1:]:
        if reads(each, name):
            found.append(each)
            name = variable(each) or name
    return found


def in_a_row(node: ast.AST, line: int, function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield assignments in a row to one variable of which one stands in a line, with what stands between.

    The first makes the variable of something else, so that what they make is known of it. There are two at least, or
    one that takes a part of what a call gives, as ``x = np.load(path)["x"]``.

    Args:
        node: a statement of the function, or the function.
        line: the number of a line.
        function: that it is in.
    """
    for block in blocks(node):
        for first, statement in enumerate(block):
            if not assigns(statement) or reads(statement.value, variable(statement)):
                continue
            if _is_part_of_call(statement.value) and _stands_in([statement], line):
                yield [statement]
            for run in _runs(block[first:], function):
                if _stands_in(members(run), line) and not _are_several(run):
                    yield run


def through_others(node: ast.AST, line: int, function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield assignments in a row to several variables; nothing but the next one reads what each makes.

    The first is one that `looks_up` rows, or else the last one that makes its variable anew, by a call, and goes on to
    the line: it may give an object that reads a file when it is asked for a part, and is nothing to keep.

    Args:
        node: a statement of the function, or the function.
        line: the number of a line.
        function: that it is in.
    """
    for block in blocks(node):
        found: list[list[ast.stmt]] = []
        for first, statement in enumerate(block):
            is_lookup = assigns(statement) and looks_up(statement) is not None
            if is_lookup or _makes_anew(statement):
                runs = [each for each in _runs(block[first:], function) if _are_several(each)]
                found = [each for each in runs if _stands_in(members(each), line)] or found
            if is_lookup and found and found[0][0] is statement:
                break
        yield from found


def looks_up(statement: ast.Assign) -> ast.Attribute | None:
    """Return the table whose rows a statement picks by what stands in it, as ``self.table[self.table["id"] == name]``.

    That gives a table again, which cannot name a result.
    """
    match statement.value:
        case ast.Subscript(value=ast.Attribute(value=ast.Attribute() as table, attr="loc"), slice=rows):
            pass
        case ast.Subscript(value=ast.Attribute() as table, slice=rows):
            pass
        case _:
            return None
    return table if any(ast.dump(each) == ast.dump(table) for each in ast.walk(rows)) else None


def _runs(block: Sequence[ast.stmt], function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the assignments in a row that begin with the first of some statements, with what stands between.

    They may leave in one place, if all are to one variable and nothing behind asks again whether there is none: it
    could not be told which assignment gave none. The last one may be to a part of something else.
    """
    name, passed, leaves = variable(block[0]), list[ast.stmt](), False
    for end, then in enumerate(block[1:], 2):
        run, made = list(block[:end]), variable(then)
        if not reads(then, name):
            if not _is_of_others(then) or _is_tried(block[0], function):
                return
            passed.append(then)
        elif leaves_without(then, name) and not leaves and not _are_several(run):
            leaves = True
        elif (
            not _makes_of(then, name, passed)
            or (made != name and leaves)
            or _is_seen_between(name, made, run, function)
        ):
            return
        else:
            if not (leaves and _may_be_none_behind(run, name, function)):
                yield run
            if not made:
                return
            name = made


def _makes_of(then: ast.stmt, name: str, passed: Sequence[ast.stmt]) -> bool:
    """Return whether a statement assigns what it makes of a variable, and would make that in front of some others."""
    made = variable(then)
    match then:
        case ast.Assign(targets=[ast.Subscript() as part]) if not reads(part, name):
            taken = then.value
        case _ if made:
            taken = value(then)
        case _:
            return False
    set_by_others = {each for statement in passed for each in _set_by(statement)}
    return (
        reads(taken, name)
        and (made == name or not reads(taken, made))
        and not isinstance(taken, ast.Name)
        and not any(reads(taken, each) for each in set_by_others)
        and not any(reads(statement, made) for statement in passed)
    )


def _is_of_others(statement: ast.stmt) -> bool:
    """Return whether a statement only sets variables, or parts of something, and lets nothing else run meanwhile."""
    if any(isinstance(each, _HANDS_OVER) for each in ast.walk(statement)):
        return False
    if isinstance(statement, ast.If):
        return all(map(_is_of_others, (*statement.body, *statement.orelse)))
    targets: Sequence[ast.AST] = statement.targets if isinstance(statement, ast.Assign) else [statement]
    parts = [part for each in targets for part in getattr(each, "elts", [each])]
    return all(isinstance(each, ast.Name | ast.Subscript) for each in parts)


def _set_by(statement: ast.stmt) -> set[str]:
    """Return the names in what a statement assigns to, and those that its expressions set."""
    inside = list(ast.walk(statement))
    targets = [target for each in inside if isinstance(each, ast.Assign) for target in each.targets]
    named = [part for target in targets for part in ast.walk(target)]
    named += [each.target for each in inside if isinstance(each, ast.NamedExpr)]
    return {each.id for each in named if isinstance(each, ast.Name)}


def _is_tried(statement: ast.stmt, function: ast.AST) -> bool:
    """Return whether a ``try`` is around a statement, behind which it shows what ran before another one failed."""
    return any(each is statement for outer in _tries(function) for each in ast.walk(outer))


def _tries(function: ast.AST) -> Iterator[ast.Try | ast.TryStar | ast.With | ast.AsyncWith]:
    """Yield what may go on behind what failed within it: each ``try``, and as ``with contextlib.suppress(…)``."""
    for each in ast.walk(function):
        match each:
            case ast.Try() | ast.TryStar():
                yield each
            case ast.With() | ast.AsyncWith() if suppresses(each):
                yield each


def suppresses(statement: ast.With | ast.AsyncWith) -> bool:
    """Return whether a ``with`` goes on behind what failed within it, by the names of what it uses."""
    calls = (each.context_expr for each in statement.items if isinstance(each.context_expr, ast.Call))
    return any(_SUPPRESSES.search(ast.unparse(each.func)) for each in calls)


def _is_seen_between(name: str, made: str, run: Sequence[ast.stmt], function: ast.AST) -> bool:
    """Return whether a function may read what a variable is behind a run, before the next statement assigns `made`.

    It may where that is the same variable, and a ``try`` goes on with it where that statement fails.
    """
    if made != name:
        return _read_beside(name, run, function)
    found = [each for each in _tries(function) if any(part is run[0] for line in each.body for part in ast.walk(line))]
    around = [each for each in found if isinstance(each, ast.Try | ast.TryStar)]
    handlers = [handler.body for each in around for handler in each.handlers]
    if any(not isinstance(body[-1], _LEAVING) and name not in map(variable, body) for body in handlers):
        return True
    if len(found) > len(around) and _read_beside(name, run, function):
        return True
    behind = [*(line for body in handlers for line in body), *(line for each in around for line in each.finalbody)]
    names = (each for line in behind for each in ast.walk(line) if isinstance(each, ast.Name))
    return any(each.id == name and isinstance(each.ctx, ast.Load) for each in names)


def _read_beside(name: str, run: Sequence[ast.stmt], function: ast.AST) -> bool:
    """Return whether a function reads a variable outside of some statements, as ``x *= 2`` does."""
    inside = {id(each) for statement in run for each in ast.walk(statement)}
    nodes = [each for each in ast.walk(function) if id(each) not in inside]
    augmented = {id(each.target) for each in nodes if isinstance(each, ast.AugAssign)}
    return any(
        isinstance(each, ast.Name)
        and each.id == name
        and (not isinstance(each.ctx, ast.Store) or id(each) in augmented)
        for each in nodes
    )


def _are_several(run: Sequence[ast.stmt]) -> bool:
    """Return whether assignments in a row are to several variables."""
    return len({variable(each) for each in members(run)} - {""}) > 1


def _is_part_of_call(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute | ast.Subscript) and isinstance(value.value, ast.Call)


def _makes_anew(statement: ast.stmt) -> bool:
    calls = any(isinstance(each, ast.Call) for each in ast.walk(statement))
    return calls and assigns(statement) and not reads(statement.value, variable(statement))


def _stands_in(run: Sequence[ast.stmt], line: int) -> bool:
    """Return whether one of some statements stands in a line."""
    return any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in run)
