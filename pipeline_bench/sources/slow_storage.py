"""slow_storage: the files of another source, as they come from a network or a busy disk."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline_bench import graph_ops, plugins
from pipeline_bench.errors import UsageError
from pipeline_bench.sources.records import RecordFile, RecordSource
from pipeline_bench.sources.synthetic import DAY_MS
from pipeline_bench.system.files import clock_offset_s
from pipeline_bench.text import did_you_mean

# Sleeps are at least so long: a shorter one overshoots by as much as it lasts.
_SHORTEST_US = 2000.0

_LARGEST_BUCKET_LAG_NS = 5_000_000
_CLOCKS_APART_NS = 1_000_000_000
"""What the clocks of hosts that are measured together may differ by."""
_STAMPS, _STAMP_EVERY_S = 8, 0.0013
"""How often a file's clock is asked: some stamp by a tick of 4 or 10 ms, and are as old as that."""
_LONGEST_LATE_NS = 200_000_000
"""Of a reader that got no core when its bytes were there; one that was stopped for longer has lost its turns."""
_BUCKET = b"pipeline-bench-bucket %d %d"
_BUCKET_CONTENT = re.compile(rb"pipeline-bench-bucket (-?[0-9]{1,24}) (-?[0-9]{1,24})")
_BUCKET_BYTES = 100
"""More than a bucket ever holds."""


