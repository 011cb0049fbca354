"""Where else a file makes the same calls as the part of a pipeline that a fix changes: they may have the same fault."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath

import libcst as cst

from pipeline_bench.diagnosis.patching.source_file import SourceFile, called_name
from pipeline_bench.model.calls import WORKERS
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.text import NAME, one_line


def places(
    calls: Mapping[int, tuple[SourceFile, cst.Call]], stages: Mapping[int, Stage], changed: Iterable[int]
) -> tuple[str, ...]:
    """Return the statements, ``train.py:31``, with the calls that stages are changed in, and those they are made on.

    Only calls of a function of the user's, or of their PyDataset, say that it is the same work: ``.batch(32)`` stands
    in any pipeline. Where there is none in the statement, those right before it must be the same up to one that has.

    Args:
        calls: of the stages, by id, as far as they were found.
        stages: by id.
        changed: the ids of the stages that a fix changes.
    """
    numbers = {call: number for number, (_, call) in calls.items()}
    found: dict[str, None] = {}
    for file, call in (calls[number] for number in changed if number in calls):
        wanted = _wanted(file, call, numbers, stages)
        name = one_line(PurePath(stages[numbers[call]].place.file).name, NAME)  # type: ignore[union-attr] # it was found
        for node in file.nodes if wanted else ():
            if isinstance(node, cst.Call) and _stands(file, node, wanted, numbers):
                found[f"{name}:{file.lines(file.statement(node))[0]}"] = None
    return tuple(found)


def _wanted(
    file: SourceFile, call: cst.Call, numbers: Mapping[cst.Call, int], stages: Mapping[int, Stage]
) -> list[list[str]]:
    """Return the texts of the calls that must stand elsewhere too: of the call's statement, then of those before it."""
    wanted: list[list[str]] = []
    chain = _chain(file, call, numbers, stages)
    if call not in chain:  # a source
        chain = [call]
    for statement in _upward(file, file.statement(call)):
        if wanted:
            own = [each for each in _calls(file, statement) if each in numbers]
            chain = _chain(file, own[0], numbers, stages) if own else []
        if not chain:
            break
        wanted.append([_text(file, each) for each in chain])
        if any(_is_users(stages[numbers[each]], each) for each in chain):
            return wanted
    return []


def _stands(file: SourceFile, call: cst.Call, wanted: list[list[str]], own: Collection[cst.Call]) -> bool:
    """Return whether calls with these texts stand at another call, and in the statements before it."""
    if _texts(file, call, len(wanted[0]), own) != wanted[0]:
        return False
    before = itertools.islice(_upward(file, file.statement(call)), 1, None)
    return all(
        any(_texts(file, each, len(texts), own) == texts for each in _calls(file, statement))
        for statement, texts in itertools.zip_longest(itertools.islice(before, len(wanted) - 1), wanted[1:])
    )


def _upward(file: SourceFile, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a statement, then those before it in its block."""
    block = file.block(statement)
    yield from block[block.index(statement) :: -1]


def _calls(file: SourceFile, statement: cst.CSTNode | None) -> list[cst.Call]:
    """Return the calls in a statement, outer ones first; of one with a block, also those in it."""
    return [node for node in file.nodes if isinstance(node, cst.Call) and statement in file.around(node)]


def _is_users(stage: Stage, call: cst.Call) -> bool:
    return stage.function is not None or (stage.method == WORKERS and called_name(call) != "__init__")


def _chain(
    file: SourceFile, call: cst.Call, numbers: Mapping[cst.Call, int], stages: Mapping[int, Stage]
) -> list[cst.Call]:
    """Return the calls on datasets that are made on each other in one expression with this one, the last one first."""
    top: cst.CSTNode = call
    while isinstance(above := file.parents[top], cst.Attribute) and file.parents[above] in numbers:
        top = file.parents[above]
    chain: list[cst.Call] = []
    at: cst.CSTNode | None = top
    while isinstance(at, cst.Call) and at in numbers and stages[numbers[at]].inputs:
        chain.append(at)
        at = _below(at)
    return chain


def _texts(file: SourceFile, call: cst.Call, count: int, own: Collection[cst.Call]) -> list[str]:
    """Return the texts of so many calls, each made on the next one; fewer where there are fewer, or one is the own."""
    texts: list[str] = []
    at: cst.CSTNode | None = call
    while isinstance(at, cst.Call) and len(texts) < count and at not in own:
        texts.append(_text(file, at))
        at = _below(at)
    return texts


def _below(call: cst.Call) -> cst.CSTNode | None:
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def _text(file: SourceFile, call: cst.Call) -> str:
    """Return a call's name and arguments, however they are laid out."""
    names = ("" if each.keyword is None else f"{each.keyword.value}=" for each in call.args)
    given = (f"{name}{each.star}{file.code(each.value)}" for name, each in zip(names, call.args, strict=True))
    return " ".join(f"{called_name(call)}({', '.join(given)})".split())
