"""Single kinds of edits: workers and kept batches of a PyDataset, gathered slices, what kept samples take over.

Of an array that is cut into slices the text is told of what makes its tensor, and of what gathers its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.patching import bindings, imports, statements
from pipeline_bench.diagnosis.patching.source_file import NOT_AT_ONCE, Chain, SourceFile, called_name
from pipeline_bench.diagnosis.patching.stage_calls import StageCalls, argument_of
from pipeline_bench.model.calls import TAKE_WORKERS, WORKERS, CannotPatchError
from pipeline_bench.model.edits import Edit, KeepSamples, Remove
from pipeline_bench.model.element import Element
from pipeline_bench.model.pipeline import Inspection, Stage

_NOT_WRITTEN_OUT = "what it cuts into slices is not an array, nor arrays in tuples and dicts that are written out"


def takes_attributes_alone(stages: Mapping[int, Stage], number: int, call: cst.Call) -> bool:
    """Return whether attributes alone set the workers of what a call makes.

    The class of a library may not take the arguments, and one that does not call Keras' `__init__` does not. The `fit`
    of Keras 2 does.

    Args:
        stages: of the pipeline, by id.
        number: of a stage, of the workers or of anything else.
        call: of that stage.
    """
    stage = stages[number]
    if stage.method != WORKERS or called_name(call) in TAKE_WORKERS:
        return False
    return stage.by_attributes or _is_of_library(stages[stage.inputs[0]], stage)


def set_attribute(file: SourceFile, call: cst.Call, name: str, text: str) -> None:
    """Set an attribute of what a call makes in a line of its own, after the statement that names it.

    Raises:
        CannotPatchError: that statement is no ``name = call``, or shares its line with another.
    """
    statement = file.statement(call)
    line = file.line_of(statement)
    is_only = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    if line is not None and is_only and isinstance(statement, cst.Assign) and statement.value is call:
        target = statement.targets[0].target
        if len(statement.targets) == 1 and (made := _dotted(file, target)):
            file.lines_after.setdefault(line, []).append(f"{made}.{name} = {text}")
            return
    raise CannotPatchError(f"set the attribute `{name}` of what the call makes")


def decorate(calls: StageCalls, method: Stage, workers: Stage, decorator: str) -> None:
    """Put a decorator, of a module of Python's, on the method that a stage runs, and import that module.

    It stands above the user's definition. The method of a library's class is decorated in front of the call of it.

    Args:
        calls: of the pipeline.
        method: its stage.
        workers: the stage of the workers that run it.
        decorator: with the module's name: ``functools.cache``.

    Raises:
        CannotPatchError: neither is there, the module's name is something else there, or the file has no import.
    """
    module = decorator.partition(".")[0]
    if _is_of_library(method, workers):
        file, call = calls.of(workers.id)
        named = _dotted(file, call.func)
        if not named or method.function is None or called_name(call) != method.function.name:
            raise CannotPatchError("the call that makes it does not name its class")
        imports.require(file, module, call)
        file.write_before(call, [f"{named}.{method.method} = {decorator}({named}.{method.method})"])
        return
    found = calls.files.get(method.place.file) if method.place is not None else None
    definition = found.definition(method.method, method.place.line) if found is not None and method.place else None
    if found is None or definition is None:
        raise CannotPatchError("its class is not in a file of yours, or has changed meanwhile")
    imports.require(found, module, definition)
    found.decorators[definition] = decorator


def _is_of_library(method: Stage, workers: Stage) -> bool:
    """Return whether a library's class has the method that workers run: it is then told where the user makes one."""
    return workers.place is not None and method.place == workers.place


def _dotted(file: SourceFile, node: cst.CSTNode) -> str:
    """Return the text of a name or of an attribute of one, ``self.train``; empty of anything else."""
    text = file.code(node)
    return text if get_full_name_for_node(node) == text else ""


def gather(
    file: SourceFile, call: cst.Call, value: cst.BaseExpression, element: Element | None, rows: str
) -> tuple[str, str]:
    """Write lines that make tensors of what `from_tensor_slices` cuts, in front of its statement.

    Of an array in a function TensorFlow keeps a copy in its graph, which is slow and must be less than 2 GB.

    Args:
        file: that it is in.
        call: of `from_tensor_slices`.
        value: what it is given: one array, or arrays in tuples and dicts that are written out, or in a ``dict(…)``.
        element: of what it gives.
        rows: the variable that holds numbers of rows.

    Returns:
        The text of how many rows there are, and the text that gathers some.

    Raises:
        CannotPatchError: it is anything else.
    """
    tensorflow = imports.tensorflow(file, call)
    tensors = _Tensors(file, tensorflow, rows)
    made = tensors.gathered(value, element)
    file.write_before(call, [f'with {tensorflow}device("CPU:0"):\n{"".join(tensors.lines)}'])
    return tensors.count, made


