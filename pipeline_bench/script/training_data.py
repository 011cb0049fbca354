"""The datasets of a script where its training begins: by name and line, and which of them is meant."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal

from pipeline_bench import user_code
from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.job import WHY_EAGER, Eager
from pipeline_bench.model.pipeline import Location, ScriptTraining
from pipeline_bench.script.loop_step import LoopStep
from pipeline_bench.text import joined, units
from pipeline_bench.tfdata import dataset_graph, public_api
from pipeline_bench.tfdata.keras_input import Kind
from pipeline_bench.user_code import legacy_keras
from pipeline_bench.user_code.source_loops import SourceLoop

_MOST_LISTED = 12
_KERAS_BATCH = 32
"""Rows of a batch where a `fit` is not told how many."""
_PART = r"(?:^|_|(?<=[a-z\d])(?=[A-Z]))(?i:{})(?i:set|ds|data|dataset|loader|gen|iter)?(?:_|\d|$|(?<=[a-z])(?=[A-Z]))"
_TRAINING = re.compile(_PART.format("train|training|tr"))
"""In the name of a dataset: ``train_ds``, ``trainset``, ``dsTrain``."""
_VALIDATION = re.compile(_PART.format("val|valid|validation|dev|eval|evaluation|test"))
"""Likewise: ``val_ds``, ``testset``, ``valDs``."""

Does = Literal["train", "test", "predict"]
"""What a call does with a model: `fit`, `evaluate` or `predict`."""


@dataclass(frozen=True)
class Named:
    """A dataset and the variable that holds it; an empty name where none does."""

    name: str
    data: Any
    place: Location | None = None
    """Where its last call stands."""

    @property
    def text(self) -> str:
        """The dataset as it is listed: ``train_ds, train.py:31``."""
        where = "" if self.place is None else self.place.short
        unnamed = {"arrays": "arrays", "generator": "a generator", "PyDataset": "a PyDataset"}
        name = self.name or unnamed.get(kind(self.data) or "", "a dataset without a name")
        return ", ".join(part for part in (name, where) if part)


@dataclass(frozen=True)
class CapturedTraining:
    """What a training was about to use.

    Attributes:
        data: what it takes its batches from: a `tf.data.Dataset`, a distributed one, or what else a `fit` was given.
        model: the Keras model that trains, or what makes the step of a loop of the script's own; None where that is
            not known.
        line: where in the user's code it began, `train.py:12`.
        does: what the model does with a batch.
        given: the arguments of the `fit`, by name.
        datasets: those of the script that have a name by then, the one that is trained on first.
        epochs: of the `fit`; None where it is none.
        in_loop: whether the `fit` is called in a loop of the user's code.
        within: the innermost loop that begins a pass over the data, or calls the `fit`, in each of its rounds; None
            where there is none, or it is not known.
        never_reads_again: whether nothing that one pass of the script's own loop kept is read by another.
        steps: how many batches a loop of the script's own takes of an iterator at the most, where its text tells.
        later_fits: the lines further down the script that call `fit` too.
        of_loop: the place of its iterator among those that the loop takes from; None where it takes from one.
        eager: why its steps run as eager code, where that is known of a loop's.
        one_batch: whether the `fit` is given arrays of no more rows than one batch.
        steps_a_call: of the `fit`, as `WallTime.steps_a_call`.
        part: as `ScriptTraining.part`.
        handed_on_by: as `ScriptTraining.handed_on_by`.
    """

    data: Any
    model: Any
    line: str
    does: Does = "train"
    given: Mapping[str, Any] = field(default_factory=dict)
    datasets: tuple[Named, ...] = ()
    epochs: int | None = None
    in_loop: bool = False
    within: SourceLoop | None = None
    never_reads_again: bool = False
    steps: int | None = None
    later_fits: tuple[int, ...] = ()
    of_loop: int | None = None
    eager: Eager | None = None
    one_batch: bool = False
    steps_a_call: int | None = None
    part: str = ""
    handed_on_by: str = ""


def epochs_of(given: Mapping[str, Any], does: Does) -> int | None:
    """Return how many epochs a model's `fit` trains with these arguments, or how often another method passes over data.

    None where Keras is given no numbers.
    """
    if does != "train":
        return 1
    try:
        return max(1, int(given.get("epochs", 1)) - int(given.get("initial_epoch", 0)))
    except (TypeError, ValueError):
        return None


def steps_of(given: Mapping[str, Any], epochs: int | None) -> int | None:
    """Return how many batches a `fit` takes with these arguments in all its epochs; None where they do not say it."""
    try:
        return None if epochs is None else int(given["steps_per_epoch"]) * epochs
    except (KeyError, TypeError, ValueError):
        return None


def fit_in_one_batch(data: Any, given: Mapping[str, Any]) -> bool:
    """Return whether a `fit` with these arguments only trains on arrays that have no more rows than one batch.

    One that also validates, or has callbacks, does more than `train_on_batch` would in its place.
    """
    if any(given.get(name) for name in ("callbacks", "validation_split")) or given.get("validation_data") is not None:
        return False
    while isinstance(data, dict | list | tuple):
        data = next(iter(data.values() if isinstance(data, dict) else data), None)
    try:
        (rows, *_), batch_size = data.shape, int(given.get("batch_size") or _KERAS_BATCH)
        return bool(rows <= batch_size)
    except (AttributeError, TypeError, ValueError):  # of what has no rows that are known
        return False


def kind(data: Any) -> Kind | None:
    """Return what a `fit` was given; None where it is nothing that is known here."""
    import keras
    import tensorflow as tf

    if isinstance(data, tf.data.Dataset):
        return "tf.data"
    if isinstance(data, tf.distribute.DistributedDataset):
        return "distributed"
    if isinstance(data, keras.utils.PyDataset):
        return "PyDataset"
    if isinstance(data, dict | list | tuple) or hasattr(data, "shape"):
        return "arrays"
    # Keras 3 takes no other iterator, Keras 2 any: a `zip` of two generators.
    is_iterator = hasattr(data, "__next__") and hasattr(data, "__iter__") and not isinstance(data, tf.data.Iterator)
    return "generator" if inspect.isgenerator(data) or (is_iterator and legacy_keras.NAME in sys.modules) else None


def named(frame: FrameType | None, *first: Any) -> tuple[Named, ...]:
    """Return the datasets that variables of the user's code hold now, in a frame and those that called it.

    Args:
        frame: the innermost.
        first: comes first, under its name where it has one.
    """
    held = list(_held(frame))
    leading = [next((each for each in held if each.data is data), Named("", data)) for data in first]
    others = [each for each in held if all(each.data is not data for data in first)]
    return (*leading, *others)


def _held(frame: FrameType | None) -> Iterator[Named]:
    """Yield the outermost name of each, as the user knows it."""
    frames = [each for each in user_code.outward(frame) if user_code.origin(each.f_code.co_filename) == "user"]
    seen: set[int] = set()
    for each in reversed(frames):
        scopes = [each.f_globals] if each.f_globals.get("__name__") == "__main__" else []
        for scope in (*scopes, each.f_locals):
            for name, value in list(scope.items()):
                if id(value) not in seen and _is_dataset(value):
                    seen.add(id(value))
                    yield Named(name, value)


def _is_dataset(value: Any) -> bool:
    import keras
    import tensorflow as tf

    kinds = (tf.data.Dataset, tf.distribute.DistributedDataset, keras.utils.PyDataset)
    return isinstance(value, kinds) and not public_api.is_symbolic(value)


def is_eager_off() -> bool:
    """Return whether the script has switched eager execution off, for good."""
    from tensorflow.python.eager import context

    return bool(context.default_execution_mode == context.GRAPH_MODE)


def require_eager() -> None:
    """See that a dataset can be taken from.

    Raises:
        UserCodeError: eager execution is switched off.
    """
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise UserCodeError(
            "Your code switched eager execution off (tf.compat.v1.disable_eager_execution or disable_v2_behavior), "
            "without which a dataset cannot be taken from.",
            "Leave it on where the dataset is made, or move what switches it off out of that file.",
        )


def are_batches_of(dataset: Any, given: Sequence[Any]) -> bool:
    """Return whether what a model was given is shaped as the dataset's elements are."""
    import tensorflow as tf

    parts = tf.nest.flatten([part for part in given if part is not None])
    specs = tf.nest.flatten(dataset.element_spec)
    if len(parts) != len(specs) or not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        return False
    shapes = [tf.TensorShape(getattr(part, "shape", None)) for part in parts]
    return all(spec.shape.is_compatible_with(shape) for spec, shape in zip(specs, shapes, strict=True))


