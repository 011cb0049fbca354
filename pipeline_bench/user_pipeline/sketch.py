"""What tells rounding from other values, in a few numbers: sums of a sample's values with random signs.

A function may round in another way when it gets a whole batch: the same mathematics, other last bits, another digest.
With signs that are the same everywhere, the sum of what differs is about as large as its Euclidean norm (the
Johnson-Lindenstrauss lemma with one dimension; a single value that differs shows in full), so that two samples are told
apart by the sums as by the norm of their difference. See `pipeline_bench.diagnosis.equality`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

BUCKETS = 128
"""Sums kept; sample n is in the sum n modulo this, so that all samples are looked at, in their order."""
_GOLDEN = 0.618033988749895
"""Its multiples modulo 1 differ from each other: samples in the same sum have weights of their own."""
_SEED = 7
_PLAIN = (3.0, 5.0, -5.0)
"""What stands for NaN and the infinities, which have no sum."""

Array = npt.NDArray[Any]


class Sketch:
    """The sums of one component's samples."""

    def __init__(self) -> None:
        self._projections = [0.0] * BUCKETS
        self._squares = [0.0] * BUCKETS
        self._count = 0

    def add(self, values: Array) -> None:
        """Take in the next sample; anything but floating values only counts."""
        number, self._count = self._count, self._count + 1
        if values.dtype.kind != "f" or not values.size:
            return
        flat = np.nan_to_num(values.astype(np.float64).ravel(), nan=_PLAIN[0], posinf=_PLAIN[1], neginf=_PLAIN[2])
        weight = 1.0 + (number // BUCKETS) * _GOLDEN % 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            self._projections[number % BUCKETS] += weight * float(flat @ _signs(flat.size))
            self._squares[number % BUCKETS] += weight * weight * float(flat @ flat)

    @property
    def figures(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The sums and their norms; none of values that are not floating, or too large to be squared."""
        used = min(self._count, BUCKETS)
        sums, squares = self._projections[:used], self._squares[:used]
        if not any(squares) or not all(map(math.isfinite, (*sums, *squares))):
            return (), ()
        return tuple(sums), tuple(math.sqrt(square) for square in squares)


@functools.lru_cache(maxsize=4)
def _signs(size: int) -> Array:
    """So many signs, as floating numbers; the same in every process."""
    return np.random.default_rng(_SEED).integers(0, 2, size, dtype=np.int8) * 2.0 - 1.0
