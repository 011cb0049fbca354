"""A function in two halves: run one after the other they give what it gives, or it is refused with a reason."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from pipeline_bench.tfdata import splitting
from pipeline_bench.tfdata.splitting import CannotSplitError

AROUND = "SCALE = 3\ndef outside(x): return x + SCALE\n"


def ways(source: str, name: str = "f") -> list[splitting.Split]:
    text = AROUND + dedent(source).strip("\n") + "\n"
    lines = [line.strip() for line in text.splitlines()]
    line = next(number for number, each in enumerate(lines, 1) if each.startswith((f"def {name}(", f"{name} =")))
    return splitting.splits(text, name, line)


def ran(text: str, name: str, *args: Any) -> Any:
    names: dict[str, Any] = {}
    exec(AROUND + dedent(text), names)
    return names[name](*args)


DIVIDED = {
    "one variable crosses": """
        def f(x, y):
            a = x * 2
            b = a + y
            return b * b
        """,
    "a docstring, comments and a tuple": """
        def f(x, y):
            '''What it
            does.'''
            # first
            a = x * 2  # twice
            # then
            b = (
                a,
                y,
            )
            return b, x
        """,
    "comments left of the statements": (
        "def f(x, y):\n    a = x * 2\n#   a = 0\n    b = (a +\n  y)\n# b = 0\n    c = b\n#\n    return c * b\n"
    ),
    "comprehensions, and a name that is set anew": """
        def f(x, y):
            parts = [p * 2 for p in (x, y)]
            a = sum(parts)
            parts = [p + a for p in (1, 2)]
            return sum(parts) + y
        """,
    "set anew in a branch alone": """
        def f(x, y):
            a = x * 2
            b = a + 1
            if y > 2:
                a = y
            return a + b
        """,
    "a parameter is set anew": """
        def f(x, y):
            x = x + 1
            x += y
            return x
        """,
    "an early return behind the division": """
        def f(x, y):
            a = x * 2
            if a > 1:
                return a
            return y
        """,
    "a function and a lambda within": """
        def f(x, y):
            def twice(x):
                return 2 * x
            a = twice(x)
            g = lambda y: y + a
            return g(y) + outside(a)
        """,
    "shadowed names in comprehensions": """
        def f(x, y):
            a = sum([x for x in range(5)]) + x
            b = {y: x for y in range(2)}
            return a, x, y, b
        """,
    "a dict that is changed": """
        def f(x, y):
            d = {"a": x, "b": y}
            d["c"] = d["a"] * 2
            d["a"] = 0
            return d
        """,
    "loops and conditions": """
        def f(x, y):
            total = 0
            for each in range(x):
                total = total + each
            if total > y:
                total = -total
            return total
        """,
    "a module is imported within": """
        def f(x, y):
            import math
            a = math.floor(x / 2)
            return math.ceil(a + y)
        """,
    "two names at once, and a walrus": """
        def f(x, y):
            (a, *b), c = [x, y, 4], y
            d = [e := a + c, c]
            return a, b, c, d, e
        """,
}


@pytest.mark.parametrize("source", DIVIDED.values(), ids=DIVIDED)
def test_two_halves_give_what_the_whole_gives(source: str) -> None:
    found = ways(source)
    assert [each.statements for each in found] == list(range(found[0].statements, source.count("import "), -1))
    for x, y in ((5, 3), (0, 7)):
        whole = ran(source, "f", x, y)
        for split in found:
            crossing = ran(split.fixed("f"), "f", x, y)
            args = crossing if len(split.crossing) > 1 else (crossing,)
            assert ran(split.random("f"), "f", *args) == whole, split


REFUSED = {
    "a decorator": ("@outside\ndef f(x):\n    a = x\n    return a", "a decorator"),
    "a lambda": ("f = lambda x: x", "no definition of its own"),
    "a method": ("class A:\n    def f(self, x):\n        a = x\n        return a", "a method"),
    "one statement": ("def f(x):\n    return x", "no line between"),
    "one line": ("def f(x): a = x; return a", "no line between"),
    "an early return": ("def f(x):\n    if x:\n        return x\n    a = x\n    return a", "no line between"),
    "defaults": ("def f(x, n=2):\n    a = x\n    return a", "plain names"),
    "any arguments": ("def f(*x):\n    a = x\n    return a", "plain names"),
    "a global": ("def f(x):\n    global SCALE\n    SCALE = x\n    return x", "variables of other functions"),
    "a generator": ("def f(x):\n    a = x\n    yield a", "a generator"),
    "locals": ("def f(x):\n    a = x\n    return locals()", "it uses locals"),
    "a text of lines": ("def f(x):\n    a = '''1\n2'''\n    return a", "several lines"),
    "nothing crosses": ("def f(x):\n    x\n    return 3", "no line between"),
}


@pytest.mark.parametrize(("source", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_may_not_do_the_same_in_two_halves_is_refused(source: str, reason: str) -> None:
    with pytest.raises(CannotSplitError, match=reason):
        ways(source)


def test_statements_on_one_line_stay_together() -> None:
    assert [each.statements for each in ways("def f(x):\n    a = x; b = a\n    return a, b")] == [2]


def test_what_a_comprehension_has_for_itself_or_is_set_anew_does_not_cross() -> None:
    """`p` had no value in the first half, whose `return` then failed; a cache kept `parts` for nothing."""
    two = next(each for each in ways(DIVIDED["comprehensions, and a name that is set anew"]) if each.statements == 2)
    assert two.crossing == ("y", "a")


def test_only_what_the_second_half_needs_crosses() -> None:
    source = "def f(x, y):\n    data = x * 2\n    image = data + 1\n    return image, y"
    assert [each.crossing for each in ways(source)] == [("y", "image"), ("y", "data")]
