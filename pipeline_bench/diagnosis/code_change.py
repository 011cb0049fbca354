"""The code to write for a fix: a diff against the user's file where it can be told, else words. Pure.

What is changed is text: the stages' calls (`source_calls`) change their arguments or their order, and everything else
stays as the user wrote it.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import PurePath

from pipeline_bench.diagnosed import CodeChange, Fix
from pipeline_bench.diagnosis.call_text import (
    argument_node,
    arguments_text,
    device_call,
    fused,
    keywords,
    options_lines,
    value_text,
)
from pipeline_bench.diagnosis.code_words import words
from pipeline_bench.diagnosis.source_calls import StageCalls, tensorflow_data
from pipeline_bench.diagnosis.source_chain import Link, Patch, Source, UntoldError, is_program
from pipeline_bench.diagnosis.source_moves import drop_if_idle, move_between
from pipeline_bench.user_pipeline import (
    Edit,
    Fuse,
    InsertAfter,
    Inspection,
    Interleave,
    MoveBefore,
    PrefetchToDevice,
    Remove,
    SetArgument,
    SetOptions,
)

_KEPT_WHEN_FUSED = ("num_parallel_calls", "deterministic")
_OF_CACHE_FILES = "Give the cache a path of its own with room on the disk; delete the files when the pipeline changes."


_QUOTED = re.compile(r'["\\\x00-\x1f\x7f]')
_WITH_ITS_END = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as git has them: a form feed in it ends none."""


def change(
    source_texts: Mapping[str, str],
    inspection: Inspection,
    fix: Fix,
    names: Mapping[str, tuple[str, str]] | None = None,
) -> CodeChange:
    """The code to write for a fix.

    Args:
        source_texts: the user's files by the names that the stages' places have, with their line ends as they are.
        inspection: the pipeline as it is written.
        fix: what to change.
        names: of each file the folder that its patch starts from, and its path from there; see `checkout.named`. By
            default a file goes by its name alone.

    Returns:
        A diff for the edits that can be told as a change of the text, and words for the others.
    """
    code = _Code(source_texts, inspection, names or {})
    said: list[str] = []
    for edit in _in_order(fix.edits):
        try:
            code.apply(edit)
        except UntoldError as reason:
            said.append(words(edit, inspection, str(reason)))
    if any(isinstance(edit, InsertAfter) and "filename" in edit.arguments for edit in fix.edits):
        said.append(_OF_CACHE_FILES)
    try:
        diff = code.diff()
    except UntoldError as reason:
        return CodeChange(text=" ".join(words(edit, inspection, str(reason)) for edit in fix.edits))
    root = code.roots.pop() if len(code.roots) == 1 else None
    return CodeChange(diff=diff or None, root=root, text=" ".join(said))


def _in_order(edits: tuple[Edit, ...]) -> list[Edit]:
    """The options of all edits at once, and last what hands elements to the device; both stand behind the sink."""
    options = {name: value for edit in edits if isinstance(edit, SetOptions) for name, value in edit.options.items()}
    made: list[Edit] = [edit for edit in edits if not isinstance(edit, SetOptions | PrefetchToDevice)]
    made += [SetOptions(options=options)] if options else []
    return [*made, *(edit for edit in edits if isinstance(edit, PrefetchToDevice))]


