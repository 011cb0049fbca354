"""How a line of the user's code is shown."""

from __future__ import annotations

import pytest

from pipeline_bench.inspection import python_stages
from pipeline_bench.model.pipeline import Location
from pipeline_bench.user_code.line_profile import LineCost
from tests.unit import diagnoses


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


@pytest.mark.parametrize(
    ("other", "told"),
    [(0.4, " Nearly as much, 40 %, is in line 12 of user/reading.py: y = read(path)."), (0.3, "")],
)
def test_a_line_that_takes_nearly_as_much_as_the_costliest_is_told_beside_it(other: float, told: str) -> None:
    lines = [
        LineCost(Location(file=diagnoses.FILE, line=11, text="y = resize(x)"), 0.5),
        LineCost(Location(file="/home/user/reading.py", line=12, text="y = read(path)"), other),
    ]
    found = python_stages._with_lines(diagnoses.inspection(), 2, lines)
    assert found.notes[-1].endswith(f"50 % is in line 11: y = resize(x).{told}")
    assert (found.stage(2).function or diagnoses.decode()).costliest == "line 11"
