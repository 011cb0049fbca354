"""Files are made cold or warm and kept so: against a page cache that is a set of pages, a model that is a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline_bench.model.events import Storage
from pipeline_bench.sources.page_cache import FileRange, Layout
from pipeline_bench.sources.records import PageCache, RecordFile
from pipeline_bench.worker import page_cache_controller
from pipeline_bench.worker.page_cache_controller import PageCacheController

RECORDS = 400
RECORD_BYTES = 4096


@dataclass
class FakeSystem:
    """A page cache of records; reading one puts it there and counts as traffic where it was not."""

    resident: set[tuple[str, int]] = field(default_factory=set)
    dirty: set[tuple[str, int]] = field(default_factory=set)
    keeps_all: bool = False
    folio: int = 1
    """Pages that are evicted together or not at all."""
    unknown: str | None = None
    no_account: bool = False
    read_bytes: int = 0
    evictions: int = 0

    def pages(self, part: FileRange) -> set[tuple[str, int]]:
        return {(part.path, page) for page in range(part.start // RECORD_BYTES, -(-part.end // RECORD_BYTES))}

    def evict(self, part: FileRange, sync: bool = False) -> None:
        self.evictions += 1
        self.dirty -= self.pages(part) if sync else set()
        if not self.keeps_all:
            pages = self.pages(part) - self.dirty
            self.resident -= {
                (path, page)
                for path, page in pages
                if all((path, page - page % self.folio + i) in pages for i in range(self.folio))
            }

    def read(self, part: FileRange) -> Iterator[int]:
        for page in sorted(self.pages(part)):
            self.read_bytes += RECORD_BYTES * (page not in self.resident)
            self.resident.add(page)
            yield RECORD_BYTES

    def why_unknown(self, path: str) -> str | None:
        return self.unknown

    def resident_pages(self, part: FileRange) -> tuple[int, int]:
        pages = self.pages(part)
        return len(pages & self.resident), len(pages)

    def storage_bytes_read(self) -> int:
        if self.no_account:
            raise OSError("planted: no account")
        return self.read_bytes


class Trial:
    """A model that consumes the files in order, and what reads them so far ahead of it."""

    def __init__(self, asked: PageCache, system: FakeSystem, files: int = 8, ahead: int = 0) -> None:
        each = RECORDS // files
        self.files = [RecordFile(f"f{i}", i * each, each, each * RECORD_BYTES) for i in range(files)]
        self.layout = Layout(self.files)
        self.system = system
        self.consumed = 0
        self._read = 0
        self._ahead = ahead
        self.keeper = PageCacheController(asked, self.layout, lambda: self.consumed, system)

    def begin(self) -> None:
        self.keeper.prepare()
        self.keeper._bytes_read = self.keeper._bytes_so_far()  # as `start` does, whose thread would tick by itself

    def train(self, samples: int, every: int = 5, reads: bool = True) -> None:
        for _ in range(samples):
            self.consumed += 1
            while reads and self._read < self.consumed + self._ahead:
                for part in self.layout.parts(self._read % RECORDS, self._read % RECORDS + 1):
                    list(self.system.read(part))
                self._read += 1
            if self.consumed % every == 0:
                self.keeper.tick()

    def end(self) -> Storage:
        self.keeper.tick()
        return self.keeper.close()

    def run(self, samples: int, every: int = 5) -> Storage:
        self.begin()
        self.train(samples, every)
        return self.end()


def everything() -> set[tuple[str, int]]:
    return {(f"f{i}", page) for i in range(8) for page in range(RECORDS // 8)}


@pytest.mark.parametrize(("files", "folio"), [(1, 1), (1, 16), (8, 1), (8, 10), (400, 1)])
@pytest.mark.parametrize("ahead", [0, 40])
def test_cold_files_are_cold_in_every_epoch(files: int, folio: int, ahead: int) -> None:
    trial = Trial("cold", FakeSystem(folio=folio), files, ahead)
    for part in trial.layout.parts(0, RECORDS):
        list(trial.system.read(part))
    found = trial.run(4 * RECORDS)
    assert found.resident_share == 0
    assert [epoch.resident_share for epoch in found.epochs] == [0, 0, 0, 0]
    assert [epoch.size_bytes for epoch in found.epochs] == [RECORDS * RECORD_BYTES] * 4
    total = sum(epoch.read_bytes or 0 for epoch in found.epochs)
    assert total == (4 * RECORDS + ahead) * RECORD_BYTES
    assert found.epoch_count == 4


def test_a_system_that_keeps_the_files_is_found_out() -> None:
    found = Trial("cold", FakeSystem(resident=everything(), keeps_all=True)).run(2 * RECORDS)
    assert found.resident_share == 1
    assert [(epoch.resident_share, epoch.read_bytes) for epoch in found.epochs] == [(1, 0), (1, 0)]


def test_epochs_that_outrun_the_eviction_are_found_out() -> None:
    """What was never evicted is still there when it is read again."""
    found = Trial("cold", FakeSystem()).run(4 * RECORDS, every=RECORDS)
    later = [epoch.resident_share for epoch in found.epochs[1:] if epoch.resident_share is not None]
    assert max(later) > 0.5


def test_what_the_model_is_at_is_left_alone() -> None:
    trial = Trial("cold", FakeSystem())
    trial.begin()
    trial.train(RECORDS + RECORDS // 2)
    there = {int(path[1:]) * RECORDS // 8 + page for path, page in trial.system.resident}
    assert there == set(range(RECORDS // 4, RECORDS // 2))


def test_files_that_are_not_on_storage_yet_are_synced_and_evicted() -> None:
    system = FakeSystem(resident=everything(), dirty=everything())
    trial = Trial("cold", system)
    trial.begin()
    assert trial.keeper.close().resident_share == 0


def test_clean_files_are_not_synced() -> None:
    system = FakeSystem(resident=everything())
    Trial("cold", system).begin()
    assert system.evictions == 8


def test_warm_files_are_read_once_beforehand() -> None:
    found = Trial("warm", FakeSystem()).run(2 * RECORDS)
    assert found.resident_share == 1
    assert [(epoch.resident_share, epoch.read_bytes) for epoch in found.epochs] == [(1, 0), (1, 0)]


def test_files_as_they_are_are_looked_at_and_left_alone() -> None:
    half = {(name, page) for name, page in everything() if int(name[1:]) < 4}
    system = FakeSystem(resident=set(half))
    trial = Trial("as-is", system)
    trial.begin()
    assert system.resident == half
    trial.train(RECORDS)
    found = trial.end()
    assert found.resident_share == pytest.approx(0.5, abs=0.02)
    assert found.epochs[0].read_bytes == RECORDS * RECORD_BYTES // 2
    assert system.evictions == 0


def test_what_is_not_known_has_its_reason_and_no_number() -> None:
    found = Trial("cold", FakeSystem(unknown="planted: unknown", no_account=True)).run(RECORDS)
    assert found.resident_share is None
    assert found.reason == "planted: unknown"
    assert found.read_reason is not None
    assert "planted: no account" in found.read_reason
    assert [(epoch.resident_share, epoch.read_bytes) for epoch in found.epochs] == [(None, None)]


def test_a_pipeline_that_reads_nothing_more_leaves_cold_files_and_no_traffic() -> None:
    trial = Trial("cold", FakeSystem())
    trial.begin()
    trial.train(RECORDS)
    trial.train(2 * RECORDS, reads=False)
    found = trial.end()
    assert [epoch.read_bytes for epoch in found.epochs[1:]] == [0, 0]
    assert max(epoch.resident_share or 0 for epoch in found.epochs) == 0


def test_an_epoch_that_was_not_finished_counts_for_what_was_consumed_of_it() -> None:
    found = Trial("cold", FakeSystem()).run(RECORDS + 100)
    assert [epoch.size_bytes for epoch in found.epochs] == [RECORDS * RECORD_BYTES, 100 * RECORD_BYTES]


def test_a_model_that_stands_still_costs_no_looks() -> None:
    trial = Trial("cold", FakeSystem())
    trial.begin()
    trial.train(10)
    looked: list[FileRange] = []
    trial.system.resident_pages = lambda part: (looked.append(part), (0, 1))[1]  # type: ignore[method-assign, func-returns-value]
    for _ in range(5):
        trial.keeper.tick()
    assert not looked


def test_short_epochs_are_looked_after_more_often() -> None:
    cold, warm = Trial("cold", FakeSystem()), Trial("warm", FakeSystem())
    for trial in (cold, warm):
        trial.begin()
        trial.train(RECORDS)
    assert cold.keeper.tick_s(60) == page_cache_controller.LONGEST_TICK_S
    assert cold.keeper.tick_s(0.1) == page_cache_controller.SHORTEST_TICK_S
    assert page_cache_controller.SHORTEST_TICK_S < cold.keeper.tick_s(1.6) < page_cache_controller.LONGEST_TICK_S
    assert warm.keeper.tick_s(0.1) == page_cache_controller.LONGEST_TICK_S


def test_a_long_preparation_gives_signs_of_life() -> None:
    signs: list[int] = []
    trial = Trial("warm", FakeSystem())
    trial.keeper.prepare(lambda: signs.append(1))
    assert len(signs) == RECORDS


def test_a_file_that_goes_away_ends_the_looking_and_not_the_trial(tmp_path: Path) -> None:
    def gone(part: FileRange) -> tuple[int, int]:
        raise OSError(2, "No such file or directory", "f3")

    trial = Trial("cold", FakeSystem())
    trial.begin()
    trial.keeper.start()
    trial.system.resident_pages = gone  # type: ignore[method-assign]
    trial.consumed = 100
    found = trial.keeper.close()
    assert found.reason == "f3 could not be checked: No such file or directory"
    assert [epoch.size_bytes for epoch in found.epochs] == [100 * RECORD_BYTES]


def test_only_sources_of_files_have_a_keeper() -> None:
    from pipeline_bench.sources.memory import Memory

    assert page_cache_controller.open_controller(Memory({}), lambda: 0) is None
