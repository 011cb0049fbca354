"""Changes of more than one call: calls that move between statements, whole batches in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import libcst as cst

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.source_file import Chain, Composed, Link, SourceFile, called_name, expression
from pipeline_bench.model.calls import CannotPatchError
from pipeline_bench.model.element import Element

_PARSE_ONE, _PARSE_BATCH = "parse_single_example", "parse_example"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TAKE_FUNCTIONS = ("filter", "map", "flat_map", "interleave")
_ONLY_SHOW = ("print", "summary")
"""Calls that change nothing which another function may use."""


def drop_if_idle(file: SourceFile, chain: Chain) -> None:
    """Leave a statement out that says no more than ``ds = ds``, once its chain has lost its last call."""
    statement = file.statement(chain.top)
    if chain.links or not isinstance(chain.base, cst.Name):
        return
    either = _sets_or_keeps(statement, chain.base.value, chain.top)
    has_effect = either and (stored_and_used(file, either.test)[0] or next(_calls(file, either.test), None))
    if _sets(statement, chain.base.value, chain.top) or (either and not has_effect):
        file.dropped.add(statement)


def move_between(file: SourceFile, steps: Sequence[Chain], link: Link, before: Link) -> None:
    """Move a call to an earlier statement of the same dataset: ``ds = ds.map(f)``, ``ds = ds.batch(32)``.

    Args:
        file: that both are in.
        steps: the chains from the one with `before` to the one with `link`.
        link: what moves.
        before: what it moves to right before of.

    Raises:
        CannotPatchError: the two do not stand in statements that follow one another, a dataset between them has other
            uses, or the call needs what is set between.
    """
    target, chain = steps[0], steps[-1]
    if chain.links[0] is not link:
        raise CannotPatchError("the two calls are in different places")
    others = check_handed_on(file, before.call, steps)
    stored = {name for each in others for name in stored_and_used(file, each)[0]}
    needed = stored & {name for arg in link.call.args for name in stored_and_used(file, arg.value)[1]}
    if called_name(link.call) in _TAKE_FUNCTIONS:  # which may use any of it
        needed = stored
    if needed:
        raise CannotPatchError(f"it needs {min(needed)}, which is set between the two calls")
    check_calls(file, link, others)
    if target.links[0] is before and not others and all(len(each.links) == 1 for each in steps):
        moved = [link, *(each.links[0] for each in steps[:-1])]
        for place, call in zip(steps, moved, strict=True):
            place.links[0] = call
        return
    chain.remove(link)
    target.insert(target.links.index(before), link)
    drop_if_idle(file, chain)


def is_in_branch(file: SourceFile, earlier: Chain, later: Chain) -> bool:
    """Return whether a condition decides on a chain, in front of a later chain's statement and in its block.

    It is an ``if``, or that of ``ds = ds.shuffle(8) if training else ds``.
    """
    statement, last = file.statement(earlier.top), file.statement(later.top)
    block, base = file.block(last), earlier.base
    if statement in block:
        either = _sets_or_keeps(statement, base.value, earlier.top) if isinstance(base, cst.Name) else None
        return either is not None and statement is not last
    return any(each in block for each in file.around(statement))


def move_across(file: SourceFile, place: Chain, steps: Sequence[Chain], link: Link, before: Link) -> None:
    """Move a call to the end of an earlier statement of the same block, across calls that a branch in between makes.

    As in ``ds = made()``, ``if shuffle: ds = ds.shuffle(8)``, ``ds = ds.map(f)``: the map comes first in both cases.
    So it does with ``ds = ds.shuffle(8) if shuffle else ds``.

    Args:
        file: that all are in.
        place: the chain that it moves to the end of.
        steps: the chains from the one with `before`, which is in the branch, to the one with `link`.
        link: what moves.
        before: the first call that it moves in front of.

    Raises:
        CannotPatchError: the dataset has other uses in between, or the call needs what is set there.
    """
    chain = steps[-1]
    if chain.links[0] is not link or steps[0].links[0] is not before:
        raise CannotPatchError("the two calls are in different places")
    between = check_across(file, place.top, steps)
    stored = {each for statement in between for each in stored_and_used(file, statement)[0]}
    stored -= {chain.base.value} if isinstance(chain.base, cst.Name) else set()
    if called_name(link.call) not in _TAKE_FUNCTIONS:  # which may use any of it
        stored &= {each for arg in link.call.args for each in stored_and_used(file, arg.value)[1]}
    if stored:
        raise CannotPatchError(f"it needs {min(stored)}, which is set between the two calls")
    check_calls(file, link, between)
    chain.remove(link)
    place.insert(len(place.links), link)
    drop_if_idle(file, chain)


def check_read_once(file: SourceFile, first: cst.Call, chains: Sequence[Chain]) -> list[cst.CSTNode]:
    """Check that chains alone read each dataset from a call to the last one; a condition may decide on those between.

    Args:
        file: that they are in.
        first: the call that makes the first dataset; the first chain may hold it.
        chains: upstream first.

    Returns:
        The statements between the first of them and the last; where a condition decides on one, also their own.

    Raises:
        CannotPatchError: a dataset has another use, to which it must stay what it is.
    """
    if not any(is_in_branch(file, each, chains[-1]) for each in chains[:-1]):
        return check_handed_on(file, first, chains)
    if chains[0].base is first or any(link.call is first for link in chains[0].links):
        return check_across(file, chains[0].top, chains[1:])
    return check_across(file, first, chains)


def check_across(file: SourceFile, made: cst.CSTNode, steps: Sequence[Chain]) -> list[cst.CSTNode]:
    """Check that a dataset goes through some chains, each under an ``if`` or under none, and is read by nothing else.

    Args:
        file: that all are in.
        made: what sets the dataset's variable first, in the block of the last chain.
        steps: the chains that read the variable behind that, upstream first; all but the last set it again.

    Returns:
        The statements between the first of them and the last.

    Raises:
        CannotPatchError: the dataset has other uses in between.
    """
    chain, crossed = steps[-1], steps[:-1]
    first, last = file.statement(made), file.statement(chain.top)
    block, name = file.block(last), chain.base
    if first not in block or not isinstance(name, cst.Name) or not _sets(first, name.value, made):
        raise CannotPatchError("the two calls are in different places")
    between = [each for each in block[block.index(first) + 1 : block.index(last)] if each not in file.dropped]
    ends = 2 if _sets(last, name.value, chain.top) else 1 if isinstance(last, cst.Return) else 0
    kept = [_sets_or_keeps(file.statement(each.top), name.value, each.top) for each in crossed]
    in_turn = all(
        isinstance(each.base, cst.Name)
        and each.base.value == name.value
        and (either or _sets(file.statement(each.top), name.value, each.top))
        and _is_in_ifs(file, file.statement(each.top), between)
        for each, either in zip(crossed, kept, strict=True)
    )
    mentioned = sum(_mentions(file, each, name.value) for each in between)
    alone = mentioned == sum(3 if each else 2 for each in kept) and _mentions(file, last, name.value) == ends
    elsewhere = any(_called_later(file, each) is not _called_later(file, name) for each in file.readers(name))
    if not in_turn or not alone or elsewhere:
        raise CannotPatchError(f"{name.value} has other uses between the two calls, or in another branch")
    return between


def check_calls(file: SourceFile, link: Link, between: Sequence[cst.CSTNode]) -> None:
    """Check that no statement that a call moves above calls anything that may change what the call uses.

    Raises:
        CannotPatchError: one does, as ``vectorize.adapt(texts)`` in front of ``ds.map(vectorize)``.
    """
    uses = called_name(link.call) in _TAKE_FUNCTIONS or any(_calls(file, arg.value) for arg in link.call.args)
    if uses and (found := next((call for each in between for call in _calls(file, each)), None)) is not None:
        raise CannotPatchError(f"{file.code(found.func)} is called between the two calls")


def _calls(file: SourceFile, node: cst.CSTNode) -> Iterator[cst.Call]:
    """Yield the calls in a node that are none of a dataset's, nor an argument of one, and do more than show something.

    What a definition in it calls is called later.
    """
    known = {link.call for chain in file.chains for link in chain.links}
    for each in file.nodes:
        if isinstance(each, cst.Call) and called_name(each) not in _ONLY_SHOW:
            around = file.around(each)
            inside = around[: around.index(node) + 1] if node in around else []
            if inside and not any(one in known or isinstance(one, cst.FunctionDef | cst.Lambda) for one in inside):
                yield each


def _mentions(file: SourceFile, statement: cst.CSTNode, variable: str) -> int:
    """Return how often a statement sets or reads a variable."""
    tree = ast.parse(_bare(file, statement))
    return sum(isinstance(each, ast.Name) and each.id == variable for each in ast.walk(tree))


def _is_in_ifs(file: SourceFile, statement: cst.CSTNode, block: Sequence[cst.CSTNode]) -> bool:
    """Return whether a statement of a block runs once at the most, by an ``if`` or none."""
    around = file.around(statement)
    outermost = next((index for index, each in enumerate(around) if each in block), None)
    kinds = (cst.If, cst.Else, cst.IndentedBlock, cst.SimpleStatementLine, cst.SimpleStatementSuite)
    return outermost is not None and all(isinstance(each, kinds) for each in around[1 : outermost + 1])


def check_handed_on(file: SourceFile, first: cst.Call, chains: Sequence[Chain]) -> list[cst.CSTNode]:
    """Check that each dataset from a call to the last chain is read by the next chain, and by nothing else.

    Args:
        file: that they are in.
        first: the call; the first chain may hold it.
        chains: upstream first.

    Returns:
        The other statements between the first of them and the last.

    Raises:
        CannotPatchError: they are not in one block, or a dataset has another use, to which it must stay what it is.
    """
    later = [chain for chain in chains if not (chain.base is first or any(link.call is first for link in chain.links))]
    made = [first if len(later) == len(chains) else chains[0].top, *(chain.top for chain in later)]
    own = dict.fromkeys(map(file.statement, made))
    for value, chain in zip(made, later, strict=False):
        statement = file.statement(value)
        if not isinstance(chain.base, cst.Name) or not _sets(statement, chain.base.value, value):
            raise CannotPatchError("the two calls are in different places")
        _check_readers(file, made[0], chain.base, {file.start(each.base) for each in later})
    *before, last = own
    block = file.block(last)
    if any(each not in block for each in own):
        raise CannotPatchError("the two calls stand in different blocks, such as one in an if")
    others = [each for each in block[block.index(next(iter(own))) : block.index(last)] if each not in before]
    variables = {chain.base.value for chain in later if isinstance(chain.base, cst.Name)}
    if set_between := variables & {name for each in others for name in stored_and_used(file, each)[0]}:
        raise CannotPatchError(f"{min(set_between)} is set between the two calls")
    return others


def _sets(statement: cst.CSTNode, variable: str, value: cst.CSTNode | None = None) -> bool:
    """Return whether a statement is ``variable = value``."""
    made = _assigned(statement, variable)
    return made is not None and value in (None, made)


def _sets_or_keeps(statement: cst.CSTNode, variable: str, value: cst.CSTNode) -> cst.IfExp | None:
    """Return the ``value if … else variable``, or the same with its sides swapped, that a statement sets a variable to.

    None of any other statement.
    """
    made = _assigned(statement, variable)
    if not isinstance(made, cst.IfExp) or value not in (made.body, made.orelse):
        return None
    other = made.orelse if made.body is value else made.body
    return made if isinstance(other, cst.Name) and other.value == variable else None


def _assigned(statement: cst.CSTNode, variable: str) -> cst.BaseExpression | None:
    """Return what a statement sets a variable to, and nothing else to; None of any other statement."""
    if isinstance(statement, cst.Assign):
        targets = [each.target for each in statement.targets]
    elif isinstance(statement, cst.AnnAssign):
        targets = [statement.target]
    else:
        return None
    names = [each.value for each in targets if isinstance(each, cst.Name)]
    return statement.value if names == [variable] and len(targets) == 1 else None


def _called_later(file: SourceFile, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost function that a node is in, which reads a variable when it is called."""
    return next((each for each in file.around(node) if isinstance(each, cst.FunctionDef | cst.Lambda)), None)


