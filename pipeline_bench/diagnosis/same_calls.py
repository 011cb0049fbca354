"""Where else a file makes the same calls as the part of a pipeline that a fix changes: they may have the same fault."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath

import libcst as cst

from pipeline_bench.diagnosis.source_file import SourceFile, called_name
from pipeline_bench.model.pipeline import Stage
from pipeline_bench.text import NAME, one_line


def places(
    calls: Mapping[int, tuple[SourceFile, cst.Call]], stages: Mapping[int, Stage], changed: Iterable[int]
) -> tuple[str, ...]:
    """Return the statements, ``train.py:31``, with the calls that stages are changed in, and those chained to them.

    Only calls of a function of the user's say that it is the same work: ``.batch(32)`` stands in any pipeline.

    Args:
        calls: of the stages, by id, as far as they were found.
        stages: by id.
        changed: the ids of the stages that a fix changes.
    """
    numbers = {call: number for number, (_, call) in calls.items()}
    found: dict[str, None] = {}
    for file, call in (calls[number] for number in changed if number in calls):
        chain = _chain(file, call, numbers, stages)
        if call not in chain or all(stages[numbers[each]].function is None for each in chain):
            continue
        wanted = [_text(file, each) for each in chain]
        name = one_line(PurePath(stages[numbers[call]].place.file).name, NAME)  # type: ignore[union-attr] # it was found
        for node in file.nodes:
            if isinstance(node, cst.Call) and _texts(file, node, len(wanted), numbers) == wanted:
                found[f"{name}:{file.lines(file.statement(node))[0]}"] = None
    return tuple(found)


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
