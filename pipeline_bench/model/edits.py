"""The edits to a pipeline, one class each: applied to its calls, written as a patch, described, and what they claim.

A child applies edits (`Edit.apply`), with TensorFlow; the parent combines, patches and describes them, without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from pipeline_bench.errors import PipelineBenchError
from pipeline_bench.model.calls import AUTOTUNE, PARAMETERS, POOL, WHOLE, EditOfCalls, Value, value_text
from pipeline_bench.model.function_edits import DivideMap, KeepBatches, Memoize, ParseBatch, Vectorize
from pipeline_bench.model.service_edits import DistributeToService, OffloadToService
from pipeline_bench.text import Text

if TYPE_CHECKING:
    from pipeline_bench.diagnosis.patching.patch import Patch
    from pipeline_bench.tfdata.plan import CallPlan


class SetArgument(EditOfCalls):
    """Give a call another value for one argument, or one that it did not have."""

    order = 0
    stage_fields = ("stage",)
    edit: Literal["set-argument"] = "set-argument"
    stage: int
    argument: Text
    value: Value

    def apply(self, plan: CallPlan) -> None:
        plan.set_argument(self.stage, self.argument, self.value)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, self.argument)]

    def write(self, patch: Patch) -> None:
        patch.set_argument(self.stage, self.argument, value_text(self.argument, self.value))

    def describe(self, stage: Callable[[int], str]) -> str:
        said = f"Give {stage(self.stage)} the argument `{self.argument}={value_text(self.argument, self.value)}`"
        return (
            f"{said}, or that attribute where its class takes no such argument; in Keras 2, `fit` takes it"
            if self.argument in POOL
            else said
        )


class InsertAfter(EditOfCalls):
    """Put a call behind a stage: ``prefetch(AUTOTUNE)``, ``cache()``."""

    order = 2
    stage_fields = ("stage",)
    edit: Literal["insert-after"] = "insert-after"
    stage: int
    method: Literal["prefetch", "cache", "repeat", "shuffle"]
    arguments: dict[Text, Value] = Field(default_factory=dict)

    @property
    def kept_stage(self) -> int | None:
        return self.stage if self.method == "cache" else None

    @property
    def keeps_files(self) -> bool:
        return "filename" in self.arguments

    def apply(self, plan: CallPlan) -> None:
        plan.insert_after(self.stage, self.method, self.arguments)

    def claims(self) -> list[tuple[int | str, str]]:  # of caches, one is enough
        return [(self.stage, self.method), *([("cache", "place")] if self.method == "cache" else [])]

    def write(self, patch: Patch) -> None:
        if self.keeps_files:  # what another run or another pipeline has left there would be read
            super().write(patch)
        patch.insert_after(self.stage, self.call)

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Write `{self.call}` behind {stage(self.stage)}"

    @property
    def call(self) -> str:
        return _written(self.method, self.arguments)


def _written(method: str, arguments: Mapping[str, Value], texts: Mapping[str, str] = {}) -> str:
    """Return a call with its first argument by position, and ``repeat(-1)`` as ``repeat()``; `texts` replace values."""
    given: list[str] = []
    for name, value in arguments.items():
        if method == "repeat" and value in (None, -1) and name not in texts:
            continue
        first, text = name == PARAMETERS[method][0] and not given, texts.get(name, value_text(name, value))
        given.append(text if first else f"{name}={text}")
    return f".{method}({', '.join(given)})"


class KeepSamples(EditOfCalls):
    """Keep the samples of a stage's batches in memory, and shuffle and batch them behind that, anew in each epoch."""

    order = 2
    edit: Literal["keep-samples"] = "keep-samples"
    stage: int
    batch_size: int
    buffer_size: int
    """Of the shuffle, in samples."""
    passes: int | None = 1
    """How often the shuffled samples come before they are batched, as `Dataset.repeat` counts; None: for ever."""
    drop_remainder: bool = False
    """Of the batch."""

    @property
    def kept_stage(self) -> int | None:
        return self.stage

    @property
    def kept_parts(self) -> int:
        return self.batch_size

    def apply(self, plan: CallPlan) -> None:
        for method, arguments in self._calls():
            plan.insert_after(self.stage, method, arguments)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, "place"), ("cache", "place")]

    def write(self, patch: Patch) -> None:
        for method, arguments in self._calls():
            patch.insert_after(self.stage, _written(method, arguments, patch.kept_arguments))

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Write `{self.call}` behind {stage(self.stage)}"

    @property
    def call(self) -> str:
        """The calls, each on what the one before gives."""
        return "".join(_written(method, arguments) for method, arguments in self._calls())

    def _calls(self) -> list[tuple[str, dict[str, Value]]]:
        again: list[tuple[str, dict[str, Value]]] = [] if self.passes == 1 else [("repeat", {"count": self.passes})]
        drops: dict[str, Value] = {"drop_remainder": True} if self.drop_remainder else {}
        mixed: list[tuple[str, dict[str, Value]]] = [("shuffle", {"buffer_size": self.buffer_size}), *again]
        return [("unbatch", {}), ("cache", {}), *mixed, ("batch", {"batch_size": self.batch_size, **drops})]