def _check_readers(file: SourceFile, first: cst.CSTNode, base: cst.Name, allowed: set[int]) -> None:
    """Check that what a variable is from an expression on, until it is set anew, is only read where it may be."""
    used = file.statement(base)
    block = file.block(used)
    until = next((file.end(each) for each in block[block.index(used) :] if _sets(each, base.value)), None)
    begun = file.statement(first)
    between = block[block.index(begun) + 1 : block.index(used)] if begun in block else []
    is_called = any(next(_calls(file, each), None) for each in between)  # which may be what reads it
    for reader in file.readers(base):
        at = file.start(reader)
        after = file.start(first) < at and (until is None or at < until)
        elsewhere = (until is None or is_called) and _called_later(file, reader) is not _called_later(file, base)
        if at not in allowed and (after or elsewhere):
            raise CannotPatchError(f"{base.value} has other uses")


def parse_batch(file: SourceFile, function: cst.CSTNode) -> None:
    """Parse a batch of serialized examples in a map's function; called with one, it still parses that.

    Args:
        file: that it is in.
        function: its definition, or the lambda that is given.

    Raises:
        CannotPatchError: it does not call the parser itself, or parses what one call takes as something else.
    """
    parsing = [each for each in file.nodes if isinstance(each, cst.Call) and called_name(each) == _PARSE_ONE]
    parsing = [each for each in parsing if function in file.around(each)]
    if not parsing or not all(isinstance(each.func, cst.Attribute) for each in parsing):
        raise CannotPatchError("its function does not call tf.io.parse_single_example itself")
    if "partitions" in file.text:  # of a RaggedFeature: of an example and of a batch they are not the same
        raise CannotPatchError("its ragged features may have partitions, which a batch has otherwise")
    file.renamed |= dict.fromkeys(parsing, _PARSE_BATCH)


