"""The parts of a training's wall time, which add up to it, and what in it is worth a word. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from pipeline_bench.analysis.thresholds import (
    BOUND_SHARE,
    EPOCH_START_SHARE,
    GROWTH_EPOCHS,
    GROWTH_SHARE,
    ITERATOR_END_SHARE,
    LONG_FIRST_BATCH_S,
    SHORT_STEP_MS,
    SLOWER_EPOCHS,
    STEPS_A_CALL,
)
from pipeline_bench.model.job import Epoch, WallTime
from pipeline_bench.model.result import Result
from pipeline_bench.model.session import Session
from pipeline_bench.text import units

START_UP, FIRST_STEP = "start-up and imports", "first step (tracing, first batch)"
INPUT_WAIT, COMPUTE = "input wait", "compute and host"
ITERATOR_END = "ends of iterators"
"""TensorFlow's, see `monitoring.iterator_ends.time_ends`, and of Keras 2's queues."""
VALIDATION, CALLBACKS, REST = "validation", "callbacks", "the rest of the epochs"
BETWEEN = "between epochs"
OF_AN_EPOCH = (FIRST_STEP, INPUT_WAIT, COMPUTE, ITERATOR_END, VALIDATION, CALLBACKS, REST)
"""The parts that an epoch has, in the order in which they are shown."""
_LEAST_S = 1.0
"""Less than that is not reported, however large its share."""


def parts(time: WallTime) -> list[tuple[str, float]]:
    """Return the parts by name, in the order in which they come, in seconds; those that were not there are left out."""
    found = dict.fromkeys((START_UP, *OF_AN_EPOCH, BETWEEN), 0.0)
    found[START_UP] = time.before_s or 0.0
    for epoch in time.epochs:
        for name, part_s in of_epoch(epoch).items():
            found[name] += part_s
    found[CALLBACKS] += time.last_callbacks_ns / 1e9
    found[BETWEEN] = sum(after.begin_ns - before.end_ns for before, after in pairwise(time.epochs)) / 1e9
    if time.epochs:  # what Keras makes before the first epoch is made for its first step
        found[FIRST_STEP] += (time.epochs[0].begin_ns - time.begin_ns) / 1e9
    found[REST] += time.seconds - sum(found.values())
    return [(name, part_s) for name, part_s in found.items() if part_s > 0]


def of_epoch(epoch: Epoch) -> dict[str, float]:
    """Return the parts of an epoch by name, in seconds, all of them; without a measured wait it is in the compute's."""
    wait_ns = min(epoch.wait_ns or 0, epoch.steps_ns)
    within_ns = min(epoch.step_callbacks_ns, epoch.steps_ns - wait_ns)
    compute_ns, callbacks_ns = epoch.steps_ns - wait_ns - within_ns, epoch.callbacks_ns + within_ns
    steps_ns = (epoch.first_step_ns, wait_ns, compute_ns)
    known_ns = (*steps_ns, epoch.iterator_end_ns, epoch.validation_ns, callbacks_ns)
    rest_ns = max(0, epoch.end_ns - epoch.begin_ns - sum(known_ns))
    return {name: part_ns / 1e9 for name, part_ns in zip(OF_AN_EPOCH, (*known_ns, rest_ns), strict=True)}


def summary(time: WallTime) -> tuple[str, str]:
    """Return which time was spent, ``where 12 s went``, and on what, ``start-up and imports 4 s, …``."""
    shown = ", ".join(f"{name} {units.seconds(part_s)}" for name, part_s in parts(time))
    return f"where {units.seconds(time.seconds)} went", shown


def remarks(time: WallTime, memory_bytes: int, step: Result | None = None) -> Iterator[str]:
    """Yield what is unusual, each with its evidence.

    Args:
        time: of the training.
        memory_bytes: what the machine has.
        step: the figures of its steps.
    """
    yield from _first_batch(time.epochs)
    yield from _first_epoch(time.epochs)
    yield from _slower(time.epochs)
    yield from _epoch_starts(time.epochs)
    yield from _iterator_ends(time)
    yield from _validation(time.epochs)
    yield from _growth(time, memory_bytes)
    if step is not None and time.steps_a_call == 1:
        yield from _short_steps(step.step_ms.mean, step.input_wait_share.value)


