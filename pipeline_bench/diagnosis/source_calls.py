"""Where in the user's source each stage's call stands, and the chains that these calls make. Pure.

A stage is found by the place where its call ends, and by its name.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePath

from pipeline_bench.diagnosis.code_words import every_stage
from pipeline_bench.diagnosis.source_chain import Chain, Link, Source, UntoldError
from pipeline_bench.user_pipeline import Inspection, Stage

_STATIC = {"zip", "sample_from_datasets", "choose_from_datasets"}
"""Calls on the class, with their inputs as arguments: a chain can only begin with one."""


class StageCalls:
    """The calls of a pipeline's stages in the files of the user.

    Attributes:
        stages: every stage by its id, those that a function builds for each element included.
        sources: the files that were read, by the names that the stages' places have.
    """

    def __init__(self, texts: Mapping[str, str], inspection: Inspection) -> None:
        self.stages = {stage.id: stage for stage in every_stage(inspection.stages)}
        self.sources: dict[str, Source] = {}
        self._texts = texts
        self._calls: dict[int, tuple[Source, ast.Call]] = {}
        self._reasons: dict[int, str] = {}
        for stage in self.stages.values():
            try:
                self._calls[stage.id] = self._find(stage)
            except UntoldError as reason:
                self._reasons[stage.id] = str(reason)
        self._forget_shared()
        self._make_chains()

    def call(self, number: int) -> tuple[Source, ast.Call]:
        """The call that made the stage, and its file.

        Raises:
            UntoldError: it was not found, or made other stages too.
        """
        if number not in self._calls:
            raise UntoldError(self._reasons.get(number, "the stage is not known"))
        return self._calls[number]

    def is_link(self, number: int) -> bool:
        """Whether the stage is a method's call on another dataset, which may stand in a chain."""
        stage, (_, call) = self.stages[number], self._calls[number]
        return bool(stage.inputs) and stage.method not in _STATIC and isinstance(call.func, ast.Attribute)

    def link(self, number: int) -> tuple[Source, Chain, Link]:
        """The stage's call as a link of its chain, with the chain and the file.

        Raises:
            UntoldError: it was not found, or is no call on another dataset.
        """
        source, call = self.call(number)
        for chain in source.chains:
            for link in chain.links:
                if link.call is call:
                    return source, chain, link
        raise UntoldError(f"{self.stages[number].label} is no call on another dataset")

    def _find(self, stage: Stage) -> tuple[Source, ast.Call]:
        place = stage.place
        if place is None:
            raise UntoldError(f"where {stage.label} is called is not known")
        if place.file not in self._texts:
            raise UntoldError(f"{stage.label} is called in a file that is not yours")
        try:
            if place.file not in self.sources:
                self.sources[place.file] = Source(self._texts[place.file])
        except (SyntaxError, ValueError):
            raise UntoldError(f"{PurePath(place.file).name} cannot be read as Python") from None
        source = self.sources[place.file]
        found = [call for call in source.calls() if _name(call) == stage.method]
        if place.end_line is not None and place.end_column is not None:
            at = (place.end_line, place.end_column)
            found = [call for call in found if (call.end_lineno, call.end_col_offset) == at]
        else:
            found = [call for call in found if call.lineno <= place.line <= (call.end_lineno or call.lineno)]
        if len(found) != 1:
            raise UntoldError(f"the call of {stage.label} was not found in line {place.line}")
        return source, found[0]

    def _forget_shared(self) -> None:
        """A call that made several stages cannot be changed for one of them."""
        users: dict[ast.Call, list[int]] = {}
        for number, (_, call) in self._calls.items():
            users.setdefault(call, []).append(number)
        for numbers in users.values():
            for number in numbers if len(numbers) > 1 else ():
                del self._calls[number]
                self._reasons[number] = f"one call of {self.stages[number].method} makes several stages"

    def _make_chains(self) -> None:
        links = {call: source for number, (source, call) in self._calls.items() if self.is_link(number)}
        below = {call: call.func.value for call in links if isinstance(call.func, ast.Attribute)}
        inner = set(below.values())
        for top, source in links.items():
            if top in inner:
                continue
            calls = [top]
            while (next_call := below[calls[-1]]) in links and isinstance(next_call, ast.Call):
                calls.append(next_call)
            source.add_chain(calls[::-1])


def tensorflow_data(source: Source, call: ast.Call) -> str:
    """How the file calls ``tf.data.`` where a call stands; ``tf.data.`` where that is not told."""
    own = source.function(call)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and source.function(node) in (own, source.tree):
            for alias in node.names:
                used = alias.asname or alias.name.split(".")[0]
                whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
                if whole in ("tensorflow", "tensorflow.compat.v2", "tensorflow.compat.v1"):
                    return f"{used}.data."
                if whole == "tensorflow.data" and (alias.asname or isinstance(node, ast.ImportFrom)):
                    return f"{used}."
    return "tf.data."


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
