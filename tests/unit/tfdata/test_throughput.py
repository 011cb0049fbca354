"""What is measured beside the wall time while elements are taken."""

from __future__ import annotations

import pytest

from pipeline_bench.tfdata import throughput


@pytest.mark.parametrize(
    ("cpu_s", "queued_s"),
    [(0.0, 0.0), (20.0, 5.0), (40.0, 10.0), (60.0, 10.0)],
    ids=["waits", "half of what ran", "all of it", "all of it, which the machine counted late"],
)
def test_a_hypervisor_takes_from_a_process_in_proportion_to_what_it_computed(
    monkeypatch: pytest.MonkeyPatch, cpu_s: float, queued_s: float
) -> None:
    machine = iter([[0.0, 0.0, 0.0, 0.0], [30.0, 2.0, 8.0, 10.0]])
    own = iter([0.0, cpu_s])
    monkeypatch.setattr(throughput, "_machine_s", lambda: next(machine))
    monkeypatch.setattr(throughput, "queued_s", lambda *_: 0.0)
    monkeypatch.setattr(throughput, "_cpu_s", lambda: next(own))
    found = throughput.rate(lambda: None, seconds=0.0)
    assert found.queued_ns == pytest.approx(queued_s * 1e9)


def test_what_linux_counts_of_the_machine_is_read() -> None:
    """The kernel counts from its start, so that each but what is stolen is above 0."""
    user_s, nice_s, system_s, stolen_s = throughput._machine_s()
    assert user_s > 0
    assert system_s > 0
    assert min(nice_s, stolen_s) >= 0


def test_where_the_machine_counts_nothing_its_threads_still_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no /proc/stat")

    queued = iter([1.0, 3.0])
    monkeypatch.setattr(throughput, "_machine_s", refuse)
    monkeypatch.setattr(throughput, "Path", lambda _: _Tasks())
    monkeypatch.setattr(throughput, "queued_s", lambda *_: next(queued))
    assert throughput.rate(lambda: None, seconds=0.0).queued_ns == pytest.approx(2e9)


def test_how_long_threads_had_no_core_is_not_known_where_the_system_does_not_count_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throughput, "queued_s", lambda *_: None)
    assert throughput.rate(lambda: None, seconds=0.0).queued_ns is None


def test_a_thread_that_ends_while_all_are_read_leaves_the_others_known(monkeypatch: pytest.MonkeyPatch) -> None:
    queued = iter([1.0, None, 3.0, None])
    monkeypatch.setattr(throughput, "Path", lambda _: _Tasks(2))
    monkeypatch.setattr(throughput, "_machine_s", lambda: [0.0] * 4)
    monkeypatch.setattr(throughput, "queued_s", lambda *_: next(queued))
    assert throughput.rate(lambda: None, seconds=0.0).queued_ns == pytest.approx(2e9)


class _Tasks:
    name = "1"

    def __init__(self, count: int = 1) -> None:
        self._count = count

    def glob(self, _: str) -> list[_Tasks]:
        return [self] * self._count
