"""When the records of a file arrive from slow storage: what its reader waits before each of them, and how."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_bench.records import RecordFile

# Sleeps are at least so long: a shorter one overshoots by as much as it lasts.
_SHORTEST_US = 2000.0

# What share of an error the next sleep is corrected by, and the largest error that says something of it; as in
# `graph_ops.steady_delay`.
_GAIN = 0.1
_LARGEST_ERROR_US = 1000.0


@dataclass(frozen=True)
class Pace:
    """The waits of a stream that reads files from their first record to the last.

    A file's bytes count as spread evenly over its records. They come in pieces of `chunk` records, as a reader's buffer
    fills: the wait for a piece is before its first record, so that a file takes its latency and its bytes' time in all.
    Every array is [files].
    """

    first: npt.NDArray[np.int64]
    """The place of a file's first record."""
    records: npt.NDArray[np.int64]
    latency_us: npt.NDArray[np.float64]
    record_us: npt.NDArray[np.float64]
    """The time of one record's bytes."""
    chunk: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, files: Sequence[RecordFile], latency_ms: float, bandwidth_mb_s: float | None, jitter: float, seed: int
    ) -> Pace:
        """The pace of these files.

        Args:
            files: in their order.
            latency_ms: the wait for a file's first byte.
            bandwidth_mb_s: 10^6 bytes a second; None: they take no time.
            jitter: a file's latency is multiplied by 1 ± up to so much, always the same for the same file.
            seed: of that.
        """
        records = np.array([file.records for file in files], dtype=np.int64)
        size_bytes = np.array([file.size_bytes for file in files], dtype=np.float64)
        factor = 1 + jitter * np.random.default_rng(seed).uniform(-1, 1, len(files))
        record_us = np.zeros(len(files))
        if bandwidth_mb_s is not None:
            record_us = size_bytes / records / bandwidth_mb_s  # 10^6 bytes a second: a microsecond a byte
        enough = np.ceil(_SHORTEST_US / np.maximum(record_us, 1e-9))
        return cls(
            first=np.array([file.first for file in files], dtype=np.int64),
            records=records,
            latency_us=1000 * latency_ms * factor,
            record_us=record_us,
            chunk=np.clip(enough, 1, records).astype(np.int64),
        )

    def wait_us(self, place: int) -> float:
        """How long the reader of a file waits before the record at that place."""
        file = int(np.searchsorted(self.first, place, side="right")) - 1
        index = place - int(self.first[file])
        chunk = int(self.chunk[file])
        if index % chunk:
            return 0.0
        waited = min(chunk, int(self.records[file]) - index) * float(self.record_us[file])
        return waited + (float(self.latency_us[file]) if index == 0 else 0.0)

    def request_us(self, place: int) -> float:
        """How long a record takes that is asked for by itself: the latency, and its own bytes."""
        file = int(np.searchsorted(self.first, place, side="right")) - 1
        return float(self.latency_us[file] + self.record_us[file])

    def wait_us_op(self, place: Any) -> Any:
        """`wait_us` in a graph: float64 [] of a place, int64 []."""
        import tensorflow as tf

        file = tf.searchsorted(tf.constant(self.first), tf.reshape(place, [1]), side="right")[0] - 1
        first, records, latency_us, record_us, chunk = (
            tf.gather(tf.constant(column), file)
            for column in (self.first, self.records, self.latency_us, self.record_us, self.chunk)
        )
        index = place - first
        waited = tf.cast(tf.minimum(chunk, records - index), tf.float64) * record_us
        waited += tf.where(tf.equal(index, 0), latency_us, tf.zeros_like(latency_us))
        return tf.where(tf.equal(tf.math.floormod(index, chunk), 0), waited, tf.zeros_like(waited))


class SteadySleep:
    """Sleeps in Python as long as it is told in the mean: what sleeps take too long here, the next ones take less."""

    def __init__(
        self, clock_ns: Callable[[], int] = time.monotonic_ns, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._overshoot_us = 0.0
        self._gain = 1.0

    def __call__(self, wanted_us: float) -> None:
        """Sleep; threads may share it, for each of their errors is as good as another's."""
        if wanted_us <= 0:
            return
        start_ns = self._clock_ns()
        self._sleep(max(0.0, wanted_us - self._overshoot_us) / 1e6)
        error_us = (self._clock_ns() - start_ns) / 1e3 - wanted_us
        error_us = min(max(error_us, -_LARGEST_ERROR_US), _LARGEST_ERROR_US)
        self._overshoot_us = min(max(self._overshoot_us + self._gain * error_us, 0.0), _LARGEST_ERROR_US)
        self._gain = max(self._gain / (1 + self._gain), _GAIN)
