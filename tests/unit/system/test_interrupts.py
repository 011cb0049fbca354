"""Signals that are kept back until the code asks for them."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline_bench.system import interrupts


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Python's own handlers, also where the tests were started with SIGINT ignored; nothing is left behind."""
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt_me(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_a_signal_is_kept_back_until_it_is_asked_for() -> None:
    reached = []
    with interrupts.deferred():
        interrupt_me()
        reached.append("behind the signal")
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()
    assert reached == ["behind the signal"]


def test_a_signal_that_nobody_asked_for_takes_effect_at_the_end() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():  # noqa: PT012 - what comes behind the signal counts
        interrupt_me()
        reached.append("behind the signal")
    assert reached == ["behind the signal"]


def test_a_second_signal_behind_one_that_took_effect_is_none_at_the_end() -> None:
    with interrupts.deferred():
        interrupt_me()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupt_me()


def test_of_blocks_in_blocks_the_outermost_counts() -> None:
    with interrupts.deferred():
        with interrupts.deferred():
            interrupt_me()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_the_handlers_are_as_before_behind_the_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts.deferred():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_what_the_block_raises_comes_before_a_signal() -> None:
    with pytest.raises(ValueError, match="of the block"), interrupts.deferred():  # noqa: PT012 - the signal is part of it
        interrupt_me()
        raise ValueError("of the block")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with interrupts.deferred():
        interrupt_me(number)
        interrupts.check()
    assert signal.getsignal(number) is signal.SIG_IGN


def test_a_handler_of_the_callers_is_called_with_its_signal() -> None:
    called: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
    with interrupts.deferred():
        interrupt_me(signal.SIGTERM)
        assert called == []
        interrupts.check()
        assert called == [signal.SIGTERM]


def test_a_second_signal_takes_effect_at_once_where_the_first_is_kept_back_for_long() -> None:
    now_s = 0.0
    with pytest.raises(KeyboardInterrupt), interrupts.deferred(lambda: now_s):  # noqa: PT012 - so are the ones before
        interrupt_me()
        now_s = interrupts.INSIST_AFTER_S - 1
        interrupt_me()
        now_s = interrupts.INSIST_AFTER_S + 1
        interrupt_me()
        pytest.fail("it is still kept back")


def test_a_further_ctrl_c_is_dropped_behind_a_block_that_ends_what_the_first_one_ended() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt, match="the first"):  # noqa: PT012 - and not the second
        try:
            raise KeyboardInterrupt("the first")
        finally:
            with interrupts.to_the_end():
                interrupt_me()
                reached.append("behind the signal")
    assert reached == ["behind the signal"]


def test_a_first_ctrl_c_takes_effect_behind_the_block_except_where_the_program_ends() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts.to_the_end():  # noqa: PT012 - what comes behind the signal counts
        interrupt_me()
        reached.append("behind the first")
    with interrupts.to_the_end(ending=True):
        interrupt_me()
        reached.append("behind the second")
    assert reached == ["behind the first", "behind the second"]


def test_in_another_thread_nothing_is_kept_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def other() -> None:
        with interrupts.deferred():
            interrupts.check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_was_waited_is_no_longer_for_a_time_in_which_the_process_was_stopped() -> None:
    now_s = [0.0]
    waited = interrupts.Waited(lambda: now_s[0])
    looks = []
    for now_s[0] in (0.25, 0.5, 3600.0, 3600.25):
        looks.append(waited.seconds())
    assert looks == [0.25, 0.5, 0.5 + interrupts.LONGEST_LOOK_S, 0.75 + interrupts.LONGEST_LOOK_S]
    waited.restart()
    assert waited.seconds() == 0


def test_what_has_no_core_to_run_on_is_not_waited_for() -> None:
    now_s, queued_s = [0.0], [5.0]
    waited = interrupts.Waited(lambda: now_s[0], lambda: queued_s[0])
    looks = []
    for now_s[0], queued_s[0] in ((0.5, 5.0), (1.0, 5.25), (1.5, 9.0), (1.75, 0.0)):
        looks.append(waited.seconds())
    assert looks == [0.5, 0.75, 0.0, 1.75]


class LimitError(Exception):
    """What a job raises when its time is over."""


class Handler:
    def method(self, number: int, frame: object) -> None:
        raise LimitError

    __call__ = method


def function(number: int, frame: object) -> None:
    raise LimitError


@pytest.mark.parametrize(
    "handler",
    [function, Handler().method, Handler(), functools.partial(function)],
    ids=["function", "method", "object", "partial"],
)
def test_what_a_handler_raises_is_known_from_what_the_work_does(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(LimitError) as raised:
            interrupt_me(signal.SIGUSR1)
        assert interrupts.raised_by_handler(raised.value)
        with pytest.raises(ZeroDivisionError) as failed:
            divmod(1, 0)
        assert not interrupts.raised_by_handler(failed.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
