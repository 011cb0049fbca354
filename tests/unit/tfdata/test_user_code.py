"""What an exception of the user's says, in one line."""

from __future__ import annotations

import pytest

from pipeline_bench.tfdata import user_code

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
