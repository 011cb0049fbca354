"""Where the wall time of a call of `fit` went, by epoch; and what in it is worth a word. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from pipeline_bench.text import units

SLOWER = 1.25
"""Later epochs that each take so many times the first one, without its first step, are told of."""
LONG_FIRST_BATCH_S = 10.0
"""A first batch that was waited for longer than this is told of: a shuffle buffer that is filled, most often."""
LONG_EPOCH_STARTS = 0.1
"""The share of the later epochs that waits for their first batches, from which it is told of."""
_GROWTH_EPOCHS = 3
_GROWTH_SHARE = 0.02
"""Growth of the memory an epoch, as a share of the machine's, from which it is told of."""


class Epoch(BaseModel):
    """One epoch: when it ran, on the monotonic clock, and the process' memory at its end."""

    begin_ns: int
    end_ns: int
    validation_ns: int = 0
    memory_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """The time from its begin to its end."""
        return (self.end_ns - self.begin_ns) / 1e9


class FitTime(BaseModel):
    """The parts of a call of `fit`, in seconds; they add up to `total_s`.

    Attributes:
        total_s: from its begin to its end.
        first_step_s: up to the end of the first step: building, tracing, the first batch.
        first_wait_s: what of that waited for the first batch; None where it was not measured.
        input_wait_s: of the other steps, blocked for their batches; None where it was not measured.
        compute_s: the rest of these steps.
        epoch_starts_s: what of `input_wait_s` was for the first batch of an epoch after the first.
        validation_s: evaluation between or after the steps.
        between_epochs_s: after an epoch's end and before the next one's begin.
        rest_s: callbacks, checkpoints, iterators and what else Keras does in an epoch.
        epochs: one by one.
    """

    total_s: float
    first_step_s: float
    first_wait_s: float | None
    input_wait_s: float | None
    compute_s: float
    epoch_starts_s: float | None
    validation_s: float
    between_epochs_s: float
    rest_s: float
    epochs: tuple[Epoch, ...]


def fit_time(
    begin_ns: int,
    end_ns: int,
    epochs: Sequence[Epoch],
    starts_ns: npt.NDArray[np.int64],
    ends_ns: npt.NDArray[np.int64],
    waits_ns: npt.NDArray[np.int64] | None,
    steps_s: float,
    wait_s: float | None,
) -> FitTime:
    """Return where the time of a call of `fit` went.

    Args:
        begin_ns: when the training began.
        end_ns: when it ended.
        epochs: those that ended.
        starts_ns: of the steps that were kept, shape [n].
        ends_ns: of the same, shape [n].
        waits_ns: of the same; None where it was not measured.
        steps_s: all steps but the first together.
        wait_s: what these waited; None where it was not measured.
    """
    first_end_ns = int(ends_ns[0]) if ends_ns.size else end_ns
    first_s = (first_end_ns - begin_ns) / 1e9
    validation_s = sum(epoch.validation_ns for epoch in epochs) / 1e9
    between_s = sum(after.begin_ns - before.end_ns for before, after in pairwise(epochs)) / 1e9
    total_s = (end_ns - begin_ns) / 1e9
    rest_s = total_s - first_s - steps_s - validation_s - between_s
    starts_s = None
    if waits_ns is not None and waits_ns.size:
        first_of = np.searchsorted(starts_ns, [epoch.begin_ns for epoch in epochs[1:]])
        starts_s = float(waits_ns[first_of[first_of < waits_ns.size]].sum()) / 1e9
    return FitTime(
        total_s=total_s,
        first_step_s=first_s,
        first_wait_s=float(waits_ns[0]) / 1e9 if waits_ns is not None and waits_ns.size else None,
        input_wait_s=wait_s,
        compute_s=max(0.0, steps_s - (wait_s or 0.0)),
        epoch_starts_s=starts_s,
        validation_s=validation_s,
        between_epochs_s=between_s,
        rest_s=max(0.0, rest_s),
        epochs=tuple(epochs),
    )


def parts(fit: FitTime) -> list[tuple[str, float]]:
    """Return the parts by name, in the order in which they come, in seconds, those that were not there left out."""
    waited = fit.input_wait_s is not None
    named = [
        ("first step (tracing, first batch)", fit.first_step_s),
        *([("input wait", fit.input_wait_s or 0.0)] if waited else []),
        ("compute and host" if waited else "steps", fit.compute_s),
        ("validation", fit.validation_s),
        ("callbacks and the rest of the epochs", fit.rest_s),
        ("between epochs", fit.between_epochs_s),
    ]
    return [(name, part_s) for name, part_s in named if part_s > 0]


def remarks(fit: FitTime, memory_bytes: int) -> Iterator[str]:
    """Yield what is unusual, each with its evidence.

    Args:
        fit: the training.
        memory_bytes: what the machine has.
    """
    if fit.first_wait_s is not None and fit.first_wait_s > LONG_FIRST_BATCH_S:
        yield f"the first batch was waited for {fit.first_wait_s:.0f} s: is a large shuffle buffer filled first?"
    later = [epoch.seconds for epoch in fit.epochs[1:]]
    if not later:
        return
    first_s = fit.epochs[0].seconds - fit.first_step_s
    if first_s > 0 and min(later) > SLOWER * first_s and median(later) - first_s > 1:
        yield (
            f"later epochs are slower: {median(later):.1f} s in the middle, and {first_s:.1f} s for the first one "
            "without its first step"
        )
    if fit.epoch_starts_s is not None and fit.epoch_starts_s > LONG_EPOCH_STARTS * sum(later):
        yield (
            f"{fit.epoch_starts_s:.1f} s of the later epochs waited for their first batches: buffers are filled anew, "
            "or the iterator is made anew"
        )
    yield from _growth(fit.epochs, memory_bytes)


def _growth(epochs: Sequence[Epoch], memory_bytes: int) -> Iterator[str]:
    """Yield when the memory will be full, where it has grown in every epoch after the first."""
    used = [epoch.memory_bytes for epoch in epochs if epoch.memory_bytes is not None]
    steps = np.diff(used)
    if len(used) < _GROWTH_EPOCHS or (steps <= 0).any():
        return
    an_epoch = float(np.median(steps))
    if an_epoch < _GROWTH_SHARE * memory_bytes:
        return
    full = len(used) + int((memory_bytes - used[-1]) / an_epoch)
    yield (
        f"memory grew by {units.size(an_epoch)} an epoch, to {units.size(used[-1])}: at this rate the machine is full "
        f"in epoch {full}"
    )
