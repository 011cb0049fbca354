"""The ideas for what no edit of a pipeline's calls can do, a sentence or two each: what to write anew, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from pipeline_bench.diagnosis import segments, stage_graph
from pipeline_bench.diagnosis.fixes import cache_places, workers
from pipeline_bench.diagnosis.stage_graph import named, subject
from pipeline_bench.model.calls import BATCHING, HAND_OVER, KEEPING, TAKE_ANY
from pipeline_bench.model.element_flow import endless_by_itself
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.user_function import UserFunction
from pipeline_bench.text import units
from pipeline_bench.user_code.source_loops import ONE_ITERATOR

_PARSE_EXAMPLES = "by tf.io.parse_example, of SequenceExamples by tf.io.parse_sequence_example"
_PARSE_LINES = "by tf.strings, or by tf.io.decode_csv, with use_quote_delim=False where quotes are part of the text"
_PICTURE_AXES = 3
"""An array of as many or more is a picture, whose decoding takes one at a time."""
_COSTLY_SHARE = 0.3
"""A line that takes less of a function's time is not worth writing anew."""
_SHORT_NS = 100_000.0
"""A run of a line that takes less is mostly one of few values, as of a row of an array."""
_RANDOM = "; else, as where it changes pictures at random, make it cheaper"
_OF_ONE_CORE = 1.3
"""What computes for longer, times its elapsed time, runs on several cores."""
_MANY = 8
"""Elements of a generator, or runs of a line, for a batch: from so many on, what each takes beside its work counts."""
_HANDING_OVER_NS = 160_000.0
"""What `from_generator` takes for an element of two small arrays, besides making it (TensorFlow 2.21, two cores; of 128
at once, behind an `unbatch`, 6 to 8 us each)."""
_HANDED_OVER_SHARE = 4
"""An element that takes more than so many times as long is made slowly, rather than handed over slowly."""
_FEW_CALLS = 2
"""A stage of fewer calls at the same time leaves cores idle."""
_TOOK_NO_TIME = "took no time"
SAVED_BY_HALF = 0.5
"""At most, of the time of what goes through half the memory."""
_OF_KERAS = ("__getitem__", "generator")
"""Methods of the stage in which the Python of a PyDataset, or of a generator, makes a batch."""
DENSE = ("batch", "padded_batch")
"""Methods whose batches have rows of one shape."""

_DECODE_THE_CROP = (
    "crops them. Of JPEG files, tf.io.decode_and_crop_jpeg decodes the crop alone; tf.io.extract_jpeg_shape reads the "
    "size that a random place is drawn from."
)
_DECODE_SMALLER = (
    "resizes them. If they are much larger than what is made of them, resize the files once, before the training. To "
    "decode JPEG files at a half or a quarter of their size (tf.io.decode_jpeg with ratio=2 or 4) helps less."
)


class Idea(NamedTuple):
    """What to write anew, and which stages' time that is of."""

    stages: tuple[int, ...]
    text: str
    share: float = 1.0
    """How much of the stages' time it could save."""
    bound: str = _TOOK_NO_TIME
    """What the most that it can gain would need; empty where that would say too much."""


def every(inspection: Inspection, kept: Collection[int] = ()) -> Iterator[Idea]:
    """Yield the ideas in the order in which they are told; of `kept` stages trials keep what their Python makes."""
    yield from _of_made_anew(inspection)
    for stage, alike in each_once(inspection):
        yield from _of_stage(inspection, stage, alike)
        if stage.id not in kept:
            yield from _of_costly_line(inspection, stage, alike)
    yield from _of_drawing_workers(inspection)
    yield from _of_decoding(inspection)
    yield from _of_doubles(inspection)
    yield from _of_lost_caches(inspection)
    yield from _of_padded_rows(inspection)


