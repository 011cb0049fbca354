"""Where a cache may stand: behind what is the same in each epoch, and what moves in front of shuffles for that."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pipeline_bench.diagnosis import stage_graph
from pipeline_bench.diagnosis.fixes.cache_size import MIXING, with_part
from pipeline_bench.model.calls import UNCHANGED
from pipeline_bench.model.element_flow import never_full
from pipeline_bench.model.pipeline import Inspection, Stage
from pipeline_bench.model.user_function import UserFunction

_UP_TO_MAPS = UNCHANGED | {"batch", "map", "shuffle"}
"""What stands between what is the same in each epoch and the maps of shuffled batches."""
_OPENING = frozenset({"apply", "flat_map", "interleave"})
"""What may stand there besides, in front of the batches: it opens files that are read in another order each time."""
_ANY_NUMBER = frozenset({"map", "filter", "flat_map", "interleave"}) | stage_graph.READERS
"""Methods whose stages may give more or fewer elements than they take."""


class Movable(NamedTuple):
    """Stages that may as well stand in front of shuffles and repeats which they are behind now; upstream first."""

    passed: list[Stage]
    """The shuffles and repeats."""
    moved: list[Stage]

    @property
    def mixes_otherwise(self) -> bool:
        """Whether a shuffle then gives another order: it no longer holds what a filter that was behind it drops."""
        shuffled = [each.id for each in self.passed if each.method == "shuffle"]
        return any(each.method == "filter" and each.id > number for each in self.moved for number in shuffled)


class DividedMap(NamedTuple):
    """A random map, the first part of which may run in front of shuffles and repeats, with a cache behind it."""

    after: Stage
    """The last stage of what is the same in each epoch, or moves to its end, behind which that part then runs."""
    way: Movable
    """The shuffles and repeats between the two, and what moves in front of them as well."""
    stage: Stage
    statements: int
    """How many of its function's statements that part has."""
    function: UserFunction
    """The stage's."""

    @property
    def smaller(self) -> DividedMap | None:
        """The same map with a shorter first part that hands over much less; None where it has none."""
        part = self.function.fixed_smaller
        if part is None or part.fixed_statements is None:
            return None
        stage = with_part(self.stage, part.fixed_statements)
        assert stage.function is not None
        return self._replace(stage=stage, statements=part.fixed_statements, function=stage.function)


class BatchedSamples(NamedTuple):
    """Samples that are shuffled and batched behind the fixed part, and the maps that get these batches."""

    ahead: list[Stage]
    """What stands behind the fixed part, up to the last of these maps; upstream first."""
    batch: Stage
    batch_size: int
    repeat: Stage | None
    """What repeats the samples, or their batches; None where nothing does."""

    @property
    def kept(self) -> Stage | None:
        """The last map whose samples can be batched anew: all have one shape, or are ragged. None where none has."""
        return next((each for each in reversed(self._maps) if not self._pads(each)), None)

    @property
    def padding(self) -> Stage | None:
        """The first map behind `kept`, which may pad the rows of each batch to its longest; None where none does."""
        padded = itertools.takewhile(self._pads, reversed(self._maps))
        return next(iter(reversed(list(padded))), None)

    def behind(self, ahead: Sequence[Stage]) -> Sequence[Stage]:
        """Return those of the stages `ahead` that stand behind the batch."""
        return ahead[self.ahead.index(self.batch) + 1 :]

    def buffer_size(self, ahead: Sequence[Stage]) -> int | None:
        """Return how many samples the last shuffle of the stages `ahead` holds; None: all, or that is not known."""
        *_, shuffle = (each for each in ahead if each.method == "shuffle")
        size = shuffle.arguments.get("buffer_size")
        if not isinstance(size, int) or size <= 0:
            return None
        return size * self.batch_size if shuffle in self.behind(ahead) else size

    def whole_batches(self, ahead: Sequence[Stage]) -> bool:
        """Return whether a map of the stages `ahead` may need the batch size that it is promised: none is short there.

        That is so with `drop_remainder=True`, and behind a repeat; a pass of what is kept may end with a short one.
        """
        drops = self.batch.arguments.get("drop_remainder") is True
        repeats = self.repeat is not None and self.repeat in ahead[: ahead.index(self.batch)]
        return (drops or repeats) and any(_has_known_size(each) for each in self.behind(ahead) if each.method == "map")

    @property
    def _maps(self) -> list[Stage]:
        return [each for each in self.behind(self.ahead) if each.method == "map"]

    def _pads(self, stage: Stage) -> bool:
        """Return whether a map gives rows whose sizes are open, of samples whose own sizes are known.

        Samples of open sizes that were batched have one shape nevertheless, such as pictures from files of one size.
        """
        return has_open_rows(stage) and not has_open_rows(self.batch)


