"""The tensors of the arrays that a `from_tensor_slices` cuts, as text: what makes them, and what gathers their rows."""

from __future__ import annotations

import libcst as cst
from libcst.helpers import get_full_name_for_node

from pipeline_bench.diagnosis.patching import imports
from pipeline_bench.diagnosis.patching.source_file import SourceFile
from pipeline_bench.model.calls import CannotPatchError
from pipeline_bench.model.element import Element

_NOT_WRITTEN_OUT = "what it cuts into slices is not an array, nor arrays in tuples and dicts that are written out"


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
