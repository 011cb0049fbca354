"""A user's own pipeline as plain data: where it is, its stages, and what a child found out about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Literal

from pydantic import Field

from pipeline_bench.model import Data, Series
from pipeline_bench.model.calls import RANDOM, Value
from pipeline_bench.model.element import KnownElement
from pipeline_bench.model.job import Eager
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.text import Line, Text, safe

INFINITE, UNKNOWN = -1, -2
"""`tf.data.INFINITE_CARDINALITY`, where a pipeline never ends, and `tf.data.UNKNOWN_CARDINALITY`."""


Shared = Literal["alike", "fixed", "varying"]
"""How like a stage that of another dataset is which the same call makes.

``alike``: its function does the same, and all that varies from epoch to epoch there, up to that stage, or never ends,
does so here too. ``fixed``: its function does something else, and nothing varies in either dataset. ``varying``:
something varies; its function does the same, or it runs no Python, keeps no state and draws no random numbers.
"""


class Target(Data):
    """Where a function of the user's is: in a file, in an importable module, or pickled by value; or a whole script.

    Exactly one of `file`, `module` and `pickled` is given, kept as it is; `text` and `label` are to be read.
    """

    file: str | None = None
    module: str | None = None
    name: str
    """The function's name; dots reach into classes and objects."""
    pickled: str | None = None
    """A callable of a notebook, by cloudpickle, in base64."""
    argument: int | None = None
    """Passed to the function as its only argument, where given (``--batch-arg``)."""
    arguments: tuple[str, ...] | None = None
    """Of a script, which is run up to its training: what it is given on its command line. None for a function."""
    dataset: str | None = None
    """Of a script: which of its datasets is meant, by name, line or number; None: the one that it trains on."""
    training: str | None = None
    """Of a script: which training is meant, a `fit` by its number from 1, or any by its line; None: the first."""
    of_loop: int | None = None
    """Of a loop beside several iterators: whose, in their order; None: of the one that was waited for longest."""

    @property
    def is_script(self) -> bool:
        """Whether it is a whole script, not a function."""
        return self.arguments is not None

    @property
    def text(self) -> str:
        """The target as a user writes it: ``train.py:make_dataset``."""
        if self.arguments is not None:
            script = ["-m", str(self.module)] if self.file is None else [self.file]
            return safe(shlex.join([*script, *self.arguments]))
        return safe(f"{self.file or self.module}:{self.name}" if self.pickled is None else self.name)

    @property
    def label(self) -> str:
        """The target without its folder, for a title: ``train.py:make_dataset``."""
        if self.file is None:
            return safe(str(self.module)) if self.is_script else self.text
        return safe(PurePath(self.file).name if self.is_script else f"{PurePath(self.file).name}:{self.name}")


class Location(Data):
    """A call in the user's source: lines from 1, columns from 0 in bytes of UTF-8, or None if they are not known."""

    file: Text
    line: int
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: Line | None = None
    """The function that contains the call; None at module level."""
    text: Line = ""
    """The source line, stripped."""

    @property
    def short(self) -> str:
        """The file's name and the line, ``train.py:12``."""
        return f"{PurePath(self.file).name}:{self.line}"