def run_of(inspection: Inspection, last: Stage | None = None) -> list[Stage]:
    """Return the trunk, or a branch up to a stage, upstream first, as it is without the caches that are never full."""
    lost = never_full_caches(inspection)
    return [each for each in reversed(stage_graph.trunk(inspection, last)) if each not in lost]


def never_full_caches(inspection: Inspection) -> list[Stage]:
    """Return the caches as written from which nothing is ever read: a pass is as well without them."""
    return [each for each in inspection.stages if each.method == "cache" and never_full(inspection.stages, each)]


def fixed_part(inspection: Inspection, run: list[Stage]) -> list[Stage]:
    """Return the stages from the source on that give the same in each epoch, end, and are made once."""
    return stage_graph.fixed_part(inspection, list(itertools.takewhile(lambda stage: not stage.anew, run)))


def movable(inspection: Inspection, rest: Sequence[Stage]) -> list[Movable]:
    """Return what may move in front of the shuffles and repeats that come behind the fixed part; the fewest first.

    A shuffle moves the same samples in the same order whether they are mapped or not, and a repeat repeats them; a
    filter changes which of them a shuffle has in its buffer, and so their order. What else makes more or fewer of them
    may pass a repeat only. What is behind further shuffles and repeats passes these too, once all in front of them has
    moved.

    Args:
        inspection: of the pipeline.
        rest: its stages behind the fixed part, upstream first.
    """
    rest = [each for each in rest if each.method not in UNCHANGED]
    # Those that mix files go on in front of what opens them.
    rest = list(itertools.dropwhile(lambda each: stage_graph.shuffles_files(inspection.stages, each), rest))
    found: list[Movable] = []
    passed: list[Stage] = []
    moved: list[Stage] = []
    while mixes := list(itertools.takewhile(lambda each: each.method in MIXING, rest)):
        passed = [*passed, *mixes]
        methods = {"map", "filter"} if any(each.method == "shuffle" for each in passed) else _ANY_NUMBER
        more = list(itertools.takewhile(functools.partial(_may_move, methods), rest[len(mixes) :]))
        if not more:
            break
        maps = list(itertools.takewhile(lambda each: each.method == "map", more))
        if maps and Movable(passed, more).mixes_otherwise:  # which these alone do not
            found.append(Movable(passed, [*moved, *maps]))
        moved = [*moved, *more]
        found.append(Movable(passed, moved))
        rest = rest[len(mixes) + len(more) :]
    return found


def _may_move(methods: Collection[str], stage: Stage) -> bool:
    return stage.method in methods and not stage.anew and not stage_graph.draws(stage)


