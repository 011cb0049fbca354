"""Where a thread of the program is while its loop makes its next batch itself, by samples of its stack."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_bench import user_code
from pipeline_bench.text import one_line, units
from pipeline_bench.user_code.line_profile import LineCost, shares

_LEAST_SAMPLES = 20
"""Five a second are taken, so four seconds of waiting; a share of a half is then within 22 points (binomial, 95 %)."""
_LEAST_SHARE = 0.2
"""Of the samples, from which on a line is worth a word."""


class WaitLines:
    """Counts the lines of the user's code that run, or call what runs, while a thread waits for its batch.

    Any thread may call.
    """

    def __init__(self) -> None:
        """Begin; no thread waits."""
        self._waits: dict[int, Counter[tuple[str, int] | None]] = {}
        """By thread: where it was seen how often since it began to wait, which may be for ever; None: in no line of the
        user's."""
        self._seen: Counter[tuple[str, int]] = Counter()
        self._samples = 0

    def begin(self, thread: int) -> None:
        """Take in that a thread begins to wait."""
        self._waits[thread] = Counter()

    def end(self, thread: int, *, counts: bool) -> None:
        """Take in that a thread waits no more; what did not end with a step does not count."""
        samples = self._waits.pop(thread, None)
        if counts and samples:  # seldom: five a second are taken
            found = list(samples.items())  # a sample that has begun may still be added
            self._samples += sum(count for _, count in found)
            self._seen.update({place: count for place, count in found if place is not None})

    @contextmanager
    def paused(self, thread: int) -> Iterator[None]:
        """Leave out a thread that waits for its batch, but not in the block."""
        samples = self._waits.pop(thread, None)
        try:
            yield
        finally:
            if samples is not None:
                self._waits[thread] = samples

    def sample(self) -> None:
        """Note where the threads that wait are."""
        with user_code.collection_held():
            frames = sys._current_frames()
            seen = [
                (samples, list(user_code.outward(frames[thread])))
                for thread, samples in tuple(self._waits.items())
                if thread in frames
            ]
        for samples, stack in seen:
            place = next(user_code.calls(stack), None)
            samples[None if place is None else (place.file, place.line)] += 1

    def costliest(self) -> LineCost | None:
        """Return the line that was seen most; None where too few samples were taken, or no line stands out."""
        found = next(iter(shares(self._seen, self._samples, 1)), None)
        stands_out = found is not None and self._samples >= _LEAST_SAMPLES and found.share >= _LEAST_SHARE
        return found if stands_out else None

    def remarks(self, of: str = "input wait") -> tuple[str, ...]:
        """Return which line takes how much of what the threads wait for, where one stands out."""
        found = self.costliest()
        if found is None:
            return ()
        text = one_line(found.place.text, 80)
        return (f"of the {of}, {units.share(found.share)} is in {found.place.short}: {text}",)
