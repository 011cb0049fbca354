"""Which lines of the user's Python take the time of a function."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any, NamedTuple

from pipeline_bench import user_code
from pipeline_bench.model.pipeline import Location
from pipeline_bench.user_code import source_guards

Line = tuple[str, int]
"""A file and a line in it."""


class LineCost(NamedTuple):
    """What of a function's time is spent in a line."""

    place: Location
    share: float
    """Of the whole function's time, 0 to 1."""
    runs: float | None = None
    """How often it runs in a call of the function, on average; None where that is not counted."""
    run_ns: float | None = None
    """How long each time."""


class LineCosts(NamedTuple):
    """Lines of the user's, the costliest first."""

    own: list[LineCost]
    """Without what is spent in followed lines of the functions that they call."""
    whole: list[LineCost]
    """With it."""
    calls: int
    """Of the function, during which they were counted."""


class Tracer:
    """Charges the time between two events to the followed line that was under way, and to those that called it."""

    def __init__(self, follows: Callable[[str], bool]) -> None:
        """Charge lines of the files that `follows` is true of."""
        self.own: Counter[Line] = Counter()
        self.whole: Counter[Line] = Counter()
        self._begun: Counter[tuple[Line, int]] = Counter()
        """How often each line was entered, by the place of the instruction: what is in brackets over several lines
        comes back to the first of them."""
        self._outside_ns = 0
        self._follows = follows
        self._at: Line | None = None
        self._callers: list[Line | None] = []
        self._since_ns = 0

    @property
    def total_ns(self) -> int:
        """All time between `begin` and `end`, also that in which no followed line was under way."""
        return self.own.total() + self._outside_ns

    def runs(self, line: Line) -> int:
        """Return how often a line ran, once at least."""
        return max((count for (each, _), count in self._begun.items() if each == line), default=1)

    def begin(self) -> None:
        """Begin to count time, with no line under way."""
        self._callers.clear()
        self._at, self._since_ns = None, time.perf_counter_ns()

    def end(self) -> None:
        """Count no more time until it begins again."""
        self._charge(None)

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Follow the lines of functions in these files, no other's; as `sys.settrace` takes it."""
        if not self._follows(frame.f_code.co_filename):
            return None
        caller = self._at
        self._charge((frame.f_code.co_filename, frame.f_lineno))
        self._callers.append(caller)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":  # to the line that was under way, which may have called this through a library
            self._charge(self._callers[-1] if self._callers else None)
            del self._callers[-1:]
        else:
            line = frame.f_code.co_filename, frame.f_lineno
            self._charge(line)
            self._begun[line, frame.f_lasti] += 1
        return self._line

    def _charge(self, now: Line | None) -> None:
        spent_ns = time.perf_counter_ns() - self._since_ns
        if self._at is None:
            self._outside_ns += spent_ns
        else:
            self.own[self._at] += spent_ns
            for line in {self._at, *self._callers}:
                if line is not None:
                    self.whole[line] += spent_ns
        self._at, self._since_ns = now, time.perf_counter_ns()


Follow = Callable[[Tracer], AbstractContextManager[None]]
"""Has the lines that run in a block followed."""


@contextmanager
def in_this_thread(tracer: Tracer) -> Iterator[None]:
    """Follow the lines that run in this thread in the block."""
    before = sys.gettrace()
    tracer.begin()
    sys.settrace(tracer.call)
    try:
        yield
    finally:
        sys.settrace(before)
        tracer.end()


@contextmanager
def pools_in_this_thread() -> Iterator[None]:
    """Have what the block maps over a pool of threads run in the thread that does so, where its lines are followed.

    It is over when the pool's method returns, and what it raised comes with its result. What is handed to a pool alone
    (`submit`) runs there: it may be a loop without an end.
    """
    # Here: a watched job imports this module too, and needs neither.
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool

    of_threads = {"imap": _map_each, "imap_unordered": _map_each, "map": _map_to_list, "starmap": _starmap_to_list}
    replaced: dict[type, dict[str, Any]] = {ThreadPoolExecutor: {"map": _map_together}, ThreadPool: of_threads}
    with ExitStack() as patches:
        for pool, methods in replaced.items():
            for name, method in methods.items():
                patches.enter_context(user_code.patched(pool, name, method))
        yield


def _map_together(pool: Any, function: Callable[..., Any], *given: Iterable[Any], **options: Any) -> Iterator[Any]:
    return _called(function, zip(*given, strict=False))


def _map_each(pool: Any, function: Callable[..., Any], given: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
    return _called(function, ((each,) for each in given))


def _map_to_list(pool: Any, function: Callable[..., Any], given: Iterable[Any], chunksize: int | None = None) -> Any:
    return list(_map_each(pool, function, given))


def _starmap_to_list(
    pool: Any, function: Callable[..., Any], given: Iterable[Any], chunksize: int | None = None
) -> Any:
    return list(_called(function, given))


def _called(function: Callable[..., Any], given: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Call a function with each, and return an iterator over what it gave, which raises in the place of a result."""
    gave: list[Any] = []
    raised: Exception | None = None
    try:
        for arguments in given:
            gave.append(function(*arguments))
    except Exception as error:
        raised = error

    def results() -> Iterator[Any]:
        yield from gave
        if raised is not None:
            raise raised

    return results()


def line_costs(
    function: Callable[[], Any],
    seconds: float,
    follows: Callable[[str], bool] = user_code.is_users,
    follow: Follow = in_this_thread,
) -> LineCosts:
    """Call a function for so long, once at least, and return what its lines cost.

    Following every line costs about 0.5 us a line, so that short lines in a loop look somewhat costlier than they are.

    Args:
        function: what it raises passes through.
        seconds: no further call is begun after that time.
        follows: whether the lines of a file are followed; those of others count for the line that calls them.
        follow: has the lines followed in the block, where they run; of one thread at a time.
    """
    tracer = Tracer(functools.lru_cache(maxsize=None)(follows))
    end_s, calls = time.monotonic() + seconds, 0
    with follow(tracer), pools_in_this_thread():
        while True:
            function()
            calls += 1
            if time.monotonic() >= end_s:
                break
    own = []
    for each in shares(tracer.own, tracer.total_ns):
        line = each.place.file, each.place.line
        runs = tracer.runs(line)
        own.append(each._replace(runs=runs / calls, run_ns=tracer.own[line] / runs))
    return LineCosts(own, shares(tracer.whole, tracer.total_ns), calls)


def is_whole_function(place: Location) -> bool:
    """Return whether a function that begins in a line ends there, as most lambdas do; False if that is not known."""
    functions = (each for each in source_guards.nodes(place.file) if isinstance(each, ast.FunctionDef | ast.Lambda))
    return any((each.lineno, each.end_lineno) == (place.line, place.line) for each in functions)


def shares(spent: Counter[Line], total: int, most: int | None = None) -> list[LineCost]:
    """Return the lines on which a total was spent, by file and number, the costliest first; `most` of them."""
    return [
        LineCost(Location(file=file, line=line, text=linecache.getline(file, line).strip()), part / total)
        for (file, line), part in spent.most_common(most)
    ]