class Remove(EditOfCalls):
    """Leave a call out; what came after it gets what came before it."""

    edit: Literal["remove"] = "remove"
    stage: int

    def apply(self, plan: CallPlan) -> None:
        plan.take_out(self.stage)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, WHOLE)]

    def write(self, patch: Patch) -> None:
        patch.remove(self.stage)

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Leave {stage(self.stage)} out"


class MoveBefore(EditOfCalls):
    """Move a stage with one input upstream, to right before another stage of the same chain.

    ``MoveBefore(stage=batch, other=map)`` batches before the map.
    """

    stage_fields = ("stage", "other")
    edit: Literal["move-before"] = "move-before"
    stage: int
    other: int

    def apply(self, plan: CallPlan) -> None:
        moved, other = plan.node(self.stage), plan.node(self.other)
        at = plan.single_input(moved)
        while at != other.id:
            if len(plan.consumers(at)) != 1:
                raise PipelineBenchError(f"{moved.label} is not in one chain behind {other.label}")
            at = plan.single_input(plan.nodes[at])
        if len(plan.consumers(other.id)) != 1:
            raise PipelineBenchError(f"{other.label} feeds several stages")
        source = plan.single_input(other)
        plan.take_out(moved.id)
        plan.put(moved.reading(plan.single_input(moved), source))
        plan.put(plan.nodes[other.id].reading(source, moved.id))

    def claims(self) -> list[tuple[int | str, str]]:  # nothing moves between two maps that become one
        return [(self.stage, "place"), (self.other, f"{self.stage} before it")]

    def write(self, patch: Patch) -> None:
        patch.move_before(self.stage, self.other)

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Move {stage(self.stage)} to right before {stage(self.other)}"


class Fuse(EditOfCalls):
    """Make one map of consecutive ones, upstream first; the call stands where the last one stood."""

    edit: Literal["fuse"] = "fuse"
    stages: tuple[int, ...]

    def apply(self, plan: CallPlan) -> None:
        plan.fuse(self.stages)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(stage, WHOLE) for stage in self.stages]

    def write(self, patch: Patch) -> None:
        patch.fuse(self.stages)

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Make one map of {', '.join(map(stage, self.stages))}"


class BatchInGenerator(EditOfCalls):
    """Have a `from_generator` gather whole batches in Python, and leave the `batch` behind it out.

    Only where nothing stands between the two.
    """

    edit: Literal["batch-in-generator"] = "batch-in-generator"
    generator: int
    batch: int

    def apply(self, plan: CallPlan) -> None:
        plan.batch_in_generator(self.generator, self.batch)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.generator, WHOLE), (self.batch, WHOLE)]

    def describe(self, stage: Callable[[int], str]) -> str:
        return (
            f"Have the generator of {stage(self.generator)} gather whole batches, for example with `numpy.stack`, "
            f"give its `output_signature` a leading size of None, and leave {stage(self.batch)} out"
        )


class GatherBatches(EditOfCalls):
    """Have a `from_tensor_slices` give numbers of rows, and a map behind the `batch` gather the rows of each batch.

    Only where what stands between the two does the same to any elements.
    """

    edit: Literal["gather-batches"] = "gather-batches"
    source: int
    batch: int

    def apply(self, plan: CallPlan) -> None:
        plan.gather_batches(self.source, self.batch)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.source, WHOLE), (self.batch, "place")]

    def write(self, patch: Patch) -> None:
        patch.gather_batches(self.source, self.batch)

    def describe(self, stage: Callable[[int], str]) -> str:
        return (
            f"Make {stage(self.source)} `tf.data.Dataset.range(n)` of the number of rows, and write "
            f"`.map(lambda rows: tf.gather(tensor, rows))` behind {stage(self.batch)}, with a tensor on the CPU of "
            "every array"
        )