def composed(file: SourceFile, functions: Sequence[cst.Arg], elements: Sequence[Element | None]) -> Composed:
    """Return one function in place of the functions of maps, upstream first; of all but the last with what it gives.

    Raises:
        CannotPatchError: a call makes one of them.
    """
    for each in functions:
        _check_given(each.value)
    return Composed(functions, [_is_spread(each) for each in elements], file.free_name("sample"))


def _is_spread(element: Element | None) -> bool:
    """Return whether tf.data spreads elements over a function's parameters: tuples, but no named ones."""
    return element is not None and element.kind == "tuple"


def _check_given(function: cst.BaseExpression) -> None:
    """Check that a map's function may stand within another, in a graph: what a call makes would be made there anew."""
    if isinstance(function, cst.Call) and called_name(function) != "partial":
        raise CannotPatchError("a call makes its function, which another function would call in each graph")


def vectorized(
    file: SourceFile, call: cst.Call, function: cst.BaseExpression, element: Element | None
) -> cst.BaseExpression:
    """Return a function of batches that runs one of samples on each.

    Args:
        file: that it is in.
        call: of the map.
        function: what it is given.
        element: a sample.

    Raises:
        CannotPatchError: a call makes the function.
    """
    _check_given(function)
    name, text = f"{imports.tensorflow(file, call)}vectorized_map", file.code(function)
    batch, sample = file.free_name("samples"), file.free_name("sample")
    if not _is_spread(element):
        return expression(f"lambda {batch}: {name}({text}, {batch})")
    text = text if isinstance(function, cst.Name | cst.Attribute) else f"({text})"
    return expression(f"lambda *{batch}: {name}(lambda {sample}: {text}(*{sample}), {batch})")