def remarks_of(session: Session) -> Iterator[str]:
    """Yield what is unusual in the wall time of a watched training."""
    if session.wall_time is not None:
        step = session.results[0] if session.results else None
        yield from remarks(session.wall_time, session.environment.memory_bytes, step)


def _short_steps(step_ms: float | None, wait_share: float | None) -> Iterator[str]:
    """Yield that Keras' own work for each step counts, of steps that are short and do not wait for their input."""
    waits = wait_share is None or wait_share >= BOUND_SHARE
    if step_ms is not None and step_ms < SHORT_STEP_MS and not waits:
        yield (
            f"a step takes only {units.milliseconds(step_ms)}, of which Keras' own work for each step is a part: "
            f"compile(steps_per_execution={STEPS_A_CALL}), which has one call run {STEPS_A_CALL} steps, may be faster"
        )


def _first_batch(epochs: Sequence[Epoch]) -> Iterator[str]:
    # One that stands for several epochs has the first waits of them all.
    waited_s = (epochs[0].first_wait_ns or 0) / 1e9 if epochs and epochs[0].count == 1 else 0.0
    if waited_s > LONG_FIRST_BATCH_S:
        yield f"the first batch was waited for {waited_s:.0f} s: does a shuffle buffer fill, or do workers start?"


def _first_epoch(epochs: Sequence[Epoch]) -> Iterator[str]:
    """Yield that the first epoch waited for its input and the later ones hardly did, as where it fills a cache."""
    if not epochs or epochs[0].count > 1 or any(epoch.wait_ns is None for epoch in epochs):
        return
    first, later = (
        sum(epoch.wait_ns or 0 for epoch in some) / max(1, sum(epoch.steps_ns for epoch in some))
        for some in (epochs[:1], epochs[1:])
    )
    is_less = later < BOUND_SHARE <= first and later < first / 2  # 10.1 % and 9.9 % are the same
    if is_less and any(epoch.steps_ns for epoch in epochs[1:]):
        yield (
            f"the first epoch waited for its input for {units.share(first)} of its steps' time, the later ones for "
            f"{units.share(later)}: it fills a cache, or reads files that memory then holds"
        )


def _slower(epochs: Sequence[Epoch]) -> Iterator[str]:
    """Yield a remark where all later epochs took longer than the first, each without a first step: what grew most."""
    if len(epochs) < 2 or epochs[0].count > 1 or any(epoch.steps is None for epoch in epochs):  # noqa: PLR2004 - two
        return
    first, later = epochs[0], [_of_so_many(epoch, epochs[0].steps or 0) for epoch in epochs[1:]]
    first_s = first.seconds - first.first_step_ns / 1e9
    middle_s = median(epoch.seconds for epoch in later)
    least_s = min(epoch.seconds for epoch in later)
    if first_s <= 0 or least_s <= SLOWER_EPOCHS * first_s or middle_s - first_s <= _LEAST_S:
        return
    before = of_epoch(first)
    grown = {
        name: median(of_epoch(epoch)[name] / epoch.count for epoch in later) - before[name] for name in OF_AN_EPOCH[1:]
    }
    most = max(grown, key=lambda name: grown[name])
    yield (
        f"later epochs are slower: {middle_s:.1f} s (median), the first one {first_s:.1f} s, each without its first "
        f"step; {grown[most]:.1f} s of the difference is {most}"
    )


def _of_so_many(epoch: Epoch, steps: int) -> Epoch:
    """Return a later epoch without the wait for its first batch, and with that many steps, each of its mean.

    The first one has these without its first step, which is a call of several where Keras takes them so.
    """
    first_ns = min(epoch.first_wait_ns or 0, epoch.wait_ns or 0, epoch.steps_ns)
    share = min(1.0, steps * epoch.count / epoch.steps) if epoch.steps else 1.0
    steps_ns = int((epoch.steps_ns - first_ns) * share)
    kept = {
        "steps_ns": steps_ns,
        "wait_ns": None if epoch.wait_ns is None else int((epoch.wait_ns - first_ns) * share),
        "step_callbacks_ns": int(epoch.step_callbacks_ns * share),
        "end_ns": epoch.end_ns - (epoch.steps_ns - steps_ns),
    }
    return epoch.model_copy(update=kept)