class Stage(Data):
    """One call that made the pipeline: `Dataset.map`, `TFRecordDataset`, ….

    `id` counts the calls as they were made, the same in every process. The sink gives what the function returned.
    """

    id: int
    method: Line
    """The public name: ``map``, ``TFRecordDataset``; ``opaque`` of one from elsewhere, which cannot be made again."""
    inputs: tuple[int, ...] = ()
    arguments: dict[Text, Value] = Field(default_factory=dict)
    """The arguments as given, by parameter name, as far as they are data; a long text is cut."""
    function: UserFunction | None = None
    place: Location | None = None
    element: KnownElement = None
    inner: tuple[Stage, ...] = ()
    """What the function itself builds for each element (`interleave`, `flat_map`); listed, not measured one by one."""
    shared: bool | Shared = False
    """Whether its call also makes a stage of another dataset, and how like this one; True: as none of `Shared`."""
    others_go_on: bool = False
    """Whether such another dataset has further stages behind that one."""
    input_shares: tuple[float, ...] = ()
    """Of a `concatenate`, which part of its elements comes from each input, by their counts; empty if not known."""
    anew: bool = False
    """Whether the loop that goes round once for each pass over the data makes it each time: no cache lives on."""
    epoch_hooks: bool = False
    """Of a PyDataset's `__getitem__`: whether its class does something between epochs, which may change the batches."""
    by_attributes: bool = False
    """Of a PyDataset's workers: whether they can be set by its attributes alone."""
    serial: bool = False
    """Whether TensorFlow, asked to be deterministic, makes one call of its Python at a time, whatever its arguments."""
    left_early: bool | None = False
    """Whether a `take` or `zip` leaves it early in every pass, and TensorFlow empties a cache; None: not known."""

    @property
    def label(self) -> str:
        """The stage as a reader names it: ``map(decode)``."""
        return f"{self.method}({self.function.name})" if self.function else self.method

    @property
    def runs_python(self) -> bool:
        """Whether Python makes its elements: a generator does, and a function that leaves the graph."""
        return self.method == "from_generator" or (self.function is not None and self.function.python)

    @property
    def runs_python_within(self) -> bool:
        """Whether Python makes its elements, or those of what its function builds."""
        return any(each.runs_python for each in self.with_inner())

    @property
    def keeps_state(self) -> bool:
        """Whether it may go on from pass to pass where it was; see `UserFunction.keeps_state`."""
        return self.function is not None and self.function.keeps_state

    @property
    def draws(self) -> bool:
        """Whether its function draws random numbers, by its ops or in Python, as far as that is known."""
        return self.function is not None and (self.function.random or self.function.draws_in_python is True)

    @property
    def is_random(self) -> bool:
        """Whether it, or what its function builds for each element, draws random numbers or mixes the order."""
        return bool(self.random_methods) or any(each.draws for each in self.with_inner())

    @property
    def random_methods(self) -> frozenset[str]:
        """Those of `RANDOM` that it is, or that its function builds for each element."""
        return RANDOM & {name for each in self.with_inner() for name in (each.method, each.label)}

    @property
    def varies(self) -> bool:
        """Whether what it gives, or its order, may differ from epoch to epoch, by its graph and method."""
        return self.is_random or self.shuffles_files

    @property
    def shuffles_files(self) -> bool:
        """Whether it, or what its function builds for each element, lists files in another order in each epoch."""
        listed = (each.arguments for each in self.with_inner() if each.method == "list_files")
        return any(arguments.get("shuffle") is not False for arguments in listed)

    @property
    def ahead(self) -> int | None:
        """How many elements come in before it gives the first: a shuffle holds them, a skip leaves them out.

        None of another stage, and where that is not known.
        """
        given = self.arguments.get({"shuffle": "buffer_size", "skip": "count"}.get(self.method, ""))
        return given if isinstance(given, int) and given > 0 else None

    def with_inner(self) -> Iterator[Stage]:
        """Yield the stage, then all that its function builds, outer ones first."""
        yield self
        for each in self.inner:
            yield from each.with_inner()


class StageCost(Data):
    """What a stage costs for one element of the sink (a batch), measured alone: fed from memory, nothing after it.

    `elapsed_ns` is wall time with the stage's own parallelism as written, `cpu_ns` the CPU time over all threads; both
    without what the feeding cost. None where it was not measured, with the `reason`.
    """

    stage: int
    elapsed_ns: float | None = None
    cpu_ns: float | None = None
    queued_ns: float | None = None
    """For how long its threads could have run and had no core: other work had it, or the hypervisor."""
    calls: float = 1.0
    """How many of its calls could run at the same time, on threads of their own or in worker processes; one of Python's
    in threads, for its lock."""
    elements: float | None = None
    """How many elements it gives for one of the sink's."""
    element_bytes: float | None = None
    first_ns: float | None = None
    """How long its first element took: a shuffle fills its buffer first."""
    reason: Line | None = None
    late: bool = False
    """Whether it was not measured for want of time: more of it may measure it."""
    first_epoch_ns: float | None = None
    """Of a stage that a cache behind it spares in later epochs, or that keeps what it makes: wall time in the first."""
    first_epoch_cpu_ns: float | None = None
    """The same of its CPU time."""


