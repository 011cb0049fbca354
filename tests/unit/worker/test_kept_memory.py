"""Steps with kept memory, behind the measured ones of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.events import KeptMemory
from pipeline_bench.system import freed_memory
from pipeline_bench.worker import kept_memory
from pipeline_bench.worker.consumers import Alive, Record

MS = 1_000_000


@dataclass
class Process:
    """A process whose steps take less once its memory is kept."""

    freeing_ms: int = 80
    kept_ms: int = 50
    settling_ms: int = 400
    """What the first two steps with kept memory take."""
    faults_a_step: int = 8000
    can: bool = True
    kept: int = -1
    """How many steps have been since the memory is kept; less than 0: it is not."""
    now_ns: int = 0
    faults: int = 50_000
    """The first ones are of tracing."""
    peak: int = 100
    measured: list[float] = field(default_factory=list)

    def keep(self) -> bool:
        self.kept, self.peak = (0, 130) if self.can else (-1, 100)
        return self.can

    def step(self) -> tuple[int, int]:
        start_ns = self.now_ns
        if self.kept < 0:
            self.now_ns += self.freeing_ms * MS
            self.faults += self.faults_a_step
        else:
            self.now_ns += (self.settling_ms if self.kept < 2 else self.kept_ms) * MS
            self.kept += 1
        return start_ns, self.now_ns

    def record(self, start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        self.measured.append((end_ns - start_ns) / MS)
        return len(self.measured) < 5

    def steps(self, ends_after: int = 1000, fails: Callable[[], Exception] | None = None) -> kept_memory._Steps:
        def steps(*, record: Record, alive: Alive) -> int | None:
            for number in range(ends_after):
                if not record(*self.step(), 0, 0.0):
                    return None
                if fails is not None and number > 5:
                    raise fails()
            return ends_after

        return steps


def ran(
    process: Process, monkeypatch: pytest.MonkeyPatch, steps: kept_memory._Steps
) -> tuple[int | None, KeptMemory | None]:
    """Return what `run` returned, and told."""
    monkeypatch.setattr(freed_memory, "page_faults", lambda: process.faults)
    monkeypatch.setattr(freed_memory, "peak_bytes", lambda: process.peak)
    monkeypatch.setattr(freed_memory, "keep", process.keep)
    told: list[KeptMemory] = []
    ended = kept_memory.run(steps, process.record, lambda: None, told.append)
    assert process.measured == [process.freeing_ms] * min(len(process.measured), 5), "others are not measured"
    return ended, told[0] if told else None


def test_steps_with_kept_memory_come_behind_the_measured_ones_without_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process()
    told = KeptMemory(ms=50.0, freeing_ms=80.0, page_faults=8000.0, more_bytes=30)
    assert ran(process, monkeypatch, process.steps()) == (None, told)
    assert len(process.measured) == 5
    assert process.kept == 2 + 10, "for half a second"
    long = Process(freeing_ms=900, kept_ms=400, faults_a_step=90_000)
    assert ran(long, monkeypatch, long.steps())[1] == KeptMemory(
        ms=400.0, freeing_ms=900.0, page_faults=90_000.0, more_bytes=30
    )
    assert long.kept == 2 + 3


@pytest.mark.parametrize(
    "process",
    [
        Process(faults_a_step=80 * 19),
        Process(freeing_ms=3100, faults_a_step=1_000_000),
        Process(can=False),
    ],
    ids=["few page faults", "long steps", "no glibc"],
)
def test_no_more_steps_are_made_where_they_would_show_nothing_or_take_long(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(process, monkeypatch, process.steps()) == (None, None)
    assert process.kept <= 0


def test_a_single_step_shows_no_page_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    monkeypatch.setattr(process, "record", lambda *step: False)
    assert ran(process, monkeypatch, process.steps()) == (None, None)


def test_an_input_that_ends_behind_the_measured_steps_has_given_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    process, short = Process(), Process()
    assert ran(process, monkeypatch, process.steps(ends_after=7)) == (None, None)
    assert ran(short, monkeypatch, short.steps(ends_after=4)) == (4, None)


def test_what_fails_behind_the_measured_steps_costs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    process, short = Process(), Process()
    fails = process.steps(fails=lambda: UserCodeError("no memory is left", ""))
    assert ran(process, monkeypatch, fails) == (None, None)

    def failing(*, record: Record, alive: Alive) -> int | None:
        raise UserCodeError("no memory is left", "")

    with pytest.raises(UserCodeError, match="no memory"):
        ran(short, monkeypatch, failing)
