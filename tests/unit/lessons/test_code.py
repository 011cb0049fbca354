"""Code made to fit a column: the same program, in lines that are short enough."""

import ast

import pytest

from pipeline_bench.lessons.code import between, fitted

LONG = '''
def long(first, second):
    """What it does, in a line.

    Args:
        first: is for who calls it.
    """
    # Why it does what it does takes more words than there is room for in a line.
    total = combined(first.value, second.value, [each for each in first if each], name="of a total")
    for one, other in zip(first.values, second.values):
        print("a string, with (brackets and commas, in it", one, other)
    return total
'''.strip()


@pytest.mark.parametrize("columns", [40, 60, 76])
def test_broken_lines_are_the_same_program(columns: int) -> None:
    shown = fitted(LONG, columns)
    program, brief = ast.parse(LONG), ast.parse(shown)
    for tree in (program, brief):
        del tree.body[0].body[0]  # type: ignore[attr-defined]  # the docstring, which is cut
    assert ast.dump(brief) == ast.dump(program)


def test_lines_fit_where_there_is_a_place_to_break_them() -> None:
    assert max(map(len, fitted(LONG, 60).splitlines())) <= 60


def test_a_docstring_is_cut_to_its_first_line() -> None:
    assert '"""What it does, in a line."""' in fitted(LONG, 76)
    assert "Args" not in fitted(LONG, 76)


def test_code_that_fits_is_left_as_it_is() -> None:
    code = "def short(a, b):\n    # why\n    return (a,\n            b)  # what"
    assert fitted(code, 76) == code


def test_the_lines_that_matter_are_chosen_by_how_they_begin() -> None:
    assert between("def f():\n    a = 1\n    b = 2\n    c = 3\n", "b =", "c") == "b = 2\nc = 3"


@pytest.mark.parametrize(("first", "last"), [("d =", "c"), ("b =", "a")])
def test_lines_that_are_not_there_are_an_error(first: str, last: str) -> None:
    with pytest.raises(ValueError, match="No line that begins with"):
        between("def f():\n    a = 1\n    b = 2\n    c = 3\n", first, last)
