"""Assignments in a row in the text of a function, each of which reads what the one before it made.

    x = cv2.imread(path)                          ds = pydicom.dcmread(path)
    if x is None:                                 x = ds.pixel_array
        continue
    x = cv2.resize(x, (64, 64))

Those on the left are to one variable, those on the right to several.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

_LEAVING = (ast.Break, ast.Continue, ast.Raise, ast.Return)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that a node holds."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(node, name, None), list):
            yield block


def assigns(statement: ast.AST) -> TypeGuard[ast.Assign]:
    """Return whether a statement assigns to one variable and to nothing else."""
    return bool(variable(statement))


def variable(statement: ast.AST) -> str:
    """Return the one variable that a statement assigns to; empty of any other statement."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def reads(node: ast.AST, name: str) -> bool:
    """Return whether a variable is named in an expression."""
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


def in_a_row(node: ast.AST, line: int, function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield assignments in a row to one variable of which one stands in a line, and what leaves without it between.

    The first makes the variable of something else, so that what they make is known of it. There are two at least, or
    one that takes a part of what a call gives, as ``x = np.load(path)["x"]``. It leaves in one place at most, and
    nothing behind it may ask again whether there is none: it could not be told which assignment gave none.

    Args:
        node: a statement of the function, or the function.
        line: the number of a line.
        function: that it is in.
    """
    for block in blocks(node):
        for first, statement in enumerate(block):
            name = variable(statement)
            if not assigns(statement) or reads(statement.value, name):
                continue
            if _is_part_of_call(statement.value) and _stands_in([statement], line):
                yield [statement]
            leaves = False
            for last in range(first + 1, len(block)):
                then = block[last]
                if not leaves and leaves_without(then, name):
                    leaves = True
                    continue
                if not assigns(then) or variable(then) != name or not reads(then.value, name):
                    break
                run = block[first : last + 1]
                if _stands_in(run, line) and not (leaves and _may_be_none_behind(run, name, function)):
                    yield run


def through_others(node: ast.AST, line: int, function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield assignments in a row to several variables; nothing but the next one reads what each makes.

    The first is the nearest one up to the line that makes its variable anew, by a call: it may give an object that
    reads a file when it is asked for a part, and is nothing to keep.

    Args:
        node: a statement of the function, or the function.
        line: the number of a line.
        function: that it is in.
    """
    for block in blocks(node):
        first = next((n for n, each in enumerate(block) if assigns(each) and _stands_in([each], line)), -1)
        while first >= 0 and not _makes_anew(block[first]):
            first = first - 1 if first and _hands_on(block[first - 1 : first + 1], function) else -1
        last = first + 1
        while 0 <= first < last < len(block) and _hands_on(block[first : last + 1], function):
            last += 1
            if len(set(map(variable, block[first:last]))) > 1:
                yield block[first:last]


def _hands_on(run: Sequence[ast.stmt], function: ast.AST) -> bool:
    """Return whether the last of some assignments takes what the one before it made, which nothing else reads."""
    *_, one, then = run
    if not assigns(one) or not assigns(then) or not reads(then.value, variable(one)):
        return False
    inside = {id(each) for statement in run for each in ast.walk(statement)}
    return variable(one) == variable(then) or not any(
        isinstance(each, ast.Name) and each.id == variable(one) and not isinstance(each.ctx, ast.Store)
        for each in ast.walk(function)
        if id(each) not in inside
    )


def _is_part_of_call(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute | ast.Subscript) and isinstance(value.value, ast.Call)


def _makes_anew(statement: ast.stmt) -> bool:
    calls = any(isinstance(each, ast.Call) for each in ast.walk(statement))
    return calls and assigns(statement) and not reads(statement.value, variable(statement))


def _stands_in(run: Sequence[ast.stmt], line: int) -> bool:
    """Return whether one of some statements stands in a line."""
    return any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in run)
