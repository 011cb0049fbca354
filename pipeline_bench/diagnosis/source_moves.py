"""Calls that change their statement: ``ds = ds.map(f)`` and ``ds = ds.batch(32)`` in the other order. Pure."""

from __future__ import annotations

import ast

from pipeline_bench.diagnosis.source_chain import Chain, Link, Patch, Source, UntoldError


def drop_if_idle(source: Source, chain: Chain) -> None:
    """Leave a statement out that says no more than ``ds = ds``, once its chain has lost its last call."""
    statement = source.statement(chain.base)
    if not (isinstance(statement, ast.Assign) and isinstance(chain.base, ast.Name) and len(statement.targets) == 1):
        return
    target = statement.targets[0]
    if not (isinstance(target, ast.Name) and target.id == chain.base.id and len(source.block(statement)) > 1):
        return
    start, end = source.line_start(source.start(statement)), source.line_end(source.end(statement))
    source.patches.append(Patch(start, end, lambda: b""))


def move_between(source: Source, chain: Chain, link: Link, target: Chain, before: Link) -> None:
    """Move a call to an earlier statement of the same variable: ``ds = ds.map(f)``, ``ds = ds.batch(32)``.

    Raises:
        UntoldError: the two do not stand in statements that follow one another, or the call needs what is set between.
    """
    later, earlier = source.statement(chain.base), source.statement(target.base)
    block = source.block(later)
    if earlier not in block or not isinstance(chain.base, ast.Name) or chain.links[0] is not link:
        raise UntoldError("the two calls are in different places")
    variable = chain.base.id
    span = block[block.index(earlier) : block.index(later)]
    assert link.call is not None
    used = {node.id for each in _arguments(link.call) for node in ast.walk(each) if isinstance(node, ast.Name)}
    chains = [_only_chain(source, each, variable) for each in span]
    assigned = {name for each in span for name in _stored(each)} - {variable}
    if used & assigned:
        raise UntoldError(f"it needs {sorted(used & assigned)[0]}, which is set between the two calls")
    steps = [each for each in chains if each is not None]
    if not steps or steps[0] is not target:
        raise UntoldError("the two calls are in different places")
    single = [*steps, chain]
    if target.links[0] is before and all(len(each.links) == 1 for each in single):
        moved = [link, *(each.links[0] for each in steps)]
        for each, own in zip(single, moved, strict=True):
            each.links[0] = own
        return
    chain.remove(link)
    target.insert(target.links.index(before), link)
    if not chain.links:
        drop_if_idle(source, chain)


def _only_chain(source: Source, statement: ast.stmt, variable: str) -> Chain | None:
    """The chain of ``ds = ds.map(f)``; None for a statement that has nothing to do with the variable."""
    for chain in source.chains:
        if isinstance(statement, ast.Assign) and source.statement(chain.base) is statement:
            target = statement.targets[0]
            if len(statement.targets) == 1 and isinstance(target, ast.Name) and target.id == variable:
                return chain
    if any(isinstance(node, ast.Name) and node.id == variable for node in ast.walk(statement)):
        raise UntoldError(f"a statement between them uses {variable}")
    return None


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _stored(statement: ast.stmt) -> set[str]:
    """The names that a statement sets."""
    names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names |= {node.name for node in ast.walk(statement) if isinstance(node, defined)}
    imported = (alias for n in ast.walk(statement) if isinstance(n, ast.Import | ast.ImportFrom) for alias in n.names)
    return names | {(alias.asname or alias.name).split(".")[0] for alias in imported}
