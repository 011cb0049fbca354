"""The main thread, lent to a script of the user's: what begins a training in it never returns, and the trial goes on.

Wherever that call returned or raised, code of the user's would go on behind it: a `finally` saves a model that was not
trained, an `except:` tries again. So the call waits until the process ends. The trial could as well go on within the
call, but there it would be inside of what the script is inside of: a strategy's scope, a graph, a `tf.function` that is
being traced. In a thread of its own it is in none of these. It is the trial that has that thread, and not the script:
only the main thread may set signal handlers, as scripts do that save their state when they are ended.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

_LOOK_EVERY_S = 1.0

_Item = TypeVar("_Item")

_given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def lend(work: Callable[[], NoReturn]) -> NoReturn:
    """Do the work, which ends the process, in a thread of its own; run in this one what `run` is given meanwhile."""

    def end() -> None:
        try:
            work()
        finally:
            os._exit(1)

    threading.Thread(target=end, name="pipeline-bench trial", daemon=True).start()
    while True:
        with contextlib.suppress(BaseException):  # what a signal handler of the script's raises later
            _given.get()()


def run(function: Callable[[], None]) -> None:
    """Run a function in the main thread, which is lent; return at once."""
    _given.put(function)


def park() -> NoReturn:
    """Keep the calling thread here until the process ends, whatever a signal handler of the script's raises."""
    never: queue.SimpleQueue[None] = queue.SimpleQueue()
    while True:
        with contextlib.suppress(BaseException):
            never.get()


def receive(box: queue.SimpleQueue[_Item], waiting: Callable[[], None]) -> _Item:
    """Return what another thread puts into a box; call `waiting` once a second until then."""
    while True:
        try:
            return box.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            waiting()


def end_others() -> None:
    """Wait for a script's other threads, as the interpreter does at its end; pools end theirs first."""
    for end in reversed(getattr(threading, "_threading_atexits", ())):
        end()
    for pools, is_closed in (
        ("concurrent.futures.thread", "_shutdown"),
        ("concurrent.futures.process", "_global_shutdown"),
    ):
        if pools in sys.modules:  # the trial goes on, and what it runs of the script's has pools too
            setattr(sys.modules[pools], is_closed, False)
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