def divided_map(inspection: Inspection) -> DividedMap | None:
    """Return the random map that can be divided for a cache; None of others, and while one as written is not full."""
    run = run_of(inspection)
    fixed = fixed_part(inspection, run)
    rest = [each for each in run[len(fixed) :] if each.method not in UNCHANGED]
    passed, moved = next(reversed(movable(inspection, rest)), Movable([], []))
    behind = rest[rest.index(moved[-1]) + 1 :] if moved else rest
    mixes = list(itertools.takewhile(lambda each: each.method in MIXING, behind))
    stage = next(iter(behind[len(mixes) :]), None)
    if not fixed or stage is None or stage.method != "map" or stage.anew or inspection.cold:
        return None
    function = stage.function
    if function is None or function.fixed_statements is None:
        return None
    way = Movable([*passed, *mixes], moved)
    return DividedMap([*fixed, *moved][-1], way, stage, function.fixed_statements, function)


def mapped_between_shuffles(rest: Sequence[Stage]) -> Stage | None:
    """Return the last map that is behind one shuffle and in front of another, which mixes anew in each epoch."""
    ahead = list(itertools.takewhile(lambda each: each.method in _UP_TO_MAPS - {"batch"} and not _varies(each), rest))
    shuffles = [number for number, each in enumerate(ahead) if each.method == "shuffle"]
    if not shuffles[1:] or stage_graph.keeps_order(ahead[shuffles[-1]]):
        return None
    if any(each.arguments.get("drop_remainder") for each in rest):
        return None  # what the first epoch's order puts last would be dropped for ever
    return next((each for each in reversed(ahead[: shuffles[-1]]) if each.method == "map"), None)


def batched_samples(inspection: Inspection) -> BatchedSamples | None:
    """Return the samples of which maps get shuffled batches, and may be kept as these maps give them.

    None where there are none, and where files are opened behind their batches.
    """
    run = run_of(inspection)
    rest = run[len(fixed_part(inspection, run)) :]
    repeat = next((each for each in rest if each.method == "repeat"), None)
    if repeat is not None and not isinstance(repeat.arguments.get("count"), int | None):
        return None  # it is only known when the pipeline is made
    of_one_pass = _without(inspection, repeat)

    def goes_on(stage: Stage) -> bool:
        known = stage is repeat or (stage.method in _UP_TO_MAPS | _OPENING and not _varies(stage))
        return known and not stage_graph.endless(of_one_pass, stage)

    ahead = list(itertools.takewhile(goes_on, rest))
    while ahead and ahead[-1].method != "map":
        ahead.pop()
    batches = [each for each in ahead if each.method == "batch"]
    size = batches[0].arguments.get("batch_size") if len(batches) == 1 else None
    if not isinstance(size, int) or not isinstance(batches[0].arguments.get("drop_remainder"), bool | None):
        return None
    behind = ahead[ahead.index(batches[0]) :]
    mapped = next(each for each in behind if each.method == "map")
    is_shuffled = any(each.method == "shuffle" for each in ahead[: ahead.index(mapped)])
    if not is_shuffled or any(each.method in _OPENING for each in behind):
        return None
    return BatchedSamples(ahead, batches[0], size, repeat if repeat in ahead else None)


def _without(inspection: Inspection, repeat: Stage | None) -> Inspection:
    """Return the inspection as if a repeat gave each element once."""
    once = None if repeat is None else repeat.model_copy(update={"arguments": {"count": 1}})
    stages = (once if once is not None and each.id == once.id else each for each in inspection.stages)
    return inspection.model_copy(update={"stages": tuple(stages)})


def _varies(stage: Stage) -> bool:
    """Return whether a stage behind a shuffle may make other elements of the same ones."""
    return stage.anew or (stage.method != "shuffle" and stage.is_random)


def has_open_rows(batches: Stage) -> bool:
    """Return whether a size, or how many sizes there are, is open of the rows of dense batches, beside their number."""
    parts = [] if batches.element is None else batches.element.tensors()
    return any(each.kind == "tensor" and (each.shape is None or None in each.shape[1:]) for each in parts)


def _has_known_size(batches: Stage) -> bool:
    """Return whether the number of rows is promised of a part of each batch."""
    parts = [] if batches.element is None else batches.element.tensors()
    return any(each.shape and each.shape[0] is not None for each in parts)
