"""Makes a trial's files cold or warm, keeps them cold from epoch to epoch, and looks whether they really are.

What lies a quarter to three quarters of an epoch behind the model is evicted, what it and its read-ahead are at is left
alone. Residency is looked at half an epoch ahead of the model, in a few small parts of files at a time; what was read
from storage is the kernel's account of this process. Neither needs privileges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from pipeline_bench.model.events import Storage, StorageEpoch
from pipeline_bench.sources import page_cache
from pipeline_bench.sources.page_cache import FileRange, Layout
from pipeline_bench.sources.records import PageCache, RecordSource

EPOCHS_KEPT = 100
# How often the model's progress is looked at, which takes 60 µs of a core: the more often, the shorter an epoch is.
LONGEST_TICK_S, SHORTEST_TICK_S = 0.1, 0.02
_TICKS_AN_EPOCH = 32
# Parts that are looked at before training, spread over all files; and how large one is, then and at a tick.
_PARTS_BEFORE = 256
_LARGEST_PART_BYTES = 1 << 20
_PART_AT_A_TICK_BYTES = 1 << 18
# In parts of an epoch: how far behind the model the eviction is, how far it reaches back, how far ahead the look is.
_BEHIND = 0.25
_REACH = 0.75
_AHEAD = 0.5
# The kernel keeps pages in groups of up to 2 MiB, and evicts one only if all of it is asked for: what the end of an
# eviction has cut through is asked for again by the next one.
_FOLIO_BYTES = 1 << 22
# More than this after an eviction is what was written and is not on storage yet: syncing a file takes 50 µs and more.
_DIRTY_SHARE = 0.01


class PageCacheCalls(Protocol):
    """What is asked of the system; `sources.page_cache` has it."""

    def evict(self, part: FileRange, sync: bool = False) -> None: ...
    def read(self, part: FileRange) -> Iterator[int]: ...
    def why_unknown(self, path: str) -> str | None: ...
    def resident_pages(self, part: FileRange) -> tuple[int, int]: ...
    def storage_bytes_read(self) -> int: ...


class _Epoch:
    """What was seen of one epoch so far."""

    def __init__(self) -> None:
        self.records = 0.0
        self.read_bytes = 0.0
        self.resident = 0
        self.pages = 0


class PageCacheController:
    """The state of one trial's files.

    Args:
        asked: see `FileOptions.page_cache`.
        layout: the files.
        consumed: gives the samples that the model has had so far.
        calls: the system's.
    """

    def __init__(self, asked: PageCache, layout: Layout, consumed: Callable[[], int], calls: PageCacheCalls) -> None:
        self._asked = asked
        self._layout = layout
        self._consumed = consumed
        self._calls = calls
        self._seen = 0
        """The samples up to which the epochs are accounted for."""
        self._evicted = 0.0
        """The samples up to which what they lie in was evicted."""
        self._bytes_read: int | None = None
        self._before: float | None = None
        self._epochs: list[_Epoch] = [_Epoch()]
        self._reason = calls.why_unknown(layout.at(0, 1).path)
        self._read_reason: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="pipeline-bench storage", daemon=True)

    def prepare(self, alive: Callable[[], None] = lambda: None) -> None:
        """Make the files cold or warm, where that was asked, and look at them.

        Args:
            alive: called now and then: a large data set takes its time.

        Raises:
            OSError: a file cannot be opened or read.
        """
        whole = (0, self._layout.records)
        if self._asked == "cold":
            self._evict(*whole, alive=alive)
        if self._asked == "warm":
            for part in self._layout.parts(*whole):
                for _ in self._calls.read(part):
                    alive()
        self._before = self._look_everywhere()
        if self._asked == "cold" and (self._before is None or self._before > _DIRTY_SHARE):
            self._evict(*whole, sync=True, alive=alive)
            self._before = self._look_everywhere()

    def start(self) -> None:
        """Begin to account, and to evict if that was asked; called right before the input starts."""
        self._bytes_read = self._bytes_so_far()
        self._thread.start()

    def tick(self) -> None:
        """Take in what the model has consumed since the last one, evict what is behind it, look at what is ahead."""
        consumed = self._consumed()
        moved = consumed > self._seen
        self._account(consumed)
        if not moved:
            return
        records = self._layout.records
        # Before the eviction: where the ticks lag behind the model, it would see only what this one has evicted.
        ahead = consumed + _AHEAD * records
        # The second one off the files' rhythm: of some file sizes the first would only ever see the beginnings.
        for place in (ahead, ahead - 0.07 * records):
            self._look(place, _PART_AT_A_TICK_BYTES)
        if self._asked == "cold":
            first, end = max(self._evicted, consumed - _REACH * records), consumed - _BEHIND * records
            if end > first:
                self._evict(first, end)
                self._evicted = end

    def close(self) -> Storage:
        """End the thread; what was seen of the files."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._try_tick()
        had = [epoch for epoch in self._epochs if epoch.records]
        epochs = [
            StorageEpoch(
                index=index,
                size_bytes=round(self._layout.bytes_of(epoch.records)),
                read_bytes=None if self._bytes_read is None else round(epoch.read_bytes),
                resident_share=epoch.resident / epoch.pages if epoch.pages else None,
            )
            for index, epoch in enumerate(had[:EPOCHS_KEPT])
        ]
        return Storage(
            asked=self._asked,
            size_bytes=self._layout.size_bytes,
            resident_share=self._before,
            epoch_count=len(had),
            epochs=tuple(epochs),
            reason=self._reason,
            read_reason=self._read_reason,
        )

    def _keep(self) -> None:
        started_s, tick_s = time.monotonic(), SHORTEST_TICK_S
        while not self._ended.wait(tick_s):
            self._try_tick()
            tick_s = self.tick_s(time.monotonic() - started_s)

    def tick_s(self, elapsed_s: float) -> float:
        """Return the seconds until the next tick, from the time that it took to see the records so far."""
        if self._asked != "cold":
            return LONGEST_TICK_S
        epoch_s = elapsed_s * self._layout.records / max(self._seen, 1)
        return min(max(epoch_s / _TICKS_AN_EPOCH, SHORTEST_TICK_S), LONGEST_TICK_S)

    def _try_tick(self) -> None:
        """Check the files once; one that has gone is a reason here, and an error only for the input."""
        try:
            self.tick()
        except OSError as error:
            self._reason = self._reason or f"{error.filename or 'a file'} could not be checked: {error.strerror}"

    def _evict(self, first: float, end: float, sync: bool = False, alive: Callable[[], None] = lambda: None) -> None:
        records = self._layout.records
        while first < end:
            start = first % records
            stop = min(start + end - first, records)
            for part in self._layout.parts(start, stop):
                self._calls.evict(part._replace(start=max(0, part.start - _FOLIO_BYTES)), sync)
                alive()
            first += max(stop - start, 1e-6)

    def _account(self, consumed: int) -> None:
        """Divide what was read since the last tick among the epochs that it was consumed in."""
        before, self._bytes_read = self._bytes_read, self._bytes_so_far()
        new_bytes = 0 if before is None or self._bytes_read is None else self._bytes_read - before
        records, total = self._layout.records, consumed - self._seen
        while self._seen < consumed:
            index = self._seen // records
            taken = min(consumed, (index + 1) * records) - self._seen
            self._epoch(index).records += taken
            self._epoch(index).read_bytes += new_bytes * taken / total
            self._seen += taken
        if not total:
            self._epoch(consumed // records).read_bytes += new_bytes

    def _bytes_so_far(self) -> int | None:
        if self._read_reason is not None:
            return None
        try:
            return self._calls.storage_bytes_read()
        except OSError as error:
            self._read_reason = f"the kernel does not say what was read: {error.strerror or error}"
            return None

    def _look_everywhere(self) -> float | None:
        """Return the share of pages that is resident, from parts spread over the files; None if unknown."""
        first = self._epochs[0]
        first.resident = first.pages = 0
        most_bytes = min(max(self._layout.size_bytes // _PARTS_BEFORE, page_cache.PAGE_BYTES), _LARGEST_PART_BYTES)
        parts = min(_PARTS_BEFORE, self._layout.records)
        for index in range(parts):
            self._look(index * self._layout.records / parts, most_bytes)
        return first.resident / first.pages if first.pages else None

    def _look(self, place: float, most_bytes: int) -> None:
        """Count what is resident where that sample lies, for the epoch that it is of."""
        if self._reason is not None:
            return
        records = self._layout.records
        resident, pages = self._calls.resident_pages(self._layout.at(place % records, most_bytes))
        epoch = self._epoch(int(place // records))
        epoch.resident += resident
        epoch.pages += pages

    def _epoch(self, index: int) -> _Epoch:
        while len(self._epochs) <= index:
            self._epochs.append(_Epoch())
        return self._epochs[index]


def open_controller(source: object, consumed_steps: Callable[[], int]) -> PageCacheController | None:
    """Return the keeper of a source's files; None where it reads none.

    Args:
        source: the trial's, prepared.
        consumed_steps: gives the steps that have ended.
    """
    if not isinstance(source, RecordSource):
        return None
    batch_size = source.batch_size
    return PageCacheController(
        source.page_cache, Layout(source.files), lambda: consumed_steps() * batch_size, page_cache
    )