class Tuned(Data):
    """What AUTOTUNE set over time for a stage of the pipeline as written."""

    stage: int | None
    """None where TensorFlow's node could not be matched to a stage: one that it inserted itself, for example."""
    node: Line
    """As TensorFlow names it: ``ParallelMapV2``."""
    parameter: Line
    """``parallelism``, ``buffer_size``, …; ``buffered_elements`` is not set by AUTOTUNE, but how full the buffer is."""
    at_ns: Series
    values: Series


class ScriptTraining(Data):
    """Where a script began to train, and what it trains."""

    line: Line
    """``train.py:31``."""
    model: bool = False
    """Whether the training's own step takes the batches: a Keras model's or `step`; else the pipeline is read alone."""
    step: Line = ""
    """The `tf.function` that makes the step of a loop of the script's own."""
    part: Line = ""
    """What a trial's step calls once, if the loop calls more for each batch, as its text shows: ``train_d``."""
    eager: Eager | None = None
    dataset: Line = ""
    """The one that is inspected, as it is listed: ``train_ds, train.py:12``."""
    datasets: tuple[Line, ...] = ()
    """All that had a name by then, in the order of their numbers."""
    handed_on_by: Line = ""
    """The generator of the script's that hands its loop what it makes of the elements: ``batches, train.py:12``."""
    generator_uses: Line = ""
    """The name of the dataset that the generator of its `fit` uses: ``train_ds``."""
    epochs: int | None = None
    """Of its `fit`; None where it is none, or does not say."""
    in_loop: bool = False
    """Whether the `fit` is called in a loop of the user's code, which may train on the same data again."""
    one_batch: bool = False
    """Whether its `fit` is given arrays of no more rows than one batch."""
    steps_a_call: int | None = None
    """Of its `fit`, as `WallTime.steps_a_call`."""
    steps: int | None = None
    """Batches that it takes in all, where `steps_per_epoch` of its `fit`, or the text of its loop, says it."""
    pass_steps: int | None = None
    """Batches that its loop takes of an iterator before it makes another, at the most, where its text says it."""
    leaves_passes: bool = False
    """Whether these are so few that no stage comes to its end, where a cache would be full."""
    behind: Line = ""
    """What the training puts behind its data: ``its class weights``, ``MirroredStrategy``."""
    never_reads_again: bool = False
    """Whether no pass of the script's loop reads what another kept: it has one, or each has its own dataset."""
    later_fits: tuple[int, ...] = ()
    """The lines further down the script that call `fit` too."""
    of_loop: int | None = None
    """As `Target.of_loop`, which was taken; None of a loop over one dataset."""

    @property
    def steps_known(self) -> int | None:
        """Batches that it takes in all, or else of each pass, where its text says either."""
        return self.steps if self.pass_steps is None else self.pass_steps

    @property
    def once(self) -> bool:
        """Whether the training is known to pass over its data only once."""
        return self.epochs == 1 and not self.in_loop


