"""Calls of tf.data as data: their parameters and values, what every edit of them can do, and what writes it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pipeline_bench.model import Data
from pipeline_bench.text import Line, Text

if TYPE_CHECKING:
    from pipeline_bench.diagnosis.patching.patch import Patch
    from pipeline_bench.model.pipeline import Stage
    from pipeline_bench.tfdata.plan import CallPlan

AUTOTUNE = -1
"""`tf.data.AUTOTUNE`, in the arguments of a stage and of an edit."""
Value = int | float | bool | Text | None
"""An argument as data; AUTOTUNE is -1."""

WORKERS = "workers"
"""The method of the stage in which Keras' workers make the batches of a `PyDataset`."""
WORKERS_QUEUE = "queue"
"""The method of the stage in which they hand their batches over."""
TAKE_WORKERS = {f"{name}{of}" for name in ("fit", "evaluate", "predict") for of in ("", "_generator")}
"""The methods of a Keras 2 model, which take the workers of their data as arguments."""
OPENING = frozenset({"interleave", "flat_map", "parallel_interleave"})
"""Methods, and functions for `apply`, that give the elements of the datasets that their function makes, one for each of
their input's."""
POOLED = frozenset({"batch", "filter", "map"})
"""Methods whose calls share a pool, by default of a thread for each CPU; those of an interleave have their own."""
RANDOM = frozenset({"shuffle", "sample_from_datasets", "rejection_resample", "random", "apply(shuffle_and_repeat)"})
"""Methods and labels of stages whose order or elements are random."""
KEEPING = frozenset({"cache", "snapshot"})
"""Methods that keep what a whole pass gives: later passes run nothing in front of them."""
UNCHANGED = frozenset({"prefetch", "with_options"})
"""Methods that give their elements on as they are: what stands in front of one may as well stand behind it."""
TAKE_ANY = frozenset({"shuffle", "repeat", "prefetch", "take", "skip"})
"""Methods that do the same whatever the elements are: mapped or not, or only their numbers."""
HAND_OVER = TAKE_ANY | {"concatenate", "from_tensor_slices", "from_tensors", "range", "shard", "zip"}
"""Methods that compute nothing: a cache behind such stages alone keeps what lies in memory already."""
BATCH_AS_IS = frozenset({"batch", "ragged_batch"})
"""Methods that put samples together as they are: a function of whole batches may come after them. Padding is none."""
BATCHING = frozenset({*BATCH_AS_IS, "padded_batch", "sparse_batch", "map_and_batch"})
"""Methods, and functions for `apply`, that make one element of several."""
POOL = ("workers", "use_multiprocessing", "max_queue_size")
"""The arguments that say who makes the batches of a PyDataset, or of a `Sequence` of Keras 2."""
_FILES = ("filenames", "compression_type", "buffer_size", "num_parallel_reads")
PARAMETERS: dict[str, tuple[str, ...]] = {
    "map": ("map_func", "num_parallel_calls", "deterministic"),
    "flat_map": ("map_func",),
    "interleave": ("map_func", "cycle_length", "block_length", "num_parallel_calls", "deterministic"),
    "filter": ("predicate",),
    "batch": ("batch_size", "drop_remainder", "num_parallel_calls", "deterministic"),
    "padded_batch": ("batch_size", "padded_shapes", "padding_values", "drop_remainder"),
    "window": ("size", "shift", "stride", "drop_remainder"),
    "shuffle": ("buffer_size", "seed", "reshuffle_each_iteration"),
    "prefetch": ("buffer_size",),
    "cache": ("filename",),
    "repeat": ("count",),
    "take": ("count",),
    "skip": ("count",),
    "from_tensor_slices": ("tensors",),
    "TFRecordDataset": _FILES,
    "TextLineDataset": _FILES,
    "FixedLengthRecordDataset": ("filenames", "record_bytes", "header_bytes", "footer_bytes", "buffer_size"),
    "__init__": POOL,  # of a PyDataset
    "list_files": ("file_pattern", "shuffle", "seed"),
}
"""The first parameters of tf.data's calls in their order, TensorFlow 2.21, for arguments that are given by position."""
_TUNABLE = {"num_parallel_calls", "num_parallel_reads", "cycle_length", "buffer_size"}
"""Arguments that take AUTOTUNE."""


Gives = Literal["array", "opened", "constant", "other"]
"""What a call gives: what `copy()` copies (an array of NumPy's, a picture of Pillow's), one of these that holds a file
open (a part of a map, a picture that is not decoded), what cannot be changed, or something of which a part may be."""


