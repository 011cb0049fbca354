"""Changes of more than one call: calls that move between statements, whole batches in a function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.bindings import (
    overlapping,
    readers,
    seen_elsewhere,
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
_CHANGE_NOTHING = ("Options", "print", "summary")
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
    check_needed(file, link, others)
    check_calls(file, link, others)
    if target.links[0] is before and not others and all(len(each.links) == 1 for each in steps):
        moved = [link, *(each.links[0] for each in steps[:-1])]
        for place, call in zip(steps, moved, strict=True):
            place.links[0] = call
        return
    chain.remove(link)
    target.insert(target.links.index(before), link)
    drop_if_idle(file, chain)


def check_needed(file: SourceFile, link: Link, between: Sequence[cst.CSTNode], own: str = "") -> None:
    """Check that a call that moves above some statements needs none of the variables that they set, but its own.

    Raises:
        CannotPatchError: it does, or takes a function, which may use any of them.
    """
    used = {name for arg in link.call.args for name in stored_and_used(file, arg.value)[1]}
    takes_function = called_name(link.call) in _TAKE_FUNCTIONS
    stored = seen_elsewhere(file, between) if takes_function else that_change(stored_in(file, between), used)
    if needed := stored - {own}:
        raise CannotPatchError(f"it needs {min(needed)}, which is set between the two calls")


def check_calls(file: SourceFile, link: Link, between: Sequence[cst.CSTNode]) -> None:
    """Check that no statement that a call moves above calls anything that may change what the call uses.

    Raises:
        CannotPatchError: one does, as ``vectorize.adapt(texts)`` in front of ``ds.map(vectorize)``.
    """
    uses = called_name(link.call) in _TAKE_FUNCTIONS or any(_calls(file, arg.value) for arg in link.call.args)
    if uses and (found := first_call(file, between)) is not None:
        raise CannotPatchError(f"{file.code(found.func)} is called between the two calls")


def first_call(file: SourceFile, nodes: Iterable[cst.CSTNode]) -> cst.Call | None:
    """Return the first call in some nodes that is none of a dataset's and may change something."""
    return next((call for each in nodes for call in _calls(file, each)), None)


def _calls(file: SourceFile, node: cst.CSTNode) -> Iterator[cst.Call]:
    """Yield the calls in a node that are none of a dataset's, nor an argument of one, and may change something.

    What a definition in it calls is called later.
    """
    known = {link.call for chain in file.chains for link in chain.links}
    for each in file.nodes:
        if isinstance(each, cst.Call) and called_name(each) not in _CHANGE_NOTHING:
            around = file.around(each)
            inside = around[: around.index(node) + 1] if node in around else []
            if inside and not any(one in known or isinstance(one, cst.FunctionDef | cst.Lambda) for one in inside):
                yield each


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
    if any(each not in block or each in file.lifted for each in own):
        raise CannotPatchError("the two calls stand in different blocks, such as one in an if")
    gone = {*before, *file.dropped}
    others = [each for each in block[block.index(next(iter(own))) : block.index(last)] if each not in gone]
    variables = {name for chain in later if (name := variable(chain.base)) is not None}
    if set_between := overlapping(stored_in(file, others), variables):
        raise CannotPatchError(f"{min(set_between)} is set between the two calls")
    for chain in later:
        check_attribute(file, chain, others)
    return others


def check_attribute(file: SourceFile, chain: Chain, between: Sequence[cst.CSTNode]) -> None:
    """Check, where a chain reads an attribute such as ``self.ds``, that nothing else can see it meanwhile.

    Raises:
        CannotPatchError: the chain does not set it anew, what is called or read may read it, or its object is another.
    """
    if not isinstance(chain.base, cst.Attribute):
        return
    name = variable(chain.base) or ""
    if (found := first_call(file, between)) is not None:
        raise CannotPatchError(f"{file.code(found.func)}, which may read {name}, is called between the two calls")
    if overlapping(stored_in(file, between) - {name}, [name]) or any(shows(file, each, name) for each in between):
        raise CannotPatchError(f"{name} may be read, or be another, between the two calls")
    statement = file.statement(chain.top)
    if not sets(statement, name, chain.top) and not sets_or_keeps(statement, name, chain.top):
        raise CannotPatchError(f"{name} may have other uses")


def called_later(file: SourceFile, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost function that a node is in, which reads a variable when it is called."""
    return next((each for each in file.around(node) if isinstance(each, cst.FunctionDef | cst.Lambda)), None)


def _check_readers(file: SourceFile, first: cst.CSTNode, base: cst.BaseExpression, allowed: set[int]) -> None:
    """Check that what a variable is from an expression on, until it is set anew, is only read where it may be."""
    used, name = file.statement(base), variable(base) or ""
    block = file.block(used)
    until = next((file.end(each) for each in block[block.index(used) :] if sets(each, name)), None)
    begun = file.statement(first)
    between = block[block.index(begun) + 1 : block.index(used)] if begun in block else []
    is_called = first_call(file, between) is not None  # which may be what reads it
    gone = file.dropped - file.lifted.keys()
    for reader in (each for each in readers(file, base) if gone.isdisjoint(file.around(each))):
        at = file.start(reader)
        after = file.start(first) < at and (until is None or at < until)
        elsewhere = (until is None or is_called) and called_later(file, reader) is not called_later(file, base)
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
    is_spread, is_named = _is_spread(element), isinstance(function, cst.Name | cst.Attribute)
    if not is_spread and not is_named:
        return expression(f"lambda {batch}: {name}({text}, {batch})")
    # AutoGraph converts an `if` of a function that is called in the text, and none of one that is handed over.
    star, text = "*" * is_spread, text if is_named else f"({text})"
    return expression(f"lambda {star}{batch}: {name}(lambda {sample}: {text}({star}{sample}), {batch})")
