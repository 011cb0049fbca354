"""How a line of the user's code is shown."""

from __future__ import annotations

from pathlib import Path

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
    ("code", "share", "told"),
    [
        ("ds = ds.map(\n    lambda x: f(x)\n)", 0.997, False),
        ("ds = ds.map(\n    lambda x: f(x)\n)", 0.6, True),  # the rest is in lines of what it calls
        ("ds = ds.map(\n    lambda x: (\n        f(x), x))", 0.997, True),
        ("ds = 0\ndef decode(x): return f(x)", 0.997, False),
        ("ds = 0\ndef decode(x):\n    return f(x)", 0.997, True),
    ],
)
def test_a_line_that_is_the_whole_function_is_not_told(tmp_path: Path, code: str, share: float, told: bool) -> None:
    """Of a lambda of one line it was "Of a call of map(<lambda>), 100 % is in line 67"."""
    file = tmp_path / "train.py"
    file.write_text(code)
    looked = python_stages.with_function(diagnoses.inspection(), 2, file=str(file), line=2)
    found = python_stages._with_lines(looked, 2, [LineCost(Location(file=str(file), line=2), share)])
    assert (found != looked) is told


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