def choose(
    training: CapturedTraining,
    selector: str | None,
    place: Callable[[Any], Location | None],
    is_made_in: Callable[[Any, SourceLoop | None], bool] = lambda *_: False,
) -> tuple[ScriptTraining, Any]:
    """Return what is said of a script's training, and the dataset of it that is meant.

    Args:
        training: where the script was left.
        selector: see `chosen`; None for what is trained on.
        place: see `chosen`.
        is_made_in: whether a loop makes a dataset anew in each of its rounds.

    Raises:
        UserCodeError: see `chosen`.
    """

    def is_alike(data: Any) -> bool:
        return data is training.data or (
            kind(data) == kind(training.data) == "tf.data" and data.element_spec == training.data.element_spec
        )

    datasets = [replace(each, place=place(each.data)) for each in training.datasets]
    if selector is not None:
        found = chosen(datasets, selector)
    else:
        found = datasets[0] if training.given else of_loop(datasets, is_alike)
    alike, is_whole = is_alike(found.data), found.data is training.data
    whole = getattr(found.data, "_original_dataset", found.data)  # that a strategy distributes
    taken = training.steps if is_whole and training.steps is not None and kind(whole) == "tf.data" else None
    of_pass = None if training.within is None else taken
    trained = ScriptTraining(
        line=training.line,
        model=training.model is not None and alike,
        step=training.model.name if isinstance(training.model, LoopStep) and alike else "",
        dataset=found.text,
        datasets=tuple(each.text for each in datasets),
        generator_uses=_used_by(training.data, datasets) if is_whole else "",
        epochs=training.epochs,
        in_loop=training.in_loop and not is_made_in(found.data, training.within),
        steps=steps_of(training.given, training.epochs) if training.given else taken if of_pass is None else None,
        pass_steps=of_pass,
        leaves_passes=of_pass is not None and dataset_graph.is_left(whole, of_pass),
        behind=_behind(training),
        never_reads_again=training.never_reads_again and is_whole,
        later_fits=training.later_fits,
        of_loop=training.of_loop,
        eager=training.eager,
        one_batch=training.one_batch and is_whole,
        steps_a_call=training.steps_a_call if alike else None,
        part=training.part if training.model is not None and alike else "",
        handed_on_by=training.handed_on_by if is_whole else "",
    )
    return trained, found.data