class _Tensors:
    """The lines that make tensors of the arrays that are cut: `lines`."""

    def __init__(self, file: SourceFile, tensorflow: str, rows: str) -> None:
        self._file, self._tensorflow, self._rows = file, tensorflow, rows
        self.lines: list[str] = []
        self._arrays: list[str] = []
        """The variables that hold a tensor."""
        self._dicts: list[str] = []
        """Those that hold a dict of tensors."""

    @property
    def count(self) -> str:
        """The text of how many rows the arrays have.

        Raises:
            CannotPatchError: there is no array.
        """
        first = [*self._arrays, *(f"next(iter({each}.values()))" for each in self._dicts)][:1]
        if not first:
            raise CannotPatchError(_NOT_WRITTEN_OUT)
        return f"{first[0]}.shape[0]"

    def gathered(self, part: cst.BaseExpression, element: Element | None) -> str:
        """Return the text that gathers rows of a part of what is cut; `element` is what the part gives.

        Raises:
            CannotPatchError: it is not written out.
        """
        if element is None:
            raise CannotPatchError(_NOT_WRITTEN_OUT)
        if element.kind == "tensor":
            return self._of_array(part)
        if element.kind == "tuple" and isinstance(part, cst.Tuple):
            return self._of_tuple(part, element)
        if element.kind == "dict" and isinstance(part, cst.Dict):
            return self._of_dict(part, element)
        if element.kind == "dict" and isinstance(part, cst.Call) and self._file.code(part.func) == "dict":
            return self._of_made_dict(part, element)
        raise CannotPatchError(_NOT_WRITTEN_OUT)

    def _of_array(self, part: cst.BaseExpression) -> str:
        name = self._free_name(part, "tensor")
        self.lines.append(f"    {name} = {self._tensorflow}convert_to_tensor({self._line(part)})\n")
        self._arrays.append(name)
        return f"{self._tensorflow}gather({name}, {self._rows})"

    def _of_tuple(self, part: cst.Tuple, element: Element) -> str:
        values = [each.value for each in part.elements if isinstance(each, cst.Element)]
        if not len(values) == len(part.elements) == len(element.parts):
            raise CannotPatchError(_NOT_WRITTEN_OUT)
        made = [self.gathered(value, each) for value, each in zip(values, element.parts, strict=True)]
        return f"({', '.join(made)}{',' if len(made) == 1 else ''})"

    def _of_dict(self, part: cst.Dict, element: Element) -> str:
        items = [each for each in part.elements if isinstance(each, cst.DictElement)]
        keys = [each.key.evaluated_value for each in items if isinstance(each.key, cst.SimpleString)]  # no variable
        plain = all(each.kind == "tensor" for each in element.parts)  # else each value needs its own part
        if not len(keys) == len(items) == len(part.elements) == len(element.parts):
            raise CannotPatchError(_NOT_WRITTEN_OUT)
        if not plain and keys != [each.name for each in element.parts]:
            raise CannotPatchError(_NOT_WRITTEN_OUT)
        pairs = zip(items, element.parts, strict=True)
        made = [f"{self._file.code(item.key)}: {self.gathered(item.value, each)}" for item, each in pairs]
        return f"{{{', '.join(made)}}}"

    def _of_made_dict(self, part: cst.Call, element: Element) -> str:
        """Return the text for ``dict(table)``, a dict of the arrays of a table's columns."""
        if not element.parts or any(each.kind != "tensor" for each in element.parts):
            raise CannotPatchError(_NOT_WRITTEN_OUT)
        tensors = self._free_name(part.args[0].value if len(part.args) == 1 else part, "tensors")
        key, column = self._file.free_name("name"), self._file.free_name("column")
        made = f"{key}: {self._tensorflow}convert_to_tensor({column})"
        self.lines.append(f"    {tensors} = {{{made} for {key}, {column} in {self._line(part)}.items()}}\n")
        self._dicts.append(tensors)
        gathered = f"{key}: {self._tensorflow}gather({column}, {self._rows})"
        return f"{{{gathered} for {key}, {column} in {tensors}.items()}}"

    def _free_name(self, part: cst.BaseExpression, ending: str) -> str:
        named = get_full_name_for_node(part) if isinstance(part, cst.Name | cst.Attribute) else None
        return self._file.free_name(f"{named.split('.')[-1] if named else 'samples'}_{ending}")

    def _line(self, part: cst.BaseExpression) -> str:
        """Return the text of a part, which is on one line."""
        text = self._file.code(part)
        if any(mark in text for mark in "#\r\n"):
            raise CannotPatchError("an array that it cuts into slices is written on several lines")
        return text


