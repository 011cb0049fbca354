"""Changes of more than one call: calls that move between statements, whole batches in a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.bindings import (
    mentions,
    overlapping,
    readers,
    sets,
    sets_or_keeps,
    shows,
    stored_and_used,
    stored_in,
    that_change,
    variable,
)
from pipeline_bench.diagnosis.patching.source_file import Chain, Composed, Link, SourceFile, called_name, expression
from pipeline_bench.model.calls import CannotPatchError
from pipeline_bench.model.element import Element

_PARSE_ONE, _PARSE_BATCH = "parse_single_example", "parse_example"
_TAKE_FUNCTIONS = ("filter", "map", "flat_map", "interleave")
_ONLY_SHOW = ("print", "summary")
"""Calls that change nothing which another function may use."""


def drop_if_idle(file: SourceFile, chain: Chain) -> None:
    """Leave a statement out that says no more than ``ds = ds``, once its chain has lost its last call."""
    statement, name = file.statement(chain.top), variable(chain.base)
    if chain.links or name is None:
        return
    either = sets_or_keeps(statement, name, chain.top)
    has_effect = either and (stored_and_used(file, either.test)[0] or next(_calls(file, either.test), None))
    if sets(statement, name, chain.top) or (either and not has_effect):
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
    _check_needed(file, link, stored_in(file, others))
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
    block, name = file.block(last), variable(earlier.base)
    if statement in block:
        either = sets_or_keeps(statement, name, earlier.top) if name is not None else None
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
    _check_needed(file, link, stored_in(file, between) - {variable(chain.base) or ""})
    check_calls(file, link, between)
    chain.remove(link)
    place.insert(len(place.links), link)
    drop_if_idle(file, chain)


def _check_needed(file: SourceFile, link: Link, stored: set[str]) -> None:
    """Check that a call that moves above what sets some variables needs none of them.

    Raises:
        CannotPatchError: it does, or takes a function, which may use any of them.
    """
    used = {name for arg in link.call.args for name in stored_and_used(file, arg.value)[1]}
    needed = stored if called_name(link.call) in _TAKE_FUNCTIONS else that_change(stored, used)
    if needed:
        raise CannotPatchError(f"it needs {min(needed)}, which is set between the two calls")


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
    block, name = file.block(last), variable(chain.base)
    if first not in block or name is None or not sets(first, name, made):
        raise CannotPatchError("the two calls are in different places")
    between = [each for each in block[block.index(first) + 1 : block.index(last)] if each not in file.dropped]
    ends = 2 if sets(last, name, chain.top) else 1 if isinstance(last, cst.Return) else 0
    kept = [sets_or_keeps(file.statement(each.top), name, each.top) for each in crossed]
    in_turn = all(
        variable(each.base) == name
        and (either or sets(file.statement(each.top), name, each.top))
        and _is_in_ifs(file, file.statement(each.top), between)
        for each, either in zip(crossed, kept, strict=True)
    )
    mentioned = sum(mentions(file, each, name) for each in between)
    alone = mentioned == sum(3 if each else 2 for each in kept) and mentions(file, last, name) == ends
    elsewhere = any(
        _called_later(file, each) is not _called_later(file, chain.base) for each in readers(file, chain.base)
    )
    if not in_turn or not alone or elsewhere:
        raise CannotPatchError(f"{name} has other uses between the two calls, or in another branch")
    _check_attribute(file, chain, between)
    return between


def check_calls(file: SourceFile, link: Link, between: Sequence[cst.CSTNode]) -> None:
    """Check that no statement that a call moves above calls anything that may change what the call uses.

    Raises:
        CannotPatchError: one does, as ``vectorize.adapt(texts)`` in front of ``ds.map(vectorize)``.
    """
    uses = called_name(link.call) in _TAKE_FUNCTIONS or any(_calls(file, arg.value) for arg in link.call.args)
    if uses and (found := _first_call(file, between)) is not None:
        raise CannotPatchError(f"{file.code(found.func)} is called between the two calls")


def _first_call(file: SourceFile, nodes: Iterable[cst.CSTNode]) -> cst.Call | None:
    return next((call for each in nodes for call in _calls(file, each)), None)


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
        name = variable(chain.base)
        if name is None or not sets(statement, name, value):
            raise CannotPatchError("the two calls are in different places")
        _check_readers(file, made[0], chain.base, {file.start(each.base) for each in later})
    *before, last = own
    block = file.block(last)
    if any(each not in block for each in own):
        raise CannotPatchError("the two calls stand in different blocks, such as one in an if")
    others = [each for each in block[block.index(next(iter(own))) : block.index(last)] if each not in before]
    variables = {name for chain in later if (name := variable(chain.base)) is not None}
    if set_between := overlapping(stored_in(file, others), variables):
        raise CannotPatchError(f"{min(set_between)} is set between the two calls")
    for chain in later:
        _check_attribute(file, chain, others)
    return others


def _check_attribute(file: SourceFile, chain: Chain, between: Sequence[cst.CSTNode]) -> None:
    """Check, where a chain reads an attribute such as ``self.ds``, that nothing else can see it meanwhile.

    Raises:
        CannotPatchError: the chain does not set it anew, what is called or read may read it, or its object is another.
    """
    if not isinstance(chain.base, cst.Attribute):
        return
    name = variable(chain.base) or ""
    if (found := _first_call(file, between)) is not None:
        raise CannotPatchError(f"{file.code(found.func)}, which may read {name}, is called between the two calls")
    if overlapping(stored_in(file, between) - {name}, [name]) or any(shows(file, each, name) for each in between):
        raise CannotPatchError(f"{name} may be read, or be another, between the two calls")
    statement = file.statement(chain.top)
    if not sets(statement, name, chain.top) and not sets_or_keeps(statement, name, chain.top):
        raise CannotPatchError(f"{name} may have other uses")


def _called_later(file: SourceFile, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost function that a node is in, which reads a variable when it is called."""
    return next((each for each in file.around(node) if isinstance(each, cst.FunctionDef | cst.Lambda)), None)


def _check_readers(file: SourceFile, first: cst.CSTNode, base: cst.BaseExpression, allowed: set[int]) -> None:
    """Check that what a variable is from an expression on, until it is set anew, is only read where it may be."""
    used, name = file.statement(base), variable(base) or ""
    block = file.block(used)
    until = next((file.end(each) for each in block[block.index(used) :] if sets(each, name)), None)
    begun = file.statement(first)
    between = block[block.index(begun) + 1 : block.index(used)] if begun in block else []
    is_called = _first_call(file, between) is not None  # which may be what reads it
    for reader in readers(file, base):
        at = file.start(reader)
        after = file.start(first) < at and (until is None or at < until)
        elsewhere = (until is None or is_called) and _called_later(file, reader) is not _called_later(file, base)
        if at not in allowed and (after or elsewhere):
            raise CannotPatchError(f"{name} has other uses")


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
