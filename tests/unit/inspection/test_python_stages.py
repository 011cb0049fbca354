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


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/home/user/reading.py", "reading.py"),
        ("/home/user/data/reading.py", "data/reading.py"),
        ("/env/site-packages/keras/src/legacy/preprocessing/image.py", "keras/…/preprocessing/image.py"),
        ("/env/site-packages/keras/src/image.py", "keras/src/image.py"),
        ("/env/site-packages/reading.py", "reading.py"),
    ],
)
def test_a_file_is_named_with_its_package_and_as_few_folders_as_tell_which_it_is(file: str, name: str) -> None:
    assert python_stages.file_name(file, beside="/home/user/train.py") == name
