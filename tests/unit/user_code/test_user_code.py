"""What an exception of the user's says, in one line."""

from __future__ import annotations

import gc
import sys

import pytest

from pipeline_bench import user_code

IN_A_LAYER = (
    "Exception encountered when calling Net.call().\n\n\x1b[1mno such op\x1b[0m\n\n"
    "Arguments received by Net.call():\n  • x=1"
)


def traced(words: str) -> str:
    """As TensorFlow writes an error of a traced function."""
    inside = "\n".join(f"    {line}" for line in f"ValueError: {words}".splitlines())
    return f'in user code:\n\n    File "train.py", line 3, in step  *\n        y = net(x)\n\n{inside}\n'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("no such op", "ValueError: no such op"),
        (IN_A_LAYER, "ValueError: no such op (in Net.call())"),
        (traced("no such op"), "ValueError: no such op"),
        (traced(IN_A_LAYER), "ValueError: no such op (in Net.call())"),
        ("in user code:\n\n    something else", "ValueError: something else"),
    ],
)
def test_the_error_itself_is_told_and_not_what_is_written_around_it(words: str, expected: str) -> None:
    assert user_code.summary(ValueError(words)) == expected


def test_no_garbage_is_collected_while_the_frames_of_other_threads_are_walked_through() -> None:
    """What it runs may let such a thread leave the function whose frame is being made, as Python 3.11 collects then."""
    collected: list[str] = []

    def note(phase: str, _: object) -> None:
        collected.append(phase)

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        with user_code.collection_held():
            collected.clear()
            made = [[number] for number in range(100)]
            while_held = list(collected)
        made += [[number] for number in range(100)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert made
    assert collected, "it goes on behind the block"
    assert gc.isenabled()
    if sys.version_info < (3, 12):
        assert while_held == []
    gc.disable()
    try:
        with user_code.collection_held():
            pass
        assert not gc.isenabled(), "who has switched it off means it to be off"
    finally:
        gc.enable()
