"""Calls that move from one statement to another, and statements that are idle then: ``ds = ds.map(f)``."""

from __future__ import annotations

import libcst as cst

from pipeline_bench.diagnosis.source_file import Chain, Link, SourceFile, stored_and_used
from pipeline_bench.model.calls import CannotPatchError


def drop_if_idle(file: SourceFile, chain: Chain) -> None:
    """Leave a statement out that says no more than ``ds = ds``, once its chain has lost its last call."""
    statement = file.statement(chain.top)
    if chain.links or not isinstance(statement, cst.Assign) or len(file.block(statement)) == 1:
        return
    target = statement.targets[0].target
    same = isinstance(target, cst.Name) and isinstance(chain.base, cst.Name) and target.value == chain.base.value
    if same and len(statement.targets) == 1 and statement.value is chain.top:
        file.dropped.add(statement)


def move_between(file: SourceFile, chain: Chain, link: Link, target: Chain, before: Link) -> None:
    """Move a call to an earlier statement of the same variable: ``ds = ds.map(f)``, ``ds = ds.batch(32)``.

    Raises:
        CannotPatchError: the two do not stand in statements that follow one another, or the call needs what is set
            between.
    """
    later, earlier = file.statement(chain.top), file.statement(target.top)
    block = file.block(later)
    if earlier not in block or not isinstance(chain.base, cst.Name) or chain.links[0] is not link:
        raise CannotPatchError("the two calls are in different places")
    variable = chain.base.value
    span = block[block.index(earlier) : block.index(later)]
    names = [stored_and_used(file, each) for each in span]
    needed = {name for arg in link.call.args for name in stored_and_used(file, arg.value)[1]}
    needed &= {name for stored, _ in names for name in stored} - {variable}
    if needed:
        raise CannotPatchError(f"it needs {min(needed)}, which is set between the two calls")
    steps = []
    for each, (_, used) in zip(span, names, strict=True):
        step = _only_chain(file, each, variable)
        if step is not None:
            steps.append(step)
        elif variable in used:
            raise CannotPatchError(f"a statement between them uses {variable}")
    if not steps or steps[0] is not target:
        raise CannotPatchError("the two calls are in different places")
    single = [*steps, chain]
    if target.links[0] is before and all(len(each.links) == 1 for each in single):
        moved = [link, *(each.links[0] for each in steps)]
        for place, own in zip(single, moved, strict=True):
            place.links[0] = own
        return
    chain.remove(link)
    target.insert(target.links.index(before), link)
    drop_if_idle(file, chain)


def _only_chain(file: SourceFile, statement: cst.CSTNode, variable: str) -> Chain | None:
    """Return the chain of ``ds = ds.map(f)``; None for any other statement."""
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0].target
    if not (isinstance(target, cst.Name) and target.value == variable):
        return None
    return next((chain for chain in file.chains if file.statement(chain.top) is statement), None)