def _epoch_starts(epochs: Sequence[Epoch]) -> Iterator[str]:
    later = epochs[1:]
    starts_s = sum(epoch.first_wait_ns or 0 for epoch in later) / 1e9
    if starts_s > EPOCH_START_SHARE * sum(epoch.seconds * epoch.count for epoch in later) and starts_s > _LEAST_S:
        yield (
            f"the later epochs waited {starts_s:.1f} s in all for their first batches: buffers are filled anew, "
            "elements are made to be skipped, or the iterator is made anew"
        )


def _iterator_ends(time: WallTime) -> Iterator[str]:
    epochs = time.epochs if time.queue_of_keras_2 else time.epochs[1:]
    waited_s = sum(of_epoch(epoch)[ITERATOR_END] for epoch in epochs)
    longest_s = max((of_epoch(epoch)[ITERATOR_END] / epoch.count for epoch in epochs), default=0.0)
    seconds = sum(epoch.seconds * epoch.count for epoch in epochs)
    if not time.queue_of_keras_2:
        yield from iterator_ends(waited_s, longest_s, seconds, ", and steps_per_epoch=N in fit,")
    elif _ends_count(waited_s, seconds):
        yield (
            f"the epochs waited {waited_s:.1f} s in all, up to {longest_s:.1f} s in one, for Keras 2 to end iterators: "
            "its queue of a Sequence with workers sleeps for up to 5 s at the end of an epoch or a validation; fit has "
            "no such queue with workers=1 and without use_multiprocessing, and one for all epochs with an "
            "OrderedEnqueuer of your own (docs/run.md)"
        )


def _ends_count(waited_s: float, seconds: float) -> bool:
    return waited_s > max(ITERATOR_END_SHARE * seconds, _LEAST_S)


def iterator_ends(waited_s: float, longest_s: float, seconds: float, how: str = "") -> Iterator[str]:
    """Yield how long epochs waited for the end of an iterator, where that is worth a word.

    Args:
        waited_s: all epochs but the first.
        longest_s: the one that waited longest.
        seconds: how long these epochs took.
        how: what one iterator for all needs besides `repeat`.
    """
    if _ends_count(waited_s, seconds):
        yield (
            f"the later epochs waited {waited_s:.1f} s in all, up to {longest_s:.1f} s in one, for TensorFlow to end "
            "an iterator, as that of the epoch before (its tuning thread may sleep on for a minute); a tf.data.Dataset "
            f"with repeat(){how} has one iterator for all epochs, and one with autotune.enabled = False in its Options "
            "has no such thread; of a PyDataset, fewer and longer epochs wait less often"
        )


def _validation(epochs: Sequence[Epoch]) -> Iterator[str]:
    """Yield that validation took longer than the training's steps, of whose input nothing is known."""
    validation_s = sum(epoch.validation_ns for epoch in epochs) / 1e9
    steps_s = sum(epoch.steps_ns for epoch in epochs) / 1e9
    if validation_s > max(steps_s, _LEAST_S):
        yield (
            f"validation took {validation_s:.1f} s, the steps of the training {steps_s:.1f} s: how long validation "
            "waits for its input is not measured; of a tf.data.Dataset, pipeline-bench diagnose SCRIPT --dataset NAME "
            "measures that"
        )


def _growth(time: WallTime, memory_bytes: int) -> Iterator[str]:
    """Yield when the memory will be full, where it has grown in every epoch after the first."""
    used = [epoch.memory_bytes for epoch in time.epochs if epoch.memory_bytes is not None]
    ended = sum(epoch.count for epoch in time.epochs)
    steps = np.diff(used)
    if len(used) < GROWTH_EPOCHS or (steps <= 0).any() or used[-1] >= memory_bytes:  # what is swapped in and out
        return
    an_epoch = float(np.median(steps)) / (ended / len(time.epochs))
    if an_epoch < GROWTH_SHARE * memory_bytes:
        return
    full = time.initial_epoch + ended + int((memory_bytes - used[-1]) / an_epoch)
    yield (
        f"memory grew by {units.size(an_epoch)} an epoch, to {units.size(used[-1])}: at this rate the machine is full "
        f"in epoch {full}"
    )
