"""The samplers' thread: what goes wrong in it does not end it."""

from __future__ import annotations

import threading

from pipeline_bench.monitoring.sampling import Readings, SamplerThread


def test_the_thread_goes_on_after_what_is_done_after_a_poll_raised_and_keeps_what() -> None:
    again = threading.Event()
    calls = []

    def fails_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("the graph's rows cannot be read")
        again.set()

    thread = SamplerThread([], Readings(), fails_once)
    assert again.wait(timeout=60)
    thread.close()
    assert str(thread.problem) == "the graph's rows cannot be read"
