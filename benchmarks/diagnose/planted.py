"""What is known of each pipeline beforehand, read from its source without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "pipelines"


@dataclass(frozen=True)
class Planted:
    """A pipeline with a fault, and where that fault is."""

    name: str
    file: Path
    what: str
    """The fault in one sentence."""
    labels: frozenset[str]
    """The labels (`Stage.label`) of the stages that may be named: the one at fault, or several that share the fault."""
    allow_reordering: bool
    """Whether its owner would accept another order of the samples, and runs no function that needs one thread."""


def read(file: Path) -> Planted:
    """What the constants of a pipeline's file say.

    Raises:
        ValueError: a constant or the docstring is missing.
    """
    module = ast.parse(file.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    what = ast.get_docstring(module)
    if not what or not {"FAULT", "ALLOW_REORDERING"} <= constants.keys():
        raise ValueError(f"{file.name} needs a docstring, FAULT and ALLOW_REORDERING")
    fault = ast.literal_eval(constants["FAULT"])
    return Planted(
        name=file.stem,
        file=file,
        what=what,
        labels=frozenset({fault} if isinstance(fault, str) else fault),
        allow_reordering=bool(ast.literal_eval(constants["ALLOW_REORDERING"])),
    )


def every() -> list[Planted]:
    """All pipelines, by name."""
    return [read(file) for file in sorted(FOLDER.glob("[a-z]*.py"))]


def chosen(names: list[str]) -> list[Planted]:
    """Those of the given names, all where none is given.

    Raises:
        ValueError: there is no such pipeline.
    """
    known = {planted.name: planted for planted in every()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no pipeline {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())