class MemoizableCall(Data):
    """A call in the user's Python that gives the same for the same arguments, as far as it was tried.

    Or some assignments in a row, of which only what the last one's variable has at their end counts. Lines count from
    1, columns from 0 in bytes of UTF-8.
    """

    file: Text
    line: int
    column: int
    end_line: int
    end_column: int
    text: Line
    variable: Line = ""
    """The one that the last of the assignments is to; empty of a call."""
    arguments: tuple[Text, ...]
    """The parts without a call that it depends on, as they are written: ``path``, ``self.folder``."""
    owner: Text = ""
    """The one of them that is the object of its own methods, as ``self``, where it stays as far as these read it."""
    owner_reads: tuple[Text, ...] = ()
    """The attributes that they read."""
    share: float = 0.0
    """What it takes of the stage's time, 0 to 1."""
    batch_bytes: float = 0.0
    """The size of its results for one batch, on average; what is asked for again takes nothing."""
    singles: bool = False
    """Whether it gives arrays of 64-bit floats that 32-bit ones hold to the last bit, where they were compared."""
    drawn: bool | None = False
    """Whether its arguments are others each time that the same batch is made, as the number of a frame that is drawn:
    what is kept then grows from epoch to epoch. None where that is not known."""
    gives: Gives = "other"

    def is_around(self, call: MemoizableCall) -> bool:
        """Return whether it is assignments among which another call stands."""
        begins = (self.line, self.column) <= (call.line, call.column)
        ends = (call.end_line, call.end_column) <= (self.end_line, self.end_column)
        return bool(self.variable) and self.file == call.file and begins and ends

    @property
    def lines(self) -> str:
        """Where it stands: ``line 11``, ``lines 11 to 12``."""
        return f"line {self.line}" if self.line == self.end_line else f"lines {self.line} to {self.end_line}"


class CannotPatchError(Exception):
    """A change cannot be written as a patch; the message says why, as the end of a sentence."""


def value_text(argument: str, value: Value) -> str:
    """Return a value as Python: ``tf.data.AUTOTUNE``, ``16``, ``"cache"``, ``None``."""
    if value == AUTOTUNE and not isinstance(value, bool) and argument in _TUNABLE:
        return "tf.data.AUTOTUNE"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


WHOLE = "*"
"""The claim to all of a stage: no other edit of it fits."""


class EditOfCalls(Data, ABC):
    """A change to a pipeline's calls."""

    order: ClassVar[int] = 1
    """Of edits that are made together: what changes a call (0), what moves it (1), what stands behind others (2) and
    behind the sink (3 to 5)."""
    stage_fields: ClassVar[tuple[str, ...]] = ()
    """Its fields that number the stages which it changes, of an edit that may do the same to each stage of a call."""

    @property
    def stage_numbers(self) -> tuple[int, ...]:
        """The stages of its `stage_fields`."""
        return tuple(getattr(self, name) for name in self.stage_fields)

    def at(self, numbers: Mapping[int, int]) -> Self:
        """Return the same edit of other stages, by the numbers of those that it changes."""
        changed = {name: numbers.get(own, own) for name, own in zip(self.stage_fields, self.stage_numbers, strict=True)}
        return self.model_copy(update=changed)

    @property
    def only_stage(self) -> int | None:
        """The stage whose call alone it changes, as it may at every stage that this call makes; None of other edits."""
        return self.stage_numbers[0] if len(self.stage_fields) == 1 else None

    def without_stage(self) -> str:
        """Return what it does, of one with an `only_stage`: the same text for the same change at another stage."""
        return self.model_copy(update={"stage": 0}).model_dump_json()

    @property
    def kept_stage(self) -> int | None:
        """The stage whose elements it keeps, so that only the first epoch computes them; None where it keeps none."""
        return None

    @property
    def kept_parts(self) -> int:
        """As how many elements it keeps each element of that stage, at most."""
        return 1

    @property
    def keeps(self) -> bool:
        """Whether later epochs have from memory or files what only the first one computes."""
        return self.kept_stage is not None

    @property
    def keeps_files(self) -> bool:
        """Whether it keeps elements in files, for which only the user knows a path."""
        return False

    @abstractmethod
    def apply(self, plan: CallPlan) -> None:
        """Change the plan of a pipeline; `CallPlan.insert_after` takes any method of tf.data.

        Raises:
            PipelineBenchError: the edit does not fit the pipeline.
        """

    @abstractmethod
    def claims(self) -> list[tuple[int | str, str]]:
        """Return what no other edit may touch: stages or options, and what of them; see `WHOLE`.

        Of a stage that is an argument, its "place" where it moves, or a method that is put behind it; of ("cache",
        "place") there is one in a pipeline; of "options" each by its name, of the "sink" each edit.
        """

    def write(self, patch: Patch) -> None:
        """Write the edit as a change of the user's source; ``tf.data.`` stands for the file's own name of that.

        Raises:
            CannotPatchError: it is no such change.
        """
        raise CannotPatchError("")

    @abstractmethod
    def describe(self, stage: Callable[[int], str]) -> str:
        """Return what to write and where, as a sentence without its full stop; `stage` names one with its place."""

    def words(self, stages: Mapping[int, Stage], reason: str = "") -> str:
        """Return what to write and where, in one or two sentences.

        Args:
            stages: of the pipeline as it is written, by id.
            reason: why there is no patch, as the end of a sentence; empty where that needs no saying.
        """
        why = f" (no diff: {reason})" if reason else ""
        return f"{self.describe(lambda number: _named(stages.get(number)))}{why}."


def _named(stage: Stage | None) -> str:
    if stage is None:
        return "a stage that is not known"
    name = "the PyDataset" if stage.method == WORKERS else f"`{stage.label}`"
    return name if stage.place is None else f"{name} ({stage.place.short})"
