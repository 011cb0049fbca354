"""What is remarked of a job for which the kernel makes much memory."""

from __future__ import annotations

import pytest

from pipeline_bench.monitoring import page_faults
from pipeline_bench.system import freed_memory
from pipeline_bench.system.freed_memory import Used


def remarked(
    monkeypatch: pytest.MonkeyPatch,
    faults: int,
    kernel_s: float,
    own_s: float,
    seconds: float = 40.0,
    gives_back: bool = True,
) -> str:
    """What is remarked of a job whose process had other work before, of the same kind."""
    used, now_ns = [Used(900_000, 30.0, 5.0, 0), Used(900_000 + faults, 30.0 + kernel_s, 5.0 + own_s, 0)], [0]
    monkeypatch.setattr(page_faults, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(freed_memory, "used", lambda: used.pop(0))
    monkeypatch.setattr(freed_memory, "gives_back", lambda: gives_back)
    job = page_faults.PageFaults()
    now_ns[0] = int(seconds * 1e9)
    return "".join(job.remarks())


def test_memory_that_is_made_all_the_time_is_remarked_with_how_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remarked(monkeypatch, faults=4_000_000, kernel_s=18.0, own_s=54.0) == (
        "25 % of its CPU time is the kernel's, which makes 100,000 pages of memory a second: malloc may give large "
        "blocks back to it when they are freed. With MALLOC_MMAP_MAX_=0 MALLOC_TOP_PAD_=67108864 in its environment it "
        "keeps those of up to 64 MiB, which takes more memory: run it so too, and `pipeline-bench diff` tells what it "
        "gains"
    )
    assert remarked(monkeypatch, faults=4_000_000, kernel_s=18.0, own_s=54.0, gives_back=False) == ""


@pytest.mark.parametrize(
    ("faults", "kernel_s", "own_s", "seconds"),
    [
        (600_000, 18.0, 54.0, 40.0),  # the kernel's time goes elsewhere, as into reading files
        (4_000_000, 6.0, 66.0, 40.0),
        (80_000, 1.0, 1.0, 1.0),  # of its beginning
        (0, 0.0, 0.0, 40.0),
    ],
)
def test_nothing_is_remarked_where_keeping_it_would_gain_little(
    monkeypatch: pytest.MonkeyPatch, faults: int, kernel_s: float, own_s: float, seconds: float
) -> None:
    assert remarked(monkeypatch, faults, kernel_s, own_s, seconds) == ""
