"""A stand-in for tf.data that runs a user's source and tells the calls, with their places, as the real recording does.

Its datasets compare as the chain of calls that made them, so that two sources can be seen to mean the same.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from pipeline_bench.diagnosis.patching.patch import change
from pipeline_bench.model.calls import PARAMETERS
from pipeline_bench.model.diagnosis import CodeChange, Fix
from pipeline_bench.model.edits import Edit
from pipeline_bench.model.element import Element
from pipeline_bench.model.pipeline import Inspection, Location, Stage
from pipeline_bench.model.user_function import UserFunction

FILE = "/home/user/train.py"
METHODS = (
    "map",
    "batch",
    "shuffle",
    "repeat",
    "prefetch",
    "cache",
    "take",
    "filter",
    "interleave",
    "flat_map",
    "with_options",
    "window",
    "skip",
    "unbatch",
    "reduce",
)


class Recorder:
    """Runs sources; `stages` are those of the last one."""

    def __init__(self, functions: bool = False) -> None:
        """With `functions`, the stages tell theirs."""
        self.functions = functions
        self.stages: list[Stage] = []

    def run(self, source: str) -> Dataset:
        """What ``make_dataset()`` of the source returns."""
        self.stages = []
        space: dict[str, Any] = {"tf": self.tensorflow(), "Dataset": self.tensorflow().data.Dataset}
        exec(compile(source, FILE, "exec"), space)
        made: Dataset = space["make_dataset"]()
        return made

    def inspection(self, sink: Dataset) -> Inspection:
        """What the child would tell."""
        return Inspection(stages=tuple(self.stages), sink=sink.number)

    def tensorflow(self) -> Any:
        """The names that the sources use."""
        static = SimpleNamespace(
            range=lambda *a: self.made("range", (), a, {}),
            zip=lambda parts: self.made("zip", tuple(parts), (), {}),
            from_tensor_slices=lambda *a, **k: self.made("from_tensor_slices", (), a, k),
        )
        data = SimpleNamespace(
            AUTOTUNE=-1,
            Dataset=static,
            Options=lambda: SimpleNamespace(threading=SimpleNamespace()),
            TFRecordDataset=lambda *a, **k: self.made("TFRecordDataset", (), a, k),
            FixedLengthRecordDataset=lambda *a, **k: self.made("FixedLengthRecordDataset", (), a, k),
            experimental=SimpleNamespace(prefetch_to_device=lambda device: ("to", device)),
        )
        return SimpleNamespace(
            data=data,
            device=lambda name: nullcontext(),
            convert_to_tensor=lambda values: SimpleNamespace(shape=[len(values)]),
        )

    def made(self, method: str, inputs: tuple[Dataset, ...], args: tuple[Any, ...], named: dict[str, Any]) -> Dataset:
        """Record a call of the frame that made it."""
        frame = sys._getframe(2)
        positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        line, end_line, column, end_column = positions
        assert line is not None
        place = Location(file=FILE, line=line, end_line=end_line, column=column, end_column=end_column)
        given = {**dict(zip(PARAMETERS.get(method, ()), args, strict=False)), **named}
        stage = Stage(
            id=len(self.stages),
            method=method,
            inputs=tuple(each.number for each in inputs),
            function=_function(args) if self.functions else None,
            place=place,
            element=_element(args[0] if args else None) if method == "from_tensor_slices" else Element(kind="tuple"),
            arguments={name: value for name, value in given.items() if isinstance(value, int | float)},
        )
        self.stages.append(stage)
        return Dataset(self, stage.id, method, inputs, args, named)


class Dataset:
    """One call, with those before it."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        method: str,
        inputs: tuple[Dataset, ...],
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        self.recorder, self.number, self.inputs = recorder, number, inputs
        self.call = (method, *map(_shown, args), *((name, _shown(value)) for name, value in named.items()))

    def __getattr__(self, method: str) -> Any:
        if method not in METHODS:
            raise AttributeError(method)
        return lambda *args, **named: self.recorder.made(method, (self,), args, named)

    def apply(self, made: Any) -> Dataset:
        """A call that is no stage."""
        return Dataset(self.recorder, self.number, "apply", (self,), (made,), {})

    @property
    def calls(self) -> list[Any]:
        """From the source to the sink; several inputs as a list of such lists."""
        before = self.inputs[0].calls if len(self.inputs) == 1 else [each.calls for each in self.inputs]
        return [*before, self.call]


def inspected(source: str, *, functions: bool = False) -> Inspection:
    """What the child would tell of the pipeline that ``make_dataset()`` of the source returns."""
    recorder = Recorder(functions)
    return recorder.inspection(recorder.run(source))


def fix_of(*edits: Edit) -> Fix:
    """A fix of which only the edits matter."""
    return Fix(kind="k", variant="v", title="t", edits=edits)


def change_of(source: str, *edits: Edit) -> CodeChange:
    """The code to write for these edits of the pipeline of the source."""
    return change({FILE: source}, inspected(source), fix_of(*edits))


def _element(tensors: Any) -> Element:
    """The structure of slices, a list being an array of numbers."""
    if isinstance(tensors, tuple):
        return Element(kind="tuple", parts=tuple(map(_element, tensors)))
    if isinstance(tensors, dict):
        parts = tuple(_element(value).model_copy(update={"name": key}) for key, value in tensors.items())
        return Element(kind="dict", parts=parts)
    return Element(kind="tensor", dtype="int32", shape=())


def _function(args: tuple[Any, ...]) -> UserFunction | None:
    code = getattr(args[0], "__code__", None) if args else None
    return UserFunction(name=args[0].__name__, file=FILE, line=code.co_firstlineno) if code is not None else None


def _shown(value: Any) -> Any:
    if isinstance(value, SimpleNamespace):
        return str(value)
    return getattr(value, "__name__", value) if callable(value) else value


def patched(text: str, diff: str) -> str:
    """The text with a unified diff applied, strictly: every line of it must be there.

    Raises:
        AssertionError: a line is not.
    """
    old, new, at = text.splitlines(keepends=True), [], 0
    body = diff.splitlines(keepends=True)[2:]
    for number, line in enumerate(body):
        unended = body[number + 1 : number + 2] and body[number + 1].startswith("\\")
        own = line[1:].removesuffix("\n") if unended else line[1:]
        if line.startswith("@@"):
            begin = max(0, int(line.split()[1][1:].split(",")[0]) - 1)
            new += old[at:begin]
            at = begin
        elif line.startswith("\\"):
            continue
        if line[0] in " -":
            assert old[at] == own, (old[at], own)
            at += 1
        if line[0] in " +":
            new.append(own)
    return "".join([*new, *old[at:]])
