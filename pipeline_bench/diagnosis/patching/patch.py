"""The code to write for a fix: a diff against the user's files where there can be one, else words. Pure.

A stage's call is found in the source by the place where it ends, and by its name. Its arguments or its order change,
and everything else stays as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import libcst as cst

from pipeline_bench.diagnosis.patching import (
    bindings,
    branches,
    definitions,
    imports,
    memoize,
    single_edits,
    source_writer,
    statements,
    words,
)
from pipeline_bench.diagnosis.patching.source_file import Chain, Link, SourceFile, called_name, expression, new_call
from pipeline_bench.diagnosis.patching.stage_calls import APPLY, StageCalls, argument_of, check_divided
from pipeline_bench.model.calls import PARAMETERS, CannotPatchError, MemoizableCall
from pipeline_bench.model.diagnosis import CodeChange, Fix
from pipeline_bench.model.edits import Edit, KeepSamples, PrefetchToDevice, SetOptions
from pipeline_bench.model.pipeline import Inspection
from pipeline_bench.tfdata import function_halves, map_functions

_STATIC = {"zip", "sample_from_datasets", "choose_from_datasets"}
"""Calls on the class, with their inputs as arguments: a chain can only begin with one."""
_UNDONE = {"batch", "unbatch"}
"""A `batch` and the `unbatch` that undoes it: taking only one out changes what every call between them gets."""
_OF_CACHE_FILES = "Its path must be no other pipeline's, even of the same lines; delete its files when the data change."


def change(
    source_texts: Mapping[str, str],
    inspection: Inspection,
    fix: Fix,
    names: Mapping[str, tuple[str, str]] | None = None,
) -> CodeChange:
    """Return the code to write for a fix: a diff, or words where one of its edits cannot be written as a patch.

    A part of a fix is not what was tried.

    Args:
        source_texts: the user's files by the names that the stages' places have, with their line ends as they are.
        inspection: the pipeline as it is written.
        fix: what to change.
        names: of each file the folder that its patch starts from, and its path from there; by default
            its name alone.
    """
    of_files = [_OF_CACHE_FILES] * any(edit.keeps_files for edit in fix.edits)
    edits = _in_order(fix.edits)
    patch = Patch(source_texts, inspection, names or {}, edits)
    changed = dict.fromkeys(number for each in edits for number, _ in each.claims() if isinstance(number, int))
    edit, alike = edits[-1], words.same_calls(patch.stage_calls.calls, patch.stages, changed)
    try:
        for edit in patch.edits:
            if isinstance(edit, KeepSamples):
                patch.kept_arguments = patch.check_samples(inspection, edit)
        for edit in patch.edits:
            edit.write(patch)
        diff = patch.diff()
    except CannotPatchError as reason:
        behind, left = words.rewritten(patch.stage_calls.maker, patch.stages, edits)
        said = [*behind, *(each.words(patch.stages, str(reason) if each is edit else "") for each in left)]
        return CodeChange(text=" ".join(dict.fromkeys([*said, *of_files])), alike=alike)
    root = patch.roots.pop() if len(patch.roots) == 1 else None
    return CodeChange(diff=diff or None, root=root, text=" ".join(of_files), alike=alike)


def _in_order(edits: tuple[Edit, ...]) -> list[Edit]:
    """Return the edits with all options in one, and last what hands elements to the device."""
    options = {name: value for edit in edits if isinstance(edit, SetOptions) for name, value in edit.options.items()}
    made: list[Edit] = [edit for edit in edits if not isinstance(edit, SetOptions | PrefetchToDevice)]
    made += [SetOptions(options=options)] if options else []
    return [*made, *(edit for edit in edits if isinstance(edit, PrefetchToDevice))]


class Patch:
    """The files of a pipeline with the edits so far.

    Each method that an edit calls raises `CannotPatchError` where it cannot be written; of the others is no use then.
    All text that it is given has ``tf.data.`` where TensorFlow is named.

    `edits` are those to write, `stage_calls` the calls in the files, `kept_arguments` how arguments are written that
    calls behind kept samples take over, `roots` what the patches of the changed files start from after `diff`.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        inspection: Inspection,
        names: Mapping[str, tuple[str, str]],
        edits: Sequence[Edit],
    ) -> None:
        self.names = names
        self.roots: set[str | None] = set()
        self.sink = inspection.sink
        self.stages = {each.id: each for stage in inspection.stages for each in stage.with_inner()}
        self.stage_calls = StageCalls(texts, self.stages, edits, self.sink)
        self.edits = self.stage_calls.once(edits)
        self.kept_arguments: dict[str, str] = {}
        self._before = {number: stage.inputs[0] for number, stage in self.stages.items() if len(stage.inputs) == 1}
        self._make_chains()

    def diff(self) -> str:
        """Return the unified diff of every file that changed."""
        parts = []
        for path, file in self.stage_calls.files.items():
            new = source_writer.write(file)
            if new == file.text:
                continue
            if not source_writer.is_program(new):
                raise CannotPatchError("the calls are laid out in a way that is not understood")
            root, name = self.names.get(path, (None, PurePath(path).name))
            self.roots.add(root)
            parts.append(source_writer.diff(name, file.text, new))
        return "".join(parts)

    def check_samples(self, inspection: Inspection, edit: KeepSamples) -> dict[str, str]:
        """Check that samples can be kept before anything is written, and return `single_edits.kept_arguments`."""
        return single_edits.kept_arguments(inspection, self.stage_calls, self._chains, self.edits, edit)

    def set_argument(self, number: int, argument: str, text: str) -> None:
        """Give a stage's call a value for an argument, in place of the one that it has."""
        file, call = self.stage_calls.of(number)
        value = expression(imports.spelled(file, call, text))
        if single_edits.takes_attributes_alone(self.stages, number, call):
            single_edits.set_attribute(file, call, argument, text)
            return
        old = argument_of(call, argument)
        if old is not None:
            file.values[old] = value
        else:
            file.added.setdefault(call, {})[argument] = value

    def insert_after(self, number: int | None, text: str) -> None:
        """Put a call like ``.cache()`` behind a stage; behind everything where that is None."""
        stage = self.sink if number is None else number
        file, call = self.stage_calls.of(stage)
        chain, found = self._place_behind(stage), file.link(call)
        index = chain.links.index(found[1]) + 1 if found else 0
        while index < len(chain.links) and chain.links[index].home is None:
            index += 1  # what was put in before stands in front
        new = new_call(imports.spelled(file, call, text))
        chain.insert(len(chain.links) if number is None else index, Link(new))

    def remove(self, number: int) -> None:
        """Leave a stage's call out."""
        file, chain, link = self._link(number)
        after = (own for own, before in self._before.items() if before == number)
        undone = next((own for own in after if {self.stages[each].method for each in (number, own)} == _UNDONE), None)
        if undone is not None:
            statements.check_handed_on(file, link.call, self._chains(undone, number))
        chain.remove(link)
        statements.drop_if_idle(file, chain)
        self._follow(number)

    def move_before(self, number: int, other: int) -> None:
        """Move a stage's call to right before another's."""
        file, chain, link = self._link(number)
        other_file, target, before = self._link(other)
        if file is not other_file:
            raise CannotPatchError("the two calls are in different files")
        ahead = self.stage_calls.calls.get(self._before.get(other, other), (file, None))[1]
        if chain is not target and branches.is_across(file, ahead, target, chain):
            place = self._place_behind(self._before[other])
            branches.move_across(file, place, self._chains(number, other), link, before)
        elif chain is not target:
            statements.move_between(file, self._chains(number, other), link, before)
        else:
            here, there = chain.links.index(link), chain.links.index(before)
            if there < here:  # the calls change, their leads stay
                chain.links.insert(there, chain.links.pop(here))
        self._follow(number)
        self._before[number], self._before[other] = self._before[other], number

    def fuse(self, numbers: tuple[int, ...]) -> None:
        """Make one map of consecutive ones with the same arguments, in the place of the last."""
        links = [self._link(number) for number in numbers]
        file, chain, last = links[-1]
        if any(each is not chain for _, each, _ in links):
            raise CannotPatchError("the maps are in different statements")
        calls = [link.call for _, _, link in links]
        functions = [arg for call in calls if (arg := argument_of(call, "map_func")) is not None]
        if len(functions) < len(calls):
            raise CannotPatchError("a map's function was not found")
        elements = [self.stages[each].element for each in numbers[:-1]]
        file.values[functions[-1]] = statements.composed(file, functions, elements)
        for _, _, link in links[:-1]:
            last.above = (*link.above, *last.above)
            chain.remove(link)

    def parse_batch(self, number: int) -> None:
        """Parse a batch of serialized examples in a map's function."""
        file, call = self.stage_calls.of(number)
        given = argument_of(call, "map_func")
        if given is not None and isinstance(given.value, cst.Lambda):
            statements.parse_batch(file, given.value)
        else:
            definition = self._definition(number)
            statements.parse_batch(definition.file, definition.node)

    def vectorize(self, number: int) -> None:
        """Run a map's function on a whole batch, through `tf.vectorized_map`."""
        file, call = self.stage_calls.of(number)
        given = argument_of(call, "map_func")
        if given is None or "#" in file.code(given.value):
            raise CannotPatchError("its function was not found, or has a comment in it")
        element = self.stages[self.stages[number].inputs[0]].element
        file.values[given] = statements.vectorized(file, call, given.value, element)

    def _definition(self, number: int) -> definitions.Definition:
        """Return where a map's function is defined."""
        call = self.stage_calls.of(number)[1]
        return definitions.of_map(self.stage_calls, self.stages[number], argument_of(call, "map_func"))

    def divide(self, number: int, after: int, count: int, within: str) -> None:
        """Define both halves of a map's function behind it, and map the first behind an earlier stage.

        With `within`, likewise those of the function of that name that it calls.
        """
        file, call = self.stage_calls.of(number)
        definition, given = self._definition(number), argument_of(call, "map_func")
        name, line = definition.node.name.value, definition.file.lines(definition.node)[0]
        first = self.stage_calls.of(after)[1]
        others = branches.check_divided(file, first, self._chains(number, after), self._link(number)[2])
        definition.check_before(first, call)
        called = map_functions.read(file.code(given.value)) if given is not None else None
        ways = function_halves.splits_within if within else function_halves.splits
        try:
            found = ways(definition.file.text, name, line, called, definition.is_method)
        except function_halves.CannotSplitError as reason:
            raise CannotPatchError(str(reason)) from None
        split = function_halves.chosen(found, count, within)
        if split is None or given is None:
            raise CannotPatchError("its function has changed")
        check_divided(self.stages[number], split.given, is_of_module=definition.is_of_module)
        if map_functions.names_in(split.given[0].values()):  # which may be set in between: `shuffle(self.size())`
            statements.check_calls(file, self._link(number)[2], self._arguments_between(number, after))
        of_called = ("", "") if split.within is None else definition.write_called(split.within, first, call)
        fixed, random = definition.free_names()
        mapped = [split.mapped(half, definition.prefix + name) for half, name in enumerate((fixed, random))]
        new = f".map({mapped[0]}, num_parallel_calls=tf.data.AUTOTUNE)"
        self.insert_after(after, new)
        for each in others:
            each.insert(len(each.links), Link(new_call(imports.spelled(file, call, new))))
        file.values[given] = expression(mapped[1])
        definition.write_behind({fixed: split.fixed(fixed, of_called[0]), random: split.random(random, of_called[1])})

    def decorate(self, number: int, workers: int, decorator: str) -> None:
        """Put a decorator, of a module of Python's, on the method of a PyDataset that is a stage."""
        single_edits.decorate(self.stage_calls, self.stages[number], self.stages[workers], decorator)

    def memoize(self, made: MemoizableCall, decorator: str) -> None:
        """Have a function under a decorator, of a module of Python's, make a call in the user's Python."""
        file = self.stage_calls.file(made.file)
        nodes = memoize.nodes_of(file, made)
        if not nodes:
            raise CannotPatchError(f"the call was not found in line {made.line}")
        memoize.memoize(file, nodes, made, decorator)

    def rename(self, number: int, method: str) -> None:
        """Call another method in a stage's call."""
        file, call = self.stage_calls.of(number)
        if not isinstance(call.func, cst.Attribute) or called_name(call) == APPLY:
            raise CannotPatchError("it is no call on another dataset")
        file.renamed[call] = method

    def gather_batches(self, source: int, batch: int) -> None:
        """Make a `from_tensor_slices` a `range` of its rows, and put a map that gathers them behind a batch."""
        file, call = self.stage_calls.of(source)
        branches.check_read_once(file, call, self._chains(batch, source))
        given = argument_of(call, "tensors")
        if given is None or given.keyword is not None or not isinstance(call.func, cst.Attribute):
            raise CannotPatchError("what it cuts into slices was not found")
        rows = file.free_name("rows", "row_numbers")
        count, made = single_edits.gather(file, call, given.value, self.stages[source].element, rows)
        self.insert_after(batch, f".map(lambda {rows}: {made})")
        file.renamed[call] = "range"
        file.values[given] = expression(count)

    def gather_windows(self, source: int, window: int, flat_map: int) -> None:
        """Make a `from_tensor_slices` a `range` of first rows, and of windows a map that gathers them."""
        (file, call), (_, cut), (_, behind) = map(self.stage_calls.of, (source, window, flat_map))
        statements.check_handed_on(file, call, self._chains(flat_map, source))
        given, function = argument_of(call, "tensors"), argument_of(behind, "map_func")
        if given is None or given.keyword is not None or function is None or not isinstance(call.func, cst.Attribute):
            raise CannotPatchError("what it cuts into slices was not found")
        if not all(bindings.unchanged(file, arg.value, call, behind) for arg in cut.args):
            raise CannotPatchError("the calls are in different places")
        texts = {name: self._given(file, cut, name) for name in PARAMETERS["window"]}
        sizes = {name: text if text.isidentifier() or text.isdigit() else f"({text})" for name, text in texts.items()}
        stride = "" if texts["stride"] in ("", "1") else f"{sizes['stride']} * "
        start, tensorflow = file.free_name("start", "first_row"), imports.tensorflow(file, call)
        rows = (
            f"{start}[..., {tensorflow}newaxis] + {stride}{tensorflow}range({texts['size']}, dtype={tensorflow}int64)"
        )
        count, made = single_edits.gather(file, call, given.value, self.stages[source].element, rows)
        shift = texts["size"] if self.stages[window].arguments.get("shift") is None else texts["shift"]
        end = f"{count} - {sizes['size']} + 1" if not stride else f"{count} - {stride}({texts['size']} - 1)"
        self._link(flat_map)
        self.remove(window)
        self.rename(flat_map, "map")
        file.renamed[call] = "range"
        file.values[given] = expression(end if shift == "1" else f"0, {end}, {shift}")
        file.values[function] = expression(f"lambda {start}: {made}")

    def set_options(self, lines: list[str]) -> None:
        """Put the lines that make the options, with ``{name}`` for their variable, before the sink's statement."""
        file, call = self.stage_calls.of(self.sink)
        found = file.link(call)
        name = file.free_name("options", "data_options")
        own = [imports.spelled(file, call, each.replace("{name}", name)) for each in lines]
        file.write_before(found[0].base if found else call, own)
        self.insert_after(None, f".with_options({name})")

    def _make_chains(self) -> None:
        links: dict[cst.CSTNode, SourceFile] = {}
        for number, (file, call) in self.stage_calls.calls.items():
            stage = self.stages[number]
            if stage.inputs and stage.method not in _STATIC and isinstance(call.func, cst.Attribute):
                links[call] = file
        below = {call: call.func.value for call in links}  # type: ignore[attr-defined]
        for top in links.keys() - set(below.values()):
            calls = [top]
            while below[calls[-1]] in links:
                calls.append(below[calls[-1]])
            links[top].add_chain(calls[::-1])  # type: ignore[arg-type]

    def _link(self, number: int) -> tuple[SourceFile, Chain, Link]:
        file, call = self.stage_calls.of(number)
        found = file.link(call)
        if found is None:
            raise CannotPatchError(f"{self.stages[number].label} is no call on another dataset")
        return file, *found

    def _place_behind(self, number: int) -> Chain:
        """Return the chain that a call behind a stage stands in, or would."""
        file, call = self.stage_calls.of(number)
        found = file.link(call)
        return found[0] if found is not None else file.chain_on(call)

    def _chains(self, number: int, other: int) -> list[Chain]:
        """Return the chains that hold the calls from an earlier stage, the other, to a stage; of one file."""
        found: list[Chain] = []
        file = self.stage_calls.of(other)[0]
        while True:
            own, call = self.stage_calls.of(number)
            link = own.link(call)
            found[:0] = [link[0]] if link is not None and link[0] not in found[:1] else []
            if number == other:
                return found
            if own is not file or link is None or number not in self._before:
                raise CannotPatchError("the two calls are in different places")
            number = self._before[number]

    def _arguments_between(self, number: int, other: int) -> list[cst.BaseExpression]:
        """Return what the calls between a stage and an earlier one, the other, are given."""
        found: list[cst.BaseExpression] = []
        while (number := self._before[number]) != other:
            found += [arg.value for arg in self.stage_calls.of(number)[1].args]
        return found

    def _given(self, file: SourceFile, call: cst.Call, name: str) -> str:
        """Return the text of an argument, with the edits so far; empty where the call does not give it."""
        arg = argument_of(call, name)
        value = file.added.get(call, {}).get(name) if arg is None else file.values.get(arg, arg.value)
        return file.code(value) if isinstance(value, cst.BaseExpression) else ""

    def _follow(self, gone: int) -> None:
        """Note that what came after a stage, which has left its place, comes after the one before it."""
        self.sink = self._before[gone] if self.sink == gone else self.sink
        self._before = {number: self._before[gone] if own == gone else own for number, own in self._before.items()}
