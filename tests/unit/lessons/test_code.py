"""What is shown of code: the lines that matter, its docstring in brief."""

import pytest

from pipeline_bench.lessons.code import between, briefly_described


def test_a_docstring_is_cut_to_its_first_line_and_the_rest_is_left_as_it_is() -> None:
    code = "def short(a, b):\n    {}\n    # why\n    return (a,\n            b)  # what"
    long = '"""What it does, in a line.\n\n    Args:\n        a: is for who calls it.\n    """'
    assert briefly_described(code.format(long)) == code.format('"""What it does, in a line."""')


def test_the_lines_that_matter_are_chosen_by_how_they_begin() -> None:
    assert between("def f():\n    a = 1\n    b = 2\n    c = 3\n", "b =", "c") == "b = 2\nc = 3"


@pytest.mark.parametrize(("first", "last"), [("d =", "c"), ("b =", "a")])
def test_lines_that_are_not_there_are_an_error(first: str, last: str) -> None:
    with pytest.raises(ValueError, match="No line that begins with"):
        between("def f():\n    a = 1\n    b = 2\n    c = 3\n", first, last)
