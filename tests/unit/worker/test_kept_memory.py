"""Steps with kept memory, behind the measured ones of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pipeline_bench.errors import UserCodeError
from pipeline_bench.model.events import KeptMemory
from pipeline_bench.system import freed_memory
from pipeline_bench.system.freed_memory import Used
from pipeline_bench.worker import kept_memory
from pipeline_bench.worker.consumers import Alive, Record

MS = 1_000_000


@dataclass
class Process:
    """A process whose steps take less once its memory is kept, and its recorder."""

    freeing_ms: int = 80
    kept_ms: int = 50
    settling_ms: int = 400
    """What the first two steps with kept memory take."""
    faults_a_step: int = 8000
    """While memory is given back."""
    measures: int = 12
    can: bool = True
    kept: int = -1
    """How many steps have been since the memory is kept; less than 0: it is not."""
    now_ns: int = 0
    faults: int = 50_000
    """The first ones are of tracing."""
    made: int = 0
    measured: list[float] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)

    def used(self) -> Used:
        """A page takes the kernel 4 µs."""
        return Used(self.faults, self.faults * 4e-6, 1.0, 130 if self.kept > 0 else 100)

    def keep(self) -> bool:
        self.kept = 0 if self.can else -1
        return self.can

    def step(self) -> tuple[int, int]:
        start_ns = self.now_ns
        self.made += 1
        if self.kept < 0:
            self.now_ns += self.freeing_ms * MS
            self.faults += self.faults_a_step
        else:
            self.now_ns += (self.settling_ms if self.kept < 2 else self.kept_ms) * MS
            self.faults += 10
            self.kept += 1
        return start_ns, self.now_ns

    def __call__(self, start_ns: int, end_ns: int, wait_ns: int, loss: float) -> bool:
        self.measured.append((end_ns - start_ns) / MS)
        return len(self.measured) < self.measures

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def heartbeat(self) -> None:
        pass

    def steps(self, ends_after: int = 1000, error: Exception | None = None) -> kept_memory._Steps:
        """Take steps, of which the input has so many, and then ends, or fails."""

        def steps(*, record: Record, alive: Alive) -> int | None:
            for _ in range(ends_after):
                if not record(*self.step(), 0, 0.0):
                    return None
            if error is not None:
                raise error
            return ends_after

        return steps


Ran = Callable[..., tuple[int | None, KeptMemory | None]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    def run(
        process: Process,
        steps: kept_memory._Steps | None = None,
        limit_s: float = 15.0,
        gives_back: bool = True,
        keeps: bool = True,
    ) -> tuple[int | None, KeptMemory | None]:
        """Return what `run` returned, and told."""
        monkeypatch.setattr(freed_memory, "used", process.used)
        monkeypatch.setattr(freed_memory, "keep", process.keep)
        monkeypatch.setattr(freed_memory, "gives_back", lambda: gives_back)
        monkeypatch.setattr(kept_memory, "monotonic_ns", lambda: process.now_ns)
        told: list[KeptMemory] = []
        ended = kept_memory.run(steps or process.steps(), cast("Any", process), told.append, limit_s, keeps=keeps)
        assert set(process.measured) <= {process.freeing_ms}, "others are not measured"
        return ended, told[0] if told else None

    return run


def test_steps_with_kept_memory_come_behind_the_measured_ones_and_the_first_do_not_count(ran: Ran) -> None:
    process = Process()
    told = {"ms": 50.0, "before_ms": 80.0, "kernel_ms": 0.04, "page_faults": 10.0, "more_bytes": 30}
    ended, found = ran(process)
    assert ended is None
    assert found is not None
    assert found.model_dump() == pytest.approx({"event": "memory", "kept": True, **told})
    assert (len(process.measured), process.phases) == (12, ["keep"])
    assert process.kept == 2 + 10, "for half a second"


def test_another_trial_takes_as_many_without(ran: Ran) -> None:
    process = Process()
    told = {"ms": 80.0, "before_ms": 80.0, "kernel_ms": 32.0, "page_faults": 8000.0, "more_bytes": 0}
    _, found = ran(process, keeps=False)
    assert found is not None
    assert found.model_dump() == pytest.approx({"event": "memory", "kept": False, **told})
    assert (process.made, process.kept) == (12 + 2 + 7, -1)


@pytest.mark.parametrize(("measures", "freeing"), [(1, 6), (2, 6), (9, 9)])
def test_five_steps_of_each_kind_count_at_the_least(ran: Ran, measures: int, freeing: int) -> None:
    process = Process(freeing_ms=900, kept_ms=400, faults_a_step=90_000, measures=measures)
    _, found = ran(process)
    assert found is not None
    assert (found.ms, found.before_ms) == (400.0, 900.0)
    assert (len(process.measured), process.made - process.kept, process.kept) == (measures, freeing, 7)


def test_the_steps_before_are_the_last_ones(ran: Ran) -> None:
    process = Process(measures=30)
    plain = process.step

    def shorter_and_shorter() -> tuple[int, int]:
        process.freeing_ms = max(60, 200 - 10 * process.made)
        return plain()

    process.step = shorter_and_shorter  # type: ignore[method-assign]
    process.measured = cast("Any", Anything())
    _, found = ran(process)
    assert found is not None
    assert found.before_ms == 60.0


class Anything(list[float]):
    """Steps of any length."""

    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("process", "made"),
    [
        (Process(faults_a_step=80 * 19), 12),
        (Process(faults_a_step=0, freeing_ms=1200, measures=1), 2),
        (Process(freeing_ms=3100, faults_a_step=1_000_000, measures=4), 4),
        (Process(can=False), 12),
    ],
    ids=["few page faults", "few in a second step", "long steps", "it cannot be told"],
)
def test_no_more_steps_are_made_where_they_would_show_nothing_or_take_long(
    ran: Ran, process: Process, made: int
) -> None:
    assert ran(process) == (None, None)
    assert (process.made, process.phases) == (made, ["keep"] * (made > len(process.measured)))


@pytest.mark.parametrize("how", [{"limit_s": 0.0}, {"gives_back": False}])
def test_a_trial_that_is_not_to_look_has_its_own_steps(ran: Ran, how: dict[str, Any]) -> None:
    process = Process()
    assert ran(process, **how) == (None, None)
    assert (process.made, process.phases) == (12, [])


def test_elements_that_were_taken_before_are_not_among_those_with_kept_memory(ran: Ran) -> None:
    """A drain of whole passes, which hands over all elements of one at its end."""
    process = Process(freeing_ms=10, kept_ms=5, settling_ms=5, faults_a_step=1000, measures=450)

    def passes(*, record: Record, alive: Alive) -> int | None:
        while True:
            taken = [process.step() for _ in range(200)]
            if not all(record(*each, 0, 0.0) for each in taken):
                return None

    _, found = ran(process, passes)
    assert found is not None
    assert (found.ms, found.before_ms) == (5.0, 10.0)


def test_an_input_that_ends_behind_the_measured_steps_has_given_enough(ran: Ran) -> None:
    process, short = Process(), Process()
    assert ran(process, process.steps(ends_after=15)) == (None, None)
    assert ran(short, short.steps(ends_after=4)) == (4, None)


@pytest.mark.parametrize("error", [UserCodeError("no memory is left", ""), MemoryError(), RuntimeError()])
def test_what_fails_behind_the_measured_steps_costs_no_trial(ran: Ran, error: Exception) -> None:
    process, short = Process(), Process()
    assert ran(process, process.steps(ends_after=13, error=error)) == (None, None)
    with pytest.raises(type(error)):
        ran(short, short.steps(ends_after=5, error=error))
