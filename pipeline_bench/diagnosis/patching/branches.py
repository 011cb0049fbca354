"""Calls that move across what a condition decides on, or out of an arm of an ``if``; all other ways stay the same."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pipeline_bench.diagnosis.patching.bindings import (
    mentions,
    readers,
    seen_elsewhere,
    sets,
    sets_or_keeps,
    stored_and_used,
    stored_in,
    that_change,
    variable,
)
from pipeline_bench.diagnosis.patching.source_file import BLOCKS, Chain, Lifted, Link, SourceFile, statements_of
from pipeline_bench.diagnosis.patching.source_writer import negated
from pipeline_bench.diagnosis.patching.statements import (
    called_later,
    check_attribute,
    check_calls,
    check_handed_on,
    check_needed,
    drop_if_idle,
    first_call,
)
from pipeline_bench.model.calls import CannotPatchError

_APART = "the two calls are in different places"
_BLOCKS = "the two calls stand in different blocks, such as one in an if"
_ACTING = (cst.Await, cst.Call, cst.NamedExpr, cst.Yield)


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


def is_across(file: SourceFile, ahead: cst.Call | None, earlier: Chain, later: Chain) -> bool:
    """Return whether a condition decides on a chain, or on a later one alone, or the call `ahead` of both is lifted."""
    statement, last = file.statement(earlier.top), file.statement(later.top)
    found, name = file.link(ahead) if ahead is not None else None, variable(later.base) or ""
    is_lifted = found is not None and file.statement(found[0].top) in file.lifted
    is_later = _branch(file, last) is not None and not any(each in file.block(last) for each in file.around(statement))
    keeps = statement is not last and sets_or_keeps(last, name, later.top) is not None
    return is_lifted or is_later or keeps or is_in_branch(file, earlier, later)


def move_across(file: SourceFile, place: Chain, steps: Sequence[Chain], link: Link, before: Link) -> None:
    """Move a call to the end of an earlier chain, across calls that a branch in between makes.

    As in ``ds = made()``, ``if shuffle: ds = ds.shuffle(8)``, ``ds = ds.map(f)``: the map comes first in both cases.
    So it does with ``ds = ds.shuffle(8) if shuffle else ds``. A call in an arm of an ``if`` moves with its condition,
    and what stands in the other arms stays; one behind that ``if`` then comes to the end of each arm.

    Args:
        file: that all are in.
        place: the chain that it moves to the end of.
        steps: the chains from the one with `before` to the one with `link`.
        link: what moves.
        before: the first call that it moves in front of.

    Raises:
        CannotPatchError: the dataset has other uses in between, or the call needs what is set there.
    """
    chain = steps[-1]
    if chain.links[0] is not link or steps[0].links[0] is not before:
        raise CannotPatchError(_APART)
    between = check_across(file, place.top, steps, in_arms=True)
    check_needed(file, link, between, variable(chain.base) or "")
    check_calls(file, link, between)
    ends = _other_ends(file, place, chain)
    if ends is None:
        _lift(file, place, steps, between)
        return
    chain.remove(link)
    place.insert(len(place.links), link)
    for each in ends:
        each.insert(len(each.links), Link(link.call))
    drop_if_idle(file, chain)


def check_divided(file: SourceFile, first: cst.Call, chains: Sequence[Chain], link: Link) -> list[Chain]:
    """Check that a map may be divided, and its first half run right behind an earlier call.

    Args:
        file: that they are in.
        first: the earlier call; the first chain may hold it.
        chains: from there to the map's.
        link: the map.

    Returns:
        The chains in other arms of an ``if`` that the first half must come to the end of, too.

    Raises:
        CannotPatchError: a dataset has another use, or the map needs what is set between.
    """
    between, last = check_read_once(file, first, chains, in_arms=True), chains[-1]
    name = variable(last.base) or ""
    if stored := seen_elsewhere(file, between) - {name}:
        raise CannotPatchError(f"{min(stored)} is set between the two calls")
    check_calls(file, link, between)
    if sets_or_keeps(file.statement(last.top), name, last.top):  # the first half would run in each case
        raise CannotPatchError(_BLOCKS)
    begun = chains[0].top if _holds(chains[0], first) else first
    if file.statement(begun) in file.block(file.statement(last.top)):
        return []
    ends, links = _other_ends(file, chains[0], last), [each.call for each in chains[0].links if each.home]
    if ends is None or links[-1:] != [first]:
        raise CannotPatchError(_BLOCKS)
    return ends


def check_read_once(
    file: SourceFile, first: cst.Call, chains: Sequence[Chain], *, in_arms: bool = False
) -> list[cst.CSTNode]:
    """Check that chains alone read each dataset from a call to the last one; a condition may decide on those between.

    Args:
        file: that they are in.
        first: the call that makes the first dataset; the first chain may hold it.
        chains: upstream first.
        in_arms: whether the first chain may stand in an arm of an ``if``.

    Returns:
        The statements between the first of them and the last; where a condition decides on one, also their own.

    Raises:
        CannotPatchError: a dataset has another use, to which it must stay what it is.
    """
    if not any(is_in_branch(file, each, chains[-1]) for each in chains[:-1]):
        return check_handed_on(file, first, chains)
    if _holds(chains[0], first):
        return check_across(file, chains[0].top, chains[1:], in_arms=in_arms)
    return check_across(file, first, chains)


def _holds(chain: Chain, call: cst.Call) -> bool:
    return chain.base is call or any(link.call is call for link in chain.links)


def check_across(
    file: SourceFile, made: cst.CSTNode, steps: Sequence[Chain], *, in_arms: bool = False
) -> list[cst.CSTNode]:
    """Check that a dataset goes through some chains, each under an ``if`` or under none, and is read by nothing else.

    Args:
        file: that all are in.
        made: what sets the dataset's variable first, in the block of the last chain.
        steps: the chains that read the variable behind that, upstream first; all but the last set it again.
        in_arms: whether `made` and the last chain may stand in an arm of an ``if`` there, and a condition decide on it.

    Returns:
        The statements that run between the first of them and the last.

    Raises:
        CannotPatchError: the dataset has other uses in between.
    """
    chain, crossed = steps[-1], steps[:-1]
    first, last = file.statement(made), file.statement(chain.top)
    between, name = _between(file, first, last), variable(chain.base)
    if between is None or name is None or not sets(first, name, made) or not (in_arms or first in file.block(last)):
        raise CannotPatchError(_APART)
    ends = 2 if sets(last, name, chain.top) else 1 if isinstance(last, cst.Return) else 0
    ends = 3 if in_arms and sets_or_keeps(last, name, chain.top) else ends
    kept = [sets_or_keeps(file.statement(each.top), name, each.top) for each in crossed]
    in_turn = all(
        variable(each.base) == name
        and (either or sets(file.statement(each.top), name, each.top))
        and _is_in_ifs(file, file.statement(each.top), between)
        for each, either in zip(crossed, kept, strict=True)
    )
    left_out = [each for each in file.dropped if any(one in between for one in file.around(each))]
    mentioned, gone = (sum(mentions(file, each, name) for each in some) for some in (between, left_out))
    alone = mentioned - gone == sum(3 if each else 2 for each in kept) and mentions(file, last, name) == ends
    elsewhere = any(
        called_later(file, each) is not called_later(file, chain.base) for each in readers(file, chain.base)
    )
    if not in_turn or not alone or elsewhere:
        raise CannotPatchError(f"{name} has other uses between the two calls, or in another branch")
    check_attribute(file, chain, between)
    return between


def _between(file: SourceFile, first: cst.CSTNode, last: cst.CSTNode) -> list[cst.CSTNode] | None:
    """Return what runs behind a statement and in front of a later one.

    Each stands in one block, or in an arm of an ``if`` of that block; None where there is no such block. What is lifted
    runs right in front of another statement.
    """
    lifted, branch, own = file.lifted.get(first), _branch(file, first), file.block(first)
    begins = [first, branch] if lifted is None else [lifted.before]
    for end in (last, _branch(file, last)):
        block = file.block(end) if end is not None else []
        begin = next((each for each in begins if each in block), None)
        if end is not None and begin is not None and block.index(begin) < block.index(end):
            break
    else:
        return None
    found = own[own.index(first) + 1 :] if begin is branch else []
    for each in block[block.index(begin) + (lifted is None) : block.index(end)]:
        found += own if each is branch else [each]
    if end is not last:
        found += file.block(last)[: file.block(last).index(last)]
    return [each for each in found if each not in file.dropped]


def _is_in_ifs(file: SourceFile, statement: cst.CSTNode, block: Sequence[cst.CSTNode]) -> bool:
    """Return whether a statement of a block runs once at the most, by an ``if`` or none."""
    around = file.around(statement)
    outermost = next((index for index, each in enumerate(around) if each in block), None)
    kinds = (cst.If, cst.Else, cst.IndentedBlock, cst.SimpleStatementLine, cst.SimpleStatementSuite)
    return outermost is not None and all(isinstance(each, kinds) for each in around[1 : outermost + 1])


def _arm(file: SourceFile, statement: cst.CSTNode) -> list[cst.If | cst.Else]:
    """Return the ``if`` or ``else`` in whose arm a statement stands, then the one that it belongs to, up to the first.

    Nothing where it stands in none.
    """
    bodies = (*BLOCKS, cst.SimpleStatementSuite)
    body = next(each for each in file.around(statement)[1:] if isinstance(each, bodies))
    own = file.parents.get(body)
    found: list[cst.If | cst.Else] = []
    while isinstance(own, cst.If | cst.Else):
        found.append(own)
        above = file.parents[own]
        own = above if isinstance(above, cst.If) and above.orelse is own else None
    return found if found and isinstance(found[-1], cst.If) else []


def _branch(file: SourceFile, statement: cst.CSTNode) -> cst.If | cst.Else | None:
    """Return the ``if``, with all its ``elif`` and ``else``, in one of whose arms a statement stands."""
    return next(iter(_arm(file, statement)[-1:]), None)


def _other_ends(file: SourceFile, place: Chain, chain: Chain) -> list[Chain] | None:
    """Return the chains that end the other arms of an ``if``, where a place stands in one and a later chain behind it.

    A call that moves from that chain to the end of the place then moves to theirs, too. There are none where the two
    stand in one block; None where the call cannot move so.
    """
    first, last = file.statement(place.top), file.statement(chain.top)
    name, branch, own = variable(chain.base) or "", _branch(file, first), file.block(first)
    if not (sets(last, name, chain.top) or isinstance(last, cst.Return)):
        return None
    if own[0] is file.block(last)[0]:
        return []
    if branch is None or branch not in file.block(last):
        return None
    arms = [branch]
    while isinstance(further := getattr(arms[-1], "orelse", None), cst.If | cst.Else):
        arms.append(further)
    ends = [end for each in arms if (end := statements_of(each.body)[-1]) not in own]
    made = [value for each in ends if sets(each, name) and isinstance(value := getattr(each, "value", None), cst.Call)]
    is_known = any(each.top in made and each.top is not each.base for each in file.chains)  # of this pipeline, too
    if not isinstance(arms[-1], cst.Else) or len(made) < len(ends) or is_known:
        return None
    return [file.chain_on(each) for each in made]


def _lift(file: SourceFile, place: Chain, steps: Sequence[Chain], between: Sequence[cst.CSTNode]) -> None:
    """Have the last chain's statement written in front of the one that the first stands in, under its conditions.

    Raises:
        CannotPatchError: it holds more than the call, or a condition may not be the same there.
    """
    chain, first = steps[-1], file.statement(place.top)
    last, around = file.statement(chain.top), file.around(steps[0].top)
    arm: list[cst.If | cst.Else] = []
    before = next((each for each in around if each in file.block(last)), None)
    if before is None:
        arm = _arm(file, last)
        before = next(each for each in around if each in file.block(arm[-1]))
    is_alone = len(chain.links) == len(getattr(file.parents[last], "body", ())) == 1
    has_others = first not in file.block(before) and getattr(_branch(file, first), "orelse", None) is not None
    is_placed = before in between and file.line_of(before) is not None and not (has_others and first in file.lifted)
    if not is_placed or not is_alone or isinstance(last, cst.Return):
        raise CannotPatchError(_BLOCKS)
    either = file.parents[chain.top]
    tests = [each.test for each in (*arm, either) if isinstance(each, cst.If | cst.IfExp)]
    _check_tests(file, tests, between, variable(chain.base) or "")
    ways = [each.test if each is arm[0] else negated(each.test) for each in reversed(arm) if isinstance(each, cst.If)]
    file.lifted[last] = Lifted(before, ways, arm[0] if arm else None)
    file.dropped.add(last)


def _check_tests(file: SourceFile, tests: Sequence[cst.CSTNode], between: Sequence[cst.CSTNode], name: str) -> None:
    """Check that conditions give the same, and change nothing, where some statements and a dataset are yet to come.

    Raises:
        CannotPatchError: one may not.
    """
    inside = [each for each in file.nodes if any(test in file.around(each) for test in tests)]
    used = {used for test in tests for used in stored_and_used(file, test)[1]}
    may_change = that_change(stored_in(file, between) - {name}, used) or first_call(file, between) is not None
    acts = any(isinstance(each, _ACTING) or variable(each) == name for each in inside)
    if tests and (may_change or acts):
        raise CannotPatchError("what decides on the later one may change between the two calls")