class _Code:
    """The files of a pipeline with the edits so far."""

    def __init__(self, texts: Mapping[str, str], inspection: Inspection, names: Mapping[str, tuple[str, str]]) -> None:
        self.inspection = inspection
        self.names = names
        self.roots: set[str | None] = set()
        """What the patches of the files that changed start from, once `diff` was asked."""
        self.calls = StageCalls(texts, inspection)
        self.sink = inspection.sink
        stages = self.calls.stages
        self.before = {number: stage.inputs[0] for number, stage in stages.items() if len(stage.inputs) == 1}
        self.set: dict[tuple[ast.Call, str], str] = {}
        self.added: dict[ast.Call, dict[str, str]] = {}

    def apply(self, edit: Edit) -> None:
        """Note one edit.

        Raises:
            UntoldError: it cannot be told as a change of the text; nothing was noted.
        """
        match edit:
            case SetArgument():
                self._set_argument(*self.calls.call(edit.stage), edit.argument, value_text(edit.argument, edit.value))
            case InsertAfter():
                source, call = self.calls.call(edit.stage)
                text = f".{edit.method}({arguments_text(edit.method, edit.arguments, tensorflow_data(source, call))})"
                self._insert_after(edit.stage, text)
            case Remove():
                self._remove(edit.stage)
                self._follow(edit.stage)
            case MoveBefore():
                self._move(edit.stage, edit.other)
                self._follow(edit.stage)
                self.before[edit.stage], self.before[edit.other] = self.before[edit.other], edit.stage
            case Fuse():
                self._fuse(edit.stages)
            case Interleave():
                self._interleave(edit)
            case SetOptions():
                self._set_options(edit)
            case PrefetchToDevice():
                source, call = self.calls.call(self.sink)
                self._insert_after(self.sink, device_call(edit, tensorflow_data(source, call)), at_end=True)
            case _:
                raise UntoldError("it is more than another call")

    def diff(self) -> str:
        """The unified diff of every file that changed.

        Raises:
            UntoldError: what came of the edits is no Python, or not the calls that it should be.
        """
        parts = []
        for file, source in self.calls.sources.items():
            new = source.render()
            if new == source.text:
                continue
            if not is_program(new):
                raise UntoldError("the calls are laid out in a way that is not understood")
            root, name = self.names.get(file, (None, PurePath(file).name))
            self.roots.add(root)
            parts.append(_diff(name, source.text, new))
        return "".join(parts)

    def _set_argument(self, source: Source, call: ast.Call, argument: str, text: str) -> None:
        text = text.replace("tf.data.", tensorflow_data(source, call))
        old = argument_node(call, argument)
        if old is not None:
            if (call, argument) not in self.set:
                source.patches.append(
                    Patch(source.start(old), source.end(old), partial(self._set_text, call, argument))
                )
            self.set[call, argument] = text
            return
        if any(keyword.arg is None for keyword in call.keywords):
            raise UntoldError("its arguments are in a dict")
        if call not in self.added:
            place, head = keywords(source, call)
            added = self.added[call] = {}
            join = head or ", "
            source.patches.append(Patch(place, place, partial(_joined, head, join, added)))
        self.added[call][argument] = text

    def _set_text(self, call: ast.Call, argument: str) -> bytes:
        return self.set[call, argument].encode()

    def _insert_after(self, number: int, text: str, at_end: bool = False) -> None:
        source, call = self.calls.call(number)
        if self.calls.is_link(number):
            _, chain, link = self.calls.link(number)
            index = len(chain.links) if at_end else chain.links.index(link) + 1
        else:
            chain = next((c for c in source.chains if c.base is call), None) or source.empty_chain(call)
            index = len(chain.links) if at_end else 0
        chain.insert(index, Link(partial(bytes, text, "utf-8")))

    def _remove(self, number: int) -> None:
        source, chain, link = self.calls.link(number)
        chain.remove(link)
        if not chain.links:
            drop_if_idle(source, chain)

    def _move(self, number: int, other: int) -> None:
        source, chain, link = self.calls.link(number)
        other_source, target, before = self.calls.link(other)
        if source is not other_source:
            raise UntoldError("the two calls are in different files")
        if chain is not target:
            move_between(source, chain, link, target, before)
            return
        here, there = chain.links.index(link), chain.links.index(before)
        if there < here:  # the calls change, their leads stay
            chain.links.insert(there, chain.links.pop(here))

    def _fuse(self, numbers: tuple[int, ...]) -> None:
        found = [self.calls.link(number) for number in numbers]
        source, chain, last = found[-1]
        if any(each is not chain for _, each, _ in found):
            raise UntoldError("the maps are in different statements")
        calls = [call for number in numbers for _, call in [self.calls.call(number)]]
        nodes = [argument_node(call, "map_func") for call in calls]
        given = [node for node in nodes if node is not None]
        if len(given) < len(nodes):
            raise UntoldError("a map's function was not found")
        unpacked = [self.calls.stages[number].element.startswith("(") for number in numbers[:-1]]
        text = fused(source, given, unpacked)
        self.set[calls[-1], "map_func"] = ""
        source.patches.append(Patch(source.start(given[-1]), source.end(given[-1]), text))
        self._keep(source, calls)
        for _, _, link in found[:-1]:
            last.above = (*link.above, *last.above)
            chain.remove(link)

    def _interleave(self, edit: Interleave) -> None:
        source, call = self.calls.call(edit.stage)
        if not isinstance(call.func, ast.Attribute):
            raise UntoldError("it is no call on another dataset")
        end = source.end(call.func)
        self._set_argument(source, call, "cycle_length", value_text("cycle_length", edit.cycle_length))
        self._set_argument(
            source, call, "num_parallel_calls", value_text("num_parallel_calls", edit.num_parallel_calls)
        )
        source.patches.append(Patch(end - len(call.func.attr.encode()), end, partial(bytes, b"interleave")))

    def _follow(self, gone: int) -> None:
        """What stood behind a stage that has left its place stands behind the one before it."""
        self.sink = self.before[gone] if self.sink == gone else self.sink
        self.before = {number: self.before[gone] if own == gone else own for number, own in self.before.items()}

    def _keep(self, source: Source, calls: list[ast.Call]) -> None:
        """Give the last of several calls what only an earlier one says of its parallelism."""
        for name in _KEPT_WHEN_FUSED:
            given = [text for call in calls if (text := self._given(source, call, name)) not in ("", "None")]
            if given and self._given(source, calls[-1], name) != given[-1]:
                self._set_argument(source, calls[-1], name, given[-1])

    def _given(self, source: Source, call: ast.Call, name: str) -> str:
        """What a call gives for an argument, edits included; empty where it gives nothing."""
        if (told := self.set.get((call, name)) or self.added.get(call, {}).get(name)) is not None:
            return told
        node = argument_node(call, name)
        return "" if node is None else source.bytes[source.start(node) : source.end(node)].decode()

    def _set_options(self, edit: SetOptions) -> None:
        source, call = self.calls.call(self.sink)
        statement = source.statement(self.calls.link(self.sink)[1].base if self.calls.is_link(self.sink) else call)
        start = source.start(statement)
        indent = source.bytes[source.line_start(start) : start]
        if indent.strip() or any(isinstance(each, ast.Lambda) for each in source.around(call)):
            raise UntoldError("there is no line for it of its own")
        names = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
        name = next(name for name in ("options", "data_options", "more_options", "_options") if name not in names)
        lines = options_lines(edit, name, tensorflow_data(source, call))
        text = b"".join(line.encode() + source.new_line + indent for line in lines)
        self._insert_after(self.sink, f".with_options({name})", at_end=True)
        source.patches.append(Patch(start, start, partial(bytes, text)))


def _joined(head: str, join: str, added: Mapping[str, str]) -> bytes:
    return (head + join.join(f"{name}={value}" for name, value in added.items())).encode()


def _diff(name: str, old: str, new: str) -> str:
    before, after = (_WITH_ITS_END.findall(text) for text in (old, new))
    made = difflib.unified_diff(before, after, _header(f"a/{name}"), _header(f"b/{name}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made)


def _header(name: str) -> str:
    """A file's name as git writes it: in quotes where it needs them, and with its end marked where it has blanks."""
    if _QUOTED.search(name):
        octal = _QUOTED.sub(lambda found: rf"\{ord(found[0]):03o}", name)
        return f'"{octal}"'
    return f"{name}\t" if " " in name else name