class Inspection(Data):
    """What a child found out about a pipeline, and how far it got."""

    stages: tuple[Stage, ...] = ()
    sink: int = 0
    element: KnownElement = None
    batch_size: int | None = None
    """The leading size of the sink's elements, where they share one; None where they are no batches."""
    cardinality: int | None = None
    """Elements of the sink; `INFINITE`, or None where TensorFlow does not know."""
    pass_elements: int | None = None
    """The same of one pass over the data, whatever repeats it; None where it is not known."""
    cached_elements: int | None = None
    """Of a trial whose edits keep something, the elements of a pass, once all of a pass was kept."""
    traced_anew: int = 0
    """Of a trial that trains by a `tf.function` of a script, how often that was traced behind the first time."""
    traced_anew_s: float = 0.0
    beside_model_ns: float | None = None
    """Of a PyDataset as written: its `__getitem__` for a batch, while steps ran."""
    element_bytes: float | None = None
    """Mean size of the sink's elements, as far as they were weighed."""
    first_ns: float | None = None
    """From asking the whole pipeline for its first element to having it; computed if `ahead_elements` is given."""
    ahead_elements: int | None = None
    """The most that a shuffle holds, or a skip leaves out, in trials, where as written the first element comes late."""
    make_ns: float | None = None
    """How long the user's function took, or their script until its training."""
    training: ScriptTraining | None = None
    api: Literal["tf.data", "PyDataset", "generator", "arrays"] = "tf.data"
    """What gives the batches: else than tf.data's, its stages are what Keras does with what a `fit` was given."""
    costs: tuple[StageCost, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    read_bytes: float | None = None
    """Bytes that the process read from files for one element of the sink, from the page cache or not."""
    disk_bytes_per_s: float | None = None
    """What the disk under the pipeline's files gives, measured by reading some of them past the page cache."""
    disk_reason: Line | None = None
    files: tuple[Text, ...] = ()
    """The first that the pipeline read."""
    source_bytes: float | None = None
    """The size of all files that its sources name."""
    default_parallelised: bool = True
    """Whether tf.data's default optimizations are on in the pipeline's options."""
    cold: bool = False
    """Whether the figures are of a first epoch: what the pipeline itself keeps could not be made in time, or nothing
    reads it."""
    warnings: tuple[Line, ...] = ()
    """What makes the training another than was meant, as where it trains on validation samples; in sentences."""
    notes: tuple[Line, ...] = ()
    """What else a reader should know, a sentence each: ``The dataset's own cache file was not used; …``."""

    def stage(self, number: int) -> Stage:
        """Return the stage of that id.

        Raises:
            KeyError: there is none.
        """
        return {stage.id: stage for stage in self.stages}[number]

    def cost(self, number: int) -> StageCost | None:
        """Return what the stage costs, where it was measured."""
        return next((cost for cost in self.costs if cost.stage == number), None)

    def measured(self, numbers: Iterable[int]) -> list[int]:
        """Return those of some stages whose cost was measured."""
        known = {cost.stage for cost in self.costs if cost.elapsed_ns is not None}
        return [number for number in numbers if number in known]

    @property
    def once(self) -> bool:
        """Whether a script is known to read no cache: it makes one pass, or its pipeline anew, or leaves each pass."""
        if self.anew:
            return True
        if self.training is None or self.training.in_loop:
            return False
        taken, whole = self.training.steps, self.pass_elements
        if self.training.leaves_passes or (taken is not None and whole is not None and taken <= whole):
            return True
        gives_a_pass = self.cardinality is not None and self.cardinality == self.pass_elements
        repeated = any(stage.method == "repeat" and stage.arguments.get("count") != 1 for stage in self.stages)
        return (self.training.once or self.training.never_reads_again) and (gives_a_pass or not repeated)

    @property
    def anew(self) -> bool:
        """Whether all of it is made anew for each pass."""
        return any(stage.anew for stage in self.stages) and all(stage.anew or stage.inputs for stage in self.stages)

    def of_first_epoch(self) -> Inspection:
        """Return the inspection with the costs of an epoch in which no cache is full yet."""
        return self.model_copy(update={"cold": True, "costs": tuple(map(_of_first_epoch, self.costs))})


def _of_first_epoch(cost: StageCost) -> StageCost:
    first = {"elapsed_ns": cost.first_epoch_ns, "cpu_ns": cost.first_epoch_cpu_ns, "reason": None}
    return cost if cost.first_epoch_ns is None else cost.model_copy(update=first)
