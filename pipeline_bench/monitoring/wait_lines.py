"""Where a thread of the program is while its loop makes its next batch itself, by samples of its stack."""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from pathlib import Path

from pipeline_bench.model.pipeline import Location
from pipeline_bench.text import one_line, units
from pipeline_bench.tfdata import user_code

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
        self._waits: dict[int, list[tuple[str, int] | None]] = {}
        """By thread: where it was seen since it began to wait, None where no code of the user's ran."""
        self._seen: Counter[tuple[str, int] | None] = Counter()

    def begin(self, thread: int) -> None:
        """Take in that a thread begins to wait."""
        self._waits[thread] = []

    def end(self, thread: int, *, counts: bool) -> None:
        """Take in that a thread waits no more; what did not end with a step does not count."""
        samples = self._waits.pop(thread, [])
        if counts:
            self._seen.update(samples)

    def sample(self) -> None:
        """Note where the threads that wait are."""
        for thread, samples in tuple(self._waits.items()):
            lines = (
                (frame.f_code.co_filename, frame.f_lineno)
                for frame in user_code.outward(sys._current_frames().get(thread))
                if user_code.origin(frame.f_code.co_filename) == "user"
            )
            samples.append(next(lines, None))

    def costliest(self) -> user_code.LineCost | None:
        """Return the line that was seen most; None where too few samples were taken, or no line stands out."""
        total = self._seen.total()
        lines = Counter({line: count for line, count in self._seen.items() if line is not None})
        if total < _LEAST_SAMPLES or not lines:
            return None
        ((file, line), count) = lines.most_common(1)[0]
        if count < _LEAST_SHARE * total:
            return None
        place = Location(file=file, line=line, text=linecache.getline(file, line).strip())
        return user_code.LineCost(place, count / total)

    def remarks(self) -> tuple[str, ...]:
        """Return which line takes how much of the waiting, where one stands out."""
        found = self.costliest()
        if found is None:
            return ()
        where = f"{Path(found.place.file).name}:{found.place.line}"
        return (f"of the input wait, {units.share(found.share)} is in {where}: {one_line(found.place.text, 80)}",)