class SlowStorageOptions(plugins.Options):
    """How slow, and which files."""

    files: Annotated[
        dict[str, Any],
        Field(
            default_factory=lambda: {"kind": "tfrecord"},
            validate_default=True,
            description="the source of the files: its kind and its options",
        ),
    ]
    latency_ms: Annotated[
        float, Field(ge=0, le=DAY_MS, allow_inf_nan=False, description="wait for the first byte of every file")
    ] = 0.0
    bandwidth_mb_s: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="10^6 bytes a second of every stream; unset: unlimited"),
    ] = None
    total_mb_s: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="10^6 bytes a second of all streams together, those of other hosts too; unset: unlimited",
        ),
    ] = None
    shared: Annotated[
        str | None,
        Field(min_length=1, description="the file by which all who share total_mb_s take turns, seen by all of them"),
    ] = None
    jitter: Annotated[
        float, Field(ge=0, le=1, description="a file's latency is longer or shorter by up to this share of it")
    ] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**32, description="of the jitter")] = 0

    @model_validator(mode="after")
    def _shared_by_a_file(self) -> SlowStorageOptions:
        if (self.total_mb_s is None) != (self.shared is None):
            raise ValueError("total_mb_s and shared belong together: give both, or neither")
        return self

    @field_validator("files")
    @classmethod
    def _fill_in_defaults(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the options with every default of that source, so that a session says what was read."""
        rest = dict(given)
        kind = rest.pop("kind", None)
        # Only the one that is named: another package's broken source is nothing to a scenario without it.
        found = plugins.find("sources", kind) if isinstance(kind, str) and kind in plugins.names("sources") else None
        if found is None or not issubclass(found, RecordSource):
            kinds = [name for name, each in plugins.loadable("sources").items() if issubclass(each, RecordSource)]
            raise ValueError(f"files.kind: {kind!r}: {did_you_mean(str(kind), kinds)}")
        try:
            # By way of JSON, as a scenario's own options are checked: no "3" for a 3.
            checked = found.Options.model_validate_json(json.dumps(rest), strict=True)
        except ValidationError as error:
            raise ValueError(_first_problem(error, found)) from None
        return {"kind": kind, **checked.model_dump(mode="json")}


class SlowStorage(plugins.Plugin):
    """Gives the source of the files itself, which has a throttle: it waits, and holds neither a core nor the GIL."""

    name = "slow_storage"
    summary = "the files of another source, with a latency for each file and a bandwidth for each stream"
    Options = SlowStorageOptions
    emulates_storage = True
    """Whether the files are as slow as a storage wherever they lie."""
    timing_options = frozenset({"latency_ms", "bandwidth_mb_s", "total_mb_s", "shared", "jitter", "seed"})

    @classmethod
    def make(cls, options: Mapping[str, Any]) -> RecordSource:
        """Return the other source."""
        checked = SlowStorageOptions.model_validate(dict(options))
        own = dict(checked.files)
        source: RecordSource = plugins.make("sources", own.pop("kind"), own)
        if checked.latency_ms or checked.bandwidth_mb_s or checked.total_mb_s:
            source.throttle = StorageThrottle(source, checked)
        return source


class StorageThrottle:
    """The waits of a source's readers; the files are asked for at the first one, when the source is prepared."""

    def __init__(self, source: RecordSource, options: SlowStorageOptions) -> None:
        self._source, self._options = source, options
        self.sleep = SteadySleep()
        self._bucket = None
        if options.shared is not None and options.total_mb_s is not None:
            self._bucket = SharedBucket(Path(options.shared), options.total_mb_s)

    @property
    def python_part(self) -> str | None:
        """As `RecordSource.python_part`, of `wait_op`."""
        return None if self._bucket is None else "takes turns by source.shared"

    def check(self) -> None:
        """See that there is, or can be, a file by which the readers take turns; see `Source.check`."""
        if self._bucket is not None:
            self._bucket.check()

    @cached_property
    def arrivals(self) -> Arrivals:
        """When the records arrive."""
        asked = self._options
        return Arrivals(self._source.files, asked.latency_ms, asked.bandwidth_mb_s, asked.jitter, asked.seed)

    def before_next(self, index: int) -> None:
        """Sleep as long as the next record of a file that is read from its beginning takes."""
        self.sleep(self.arrivals.wait_us(index))
        self._take_turn(index)

    def _take_turn(self, index: int) -> np.float64:
        """Sleep until the record's bytes have had their turn in what all streams share; returns 0, as an op has to."""
        if self._bucket is not None:
            file = self._source.file_of(int(index))
            self._bucket.take(file.size_bytes / file.records)
        return np.float64(0)

    def before_single(self, index: int) -> None:
        """Sleep as long as a request for one record takes: the latency and its bytes."""
        self.sleep(self.arrivals.request_us(index))
        self._take_turn(index)

    def wait_op(self, index: Any, *, corrected: bool = True) -> Any:
        """Build `before_next` for an index, int64 []; not `corrected`: without a variable, for another process."""
        import tensorflow as tf

        def wait() -> Any:
            if corrected:
                return graph_ops.steady_delay(wait_us, "slow_storage_overshoot")
            return tf.cast(graph_ops.delay(wait_us), tf.float64)

        with tf.device("/cpu:0"):
            wait_us = self.arrivals.wait_us_op(index)
            waited = tf.cond(wait_us > 0, wait, lambda: tf.constant(0.0, tf.float64))
            if self._bucket is None:
                return waited
            with tf.control_dependencies([waited]):
                return tf.numpy_function(self._take_turn, [index], tf.float64)


def _ahead_ns(path: Path, clock_ns: Callable[[], int]) -> int:
    """Return how far a clock is ahead of the one that stamps a file, in ns."""
    found_s = []
    for _ in range(_STAMPS):
        found_s.append(clock_offset_s(path, clock_ns))
        time.sleep(_STAMP_EVERY_S)
    return round(min(found_s) * 1e9)


class SharedBucket:
    """A token bucket without a burst that processes of several hosts share, by a file that they lock in turn.

    The file holds a word that says what it is, when the last bytes that were promised will have come, and when they
    were asked for, in ns of the clock that stamps the file: by its own, a host whose clock is ahead would take the
    others' turns. A reader that asks late has lost its turn: what nobody asked for is not saved up. But one that woke
    late, since it got no core, asks as if it had woken in time, so that a busy machine does not make the storage slower
    than it is.

    Args:
        path: in a folder that exists; made where it is not there.
        mb_s: 10^6 bytes a second.
        clock_ns: the wall clock of this host.
        sleep: sleeps so many seconds.
        ahead_ns: returns how far that clock is ahead of the one that stamps the file; asked once.
    """

    def __init__(
        self,
        path: Path,
        mb_s: float,
        clock_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
        ahead_ns: Callable[[Path, Callable[[], int]], int] = _ahead_ns,
    ) -> None:
        self._path, self._ns_per_byte = path, 1000 / mb_s
        self._host_ns, self._sleep, self._ask_ahead_ns = clock_ns, sleep, ahead_ns
        self._late_ns: dict[int, int] = {}
        """By thread: how late it woke. A `threading.local` could not go to a loader's process."""

    @cached_property
    def _host_ahead_ns(self) -> int:
        return self._ask_ahead_ns(self._path, self._host_ns)

    def _clock_ns(self) -> int:
        return self._host_ns() - self._host_ahead_ns

    def check(self) -> None:
        """See that the file is a bucket or empty, or can be made; leave it as it is.

        Raises:
            UsageError: it holds anything else, or neither it nor its folder can be written to.
        """
        try:
            if not self._path.exists():
                if not (self._path.parent.is_dir() and os.access(self._path.parent, os.W_OK | os.X_OK)):
                    raise self._trouble(f"{self._path.parent} is no folder that can be written to")
            elif not self._path.is_file() or not os.access(self._path, os.W_OK):
                raise self._trouble("it is no file that can be written to")
            else:
                with self._path.open("rb") as file:
                    self._promise(file.read(_BUCKET_BYTES))
        except OSError as error:
            raise self._trouble(f"it cannot be read: {error.strerror}") from error

    def _promise(self, content: bytes) -> tuple[int, int]:
        """Return when the last bytes that were promised come and when they were asked for; of an empty file 0 and 0.

        Raises:
            UsageError: it is no bucket's content.
        """
        if not content:
            return 0, 0
        if (found := _BUCKET_CONTENT.fullmatch(content)) is None:
            raise self._trouble("it holds something else, which would be lost")
        return int(found[1]), int(found[2])

    def _trouble(self, problem: str) -> UsageError:
        return UsageError(
            f"source.shared, {self._path}: {problem}.",
            "Name a new file, in a folder that every host sees and may write to, or remove one of an earlier version.",
        )

    def take(self, size_bytes: float) -> None:
        """Sleep until so many bytes have had their turn; short waits are left to add up, since a sleep overshoots.

        Raises:
            UsageError: the file holds something else.
        """
        with self._path.open("a+b") as file:
            self._clock_ns()  # the first time it takes some ms, for which nobody else is to wait
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            promised_ns, asked_ns = self._promise(file.read(_BUCKET_BYTES))
            now_ns = self._clock_ns()
            if asked_ns - now_ns > _CLOCKS_APART_NS:  # it was set back, and the promise was as far ahead of it
                promised_ns -= asked_ns - now_ns
            # Within a sleep's overshoot late is not late: else the rate would be lower than was asked.
            late_ns = max(_LARGEST_BUCKET_LAG_NS, self._late_ns.get(threading.get_ident(), 0))
            begin_ns = max(promised_ns, now_ns - late_ns)
            end_ns = begin_ns + round(size_bytes * self._ns_per_byte)
            file.truncate(0)
            file.write(_BUCKET % (end_ns, now_ns))
        if (wait_s := (end_ns - now_ns) / 1e9) > _SHORTEST_US / 1e6:
            self._sleep(wait_s)
        self._late_ns[threading.get_ident()] = min(self._clock_ns() - end_ns, _LONGEST_LATE_NS)


class Arrivals:
    """When the records of files arrive at a stream that reads them from the first record to the last.

    A file's bytes count as spread evenly over its records. They come in pieces of `chunk` records, as a reader's buffer
    fills: the wait for a piece is before its first record, so that a file takes its latency and its bytes' time in all.

    Args:
        files: in their order.
        latency_ms: the wait for a file's first byte.
        bandwidth_mb_s: 10^6 bytes a second; None: they take no time.
        jitter: a file's latency is multiplied by 1 ± up to so much, always the same for the same file.
        seed: of that.

    Attributes:
        first: the index of each file's first record, as all of these an array [files].
        records: of each file.
        latency_us: the wait for its first byte.
        record_us: the time of one record's bytes.
        chunk: the records of a piece.
    """

    def __init__(
        self, files: Sequence[RecordFile], latency_ms: float, bandwidth_mb_s: float | None, jitter: float, seed: int
    ) -> None:
        self.first = np.array([file.first for file in files], dtype=np.int64)
        self.records = np.array([file.records for file in files], dtype=np.int64)
        self.latency_us = 1000 * latency_ms * (1 + jitter * np.random.default_rng(seed).uniform(-1, 1, len(files)))
        self.record_us = np.zeros(len(files))
        if bandwidth_mb_s is not None:
            size_bytes = np.array([file.size_bytes for file in files], dtype=np.float64)
            self.record_us = size_bytes / self.records / bandwidth_mb_s  # 10^6 bytes a second: a microsecond a byte
        enough = np.ceil(_SHORTEST_US / np.maximum(self.record_us, 1e-9))
        self.chunk = np.clip(enough, 1, self.records).astype(np.int64)

    def wait_us(self, index: int) -> float:
        """Return how long the reader of a file waits before the record of that index."""
        file = self._file(index)
        offset, chunk = index - int(self.first[file]), int(self.chunk[file])
        if offset % chunk:
            return 0.0
        waited = min(chunk, int(self.records[file]) - offset) * float(self.record_us[file])
        return waited + (float(self.latency_us[file]) if offset == 0 else 0.0)

    def request_us(self, index: int) -> float:
        """Return how long a record takes that is asked for by itself: the latency, and its own bytes."""
        file = self._file(index)
        return float(self.latency_us[file] + self.record_us[file])

    def _file(self, index: int) -> int:
        return int(np.searchsorted(self.first, index, side="right")) - 1

    def wait_us_op(self, index: Any) -> Any:
        """`wait_us` in a graph: float64 [] of an index, int64 []."""
        import tensorflow as tf

        file = tf.searchsorted(tf.constant(self.first), tf.reshape(index, [1]), side="right")[0] - 1
        first, records, latency_us, record_us, chunk = (
            tf.gather(tf.constant(column), file)
            for column in (self.first, self.records, self.latency_us, self.record_us, self.chunk)
        )
        offset = index - first
        waited = tf.cast(tf.minimum(chunk, records - offset), tf.float64) * record_us
        waited += tf.where(tf.equal(offset, 0), latency_us, tf.zeros_like(latency_us))
        return tf.where(tf.equal(tf.math.floormod(offset, chunk), 0), waited, tf.zeros_like(waited))


class SteadySleep:
    """Sleeps in Python as long as it is asked to in the mean: what one takes too long, the next ones take less.

    It learns a tenth of an error of at most 1 ms, unlike `planted.generator.Sleeper`: what a busy machine adds once is
    no part of the storage, and is not taken off the next record's wait.
    """

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
        error_us = min(max(error_us, -graph_ops.LARGEST_ERROR_US), graph_ops.LARGEST_ERROR_US)
        self._overshoot_us = min(max(self._overshoot_us + self._gain * error_us, 0.0), graph_ops.LARGEST_ERROR_US)
        self._gain = max(self._gain / (1 + self._gain), graph_ops.GAIN)


def _first_problem(error: ValidationError, kind: type[plugins.Plugin]) -> str:
    """Return the first thing that is wrong with the table, as it goes on after ``source.files: ``."""
    first = error.errors()[0]
    key = ".".join(["files", *map(str, first["loc"])])
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key: {did_you_mean(str(first['loc'][-1]), kind.Options.model_fields)}"
    return f"{key}: {first['msg'].removeprefix('Value error, ')} (given: {first['input']!r})"