def _used_by(generator: Any, datasets: Sequence[Named]) -> str:
    """Return the name of the first of some datasets that the text of a generator names; empty where it names none."""
    frame = getattr(generator, "gi_frame", None)
    if frame is None:
        return ""
    loaded = (each.argval for each in dis.get_instructions(frame.f_code) if each.opname == "LOAD_GLOBAL")
    held = [*frame.f_locals.values(), *(frame.f_globals.get(name) for name in loaded)]
    return next((each.name for each in datasets if each.name and any(each.data is value for value in held)), "")


def _behind(training: CapturedTraining) -> str:
    if training.given.get("class_weight") is not None:
        return "its class weights"
    strategy = getattr(training.model, "distribute_strategy", None)
    return type(strategy).__name__ if getattr(strategy, "num_replicas_in_sync", 1) > 1 else ""


def of_loop(datasets: Sequence[Named], is_alike: Callable[[Any], bool]) -> Named:
    """Return what a script's own loop trains on: what it takes from, unless by its name that only validates.

    A script may validate before its first epoch, with the function that also trains. That it trains there is then no
    evidence, and the one dataset that is named as training's and has like elements is meant.

    Args:
        datasets: what the loop takes from, and the others that have a name by then.
        is_alike: whether a dataset's elements are such as the loop takes.
    """
    first, *others = datasets
    if not _VALIDATION.search(first.name):
        return first
    meant = [each for each in others if _TRAINING.search(each.name) and is_alike(each.data)]
    return meant[0] if len(meant) == 1 else first


