"""The parts of a step: with the copy to a GPU where it was measured, and without a word of it where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_bench.analysis import conclusion
from pipeline_bench.model.result import DeviceCopy, Estimate, Speedup
from pipeline_bench.model.session import Session
from pipeline_bench.report import html, screen, step_parts
from tests.unit import sessions
from tests.unit.sessions import estimate

IN_THE_STEP = DeviceCopy(ms=estimate(2.46, 0.1), share=estimate(0.2, 0.02))
"""Of `sessions.normal`'s fifo_queue: 9.8 ms a step, 2 % of it wait, 71 % compute, 27 % host slowdown."""


def ahead(overlapped: float, gain: Speedup | None = None) -> DeviceCopy:
    gained = gain or Speedup(over="fifo_queue", value=1.3, ci95=(1.2, 1.4), difference="faster")
    return DeviceCopy(ms=estimate(2.46, 0.1), overlapped_share=estimate(overlapped, 0.02), gain=gained)


def with_copies(**copies: DeviceCopy) -> Session:
    session = sessions.normal()
    update: Any = [
        result.model_copy(update={"device_copy": copies.get(result.variant, DeviceCopy())})
        for result in session.results
    ]
    return session.model_copy(update={"results": tuple(update)})


def test_the_copy_is_taken_out_of_the_host_slowdown() -> None:
    result = with_copies(fifo_queue=IN_THE_STEP).result("fifo_queue")
    assert [value for value, _ in step_parts.of(result)] == pytest.approx([0.02, 0.71, 0.07, 0.2])
    assert sum(length for _, length in step_parts.of(result)) == pytest.approx(1)


def test_a_copy_is_never_longer_than_the_host_slowdown_that_it_is_a_part_of() -> None:
    copy = IN_THE_STEP.model_copy(update={"share": estimate(0.4, 0.02)})
    result = with_copies(fifo_queue=copy).result("fifo_queue")
    assert [value for value, _ in step_parts.of(result)] == pytest.approx([0.02, 0.71, 0.0, 0.27])


def test_reports_show_the_copy_only_where_a_session_has_one() -> None:
    on_cpu, on_gpu = sessions.normal(), with_copies(fifo_queue=IN_THE_STEP)
    assert step_parts.copies(on_cpu) == []
    assert step_parts.copies(on_gpu) == [
        ("fifo_queue", "2.46 ms of each step, 20 % of it (18 to 22 %); nothing overlaps")
    ]
    assert "copy" not in screen.as_text(on_cpu)
    assert ">copy<" in html.render(on_gpu)
    assert "></span> copy" in html.fragment(on_gpu)
    assert "></span> copy" not in html.fragment(on_cpu)


@pytest.mark.parametrize(
    ("overlapped", "words"),
    [(0.95, "it overlaps (at least 95 %"), (0.5, "overlaps in part (at least 50 %"), (0.05, "not seen to overlap")],
)
def test_a_copy_ahead_says_whether_it_overlaps_and_the_conclusion_with_what_gain(overlapped: float, words: str) -> None:
    session = with_copies(tf_data=ahead(overlapped))
    ((name, text),) = step_parts.copies(session)
    assert name == "tf_data"
    assert words in text
    concluded = conclusion.conclude(session)
    assert words in concluded
    assert "1.30× the throughput of fifo_queue" in concluded


def test_copies_of_several_variants_that_are_alike_are_said_together() -> None:
    none = Speedup(over="fifo_queue", value=1.01, ci95=(0.8, 1.2), difference="none", smallest=0.2)
    alike = conclusion.conclude(with_copies(tf_data=ahead(0.0, none), feed_dict=ahead(0.05, none)))
    assert alike.endswith("Copy to the GPU: it is not seen to overlap in feed_dict and tf_data; no gain is proven.")
    apart = conclusion.conclude(with_copies(tf_data=ahead(0.95), feed_dict=ahead(0.05, none)))
    assert (
        "it is not seen to overlap in feed_dict; it overlaps in tf_data; tf_data gains 1.30× over fifo_queue" in apart
    )


def test_no_gain_is_no_claim_and_an_unknown_overlap_has_its_reason() -> None:
    none = Speedup(over="fifo_queue", value=1.01, ci95=(0.98, 1.04), difference="none", smallest=0.031)
    assert "a tie with fifo_queue" in conclusion.conclude(with_copies(tf_data=ahead(0.95, none)))
    unknown = DeviceCopy(ms=estimate(0.01, 0.1), overlapped_share=Estimate(reason="the copy is too short"))
    ((_, text),) = step_parts.copies(with_copies(tf_data=unknown))
    assert text.endswith("the copy is too short")