def _of_made_anew(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to make the pipeline, or its iterator, once, where the script does so for each pass."""
    fixed = stage_graph.fixed_part(inspection, list(reversed(stage_graph.trunk(inspection))))
    training = inspection.training
    is_left = training is not None and training.leaves_passes
    if not (inspection.anew or is_left) or not fixed:
        return
    last = next((stage for stage in fixed if stage.method in KEEPING), fixed[-1])
    above, cached = stage_graph.upstream(inspection, last), _is_cached(inspection)
    if not cached and all(stage.method in HAND_OVER and "tensor" not in stage.method for stage in above):
        return
    keeps, adds = (", with the cache in it,", "") if cached else ("", f", with a cache() behind {named(last)}")
    advice = f"{keeps} anew for each pass over it. If each is over the same data, make it once, before the loop"
    if is_left:
        advice = (
            "'s iterator anew for each pass over it, and leaves it before its end, where a cache would be full. "
            f"If each may go on where the one before it ended, {ONE_ITERATOR}"
        )
    yield Idea(
        tuple(each.id for each in above),
        f"The script makes the pipeline{advice}{adds}: later epochs then compute only what comes behind the cache.",
    )


def _is_cached(inspection: Inspection) -> bool:
    return any(stage.method in KEEPING for stage in inspection.stages)


def _is_kept(inspection: Inspection, stage: Stage, function: UserFunction) -> bool:
    """Return whether a cache keeps what a map gives, or what it is given: more than records, and the rest not known."""
    above = {each.id for each in stage_graph.upstream(inspection, stage)}
    caches = [each for each in inspection.stages if each.method in KEEPING and each.id in above]
    parts = [[] if each.element is None else list(each.element.tensors()) for each in caches]
    of_records = all(known and all(each.shape == () for each in known) for known in parts)
    is_given = not of_records and function.fixed_share is None
    return is_given or stage.id in stage_graph.in_front_of(inspection, *KEEPING)


def _of_stage(inspection: Inspection, stage: Stage, alike: tuple[int, ...]) -> Iterator[Idea]:
    """Yield the idea of a stage that follows from its method, and from what its function is known to do."""
    function = stage.function
    match stage.method:
        case "map" if function is not None and stage.draws and not _is_kept(inspection, stage, function):
            if stage.runs_python:
                yield from _of_parallel_python(inspection, stage, alike)
            yield from _of_random_map(inspection, stage, function, alike)
        case "map" if stage.runs_python:
            yield from _of_parallel_python(inspection, stage, alike)
        case "map" if (reader := _read_singly(inspection, stage)) is not None:
            of_lines = any(each.method == "TextLineDataset" for each in reader.with_inner())
            yield Idea(
                alike,
                f"{subject(stage)} gets one record at a time. If it only parses, batch first and parse a whole batch "
                f"in one call: {_PARSE_LINES if of_lines else _PARSE_EXAMPLES}.",
            )
        case "from_generator" if _hands_over_small_ones(inspection, stage):
            yield Idea(
                alike,
                f"{subject(stage)} gives one small element at a time. Handing one from Python to TensorFlow takes some "
                "0.1 to 0.2 ms by itself. Have it give many at once, such as all of a file as arrays, and cut "
                "these up with unbatch(), which takes less than 0.01 ms an element.",
            )
        case "from_generator" if not eager_ops(inspection, stage):
            cost = inspection.cost(stage.id)
            waits = " It mostly waits: what it waits for, such as a queue of your own, is the limit." * (
                cost is not None and segments.waits(cost, cores=1)
            )
            yield Idea(
                alike,
                f"{subject(stage)} gives one element at a time.{waits} Have it give only what names an element, such "
                "as a path, and a map with num_parallel_calls make the element; or interleave several generators.",
            )
        case "interleave" | "flat_map":
            yield from _of_inner_maps(inspection, stage, alike)
        case "window" if stage_graph.around_window(inspection, stage) is None:  # else a trial gathers them
            behind = stage_graph.after(inspection, stage)
            both = (stage.id, behind.id) if behind is not None and behind.method == "flat_map" else (stage.id,)
            yield Idea(
                both,
                f"{subject(stage)} makes a dataset of every window and passes its elements on one by one. Keep the "
                "series in a tensor and batch the start positions: one tf.gather in a map then makes a whole batch.",
            )


def _hands_over_small_ones(inspection: Inspection, stage: Stage) -> bool:
    """Return whether a generator's elements are so cheap that a good part of their time is handing them over."""
    cost = inspection.cost(stage.id)
    if cost is None or not cost.elapsed_ns or (cost.elements or 0.0) < _MANY or segments.waits(cost, cores=1):
        return False
    return cost.elapsed_ns / (cost.elements or 1.0) < _HANDED_OVER_SHARE * _HANDING_OVER_NS


def eager_ops(inspection: Inspection, stage: Stage) -> float:
    """Return how many ops of TensorFlow's a stage's Python runs one by one for a batch; 0 where they take little."""
    function, cost = stage.function, inspection.cost(stage.id)
    if function is None or cost is None or (function.eager_share or 0.0) < _COSTLY_SHARE:
        return 0.0
    ops = (function.eager_ops or 0.0) * (cost.elements or 1.0)
    return ops if ops >= _MANY else 0.0


def _of_parallel_python(inspection: Inspection, stage: Stage, alike: tuple[int, ...]) -> Iterator[Idea]:
    """Yield the idea to leave Python, where it computes though several of its calls were asked for."""
    cost, calls = inspection.cost(stage.id), stage.arguments.get("num_parallel_calls")
    if calls in (None, 1) or stage.serial or cost is None or cost.cpu_ns is None or segments.waits(cost, cores=1):
        return
    if eager_ops(inspection, stage):  # of which `idea_bounds` says as much
        return
    if cost.cpu_ns <= _OF_ONE_CORE * (cost.elapsed_ns or 0.0):  # else it leaves the lock, as OpenCV and NumPy do
        yield Idea(
            alike,
            f"{subject(stage)} runs Python, of which one call at a time computes, whatever num_parallel_calls says. "
            "TensorFlow's ops in its place run on all cores; what is the same in each epoch can be made once, before.",
        )


def _of_inner_maps(inspection: Inspection, stage: Stage, alike: tuple[int, ...]) -> Iterator[Idea]:
    """Yield the idea to map behind what opens files, and not in its function, where no map is made parallel."""
    cost, inner = inspection.cost(stage.id), [each for each in stage.inner if each.method == "map"]
    one_by_one = all(each.arguments.get("num_parallel_calls") in (None, 1) for each in inner)
    python = stage.runs_python_within or not stage_graph.reads_files(stage)
    drawn_alike = stage_graph.draws_alike(stage)  # calls beside each other would draw other numbers
    if inner and one_by_one and cost is not None and cost.calls < _FEW_CALLS and not (python or drawn_alike):
        yield Idea(
            alike,
            f"{subject(stage)} has {inner[-1].label} within its function, where one call at a time runs for each file. "
            "Have the function give the records alone, and put that map behind it, with "
            "num_parallel_calls=tf.data.AUTOTUNE.",
        )


def _of_random_map(
    inspection: Inspection, stage: Stage, function: UserFunction, alike: tuple[int, ...]
) -> Iterator[Idea]:
    """Yield the idea to divide a map that draws, unless a trial divides it, or no cache would gain in later epochs."""
    found = cache_places.divided_map(inspection)
    divided = found is not None and found.stage.id in alike
    differs = "draws random numbers" if function.random else "gives something else at each call for the same element"
    drawing = function.fixed_within or function.name
    if not divided and not inspection.once and not endless_by_itself(inspection.stages, stage.id):
        yield Idea(
            alike,
            f"{subject(stage)} {differs}, so nothing after it can be cached. If a part of it does not depend on that, "
            "such as decoding, make it a map of its own, with a cache() behind it, in front of any shuffle or repeat: "
            "later epochs then compute only the rest."
            + (f" No trial divided it: {function.undivided}." if function.undivided else "")
            + (f" The function {drawing} draws none up to {function.fixed_up_to}." if function.fixed_up_to else ""),
            1.0 if function.fixed_share is None else function.fixed_share,
            _TOOK_NO_TIME if not stage.runs_python or function.fixed_up_to else "",  # it may do nothing but draw
        )


def each_once(inspection: Inspection) -> Iterator[tuple[Stage, tuple[int, ...]]]:
    """Yield the stages, the last ones first, of those that run one function only the last; and the ids of these."""
    for stage in reversed(inspection.stages):
        alike = tuple(sorted(each.id for each in stage_graph.alike(inspection, stage)))
        if stage.id == alike[-1]:
            yield stage, alike


def _of_lost_caches(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to let a cache fill, where each pass over the data leaves it before its end."""
    for stage in inspection.stages:
        if stage.method == "cache" and stage.left_early is True and not inspection.once:
            yield Idea(
                tuple(each.id for each in stage_graph.upstream(inspection, stage)),
                f"{subject(stage)} never fills: each pass ends before the cache has all elements, at a take or at the "
                "end of a shorter input of a zip, and TensorFlow then empties the cache. If each pass may use the same "
                "elements, put a take() of that many in front of the cache: later epochs then read them from it.",
            )


def _of_costly_line(inspection: Inspection, stage: Stage, alike: tuple[int, ...]) -> Iterator[Idea]:
    """Yield the idea to keep what a line gives that takes much of the time of a PyDataset or of a generator."""
    function = stage.function
    share = (function.costliest_share or 0.0) if function is not None else 0.0
    if function is None or share < _COSTLY_SHARE or stage.method not in _OF_KERAS or inspection.once:
        return
    if inspection.cold and inspection.api == "PyDataset":  # its class keeps what it makes
        return
    differs, then = "", ""
    if function.random:
        differs, then = "draws random numbers, so its batches cannot be kept, and ", ", and draw them behind that"
    elif stage.epoch_hooks:
        differs, then = "may give other batches in each epoch, as its class does something between them, and ", _RANDOM
    elif stage.method == "generator":  # whether it draws is not known
        then = _RANDOM
    runs, first = function.costliest_runs or 0.0, "If"
    if runs >= _MANY and (function.costliest_run_ns or 0.0) < _SHORT_NS:
        first = (
            f"It runs {runs:,.0f} times a batch: if it takes rows of an array or of a table one at a time, take all of "
            "a batch by one index, x[rows], of a NumPy array rather than a pandas table. Otherwise, if"
        )
    yield Idea(
        alike,
        f"{subject(stage)} {differs}spends {units.share(share)} of its time in {function.costliest}. {first} that does "
        f"the same in every epoch, as reading and decoding do, keep what it gives, in memory or in files{then}.",
        share,
    )


def _of_drawing_workers(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to draw by epoch and batch, where Keras' processes are not tried, as each would draw the same.

    What waits needs none: threads do.
    """
    for pool, stage, _, processes in workers.pools(inspection):
        cost, is_users = inspection.cost(stage.id), stage.place != pool.place  # a library's method has the pool's place
        computes = cost is not None and not segments.waits(cost, cores=1)
        if stage.draws and computes and is_users and not processes:
            yield Idea(
                (stage.id,),
                f"{subject(stage)} draws random numbers, and Keras starts its worker processes in each epoch anew from "
                "the same random state, so that none is tried. Draw them from rng = np.random.default_rng((self.epoch, "
                "index)), made in each call, with self.epoch counted in on_epoch_end; seed from rng what a library "
                "draws from. Diagnose again then: processes can be tried.",
            )


def _of_decoding(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to decode no more of a picture than is made of it: the crop, or a picture of fewer pixels.

    Source: TensorFlow's documentation of `tf.io.decode_and_crop_jpeg`, which takes much less time than both in a row,
    and of the `ratio` of `tf.io.decode_jpeg`: what that spares is the smaller part (docs/diagnose.md has the figures).
    """
    for stage, alike in each_once(inspection):
        function = stage.function
        if stage.method != "map" or function is None or not (function.crops_decoded or function.resizes_decoded):
            continue
        less = _DECODE_THE_CROP if function.crops_decoded else _DECODE_SMALLER
        if function.decoding_share is None or function.decoding_share >= _COSTLY_SHARE:
            share = 1.0 if function.decoding_share is None else function.decoding_share
            yield Idea(alike, f"{subject(stage)} decodes whole pictures and then {less}", share)


def _of_doubles(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to compute with 32-bit floats, where Python gives 64-bit ones that are not kept as such."""
    for stage, alike in each_once(inspection):
        if stage.function is not None and stage.function.doubles:
            yield Idea(
                alike,
                f"{subject(stage)} returns float64, which NumPy makes of uint8 (image / 255.), and which is cast to a "
                "smaller type later. With float32 from the start (image.astype(np.float32) / 255) it has half the "
                "memory to go through.",
                SAVED_BY_HALF,
                "took half the time",
            )


def _of_padded_rows(inspection: Inspection) -> Iterator[Idea]:
    """Yield the idea to pad rows in a map of its own, where a map pads shuffled batches that would else be kept."""
    found = cache_places.batched_samples(inspection)
    if found is None or found.padding is None or inspection.once or _is_cached(inspection):
        return
    given = found.kept.element if found.kept is not None else None
    if given is not None and any(each.kind == "ragged" for each in given.tensors()):
        return  # which are padded behind that already
    yield Idea(
        tuple(each.id for each in stage_graph.upstream(inspection, found.padding)),
        f"{subject(found.padding)} gives rows of no known size, as where it pads each batch to its longest row: they "
        "cannot be kept and batched anew. If all have one size, promise it there (tf.ensure_shape); else leave them "
        "ragged there, and pad them (to_tensor()) in a map behind it. Diagnose again then: their samples can be kept.",
    )


def _tried_on_batches(function: UserFunction | None) -> bool:
    """Return whether a trial gives a map whole batches, of which the function is known to make something."""
    if function is None or function.on_batches == "not":
        return False
    return function.on_batches is not None or function.parses_examples


def _read_singly(inspection: Inspection, stage: Stage) -> Stage | None:
    """Return what reads the records that a map, which could get batches, gets one by one; None of any other."""
    made = [] if stage.element is None else stage.element.tensors()
    pictures = any(len(each.shape or ()) >= _PICTURE_AXES for each in made)
    is_batched = any(each.method in BATCHING for each in stage_graph.trunk(inspection))
    if pictures or _tried_on_batches(stage.function) or not is_batched:
        return None
    before = stage_graph.first_before(inspection, stage, TAKE_ANY | {"ignore_errors"})
    # What Dataset.load or CsvDataset gives is parsed already.
    if before is None or not stage_graph.reads_files(before):
        return None
    return before if before.element is None or before.element.is_record else None