def notes(training: ScriptTraining, reached_ns: float, script: str) -> list[str]:
    """Return what a reader should know of how a script was run, a sentence each; `script` is it with its arguments."""
    took = units.seconds(reached_ns / 1e9)
    # A pool may call `fit` itself, with no line of the user's.
    where = f", {training.line}" if ":" in training.line else ""
    sentences = [
        f"The script took {took} until it trained{where}, apart from TensorFlow's import. "
        "Each process of the trials runs it up to there; the budget does not count that."
    ]
    if training.later_fits:
        first, *others = training.later_fits
        lines = f"lines {joined(map(str, training.later_fits), 'and')}" if others else f"line {first}"
        sentences.append(f"It also calls fit in {lines}: --training {first} measures that.")
    if training.handed_on_by and training.model:
        sentences.append(
            f"The loop trains on what {training.handed_on_by}, a generator of the script's, makes of these elements. "
            "That work is in no trial here."
        )
    if training.part:
        sentences.append(
            f"A step is one call of {training.part}, and the loop calls more for each batch, which is not run here: it "
            "takes longer for a batch, and waits for a smaller share of that, as "
            f"`pipeline-bench run -- python {script}` tells."
        )
    elif training.model and training.step:
        sentences.append(
            f"The training gains at most what is said here: a step is one call of {training.step}, and what else the "
            "loop does is not run."
        )
    if not training.model and training.epochs is not None:
        sentences.append("The model is not trained on it: whether what takes it waits for it is not known.")
    elif not training.model:
        sentences.append(
            "Only `pipeline-bench run` tells whether the training waits for this, for the loop's own code is not run "
            f"here: `pipeline-bench run -- python {script}`."
        )
    if training.eager is not None:
        sentences.append(
            f"Its steps run as eager code, op by op from Python: {WHY_EAGER[training.eager]}. A step in a tf.function "
            "usually takes less time, and could be run here too."
        )
    if training.generator_uses:
        sentences.append(
            f"The generator uses the dataset {training.generator_uses}, whose stages are not looked at here: --dataset "
            f"{training.generator_uses} measures them, without the model."
        )
    if len(training.datasets) > 1:
        one = "" if training.of_loop is None else ", of several that were begun the one that was waited for longest"
        listed = _listed(training.datasets)
        sentences.append(f"Measured: {training.dataset}{one}. --dataset N, LINE or NAME selects another: {listed}.")
    return sentences


def chosen(datasets: Sequence[Named], selector: str) -> Named:
    """Return the dataset that is asked for.

    Args:
        datasets: the one that is trained on, and the others.
        selector: a name, a line, or a number from 1 in the order in which they are listed.

    Raises:
        UserCodeError: none of them is; the hint lists them.
    """
    number = int(selector) if selector.isdecimal() else 0
    by_name = [each for each in datasets if each.name == selector]
    by_line = [each for each in datasets if each.place is not None and _covers(each.place, number)]
    by_number = datasets[number - 1 : number] if number else []
    for found in (by_name, by_line, by_number):
        if found:
            return found[0]
    listed = _listed([each.text for each in datasets])
    raise UserCodeError(f"the script has no dataset {selector!r} where its training begins", f"it has {listed}")


def _listed(texts: Sequence[str]) -> str:
    """``1: train_ds, train.py:31; 2: val_ds, train.py:32``."""
    shown = [f"{number}: {text}" for number, text in enumerate(texts[:_MOST_LISTED], 1)]
    more = [f"and {len(texts) - _MOST_LISTED} more"] if len(texts) > _MOST_LISTED else []
    return "; ".join([*shown, *more])


def _covers(place: Location, line: int) -> bool:
    return place.line <= line <= (place.end_line or place.line)