def kept_arguments(
    inspection: Inspection,
    calls: StageCalls,
    chains: Callable[[int, int], list[Chain]],
    edits: Sequence[Edit],
    edit: KeepSamples,
) -> dict[str, str]:
    """Return how the arguments are written that the new calls take over, as far as variables are in them, by name.

    Args:
        inspection: of the pipeline.
        calls: of its stages.
        chains: returns those from an earlier stage, which comes second, to a stage.
        edits: all of the fix.
        edit: the one that keeps samples.

    Raises:
        CannotPatchError: a call that they come from may make another pipeline's elements too, such as the
            validation's, or an argument is another value behind the samples.
    """
    file, last = calls.of(edit.stage)
    texts: dict[str, str] = {}
    for stage in _taken_from(inspection, edits, edit):
        if stage_graph.is_librarys(inspection, stage):
            _check_block(calls, stage, file, last)
            continue
        own, call = calls.of(stage.id)
        try:
            statements.check_handed_on(own, call, chains(edit.stage, stage.id))
        except CannotPatchError as reason:
            raise CannotPatchError(f"{reason}; change the pipeline of the training alone") from None
        if stage.method == "batch":
            texts |= _text(file, call, "batch_size", last)
            if _has_variables(file, argument_of(call, "drop_remainder")):
                raise CannotPatchError("a variable decides on the drop_remainder of its batch")
        elif Remove(stage=stage.id) in edits:
            texts |= _text(file, call, "count", last)
    if "count" in texts and edit.passes == 1:  # which writes no repeat
        raise CannotPatchError(f"the count of its repeat, {texts['count']}, is 1 in this run alone")
    return texts


def _taken_from(inspection: Inspection, edits: Sequence[Edit], edit: KeepSamples) -> Iterator[Stage]:
    """Yield the nearest shuffle and batch in front of the samples, and the repeat there that the fix moves."""
    trunk = stage_graph.trunk(inspection, inspection.stage(edit.stage))
    changed = {number for each in edits for number, _ in each.claims()}
    for method in ("shuffle", "batch"):
        yield from [each for each in trunk if each.method == method][:1]
    yield from (each for each in trunk if each.method == "repeat" and each.id in changed)


def _check_block(calls: StageCalls, stage: Stage, file: SourceFile, last: cst.Call) -> None:
    """Check that a library's call stands in the block of the call whose samples are kept.

    Raises:
        CannotPatchError: it may make one of several pipelines' elements.
    """
    call = calls.ending(stage.place) if stage.place is not None and stage.place.file in calls.files else None
    if call is None or call not in file.nodes or not _is_of_one(file, call, last):
        raise CannotPatchError(f"the call that makes {stage.label} stands elsewhere, as for one of several pipelines")


def _is_of_one(file: SourceFile, call: cst.Call, last: cst.Call) -> bool:
    """Return whether a call of the same block is handed on to another one, and nothing else can be in its place."""
    first, end = file.statement(call), file.statement(last)
    block, around_last = file.block(end), file.around(last)
    if any(isinstance(each, NOT_AT_ONCE) and each not in around_last for each in file.around(call)):
        return False
    if first is end or first not in block:
        return first is end
    names = bindings.stored_and_used(file, first)[0]
    between = block[block.index(first) + 1 : block.index(end)]
    setting = [each for each in between if bindings.overlapping(bindings.stored_and_used(file, each)[0], names)]
    return _is_made_of(first, call) and all(any(_is_made_of(each, name) for name in names) for each in setting)


def _is_made_of(statement: cst.CSTNode, base: cst.Call | str) -> bool:
    """Return whether a statement sets variables to a call, or to a variable, with at most methods called on it."""
    value = statement.value if isinstance(statement, cst.Assign | cst.AnnAssign) else None
    while value is not base and isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        value = value.func.value
    return value is base or (value is not None and bindings.variable(value) == base)


def _text(file: SourceFile, call: cst.Call, name: str, last: cst.Call) -> dict[str, str]:
    """Return how an argument with variables is written, by its name; nothing of others.

    Raises:
        CannotPatchError: one of the variables is set again in front of the last call.
    """
    arg = argument_of(call, name)
    if arg is None or not _has_variables(file, arg):
        return {}
    text = file.code(arg.value)
    if not bindings.unchanged(file, arg.value, call, last) or any(mark in text for mark in "#\r\n"):
        raise CannotPatchError(f"the {name} of its call is written so that it cannot be written again")
    return {name: text}


def _has_variables(file: SourceFile, arg: cst.Arg | None) -> bool:
    return arg is not None and bool(bindings.stored_and_used(file, arg.value)[1])
