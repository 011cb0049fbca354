"""session: one `Session.run` a step, as TensorFlow 1 programs are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Any

from pipeline_bench.loops import Loop, StepFigures, StepRecorder, Training

Call = Callable[[dict[Any, Any] | None], Any]
"""Runs the fetches that it was made for, with what is fed; gives their values."""


class SessionLoop(Loop):
    """Fetches the train op and the loss; an input's probe rides along in the same call."""

    name = "session"
    summary = "one session.run([train, loss]) a step, from Python"

    def calling(self, session: Any, fetches: list[Any], feed: dict[Any, Any] | None = None) -> Call:
        """Return what runs a step.

        Args:
            session: the trial's.
            fetches: what each call gives.
            feed: a step's, for the placeholders that are fed; None where nothing is.
        """
        return partial(session.run, fetches)

    def run(self, session: Any, training: Training, record: StepRecorder) -> None:
        """Train; the step time runs from asking for the batch to having the loss."""
        feeding, figures = training.feeding, StepFigures(training)
        fetches = {sampled: [training.graph.train, figures.tensor(sampled)] for sampled in (False, True)}
        feeds = feeding.wait == "fetch"
        calls: dict[bool, Call] = {}
        if not feeds:  # else it is known only with the first step what is fed
            calls = {sampled: self.calling(session, each) for sampled, each in fetches.items()}
        feed, fetch_ns, more = None, 0, True
        while more:
            start_ns = monotonic_ns()
            if feeds:
                feed = feeding.fetch(session)
                fetch_ns = monotonic_ns() - start_ns
            sampled = record.should_sample
            if sampled not in calls:
                calls[sampled] = self.calling(session, fetches[sampled], feed)
            _, values = calls[sampled](feed)
            end_ns = monotonic_ns()
            wait_ns, loss, digest, busy_ns = figures.split(values, sampled)
            more = record(start_ns, end_ns, wait_ns + fetch_ns, loss, digest, busy_ns)
