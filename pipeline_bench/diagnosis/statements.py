"""Calls that move from one statement to another, statements that are idle then, and functions for whole batches."""

from __future__ import annotations

import re

import libcst as cst

from pipeline_bench.diagnosis.source_file import Chain, Link, SourceFile, called_name, stored_and_used
from pipeline_bench.model.calls import CannotPatchError

_PARSE_ONE, _PARSE_BATCH = "parse_single_example", "parse_example"
_OF_BATCHES = ("_batch", "_of_batch", "_whole_batch")


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


def set_attribute(file: SourceFile, call: cst.Call, name: str, text: str) -> None:
    """Set an attribute of what a call makes in a line of its own, after the statement that names it."""
    statement = file.statement(call)
    line = file.line_of(statement)
    is_only = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    if line is not None and is_only and isinstance(statement, cst.Assign) and statement.value is call:
        target = statement.targets[0].target
        if isinstance(target, cst.Name) and len(statement.targets) == 1:
            file.lines_after.setdefault(line, []).append(f"{target.value}.{name} = {text}")
            return
    raise CannotPatchError(f"set the attribute `{name}` of what the call makes")


def parse_batch(file: SourceFile, given: cst.Arg, function: cst.CSTNode) -> None:
    """Have a map's function parse a batch of serialized examples; a new one where it has other uses.

    Args:
        file: that it is in.
        given: the argument of the map.
        function: its definition, or the lambda that is given.

    Raises:
        CannotPatchError: it does not call the parser itself.
    """
    parsing = [each for each in file.nodes if isinstance(each, cst.Call) and called_name(each) == _PARSE_ONE]
    parsing = [each for each in parsing if function in file.around(each)]
    if not parsing or not all(isinstance(each.func, cst.Attribute) for each in parsing):
        raise CannotPatchError("its function does not call tf.io.parse_single_example itself")
    if not isinstance(function, cst.FunctionDef) or file.uses(function.name.value) == 1:
        file.renamed |= dict.fromkeys(parsing, _PARSE_BATCH)
        return
    old = function.name.value
    new = next(name for end in _OF_BATCHES if (name := f"{old}{end}") not in file.names())
    text = re.sub(rf"\b{_PARSE_ONE}\b", _PARSE_BATCH, file.code(function.with_changes(leading_lines=())))
    file.values[given] = cst.Name(new)
    file.behind.setdefault(function, []).append(re.sub(rf"\bdef\s+{old}\b", f"def {new}", text, count=1))