class GatherWindows(EditOfCalls):
    """Have a `from_tensor_slices` with a `window` behind it give numbers of first rows, and a map gather the windows.

    The map stands where the `flat_map` stood that made a row of each window. It takes one number, or a batch of them.
    """

    edit: Literal["gather-windows"] = "gather-windows"
    source: int
    window: int
    flat_map: int

    def apply(self, plan: CallPlan) -> None:
        plan.gather_windows(self.source, self.window, self.flat_map)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.source, WHOLE), (self.window, WHOLE), (self.flat_map, WHOLE)]

    def write(self, patch: Patch) -> None:
        patch.gather_windows(self.source, self.window, self.flat_map)

    def describe(self, stage: Callable[[int], str]) -> str:
        return (
            f"Make {stage(self.source)} `tf.data.Dataset.range(0, end, shift)` of the windows' first rows, leave "
            f"{stage(self.window)} out, and make {stage(self.flat_map)} `.map(lambda start: tf.gather(tensor, "
            "start[..., tf.newaxis] + stride * tf.range(size, dtype=tf.int64)))`, with a tensor on the CPU of the array"
        )


class Interleave(EditOfCalls):
    """Make an `interleave` of a `flat_map` with the same function: several inner datasets at the same time."""

    edit: Literal["interleave"] = "interleave"
    stage: int
    cycle_length: int
    num_parallel_calls: int = AUTOTUNE

    def apply(self, plan: CallPlan) -> None:
        plan.interleave(self.stage, cycle_length=self.cycle_length, num_parallel_calls=self.num_parallel_calls)

    def claims(self) -> list[tuple[int | str, str]]:
        return [(self.stage, WHOLE)]

    def write(self, patch: Patch) -> None:
        patch.rename(self.stage, "interleave")
        for name, text in self._given().items():
            patch.set_argument(self.stage, name, text)

    def describe(self, stage: Callable[[int], str]) -> str:
        arguments = ", ".join(f"{name}={text}" for name, text in self._given().items())
        return f"Make {stage(self.stage)} an `interleave` of the same function, with `{arguments}`"

    def _given(self) -> dict[str, str]:
        names = ("cycle_length", "num_parallel_calls")
        return {name: value_text(name, getattr(self, name)) for name in names}


class SetOptions(EditOfCalls):
    """Add ``with_options`` behind the sink, by dotted names: ``{"threading.private_threadpool_size": 8}``."""

    order = 3
    edit: Literal["set-options"] = "set-options"
    options: dict[Text, Value]

    def apply(self, plan: CallPlan) -> None:
        plan.options |= self.options

    def claims(self) -> list[tuple[int | str, str]]:
        return [("options", name) for name in self.options]

    def write(self, patch: Patch) -> None:
        patch.set_options(self.lines("{name}"))

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"Write `{'; '.join(self.lines('options'))}` and end the pipeline with `.with_options(options)`"

    def lines(self, name: str) -> list[str]:
        """Return the statements that make the options, `name` being their variable."""
        given = [f"{name}.{key} = {value_text(key, value)}" for key, value in self.options.items()]
        return [f"{name} = tf.data.Options()", *given]


class PrefetchToDevice(EditOfCalls):
    """Add ``prefetch_to_device`` behind the sink, for the accelerator of the trial."""

    order = 4
    edit: Literal["prefetch-to-device"] = "prefetch-to-device"
    buffer_size: int = AUTOTUNE

    def apply(self, plan: CallPlan) -> None:
        plan.device_buffer = self.buffer_size

    def claims(self) -> list[tuple[int | str, str]]:
        return [("sink", self.edit)]

    def write(self, patch: Patch) -> None:
        patch.insert_after(None, self._call())

    def describe(self, stage: Callable[[int], str]) -> str:
        return f"End the pipeline with `{self._call()}`"

    def _call(self) -> str:
        size = "" if self.buffer_size == AUTOTUNE else f", buffer_size={self.buffer_size}"
        return f'.apply(tf.data.experimental.prefetch_to_device("/GPU:0"{size}))'


Edit = Annotated[
    SetArgument
    | InsertAfter
    | KeepSamples
    | Remove
    | MoveBefore
    | Fuse
    | ParseBatch
    | Vectorize
    | DivideMap
    | BatchInGenerator
    | GatherBatches
    | GatherWindows
    | KeepBatches
    | Memoize
    | Interleave
    | SetOptions
    | PrefetchToDevice
    | OffloadToService
    | DistributeToService,
    Field(discriminator="edit"),
]
"""Edits apply one after another; stages keep their ids, so an edit may name a stage that an earlier one moved."""