def unchanged(file: SourceFile, value: cst.BaseExpression, call: cst.Call, later: cst.Call) -> bool:
    """Return whether no variable in a value is set between a call and a later one of the same block."""
    first, last = file.statement(call), file.statement(later)
    block = file.block(last)
    if first not in block:
        return False
    between = block[block.index(first) : block.index(last)]
    used = stored_and_used(file, value)[1]
    return not any(stored_and_used(file, each)[0] & used for each in between)


def stored_and_used(file: SourceFile, node: cst.CSTNode) -> tuple[set[str], set[str]]:
    """Return the variables that a statement or an expression sets, or sets a part of, and all that are in it."""
    code = _bare(file, node)
    nodes = list(ast.walk(ast.parse(f"({code}\n)" if isinstance(node, cst.BaseExpression) else code)))
    used = {each.id for each in nodes if isinstance(each, ast.Name)}
    targets = (each for each in nodes if isinstance(getattr(each, "ctx", None), ast.Store | ast.Del))
    stored = {name for each in targets if (name := _variable(each))}
    stored |= {each.name for each in nodes if isinstance(each, _DEFINITIONS)}
    imported = (alias for each in nodes if isinstance(each, ast.Import | ast.ImportFrom) for alias in each.names)
    return stored | {(alias.asname or alias.name).split(".")[0] for alias in imported}, used


def _bare(file: SourceFile, node: cst.CSTNode) -> str:
    return file.code(node).strip().rstrip(";")


def _variable(target: ast.AST) -> str | None:
    """Return the variable of a target: ``self`` of ``self.size`` and of ``self.sizes[0]``."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None
