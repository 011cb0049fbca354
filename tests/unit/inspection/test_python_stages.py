"""How a line of the user's code is shown."""

from __future__ import annotations

import pytest

from pipeline_bench.inspection import python_stages


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("return x", "return x."),
        ("x /= 255.", "x /= 255."),
        ("y = transform(x,", "y = transform(x, …"),
        ("y" * 200, "y" * 79 + "…"),
    ],
)
def test_a_line_of_code_ends_a_sentence(code: str, shown: str) -> None:
    assert python_stages.end_of_sentence(code) == shown
